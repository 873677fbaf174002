// Markdown as elements, made one by one: HTML in it is text, images are links, links show their host.

import { h, text } from "./html.js";

const INLINE = /(`+)([\s\S]*?[^`])\1(?!`)|\*\*(\S(?:[\s\S]*?\S)?)\*\*|~~(\S(?:[\s\S]*?\S)?)~~|(?<![\w*])[*](\S(?:[^*]*?\S)?)[*](?![\w*])|(?<!\w)_(\S(?:[^_]*?\S)?)_(?!\w)|(!?)\[([^\]\n]*)\]\(([^)\s]+)\)|(https?:\/\/[^\s<>)\]]+)/g;
const FENCE = /^\s{0,3}(```+|~~~+)\s*(\S*)/;
const HEADING = /^\s{0,3}(#{1,6})\s+(.*)$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const QUOTE = /^\s{0,3}>\s?(.*)$/;
const RULE = /^\s{0,3}(?:-{3,}|\*{3,}|_{3,})\s*$/;
const DIVIDER = /^\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$/;
const LONGEST = 20000;
const LONGEST_LINE = 4000;
const DEEPEST = 6;

function link(label, address, isImage) {
  let target;
  try {
    target = new URL(address);
  } catch {
    return h("span", {}, `${label} (${address})`);
  }
  if (target.protocol !== "https:" && target.protocol !== "http:") return h("span", {}, `${label} (${address})`);
  const shown = isImage ? `Image: ${label || "without a name"}` : label || address;
  return h("a.outside", { href: target.href, rel: "noreferrer noopener", target: "_blank", title: target.href },
    shown, h("span.host", {}, ` ${target.host}`));
}

function inline(element, source, depth = 0) {
  if (source.length > LONGEST_LINE || depth > DEEPEST) {
    element.append(text(source));
    return element;
  }
  let done = 0;
  for (const found of source.matchAll(INLINE)) {
    const [whole, , code, strong, gone, starred, lined, image, label, address, bare] = found;
    element.append(text(source.slice(done, found.index)));
    if (code !== undefined) element.append(h("code", {}, code.trim() || code));
    else if (strong !== undefined) element.append(inline(h("strong"), strong, depth + 1));
    else if (gone !== undefined) element.append(inline(h("del"), gone, depth + 1));
    else if (address !== undefined) element.append(link(label, address, image === "!"));
    else if (bare !== undefined) element.append(link(bare, bare, false));
    else element.append(inline(h("em"), starred ?? lined, depth + 1));
    done = found.index + whole.length;
  }
  element.append(text(source.slice(done)));
  return element;
}

const cells = (line) => line.trim().replace(/^\|/, "").replace(/\|$/, "").split("|").map((cell) => cell.trim());

function table(lines, at) {
  const head = cells(lines[at]);
  const rows = [];
  let next = at + 2;
  for (; next < lines.length && lines[next].includes("|"); next += 1) rows.push(cells(lines[next]));
  const row = (tag, values) => h("tr", {}, head.map((_, column) => inline(h(tag, tag === "th" ? { scope: "col" } : {}), values[column] ?? "")));
  const element = h("table", {}, h("thead", {}, row("th", head)), h("tbody", {}, rows.map((values) => row("td", values))));
  return [h("div.scroll", { tabindex: 0, role: "region", "aria-label": "Table" }, element), next];
}

// A list with the lists in it; ends at the first line that is no item.
function list(lines, at) {
  const stack = [];
  let next = at;
  for (; next < lines.length; next += 1) {
    const item = ITEM.exec(lines[next]);
    if (!item) break;
    const indent = Math.min(item[1].length, 20);
    while (stack.length > 1 && indent < stack.at(-1).indent) stack.pop();
    if (!stack.length || (indent > stack.at(-1).indent + 1 && stack.length < DEEPEST)) {
      const inner = h(/\d/.test(item[2]) ? "ol" : "ul");
      stack.at(-1)?.element.lastElementChild.append(inner);
      stack.push({ indent, element: inner });
    }
    stack.at(-1).element.append(inline(h("li"), item[3]));
  }
  return [stack[0].element, next];
}

function fence(lines, at) {
  const [, ticks, language] = FENCE.exec(lines[at]);
  let next = at + 1;
  while (next < lines.length && !lines[next].trim().startsWith(ticks)) next += 1;
  const label = language ? `Code, ${language}` : "Code";
  return [h("pre", { tabindex: 0, role: "region", "aria-label": label }, h("code", {}, lines.slice(at + 1, next).join("\n"))), next + 1];
}

function block(lines, at, depth) {
  const heading = HEADING.exec(lines[at]);
  if (heading) return [inline(h("p.heading"), heading[2]), at + 1];
  if (FENCE.test(lines[at])) return fence(lines, at);
  if (RULE.test(lines[at])) return [h("hr"), at + 1];
  if (ITEM.test(lines[at])) return list(lines, at);
  if (lines[at].includes("|") && DIVIDER.test(lines[at + 1] ?? "") && lines[at + 1].includes("-")) return table(lines, at);
  if (QUOTE.test(lines[at]) && depth < DEEPEST) {
    let next = at;
    const inner = [];
    for (; next < lines.length && QUOTE.test(lines[next]); next += 1) inner.push(QUOTE.exec(lines[next])[1]);
    return [blocks(h("blockquote"), inner, depth + 1), next];
  }
  return null;
}

function blocks(box, lines, depth) {
  let paragraph = [];
  const flush = () => {
    if (paragraph.length) box.append(inline(h("p"), paragraph.join("\n")));
    paragraph = [];
  };
  let at = 0;
  while (at < lines.length) {
    const made = lines[at].trim() ? block(lines, at, depth) : null;
    if (made) {
      flush();
      box.append(made[0]);
      at = made[1];
    } else {
      if (lines[at].trim()) paragraph.push(lines[at]);
      else flush();
      at += 1;
    }
  }
  flush();
  return box;
}

// Text of a model as elements; what is very long stays plain.
export function markdown(source) {
  const box = h("div.markdown");
  if (source.length > LONGEST) {
    box.append(text(source));
    return box;
  }
  return blocks(box, source.split(/\r?\n/), 0);
}
