// A program of the AI SDK against a server: node vercel.mjs URL
import assert from "node:assert/strict";
import { AbstractChat, DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses } from "ai";

const api = `${process.argv[2]}/v1/chat`;

class State {
  status = "ready";
  error = undefined;
  messages = [];
  pushMessage = (message) => { this.messages = [...this.messages, structuredClone(message)]; };
  popMessage = () => { this.messages = this.messages.slice(0, -1); };
  replaceMessage = (place, message) => {
    this.messages = this.messages.map((each, at) => (at === place ? structuredClone(message) : each));
  };
  snapshot = (value) => structuredClone(value);
}

class Chat extends AbstractChat {
  constructor(options) { super({ state: new State(), ...options }); }
}

function open(id, fetch) {
  return new Chat({
    id,
    transport: new DefaultChatTransport({ api, fetch, body: { agent: "shop" } }),
    sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
  });
}

function cutAfter(text) {  // loses the connection once an answer has brought this text
  let cut = false;
  return async (url, init) => {
    const answer = await fetch(url, init);
    if (cut || !answer.body) return answer;
    const reader = answer.body.getReader();
    let seen = "";
    const body = new ReadableStream({
      async pull(controller) {
        const { done, value } = await reader.read();
        if (done) return controller.close();
        const piece = new TextDecoder().decode(value);
        const end = (seen + piece).indexOf(text);
        if (end < 0) { seen += piece; controller.enqueue(value); return; }
        cut = true;
        await reader.cancel();
        controller.error(new TypeError("network error"));
      },
    });
    return new Response(body, { status: answer.status, headers: answer.headers });
  };
}

const parts = (chat, type) => chat.messages.at(-1).parts.filter((part) => part.type === type);
const textOf = (chat) => parts(chat, "text").map((part) => part.text).join(" ");
const calls = (chat) => parts(chat, "dynamic-tool").map((part) => `${part.toolName} ${part.state}`);
const settled = async (chat) => {
  for (;;) {
    await new Promise((next) => setTimeout(next, 20));
    if (chat.status === "ready" || chat.status === "error") return;
  }
};

async function text() {
  const chat = open("text");
  await chat.sendMessage({ text: "hi" });
  await chat.sendMessage({ text: "again" });
  assert.deepEqual(chat.messages.map((message) => message.role), ["user", "assistant", "user", "assistant"]);
  assert.equal(textOf(chat), "You wrote: again");
  await chat.regenerate();
  assert.equal(textOf(chat), "You wrote: again");
  assert.equal(chat.status, "ready");
}

async function approval(approved) {
  const chat = open(`approval ${approved}`);
  await chat.sendMessage({ text: "my order is lost" });
  assert.deepEqual(calls(chat), ["look_up output-available", "refund approval-requested"]);
  const { approval: asked, input } = parts(chat, "dynamic-tool").at(-1);
  assert.deepEqual(input, { order: "7" });
  await chat.addToolApprovalResponse({ id: asked.id, approved, reason: "a good reason" });
  await settled(chat);
  assert.equal(chat.error, undefined);
  assert.equal(chat.messages.length, 2);
  assert.deepEqual(calls(chat), ["look_up output-available", `refund output-${approved ? "available" : "denied"}`]);
  assert.equal(textOf(chat), `One moment. Done: ${approved ? "paid back" : "denied"}.`);
}

async function resume() {
  const chat = open("resume", cutAfter("look_up"));
  await chat.sendMessage({ text: "my order is lost" });
  assert.equal(chat.status, "error");
  assert.deepEqual(calls(chat), []);
  await chat.resumeStream();
  assert.equal(chat.status, "ready");
  assert.equal(chat.messages.length, 2);
  assert.deepEqual(calls(chat), ["look_up output-available", "refund approval-requested"]);
  assert.equal(textOf(chat), "One moment.");
  const reloaded = open("resume");
  await reloaded.resumeStream();
  assert.deepEqual(calls(reloaded), calls(chat));
  await reloaded.addToolApprovalResponse({ id: parts(reloaded, "dynamic-tool").at(-1).approval.id, approved: true });
  await settled(reloaded);
  assert.equal(textOf(reloaded), "One moment. Done: paid back.");
}

async function nothing() {
  const chat = open("never begun");
  await chat.resumeStream();
  assert.equal(chat.status, "ready");
  assert.deepEqual(chat.messages, []);
}

async function refused() {
  const chat = new Chat({ id: "refused", transport: new DefaultChatTransport({ api, body: { agent: "none" } }) });
  await chat.sendMessage({ text: "hi" });
  assert.equal(JSON.parse(chat.error.message).code, "agent_not_found");
}

for (const [name, check] of Object.entries({
  text,
  approve: () => approval(true),
  deny: () => approval(false),
  resume,
  nothing,
  refused,
})) {
  await check();
  console.log(`ai: ${name}`);
}
