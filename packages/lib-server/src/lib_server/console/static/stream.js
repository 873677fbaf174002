// A stream of server-sent events that goes on by itself: resumed by id, with longer and longer pauses.

import { send } from "./api.js";

const QUIET_MS = 22000; // the server writes a comment every 15 seconds
const LONGEST_MS = 30000;
const PASSING = new Set([0, 408, 425, 429, 500, 502, 503, 504]);

// Calls `message(event)` for each whole event among the chunks that are fed to it.
export class Parser {
  #rest = "";
  #event = { id: undefined, name: "", data: [] };
  #message;
  retry = 1000;

  constructor(message) {
    this.#message = message;
  }

  feed(chunk) {
    const lines = (this.#rest + chunk).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop();
    for (const line of lines) this.#line(line);
  }

  #line(line) {
    if (line === "") {
      const { id, name, data } = this.#event;
      this.#event = { id: undefined, name: "", data: [] };
      if (data.length) this.#message({ id, name, data: data.join("\n") });
      return;
    }
    const at = line.indexOf(":");
    if (at === 0) return; // a comment
    const field = at < 0 ? line : line.slice(0, at);
    const value = at < 0 ? "" : line.slice(at + 1).replace(/^ /, "");
    if (field === "data") this.#event.data.push(value);
    else if (field === "event") this.#event.name = value;
    else if (field === "id") this.#event.id = value;
    else if (field === "retry" && /^\d+$/.test(value)) this.retry = Number(value);
  }
}

// Waits, or less if the network comes back or the signal is given.
function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = window.setTimeout(resolve, ms);
    const wake = () => {
      window.clearTimeout(timer);
      resolve();
    };
    window.addEventListener("online", wake, { once: true, signal });
    signal.addEventListener("abort", wake, { once: true });
  });
}

// Follows the events of a run until its end.
//   message({name, data}): each event once and in order; pieces of replies in between
//   state(word, detail): "live", "late", "away" (with a Problem) or "ended" (with the last event)
//   reset(): the log is sent from its start
// Rejects with a Problem that does not pass by itself.
export async function follow(path, { message, state, reset, signal }) {
  let last = 0;
  let attempt = 0;
  while (!signal.aborted) {
    const outcome = { ended: false };
    const connection = new AbortController();
    const stop = () => connection.abort();
    signal.addEventListener("abort", stop, { once: true });
    const parser = new Parser((event) => {
      if (event.id !== undefined) last = Number(event.id);
      if (event.name === "stream.reset") {
        last = 0;
        reset();
      } else if (event.name === "run.end" || event.name === "run.erased") {
        outcome.ended = true;
        state("ended", event.name);
      } else if (!/^(stream|server)\./.test(event.name)) {
        message({ name: event.name, data: JSON.parse(event.data) });
      }
    });
    try {
      const response = await send(path, {
        signal: connection.signal,
        headers: { Accept: "text/event-stream", ...(last ? { "Last-Event-ID": String(last) } : {}) },
      });
      if (response.status === 204) return state("ended", "run.end");
      state("live");
      attempt = 0;
      await read(response.body, parser, state, stop);
      if (outcome.ended) return undefined;
    } catch (error) {
      if (signal.aborted) return undefined;
      if (!PASSING.has(error.status)) throw error;
      state("away", error);
      attempt += 1;
      await pause(Math.max(Math.min(parser.retry * 2 ** (attempt - 1), LONGEST_MS), (error.retryAfter ?? 0) * 1000), signal);
      continue;
    } finally {
      signal.removeEventListener("abort", stop);
    }
    await pause(parser.retry, signal);
  }
  return undefined;
}

// Feeds the body to the parser; a connection that is silent is late, and in the end given up.
async function read(body, parser, state, stop) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let timer;
  let late = false;
  const listen = () => {
    window.clearTimeout(timer);
    timer = window.setTimeout(() => {
      late = true;
      state("late");
      timer = window.setTimeout(stop, QUIET_MS);
    }, QUIET_MS);
  };
  listen();
  try {
    for (;;) {
      const { value, done } = await reader.read().catch(() => ({ done: true })); // cut: it is resumed
      if (done) return;
      listen();
      if (late) state("live");
      late = false;
      parser.feed(value);
    }
  } finally {
    window.clearTimeout(timer);
  }
}
