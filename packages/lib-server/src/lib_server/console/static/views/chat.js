// A chat with an agent. Each answer is a run, which begins with what was said before; its address
// holds the run, so that a reload or another browser shows the same.

import { get, part, post } from "../api.js";
import { Attachments } from "../attachments.js";
import { Conversation } from "../conversation.js";
import { offers } from "../decisions.js";
import { followRun, readRun } from "../following.js";
import { button, fill, h, set } from "../html.js";
import { address, go, note } from "../router.js";
import { announce, empty, failure, liveDot, load } from "../state.js";
import { asText } from "../text.js";

export async function chatView({ app, main, path, signal }) {
  if (path.length < 2) {
    chooseAgent(app, main);
    return;
  }
  const [, agent, runId] = path;
  const content = h("div.chat-frame");
  fill(main, content);
  main.classList.add("full");
  signal.addEventListener("abort", () => main.classList.remove("full"));
  await load(content, async () => (runId ? readRun(runId, signal) : null), (run) => new Chat(agent, run, signal).element, signal);
  content.querySelector("textarea")?.focus();
}

function chooseAgent(app, main) {
  fill(main,
    h("header.head", {}, h("h1", {}, "Chat")),
    app.agents.length
      ? h("ul.cards", {}, app.agents.map((agent) => h("li", {}, h("a.card", { href: address(["chat", agent.name]), "data-item": agent.name },
        h("h2", {}, h("bdi", {}, agent.name)),
        h("p.soft", {}, agent.tools.length ? `Tools: ${agent.tools.map((each) => each.name).join(", ")}` : "No tools")))))
      : empty("No agents", "The server was started without one."));
}

class Chat {
  #run = null;
  #before = []; // messages before the next one
  #sending = false;

  constructor(agent, run, signal) {
    this.agent = agent;
    this.signal = signal;
    this.dot = liveDot();
    this.turns = h("div.turns", { role: "log", "aria-label": "Conversation", "aria-live": "off", tabindex: 0 });
    this.problems = h("div");
    this.input = h("textarea", { rows: 2, "aria-label": `Message to ${agent}`, placeholder: `Message to ${agent}`, enterkeyhint: "send" });
    this.attachments = new Attachments((words) => this.#complain({ title: "Too large", message: words }));
    this.send = h("button.primary", { type: "submit" }, "Send");
    this.stop = button("Stop", () => this.#stop(), { class: "danger", hidden: true });
    this.link = h("a", { href: address(["runs"]), hidden: true }, "Open the run");
    const form = h("form.composer", { on: { submit: (event) => { event.preventDefault(); this.#submit(); } } },
      this.attachments.list, this.input, h("div.actions", {}, this.attachments.input, this.attachments.button, this.link, this.stop, this.send));
    this.attachments.listen(form);
    this.input.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.#submit();
    });
    const title = h("h1", {}, h("bdi", {}, agent));
    this.element = h("div.chat", {},
      h("header.head", {}, title, this.dot.element, h("div.actions", {}, button("New chat", () => go(["chat", agent])))),
      this.turns, this.problems, form);
    if (run) this.#follow(run, true);
    else {
      this.dot.element.hidden = true;
      fill(this.turns, empty(`Try ${agent}`, "What you write starts a run, with everything visible that a customer would not see."));
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
    const files = await this.attachments.parts();
    if ((!words && !files.length) || this.#sending || this.#run?.status === "open") return;
    this.#sending = true;
    this.send.disabled = true;
    fill(this.problems);
    const content = files.length ? [...(words ? [{ type: "text", text: words }] : []), ...files] : words;
    const input = [...this.#before, { role: "user", content }];
    try {
      const run = await post("runs", { agent: this.agent, input }, { "Idempotency-Key": window.crypto.randomUUID() });
      this.input.value = "";
      this.attachments.clear();
      if (!this.#run) this.turns.replaceChildren();
      note(["chat", this.agent, run.id]);
      this.#follow(run, !this.#run);
    } catch (problem) {
      if (problem.status === undefined) throw problem;
      this.#complain(problem);
    } finally {
      this.#sending = false;
      this.send.disabled = this.#run?.status === "open";
    }
  }

  async #stop() {
    this.stop.disabled = true;
    try {
      await post(`runs/${part(this.#run.id)}/cancel`, { reason: "stopped in the chat" });
    } catch (problem) {
      this.#complain(problem);
    }
    this.stop.disabled = false;
  }

  #follow(run, whole) {
    this.#run = run;
    this.#working(true);
    set(this.link, { href: address(["runs", run.id]), hidden: false });
    const conversation = new Conversation({ from: whole ? 0 : this.#before.length, actions: offers(run.id) });
    this.turns.append(conversation.element);
    const messages = new Messages();
    followRun(run.id, {
      parts: [{ apply: (event) => this.#keepEnd(() => conversation.apply(event)), reset: () => conversation.reset() }, messages],
      piece: (data) => this.#keepEnd(() => conversation.piece(data)),
      live: () => conversation.goLive(),
      changed: (event) => {
        if (event.kind !== "lib.run.completed") return;
        this.#before = messages.all;
        this.#working(false);
      },
      dot: this.dot,
      box: this.problems,
      signal: this.signal,
    });
  }

  #working(open) {
    this.#run = { ...this.#run, status: open ? "open" : "closed" };
    this.dot.element.hidden = !open;
    this.stop.hidden = !open;
    this.send.disabled = open;
    if (!open) announce("The answer is complete");
  }
}

// The messages of a run as the input of the next one: what it began with, and its answer.
class Messages {
  all = [];

  reset() {
    this.all = [];
  }

  apply({ kind, data }) {
    if (kind === "lib.run.started") this.all = (data.input ?? []).filter((each) => each.role === "user" || each.role === "assistant").map(asInput);
    if (kind === "lib.run.completed" && data.output) this.all.push({ role: "assistant", content: asText(data.output) });
  }
}

const INPUT_PARTS = { text: ["type", "text"], image: ["type", "data", "url", "media_type"], audio: ["type", "data", "url", "media_type"], file: ["type", "data", "url", "media_type", "name"] };

function asInput(message) {
  if (typeof message.content === "string") return { role: message.role, content: message.content };
  const parts = message.parts.filter((each) => each.type === "text" || each.data || each.url);
  return { role: message.role, content: parts.map((each) => Object.fromEntries(INPUT_PARTS[each.type].filter((name) => each[name]).map((name) => [name, each[name]]))) };
}
