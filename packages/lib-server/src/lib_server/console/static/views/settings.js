// Settings: the person's credential, API keys, the look of the console, the server's version.

import { addressOf, get, hasKey } from "../api.js";
import { button, fill, h } from "../html.js";
import { cost, number, plural } from "../text.js";
import * as theme from "../theme.js";
import { keysCard } from "./keys.js";

function credential(me) {
  const facts = [["Id", h("code", {}, me.key_id)], ["Tenant", me.tenant ?? "all"], ["User", me.user ?? "none"], ["Scopes", me.scopes.join(", ") || "none"]];
  if (me.expires_at) facts.push(["Valid until", me.expires_at.slice(0, 16).replace("T", " ")]);
  return h("dl.facts", {}, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, h("bdi", {}, value)))));
}

const RESOURCES = { tokens: "Tokens", cost: "Cost", llm_calls: "Model calls", tool_calls: "Tool calls" };

// What is left of the ceilings of the day; nothing where there is none.
function budgetCard(budgets) {
  if (!budgets.length) return null;
  const shown = (budget, value) => (budget.resource === "cost" ? cost(value) : number(value));
  const rows = budgets.map((budget) => h("tr", {},
    h("th", { scope: "row" }, `${RESOURCES[budget.resource]} of the ${budget.level}`),
    ["left", "spent", "held", "limit"].map((name) => h("td.number", {}, shown(budget, budget[name])))));
  return h("section.card", {}, h("h2", {}, "Budget of today"),
    h("div.scroll", { tabindex: 0, role: "region", "aria-label": "Budget of today" }, h("table", {},
      h("thead", {}, h("tr", {}, ["", "Left", "Spent", "Held by open runs", "A day"].map((name) => (name ? h("th", { scope: "col" }, name) : h("td", {}))))),
      h("tbody", {}, rows))),
    h("p.soft", {}, `The day ends at ${budgets[0].ends_at.slice(0, 16).replace("T", " ")} UTC.`));
}

export async function settingsView({ app, main, signal }) {
  const version = h("dd", {}, "…");
  const budget = h("div");
  const choices = theme.THEMES.map((each) => h("label.check", {},
    h("input", { type: "radio", name: "theme", value: each, checked: each === theme.current(), on: { change: () => theme.apply(each) } }),
    ` ${each[0].toUpperCase()}${each.slice(1)}`));
  fill(main,
    h("header.head", {}, h("h1", {}, "Settings")),
    h("section.card", {}, h("fieldset", {}, h("legend", {}, "Theme"), choices)),
    h("section.card", {}, h("h2", {}, "About"),
      h("dl.facts", {},
        h("dt", {}, "Server"), version,
        h("dt", {}, "Address"), h("dd", {}, addressOf("").origin),
        h("dt", {}, "Agents"), h("dd", {}, plural(app.agents.length, "agent")))),
    h("section.card", {}, h("h2", {}, "Credential"),
      hasKey()
        ? [h("p", {}, "You have signed in with a key; it is kept by this tab alone."), credential(app.me), button("Sign out", () => app.signOut())]
        : h("p", {}, "This server asks for no key. It serves only the machine that it runs on.")),
    budget,
    app.me.manages_keys ? keysCard(app.me, signal) : null);
  get("budget", {}, signal).then(({ budgets }) => fill(budget, budgetCard(budgets)), () => {}); // others show that the server is away
  try {
    const response = await fetch(new URL("../healthz", addressOf("")), { signal, credentials: "omit" });
    const health = await response.json();
    fill(version, `lib-server ${health.version}, ${health.status}`);
  } catch {
    fill(version, "does not answer");
  }
}
