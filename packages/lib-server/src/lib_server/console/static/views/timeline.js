// The timeline of a run: the waterfall of `lib trace --html`, in a root of its own, so that its style,
// names and keys stay there.

import { get, part } from "../api.js";
import { button, fill, h } from "../html.js";
import { empty, failure, skeleton } from "../state.js";
import { drawTrace } from "../trace.js";

const REREAD_MS = 500;
const SHARE = 10; // what takes long to read is read no more than a tenth of the time
const TOUCHES = ["pointerdown", "keydown", "wheel", "focusin"];

// An element with the waterfall in it, drawn as soon as it has its style.
function waterfall(trace, signal) {
  const host = h("div.timeline");
  const root = host.attachShadow({ mode: "open" });
  const style = h("link", { rel: "stylesheet", href: new URL("../trace.css", import.meta.url).href, on: { load: () => drawTrace(root, trace, signal) } });
  root.append(style, document.getElementById("waterfall").content.cloneNode(true));
  root.getElementById("theme").remove(); // that of the console stands in its settings
  return host;
}

export class TimelineView {
  #drawn = null; // ends what the waterfall that is shown hears
  #shown = false;
  #stale = true; // there are events that it does not show
  #touched = false; // in use: then it is drawn anew only if the button is pressed
  #timer = 0;
  #pause = REREAD_MS;

  constructor(runId, signal) {
    this.runId = runId;
    this.signal = signal;
    this.fresh = button("Show what has come since", () => this.#read(), { class: "fresh", hidden: true });
    this.problems = h("div");
    this.body = h("div");
    for (const touch of TOUCHES) this.body.addEventListener(touch, () => { this.#touched = true; }, { passive: true });
    this.element = h("div", {}, h("div.news", {}, this.fresh), this.problems, this.body);
    signal.addEventListener("abort", () => {
      window.clearTimeout(this.#timer);
      this.#drawn?.abort();
    });
  }

  // It is shown from now on, or not; only then it is read.
  show(shown) {
    this.#shown = shown;
    if (shown && this.#stale && !this.#drawn) fill(this.body, skeleton());
    this.#schedule();
  }

  changed() {
    this.#stale = true;
    this.#schedule();
  }

  #schedule() {
    if (!this.#shown || !this.#stale || this.#timer || this.signal.aborted) return;
    this.#timer = window.setTimeout(async () => {
      if (this.#touched) this.fresh.hidden = false;
      else await this.#read();
      this.#timer = 0;
      if (!this.#touched) this.#schedule();
    }, this.#pause);
  }

  async #read() {
    this.#stale = false;
    this.fresh.hidden = true;
    const began = performance.now();
    try {
      const trace = await get(`runs/${part(this.runId)}/trace`, {}, this.signal);
      this.#pause = Math.max(REREAD_MS, SHARE * (performance.now() - began));
      this.#drawn?.abort();
      this.#drawn = new AbortController();
      this.#touched = false;
      fill(this.problems);
      fill(this.body, trace.spans.length ? waterfall(trace, this.#drawn.signal) : empty("Nothing has happened yet"));
    } catch (problem) {
      if (this.signal.aborted) return;
      if (problem.status === undefined) throw problem;
      fill(this.problems, failure(problem, () => this.#read()));
      if (!this.#drawn) fill(this.body);
    }
  }
}
