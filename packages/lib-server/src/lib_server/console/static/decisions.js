// Decisions of people about calls: approved or denied, and what became of one of unknown outcome.

import { get, part, post } from "./api.js";
import { confirm } from "./dialog.js";
import { button, h } from "./html.js";
import { announce, failure } from "./state.js";
import { visible } from "./text.js";

const address = (call, list) => `runs/${part(call.runId)}/${list}/${part(call.key)}`;

// The digest of the arguments that are shown: a decision is about these, and about no others.
async function digestOf(call) {
  if (call.digest) return call.digest;
  const { approvals } = await get(`runs/${part(call.runId)}/approvals`);
  const found = approvals.find((each) => each.key === call.key);
  if (!found || JSON.stringify(found.arguments) !== JSON.stringify(call.args)) {
    throw Object.assign(new Error("Load the page again: the call is not the one that is shown."), { status: 409, title: "The call has changed" });
  }
  return found.arguments_digest;
}

async function decide(call, decision) {
  const approves = decision === "approve";
  const answer = await confirm({
    title: `${approves ? "Approve" : "Deny"} ${visible(call.name)}?`,
    detail: approves ? "It is called with the arguments that are shown." : "It is not called, and the agent goes on without it.",
    field: "Reason, which the model reads",
    yes: approves ? "Approve" : "Deny",
    danger: !approves,
  });
  if (!answer) return false;
  await post(address(call, "approvals"), { decision, arguments_digest: await digestOf(call), comment: answer.text });
  announce(approves ? "Approved" : "Denied");
  return true;
}

const parsed = (text) => {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
};

async function settle(call, happened) {
  const answer = await confirm({
    title: `${happened ? "It happened" : "It did not happen"}: ${visible(call.name)}?`,
    detail: "This goes on record with your name.",
    field: happened ? "What it returned, if that is known" : "",
    yes: happened ? "It happened" : "It did not happen",
    danger: !happened,
  });
  if (!answer) return false;
  const text = answer.text.trim();
  await post(address(call, "unknown-calls"), { happened, ...(happened && text ? { result: parsed(text) } : {}) });
  announce(happened ? "Put on record: it happened" : "Put on record: it did not happen");
  return true;
}

const CHOICES = {
  approval: [["approve", "Approve", "primary", (call) => decide(call, "approve")], ["deny", "Deny", "danger", (call) => decide(call, "deny")]],
  unknown: [["happened", "Happened", "", (call) => settle(call, true)], ["not-happened", "Did not happen", "", (call) => settle(call, false)]],
};

// The buttons for a decision about a call { runId, key, name, args, digest? }: kind is "approval" or
// "unknown". `done()` is called after it, and `box` takes the problem if there is one.
export function decisions(kind, call, { done = () => {}, box }) {
  const buttons = CHOICES[kind].map(([act, words, look, carryOut]) =>
    button(words, async () => {
      box.replaceChildren();
      try {
        if (await carryOut(call)) done();
      } catch (problem) {
        if (problem.status === undefined) throw problem;
        box.append(failure(problem));
        if (problem.status === 409) done(problem);
      }
    }, { class: look, "data-act": act, "aria-label": `${words}: ${call.name}` }));
  return buttons;
}

// What a conversation of a run offers about its calls: the buttons, and a place for what goes wrong.
export const offers = (runId) => (kind, { key, name, args }) => {
  const box = h("div");
  return [box, h("div.actions", {}, decisions(kind, { runId, key, name, args }, { box }))];
};
