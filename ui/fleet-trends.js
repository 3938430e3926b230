// A fleet over time: what polls recorded and lost, round-trip times, and how connections ended.

import { RANGES } from "./address.js";
import { why } from "./answers.js";
import { drawChart } from "./chart.js";
import { drawEnds, endsTable, perBucket, recentTable } from "./closes.js";
import { h, panel, replace } from "./dom.js";
import { each, grouped } from "./figures.js";
import { drawHeat } from "./heat.js";
import { STORE_EVERY_MS, askStore, milliseconds, missing, namedPath, records } from "./history.js";
import { poll } from "./poller.js";
import { sources } from "./stored.js";
import { replaceTable, showTable } from "./table.js";
import { heatColumns } from "./trends.js";

/** @typedef {Record<string, any>} Row */

/** Most connections that are listed. */
const ROWS = 50;

/** @param {string} range @param {string} host All of them if empty. */
export function fleetTrends(range, host) {
  const asked = { since: range, ...(host && { host }) };
  const last = { ...asked, limit: String(ROWS) };
  const panels = {
    made: panel({ id: "made", title: "How many records are made?", links: sources("poll-rates", asked) }),
    lost: panel({ id: "lost", title: "What do polls lose?", links: sources("poll-rates", asked) }),
    heat: panel({ id: "heat", title: "When did round-trip times change?", className: "wide", links: sources("rtt-heat", asked) }),
    ends: panel({ id: "ends", title: "How did connections end?", links: sources("closes-by-end", asked) }),
    abnormal: panel({ id: "abnormal", title: "When did they end badly?", links: sources("closes-by-end", asked) }),
    recent: panel({ id: "recent", title: "Which ended last?", className: "wide", links: sources("recent-closes", last) }),
  };
  const { made, lost, heat, ends, abnormal, recent } = panels;

  /** @type {[string, Record<string, string>, (typeof heat)[], (body: HTMLElement, rows: Row[], at: number, span: [number, number]) => void][]} */
  const questions = [
    ["poll-rates", asked, [made, lost], (body, rows, at, span) => (at === 0 ? showMade : showLost)(body, rows, span)],
    ["rtt-heat", asked, [heat], (body, rows, _, [fromMs, toMs]) => drawHeat(body, heatColumns(rows), { title: "Round-trip times of TCP sockets", fromMs, toMs, widthMs: Number(rows[0]?.["width_ns"]) / 1e6 })],
    ["closes-by-end", asked, [ends, abnormal], (body, rows, at, span) => (at === 0 ? showEnds(body, rows) : drawEnds(body, perBucket(whole(rows, span)), ...span))],
    ["recent-closes", last, [recent], (body, rows) => showTable(body, recentTable(rows))],
  ];
  const answered = new Set();
  // One after the other: the server lets few questions run at a time.
  const stop = poll(STORE_EVERY_MS, async (signal) => {
    for (const [name, parameters, into, draw] of questions) {
      /** @type {import("./history.js").Answer | null} */
      let answer = null;
      try {
        answer = await askStore(namedPath(name, parameters), signal);
      } catch (error) {
        if (signal.aborted) return;
        // The last figures stay; the line above the page says that there is no answer.
        if (!answered.has(name)) for (const one of into) one.show(() => replace(one.body, h("p", { class: "mistake" }, why(error))));
        continue;
      }
      answered.add(name);
      const rows = answer ? records(answer) : [];
      const toMs = Date.now();
      const fromMs = toMs - (RANGES.get(range) ?? 900) * 1000;
      into.forEach((one, at) => {
        one.lacks(missing(answer));
        one.show(() => (rows.length > 0 ? draw(one.body, rows, at, [fromMs, toMs]) : replace(one.body, h("p", { class: "empty" }, "Nothing in this range."))));
      });
    }
  });
  return {
    panels,
    stop() {
      stop();
      for (const one of Object.values(panels)) one.stop();
    },
  };
}

/** Only spans that are in the range from their start to their end: others have less than their share. @param {Row[]} rows @param {[number, number]} span */
const whole = (rows, [fromMs, toMs]) => rows.filter((row) => milliseconds(row["bucket_unix_ns"]) >= fromMs && milliseconds(row["bucket_unix_ns"]) + Number(row["width_ns"]) / 1e6 <= toMs);

/** @param {Row[]} rows @param {string} name */
const sum = (rows, name) => rows.reduce((sum, row) => sum + BigInt(row[name]), 0n);

/** A point for each span, per second, and a gap where no poll was. @param {Row[]} rows @param {string} name */
function perSecond(rows, name) {
  /** @type {import("./chart.js").Series["points"]} */
  const points = [];
  let endsMs = 0;
  for (const row of rows) {
    const [timeMs, widthMs] = [milliseconds(row["bucket_unix_ns"]), Number(row["width_ns"]) / 1e6];
    if (endsMs > 0 && timeMs > endsMs) points.push({ timeMs: endsMs, value: null });
    points.push({ timeMs, value: Number(row[name]) / (widthMs / 1e3) });
    endsMs = timeMs + widthMs;
  }
  return points;
}

/** @param {HTMLElement} body @param {Row[]} rows @param {[number, number]} span */
function showMade(body, rows, [fromMs, toMs]) {
  const drawing = h("div", null);
  replace(body, h("p", { class: "now" }, h("b", null, grouped(sum(rows, "made"))), " records were made in the range, of sockets and of closes."), drawing);
  drawChart(drawing, {
    title: "Records that were made, per second", unit: each, fromMs, toMs,
    series: [{ name: "records", className: "first", points: perSecond(whole(rows, [fromMs, toMs]), "made") }],
  });
}

/** @param {HTMLElement} body @param {Row[]} rows @param {[number, number]} span */
function showLost(body, rows, [fromMs, toMs]) {
  const drawing = h("div", null);
  const counted = (/** @type {string} */ name) => h("b", null, grouped(sum(rows, name)));
  replace(body, h("p", { class: "now" }, counted("lost_sockets"), " sockets and ", counted("lost_closes"), " closes were lost, and ", counted("unobserved_closes"), " connections ended without an event."), drawing);
  const points = whole(rows, [fromMs, toMs]);
  drawChart(drawing, {
    title: "What polls lost, per second", unit: each, fromMs, toMs,
    series: [
      { name: "lost sockets", className: "lost-line", points: perSecond(points, "lost_sockets") },
      { name: "lost closes", className: "second", points: perSecond(points, "lost_closes") },
      { name: "unobserved closes", className: "third", points: perSecond(points, "unobserved_closes") },
    ],
  });
}

/** @param {HTMLElement} body @param {Row[]} rows */
function showEnds(body, rows) {
  /** @type {Map<string, bigint>} */
  const counted = new Map();
  for (const row of rows) {
    const end = String(row["close_reason"] ?? "unknown");
    counted.set(end, (counted.get(end) ?? 0n) + BigInt(row["closed"]));
  }
  replace(body, h("p", { class: "now" }, h("b", null, grouped(sum(rows, "closed"))), " connections ended in the range."));
  replaceTable(body, endsTable(counted));
}
