// How runs are: a shape and a word for each, besides the colour.

import { h } from "./html.js";

const STATES = {
  queued: ["○", "queued", "open"],
  working: ["◐", "working", "open"],
  waiting: ["◷", "waiting", "open"],
  COMPLETED: ["✓", "completed", "ok"],
  FAILED: ["✗", "failed", "error"],
  CANCELLED: ["⊘", "cancelled", "off"],
  BLOCKED: ["⊘", "blocked by a guard", "off"],
  LIMITED: ["⊘", "over its budget", "off"],
};

export function stateMark(run) {
  const [glyph, word, colour] = STATES[run.outcome ?? run.state] ?? ["?", String(run.outcome ?? run.state), "off"];
  return h("span.mark", { class: colour }, h("span", { "aria-hidden": "true" }, glyph), ` ${word}`);
}
