// Settings: the look of the console, the server's version, signing out.

import { addressOf, hasKey } from "../api.js";
import { button, fill, h } from "../html.js";
import { plural } from "../text.js";
import * as theme from "../theme.js";

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
        ? [h("p", {}, "You have signed in with a key; it is kept by this tab alone."), button("Sign out", () => app.signOut())]
        : h("p", {}, "This server asks for no key. It serves only the machine that it runs on.")));
  try {
    const response = await fetch(new URL("../healthz", addressOf("")), { signal, credentials: "omit" });
    const health = await response.json();
    fill(version, `lib-server ${health.version}, ${health.status}`);
  } catch {
    fill(version, "does not answer");
  }
}
