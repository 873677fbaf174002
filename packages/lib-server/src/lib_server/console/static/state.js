// What a view shows while it has nothing else: loading, an error, nothing at all, and how live it is.

import { button, fill, h } from "./html.js";

const SKELETON_MS = 150;

// Lines in the place of what is being loaded, if that takes longer than a blink.
export function skeleton() {
  const box = h("div.skeleton", { "aria-hidden": "true" });
  window.setTimeout(() => box.append(...[0, 1, 2, 3].map(() => h("div"))), SKELETON_MS);
  return box;
}

const WAYS_OUT = {
  403: "Sign in with a key that has this scope, or have an administrator do it.",
  404: "It may never have been here, or belong to another tenant.",
  410: "Its content has been erased on request.",
};

export function failure(problem, retry) {
  const scope = /'(\w+)'/.exec(problem.detail ?? "")?.[1];
  const detail = problem.status === 403 && scope ? `Your key lacks the scope ${scope}.` : problem.detail || problem.message;
  return h("div.failure", { role: "alert" },
    h("h2", {}, problem.title ?? "Something went wrong"),
    h("p", {}, detail),
    problem.facts?.decision ? h("p", {}, `It was ${problem.facts.decision}${problem.facts.decided_by ? ` by ${problem.facts.decided_by}` : ""}.`) : null,
    WAYS_OUT[problem.status] ? h("p.soft", {}, WAYS_OUT[problem.status]) : null,
    problem.errors?.length ? h("ul", {}, problem.errors.map((each) => h("li", {}, `${each.pointer}: ${each.detail}`))) : null,
    problem.requestId ? h("p.soft", {}, "Request ", h("code", {}, problem.requestId), " ", copyButton(problem.requestId, "Copy the request id")) : null,
    retry ? button("Retry", retry) : null);
}

export const empty = (title, detail) => h("div.empty", {}, h("h2", {}, title), detail ? h("p.soft", {}, detail) : null);

export function copyButton(value, label, words = "Copy") {
  return button(words, async () => {
    await window.navigator.clipboard.writeText(value);
    announce("Copied");
  }, { class: words === "Copy" ? "small" : "", title: label });
}

// Says a thing to those who do not see the page, and shows it for a moment.
export function announce(words) {
  const box = document.getElementById("announcement");
  box.textContent = "";
  window.requestAnimationFrame(() => fill(box, words));
}

const DOTS = {
  live: ["live", "What is shown is live"],
  late: ["late", "The server has been silent for more than 20 seconds"],
  away: ["away", "The connection is lost; it is being tried again"],
  ended: ["ended", "This has ended: nothing more will come"],
  waiting: ["connecting", "Connecting"],
};

// A dot and a word: how live a view is.
export function liveDot() {
  const word = h("span", {}, "connecting");
  const element = h("span.live", { "data-state": "waiting", role: "status", title: DOTS.waiting[1] }, h("span.dot", { "aria-hidden": "true" }), word);
  return {
    element,
    set(state) {
      if (element.dataset.state === state) return;
      element.dataset.state = state;
      [word.textContent, element.title] = DOTS[state];
    },
  };
}

// Loads what a view needs, with a skeleton before and an error after a failure.
export async function load(box, read, show, signal) {
  fill(box, skeleton());
  box.setAttribute("aria-busy", "true");
  try {
    const value = await read();
    if (!signal.aborted) fill(box, show(value));
  } catch (problem) {
    if (signal.aborted || problem.name === "AbortError") return;
    if (problem.status === undefined) throw problem;
    fill(box, failure(problem, () => load(box, read, show, signal)));
  } finally {
    box.removeAttribute("aria-busy");
  }
}
