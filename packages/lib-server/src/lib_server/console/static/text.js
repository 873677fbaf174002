// Text that people can trust their eyes with; times, numbers and costs in words.

const MISLEADING = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\u{e0000}-\u{e007f}]/gu;
const MARKS = /(\p{M}{6})\p{M}+/gu;

// The text with controls, marks of direction and invisible letters as their numbers, and with at
// most six marks on a letter.
export function visible(text) {
  return text
    .replace(MISLEADING, (found) => `\\u${found.codePointAt(0).toString(16).padStart(4, "0")}`)
    .replace(MARKS, "$1");
}

export function asText(value) {
  if (typeof value === "string") return value;
  return JSON.stringify(value, null, 2) ?? "";
}

export function firstLine(text, length = 120) {
  const line = text.trim().split(/\r?\n/, 1)[0];
  return line.length > length ? `${line.slice(0, length - 1)}…` : line;
}

const NUMBER = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });
export const number = (value) => NUMBER.format(value).replaceAll(",", "\u2009");

// A cost to the cent, or to the two digits that matter.
export function cost(dollars) {
  if (dollars === null || dollars === undefined) return "";
  if (dollars === 0) return "$0";
  if (dollars >= 0.1) return `$${dollars.toFixed(2)}`;
  return `$${Number(dollars.toPrecision(2))}`;
}

export const plural = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;

const UNITS = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];

export function duration(seconds) {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${Number(seconds.toFixed(1))} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

export function ago(at, now = Date.now()) {
  const seconds = Math.max(0, (now - at.getTime()) / 1000);
  const [unit, size] = UNITS.find(([, least]) => seconds >= least) ?? ["second", 1];
  const count = Math.floor(seconds / size);
  return unit === "second" && count < 10 ? "just now" : `${plural(count, unit)} ago`;
}

export const exactTime = (at) => at.toISOString().replace("T", " ").replace(/\.\d+Z$/, " UTC");
