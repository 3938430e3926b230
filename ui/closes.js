// How connections ended. Ordinary closes would hide the others, so they are only counted; the others are drawn.

import { RANGES, link } from "./address.js";
import { isFleet, isHidden, why } from "./answers.js";
import { drawChart } from "./chart.js";
import { fill, h, panel, replace } from "./dom.js";
import { clock, each, endpoint, grouped, lasting, microseconds, size } from "./figures.js";
import { STORE_EVERY_MS, UNSEEN_MS, askStore, ends, milliseconds, missing, namedPath, noHistory, pairs, records, whole } from "./history.js";
import { poll } from "./poller.js";
import { sources } from "./stored.js";
import { replaceTable, table } from "./table.js";

/**
 * @typedef {import("./main.js").Context} Context
 * @typedef {{timeMs: number, value: number | null}} Point
 */

/** The meaning of each end; ordinary ones come last. @type {[string, string, boolean][]} */
const ENDS = [
  ["timed_out", "the peer did not answer any more", false],
  ["refused", "nobody listened", false],
  ["our_reset", "this host broke it off", false],
  ["peer_reset", "the peer broke it off", false],
  ["unknown", "no poll had seen it, and the event does not say", true],
  ["our_close", "this host closed it in order", true],
  ["peer_close", "the peer closed it in order", true],
];
/** Most connections that are listed. */
const ROWS = 200;
const LINES = ["first", "second", "third", "lost-line"];

/** @param {Element} root @param {Context} context */
export function start(root, context) {
  const range = context.address.range;
  const byEnd = namedPath("closes-by-end", { since: range });
  const recent = namedPath("recent-closes", { since: range, limit: String(ROWS) });
  const panels = {
    ends: panel({ id: "ends", title: "How did connections end?", links: [["JSON", "/ledger"]] }),
    abnormal: panel({ id: "abnormal", title: "When did they end badly?", links: sources("closes-by-end", { since: range }) }),
    recent: panel({ id: "recent", title: "Which ended last?", links: sources("recent-closes", { since: range, limit: String(ROWS) }), className: "wide" }),
  };
  fill(root, h("div", { class: "panels" }, Object.values(panels).map((one) => one.root)));
  /** @type {Map<string, Point[]> | null} */
  let stored = null;

  const stopLedger = context.onLedger((ledger) => {
    const counted = ends(ledger);
    panels.ends.show(() => showEnds(panels.ends.body, counted, ledger));
    panels.abnormal.show(() => {
      const points = stored ?? watched(context);
      const times = [...points.values()].flat().map((point) => point.timeMs);
      const toMs = Math.max(context.looks.all.at(-1)?.timeMs ?? 0, ...times);
      drawEnds(panels.abnormal.body, points, Math.min(toMs - 30_000, ...times), toMs);
    });
  });
  const stopStore = poll(STORE_EVERY_MS, async (signal) => {
    try {
      const [lines, rows] = await Promise.all([askStore(byEnd, signal), askStore(recent, signal)]);
      stored = lines && perBucket(records(lines), context.looks.ran());
      panels.abnormal.lacks(missing(lines));
      panels.recent.lacks(missing(rows, ROWS));
      panels.recent.show(() => (rows ? replaceTable(panels.recent.body, recentTable(records(rows))) : replace(panels.recent.body, noHistory())));
    } catch (error) {
      if (isHidden(error)) panels.recent.root.hidden = true;
      else if (!signal.aborted) panels.recent.show(() => replace(panels.recent.body, h("p", { class: "mistake" }, why(error))));
    }
  });
  return () => {
    stopLedger();
    stopStore();
    for (const one of Object.values(panels)) one.stop();
  };
}

/** @param {HTMLElement} body @param {Map<string, bigint>} counted @param {import("./ledger.js").Ledger} ledger */
function showEnds(body, counted, ledger) {
  const close = ledger.hops.find((hop) => hop.kind === "close");
  if (!close) return replace(body, h("p", null, "No socket collector runs here: the configuration has no [sockets]."));
  const total = [...counted.values()].reduce((sum, count) => sum + count, 0n);
  const words = h("p", { class: "now" }, h("b", null, grouped(total)), ` connections ended since the daemon started, ${lasting(ledger.uptimeMs)} ago; `,
    h("b", null, grouped(close.events.get("unpolled") ?? 0n)), " of them between two polls.");
  const head = body.querySelector(":scope > p");
  if (head) head.replaceWith(words);
  else body.append(words);
  body.dataset["taken"] = String(ledger.takenAtMs);
  replaceTable(body, endsTable(counted));
}

/** A newer Weir may know more ends than this page. @param {string} end @returns {[string, string, boolean]} */
const unheardOf = (end) => [end, "this page does not know what it means", true];

/** @param {Map<string, bigint>} counted */
export const endsTable = (counted) => table({
  caption: "Connections by the way they ended",
  rows: [...ENDS, ...[...counted.keys()].filter((end) => !ENDS.some(([known]) => known === end)).map(unheardOf)],
  attributes: ([end]) => ({ "data-end": end }),
  columns: [
    { name: "end", title: "end", isName: true, cell: ([end, , isOrdinary]) => h("span", { class: isOrdinary ? "asked-text" : "lost-text" }, isOrdinary ? "" : "✕ ", end.replaceAll("_", " ")) },
    { name: "count", title: "connections", isNumber: true, cell: ([end]) => grouped(counted.get(end) ?? 0n) },
    { name: "means", title: "what happened", cell: ([, means]) => means },
  ],
});

/** What this page has seen. @param {Context} context @returns {Map<string, Point[]>} */
function watched(context) {
  const looks = context.looks.within((RANGES.get(context.address.range) ?? 900) * 1000);
  return new Map(ENDS.map(([end]) => [end, pairs(looks).map(([before, now]) => {
    const isSeen = before.runId === now.runId && now.timeMs - before.timeMs < UNSEEN_MS;
    const elapsed = isSeen ? (now.uptimeMs - before.uptimeMs) / 1000 : 0;
    const count = Number((now.ends.get(end) ?? 0n) - (before.ends.get(end) ?? 0n));
    return { timeMs: now.timeMs, value: elapsed > 0 ? count / elapsed : null };
  })]));
}

/** @param {Record<string, any>[]} rows @param {{fromMs: number, toMs: number}} ran When it was on record. @returns {Map<string, Point[]>} */
export function perBucket(rows, ran = { fromMs: Infinity, toMs: 0 }) {
  const times = [...new Set(rows.map((row) => String(row["bucket_unix_ns"])))];
  const widthMs = Number(rows[0]?.["width_ns"] ?? 0) / 1e6;
  const found = new Map(rows.map((row) => [`${row["bucket_unix_ns"]} ${row["close_reason"]}`, Number(row["closed"]) / (Number(row["width_ns"]) / 1e9)]));
  /** @param {string} end @returns {Point[]} */
  const points = (end) => times.map((time) => ({ timeMs: milliseconds(time), value: found.get(`${time} ${end}`) ?? 0 }));
  return new Map(ENDS.map(([end]) => [end, whole(points(end), widthMs, ran, (timeMs, value) => ({ timeMs, value }))]));
}

/** @param {HTMLElement} body @param {Map<string, Point[]>} points @param {number} fromMs @param {number} toMs */
export function drawEnds(body, points, fromMs, toMs) {
  drawChart(body, {
    title: "Connections that ended badly, per second", unit: each, fromMs, toMs,
    series: ENDS.filter(([, , isOrdinary]) => !isOrdinary).map(([end], at) => ({ name: end.replaceAll("_", " "), className: LINES[at] ?? "", points: points.get(end) ?? [] })),
  });
}

/** @param {Record<string, any>[]} rows */
export function recentTable(rows) {
  return table({
    caption: "The connections that ended last",
    rows,
    isLong: true,
    empty: "No connection ended in this range.",
    columns: [
      { name: "time", title: "ended", isName: true, cell: (row) => clock(milliseconds(row["time_unix_ns"])) },
      ...(isFleet ? [{ name: "host", title: "host", cell: (/** @type {Record<string, any>} */ row) => h("a", { href: link({ host: String(row["host"]) }) }, String(row["host"])) }] : []),
      { name: "end", title: "how", cell: (row) => String(row["close_reason"] ?? "unknown").replaceAll("_", " ") },
      { name: "local", title: "local", isCode: true, cell: (row) => endpoint(row["src_address"], row["src_port"]) },
      { name: "peer", title: "peer", isCode: true, cell: (row) => endpoint(row["dst_address"], row["dst_port"]) },
      { name: "process", title: "process", cell: (row) => (row["process_name"] ? `${row["process_name"]} ${row["process_id"] ?? ""}` : "–") },
      { name: "whose", title: "owner", cell: (row) => row["systemd_unit"] ?? row["container_id"]?.slice(0, 12) ?? row["netns_name"] ?? "" },
      { name: "seen", title: "lived at least", isNumber: true, cell: (row) => (row["seen_ns"] ? lasting(milliseconds(row["seen_ns"])) : "–") },
      { name: "rtt", title: "RTT", isNumber: true, cell: (row) => (row["rtt_us"] ? microseconds(Number(row["rtt_us"])) : "–") },
      { name: "retrans", title: "retrans", isNumber: true, cell: (row) => (row["total_retrans_segments"] ?? null) === null ? "–" : grouped(row["total_retrans_segments"]) },
      { name: "sent", title: "sent", isNumber: true, cell: (row) => (row["bytes_sent"] ?? null) === null ? "–" : size(Number(row["bytes_sent"])) },
      { name: "received", title: "received", isNumber: true, cell: (row) => (row["bytes_received"] ?? null) === null ? "–" : size(Number(row["bytes_received"])) },
    ],
  });
}
