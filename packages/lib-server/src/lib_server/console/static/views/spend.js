// What a run has used: in all, and by each call of a model.

import { fill, h } from "../html.js";
import { cost, duration, number } from "../text.js";

export class SpendView {
  #requested = new Map(); // by key: the event
  #calls = 0;

  constructor() {
    this.totals = h("dl.facts.totals");
    this.rows = h("tbody");
    this.element = h("div", {}, this.totals,
      h("div.scroll", { tabindex: 0, role: "region", "aria-label": "Calls of models" },
        h("table", {}, h("caption", {}, "Calls of models"),
          h("thead", {}, h("tr", {}, ["Call", "Model", "Tokens in", "Tokens out", "Took"].map((name) => h("th", { scope: "col" }, name)))),
          this.rows)));
  }

  reset() {
    this.#requested.clear();
    this.rows.replaceChildren();
  }

  apply(event) {
    const { data } = event;
    if (event.kind === "lib.llm.requested") this.#requested.set(data.key, event);
    if (event.kind !== "lib.llm.completed" && event.kind !== "lib.llm.failed") return;
    const requested = this.#requested.get(data.key);
    const usage = data.reply?.usage ?? data.usage ?? {};
    const took = requested ? duration((new Date(event.at) - new Date(requested.at)) / 1000) : "";
    const model = data.reply?.model ?? data.model ?? requested?.data.model ?? "";
    this.rows.append(h("tr", {}, h("th", { scope: "row" }, String(data.key)), h("td", {}, String(model)),
      h("td.number", {}, number(usage.input_tokens ?? 0)), h("td.number", {}, number(usage.output_tokens ?? 0)), h("td.number", {}, took)));
  }

  show({ spend }) {
    const facts = {
      Tokens: number(spend.tokens),
      Cost: spend.cost === null ? "no price" : cost(spend.cost),
      "Model calls": number(spend.llm_calls),
      "Tool calls": number(spend.tool_calls),
      Time: duration(spend.seconds),
    };
    fill(this.totals, Object.entries(facts).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
  }
}
