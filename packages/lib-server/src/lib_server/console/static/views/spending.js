// What runs have used: a stacked bar for each day, and a table, by agent, model, user or tenant.

import { get } from "../api.js";
import { fill, h } from "../html.js";
import { note } from "../router.js";
import { empty, failure, skeleton } from "../state.js";
import { cost, number, plural } from "../text.js";

const BY = { agent: "By agent", model: "By model", user: "By user", tenant: "By tenant" };
const DAYS = { 7: "7 days", 30: "30 days", 90: "90 days" };
const MEASURES = { cost: "Cost", tokens: "Tokens", runs: "Runs" };
const DAY_MS = 86400000;
const COLOURS = 5; // for the largest groups; all others share one more

const NONE = { agent: "no agent", model: "no model named", user: "no user", tenant: "no tenant" };
const keyOf = (group) => JSON.stringify([group.name, group.rest]);
const nameOf = (group, by) => (group.rest ? "all others" : group.name ?? NONE[by]);
const shown = (measure, value) => (measure === "cost" ? cost(value) || "$0" : number(value));
const dayOf = (ms) => new Date(ms).toISOString().slice(0, 10);

// The groups of all days together, the largest first.
function totals(days, measure) {
  const sums = new Map();
  for (const { groups } of days) {
    for (const group of groups) {
      const sum = sums.get(keyOf(group)) ?? { ...group, runs: 0, tokens: 0, cost: 0, unpriced: 0 };
      for (const name of ["runs", "tokens", "cost", "unpriced"]) sum[name] += group[name];
      sums.set(keyOf(group), sum);
    }
  }
  return [...sums.values()].sort((one, other) => other[measure] - one[measure] || other.tokens - one.tokens || other.runs - one.runs);
}

function chart(found, sums, { measure, days, by }) {
  const colours = new Map(sums.map((group, place) => [keyOf(group), Math.min(place, COLOURS)]));
  const byDay = new Map(found.days.map((day) => [day.day, day.groups]));
  const last = Date.parse(found.until);
  const all = Array.from({ length: days }, (_, place) => dayOf(last - (days - 1 - place) * DAY_MS));
  const sumOf = (groups) => groups.reduce((sum, group) => sum + group[measure], 0);
  const most = Math.max(...all.map((day) => sumOf(byDay.get(day) ?? [])), 0);
  const bars = all.map((day) => {
    const groups = [...(byDay.get(day) ?? [])].sort((one, other) => colours.get(keyOf(one)) - colours.get(keyOf(other)));
    const parts = groups.map((group) => {
      const part = h("div", { class: `colour-${colours.get(keyOf(group))}` });
      part.style.height = `${most ? (100 * group[measure]) / most : 0}%`;
      return part;
    });
    const lines = groups.map((group) => `${nameOf(group, by)}: ${shown(measure, group[measure])}`);
    return h("div.bar", { title: [`${day}: ${shown(measure, sumOf(groups))}`, ...lines].join("\n") }, parts);
  });
  const label = `${MEASURES[measure]} for each of ${days} days, at most ${shown(measure, most)} on one; the table has the sums`;
  return [
    h("p.soft", {}, `At most ${shown(measure, most)} on a day`),
    h("div.chart", { role: "img", "aria-label": label }, bars),
    h("p.ends.soft", {}, h("span", {}, all[0]), h("span", {}, all.at(-1))),
  ];
}

function table(sums, by) {
  const row = (name, group, place) => h("tr", {},
    h("th", { scope: "row" }, place === null ? null : h("span.swatch", { class: `colour-${Math.min(place, COLOURS)}`, "aria-hidden": "true" }), h("bdi", {}, name)),
    h("td.number", {}, number(group.runs)),
    h("td.number", {}, number(group.tokens)),
    h("td.number", {}, group.cost || !group.unpriced ? cost(group.cost) : "", group.unpriced ? h("span.soft", {}, ` + ${plural(group.unpriced, "call")} without a price`) : null));
  const all = sums.reduce((sum, group) => ({ runs: sum.runs + group.runs, tokens: sum.tokens + group.tokens, cost: sum.cost + group.cost, unpriced: sum.unpriced + group.unpriced }), { runs: 0, tokens: 0, cost: 0, unpriced: 0 });
  const title = BY[by].replace("By ", "");
  return h("div.scroll", { tabindex: 0, role: "region", "aria-label": `Spend by ${title}` },
    h("table", {}, h("thead", {}, h("tr", {}, [title[0].toUpperCase() + title.slice(1), "Runs", "Tokens", "Cost"].map((name, place) => h("th", { scope: "col", class: place ? "number" : "" }, name)))),
      h("tbody", {}, sums.map((group, place) => row(nameOf(group, by), group, place)), by === "model" ? null : row("All", all, null))));
}

export async function spendPage({ app, main, query, signal }) {
  const choice = {
    by: query.get("by") in BY ? query.get("by") : "agent",
    days: query.get("days") in DAYS ? Number(query.get("days")) : 30,
    measure: query.get("measure") in MEASURES ? query.get("measure") : "cost",
  };
  const body = h("div.spending");
  const state = h("p.soft", { role: "status" });
  let current = {};

  const select = (name, choices, label) => {
    const element = h("select", { "aria-label": label, on: { change: () => change(name, element.value) } },
      Object.entries(choices).map(([value, words]) => h("option", { value, selected: value === String(choice[name]) }, words)));
    return element;
  };

  function change(name, value) {
    choice[name] = name === "days" ? Number(value) : value;
    note(["spend"], { by: choice.by === "agent" ? "" : choice.by, days: choice.days === 30 ? "" : String(choice.days), measure: choice.measure === "cost" ? "" : choice.measure });
    read();
  }

  function draw(found) {
    const sums = totals(found.days, choice.measure);
    const left = found.missing ? `, ${number(found.missing)} more are being read` : "";
    fill(state, `${plural(found.runs, "run")}${left}${found.truncated ? ", the newest ones only" : ""}`);
    if (!found.runs && !found.missing) fill(body, empty("No runs", "None has begun in this time."));
    else fill(body, chart(found, sums, choice), table(sums, choice.by));
  }

  // Logs that the server has not summed up yet are read in portions: the request is repeated until it has all.
  async function read() {
    const mine = current = {};
    const since = `${dayOf(Date.now() - (choice.days - 1) * DAY_MS)}T00:00:00Z`;
    let runs = -1;
    fill(body, skeleton());
    try {
      for (;;) {
        const found = await get("spend", { by: choice.by, since }, signal);
        if (mine !== current) return;
        draw(found);
        if (!found.missing || found.runs <= runs) return;
        runs = found.runs;
      }
    } catch (problem) {
      if (signal.aborted || mine !== current) return;
      if (problem.status === undefined) throw problem;
      fill(body, failure(problem, read));
    }
  }

  const choices = app.me.tenant ? { agent: BY.agent, model: BY.model, user: BY.user } : BY;
  fill(main,
    h("header.head", {}, h("h1", {}, "Spend"), state),
    h("div.filters", {}, select("by", choices, "Groups"), select("measure", MEASURES, "Measure"), select("days", DAYS, "Time")),
    body);
  await read();
}
