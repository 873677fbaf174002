// A list of any length, of which only the rows in sight are elements.

import { h } from "./html.js";

const MARGIN_ROWS = 10;

// `row(item)` makes the element of one, `height` pixels high; `nearEnd()` is called when the last
// rows are in sight, or nearly.
export class VirtualList {
  #items = [];
  #shown = new Map(); // by key: [element, item]
  #drawn = 0;

  constructor({ row, key, height, label, nearEnd = () => {} }) {
    this.row = row;
    this.nearEnd = nearEnd;
    this.key = key;
    this.height = height;
    this.inner = h("div.rows", { role: "list", "aria-label": label });
    this.element = h("div.list", {}, this.inner);
    this.element.addEventListener("scroll", () => this.#soon(), { passive: true });
    new ResizeObserver(() => this.#soon()).observe(this.element);
    this.element.addEventListener("keydown", (event) => this.#jump(event));
  }

  get items() {
    return this.#items;
  }

  set items(items) {
    this.#items = items;
    this.draw();
  }

  #soon() {
    if (!this.#drawn) this.#drawn = window.requestAnimationFrame(() => this.draw());
  }

  #jump(event) {
    if (event.key !== "Home" && event.key !== "End") return;
    this.element.scrollTop = event.key === "Home" ? 0 : this.#items.length * this.height;
    this.draw();
    const [element] = this.#shown.get(this.key(this.#items.at(event.key === "Home" ? 0 : -1))) ?? [];
    element?.querySelector("[data-item]").focus({ preventScroll: true });
    this.draw();
    event.preventDefault();
  }

  // Draws the rows in sight; one that is there already, of the same item, is left alone.
  draw() {
    this.#drawn = 0;
    const top = this.element.scrollTop;
    const first = Math.max(Math.floor(top / this.height) - MARGIN_ROWS, 0);
    const last = Math.min(Math.ceil((top + this.element.clientHeight) / this.height) + MARGIN_ROWS, this.#items.length);
    this.inner.style.height = `${this.#items.length * this.height}px`;
    const places = [];
    for (let place = first; place < last; place += 1) places.push(place);
    const focused = document.activeElement?.closest(".rows > *"); // stays, so that the focus does
    const kept = [...this.#shown.values()].find(([element]) => element === focused);
    const keptAt = kept ? this.#items.findIndex((item) => this.key(item) === this.key(kept[1])) : -1;
    if (keptAt >= 0 && keptAt < first) places.unshift(keptAt);
    else if (keptAt >= last) places.push(keptAt);
    const wanted = new Map(places.map((place) => [this.key(this.#items[place]), place]));
    for (const [key, [element]] of this.#shown) {
      if (wanted.has(key)) continue;
      element.remove();
      this.#shown.delete(key);
    }
    if (last === this.#items.length) this.nearEnd();
    let before = null;
    for (const [key, place] of wanted) {
      const item = this.#items[place];
      let [element, drawn] = this.#shown.get(key) ?? [];
      if (drawn !== item) {
        const made = h("div.row", { role: "listitem" }, this.row(item));
        if (element === focused && element) {
          element.replaceChildren(...made.childNodes);
          element.querySelector("[data-item]")?.focus({ preventScroll: true });
        } else {
          element?.remove();
          element = made;
        }
      }
      element.style.top = `${place * this.height}px`;
      element.setAttribute("aria-setsize", this.#items.length);
      element.setAttribute("aria-posinset", place + 1);
      if (before ? before.nextSibling !== element : this.inner.firstChild !== element) {
        if (before) before.after(element);
        else this.inner.prepend(element);
      }
      before = element;
      this.#shown.set(key, [element, item]);
    }
  }
}
