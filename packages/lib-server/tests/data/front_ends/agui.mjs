// A program of AG-UI's own client against a server: node agui.mjs URL
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { HttpAgent, buildResumeArray } from "@ag-ui/client";

const url = `${process.argv[2]}/agui/shop`;
console.error = () => {};  // the client writes what it throws

function open(threadId, options) {
  return new HttpAgent({ url, threadId, ...options });
}

function ask(agent, content, parameters) {
  agent.addMessage({ id: randomUUID(), role: "user", content });
  return agent.runAgent(parameters);
}

async function errorOf(agent, work) {
  const codes = [];
  const { unsubscribe } = agent.subscribe({ onRunErrorEvent: ({ event }) => { codes.push(event.code); } });
  await work();
  unsubscribe();
  return codes;
}

const roles = (agent) => agent.messages.map((message) => message.role);
const textOf = (agent) => agent.messages.filter((message) => message.role === "assistant")
  .map((message) => message.content).filter(Boolean).join(" ");
const calls = (agent) => agent.messages.flatMap((message) => message.toolCalls ?? [])
  .map((call) => `${call.function.name} ${call.function.arguments}`);
const results = (agent) => agent.messages.filter((message) => message.role === "tool")
  .map((message) => message.content);
const answering = (agent, response) => ({
  resume: buildResumeArray(
    agent.pendingInterrupts,
    Object.fromEntries(agent.pendingInterrupts.map((each) => [each.id, response])),
  ),
});

async function text() {
  const agent = open("text");
  const { newMessages } = await ask(agent, "hi");
  assert.deepEqual(newMessages.map((message) => message.role), ["assistant"]);
  await ask(agent, [{ type: "text", text: "again" }]);
  assert.deepEqual(roles(agent), ["user", "assistant", "user", "assistant"]);
  assert.equal(textOf(agent), "You wrote: hi You wrote: again");
}

async function approval(response, done) {
  const agent = open(`approval ${JSON.stringify(response)}`);
  await ask(agent, "my order is lost");
  assert.deepEqual(calls(agent), ['look_up {"order": "7"}', 'refund {"order": "7"}']);
  assert.deepEqual(results(agent), ["order 7 was lost"]);
  const [interrupt] = agent.pendingInterrupts;
  assert.equal(interrupt.reason, "tool_call");
  assert.deepEqual(interrupt.responseSchema.required, ["approved"]);
  const other = open(agent.threadId);
  assert.deepEqual(await errorOf(other, () => ask(other, "hello?")), ["run_open"]);
  const parameters = answering(agent, response);
  await agent.runAgent(parameters);
  assert.deepEqual(agent.pendingInterrupts, []);
  assert.equal(calls(agent).length, 2);
  assert.equal(results(agent).length, 2);
  assert.equal(textOf(agent), `One moment. Done: ${done}.`);
  const replayed = open(agent.threadId);
  await replayed.runAgent(parameters);
  assert.equal(textOf(replayed), `Done: ${done}.`);
}

async function reconnect() {
  const agent = open("reconnect");
  await ask(agent, "hi");
  let failed = false;
  const cut = async (...request) => {  // loses the connection once the answer names a tool
    const answer = await fetch(...request);
    const reader = answer.body.getReader();
    let seen = "";
    const body = new ReadableStream({
      async pull(controller) {
        const { done, value } = await reader.read();
        if (done) return controller.close();
        seen += new TextDecoder().decode(value);
        if (!seen.includes("look_up")) return controller.enqueue(value);
        failed = true;
        await reader.cancel();
        controller.close();
      },
    });
    return new Response(body, { status: answer.status, headers: answer.headers });
  };
  agent.fetch = cut;
  await ask(agent, "my order is lost").catch(() => {});
  assert.ok(failed);
  assert.deepEqual(agent.pendingInterrupts, []);
  agent.fetch = fetch;
  for (const page of [agent, open("reconnect")]) {
    await page.runAgent();
    assert.deepEqual(page.messages.slice(0, 4).map((message) => message.role),
      ["user", "assistant", "user", "assistant"]);
    assert.equal(textOf(page), "You wrote: hi One moment.");
    assert.equal(calls(page).length, 2);
    assert.equal(page.pendingInterrupts.length, 1);
  }
  const loaded = open("reconnect");
  await loaded.runAgent();
  await loaded.runAgent(answering(loaded, { status: "resolved", payload: { approved: true } }));
  assert.equal(textOf(loaded), "You wrote: hi One moment. Done: paid back.");
  const after = open("reconnect");
  await after.runAgent();
  assert.equal(textOf(after), textOf(loaded));
  assert.deepEqual(results(after), ["order 7 was lost", "paid back 7"]);
}

async function repeated() {
  const runs = [];
  for (const agent of [open("repeated"), open("repeated")]) {
    await ask(agent, "hi", { runId: "the same" });
    runs.push(agent.messages.at(-1));
  }
  assert.deepEqual(runs[0], runs[1]);
}

async function nothing() {
  const agent = open("never begun");
  const { newMessages } = await agent.runAgent();
  assert.deepEqual(newMessages, []);
}

async function refused() {
  const stranger = new HttpAgent({ url: url.replace("shop", "none"), threadId: "refused" });
  await assert.rejects(ask(stranger, "hi"), /agent_not_found/);
  const tools = [{ name: "look_up", description: "", parameters: {} }];
  await assert.rejects(ask(open("refused"), "hi", { tools }), /look_up/);
}

async function pageTools() {
  const colour = { type: "object", properties: { colour: { type: "string" } } };
  const tools = [{ name: "paint", description: "Paint the page.", parameters: colour }];
  const agent = open("page tools");
  await ask(agent, "paint it", { tools });
  const [call] = agent.messages.at(-1).toolCalls;
  assert.equal(call.function.name, "paint");
  const { colour: wanted } = JSON.parse(call.function.arguments);
  agent.addMessage({ id: randomUUID(), role: "tool", toolCallId: call.id, content: `painted ${wanted}` });
  await agent.runAgent({ tools });
  assert.deepEqual(results(agent), ["painted red"]);
  assert.equal(textOf(agent), "It is painted red.");
  await agent.runAgent({ tools });
  assert.equal(textOf(agent), "It is painted red.");
}

const yes = { status: "resolved", payload: { approved: true, reason: "a good reason" } };
for (const [name, check] of Object.entries({
  text,
  approve: () => approval(yes, "paid back"),
  deny: () => approval({ status: "resolved", payload: { approved: false } }, "denied"),
  cancel: () => approval({ status: "cancelled" }, "denied"),
  reconnect,
  repeated,
  nothing,
  refused,
  pageTools,
})) {
  await check();
  console.log(`ag-ui: ${name}`);
}
