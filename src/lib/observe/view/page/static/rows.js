// The waterfall: the axis, and only those rows that are in sight. All text is set as text.

const byId = (id) => root.getElementById(id);
const grid = byId("grid");
const rowsBox = byId("rows");
const axis = byId("axis");
const waterfall = grid.parentElement;
const overview = byId("overview");
const ROW = 26;
const MARGIN_ROWS = 12;
const MAX_INDENT = 20;
const MAX_MOMENTS = 50;

let printing = false;

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

function cell(className, text) {
  const element = make("div", className, text);
  element.setAttribute("role", "gridcell");
  return element;
}

const percent = (time) => ((time - view.from) / (view.to - view.from)) * 100;

// Appends the text with what is searched for marked in it.
function appendMarked(element, text) {
  const lower = text.toLowerCase();
  let done = 0;
  // Some letters have other lengths in lower case: then nothing is marked rather than the wrong part.
  if (view.query && lower.length === text.length) {
    for (let at = lower.indexOf(view.query); at >= 0; at = lower.indexOf(view.query, done)) {
      element.append(text.slice(done, at), make("mark", "", text.slice(at, at + view.query.length)));
      done = at + view.query.length;
    }
  }
  element.append(text.slice(done));
}

function nameCell(span, number) {
  const name = cell("name");
  const indent = make("span", "indent");
  indent.style.width = `${Math.min(span.depth, MAX_INDENT) * 14}px`;
  const folds = parents.has(number);
  const folded = view.collapsed.has(number);
  const twist = make(folds ? "button" : "span", "twist", folds ? (folded ? "▶" : "▼") : "");
  if (folds) {
    twist.tabIndex = -1;
    twist.type = "button";
    twist.setAttribute("aria-label", folded ? "expand" : "collapse");
  }
  const glyph = make("span", "glyph", trace.kinds[span.kind]);
  glyph.setAttribute("aria-label", span.kind);
  glyph.setAttribute("role", "img");
  const what = make("span", "what");
  if (span.what) {
    const operation = make("span", "operation");
    appendMarked(operation, span.operation);
    what.append(operation, " ");
    appendMarked(what, span.what);
  } else {
    appendMarked(what, span.operation);
  }
  what.title = `${span.operation} ${span.what}`;
  name.append(indent, twist, glyph, what);
  if (folded) name.append(make("span", "below", `+${below[number].toLocaleString("en")}`));
  return name;
}

function laneCell(span) {
  const lane = cell("lane");
  const fill = make("div", "fill");
  const took = span.took ? `, took ${span.took}` : "";
  lane.setAttribute("aria-label", `begins at ${label(span.start)}${took}`);
  // What is far outside is cut here: browsers do not draw boxes of any width.
  const left = Math.max(percent(span.start), -1);
  const right = Math.min(percent(span.end), 101);
  fill.style.left = `${left}%`;
  if (span.end === span.start) fill.classList.add("instant");
  else fill.style.width = `${Math.max(right - left, 0)}%`;
  if (span.end < view.from) lane.append(make("span", "outside", "◂"));
  else if (span.start > view.to) lane.append(make("span", "outside later", "▸"));
  else lane.append(fill);
  if (span.waiting) fill.classList.add("waiting");
  for (const [lost, back] of span.dead || []) {
    const gap = make("div", "dead");
    gap.style.left = `${Math.max(percent(lost), -1)}%`;
    gap.style.width = `${Math.max(Math.min(percent(back), 101) - Math.max(percent(lost), -1), 0)}%`;
    gap.title = back > lost ? `no process from ${label(lost)} to ${label(back)}` : `its process was lost at ${label(lost)}`;
    lane.append(gap);
  }
  for (const event of (span.events || []).slice(0, MAX_MOMENTS)) {
    if (event.name === "run.lost") continue; // the gap after it is drawn
    const moment = make("div", "moment");
    moment.style.left = `${percent(event.at)}%`;
    moment.title = `${event.name} at ${label(event.at)}`;
    lane.append(moment);
  }
  return lane;
}

function rowElement(place) {
  const number = view.rows[place];
  const span = spans[number];
  const row = make("div", `row ${span.kind} ${span.state}`);
  row.classList.toggle("top", span.depth === 0);
  row.classList.toggle("parent", parents.has(number));
  row.classList.toggle("context", view.context.has(number));
  row.classList.toggle("hit", view.matching.has(number));
  row.id = `row-${number}`;
  row.dataset.number = number;
  row.setAttribute("role", "row");
  row.setAttribute("aria-level", span.depth + 1);
  row.setAttribute("aria-rowindex", place + 1);
  row.setAttribute("aria-selected", number === view.selected);
  if (parents.has(number)) row.setAttribute("aria-expanded", !view.collapsed.has(number));
  const state = cell("state", `${trace.marks[span.state]} ${span.words}`);
  state.title = span.words || span.state;
  state.setAttribute("aria-label", `${span.state} ${span.words}`);
  row.append(nameCell(span, number), cell("took", span.took), laneCell(span), cell("used", span.used), state);
  if (!printing) row.style.top = `${place * ROW}px`;
  return row;
}

function drawRows() {
  let first = 0;
  let last = view.rows.length;
  if (!printing) {
    first = Math.max(Math.floor(grid.scrollTop / ROW) - MARGIN_ROWS, 0);
    last = Math.min(Math.ceil((grid.scrollTop + grid.clientHeight) / ROW) + MARGIN_ROWS, last);
  }
  rowsBox.style.height = `${view.rows.length * ROW}px`;
  const shown = document.createDocumentFragment();
  for (let place = first; place < last; place += 1) shown.append(rowElement(place));
  rowsBox.replaceChildren(shown);
  grid.setAttribute("aria-rowcount", view.rows.length);
  const active = byId(`row-${view.selected}`);
  if (active) grid.setAttribute("aria-activedescendant", active.id);
  else grid.removeAttribute("aria-activedescendant");
  byId("nothing").hidden = view.rows.length > 0;
}

function drawAxis() {
  const length = view.to - view.from;
  const step = stepFor(length, Math.max(Math.floor(axis.clientWidth / 90), 1));
  const marks = document.createDocumentFragment();
  const first = Math.ceil(view.from / step);
  for (let time = first * step; time < view.to; time += step) {
    const tick = make("span", "", label(time));
    tick.style.left = `${percent(time)}%`;
    marks.append(tick);
  }
  byId("ticks").replaceChildren(marks);
  // A lane is ruled at the ticks: the pattern repeats every step and begins at the first.
  const width = rowsBox.clientWidth && axis.clientWidth;
  rowsBox.style.setProperty("--step", `${(step / length) * width}px`);
  rowsBox.style.setProperty("--shift", `${((first * step - view.from) / length) * width}px`);
}

function drawOverview() {
  const ratio = window.devicePixelRatio || 1;
  const width = axis.clientWidth;
  const height = 34;
  overview.width = width * ratio;
  overview.height = height * ratio;
  const pen = overview.getContext("2d");
  if (!pen || !width) return;
  pen.scale(ratio, ratio);
  const colours = new Map();
  const colourOf = (span) => {
    const name = span.state === "error" ? "error" : span.kind;
    if (!colours.has(name)) {
      const probe = make("span", name);
      axis.append(probe);
      probe.style.color = name === "error" ? "var(--error)" : "var(--colour)";
      colours.set(name, getComputedStyle(probe).color);
      probe.remove();
    }
    return colours.get(name);
  };
  const line = Math.min(Math.max(height / view.rows.length, 1), 4);
  view.rows.forEach((number, place) => {
    const span = spans[number];
    pen.fillStyle = colourOf(span);
    pen.globalAlpha = parents.has(number) ? 0.45 : 0.9;
    const left = (span.start / trace.length) * width;
    const right = (span.end / trace.length) * width;
    pen.fillRect(left, (place / view.rows.length) * height, Math.max(right - left, 1), line);
  });
  drawBrush(view.from, view.to, zoomed());
}

// The frame on the overview around a stretch of the whole trace.
function drawBrush(from, to, shown) {
  const brush = byId("brush");
  brush.hidden = !shown;
  brush.style.left = `${(from / trace.length) * 100}%`;
  brush.style.width = `${((to - from) / trace.length) * 100}%`;
}

// Columns as wide as what is in them, within bounds; `ch` is the width of a digit.
function fitColumns() {
  const longest = (name) => spans.reduce((most, span) => Math.max(most, span[name].length), 0);
  const used = longest("used");
  waterfall.classList.toggle("unused", !used);
  waterfall.style.setProperty("--used", used ? `calc(${Math.max(used, 6)}ch + 14px)` : "0px");
  waterfall.style.setProperty("--words", `calc(${Math.min(Math.max(longest("words"), 8), 22)}ch + 34px)`);
}

function draw() {
  drawAxis();
  drawOverview();
  drawRows();
}

function scrollTo(number) {
  const top = (view.places.get(number) ?? 0) * ROW;
  const room = grid.clientHeight - ROW;
  if (top < grid.scrollTop) grid.scrollTop = top;
  else if (top > grid.scrollTop + room) grid.scrollTop = top - room;
}
