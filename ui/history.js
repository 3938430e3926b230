// What happened before: from the store where the daemon has one, else from what this page has seen itself.

import { ask, Refused } from "./answers.js";
import { losses, place, totals } from "./ledger.js";

/** @typedef {import("./ledger.js").Ledger} Ledger */

/** What this page keeps of its own looks: a quarter of an hour at one a second. */
export const LOOKS_MAX = 900;

/**
 * @typedef {object} Look
 * @property {number} timeMs
 * @property {string} runId
 * @property {number} uptimeMs
 * @property {{arrived: bigint, sent: bigint, stored: bigint, lost: bigint}} totals
 * @property {Map<string, bigint>} losses By place and way.
 */

/** @typedef {{timeMs: number, arrived: number | null, sent: number | null, stored: number | null, lost: number | null}} Rates */

/** The last looks at the ledger, the newest last. */
export class Looks {
  /** @type {Look[]} */
  all = [];

  /** @param {Ledger} ledger */
  add(ledger) {
    this.all.push({
      timeMs: ledger.takenAtMs,
      runId: ledger.runId,
      uptimeMs: ledger.uptimeMs,
      totals: totals(ledger),
      losses: new Map(losses(ledger).map(({ hop, loss }) => [`${loss.way} at ${hop.kind} of ${place(hop)}`, loss.amount.count])),
    });
    if (this.all.length > LOOKS_MAX) this.all.shift();
  }

  /** @param {number} ms */
  within(ms) {
    const last = this.all.at(-1)?.timeMs ?? 0;
    return this.all.filter((look) => look.timeMs >= last - ms);
  }

  /**
   * Rates between each look and the one before. Between two lives of the daemon there is none.
   * @param {number} ms
   * @returns {Rates[]}
   */
  rates(ms) {
    return pairs(this.within(ms)).map(([before, now]) => {
      const elapsed = before.runId === now.runId ? (now.uptimeMs - before.uptimeMs) / 1000 : 0;
      /** @param {keyof Look["totals"]} name */
      const rate = (name) => (elapsed > 0 ? Number(now.totals[name] - before.totals[name]) / elapsed : null);
      return { timeMs: now.timeMs, arrived: rate("arrived"), sent: rate("sent"), stored: rate("stored"), lost: rate("lost") };
    });
  }

  /**
   * What was lost in a range, by place and way. A life that began within it counts from its beginning.
   * @param {number} ms
   */
  lost(ms) {
    /** @type {Map<string, bigint>} */
    const sums = new Map();
    for (const [before, now] of pairs(this.within(ms))) {
      for (const [where, count] of now.losses) {
        const earlier = before.runId === now.runId ? (before.losses.get(where) ?? 0n) : 0n;
        if (count > earlier) sums.set(where, (sums.get(where) ?? 0n) + count - earlier);
      }
    }
    return [...sums].sort(([, a], [, b]) => (a < b ? 1 : -1));
  }

  /** How long this page has looked. */
  spanMs() {
    return (this.all.at(-1)?.timeMs ?? 0) - (this.all[0]?.timeMs ?? 0);
  }
}

/** @template T @param {T[]} all @returns {[T, T][]} */
const pairs = (all) => all.slice(1).map((now, at) => [/** @type {T} */ (all[at]), now]);

/**
 * @typedef {object} Answer
 * @property {{name: string, unit?: string | null}[]} columns
 * @property {unknown[][]} rows
 * @property {number} row_count
 * @property {number} elapsed_ms
 * @property {boolean} truncated
 */

/** Where a named query is asked. @param {string} name @param {Record<string, string>} parameters */
export const queryPath = (name, parameters) => `/query/${encodeURIComponent(name)}?${new URLSearchParams(parameters)}`;

/**
 * The answer of a named query; `null` if this daemon keeps no history, or its store does not know the query.
 * @param {string} name
 * @param {Record<string, string>} parameters
 * @param {AbortSignal} signal
 * @returns {Promise<Answer | null>}
 */
export async function query(name, parameters, signal) {
  try {
    return await ask(queryPath(name, parameters), { signal, timeoutMs: 10_000 });
  } catch (error) {
    if (error instanceof Refused && error.status === 404) return null;
    throw error;
  }
}

/**
 * The values of a column, by the first of these names that it has.
 * @param {Answer} answer
 * @param {...string} names
 */
export function column(answer, ...names) {
  const at = names.map((name) => answer.columns.findIndex((column) => column.name === name)).find((at) => at >= 0);
  return at === undefined ? null : answer.rows.map((row) => row[at]);
}

/** What turns a history on. */
export const HISTORY_LINES = '[[sink]]\nname = "history"\nfrom = ["sockets"]\nto = "store:/var/lib/weir/store"';
