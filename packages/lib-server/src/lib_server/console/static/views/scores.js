// The scores of a run: judgements of code, models and people, and one to add.

import { part, post } from "../api.js";
import { fill, h, time } from "../html.js";
import { announce, failure } from "../state.js";
import { number } from "../text.js";

const SOURCES = { code: "code", llm: "a model", human: "a person" };

function words(value) {
  if (typeof value === "boolean") return value ? "✓ yes" : "✗ no";
  return typeof value === "number" ? number(value) : String(value);
}

// What was typed as a value: a number, yes or no, else a word.
export function valueOf(text) {
  const typed = text.trim();
  if (/^(yes|true)$/i.test(typed)) return true;
  if (/^(no|false)$/i.test(typed)) return false;
  return typed !== "" && Number.isFinite(Number(typed)) ? Number(typed) : typed;
}

export class ScoresView {
  #scores = new Map(); // by the id of the signal, or the place in the log

  constructor(runId) {
    this.runId = runId;
    this.rows = h("tbody");
    this.none = h("p.soft", {}, "No score yet.");
    this.table = h("div.scroll", { tabindex: 0, role: "region", "aria-label": "Scores", hidden: true },
      h("table", {}, h("thead", {}, h("tr", {}, ["Score", "Value", "By", "When", "Comment"].map((name) => h("th", { scope: "col" }, name)))), this.rows));
    this.problems = h("div");
    this.name = h("input", { type: "text", id: "score-name", maxlength: 256, autocomplete: "off" });
    this.value = h("input", { type: "text", id: "score-value", maxlength: 1000, autocomplete: "off" });
    this.comment = h("input", { type: "text", id: "score-comment", maxlength: 10000, autocomplete: "off" });
    this.submit = h("button.primary", { type: "submit" }, "Add the score");
    const field = (input, label) => h("div.field", {}, h("label", { for: input.id }, label), input);
    this.element = h("div", {}, this.none, this.table, this.problems,
      h("form.card.score-form", { on: { submit: (event) => { event.preventDefault(); this.#add(); } } },
        h("h2", {}, "Add a score"),
        field(this.name, "Name, such as helpful"),
        field(this.value, "Value: a number, yes or no, or a word"),
        field(this.comment, "Comment"),
        this.submit));
  }

  reset() {
    this.#scores.clear();
    this.#draw();
  }

  apply({ kind, data, seq, at, user }) {
    if (kind !== "lib.eval.score") return;
    const id = String(data.signal_id ?? seq);
    if (!this.#scores.has(id)) this.#scores.set(id, { ...data, at, user });
    this.#draw();
  }

  #draw() {
    const scores = [...this.#scores.values()];
    this.none.hidden = scores.length > 0;
    this.table.hidden = scores.length === 0;
    fill(this.rows, scores.map((score) => h("tr", {},
      h("th", { scope: "row" }, h("bdi", {}, String(score.name))),
      h("td", {}, h("bdi", {}, words(score.value))),
      h("td", {}, [SOURCES[score.source] ?? String(score.source ?? ""), score.user].filter(Boolean).join(": ")),
      h("td", {}, time(score.at)),
      h("td", {}, h("bdi", {}, String(score.comment ?? ""))))));
  }

  async #add() {
    this.problems.replaceChildren();
    if (!this.name.value.trim() || !this.value.value.trim()) {
      fill(this.problems, h("p.error", { role: "alert" }, "Enter a name and a value."));
      (this.name.value.trim() ? this.value : this.name).focus();
      return;
    }
    this.submit.disabled = true;
    const body = { name: this.name.value.trim(), value: valueOf(this.value.value), comment: this.comment.value.trim() || null, key: window.crypto.randomUUID() };
    try {
      const { scores } = await post(`runs/${part(this.runId)}/scores`, body);
      // The stream of a run that has ended brings no more: what is there by now comes with the answer.
      this.#scores = new Map(scores.map((score, place) => [`answer ${place}`, score]));
      this.#draw();
      for (const input of [this.name, this.value, this.comment]) input.value = "";
      announce("The score is added");
    } catch (problem) {
      if (problem.status === undefined) throw problem;
      fill(this.problems, failure(problem));
    } finally {
      this.submit.disabled = false;
    }
  }
}
