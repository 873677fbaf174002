// The runs: newest first, live, with filters that stand in the address.

import { get } from "../api.js";
import { button, fill, h, time } from "../html.js";
import { VirtualList } from "../list.js";
import { stateMark } from "../outcomes.js";
import { address, go, note } from "../router.js";
import { empty, liveDot, load } from "../state.js";
import { duration, number, plural } from "../text.js";

const PAGE = 200;
const MOST = 100000;
const POLL_MS = 3000;
const SPANS = { hour: 3600, day: 86400, week: 7 * 86400, all: 0 };
const SPAN_NAMES = { hour: "Last hour", day: "Last day", week: "Last week", all: "All" };
const STATES = { "": "Any status", open: "Open", COMPLETED: "Completed", FAILED: "Failed", CANCELLED: "Cancelled", BLOCKED: "Blocked", LIMITED: "Over budget" };

// Reads pages until there is no more, oldest first.
async function* pages(query, signal) {
  let cursor;
  for (let read = 0; read < MOST; read += PAGE) {
    const page = await get("runs", { ...query, order: "oldest", limit: PAGE, cursor }, signal);
    yield page.runs;
    cursor = page.next_cursor;
    if (!cursor) return;
  }
}

function passes(run, filter) {
  if (filter.status && (filter.status === "open" ? run.status !== "open" : run.outcome !== filter.status)) return false;
  if (filter.agent && run.agent !== filter.agent) return false;
  if (!filter.q) return true;
  return [run.id, run.agent, run.user, run.tenant, run.root_id].some((each) => each?.toLowerCase().includes(filter.q.toLowerCase()));
}

function row(run) {
  const took = run.status === "closed" ? duration((new Date(run.updated_at) - new Date(run.created_at)) / 1000) : "";
  return h("a.run", { href: address(["runs", run.id]), "data-item": run.id },
    h("span.state", {}, stateMark(run)),
    h("bdi.agent", {}, run.agent),
    h("span.id", {}, h("code", {}, run.id)),
    h("bdi.user", {}, run.user ?? ""),
    h("bdi.tenant", {}, run.tenant ?? ""),
    h("span.when", {}, time(run.created_at)),
    h("span.took", {}, took));
}

export async function runsView({ app, main, query, signal }) {
  const filter = {
    since: query.get("since") in SPANS ? query.get("since") : "day",
    status: query.get("status") ?? "",
    agent: query.get("agent") ?? "",
    q: query.get("q") ?? "",
  };
  const runs = new Map(); // by id, oldest first
  let waiting = new Map(); // new ones that are not shown yet
  const dot = liveDot();
  const narrow = window.matchMedia("(max-width: 760px)");
  const list = new VirtualList({ row, key: (run) => run.id, height: narrow.matches ? 60 : 40, label: "Runs" });
  narrow.addEventListener("change", () => {
    list.height = narrow.matches ? 60 : 40;
    list.draw();
  }, { signal });
  const count = h("p.soft", { role: "status" });
  const fresh = button("", showNew, { class: "fresh", hidden: true });
  const body = h("div.fills");
  const chips = h("ul.chips", { "aria-label": "Filters in use" });
  let searching = 0;

  const search = h("input", { type: "search", placeholder: "Search  /", "aria-label": "Search runs by id, agent, user, tenant", value: filter.q, spellcheck: "false", autocomplete: "off" });
  search.value = filter.q;
  search.addEventListener("input", () => {
    window.clearTimeout(searching);
    searching = window.setTimeout(() => change({ q: search.value.trim() }), 100);
  });
  signal.addEventListener("abort", () => window.clearTimeout(searching));
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter") window.clearTimeout(searching); // it would replace the address of the run
    if (event.key === "Enter" && runs.has(search.value.trim())) go(["runs", search.value.trim()]);
    else if (event.key === "Enter" && /^\S{16,}$/.test(search.value.trim()) && !list.items.length) go(["runs", search.value.trim()]);
    else if (event.key === "ArrowDown") list.element.querySelector("[data-item]")?.focus();
  });
  const select = (name, choices, label) => {
    const element = h("select", { "aria-label": label, on: { change: () => change({ [name]: element.value }) } },
      Object.entries(choices).map(([value, words]) => h("option", { value, selected: value === filter[name] }, words)));
    return element;
  };
  const selects = {
    since: select("since", SPAN_NAMES, "Started in"),
    status: select("status", STATES, "Status"),
    agent: select("agent", { "": "Any agent", ...Object.fromEntries(app.agents.map((each) => [each.name, each.name])) }, "Agent"),
  };

  function change(more) {
    const reload = more.since !== undefined && more.since !== filter.since;
    Object.assign(filter, more);
    note(["runs"], { ...filter, since: filter.since === "day" ? "" : filter.since });
    for (const [name, element] of Object.entries(selects)) element.value = filter[name];
    search.value = filter.q;
    drawChips();
    if (reload) read();
    else draw();
  }

  function drawChips() {
    const used = { status: STATES[filter.status], agent: filter.agent, q: filter.q && `“${filter.q}”` };
    fill(chips, Object.entries(used).filter(([name]) => filter[name]).map(([name, words]) =>
      h("li", {}, button([words, h("span", { "aria-hidden": "true" }, " ×")], () => change({ [name]: "" }), { "aria-label": `Remove the filter ${words}` }))));
  }

  function draw() {
    const items = [...runs.values()].reverse().filter((run) => passes(run, filter));
    fill(count, items.length === runs.size ? plural(runs.size, "run") : `${number(items.length)} of ${plural(runs.size, "run")}`);
    const hint = runs.size ? "Remove a filter to see more." : filter.since === "all" ? "Start one in Chat, or with POST /v1/runs." : "None has begun in this time.";
    if (items.length) {
      if (!list.element.isConnected) fill(body, list.element);
      list.items = items;
    } else {
      fill(body, empty(runs.size ? "No run passes these filters" : "No runs", hint));
    }
    const news = [...waiting.values()].filter((run) => passes(run, filter)).length;
    fresh.hidden = !news;
    fill(fresh, `${number(news)} new`);
  }

  function showNew() {
    for (const [id, run] of waiting) runs.set(id, run);
    waiting = new Map();
    draw();
    list.element.scrollTop = 0;
    list.draw();
    list.element.querySelector("[data-item]")?.focus();
  }

  async function readAll(query, taken) {
    for await (const page of pages(query, signal)) for (const run of page) taken(run);
  }

  const begin = () => (SPANS[filter.since] ? new Date(Date.now() - SPANS[filter.since] * 1000).toISOString() : undefined);

  async function read() {
    runs.clear();
    waiting.clear();
    await load(body, () => readAll({ since: begin() }, (run) => runs.set(run.id, run)), () => null, signal);
    if (signal.aborted || body.querySelector(".failure")) return;
    draw();
    dot.set("live");
  }

  // What has begun since the newest run, and how the open ones are by now.
  async function poll() {
    const newest = [...waiting.values()].at(-1) ?? [...runs.values()].at(-1);
    const open = new Set([...runs.values(), ...waiting.values()].filter((run) => run.status === "open").map((run) => run.id));
    await readAll({ since: newest?.created_at ?? begin() }, (run) => {
      if (!runs.has(run.id)) waiting.set(run.id, run);
    });
    if (open.size) await readAll({ status: "open", since: begin() }, (run) => {
      open.delete(run.id);
      put(run);
    });
    for (const id of open) put(await get(`runs/${encodeURIComponent(id)}`, {}, signal));
  }

  function put(run) {
    const place = runs.has(run.id) ? runs : waiting;
    const before = place.get(run.id);
    if (!before || before.head !== run.head || before.state !== run.state) place.set(run.id, run);
  }

  fill(main,
    h("header.head", {}, h("h1", {}, "Runs"), dot.element, count),
    h("div.filters", { role: "search" }, search, Object.values(selects), chips),
    h("div.news", {}, fresh),
    body);
  main.classList.add("full");
  signal.addEventListener("abort", () => main.classList.remove("full"));
  drawChips();
  await read();
  while (!signal.aborted) {
    await new Promise((resolve) => {
      window.setTimeout(resolve, POLL_MS);
    });
    if (signal.aborted || document.hidden || body.querySelector(".failure")) continue;
    try {
      await poll();
      dot.set("live");
      draw();
    } catch (problem) {
      if (signal.aborted) return;
      if (problem.status === undefined) throw problem;
      dot.set("away");
    }
  }
}
