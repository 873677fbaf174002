// The runs: newest first, live, with filters that stand in the address; older ones as one scrolls.

import { get, part, post } from "../api.js";
import { confirm } from "../dialog.js";
import { button, fill, h, time } from "../html.js";
import { VirtualList } from "../list.js";
import { stateMark } from "../outcomes.js";
import { address, go, note } from "../router.js";
import { announce, empty, failure, liveDot, load, skeleton } from "../state.js";
import { cost, duration, number, plural } from "../text.js";

const SESSION = "session"; // the agent of every session
const PAGE = 100;
const MOST = 100000;
const POLL_MS = 3000;
const MOST_LOOKS = 20; // runs that are read one by one in a poll
const SPANS = { hour: 3600, day: 86400, week: 7 * 86400, all: 0 };
const SPAN_NAMES = { hour: "Last hour", day: "Last day", week: "Last week", all: "All" };
const COSTS = { "": "Any cost", "0.01": "$0.01 or more", "0.10": "$0.10 or more", "1.00": "$1 or more", "10.00": "$10 or more" };
const STATES = { "": "Any status", open: "Open", COMPLETED: "Completed", FAILED: "Failed", CANCELLED: "Cancelled", BLOCKED: "Blocked", LIMITED: "Over budget" };

function passes(run, words) {
  if (!words) return true;
  return [run.id, run.agent, run.user, run.tenant, run.root_id, run.summary?.question].some((each) => each?.toLowerCase().includes(words.toLowerCase()));
}

function row(run) {
  const took = run.status === "closed" ? duration((new Date(run.updated_at) - new Date(run.created_at)) / 1000) : "";
  const { question = "", tokens = 0, cost: dollars = 0 } = run.summary ?? {};
  return h("a.run", { href: address([run.agent === SESSION ? "sessions" : "runs", run.id]), "data-item": run.id },
    h("span.state", {}, stateMark(run)),
    h("bdi.agent", {}, run.agent),
    h("span.words", {}, question ? h("bdi", {}, question) : h("code", {}, run.id)),
    h("bdi.user", {}, run.user ?? ""),
    h("bdi.tenant", {}, run.tenant ?? ""),
    h("span.when", {}, time(run.created_at)),
    h("span.took", {}, took),
    h("span.used", {}, tokens ? number(tokens) : "", tokens ? h("span.unseen", {}, " tokens") : null),
    h("span.cost", {}, dollars ? cost(dollars) : ""));
}

const newestFirst = (one, other) => (one.created_at < other.created_at ? 1 : one.created_at > other.created_at ? -1 : 0);

export async function runsView({ app, main, query, signal }) {
  const filter = {
    since: query.get("since") in SPANS ? query.get("since") : "day",
    status: query.get("status") in STATES ? query.get("status") : "",
    agent: query.get("agent") ?? "",
    user: query.get("user") ?? "",
    cost: query.get("cost") in COSTS ? query.get("cost") : "",
    q: query.get("q") ?? "",
  };
  let runs = new Map(); // by id, newest first
  let waiting = new Map(); // new ones that are not shown yet
  let cursor = null; // where older runs begin; null if there are none
  let reading = null; // what was begun last: a page of older runs of another filter is not taken
  let more = false;
  const dot = liveDot();
  const narrow = window.matchMedia("(max-width: 760px)");
  const list = new VirtualList({ row, key: (run) => run.id, height: narrow.matches ? 60 : 40, label: "Runs", nearEnd: readMore });
  narrow.addEventListener("change", () => {
    list.height = narrow.matches ? 60 : 40;
    list.draw();
  }, { signal });
  const count = h("p.soft", { role: "status" });
  const fresh = button("", showNew, { class: "fresh", hidden: true });
  const cancel = button("", cancelOpen, { class: "danger small", hidden: true });
  const problems = h("div");
  const body = h("div.fills");
  const chips = h("ul.chips", { "aria-label": "Filters in use" });
  let searching = 0;

  const search = h("input", { type: "search", placeholder: "Search  /", "aria-label": "Search runs by words, id, agent, user, tenant", spellcheck: "false", autocomplete: "off" });
  search.value = filter.q;
  search.addEventListener("input", () => {
    window.clearTimeout(searching);
    searching = window.setTimeout(() => change({}), 100);
  });
  signal.addEventListener("abort", () => window.clearTimeout(searching));
  search.addEventListener("keydown", (event) => {
    const words = search.value.trim();
    if (event.key === "Enter") {
      window.clearTimeout(searching); // it would replace the address of the run
      if (runs.has(words) || (/^\S{16,}$/.test(words) && !list.items.length)) go(["runs", words]);
      else change({});
    }
    if (event.key === "ArrowDown") list.element.querySelector("[data-item]")?.focus();
  });
  const user = h("input.user", { type: "text", placeholder: "User", "aria-label": "User", spellcheck: "false", autocomplete: "off", on: { change: () => change({ user: user.value.trim() }) } });
  const select = (name, choices, label) => {
    const element = h("select", { "aria-label": label, on: { change: () => change({ [name]: element.value }) } },
      Object.entries(choices).map(([value, words]) => h("option", { value }, words)));
    return element;
  };
  const selects = {
    since: select("since", SPAN_NAMES, "Started in"),
    status: select("status", STATES, "Status"),
    agent: select("agent", { "": "Any agent", ...Object.fromEntries(app.agents.map((each) => [each.name, each.name])), [SESSION]: "Sessions" }, "Agent"),
    cost: select("cost", COSTS, "Cost"),
  };

  function change(changed) {
    const reads = Object.entries(changed).some(([name, value]) => name !== "q" && value !== filter[name]);
    window.clearTimeout(searching);
    Object.assign(filter, { q: search.value.trim() }, changed); // words that wait are not lost
    note(["runs"], { ...filter, since: filter.since === "day" ? "" : filter.since });
    drawFilters();
    if (reads) read();
    else draw();
  }

  function drawFilters() {
    for (const [name, element] of Object.entries(selects)) element.value = filter[name];
    search.value = filter.q;
    user.value = filter.user;
    const used = { status: STATES[filter.status], agent: filter.agent, user: filter.user, cost: filter.cost && COSTS[filter.cost], q: filter.q && `“${filter.q}”` };
    fill(chips, Object.entries(used).filter(([name]) => filter[name]).map(([name, words]) =>
      h("li", {}, button([words, h("span", { "aria-hidden": "true" }, " ×")], () => change({ [name]: "" }), { "aria-label": `Remove the filter ${words}` }))));
  }

  function draw() {
    const items = [...runs.values()].filter((run) => passes(run, filter.q));
    const all = cursor ? `${number(runs.size)}+ runs` : plural(runs.size, "run");
    fill(count, filter.q ? `${number(items.length)} of ${all}` : all);
    if (items.length) {
      if (!list.element.isConnected) fill(body, list.element);
      list.items = items;
    } else if (cursor) {
      if (!body.querySelector(".skeleton")) fill(body, skeleton());
      readMore();
    } else {
      const filtered = filter.status || filter.agent || filter.user || filter.cost || runs.size;
      const hint = filtered ? "Remove a filter to see more." : filter.since === "all" ? "Start one in Chat, or with POST /v1/runs." : "None has begun in this time.";
      fill(body, empty(filtered ? "No run passes these filters" : "No runs", hint));
    }
    const news = [...waiting.values()].filter((run) => passes(run, filter.q)).length;
    const open = openRuns().length;
    cancel.hidden = !open || !app.me.scopes.some((scope) => scope === "run" || scope === "admin");
    fill(cancel, `Cancel ${plural(open, "open run")}…`);
    fresh.hidden = !news;
    fill(fresh, `${number(news)} new`);
  }

  // Those that pass the filters, as far as the list has been read.
  const openRuns = () => [...runs.values()].filter((run) => run.status === "open" && run.agent !== SESSION && passes(run, filter.q));

  async function cancelOpen() {
    const open = openRuns(); // not those that come while the person reads the question
    const detail = "They are those of the list below. Calls under way are stopped; what has happened stays.";
    const answer = await confirm({ title: `Cancel ${plural(open.length, "open run")}?`, detail, field: "Reason", yes: `Cancel ${plural(open.length, "run")}`, danger: true });
    if (!answer) return;
    cancel.disabled = true;
    let cancelled = 0;
    try {
      for (const run of open) {
        await post(`runs/${part(run.id)}/cancel`, { reason: answer.text });
        cancelled += 1;
      }
      fill(problems);
    } catch (problem) {
      if (problem.status === undefined) throw problem;
      fill(problems, failure(problem));
    } finally {
      cancel.disabled = false;
      announce(`${plural(cancelled, "run")} of ${number(open.length)} cancelled`);
    }
  }

  async function showNew() {
    if (waiting.size >= PAGE) await read(); // there may be others between them and what is shown
    runs = new Map([...waiting.values(), ...runs.values()].sort(newestFirst).map((run) => [run.id, run]));
    waiting = new Map();
    draw();
    list.element.scrollTop = 0;
    list.draw();
    list.element.querySelector("[data-item]")?.focus();
  }

  // The turns of sessions are runs; sessions themselves are shown only where they are wanted.
  const belongs = (run) => run.agent !== SESSION || filter.agent === SESSION;

  const wanted = () => ({
    since: SPANS[filter.since] ? new Date(Date.now() - SPANS[filter.since] * 1000).toISOString() : undefined,
    status: filter.status === "open" ? "open" : undefined,
    outcome: filter.status === "open" ? undefined : filter.status,
    agent: filter.agent,
    user: filter.user,
    min_cost: filter.cost,
    summary: true,
    limit: PAGE,
  });

  async function read() {
    const mine = reading = {};
    runs.clear();
    waiting.clear();
    cursor = null;
    await load(body, () => get("runs", wanted(), signal), (page) => {
      if (mine === reading) take(page);
      return null;
    }, signal);
    if (signal.aborted || mine !== reading || body.querySelector(".failure")) return;
    draw();
    dot.set("live");
  }

  function take(page) {
    for (const run of page.runs) if (belongs(run)) runs.set(run.id, run);
    cursor = runs.size < MOST ? page.next_cursor : null;
  }

  // Reads the next page of older runs; one at a time.
  async function readMore() {
    if (more || !cursor) return;
    more = true;
    const mine = reading;
    try {
      const page = await get("runs", { ...wanted(), cursor }, signal);
      if (mine === reading) take(page);
    } catch (problem) {
      if (signal.aborted) return;
      if (problem.status === undefined) throw problem;
      if (problem.code !== "invalid_cursor") {
        dot.set("away"); // it is tried again after the next poll
        return;
      }
      if (mine === reading) cursor = null; // that run has been erased
    } finally {
      more = false;
    }
    draw();
  }

  // What has come since, and how the open ones that are shown are by now.
  async function poll() {
    const mine = reading;
    const page = await get("runs", wanted(), signal);
    const open = new Set([...runs.values(), ...waiting.values()].filter((run) => run.status === "open").map((run) => run.id));
    const changed = [...page.runs];
    for (const run of page.runs) open.delete(run.id);
    for (const id of [...open].slice(0, MOST_LOOKS)) changed.push(await get(`runs/${part(id)}`, {}, signal));
    if (mine !== reading) return;
    for (const run of changed) if (belongs(run)) put(run);
  }

  function put(run) {
    const place = runs.has(run.id) ? runs : waiting;
    const before = place.get(run.id);
    if (before && before.head === run.head && before.state === run.state) return;
    place.set(run.id, { ...run, summary: run.summary ?? before?.summary });
  }

  fill(main,
    h("header.head", {}, h("h1", {}, "Runs"), dot.element, count),
    h("div.filters", { role: "search" }, search, Object.values(selects), user, cancel, chips),
    problems,
    h("div.news", {}, fresh),
    body);
  main.classList.add("full");
  signal.addEventListener("abort", () => main.classList.remove("full"));
  drawFilters();
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
