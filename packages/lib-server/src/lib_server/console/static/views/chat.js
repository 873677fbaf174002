// Chats: the agents to choose from, and a conversation with one. A conversation is a session, whose
// log holds the messages; each is answered by a run of its own, so that a reload, another browser
// or another server shows the same.

import { get, part, post, send } from "../api.js";
import { Attachments } from "../attachments.js";
import { Conversation } from "../conversation.js";
import { offers } from "../decisions.js";
import { confirm } from "../dialog.js";
import { followRun } from "../following.js";
import { button, fill, h } from "../html.js";
import { address, go, note } from "../router.js";
import { announce, empty, failure, liveDot, load } from "../state.js";
import { number } from "../text.js";

const SHOWN_TURNS = 20; // the last ones; earlier ones on request

export async function chatView({ app, main, path, signal }) {
  if (path.length < 2) chooseAgent(app, main);
  else show(app, main, signal, async () => ({ agent: path[1], session: null }));
}

export async function sessionView({ app, main, path, signal }) {
  if (path.length < 2) {
    go(["runs"], { agent: "session" });
    return;
  }
  await show(app, main, signal, async () => {
    const session = await get(`sessions/${part(path[1])}`, {}, signal);
    return { agent: session.agent, session };
  });
}

async function show(app, main, signal, read) {
  const content = h("div.chat-frame");
  fill(main, content);
  main.classList.add("full");
  signal.addEventListener("abort", () => main.classList.remove("full"));
  await load(content, read, ({ agent, session }) => new Chat(app, agent, session, signal).element, signal);
  content.querySelector("textarea")?.focus();
}

function chooseAgent(app, main) {
  fill(main,
    h("header.head", {}, h("h1", {}, "Chat"), h("div.actions", {}, h("a", { href: address(["runs"], { agent: "session" }) }, "Earlier chats"))),
    app.agents.length
      ? h("ul.cards", {}, app.agents.map((agent) => h("li", {}, h("a.card", { href: address(["chat", agent.name]), "data-item": agent.name },
        h("h2", {}, h("bdi", {}, agent.name)),
        h("p.soft", {}, agent.tools.length ? `Tools: ${agent.tools.map((each) => each.name).join(", ")}` : "No tools")))))
      : empty("No agents", "The server was started without one."));
}

class Chat {
  #session; // its id, "" before the first message
  #turns = []; // { key, element, runId, open }
  #early = []; // turns that are not shown
  #sending = false;
  #creation = window.crypto.randomUUID();

  constructor(app, agent, session, signal) {
    this.agent = agent;
    this.signal = signal;
    this.dot = liveDot();
    this.turns = h("div.turns", { role: "log", "aria-label": "Conversation", "aria-live": "off", tabindex: 0 });
    this.earlier = button("", () => this.#showEarlier(), { hidden: true });
    this.problems = h("div");
    this.input = h("textarea", { rows: 2, "aria-label": `Message to ${agent}`, placeholder: `Message to ${agent}`, enterkeyhint: "send" });
    this.attachments = new Attachments((words) => this.#complain({ title: "Too large", message: words }), app.me.uploads);
    this.send = h("button.primary", { type: "submit" }, "Send");
    this.stop = button("Stop", () => this.#stop(), { class: "danger", hidden: true });
    this.link = h("a", { href: address(["runs"]), hidden: true }, "Open the run");
    this.close = button("Close", () => this.#close(), { hidden: true });
    this.form = h("form.composer", { on: { submit: (event) => { event.preventDefault(); this.#submit(); } } },
      this.attachments.list, this.input, h("div.actions", {}, this.attachments.input, this.attachments.button, this.link, this.stop, this.send));
    this.attachments.listen(this.form);
    this.input.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.#submit();
    });
    this.element = h("div.chat", {},
      h("header.head", {}, h("h1", {}, h("bdi", {}, agent)), this.dot.element,
        h("div.actions", {}, this.close, button("New chat", () => go(["chat", agent])))),
      this.earlier, this.turns, this.problems, this.form);
    this.#session = session?.id ?? "";
    if (session) this.#follow();
    else {
      this.dot.element.hidden = true;
      fill(this.turns, empty(`Try ${agent}`, "What you write starts a session, with everything visible that a customer would not see."));
    }
  }

  #complain(problem) {
    fill(this.problems, failure(problem));
  }

  // Scrolls to the end if the end is what was seen.
  #keepEnd(change) {
    const { scrollTop, clientHeight, scrollHeight } = this.turns;
    const atEnd = scrollTop + clientHeight > scrollHeight - 60;
    change();
    if (atEnd) window.requestAnimationFrame(() => { this.turns.scrollTop = this.turns.scrollHeight; });
  }

  async #submit() {
    const words = this.input.value.trim();
    if ((!words && this.attachments.empty) || this.#sending) return;
    this.#sending = true;
    this.send.disabled = true;
    fill(this.problems);
    try {
      const files = await this.attachments.parts();
      const content = files.length ? [...(words ? [{ type: "text", text: words }] : []), ...files] : words;
      if (!this.#session) await this.#begin();
      await post(`sessions/${part(this.#session)}/messages`, { input: [{ role: "user", content }] }, { "Idempotency-Key": window.crypto.randomUUID() });
      this.input.value = "";
      this.attachments.clear();
    } catch (problem) {
      if (problem.status === undefined) throw problem;
      this.#complain(problem);
    } finally {
      this.#sending = false;
      this.send.disabled = false;
    }
  }

  async #begin() {
    const session = await post("sessions", { agent: this.agent }, { "Idempotency-Key": this.#creation });
    this.#session = session.id;
    this.turns.replaceChildren();
    note(["sessions", session.id]);
    this.#live = true; // there is no turn yet
    this.#follow();
  }

  async #stop() {
    const turn = this.#turns.find((each) => each.open && each.runId);
    if (!turn) return;
    this.stop.disabled = true;
    try {
      await post(`runs/${part(turn.runId)}/cancel`, { reason: "stopped in the chat" });
    } catch (problem) {
      this.#complain(problem);
    }
    this.stop.disabled = false;
  }

  async #close() {
    const answer = await confirm({ title: "Close this session?", detail: "What was sent is still answered; nothing more can be sent.", yes: "Close the session", danger: true });
    if (!answer) return;
    try {
      await send(`sessions/${part(this.#session)}`, { method: "DELETE" });
    } catch (problem) {
      this.#complain(problem);
    }
  }

  // The log of the session: which turns there are, and by which runs they are answered.
  #follow() {
    this.dot.element.hidden = false;
    this.close.hidden = false;
    followRun(this.#session, {
      parts: [{ apply: (event) => this.#apply(event), reset: () => this.#reset() }],
      piece: () => {},
      live: () => this.#showLast(),
      changed: () => {},
      dot: this.dot,
      box: this.problems,
      signal: this.signal,
    });
  }

  #reset() {
    this.#turns = [];
    this.#early = [];
    this.turns.replaceChildren();
  }

  #apply({ kind, data, at, user }) {
    if (kind === "lib.turn.requested") this.#keepEnd(() => this.#requested(data, at, user));
    if (kind === "lib.turn.started") this.#started(data);
    if (kind === "lib.turn.completed") this.#ended(data);
    if (kind === "lib.run.completed") {
      this.form.hidden = true;
      this.close.hidden = true;
      this.turns.append(h("p.moment", {}, "The session is closed"));
    }
    this.#drawState();
  }

  #requested(data, at, user) {
    const conversation = new Conversation();
    conversation.apply({ kind: "lib.turn.requested", data, at, user });
    const element = h("div.turn", {}, conversation.element);
    this.#turns.push({ key: data.signal_id, element, runId: "", open: true, shown: false });
    this.turns.append(element);
  }

  #started({ key, run_id: runId }) {
    const turn = this.#turns.find((each) => each.key === key);
    if (!turn) return;
    turn.runId = runId;
    turn.shown = this.#live;
    if (turn.shown) this.#showTurn(turn);
  }

  #ended({ key }) {
    const turn = this.#turns.find((each) => each.key === key);
    if (turn) turn.open = false;
    if (this.#live) announce("The answer is complete");
  }

  #live = false;

  // After the log has been read: the last turns are shown, and from now on each one.
  #showLast() {
    if (this.#live) return;
    this.#live = true;
    const begun = this.#turns.filter((each) => each.runId && !each.shown);
    this.#early = begun.slice(0, -SHOWN_TURNS);
    for (const turn of this.#early) turn.element.hidden = true;
    for (const turn of begun.slice(-SHOWN_TURNS)) this.#showTurn(turn);
    this.#drawState();
  }

  #showEarlier() {
    const next = this.#early.splice(-SHOWN_TURNS);
    for (const turn of next) {
      turn.element.hidden = false;
      this.#showTurn(turn);
    }
    this.#drawState();
  }

  // Shows the run that answers a turn in the place of its message.
  #showTurn(turn) {
    turn.shown = true;
    const conversation = new Conversation({ actions: offers(turn.runId) });
    const problems = h("div");
    let first = true;
    followRun(turn.runId, {
      parts: [{
        apply: (event) => this.#keepEnd(() => {
          conversation.apply(event);
          if (first) fill(turn.element, conversation.element, problems);
          first = false;
        }),
        reset: () => conversation.reset(),
      }],
      piece: (data) => this.#keepEnd(() => conversation.piece(data)),
      live: () => conversation.goLive(),
      changed: () => {},
      dot: liveDot(),
      box: turn.element,
      signal: this.signal,
      awaited: true,
    });
  }

  #drawState() {
    const open = this.#turns.find((each) => each.open);
    this.stop.hidden = !open?.runId;
    const last = this.#turns.findLast((each) => each.runId);
    this.link.hidden = !last;
    if (last) this.link.setAttribute("href", address(["runs", last.runId]));
    this.earlier.hidden = !this.#early.length;
    fill(this.earlier, `Show earlier turns (${number(this.#early.length)})`);
  }
}
