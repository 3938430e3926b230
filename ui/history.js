// The past: from the store if the daemon has one, otherwise from what this page has seen.

import { ask, Refused } from "./answers.js";
import { h, lines } from "./dom.js";
import { grouped, perSecondBetween } from "./figures.js";
import { losses, place, totals } from "./ledger.js";

/** @typedef {import("./ledger.js").Ledger} Ledger */

/** Of the last minute, at one per second. */
const RECENT = 60;
/** Of what is older, one in this many is kept: more than a chart has room for would be memory alone. */
const KEPT = 10;
/** Two looks that are further apart leave a gap. */
export const UNSEEN_MS = 3_000 * KEPT;
/** Together a quarter of an hour. */
const SEEN_MAX = RECENT + 840 / KEPT;

/**
 * What this page has seen, oldest first: everything of the last minute, and less of what was before, so that a page that stays open
 * stays small.
 * @template T
 */
export class Seen {
  /** @type {T[]} */
  all = [];
  #count = 0;

  /** @param {T} one */
  keep(one) {
    this.all.push(one);
    this.#count += 1;
    const older = this.all.length - RECENT - 1;
    if (older >= 0 && this.#count % KEPT > 0 && !this.isNeeded(older)) this.all.splice(older, 1);
    if (this.all.length > SEEN_MAX) this.all.shift();
  }

  /** Whether this one must be kept. @param {number} _at */
  isNeeded(_at) {
    return false;
  }
}

/**
 * @typedef {object} Look
 * @property {number} timeMs
 * @property {string} runId
 * @property {number} uptimeMs
 * @property {{arrived: bigint, sent: bigint, stored: bigint, lost: bigint}} totals
 * @property {Map<string, bigint>} losses Keyed by place and way.
 * @property {Map<string, bigint>} ends Closed connections by how they ended.
 */

/** @typedef {{timeMs: number, arrived: number | null, sent: number | null, stored: number | null, lost: number | null}} Rates */

/** The latest snapshots of the ledger. @extends {Seen<Look>} */
export class Looks extends Seen {
  /** @param {Ledger} ledger */
  add(ledger) {
    this.keep({
      timeMs: ledger.takenAtMs,
      runId: ledger.runId,
      uptimeMs: ledger.uptimeMs,
      totals: totals(ledger),
      losses: new Map(losses(ledger).map(({ hop, loss }) => [`${loss.way} at ${hop.kind} of ${place(hop)}`, loss.amount.count])),
      ends: ends(ledger),
    });
  }

  /** @param {number} ms */
  within(ms) {
    const last = this.all.at(-1)?.timeMs ?? 0;
    return this.all.filter((look) => look.timeMs >= last - ms);
  }

  /**
   * The last one before a restart has counts that no later one has.
   * @override
   * @param {number} at
   */
  isNeeded(at) {
    return this.all[at]?.runId !== this.all[at + 1]?.runId;
  }

  /**
   * Rates between consecutive snapshots; `null` across a restart of the daemon.
   * @param {number} ms
   * @returns {Rates[]}
   */
  rates(ms) {
    return pairs(this.within(ms)).map(([before, now]) => {
      // While the page was hidden nothing was seen: a line across would be made up.
      const isSeen = before.runId === now.runId && now.timeMs - before.timeMs < UNSEEN_MS;
      const elapsed = isSeen ? (now.uptimeMs - before.uptimeMs) / 1000 : 0;
      /** @param {keyof Look["totals"]} name */
      const rate = (name) => (elapsed > 0 ? perSecondBetween(before.totals[name], now.totals[name], elapsed) : null);
      return { timeMs: now.timeMs, arrived: rate("arrived"), sent: rate("sent"), stored: rate("stored"), lost: rate("lost") };
    });
  }

  /**
   * Losses in a range, by place and way. After a restart, counts start from 0.
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

  /** The time since which the daemon is known to run, and up to which a history of it is complete. */
  ran() {
    const last = this.all.at(-1);
    return { fromMs: last ? last.timeMs - last.uptimeMs : Infinity, toMs: last ? last.timeMs - STORE_DELAY_MS : 0 };
  }

  /** How long this page has been watching. */
  spanMs() {
    return (this.all.at(-1)?.timeMs ?? 0) - (this.all[0]?.timeMs ?? 0);
  }
}

/**
 * The points of a history that keeps none where nothing happened: zeros where the daemon ran, which is known since the start of its
 * run, and a gap where it is not known.
 * @template {{timeMs: number}} Point
 * @param {Point[]} points In the order of time.
 * @param {number} widthMs The time that each stands for.
 * @param {{fromMs: number, toMs: number}} ran
 * @param {(timeMs: number, value: 0 | null) => Point} made
 * @returns {Point[]}
 */
export function whole(points, widthMs, { fromMs, toMs }, made) {
  /** @type {Point[]} */
  const all = [];
  for (const [at, point] of points.entries()) {
    all.push(point);
    const nextMs = points[at + 1]?.timeMs ?? toMs;
    let missingMs = point.timeMs + widthMs;
    if (missingMs + widthMs > nextMs + 1) continue;
    if (missingMs < fromMs) {
      all.push(made(missingMs, null));
      missingMs += Math.ceil((fromMs - missingMs) / widthMs) * widthMs;
    }
    for (; widthMs > 0 && missingMs + widthMs <= nextMs + 1; missingMs += widthMs) all.push(made(missingMs, 0));
  }
  return all;
}

/** @param {Ledger} ledger Closed connections by how they ended. */
export function ends(ledger) {
  const events = ledger.hops.find((hop) => hop.kind === "close")?.events ?? new Map();
  return new Map([...events].filter(([name]) => name.startsWith(ENDED)).map(([name, count]) => [name.slice(ENDED.length), count]));
}

const ENDED = "ended_";

/** @template T @param {T[]} all @returns {[T, T][]} */
export const pairs = (all) => all.slice(1).map((now, at) => [/** @type {T} */ (all[at]), now]);

/**
 * @typedef {object} Answer The store's answer to a query. Whole numbers beyond 2^53 are strings.
 * @property {{name: string, unit?: string | null}[]} columns
 * @property {unknown[][]} rows
 * @property {number} row_count
 * @property {number} elapsed_ms
 * @property {boolean} truncated
 */

/** The path of a named query. @param {string} name @param {Record<string, string>} parameters */
export const namedPath = (name, parameters) => `/query/${encodeURIComponent(name)}?${new URLSearchParams(parameters)}`;

/** The path of an SQL query. @param {string} sql @param {Record<string, string>} [more] */
export const sqlPath = (sql, more = {}) => `/query?${new URLSearchParams({ sql, ...more })}`;

/**
 * The store's answer; `null` if this daemon keeps no history.
 * @param {string} path
 * @param {AbortSignal} signal
 * @returns {Promise<Answer | null>}
 */
export async function askStore(path, signal) {
  try {
    return await ask(path, { signal, timeoutMs: STORE_TIMEOUT_MS });
  } catch (error) {
    if (error instanceof Refused && error.status === 404) return null;
    throw error;
  }
}

/** How far a history may be behind. */
const STORE_DELAY_MS = 30_000;
const STORE_TIMEOUT_MS = 12_000;
/** Time between two queries for a range. */
export const STORE_EVERY_MS = 10_000;

/**
 * The rows as objects, keyed by column name.
 * @param {Answer} answer
 * @returns {Record<string, any>[]}
 */
export const records = (answer) =>
  answer.rows.map((row) => Object.fromEntries(answer.columns.map(({ name }, at) => [name, row[at]])));

/**
 * What an answer lacks, in words, if it ends at a limit.
 * @param {Answer | null} answer
 * @param {number} [limit]
 */
export const missing = (answer, limit = Infinity) =>
  answer && (answer.truncated || answer.row_count >= limit) ? `The answer ends after ${grouped(answer.row_count)} rows; there may be more.` : "";

/** @param {string | number | bigint} ns Nanoseconds since 1970. */
export const milliseconds = (ns) => Number(BigInt(ns) / 1_000_000n);

/** Says that there is no history, and how to turn it on. */
export function noHistory() {
  return h("div", { class: "no-history" },
    h("p", null, "This daemon keeps no history, so that only what this page has seen itself can be shown. With these lines in its configuration it keeps one:"),
    h("pre", null, lines(HISTORY_LINES)));
}

const HISTORY_LINES = '[[sink]]\nname = "history"\nfrom = ["sockets"]\nto = "store:/var/lib/weir/history"';
