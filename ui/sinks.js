// Where records go: does a sink lag, what happened to its records, is a spool growing?

import { fill, h, panel, s } from "./dom.js";
import { grouped, lasting, perSecond, size } from "./figures.js";
import { replaceTable, table } from "./table.js";
import { rates } from "./verdict.js";
import { stateMark } from "./overview.js";

/**
 * @typedef {import("./main.js").Context} Context
 * @typedef {import("./ledger.js").Hop} Hop
 */

/** @param {Element} root @param {Context} context */
export function start(root, context) {
  const links = /** @type {[string, string][]} */ ([["JSON", "/ledger"]]);
  const panels = {
    lag: panel({ id: "lag", title: "Does a sink lag?", className: "wide", links }),
    fate: panel({ id: "fate", title: "What became of what each sink was given?", className: "wide", links }),
    work: panel({ id: "work", title: "Retries", className: "wide", links }),
  };
  fill(root, h("div", { class: "panels" }, Object.values(panels).map((one) => one.root)));
  const stop = context.onLedger((ledger, before) => {
    const sinks = ledger.hops.filter((hop) => hop.kind === "sink");
    const rateOf = rates(before, ledger);
    panels.lag.show(() => replaceTable(panels.lag.body, lagTable(sinks, rateOf, ledger.takenAtMs)));
    panels.fate.show(() => replaceTable(panels.fate.body, fateTable(sinks)));
    panels.work.show(() => replaceTable(panels.work.body, workTable(sinks)));
  });
  return () => {
    stop();
    for (const one of Object.values(panels)) one.stop();
  };
}

const NO_SINK = "No sink: the configuration has no [[sink]].";
/** @type {import("./table.js").Column<Hop>} */
const NAME = { name: "sink", title: "sink", isName: true, cell: (hop) => h("span", null, h("b", null, hop.target), ` of ${hop.origin}`) };

/** @param {Hop[]} sinks @param {ReturnType<typeof rates>} rateOf @param {number} nowMs */
function lagTable(sinks, rateOf, nowMs) {
  const full = (/** @type {Hop} */ hop, /** @type {string} */ used, /** @type {string} */ most) => {
    const [is, limit] = [hop.gauges.get(used), hop.gauges.get(most)];
    if (is === undefined || !limit) return "–";
    return h("div", null, `${size(is)} of ${size(limit)}`, s("svg", { class: "bar", viewBox: "0 0 100 6", preserveAspectRatio: "none", "aria-hidden": "true" },
      s("rect", { class: "dots-ground", width: 100, height: 6 }), s("rect", { class: "inside", width: Number((is * 1000n) / limit) / 10, height: 6 })));
  };
  return table({
    caption: "Sinks and their queues", rows: sinks, empty: NO_SINK,
    attributes: (hop) => ({ "data-hop": hop.key }),
    columns: [
      NAME,
      { name: "state", title: "state", cell: (hop) => stateMark(hop, rateOf(hop)) },
      { name: "rate", title: "taken", isNumber: true, cell: (hop) => perSecond(rateOf(hop).delivered) },
      { name: "waiting", title: "waiting", isNumber: true, cell: (hop) => grouped(hop.inFlight.count) },
      { name: "oldest", title: "oldest waits", isNumber: true, cell: (hop) => (hop.inFlight.count > 0n ? lasting(Number(hop.gauges.get("oldest_age_ms") ?? 0n)) : "–") },
      { name: "acknowledged", title: "last taken", isNumber: true, cell: (hop) => {
        const at = Number(hop.gauges.get("last_acknowledged_unix_ms") ?? 0n);
        return at > 0 ? `${lasting(Math.max(nowMs - at, 0))} ago` : "never";
      } },
      { name: "queue", title: "queue", cell: (hop) => full(hop, "queue_bytes", "queue_limit_bytes") },
      { name: "spool", title: "spool", cell: (hop) => full(hop, "spool_bytes", "spool_capacity_bytes") },
      { name: "trouble", title: "trouble", cell: (hop) => hop.trouble && [hop.trouble.what, ". ", h("b", null, "Fix: "), hop.trouble.fix, "."] },
    ],
  });
}

/** @param {Hop[]} sinks */
const fateTable = (sinks) => table({
  caption: "Fates of records", rows: sinks, empty: NO_SINK,
  attributes: (hop) => ({ "data-hop": hop.key }),
  columns: [
    NAME,
    { name: "received", title: "given", isNumber: true, cell: (hop) => grouped(hop.received.count) },
    { name: "delivered", title: "delivered", isNumber: true, cell: (hop) => grouped(hop.delivered.count) },
    { name: "inside", title: "in flight", isNumber: true, cell: (hop) => grouped(hop.inFlight.count) },
    { name: "lost", title: "not delivered, and why", cell: (hop) => hop.losses.map((loss) => h("div", { class: loss.intended ? "asked-text" : "lost-text", title: `${loss.cause}. ${loss.advice}.` }, `${loss.intended ? "⊘" : "✕"} ${grouped(loss.amount.count)} ${loss.way}`)) },
    { name: "duplicates", title: "possible duplicates", isNumber: true, cell: (hop) => grouped(hop.events.get("possible_duplicates") ?? 0n) },
  ],
});

/** @param {Hop[]} sinks */
const workTable = (sinks) => table({
  caption: "Attempts of sinks", rows: sinks, empty: NO_SINK,
  columns: [
    NAME,
    ...[["attempts", "batches sent"], ["retries", "sent again"], ["errors", "failed"], ["connects", "connections"], ["circuit_openings", "circuit opened"]].map(([name = "", title = ""]) =>
      ({ name, title, isNumber: true, cell: (/** @type {Hop} */ hop) => grouped(hop.events.get(name) ?? 0n) })),
    { name: "spooled", title: "records in the spool", isNumber: true, cell: (hop) => grouped(hop.gauges.get("spool_rows") ?? 0n) },
  ],
});
