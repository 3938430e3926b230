// The first page: is anything lost, where, why, and what helps.

import { fill, h, panel, replace } from "./dom.js";
import { grouped, perSecond, share } from "./figures.js";
import { KINDS, partOfSink } from "./ledger.js";
import { drawStreams } from "./stream.js";
import { replaceTable, table } from "./table.js";
import { startTrends, trendPanels } from "./trends.js";
import { rates, state, unknown, verdict } from "./verdict.js";

/**
 * @typedef {import("./ledger.js").Ledger} Ledger
 * @typedef {import("./ledger.js").Hop} Hop
 * @typedef {import("./main.js").Context} Context
 */

const LEDGER_LINKS = /** @type {[string, string][]} */ ([["JSON", "/ledger"], ["text", "/ledger?format=text"]]);

/** @param {Element} root @param {Context} context */
export function start(root, context) {
  const panels = {
    verdict: panel({ id: "verdict", title: "Am I losing anything?", links: LEDGER_LINKS, className: "wide" }),
    stream: panel({ id: "stream", title: "Where does it go, and where is it lost?", links: LEDGER_LINKS, className: "wide" }),
    ...trendPanels(context),
    ledger: panel({ id: "ledger", title: "What does every hop count?", links: LEDGER_LINKS, className: "wide" }),
  };
  fill(root, h("div", { class: "panels" }, Object.values(panels).map((one) => one.root)));

  fill(panels.verdict.body, unknown());
  const trends = startTrends(panels, context);
  const stop = context.onLedger((ledger, before) => {
    panels.verdict.show(() => showVerdict(panels.verdict, ledger, before, trends.lost()));
    panels.stream.show(() => drawStreams(panels.stream.body, ledger));
    panels.ledger.show(() => showTable(panels.ledger.body, ledger, before));
    trends.draw();
  }, (why) => {
    panels.verdict.root.dataset["level"] = "bad";
    panels.verdict.show(() => replace(panels.verdict.body, unknown(why)));
  });
  return () => {
    stop();
    trends.stop();
    for (const one of Object.values(panels)) one.stop();
  };
}

/**
 * @param {ReturnType<typeof panel>} into
 * @param {Ledger} ledger
 * @param {Ledger | null} before
 * @param {string} inRange
 */
function showVerdict({ root, body }, ledger, before, inRange) {
  const { level, parts } = verdict(ledger, before);
  root.dataset["level"] = level;
  replace(body, parts, h("p", { class: "range" }, inRange), troubles(ledger));
}

/** @param {Ledger} ledger */
function troubles(ledger) {
  const all = ledger.hops.filter((hop) => hop.trouble);
  if (all.length === 0) return null;
  return h("ul", { class: "troubles" }, all.map((hop) =>
    h("li", null, h("b", null, hop.target || hop.origin), ": ", hop.trouble?.what, ". ", h("b", null, "Fix: "), hop.trouble?.fix, ".")));
}

/** @param {HTMLElement} body @param {Ledger} ledger @param {Ledger | null} before */
function showTable(body, ledger, before) {
  const rateOf = rates(before, ledger);
  // Records which snapshot is shown.
  body.dataset["taken"] = String(ledger.takenAtMs);
  replaceTable(body, table({
    caption: "Every hop of the ledger",
    rows: ledger.hops,
    attributes: (hop) => ({ "data-hop": hop.key }),
    columns: [
      { name: "origin", title: "origin", isName: true, cell: (hop) => hop.origin },
      { name: "hop", title: "hop", cell: (hop) => (hop.target ? `${partOfSink(ledger, hop) ?? KINDS[hop.kind]} ${hop.target}` : KINDS[hop.kind]) },
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
  const level = word === "ok" ? "good" : ["lost", "trouble", "was down"].includes(word) ? "warn" : "bad";
  return h("span", { class: `state ${level}` }, word);
}
