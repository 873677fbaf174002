// Elements made one by one. Text is set as text: nothing here, or elsewhere, reads markup.

import { ago, asText, exactTime, visible } from "./text.js";

const ATTRIBUTES = new Set([
  "accept", "alt", "autocomplete", "checked", "colspan", "datetime", "disabled", "download",
  "enterkeyhint", "for", "hidden", "href", "id", "lang", "max", "maxlength", "method", "min",
  "multiple", "name", "open", "placeholder", "readonly", "rel", "role", "rows", "scope", "selected",
  "spellcheck", "src", "tabindex", "target", "title", "type", "value",
]);
const SAFE = { href: /^(?:#|https?:\/\/|blob:)/, src: /^blob:/ };
const SVG = "http://www.w3.org/2000/svg";

function setAttribute(element, name, value) {
  if (!(ATTRIBUTES.has(name) || name.startsWith("aria-") || name.startsWith("data-"))) {
    throw new TypeError(`expected a harmless attribute, got ${name}`);
  }
  if (name in SAFE && !SAFE[name].test(value)) throw new TypeError(`unsafe address for ${name}`);
  if (value === false || value === null || value === undefined) element.removeAttribute(name);
  else element.setAttribute(name, value === true && !name.startsWith("aria-") ? "" : visible(String(value)));
}

function append(element, child) {
  if (child === null || child === undefined || child === false) return;
  if (Array.isArray(child)) for (const each of child) append(element, each);
  else element.append(child instanceof Node ? child : visible(String(child)));
}

// An element: h("div.card", { on: { click }, title: "…" }, "text", other).
export function h(name, properties, ...children) {
  const [tag, ...classes] = name.split(".");
  const element = document.createElement(tag);
  if (classes.length) element.className = classes.join(" ");
  for (const [key, value] of Object.entries(properties ?? {})) {
    if (key === "on") for (const [event, act] of Object.entries(value)) element.addEventListener(event, act);
    else if (key === "class") element.classList.add(...value.split(" ").filter(Boolean));
    else setAttribute(element, key, value);
  }
  append(element, children);
  return element;
}

export function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) setAttribute(element, name, value);
  return element;
}

export const text = (value) => document.createTextNode(visible(value));

// Replaces what an element holds.
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

export function button(label, act, properties = {}) {
  return h("button", { type: "button", ...properties, on: { click: act, ...properties.on } }, label);
}

const ICONS = {
  inbox: "M3 12h5l2 3h4l2-3h5M5 5h14l2 7v7H3v-7z",
  runs: "M4 6h16M4 12h16M4 18h16",
  chat: "M4 5h16v11H9l-5 4z",
  sessions: "M4 4h11v8H8l-4 3zM18 9h2v9l-3-2h-7v-2",
  settings: "M12 9a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM12 3v3M12 18v3M3 12h3M18 12h3M6 6l2 2M16 16l2 2M18 6l-2 2M8 16l-2 2",
  spend: "M5 20v-7M12 20V5M19 20v-11",
};

export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

// A time in words, with the exact one for those who point at it or focus it.
export function time(value) {
  const at = new Date(value);
  const exact = exactTime(at);
  return h("time", { datetime: at.toISOString(), title: exact, "aria-label": `${ago(at)}, ${exact}` }, ago(at));
}

// Times that are shown go on counting.
export function refreshTimes(root) {
  for (const element of root.querySelectorAll("time")) {
    const words = ago(new Date(element.getAttribute("datetime")));
    if (element.textContent === words) continue;
    element.textContent = words;
    element.setAttribute("aria-label", `${words}, ${element.title}`);
  }
}

const SHOWN = 20000;

// Text as it is, in a box; of a very long one the first part, and all of it as a file.
export function pre(value, label, name = "content.txt") {
  const whole = asText(value);
  const box = h("pre", { tabindex: 0, role: "region", "aria-label": label }, whole.slice(0, SHOWN));
  if (whole.length <= SHOWN) return box;
  const rest = h("p.soft", {}, `The first ${SHOWN} of ${whole.length} characters. `, button("Download all", () => download(name, whole), { class: "link" }));
  return h("div", {}, box, rest);
}

export function download(name, content, type = "text/plain") {
  const address = URL.createObjectURL(new Blob([content], { type }));
  h("a", { href: address, download: name }).click();
  URL.revokeObjectURL(address);
}

// A value as a table where it is an object, else as text.
export function valueTable(value, label) {
  const entries = value && typeof value === "object" && !Array.isArray(value) ? Object.entries(value) : null;
  if (!entries) return pre(value, label);
  if (!entries.length) return h("p.soft", {}, "none");
  const rows = entries.map(([key, one]) => h("tr", {}, h("th", { scope: "row" }, key), h("td", {}, simple(one, `${label}: ${key}`))));
  return h("table.values", { "aria-label": label }, h("tbody", {}, rows));
}

function simple(value, label) {
  const written = asText(value);
  return typeof value === "object" && value !== null ? pre(value, label) : written.length > 2000 ? pre(written, label) : written;
}
