// A run as a conversation: one entry for each message, call, verdict and turn of fate of its log.

import { send } from "./api.js";
import { address } from "./router.js";
import { button, download, fill, h, pre, time, valueTable } from "./html.js";
import { markdown } from "./markdown.js";
import { announce } from "./state.js";
import { asText, firstLine, number } from "./text.js";

const LONG_MESSAGE = 20000;
const LARGEST_IMAGE = 8 * 1024 * 1024;
const SHOWN_IMAGES = /^image\/(png|jpeg|gif|webp)$/;

function folded(name, summary, ...content) {
  return h(`details.${name}`, {}, h("summary", {}, summary), ...content);
}

// What a tool has answered: JSON as a table, anything else as text.
function output(value, label) {
  if (typeof value === "string" && value.length < LONG_MESSAGE && /^\s*\{/.test(value)) {
    try {
      return valueTable(JSON.parse(value), label);
    } catch {
      return pre(value, label);
    }
  }
  return valueTable(value, label);
}

function proseOf(value) {
  return value.length > LONG_MESSAGE ? pre(value, "A long message", "message.txt") : markdown(value);
}

// Content that the server keeps: read when it is wanted, or at once if it is an image.
function upload(part, name) {
  const { $blob: digest, size, type } = part.blob;
  const read = async () => (await send(`blobs/${encodeURIComponent(digest)}`)).blob();
  const box = h("p.attachment", {}, `${part.type}: ${name} ${number(size)} bytes `,
    button("Download", async () => download(part.name || "attachment", await read(), "application/octet-stream"), { class: "small" }));
  if (part.type === "image" && SHOWN_IMAGES.test(type) && size <= LARGEST_IMAGE) {
    read().then((content) => box.replaceWith(picture(content, type)), () => {}); // else it stays a download
  }
  return box;
}

function picture(content, type) {
  const source = URL.createObjectURL(new Blob([content], { type }));
  const image = h("img", { src: source, alt: "attached image" });
  image.addEventListener("load", () => URL.revokeObjectURL(source), { once: true });
  return h("figure.attachment", {}, image);
}

function attachment(part) {
  const name = part.name || part.media_type || part.type;
  const size = part.data ? ` ${number(Math.floor((part.data.replace(/=+$/, "").length * 3) / 4))} bytes` : "";
  if (part.blob) return upload(part, part.name || part.blob.type);
  if (!part.data) return h("p.attachment", {}, `${part.type}: ${name}${part.url ? `, ${part.url}` : ""}`);
  const bytes = () => Uint8Array.from(window.atob(part.data), (letter) => letter.charCodeAt(0));
  if (part.type === "image" && SHOWN_IMAGES.test(part.media_type)) return picture(bytes(), part.media_type);
  return h("p.attachment", {}, `${part.type}: ${name}${size} `,
    button("Download", () => download(part.name || "attachment", bytes(), "application/octet-stream"), { class: "small" }));
}

function partsOf(message) {
  if (typeof message.content === "string") return [{ type: "text", text: message.content }];
  return Array.isArray(message.parts) ? message.parts : [];
}

function messagePart(part) {
  if (part.type === "text") return proseOf(String(part.text ?? ""));
  if (part.type === "thinking") return folded("thinking", "Thinking", proseOf(String(part.text ?? "")));
  if (part.type === "tool_call") return null; // the call has an entry of its own
  if (part.type === "tool_result") return output(part.content, "Result");
  if (["image", "audio", "file"].includes(part.type)) return attachment(part);
  return pre(part, String(part.type));
}

const NAMES = { user: "User", assistant: "Agent", system: "Instructions", tool: "Tool" };

function messageEntry(role, at, ...content) {
  const name = NAMES[role] ?? String(role);
  return h("article.message", { class: NAMES[role] ? role : "other", "aria-label": name },
    h("header", {}, h("span.role", {}, name), at ? time(at) : null), ...content);
}

const moment = (words, at, colour = "") => h("p.moment", { class: colour }, words, " ", time(at));

// The conversation of one run. `apply` takes each event of its log once and in order, `piece` the
// pieces of the reply that is being written; `actions(kind, call)` gives what can be done about a
// call that waits for a person ("approval"), or whose outcome is unknown ("unknown").
export class Conversation {
  #calls = new Map(); // by key
  #proposed = new Map(); // call ids of the reply's calls that have not begun
  #writing = null; // { key, attempt, text, thinking, entry }
  #drawn = 0;
  #live = false;

  constructor({ actions = () => null, from = 0 } = {}) {
    this.element = h("div.conversation");
    this.actions = actions;
    this.from = from; // the first message of the input that is shown
    this.outcome = null;
    this.agent = "";
    this.question = "";
    this.usage = { input_tokens: 0, output_tokens: 0 };
  }

  reset() {
    this.#calls.clear();
    this.#proposed.clear();
    this.#writing = null;
    this.usage = { input_tokens: 0, output_tokens: 0 };
    this.element.replaceChildren();
  }

  // From now on, replies are announced to those who listen.
  goLive() {
    this.#live = true;
  }

  apply(event) {
    const act = ACTS[event.kind.replace(/^lib\./, "")];
    if (act) act.call(this, event.data, event);
  }

  piece({ key, attempt, text = "", thinking = "", whole = false }) {
    const now = this.#writing;
    if (!now || now.key !== key || now.attempt !== attempt || whole) {
      this.#stopWriting();
      const entry = messageEntry("assistant", null);
      entry.classList.add("writing");
      entry.setAttribute("aria-busy", "true");
      const thought = folded("thinking", "Thinking");
      thought.hidden = true;
      entry.append(thought, h("div"));
      this.#writing = { key, attempt, text: "", thinking: "", entry, thought };
      this.element.append(entry);
    }
    this.#writing.text += text;
    this.#writing.thinking += thinking;
    if (!this.#drawn) this.#drawn = window.requestAnimationFrame(() => this.#draw());
  }

  #draw() {
    this.#drawn = 0;
    const now = this.#writing;
    if (!now) return;
    if (now.thinking) {
      now.thought.hidden = false;
      fill(now.thought, h("summary", {}, "Thinking"), proseOf(now.thinking));
    }
    fill(now.entry.lastElementChild, now.text ? proseOf(now.text) : null);
  }

  #stopWriting() {
    this.#writing?.entry.remove();
    this.#writing = null;
  }

  #add(entry) {
    if (this.#writing) this.#writing.entry.before(entry);
    else this.element.append(entry);
    return entry;
  }

  moment(words, event, colour) {
    this.#add(moment(words, event.at, colour));
  }

  message(role, parts, at) {
    const shown = parts.map(messagePart).filter(Boolean);
    if (shown.length) this.#add(messageEntry(role, at, shown));
  }

  reply(data, event) {
    this.#stopWriting();
    const parts = data.reply?.parts ?? [];
    this.message("assistant", parts, event.at);
    for (const name of Object.keys(this.usage)) this.usage[name] += data.reply?.usage?.[name] ?? 0;
    for (const part of parts) {
      if (part.type === "tool_call") this.#proposed.set(part.id, part);
      if (part.type === "text" && this.#live) announce(`Agent: ${firstLine(String(part.text), 300)}`);
    }
  }

  // The entry of a call, made at its first event.
  call(data, event) {
    const key = String(data.key);
    const made = this.#calls.get(key);
    if (made) return made;
    this.#stopWriting();
    const proposed = this.#proposed.get(data.call_id);
    this.#proposed.delete(data.call_id);
    const name = String(data.name ?? proposed?.name ?? "tool");
    const state = h("span.mark");
    const entry = h("details.call", { "data-key": key },
      h("summary", {}, h("span.role", {}, data.run_id ? "Agent" : "Tool"), " ", h("bdi.name", {}, name), " ", state),
      h("div.arguments", {}, valueTable(data.args ?? proposed?.arguments ?? {}, `Arguments of ${name}`)));
    const call = { key, name, args: data.args ?? {}, at: event.at, state, entry, callId: data.call_id };
    this.#calls.set(key, call);
    this.#add(entry);
    return call;
  }

  callState(call, glyph, word, colour) {
    call.state.className = `mark ${colour}`;
    fill(call.state, h("span", { "aria-hidden": "true" }, glyph), ` ${word}`);
    call.entry.classList.remove("open", "ok", "error", "off");
    call.entry.classList.add(colour);
  }

  add(call, title, content) {
    call.entry.append(h("p.part", {}, title), content);
  }

  decide(call, data) {
    this.callState(call, "◷", "waits for approval", "open");
    if (data.reason) this.add(call, "Why it asks", h("p", {}, String(data.reason)));
    this.offer(call, "approval");
    if (this.#live) announce(`${call.name} waits for approval`);
  }

  // Shows what can be done about a call, until that is withdrawn.
  offer(call, kind) {
    call.entry.open = true;
    const actions = this.actions(kind, call);
    if (actions) call.entry.append(call.buttons = h("div.offer", {}, actions));
  }

  // Nothing waits any more; what became of calls that were cut off can still be settled.
  end() {
    for (const call of this.#calls.values()) if (call.state.classList.contains("open")) this.withdraw(call);
  }

  withdraw(call) {
    if (call.buttons?.contains(document.activeElement)) call.entry.querySelector("summary").focus();
    call.buttons?.remove();
  }

  decided(call, approved, comment, event) {
    this.withdraw(call);
    const by = event.user ? ` by ${event.user}` : "";
    this.callState(call, approved ? "◐" : "⊘", approved ? `approved${by}` : `denied${by}`, approved ? "open" : "off");
    if (comment) this.add(call, approved ? "Comment" : "Why it was denied", h("p", {}, String(comment)));
  }
}

const REASONS = { error: "failed", blocked: "blocked by a guard", denied: "denied", cancelled: "cancelled", unknown: "outcome unknown" };

// What each kind of event does to the conversation; kinds that are not here only stand in the log.
const ACTS = {
  "run.started"(data, event) {
    this.agent = String(data.algorithm ?? "");
    for (const [place, message] of (data.input ?? []).entries()) {
      const parts = partsOf(message);
      if (message.role === "user") this.question = parts.map((part) => part.text ?? "").join(" ") || this.question;
      if (place >= this.from) this.message(message.role, parts, event.at);
    }
  },
  "run.resumed"(data, event) {
    this.moment(`Taken over by ${data.worker}, after the process before was lost or gave it back`, event, "error");
  },
  "lease.lost"(data, event) {
    this.moment(`${data.worker} lost the run to another process`, event, "error");
  },
  "cancel.requested"(data, event) {
    this.moment(`Cancelled${event.user ? ` by ${event.user}` : ""}${data.reason ? `: ${data.reason}` : ""}`, event, "off");
  },
  "llm.completed"(data, event) {
    this.reply(data, event);
  },
  "llm.failed"(data, event) {
    this.reply({}, event);
    this.moment(`The model gave no reply (${data.error?.type ?? data.reason}): ${data.error?.message ?? ""}`, event, "error");
  },
  "tool.requested"(data, event) {
    const call = this.call(data, event);
    Object.assign(call, { begun: !data.unstarted, effects: data.effects });
    if (!call.buttons?.isConnected) this.callState(call, "◐", data.unstarted ? "not started" : "running", "open");
    if (data.invalid) this.add(call, "Not valid", h("p", {}, asText(data.invalid)));
  },
  "tool.checked"(data, event) {
    const call = this.call(data, event);
    this.add(call, "The tool's check says", h("p", {}, `${String(data.answer).replaceAll("_", " ")}${data.reason ? `: ${data.reason}` : ""}`));
  },
  "tool.completed"(data, event) {
    const call = this.call(data, event);
    this.callState(call, "✓", "completed", "ok");
    this.add(call, data.truncated ? "Result, cut" : "Result", output(data.output, `Result of ${call.name}`));
  },
  "tool.failed"(data, event) {
    const call = this.call(data, event);
    this.withdraw(call);
    this.callState(call, "✗", REASONS[data.reason] ?? String(data.reason), data.reason === "error" || data.reason === "unknown" ? "error" : "off");
    this.add(call, "Error", pre(data.message ?? data.code ?? "", `Error of ${call.name}`));
    const cutOff = data.reason === "cancelled" && call.effects !== "none";
    if ((data.reason === "unknown" || cutOff) && call.begun) this.offer(call, "unknown");
  },
  "approval.requested"(data, event) {
    this.decide(this.call(data, event), data);
  },
  "approval.decided"(data, event) {
    this.decided(this.call(data, event), data.approved === true, data.comment, event);
  },
  "call.settled"(data, event) {
    const call = this.call(data, event);
    this.withdraw(call);
    this.add(call, `Settled${event.user ? ` by ${event.user}` : ""}`, h("p", {}, data.happened ? "It happened." : "It did not happen."));
  },
  "child.requested"(data, event) {
    const call = this.call({ ...data, args: {} }, event);
    this.callState(call, "◐", "running", "open");
    fill(call.entry.querySelector(".arguments"),
      (data.input ?? []).flatMap(partsOf).map(messagePart),
      h("p", {}, h("a", { href: address(["runs", String(data.run_id)]) }, `Open the run of ${data.name}`)));
  },
  "child.completed"(data, event) {
    const call = this.call(data, event);
    const good = data.outcome === "COMPLETED";
    this.callState(call, good ? "✓" : "✗", String(data.outcome).toLowerCase(), good ? "ok" : "error");
    if (data.output !== undefined) this.add(call, "Answer", output(data.output, `Answer of ${call.name}`));
  },
  "turn.requested"(data, event) {
    for (const message of data.input ?? []) this.message(message.role, partsOf(message), event.at);
  },
  "turn.completed"(data, event) {
    if (data.output !== undefined) this.message("assistant", [{ type: "text", text: asText(data.output) }], event.at);
    if (data.outcome !== "COMPLETED") this.moment(`The turn ended as ${String(data.outcome).toLowerCase()}`, event, "error");
  },
  "context.summary"(data, event) {
    this.moment("What came before was summed up for the model", event);
  },
  "guard.verdict"(data, event) {
    if (data.verdict === "allow") return;
    this.moment(`Guard ${data.guard} (${data.stage}): ${data.verdict}${data.reason ? `, ${data.reason}` : ""}`, event, "off");
  },
  "swarm.handoff"(data, event) {
    this.moment(`${data.source} hands over to ${data.target}`, event);
  },
  "reflexion.feedback"(data, event) {
    this.moment(`The answer was judged: ${data.text}`, event);
  },
  "debate.turn"(data, event) {
    this.message("assistant", [{ type: "text", text: `**${data.agent}**\n\n${data.text}` }], event.at);
  },
  "run.completed"(data, event) {
    this.reply({}, event);
    this.end();
    this.outcome = String(data.outcome);
    const error = data.error ? ` (${data.error.type}): ${data.error.message}` : data.reason ? `: ${data.reason}` : "";
    const words = { COMPLETED: "Completed", FAILED: "Failed", CANCELLED: "Cancelled", BLOCKED: "Blocked by a guard", LIMITED: "Over its budget" };
    this.moment(`${words[this.outcome] ?? this.outcome}${this.outcome === "COMPLETED" ? "" : error}`, event, this.outcome === "COMPLETED" ? "ok" : this.outcome === "FAILED" ? "error" : "off");
  },
};
