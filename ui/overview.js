// The first page: is anything lost, where, why, and what helps.

import { RANGES } from "./address.js";
import { drawChart } from "./chart.js";
import { fill, h, panel, replace } from "./dom.js";
import { grouped, lasting, perSecond, share, short } from "./figures.js";
import { KINDS } from "./ledger.js";
import { drawStreams } from "./stream.js";
import { replaceTable, table } from "./table.js";
import { rates, state, verdict } from "./verdict.js";

/**
 * @typedef {import("./ledger.js").Ledger} Ledger
 * @typedef {import("./ledger.js").Hop} Hop
 * @typedef {import("./main.js").Context} Context
 */

export const title = "Overview";

const LEDGER_LINKS = /** @type {[string, string][]} */ ([["JSON", "/ledger"], ["text", "/ledger?format=text"]]);

/** @param {Element} root @param {Context} context */
export function start(root, context) {
  const panels = {
    verdict: panel({ id: "verdict", title: "Am I losing anything?", links: LEDGER_LINKS, className: "wide" }),
    stream: panel({ id: "stream", title: "Where does it go, and where is it lost?", links: LEDGER_LINKS, className: "wide" }),
    rates: panel({ id: "rates", title: "Is the rate normal?", links: LEDGER_LINKS }),
    lost: panel({ id: "lost", title: "When was something lost?", links: LEDGER_LINKS }),
    ledger: panel({ id: "ledger", title: "What does every hop count?", links: LEDGER_LINKS, className: "wide" }),
  };
  fill(root, h("div", { class: "panels" }, Object.values(panels).map((one) => one.root)));

  const stop = context.onLedger((ledger, before) => {
    const rangeMs = (RANGES.get(context.address.range) ?? 900) * 1000;
    panels.verdict.show(() => showVerdict(panels.verdict, ledger, before, context, rangeMs));
    panels.stream.show(() => drawStreams(panels.stream.body, ledger));
    panels.rates.show(() => showRates(panels.rates.body, context, rangeMs));
    panels.lost.show(() => showLost(panels.lost.body, context, rangeMs));
    panels.ledger.show(() => showTable(panels.ledger.body, ledger, before));
  });
  return () => {
    stop();
    for (const one of Object.values(panels)) one.stop();
  };
}

/**
 * @param {ReturnType<typeof panel>} into
 * @param {Ledger} ledger
 * @param {Ledger | null} before
 * @param {Context} context
 * @param {number} rangeMs
 */
function showVerdict({ root, body }, ledger, before, context, rangeMs) {
  const { level, parts } = verdict(ledger, before);
  root.dataset["level"] = level;
  const seen = Math.min(context.looks.spanMs(), rangeMs);
  const lost = context.looks.lost(rangeMs);
  const inRange = lost.length === 0
    ? `In the ${lasting(seen)} that this page has watched, nothing was lost.`
    : `In the ${lasting(seen)} that this page has watched, lost: ${lost.slice(0, 3).map(([where, count]) => `${grouped(count)} ${where}`).join("; ")}.`;
  replace(body, parts, h("p", { class: "range" }, inRange), troubles(ledger));
}

/** @param {Ledger} ledger */
function troubles(ledger) {
  const all = ledger.hops.filter((hop) => hop.trouble);
  if (all.length === 0) return null;
  return h("ul", { class: "troubles" }, all.map((hop) =>
    h("li", null, h("b", null, hop.target || hop.origin), ": ", hop.trouble?.what, ". ", h("b", null, "Fix: "), hop.trouble?.fix, ".")));
}

/** @param {Element} body @param {Context} context @param {number} rangeMs */
function showRates(body, context, rangeMs) {
  const looks = context.looks.rates(rangeMs);
  const [from, to] = span(context, rangeMs);
  const last = looks.at(-1);
  const words = h("p", { class: "now" }, "Now ", h("b", null, perSecond(last?.arrived ?? null)), " datagrams arrive, ",
    h("b", null, perSecond(last?.sent ?? null)), " are handed to targets, and sinks take ", h("b", null, perSecond(last?.stored ?? null)), " records.");
  const drawing = h("div", null);
  replace(body, words, drawing);
  drawChart(drawing, {
    title: "Datagrams that arrived and that were handed to targets, and records that sinks took, per second",
    unit: short, fromMs: from, toMs: to,
    series: [
      { name: "arrived", className: "first", points: looks.map(({ timeMs, arrived }) => ({ timeMs, value: arrived })) },
      { name: "handed to targets", className: "second", points: looks.map(({ timeMs, sent }) => ({ timeMs, value: sent })) },
      { name: "taken by sinks", className: "third", points: looks.map(({ timeMs, stored }) => ({ timeMs, value: stored })) },
    ],
  });
}

/** @param {Element} body @param {Context} context @param {number} rangeMs */
function showLost(body, context, rangeMs) {
  const looks = context.looks.rates(rangeMs);
  const [from, to] = span(context, rangeMs);
  const drawing = h("div", null);
  replace(body, h("p", { class: "now" }, "Now ", h("b", null, perSecond(looks.at(-1)?.lost ?? null)), " are lost."), drawing);
  drawChart(drawing, {
    title: "Losses per second", unit: short, fromMs: from, toMs: to,
    series: [{ name: "lost", className: "lost-line", points: looks.map(({ timeMs, lost }) => ({ timeMs, value: lost })) }],
  });
}

/** @param {Context} context @param {number} rangeMs @returns {[number, number]} */
function span(context, rangeMs) {
  const to = context.looks.all.at(-1)?.timeMs ?? Date.now();
  // A minute at least, so that the first looks do not fill the drawing.
  return [to - Math.min(rangeMs, Math.max(context.looks.spanMs(), 60_000)), to];
}

/** @param {HTMLElement} body @param {Ledger} ledger @param {Ledger | null} before */
function showTable(body, ledger, before) {
  const rateOf = rates(before, ledger);
  // Says which answer is shown.
  body.dataset["taken"] = String(ledger.takenAtMs);
  replaceTable(body, table({
    caption: "Every hop of the ledger",
    rows: ledger.hops,
    attributes: (hop) => ({ "data-hop": hop.key }),
    columns: [
      { name: "origin", title: "origin", isName: true, cell: (hop) => hop.origin },
      { name: "hop", title: "hop", cell: (hop) => (hop.target ? `${KINDS[hop.kind]} ${hop.target}` : KINDS[hop.kind]) },
      { name: "state", title: "state", cell: (hop) => stateMark(hop, rateOf(hop)) },
      { name: "received", title: "received", isNumber: true, cell: (hop) => grouped(hop.received.count) },
      { name: "delivered", title: "delivered", isNumber: true, cell: (hop) => grouped(hop.delivered.count) },
      { name: "lost", title: "not delivered, and why", cell: (hop) => hop.losses.map((loss) => lossLine(loss, hop)) },
      { name: "inside", title: "in flight", isNumber: true, cell: (hop) => grouped(hop.inFlight.count) },
      { name: "in", title: "in/s", isNumber: true, isExtra: true, cell: (hop) => perSecond(rateOf(hop).received) },
      { name: "out", title: "out/s", isNumber: true, isExtra: true, cell: (hop) => perSecond(rateOf(hop).delivered) },
    ],
  }));
}

/** @param {import("./ledger.js").Loss} loss @param {Hop} hop */
function lossLine(loss, hop) {
  const words = `${loss.cause}. ${loss.advice}.`;
  const least = hop.accounting === "at_least" && !loss.intended ? "at least " : "";
  return h("div", { class: loss.intended ? "asked-text" : "lost-text", title: words, "data-way": loss.way },
    `${loss.intended ? "⊘" : "✕"} `, least, h("span", { class: "count" }, grouped(loss.amount.count)), ` ${loss.way} `,
    h("small", null, `(${share(loss.amount.count, hop.received.count)})`));
}

/** @param {Hop} hop @param {{delivered: number | null, lost: number | null}} rate */
export function stateMark(hop, { delivered, lost }) {
  const word = state(hop, lost, delivered);
  const level = word === "ok" ? "good" : word === "lost" || word === "trouble" ? "warn" : "bad";
  return h("span", { class: `state ${level}` }, word);
}
