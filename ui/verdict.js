// The verdict in words: is anything being lost, what was the largest loss, and what helps.

import { h } from "./dom.js";
import { grouped, lasting, perSecond, perSecondBetween, plural } from "./figures.js";
import { isBalanced, lostAt, losses, place } from "./ledger.js";

/**
 * @typedef {import("./ledger.js").Ledger} Ledger
 * @typedef {import("./ledger.js").Hop} Hop
 */

/**
 * Rates of a hop between two snapshots; `null` if they cannot be compared.
 * @param {Ledger | null} before
 * @param {Ledger} now
 * @returns {(hop: Hop) => {received: number | null, delivered: number | null, lost: number | null}}
 */
export function rates(before, now) {
  const elapsed = before && before.runId === now.runId ? (now.uptimeMs - before.uptimeMs) / 1000 : 0;
  const earlier = new Map(elapsed > 0 ? before?.hops.map((hop) => [hop.key, hop]) : []);
  return (hop) => {
    const old = earlier.get(hop.key);
    if (!old) return { received: null, delivered: null, lost: null };
    return {
      received: perSecondBetween(old.received.count, hop.received.count, elapsed),
      delivered: perSecondBetween(old.delivered.count, hop.delivered.count, elapsed),
      lost: perSecondBetween(lostAt(old), lostAt(hop), elapsed),
    };
  };
}

/** A hop's state, in the words of `weir top`. @param {Hop} hop @param {number | null} lostPerSecond @param {number | null} deliveredPerSecond */
export function state(hop, lostPerSecond, deliveredPerSecond) {
  const isUp = hop.gauges.get("up") !== 0n && hop.gauges.get("circuit_open") !== 1n;
  if (!isUp && hop.inFlight.count > 0n && deliveredPerSecond === 0) return "STUCK";
  if (!isUp) return hop.kind === "target" && lostPerSecond === 0 && (deliveredPerSecond ?? 0) > 0 ? "was down" : "DOWN";
  if ((lostPerSecond ?? 0) > 0) return "LOSING";
  if (hop.trouble || hop.unaccounted !== 0n) return "trouble";
  return lostAt(hop) > 0n ? "lost" : "ok";
}

/**
 * @param {Ledger} ledger
 * @param {Ledger | null} before
 */
export function verdict(ledger, before) {
  const rateOf = rates(before, ledger);
  const now = ledger.hops.filter((hop) => hop.kind !== "member").reduce((sum, hop) => sum + (rateOf(hop).lost ?? 0), 0);
  const all = losses(ledger);
  const total = all.reduce((sum, { loss }) => sum + loss.amount.count, 0n);
  const intended = ledger.hops.some((hop) => hop.losses.some((loss) => loss.intended));
  const largest = all[0];

  // A single snapshot says nothing about the present.
  const isCompared = before?.runId === ledger.runId;
  const headline = now > 0
    ? ["Losing ", h("strong", null, perSecond(now)), " now."]
    : total > 0n ? [isCompared && "Nothing is being lost now."] : ["Nothing lost", intended ? ", apart from what your settings drop." : "."];
  const mark = now > 0 ? "✕" : total > 0n ? "!" : "✓";
  return {
    level: now > 0 ? "bad" : total > 0n ? "warn" : "good",
    total,
    parts: [
      h("p", { class: "headline" }, h("span", { class: "mark", "aria-hidden": "true" }, mark), headline,
        total > 0n && [" ", h("b", { id: "lost-total" }, grouped(total)), ` lost since the daemon started, ${lasting(ledger.uptimeMs)} ago.`]),
      largest && h("p", { class: "largest" }, "Largest loss: ", h("b", null, grouped(largest.loss.amount.count)),
        ` at ${largest.hop.kind} of ${place(largest.hop)}: `, h("code", null, largest.loss.way), `, ${largest.loss.cause}.`),
      largest && h("p", { class: "advice" }, h("b", null, "Fix: "), largest.loss.advice, "."),
      balance(ledger),
    ],
  };
}

/** What is known before the first answer, and when there is none. @param {string} [why] */
export const unknown = (why) => h("p", { class: "headline" }, h("span", { class: "mark", "aria-hidden": "true" }, "?"),
  why ? `Unknown: ${why}.` : "Asking the daemon …");

/** @param {Ledger} ledger */
function balance(ledger) {
  const inside = ledger.hops.filter((hop) => hop.kind !== "member").reduce((sum, hop) => sum + hop.inFlight.count, 0n);
  if (isBalanced(ledger)) {
    return h("p", { class: "law" }, `Everything is accounted for: received = delivered + lost + in flight at all ${ledger.hops.length} hops, with `,
      h("span", { id: "in-flight" }, grouped(inside)), " in flight.");
  }
  return h("p", { class: "law bad" }, `The ledger did not balance ${plural(ledger.violations, "time", "times")}: a defect of Weir. Please report it.`);
}
