// The wire: requests under /v1 with the key of the person who has signed in.

const BASE = new URL("../../../v1/", import.meta.url);
const STORED = "lib-server.key";

let key = window.sessionStorage.getItem(STORED);
let refused = () => {};

export function useKey(value, { remember = false } = {}) {
  key = value;
  if (remember && value) window.sessionStorage.setItem(STORED, value);
  else window.sessionStorage.removeItem(STORED);
}

export const hasKey = () => Boolean(key);

// What to do when the server no longer takes the key.
export function onRefused(act) {
  refused = act;
}

// An error that the server answers with, as problem+json has it; status 0 if it does not answer.
export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || body.title || "The server does not answer");
    this.status = status;
    this.title = body.title ?? "The server does not answer";
    this.detail = body.detail ?? "";
    this.code = body.code ?? "";
    this.requestId = body.request_id ?? "";
    this.errors = body.errors ?? [];
    this.facts = body;
    this.retryAfter = 0;
  }
}

export const addressOf = (path) => new URL(path, BASE);

export function headers(more = {}) {
  return key ? { ...more, Authorization: `Bearer ${key}` } : more;
}

// Fetches; throws a Problem unless the answer is a good one.
export async function send(path, options = {}) {
  let response;
  try {
    response = await fetch(addressOf(path), { cache: "no-store", credentials: "omit", ...options, headers: headers(options.headers) });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new Problem(0, { title: "The server does not answer", detail: "Check the connection, then try again." });
  }
  if (response.ok) return response;
  const body = await response.json().catch(() => ({ title: `The server answers ${response.status}` }));
  const problem = new Problem(response.status, body);
  problem.retryAfter = Number(response.headers.get("retry-after") ?? 0);
  if (response.status === 401) refused(problem);
  throw problem;
}

export async function get(path, query = {}, signal = undefined) {
  const search = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== undefined && value !== "" && value !== null));
  return (await send(search.size ? `${path}?${search}` : path, { signal })).json();
}

export async function post(path, body, more = {}) {
  const response = await send(path, {
    method: "POST",
    body: JSON.stringify(body),
    headers: { "Content-Type": "application/json", ...more },
  });
  return response.status === 204 ? null : response.json();
}

export const part = encodeURIComponent;
