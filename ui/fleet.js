// A fleet: whose records are complete, and what is slowest, from the ClickHouse that many hosts write to.

import { go, link } from "./address.js";
import { why } from "./answers.js";
import { fill, h, panel, replace } from "./dom.js";
import { clock, grouped, plural, share } from "./figures.js";
import { fleetTrends } from "./fleet-trends.js";
import { STORE_EVERY_MS, askStore, milliseconds, missing, namedPath, records } from "./history.js";
import { poll } from "./poller.js";
import { sources, storedPanel } from "./stored.js";
import { showTable, table } from "./table.js";

/**
 * @typedef {import("./main.js").Context} Context
 * @typedef {Record<string, any>} Run
 */

/** Records that are on their way for longer than this count as missing. */
const ON_THEIR_WAY = "1m";
/** Most runs that are listed. */
const ROWS = 200;

/** @param {Element} root @param {Context} context */
export function start(root, context) {
  const { range, host } = context.address;
  const asked = { since: range, ...(host && { host }) };
  const runs = panel({
    id: "runs", title: "Whose records are complete?", className: "wide",
    links: sources("completeness", { ...asked, until: ON_THEIR_WAY, limit: String(ROWS) }),
  });
  const stored = [
    storedPanel({ id: "peers", title: "Which peers were slowest?", name: "worst-peers", range, host }),
    storedPanel({ id: "services", title: "Which services were slowest?", name: "worst-services", range, host }),
    storedPanel({ id: "units", title: "Which units and containers were slowest?", name: "worst-units", range, host }),
  ];
  const trends = fleetTrends(range, host);
  const { made, lost, heat, ends, abnormal, recent } = trends.panels;
  const all = [runs, made, lost, heat, ...stored, ends, abnormal, recent];
  fill(root, filter(host), h("div", { class: "panels" }, all.map((one) => one.root)));

  const stop = watchRuns(runs, namedPath("completeness", { ...asked, until: ON_THEIR_WAY, limit: String(ROWS) }), context);
  return () => {
    stop();
    for (const one of [runs, trends, ...stored]) one.stop();
  };
}

/** The host that is shown, in the address. @param {string} host */
function filter(host) {
  const name = h("input", { id: "host", value: host, placeholder: "all hosts", spellcheck: "false", autocomplete: "off" });
  return h("form", { class: "ask", submit: (/** @type {Event} */ event) => {
    event.preventDefault();
    go(link({ host: name.value.trim() }));
  } }, h("label", { for: "host" }, "Host"), name, h("button", null, "Show"), host && h("a", { href: link({ host: "" }) }, "all hosts"));
}

/**
 * Asks again and again, and says when ClickHouse does not answer.
 * @param {ReturnType<typeof panel>} into
 * @param {string} path
 * @param {Context} context
 */
function watchRuns(into, path, { say }) {
  let answeredAt = 0;
  return poll(STORE_EVERY_MS, async (signal) => {
    try {
      const answer = await askStore(path, signal);
      const rows = answer ? records(answer) : [];
      answeredAt = Date.now();
      into.lacks(missing(answer, ROWS));
      into.show(() => showTable(into.body, runsTable(rows)));
      const hosts = new Set(rows.map((row) => row["host"])).size;
      say("live", [`Fleet · ${plural(hosts, "host", "hosts")}, answered at ${clock(answeredAt)}`]);
    } catch (error) {
      if (signal.aborted) return;
      say("dead", [h("strong", null, answeredAt ? `No answer since ${clock(answeredAt)}: ` : "No answer: "), why(error), " This page goes on by itself."]);
      if (!answeredAt) into.show(() => replace(into.body, h("p", { class: "mistake" }, why(error))));
    }
  });
}

/** Worst first, as they are answered. @param {Run[]} rows */
const runsTable = (rows) => table({
  caption: "Runs of collectors, those with the most missing records first",
  rows,
  isLong: true,
  empty: "No host has a poll in this range.",
  columns: [
    { name: "host", title: "host", isName: true, cell: (row) => h("a", { href: link({ host: String(row["host"]) }), "data-key": `${row["host"]} ${row["run_id"]}` }, String(row["host"])) },
    { name: "state", title: "records", cell: state },
    counted("missing", "missing", "Numbered records that ClickHouse does not have"),
    { name: "share", title: "of all", isNumber: true, cell: (row) => share(BigInt(row["missing"]), BigInt(row["made"])) },
    counted("made", "made"),
    counted("poll_count", "polls"),
    { name: "last", title: "last poll", isNumber: true, cell: (row) => clock(milliseconds(row["last_unix_ns"])) },
    counted("lost_sockets", "lost sockets", "Sockets that a poll could not record"),
    counted("lost_closes", "lost closes", "Closes whose event was lost"),
    counted("unobserved_closes", "unobserved closes", "Connections that ended without an event"),
    counted("failed_namespaces", "failed namespaces", "Network namespaces that a poll could not enter"),
    { name: "run", title: "run", isCode: true, isExtra: true, cell: (row) => String(row["run_id"]) },
  ],
});

/** @param {string} name @param {string} title @param {string} [about] */
const counted = (name, title, about = "") => ({
  name, title, about, isNumber: true, cell: (/** @type {Run} */ row) => grouped(row[name]),
});

/** In a word, since color does not reach everybody. @param {Run} row */
function state(row) {
  if (BigInt(row["missing"]) > 0n) return h("span", { class: "state bad" }, "✕ some missing");
  const unseen = ["lost_sockets", "lost_closes", "unobserved_closes", "failed_namespaces"].some((name) => BigInt(row[name]) > 0n);
  return unseen ? h("span", { class: "state warn" }, "complete; polls missed some") : h("span", { class: "state good" }, "complete");
}
