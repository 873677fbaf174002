// What is shown of a trace: which rows, which matches, which stretch of time. Nothing here draws.
// All parts stand in one function of `root` (the document, or a shadow root), of the data `trace`,
// and of `signal`, which ends what it hears of the window.

const spans = trace.spans;
const STATES = ["ok", "error", "off", "open"];
const SHORTEST_US = 10;

// Whatever changes the view changes this, and calls draw().
const view = {
  from: 0,
  to: trace.length,
  selected: 0,
  collapsed: new Set(),
  kinds: new Set(spans.map((span) => span.kind)),
  states: new Set(spans.map((span) => span.state)),
  query: "",
  rows: [], // numbers of the spans that have a row, from the top
  places: new Map(), // where in `rows` a span is
  context: new Set(), // rows that are there only for what is below them
  matches: [],
  matching: new Set(),
};

const parents = new Set(spans.map((span) => span.parent));
const below = new Array(spans.length).fill(0); // how many spans hang under one
for (let number = spans.length - 1; number > 0; number -= 1) {
  const parent = spans[number].parent;
  if (parent >= 0) below[parent] += 1 + below[number];
}

const passes = (span) => view.kinds.has(span.kind) && view.states.has(span.state);

// Rows are the spans that pass the filters and whatever is above them, but for what is collapsed.
function chooseRows() {
  const kept = new Uint8Array(spans.length);
  for (let number = spans.length - 1; number >= 0; number -= 1) {
    const span = spans[number];
    if (passes(span)) kept[number] = 2;
    if (kept[number] && span.parent >= 0 && !kept[span.parent]) kept[span.parent] = 1;
  }
  view.rows = [];
  view.context.clear();
  view.places.clear();
  let hidden = Infinity; // spans deeper than this are under a collapsed one
  spans.forEach((span, number) => {
    if (span.depth > hidden) return;
    hidden = view.collapsed.has(number) ? span.depth : Infinity;
    if (!kept[number]) return;
    if (kept[number] === 1) view.context.add(number);
    view.places.set(number, view.rows.length);
    view.rows.push(number);
  });
  if (!view.places.has(view.selected) && view.rows.length) {
    view.selected = nearestRow(view.selected);
  }
}

// The row of a span that has none: that of the nearest span above it, or the first.
function nearestRow(number) {
  let above = number;
  while (above >= 0 && !view.places.has(above)) above = spans[above].parent;
  return above >= 0 ? above : view.rows[0];
}

const haystacks = [];

function haystack(number) {
  if (haystacks[number] === undefined) {
    const { operation, what, words, run, id, input, output, error, ...rest } = spans[number];
    const events = (rest.events || []).map((event) => `${event.name} ${event.attributes.flat().join(" ")}`);
    haystacks[number] = [`${operation} ${what}`, words, run, id, input, output, error]
      .concat(rest.attributes.flat(), (rest.scores || []).flat(), events)
      .filter(Boolean)
      .join("\n")
      .toLowerCase();
  }
  return haystacks[number];
}

function search(query) {
  view.query = query.trim().toLowerCase();
  findMatches();
}

function findMatches() {
  view.matches = [];
  if (view.query) {
    spans.forEach((span, number) => {
      if (passes(span) && haystack(number).includes(view.query)) view.matches.push(number);
    });
  }
  view.matching = new Set(view.matches);
}

// The match to go to from the selected span; going on at the end begins again.
function nextMatch(step) {
  const found = view.matches;
  if (!found.length) return undefined;
  if (step > 0) return found.find((number) => number > view.selected) ?? found[0];
  return found.findLast((number) => number < view.selected) ?? found[found.length - 1];
}

function reveal(number) {
  for (let above = spans[number].parent; above >= 0; above = spans[above].parent) {
    view.collapsed.delete(above);
  }
}

function collapseAll() {
  view.collapsed = new Set([...parents].filter((number) => number >= 0));
  spans.forEach((span, number) => {
    if (span.depth === 0) view.collapsed.delete(number);
  });
}

// Shows a stretch of time within the trace, at least SHORTEST_US long.
function showTime(from, to) {
  const length = Math.min(Math.max(to - from, SHORTEST_US), trace.length);
  view.from = Math.min(Math.max(from, 0), trace.length - length);
  view.to = view.from + length;
}

function zoom(factor, around = (view.from + view.to) / 2) {
  showTime(around - (around - view.from) * factor, around + (view.to - around) * factor);
}

function zoomTo(span) {
  const margin = Math.max((span.end - span.start) / 20, trace.length / 1e5);
  showTime(span.start - margin, span.end + margin);
}

const zoomed = () => view.to - view.from < trace.length;

// -- time in words ---------------------------------------------------------------------------------

const MS = 1e3;
const S = 1e6;
const M = 60 * S;
const H = 60 * M;
const D = 24 * H;
const STEPS = [];
for (let power = 1; power <= S; power *= 10) STEPS.push(power, 2 * power, 5 * power);
STEPS.push(10 * S, 15 * S, 30 * S, ...[1, 2, 5, 10, 15, 30].map((n) => n * M), ...[1, 2, 3, 6, 12].map((n) => n * H));

function stepFor(length, most) {
  const least = length / most;
  return STEPS.find((step) => step >= least) ?? Math.ceil(least / D) * D;
}

const exact = (number) => String(Number(number.toFixed(6)));

// A time since the beginning, in the same words as the terminal's axis.
function label(time) {
  if (time < S) return time ? `${exact(time / MS)} ms` : "0";
  const parts = [];
  let rest = time;
  for (const [size, unit] of [[D, "d"], [H, "h"], [M, "m"]]) {
    if (rest >= size) parts.push(`${Math.floor(rest / size)} ${unit}`);
    rest %= size;
  }
  if (rest) parts.push(`${exact(rest / S)} s`);
  return parts.join(" ");
}
