// The inbox: calls that wait for approval, calls of unknown outcome, runs that failed lately.

import { decisions } from "../decisions.js";
import { button, fill, h, time, valueTable } from "../html.js";
import { stateMark } from "../outcomes.js";
import { address } from "../router.js";
import { empty, failure, liveDot, skeleton } from "../state.js";
import { number } from "../text.js";

const SECTIONS = [
  { name: "approvals", title: "Wait for approval", entry: (call, needs) => callCard("approval", call, needs) },
  { name: "unknown", title: "Outcome unknown", entry: (call, needs) => callCard("unknown", call, needs) },
  { name: "failed", title: "Failed in the last hour", entry: failedCard },
];

const keyOf = (item) => JSON.stringify([item.run_id ?? item.id, item.key ?? ""]);
const runLink = (id, words) => h("a", { href: address(["runs", id]), "data-act": "open" }, words);

function callCard(kind, call, needs) {
  const box = h("div");
  const actions = h("div.actions", {});
  const card = h("article.card.need", { tabindex: 0, "data-item": keyOf(call), "aria-label": `${call.tool}, called by ${call.agent}` },
    h("header", {}, h("h3", {}, h("bdi", {}, call.tool)), h("span.soft", {}, "called by ", h("bdi", {}, call.agent)), time(call.since)),
    valueTable(call.arguments, `Arguments of ${call.tool}`),
    call.reason ? h("p", {}, h("span.soft", {}, "Why it asks: "), call.reason) : null,
    call.tenant ? h("p.soft", {}, "Tenant ", h("bdi", {}, call.tenant)) : null,
    box, actions);
  const shown = { runId: call.run_id, key: call.key, name: call.tool, args: call.arguments, digest: call.arguments_digest };
  const done = (problem) => {
    settled(card, problem ? "" : "Decided");
    needs.refresh();
  };
  fill(actions, decisions(kind, shown, { box, done }), runLink(call.run_id, "Open the run"));
  return card;
}

// A card about which nothing can be done any more stays in its place, without buttons.
function settled(card, words) {
  const actions = card.querySelector(".actions");
  if (!actions || card.classList.contains("settled")) return;
  if (actions.contains(document.activeElement)) card.focus();
  card.classList.add("settled");
  fill(actions, words ? h("span.soft", { role: "status" }, words) : null, actions.querySelector("[data-act=open]"));
}

function failedCard(run) {
  return h("article.card.need", { tabindex: 0, "data-item": keyOf(run), "aria-label": `${run.agent} failed` },
    h("header", {}, h("h3", {}, h("bdi", {}, run.agent)), stateMark(run), time(run.updated_at)),
    run.user || run.tenant ? h("p.soft", {}, h("bdi", {}, [run.tenant, run.user].filter(Boolean).join(", "))) : null,
    h("div.actions", {}, runLink(run.id, "Open the run")));
}

export async function inboxView({ app, main, signal }) {
  const { needs } = app;
  const dot = liveDot();
  const cards = new Map(); // by section and key: the card
  const fresh = button("", () => draw(true), { class: "fresh", hidden: true });
  const body = h("div.inbox", {}, skeleton());
  const sections = Object.fromEntries(SECTIONS.map(({ name, title }) => {
    const heading = h("h2", {}, title);
    const list = h("div.needs");
    return [name, { heading, list, title, element: h("section", { hidden: true }, heading, list) }];
  }));
  fill(main, h("header.head", {}, h("h1", {}, "Inbox"), dot.element), h("div.news", {}, fresh), body);

  const items = (name) => needs[name].map((item) => [`${name} ${keyOf(item)}`, item]);

  // Draws what has come; what is shown stays in its place, and new cards wait for a click unless
  // `all` is true or nothing is shown that could move.
  function draw(all = false) {
    if (!needs.checkedAt) {
      if (needs.problem) fill(body, failure(needs.problem, () => needs.refresh()));
      return;
    }
    dot.set(needs.problem ? "away" : "live");
    if (all) cards.clear();
    const showsAll = cards.size === 0;
    let waiting = 0;
    for (const { name, entry } of SECTIONS) {
      const now = new Map(items(name));
      const section = sections[name];
      if (showsAll) section.list.replaceChildren();
      for (const [key, item] of now) {
        if (cards.has(key)) continue;
        if (showsAll) {
          const card = entry(item, needs);
          cards.set(key, card);
          section.list.append(card);
        } else waiting += 1;
      }
      for (const [key, card] of cards) {
        if (key.startsWith(`${name} `) && !now.has(key)) settled(card, "Nothing to decide any more");
      }
      section.element.hidden = !section.list.childElementCount;
      fill(section.heading, `${section.title} `, h("span.count", {}, number(now.size)));
    }
    fresh.hidden = !waiting;
    fill(fresh, `${number(waiting)} new`);
    if (cards.size) {
      if (!sections.approvals.element.isConnected) fill(body, Object.values(sections).map((each) => each.element));
    } else {
      fill(body, empty("All is well", "No call waits for a person, and no run has failed in the last hour."), h("p.soft.checked", {}, "Checked ", time(needs.checkedAt)));
    }
    if (all) main.querySelector("[data-item]")?.focus();
  }

  needs.listen(() => draw(), signal);
  draw();
}
