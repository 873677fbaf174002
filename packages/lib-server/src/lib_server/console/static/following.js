// A run that is followed: its events go to the parts of a view, its state to its head.

import { get, part } from "./api.js";
import { failure } from "./state.js";
import { follow } from "./stream.js";

const LIVE_AFTER_MS = 300; // what comes later than this after the stream has opened is new
const AGAIN_MS = 300;

// Follows a run until its end. `parts` have apply(event) and reset(); `piece` takes pieces of replies.
// A run that is `awaited` may begin in a moment only.
export async function followRun(id, { parts, piece, changed, live, dot, box, signal, awaited = false }) {
  const path = `runs/${part(id)}/events`;
  let timer;
  try {
    await follow(path, {
      signal,
      message({ name, data }) {
        if (name === "reply.delta") piece(data);
        else if (data.kind) {
          for (const each of parts) each.apply(data);
          changed(data);
        }
      },
      state(word, problem) {
        dot.set(word);
        if (word === "live") timer = window.setTimeout(live, LIVE_AFTER_MS);
        dot.element.title = word === "away" && problem ? problem.message : dot.element.title;
      },
      reset() {
        for (const each of parts) each.reset();
      },
    });
  } catch (problem) {
    if (awaited && problem.status === 404 && !signal.aborted) {
      await new Promise((resolve) => {
        window.setTimeout(resolve, AGAIN_MS);
      });
      await followRun(id, { parts, piece, changed, live, dot, box, signal, awaited });
      return;
    }
    dot.set("away");
    if (problem.status === undefined) throw problem;
    if (!signal.aborted) box.prepend(failure(problem));
  } finally {
    window.clearTimeout(timer);
  }
}

export const readRun = (id, signal) => get(`runs/${part(id)}`, {}, signal);
