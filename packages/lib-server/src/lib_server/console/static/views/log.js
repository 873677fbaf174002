// The log of a run: its events as they are, by kind, page by page.

import { button, fill, h, pre, time } from "../html.js";
import { copyButton } from "../state.js";
import { number } from "../text.js";

const PAGE = 200;

function entry(event) {
  const shown = { seq: event.seq, kind: event.kind, at: event.at, user: event.user, data: event.data };
  const element = h("details.event", {},
    h("summary", {}, h("span.seq", {}, number(event.seq)), h("code", {}, event.kind), h("span.soft", {}, String(event.data.key ?? "")), time(event.at)));
  element.addEventListener("toggle", () => {
    if (element.childElementCount > 1) return;
    const json = JSON.stringify(shown, null, 2);
    element.append(pre(json, `Event ${event.seq}`, `event-${event.seq}.json`), copyButton(json, `Copy event ${event.seq} as JSON`));
  });
  return element;
}

export class LogView {
  #events = [];
  #kinds = new Set();
  #most = PAGE;

  constructor() {
    this.select = h("select", { "aria-label": "Kind of event", on: { change: () => this.#draw() } }, h("option", { value: "" }, "Every kind"));
    this.list = h("div.events");
    this.more = button("", () => {
      this.#most += PAGE;
      this.#draw();
    });
    this.element = h("div", {}, h("div.filters", {}, this.select), this.list, this.more);
    this.more.hidden = true;
  }

  get events() {
    return this.#events;
  }

  reset() {
    this.#events = [];
    this.#draw();
  }

  apply(event) {
    this.#events.push(event);
    if (!this.#kinds.has(event.kind)) {
      this.#kinds.add(event.kind);
      this.select.append(h("option", { value: event.kind }, event.kind));
    }
    if (this.select.value && this.select.value !== event.kind) return;
    if (this.list.childElementCount < this.#most) this.list.append(entry(event));
    else this.#showMore();
  }

  #chosen() {
    return this.#events.filter((event) => !this.select.value || event.kind === this.select.value);
  }

  #draw() {
    fill(this.list, this.#chosen().slice(0, this.#most).map(entry));
    this.#showMore();
  }

  #showMore() {
    const left = this.#chosen().length - this.#most;
    this.more.hidden = left <= 0;
    fill(this.more, `Show more of ${number(left)}`);
  }
}
