// The console's frame: who is signed in, which view is shown, the navigation and the keys.

import { get, hasKey, onRefused, useKey } from "./api.js";
import { button, fill, h, icon, refreshTimes } from "./html.js";
import { Needs } from "./needs.js";
import { address, go, parse } from "./router.js";
import { failure, skeleton } from "./state.js";
import { number } from "./text.js";
import * as theme from "./theme.js";
import { chatView, sessionView } from "./views/chat.js";
import { inboxView } from "./views/inbox.js";
import { runView } from "./views/run.js";
import { runsView } from "./views/runs.js";
import { settingsView } from "./views/settings.js";
import { signIn } from "./views/signin.js";
import { spendPage } from "./views/spending.js";

const main = document.getElementById("main");
const navigation = document.getElementById("navigation");
const keys = document.getElementById("keys");

// Places: the address's first part, its name, its key after "g", its views; those that are under
// another one are not in the navigation.
const PLACES = [
  { place: "", icon: "inbox", name: "Inbox", key: "i", view: () => inboxView },
  { place: "runs", name: "Runs", key: "r", view: ({ path }) => (path.length > 1 ? runView : runsView) },
  { place: "chat", name: "Chat", key: "c", view: () => chatView },
  { place: "sessions", name: "Session", under: "chat", view: () => sessionView },
  { place: "spend", name: "Spend", key: "p", view: () => spendPage },
  { place: "settings", name: "Settings", key: "s", view: () => settingsView },
];
const LISTED = PLACES.filter((each) => !each.under);

const app = {
  agents: [],
  me: null, // as GET /v1/me has it
  needs: new Needs(),
  signOut(words = "") {
    useKey(null);
    shown.abort();
    app.needs.stop();
    navigation.hidden = true;
    signIn(main, { words, signedIn: start });
  },
};

let shown = new AbortController();
let place = null;

function show() {
  const { path, query } = parse(window.location.hash);
  const found = PLACES.find((each) => each.place === (path[0] ?? ""));
  if (!found) {
    window.location.replace(address([]));
    return;
  }
  shown.abort();
  shown = new AbortController();
  const moved = place !== null && place !== found.place;
  place = found.place;
  for (const link of navigation.querySelectorAll("a")) {
    if (link.dataset.place === (found.under ?? place)) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  main.replaceChildren();
  main.scrollTop = 0;
  document.title = `${found.name} · lib-server`;
  found.view({ path })({ app, main, path, query, signal: shown.signal });
  if (moved) main.focus({ preventScroll: true });
}

async function start() {
  fill(main, skeleton());
  try {
    app.me = await get("me");
    ({ agents: app.agents } = await get("agents"));
  } catch (problem) {
    if (problem.status === 401) return;
    fill(main, failure(problem, start));
    return;
  }
  navigation.hidden = false;
  app.needs.start();
  show();
}

const count = h("span.count", { hidden: true });
app.needs.listen(() => {
  count.hidden = !app.needs.count;
  fill(count, number(app.needs.count), h("span.unseen", {}, " waiting"));
}, new AbortController().signal);

// -- the frame -------------------------------------------------------------------------------------

fill(navigation,
  h("p.brand", { "aria-hidden": "true" }, "lib-server"),
  h("ul", {}, LISTED.map((each) => h("li", {},
    h("a", { href: address(each.place ? [each.place] : []), "data-place": each.place, title: `${each.name} (g ${each.key})` },
      icon(each.icon ?? each.place), h("span", {}, each.name), each.place ? null : count)))));

const KEYS = [
  ["/", "search"],
  ...LISTED.map((each) => [`g ${each.key}`, each.name.toLowerCase()]),
  ["j k", "next, previous"],
  ["Enter", "open"],
  ["a d", "approve, deny"],
  ["?", "these keys"],
  ["Esc", "close, leave a field"],
];
fill(keys,
  h("h2", { id: "keys-title" }, "Keys"),
  h("dl", {}, KEYS.flatMap(([key, words]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, words)])),
  button("Close", () => keys.close()));

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});

// -- keys ------------------------------------------------------------------------------------------

let prefix = "";

function moveBy(step) {
  const items = [...main.querySelectorAll("[data-item]")];
  if (!items.length) return;
  const at = items.indexOf(document.activeElement.closest("[data-item]"));
  const next = items[Math.min(Math.max(at < 0 ? 0 : at + step, 0), items.length - 1)];
  next.focus();
  next.scrollIntoView({ block: "nearest" });
}

// Presses the button of what has the focus, or else the only one of its kind.
function press(name) {
  const within = document.activeElement.closest("[data-item], .call") ?? main;
  const found = within.querySelectorAll(`[data-act=${name}]`);
  if (found.length === 1) found[0].click();
}

const ACTS = {
  "/": () => main.querySelector("[type=search]")?.focus(),
  "?": () => keys.showModal(),
  j: () => moveBy(1),
  k: () => moveBy(-1),
  a: () => press("approve"),
  d: () => press("deny"),
};

document.addEventListener("keydown", (event) => {
  const target = event.composedPath()[0]; // in the timeline, too, which has a root of its own
  const typing = target.matches("input:not([type=checkbox]), textarea, select");
  if (event.key === "Escape" && typing) target.blur();
  if (typing || event.defaultPrevented || document.querySelector("dialog[open]") || navigation.hidden || event.ctrlKey || event.metaKey || event.altKey) return;
  const chosen = prefix === "g" && LISTED.find((each) => each.key === event.key);
  prefix = event.key === "g" && prefix !== "g" ? "g" : "";
  const opens = event.key === "Enter" && event.target.matches("article[data-item]");
  if (chosen) go(chosen.place ? [chosen.place] : []);
  else if (opens) event.target.querySelector("[data-act=open]").click();
  else if (ACTS[event.key] && !prefix) ACTS[event.key]();
  else return;
  event.preventDefault();
});

onRefused((problem) => {
  app.signOut(hasKey() ? problem.detail || "The key is not valid any more." : "");
});
window.addEventListener("hashchange", () => {
  if (!navigation.hidden) show();
});
window.setInterval(() => refreshTimes(main), 10000);
theme.apply();
start();
