// Settings: the person's credential, API keys, the look of the console, the server's version.

import { addressOf, hasKey } from "../api.js";
import { button, fill, h } from "../html.js";
import { plural } from "../text.js";
import * as theme from "../theme.js";
import { keysCard } from "./keys.js";

function credential(me) {
  const facts = [["Id", h("code", {}, me.key_id)], ["Tenant", me.tenant ?? "all"], ["User", me.user ?? "none"], ["Scopes", me.scopes.join(", ") || "none"]];
  if (me.expires_at) facts.push(["Valid until", me.expires_at.slice(0, 16).replace("T", " ")]);
  return h("dl.facts", {}, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, h("bdi", {}, value)))));
}

export async function settingsView({ app, main, signal }) {
  const version = h("dd", {}, "…");
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
    app.me.manages_keys ? keysCard(app.me, signal) : null);
  try {
    const response = await fetch(new URL("../healthz", addressOf("")), { signal, credentials: "omit" });
    const health = await response.json();
    fill(version, `lib-server ${health.version}, ${health.status}`);
  } catch {
    fill(version, "does not answer");
  }
}
