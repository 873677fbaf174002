// One run: its head, and its conversation, timeline, log, spend and scores, which follow one stream.

import { addressOf, get, hasKey, part, post, send } from "../api.js";
import { Conversation } from "../conversation.js";
import { offers } from "../decisions.js";
import { confirm } from "../dialog.js";
import { followRun, readRun } from "../following.js";
import { button, download, fill, h, time } from "../html.js";
import { stateMark } from "../outcomes.js";
import { address, note } from "../router.js";
import { announce, copyButton, failure, liveDot, load } from "../state.js";
import { tabs } from "../tabs.js";
import { cost, firstLine, number } from "../text.js";
import { LogView } from "./log.js";
import { ScoresView } from "./scores.js";
import { SpendView } from "./spend.js";
import { TimelineView } from "./timeline.js";

const REREAD_MS = 250;

function curl(id) {
  const key = hasKey() ? ' -H "Authorization: Bearer $LIB_KEY"' : "";
  return `curl -N${key} -H 'Accept: text/event-stream' '${addressOf(`runs/${part(id)}/events`)}'`;
}

function facts(run, result) {
  const list = h("dl.facts");
  const add = (name, ...value) => list.append(h("div", {}, h("dt", {}, name), h("dd", {}, ...value)));
  add("Run", h("code", {}, run.id), " ", copyButton(run.id, "Copy the run's id"));
  add("Begun", time(run.created_at));
  if (run.tenant) add("Tenant", h("bdi", {}, run.tenant));
  if (run.user) add("User", h("bdi", {}, run.user));
  if (run.parent_id) add("Part of", h("a", { href: address(["runs", run.parent_id]) }, run.parent_id));
  if (result) add("Tokens", number(result.spend.tokens));
  if (result?.spend.cost) add("Cost", cost(result.spend.cost));
  return [list, result?.waiting_for ? h("p.waits", {}, `It ${result.waiting_for}.`) : null];
}

export async function runView({ main, path, query, signal }) {
  const id = path[1];
  const content = h("div.run-view");
  fill(main, content);
  await load(content, () => readRun(id, signal), (run) => showRun(run, { query, signal }), signal);
}

function showRun(first, { query, signal }) {
  let run = first;
  const dot = liveDot();
  const mark = h("span", {}, stateMark(run));
  const title = h("h1", {}, h("bdi", {}, run.agent));
  const question = h("p.question");
  const about = h("div", {}, facts(run));
  const conversation = new Conversation({ actions: offers(run.id) });
  const log = new LogView();
  const spend = new SpendView();
  const scores = new ScoresView(run.id);
  const timeline = new TimelineView(run.id, signal);
  const problems = h("div");
  const cancel = button("Cancel", cancelRun, { class: "danger" });
  cancel.hidden = run.status === "closed";
  const panel = (view) => h("section", {}, view.element);
  const panels = tabs(
    { conversation: ["Conversation", panel(conversation)], timeline: ["Timeline", panel(timeline)], log: ["Log", panel(log)], spend: ["Spend", panel(spend)], scores: ["Scores", panel(scores)] },
    query.get("tab"),
    (name) => {
      note(["runs", run.id], { tab: name === "conversation" ? "" : name });
      timeline.show(name === "timeline");
    },
  );

  async function cancelRun() {
    const answer = await confirm({ title: "Cancel this run?", detail: "Calls under way are stopped; what has happened stays.", field: "Reason", yes: "Cancel the run", danger: true });
    if (!answer) return;
    try {
      await post(`runs/${part(run.id)}/cancel`, { reason: answer.text });
      announce("The run is being cancelled");
    } catch (problem) {
      problems.prepend(failure(problem));
    }
  }

  async function downloadTrace() {
    try {
      const page = await send(`runs/${part(run.id)}/trace`, { headers: { Accept: "text/html" } });
      download(`trace-${run.id}.html`, await page.text(), "text/html");
    } catch (problem) {
      if (problem.status === undefined) throw problem;
      problems.prepend(failure(problem));
    }
  }

  let rereading = 0;

  // What is in no event, the spend and what the run waits for, is read again after the last of many.
  function reread() {
    window.clearTimeout(rereading);
    rereading = window.setTimeout(async () => {
      try {
        run = await readRun(run.id, signal);
        const result = await get(`runs/${part(run.id)}/result`, {}, signal);
        fill(mark, stateMark(run));
        fill(about, facts(run, result));
        spend.show(result);
        cancel.hidden = run.status === "closed";
      } catch (problem) {
        if (problem.status === undefined && problem.name !== "AbortError") throw problem;
      }
    }, REREAD_MS);
  }

  document.title = `${run.agent} · ${run.id}`;
  followRun(run.id, {
    parts: [conversation, log, spend, scores],
    piece: (data) => conversation.piece(data),
    live: () => conversation.goLive(),
    changed() {
      fill(question, firstLine(conversation.question, 200));
      timeline.changed();
      reread();
    },
    dot,
    box: problems,
    signal,
  });
  return [
    h("header.head", {}, title, mark, dot.element,
      h("div.actions", {},
        run.agent === "session" ? h("a", { href: address(["sessions", run.id]) }, "Open the session") : null,
        cancel,
        copyButton(curl(run.id), "Copy a curl line that follows this run", "Copy curl"),
        button("Download", () => download(`${run.id}.json`, JSON.stringify(log.events, null, 2), "application/json"), { "aria-label": "Download the log as JSON" }),
        button("Trace", downloadTrace, { "aria-label": "Download the trace as a page" }))),
    question,
    about,
    problems,
    panels,
  ];
}
