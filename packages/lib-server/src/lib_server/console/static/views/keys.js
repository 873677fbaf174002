// API keys: those of the administrator's tenant, or all; created, shown once, and revoked.

import { get, part, post, send } from "../api.js";
import { confirm, show } from "../dialog.js";
import { button, fill, h, time } from "../html.js";
import { announce, copyButton, failure, load } from "../state.js";

const SCOPES = { read: "look at runs", run: "start and cancel runs", approve: "decide approvals", admin: "administer" };
const DAYS = { "": "No end", 7: "7 days", 30: "30 days", 90: "90 days", 365: "A year" };
const DAY_MS = 86400000;

function stateOf(key) {
  if (key.revoked_at) return ["revoked ", time(key.revoked_at)];
  if (!key.expires_at) return ["no end"];
  return new Date(key.expires_at) < new Date() ? ["expired ", time(key.expires_at)] : ["until ", key.expires_at.slice(0, 10)];
}

const isValid = (key) => !key.revoked_at && (!key.expires_at || new Date(key.expires_at) > new Date());

function showOnce(key) {
  return show("The new key",
    h("p", {}, "Copy it now: it is shown this once, and kept nowhere."),
    h("pre.secret", { tabindex: 0, role: "region", "aria-label": "The new key" }, key),
    h("form", { method: "dialog" }, h("div.actions", {}, copyButton(key, "Copy the key", "Copy the key"), h("button.primary", { type: "submit" }, "Done"))));
}

function field(name, label, properties = {}) {
  const input = h("input", { type: "text", id: `key-${name}`, autocomplete: "off", spellcheck: "false", ...properties });
  return [input, h("div.field", {}, h("label", { for: `key-${name}` }, label), input)];
}

export function keysCard(me, signal) {
  const list = h("div");
  const problems = h("div");
  const [name, nameField] = field("name", "Name: which program or person holds it", { maxlength: 200 });
  const [tenant, tenantField] = field("tenant", "Tenant, or none for the runs of all", { maxlength: 64 });
  const [user, userField] = field("user", "User, if its runs are for one", { maxlength: 256 });
  const days = h("select", { id: "key-days" }, Object.entries(DAYS).map(([value, words]) => h("option", { value, selected: value === "90" }, words)));
  const scopes = Object.entries(SCOPES).map(([scope, words]) => {
    const input = h("input", { type: "checkbox", value: scope, checked: scope === "read" || scope === "run" });
    return [input, h("label.check", {}, input, ` ${scope}: ${words}`)];
  });
  const submit = h("button.primary", { type: "submit" }, "Create a key");

  async function create(event) {
    event.preventDefault();
    problems.replaceChildren();
    submit.disabled = true;
    try {
      const made = await post("keys", {
        name: name.value.trim(),
        tenant: me.tenant ?? (tenant.value.trim() || null),
        user: user.value.trim() || null,
        scopes: scopes.map(([input]) => input).filter((input) => input.checked).map((input) => input.value),
        expires_at: days.value ? new Date(Date.now() + Number(days.value) * DAY_MS).toISOString() : null,
      });
      await showOnce(made.key);
      name.value = "";
      await read();
    } catch (problem) {
      if (problem.status === undefined) throw problem;
      fill(problems, failure(problem));
    } finally {
      submit.disabled = false;
    }
  }

  async function revoke(key) {
    const own = key.id === me.key_id;
    const detail = own ? "It is your own: you will be signed out." : "Programs that use it are refused within seconds. This cannot be undone.";
    if (!(await confirm({ title: `Revoke the key ${key.id}?`, detail, yes: "Revoke", danger: true }))) return;
    try {
      await send(`keys/${part(key.id)}`, { method: "DELETE" });
      announce("The key is revoked");
      await read();
    } catch (problem) {
      if (problem.status === undefined) throw problem;
      fill(problems, failure(problem));
    }
  }

  const row = (key) => h("tr", {},
    h("th", { scope: "row" }, h("code", {}, key.id), key.name ? [" ", h("bdi", {}, key.name)] : null),
    h("td", {}, h("bdi", {}, [key.tenant ?? "all tenants", key.user].filter(Boolean).join(", "))),
    h("td", {}, key.scopes.join(", ")),
    h("td", {}, stateOf(key)),
    h("td", {}, key.last_used_at ? time(key.last_used_at) : "never"),
    h("td", {}, isValid(key) ? button("Revoke", () => revoke(key), { class: "small danger", "aria-label": `Revoke ${key.id}` }) : null));

  const table = ({ keys }) => h("div.scroll", { tabindex: 0, role: "region", "aria-label": "API keys" },
    h("table", {}, h("thead", {}, h("tr", {}, ["Key", "Owner", "Scopes", "Valid", "Last used"].map((title) => h("th", { scope: "col" }, title)), h("td"))),
      h("tbody", {}, keys.map(row))));
  const read = () => load(list, () => get("keys", {}, signal), table, signal);

  read();
  return h("section.card", {}, h("h2", {}, "API keys"), list, problems,
    h("details", {}, h("summary", {}, "Create a key"),
      h("form.key-form", { on: { submit: create } }, nameField,
        me.tenant ? null : tenantField, userField,
        h("fieldset", {}, h("legend", {}, "It may"), scopes.map(([, label]) => label)),
        h("div.field", {}, h("label", { for: "key-days" }, "Valid for"), days),
        submit)));
}
