// What needs a person, read again and again: for the inbox, and for the number in the navigation.

import { get } from "./api.js";

const APPROVALS_MS = 4000;
const REST_MS = 30000; // calls of unknown outcome are found in the logs of all runs
const FAILED_S = 3600;
const MOST = 200;

export class Needs {
  approvals = [];
  unknown = [];
  failed = [];
  problem = null;
  checkedAt = null;
  #changed = new Set();
  #again = new AbortController();
  #restAt = 0;
  #reading = null;

  // Calls `act()` after each reading, until the signal.
  listen(act, signal) {
    this.#changed.add(act);
    signal.addEventListener("abort", () => this.#changed.delete(act), { once: true });
  }

  get count() {
    return this.approvals.length + this.unknown.length;
  }

  start() {
    this.stop();
    this.#again = new AbortController();
    this.#restAt = 0;
    this.#run(this.#again.signal);
  }

  stop() {
    this.#again.abort();
    Object.assign(this, { approvals: [], unknown: [], failed: [], checkedAt: null, problem: null });
  }

  // Reads all of it now; a reading under way may have begun before what has changed.
  async refresh() {
    await this.#reading;
    this.#restAt = 0;
    await this.#read(this.#again.signal);
  }

  async #run(signal) {
    while (!signal.aborted) {
      if (!document.hidden) await this.#read(signal);
      await new Promise((resolve) => {
        window.setTimeout(resolve, APPROVALS_MS);
      });
    }
  }

  #read(signal) {
    this.#reading ??= this.#readOnce(signal).finally(() => { this.#reading = null; });
    return this.#reading;
  }

  async #readOnce(signal) {
    try {
      const all = Date.now() >= this.#restAt;
      const approvals = await get("approvals", { limit: MOST }, signal);
      const unknown = all ? (await get("unknown-calls", { limit: MOST }, signal)).calls : this.unknown;
      const failed = all ? await this.#readFailed(signal) : this.failed;
      if (signal.aborted) return;
      Object.assign(this, { approvals: approvals.approvals, unknown, failed, problem: null, checkedAt: new Date() });
      if (all) this.#restAt = Date.now() + REST_MS;
    } catch (problem) {
      if (signal.aborted || problem.name === "AbortError") return;
      if (problem.status === undefined) throw problem;
      this.problem = problem;
    }
    for (const act of this.#changed) act();
  }

  async #readFailed(signal) {
    const since = new Date(Date.now() - 24 * FAILED_S * 1000).toISOString();
    const { runs } = await get("runs", { outcome: "FAILED", since, limit: MOST }, signal);
    return runs.filter((run) => Date.now() - new Date(run.updated_at) < FAILED_S * 1000);
  }
}
