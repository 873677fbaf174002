// Signing in: the key is tried, and kept in memory, or in this tab's storage if the person wants so.

import { get, useKey } from "../api.js";
import { fill, h } from "../html.js";

export function signIn(main, { words, signedIn }) {
  document.title = "Sign in · lib-server";
  const key = h("input", { type: "password", id: "key", name: "key", autocomplete: "off", spellcheck: "false", "aria-describedby": "sign-in-error" });
  const remember = h("input", { type: "checkbox", id: "remember" });
  const error = h("p.error", { id: "sign-in-error", role: "alert" }, words);
  const submit = h("button.primary", { type: "submit" }, "Sign in");

  async function tryKey(event) {
    event.preventDefault();
    if (!key.value.trim()) {
      fill(error, "Enter a key.");
      key.focus();
      return;
    }
    submit.disabled = true;
    useKey(key.value.trim(), { remember: remember.checked });
    try {
      await get("me");
      signedIn();
    } catch (problem) {
      if (problem.status === 401) return; // this form is shown anew, with the reason
      fill(error, problem.message);
      submit.disabled = false;
      useKey(null);
    }
  }

  fill(main, h("form.sign-in", { on: { submit: tryKey } },
    h("h1", {}, "Sign in"),
    h("p.soft", {}, "With an API key or a token of this server. It never leaves this page but for the server."),
    h("label", { for: "key" }, "Key"),
    key,
    h("label.check", { for: "remember" }, remember, " Keep it until this tab is closed"),
    error,
    submit));
  key.focus();
}
