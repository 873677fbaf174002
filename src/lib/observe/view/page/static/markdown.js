// Markdown as elements, made one by one: no text is ever read as markup. Links are shown as text.

const INLINE = /(`+)([^`][\s\S]*?)\1|\*\*(\S(?:[\s\S]*?\S)?)\*\*|(?<![\w*])\*(\S(?:[^*]*?\S)?)\*(?![\w*])|\[([^\]\n]+)\]\(([^)\s]+)\)/g;
const FENCE = /^\s*(```+|~~~+)/;
const HEADING = /^(#{1,6})\s+(.*)$/;
const ITEM = /^\s*(?:[-*+]|\d{1,9}[.)])\s+(.*)$/;
const MAX_MARKDOWN = 20000;

function inline(element, text) {
  let done = 0;
  for (const found of text.matchAll(INLINE)) {
    appendMarked(element, text.slice(done, found.index));
    const [whole, ticks, code, strong, weak, link, address] = found;
    const part = make(ticks ? "code" : strong ? "strong" : weak ? "em" : "span");
    if (link) {
      appendMarked(part, `${link} (${address})`);
    } else {
      appendMarked(part, code || strong || weak);
    }
    element.append(part);
    done = found.index + whole.length;
  }
  appendMarked(element, text.slice(done));
}

function markdown(text) {
  const box = make("div", "markdown");
  if (text.length > MAX_MARKDOWN) {
    appendMarked(box, text);
    return box;
  }
  const lines = text.split("\n");
  let paragraph = [];
  let list = null;
  const flush = () => {
    if (paragraph.length) {
      const element = make("p");
      inline(element, paragraph.join("\n"));
      box.append(element);
    }
    paragraph = [];
  };
  for (let at = 0; at < lines.length; at += 1) {
    const line = lines[at];
    const fence = FENCE.exec(line);
    const heading = HEADING.exec(line);
    const item = ITEM.exec(line);
    if (fence || heading || item || !line.trim()) flush();
    if (!item) list = null;
    if (fence) {
      const code = [];
      for (at += 1; at < lines.length && !lines[at].trim().startsWith(fence[1]); at += 1) code.push(lines[at]);
      const element = make("pre");
      appendMarked(element, code.join("\n"));
      box.append(element);
    } else if (heading) {
      const element = make("p", "heading");
      inline(element, heading[2]);
      box.append(element);
    } else if (item) {
      if (!list) {
        list = make(/^\s*\d/.test(line) ? "ol" : "ul");
        box.append(list);
      }
      const element = make("li");
      inline(element, item[1]);
      list.append(element);
    } else if (line.trim()) {
      paragraph.push(line);
    }
  }
  flush();
  return box;
}
