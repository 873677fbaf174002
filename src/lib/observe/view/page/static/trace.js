// What people do: select, fold, filter, search, zoom, by hand and by key.

const input = byId("search");
const MOVES = { ArrowUp: -1, ArrowDown: 1, PageUp: -20, PageDown: 20, Home: -Infinity, End: Infinity };

// Draws everything after rows may have come or gone: another span can be the selected one.
function refresh() {
  chooseRows();
  if (!panel.hidden) drawDetails();
  draw();
}

function select(number, { open = false } = {}) {
  reveal(number);
  view.selected = number;
  if (open) panel.hidden = false;
  chooseRows();
  scrollTo(number);
  refresh();
}

function fold(number, folded) {
  if (!parents.has(number)) return;
  if (folded) view.collapsed.add(number);
  else view.collapsed.delete(number);
  refresh();
}

// -- filters ---------------------------------------------------------------------------------------

function chip(box, mark, word, chosen) {
  const button = make("button", word);
  button.type = "button";
  const glyph = make("span", "", mark);
  glyph.style.color = box.id === "kinds" ? "var(--colour)" : "var(--state)";
  glyph.setAttribute("aria-hidden", "true");
  const key = box.id === "kinds" ? "kind" : "state";
  const number = spans.filter((span) => span[key] === word).length;
  button.append(glyph, word, make("span", "number", number.toLocaleString("en")));
  button.setAttribute("aria-pressed", "true");
  button.title = "Click to hide or show, Alt+click to show only these";
  button.addEventListener("click", (event) => toggle(box, chosen, word, event.altKey));
  button.dataset.word = word;
  box.append(button);
}

function toggle(box, chosen, word, only) {
  if (only) {
    const alone = chosen.size === 1 && chosen.has(word);
    for (const button of box.children) {
      if (alone || button.dataset.word === word) chosen.add(button.dataset.word);
      else chosen.delete(button.dataset.word);
    }
  } else if (!chosen.delete(word)) chosen.add(word);
  for (const button of box.children) {
    button.setAttribute("aria-pressed", chosen.has(button.dataset.word));
  }
  findMatches();
  tellFound();
  refresh();
}

// -- search ----------------------------------------------------------------------------------------

function tellFound() {
  const place = view.matches.indexOf(view.selected) + 1;
  const number = view.matches.length;
  byId("previous").hidden = byId("next").hidden = !number;
  byId("found").textContent = view.query ? (number ? `${place || "–"} of ${number.toLocaleString("en")}` : "none") : "";
}

function go(step) {
  const found = nextMatch(step);
  if (found !== undefined) select(found);
  tellFound();
}

function searchFor(query) {
  search(query);
  if (view.matches.length && !view.matching.has(view.selected)) select(view.matches[0]);
  else refresh();
  tellFound();
}

input.addEventListener("input", () => searchFor(input.value));
input.addEventListener("keydown", (event) => {
  if (event.key === "Enter") go(event.shiftKey ? -1 : 1);
  else if (event.key === "Escape") {
    input.value = "";
    searchFor("");
    grid.focus();
  } else if (event.key === "ArrowDown") grid.focus();
  else return;
  event.preventDefault();
});
byId("next").addEventListener("click", () => go(1));
byId("previous").addEventListener("click", () => go(-1));

// -- keys ------------------------------------------------------------------------------------------

function move(step) {
  const place = (view.places.get(view.selected) ?? 0) + step;
  const number = view.rows[Math.min(Math.max(place, 0), view.rows.length - 1)];
  if (number !== undefined) select(number);
}

function left() {
  const number = view.selected;
  if (parents.has(number) && !view.collapsed.has(number)) fold(number, true);
  else if (spans[number].parent >= 0) select(spans[number].parent);
}

function right() {
  if (view.collapsed.has(view.selected)) fold(view.selected, false);
  else if (parents.has(view.selected)) move(1);
}

function zoomAndDraw(...how) {
  zoom(...how);
  draw();
}

function fit() {
  showTime(0, trace.length);
  draw();
}

function leave() {
  if (!panel.hidden) closeDetails();
  else if (view.query) {
    input.value = "";
    searchFor("");
  } else fit();
}

const KEYS = {
  ArrowLeft: left,
  ArrowRight: right,
  Enter: openDetails,
  " ": openDetails,
  n: () => go(1),
  N: () => go(-1),
  z: () => {
    zoomTo(spans[view.selected]);
    draw();
  },
};
const KEYS_EVERYWHERE = {
  "/": () => input.select(),
  "?": () => byId("keys").showModal(),
  "+": () => zoomAndDraw(0.5),
  "-": () => zoomAndDraw(2),
  0: fit,
  Escape: leave,
};

grid.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !view.rows.length) return;
  const act = KEYS[event.key];
  if (act) act();
  else if (event.key in MOVES) move(MOVES[event.key]);
  else return;
  event.preventDefault();
});
root.addEventListener("keydown", (event) => {
  const elsewhere = event.target === input || byId("keys").open;
  if (event.ctrlKey || event.metaKey || event.altKey || elsewhere) return;
  const act = KEYS_EVERYWHERE[event.key];
  if (!act) return;
  act();
  event.preventDefault();
});

// -- the mouse -------------------------------------------------------------------------------------

grid.addEventListener("click", (event) => {
  const row = event.target.closest(".row");
  if (!row) return;
  const number = Number(row.dataset.number);
  if (event.target.closest("button.twist")) fold(number, !view.collapsed.has(number));
  else select(number, { open: true });
  grid.focus();
});

grid.addEventListener("scroll", () => drawRows());

grid.addEventListener("wheel", (event) => {
  const turn = event.deltaY || event.deltaX;
  if (event.ctrlKey) zoomAndDraw(Math.exp(Math.sign(turn) * 0.25), timeAt(event.clientX, view.from, view.to));
  else if (event.shiftKey) {
    const step = (Math.sign(turn) * (view.to - view.from)) / 10;
    showTime(view.from + step, view.to + step);
    draw();
  } else return;
  event.preventDefault();
}, { passive: false });

function timeAt(x, from, to) {
  const box = axis.getBoundingClientRect();
  return from + Math.min(Math.max((x - box.left) / box.width, 0), 1) * (to - from);
}

// Dragging on the overview chooses from the whole trace, on the ticks from what is shown.
axis.addEventListener("pointerdown", (event) => {
  const whole = event.offsetY < 38 || event.target === overview;
  const [from, to] = whole ? [0, trace.length] : [view.from, view.to];
  const start = timeAt(event.clientX, from, to);
  let end = start;
  axis.setPointerCapture(event.pointerId);
  const drag = (moved) => {
    end = timeAt(moved.clientX, from, to);
    drawBrush(Math.min(start, end), Math.max(start, end), true);
  };
  const stop = () => {
    axis.removeEventListener("pointermove", drag);
    if (Math.abs(end - start) > (to - from) / 200) showTime(Math.min(start, end), Math.max(start, end));
    draw();
  };
  axis.addEventListener("pointermove", drag);
  axis.addEventListener("pointerup", stop, { once: true });
});
axis.addEventListener("dblclick", fit);

const splitter = byId("splitter");

function setNames(share) {
  const width = `${Math.min(Math.max(share, 12), 70)}%`;
  waterfall.style.setProperty("--name", width);
  splitter.setAttribute("aria-valuenow", Math.round(parseFloat(width)));
  draw();
}

splitter.addEventListener("pointerdown", (event) => {
  splitter.setPointerCapture(event.pointerId);
  const box = grid.getBoundingClientRect();
  const drag = (moved) => setNames(((moved.clientX - box.left) / box.width) * 100);
  splitter.addEventListener("pointermove", drag);
  splitter.addEventListener("pointerup", () => splitter.removeEventListener("pointermove", drag), { once: true });
});
splitter.addEventListener("keydown", (event) => {
  const step = { ArrowLeft: -2, ArrowRight: 2 }[event.key];
  if (step) setNames(Number(splitter.getAttribute("aria-valuenow")) + step);
});

// -- the rest --------------------------------------------------------------------------------------

byId("collapse").addEventListener("click", () => {
  collapseAll();
  refresh();
});
byId("expand").addEventListener("click", () => {
  view.collapsed.clear();
  refresh();
});
byId("in").addEventListener("click", () => zoomAndDraw(0.5));
byId("out").addEventListener("click", () => zoomAndDraw(2));
byId("fit").addEventListener("click", fit);
byId("help").addEventListener("click", () => byId("keys").showModal());
const dark = window.matchMedia("(prefers-color-scheme: dark)");
byId("theme")?.addEventListener("click", () => {
  const { dataset } = document.documentElement;
  dataset.theme = (dataset.theme || (dark.matches ? "dark" : "light")) === "dark" ? "light" : "dark";
  draw();
});
dark.addEventListener("change", draw, { signal });
window.addEventListener("beforeprint", () => {
  printing = true;
  draw();
}, { signal });
window.addEventListener("afterprint", () => {
  printing = false;
  draw();
}, { signal });
new ResizeObserver(draw).observe(grid);

for (const kind of Object.keys(trace.kinds)) {
  if (view.kinds.has(kind)) chip(byId("kinds"), trace.kinds[kind], kind, view.kinds);
}
for (const state of STATES) {
  if (view.states.has(state)) chip(byId("states"), trace.marks[state], state, view.states);
}
chooseRows();
fitColumns();
setNames(parseFloat(getComputedStyle(waterfall).getPropertyValue("--name")));
if (root === document) grid.focus({ preventScroll: true });
