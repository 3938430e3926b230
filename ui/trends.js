// The overview's past: rates, losses and round-trip times over the range, from the store if there is one.

import { RANGES } from "./address.js";
import { Refused, ask, why } from "./answers.js";
import { drawChart } from "./chart.js";
import { h, panel, replace } from "./dom.js";
import { each, grouped, lasting, perSecond } from "./figures.js";
import { drawHeat } from "./heat.js";
import { STORE_EVERY_MS, askStore, milliseconds, missing, noHistory, records, whole } from "./history.js";
import { poll } from "./poller.js";
import { sources } from "./stored.js";

/**
 * @typedef {import("./main.js").Context} Context
 * @typedef {import("./history.js").Rates} Rates
 * @typedef {ReturnType<typeof panel>} Panel
 * @typedef {{rates: Panel, lost: Panel, heat: Panel}} Panels
 *
 * @typedef {object} Past The store's answers for the range, and for the one before it.
 * @property {Rates[]} rates
 * @property {Rates[]} before
 * @property {Record<string, any>[]} losses
 * @property {import("./heat.js").Column[]} heat
 */

/** Time between two walks of all sockets for the round-trip times; all clients share a walk. */
const HEAT_EVERY_MS = 10_000;
const HEAT_PATH = "/sockets?sort=-rtt_us&limit=1&fields=cookie";
/** A quarter of an hour. */
const HEAT_MAX = 90;
const SHORTEST_MS = 30_000;

/** @param {Context} context */
const seconds = (context) => RANGES.get(context.address.range) ?? 900;

/** @param {Context} context */
const questions = (context) => ({
  rates: sources("ledger-rates", { since: `${2 * seconds(context)}s` }),
  losses: sources("losses", { since: context.address.range, limit: "20" }),
  heat: sources("rtt-heat", { since: context.address.range }),
});

/** @param {Context} context @returns {Panels} */
export function trendPanels(context) {
  const { rates, losses, heat } = questions(context);
  return {
    rates: panel({ id: "rates", title: "Is the rate normal?", links: rates }),
    lost: panel({ id: "lost", title: "When was something lost?", links: losses }),
    heat: panel({ id: "heat", title: "When did round-trip times change?", className: "wide", links: heat }),
  };
}

/** @param {Panels} panels @param {Context} context */
export function startTrends(panels, context) {
  const rangeMs = seconds(context) * 1000;
  /** @type {Past | null} */
  let past = null;
  let isWithoutStore = false;
  /** @type {import("./heat.js").Column[]} */
  const columns = [];
  let heatTrouble = "";

  const stopStore = poll(STORE_EVERY_MS, async (signal) => {
    try {
      const { rates, losses, heat } = questions(context);
      const answers = await Promise.all([rates, losses, heat].map(([json]) => askStore(json?.[1] ?? "", signal)));
      isWithoutStore = answers.some((answer) => answer === null);
      past = isWithoutStore ? null : readPast(answers, rangeMs, context.looks.ran());
      [panels.rates, panels.lost, panels.heat].forEach((one, at) => one.lacks(missing(answers[at === 2 ? 2 : 0] ?? null)));
    } catch {
      // Shows what this page has seen instead; the next turn tries again.
      past = null;
    }
    draw();
  });
  const stopHeat = poll(HEAT_EVERY_MS, async (signal) => {
    try {
      const answer = await ask(HEAT_PATH, { signal, timeoutMs: 8_000 });
      columns.push({ timeMs: milliseconds(answer.time_unix_ns), bands: answer.rtt_us });
      if (columns.length > HEAT_MAX) columns.shift();
      heatTrouble = "";
    } catch (error) {
      if (signal.aborted) return;
      heatTrouble = error instanceof Refused && error.status === 404 ? "No socket collector runs here: the configuration has no [sockets]." : `${why(error)}.`;
    }
    showHeat();
  });

  const showHeat = () => panels.heat.show(() => {
    const shown = past?.heat.length ? past.heat : columns;
    if (shown.length === 0) return replace(panels.heat.body, h("p", null, heatTrouble || "No round-trip time was read yet."));
    const [fromMs, toMs] = span(shown.map((column) => column.timeMs), rangeMs);
    drawHeat(panels.heat.body, shown, { title: "Round-trip times of TCP sockets", fromMs, toMs: toMs + HEAT_EVERY_MS });
  });
  const draw = () => {
    const looked = context.looks.rates(rangeMs);
    panels.rates.show(() => showRates(panels.rates.body, looked, past, rangeMs, isWithoutStore));
    panels.lost.show(() => showLost(panels.lost.body, looked, past, rangeMs));
  };

  return {
    draw,
    /** The losses in the range, in words. */
    lost: () => (past ? storedLosses(past, context) : watchedLosses(context, rangeMs)),
    stop() {
      stopStore();
      stopHeat();
    },
  };
}

/** @param {(import("./history.js").Answer | null)[]} answers @param {number} rangeMs @param {{fromMs: number, toMs: number}} ran @returns {Past} */
function readPast(answers, rangeMs, ran) {
  const [rates = [], losses = [], heat = []] = answers.map((answer) => (answer ? records(answer) : []));
  /** @type {Map<string, {timeMs: number, arrived: number, sent: number, stored: number, lost: number}>} */
  const points = new Map();
  const egress = new Set(rates.filter((row) => row["hop"] === "egress").map((row) => `${row["origin"]} ${row["target"]}`));
  for (const row of rates) {
    const key = String(row["bucket_unix_ns"]);
    const point = points.get(key) ?? { timeMs: milliseconds(key), arrived: 0, sent: 0, stored: 0, lost: 0 };
    points.set(key, point);
    const perSecond = Number(row["amount"]) / (Number(row["width_ns"]) / 1e9);
    const { hop, way } = row;
    if (way === "received" && hop === "socket") point.arrived += perSecond;
    if (way === "delivered" && (hop === "egress" || (hop === "target" && !egress.has(`${row["origin"]} ${row["target"]}`)))) point.sent += perSecond;
    if (way === "delivered" && hop === "sink") point.stored += perSecond;
    if (["dropped", "rejected", "uncertain"].includes(way) && hop !== "member") point.lost += perSecond;
  }
  /** @type {Rates[]} */
  const all = [...points.values()].sort((a, b) => a.timeMs - b.timeMs);
  // The rows come newest first, so that an answer at its limit lacks some of its oldest point.
  if (answers[0]?.truncated) all.shift();
  const begins = (all.at(-1)?.timeMs ?? 0) - rangeMs;
  const widthMs = Number(rates[0]?.["width_ns"] ?? 0) / 1e6;
  const every = whole(all, widthMs, ran, (timeMs, value) => ({ timeMs, arrived: value, sent: value, stored: value, lost: value }));

  return { rates: every.filter((point) => point.timeMs >= begins), before: every.filter((point) => point.timeMs < begins), losses, heat: heatColumns(heat) };
}

/** @param {Record<string, any>[]} rows Those of `rtt-heat`. */
export function heatColumns(rows) {
  /** @type {Map<string, import("./heat.js").Column>} */
  const columns = new Map();
  for (const row of rows) {
    const key = String(row["bucket_unix_ns"]);
    const column = columns.get(key) ?? { timeMs: milliseconds(key), bands: [] };
    columns.set(key, column);
    column.bands.push([Number(row["low_us"]), Number(row["samples"])]);
  }
  return [...columns.values()];
}

/** The start and end of the range; at least half a minute, so that two snapshots do not fill the chart. @param {number[]} times @param {number} rangeMs @returns {[number, number]} */
function span(times, rangeMs) {
  const to = times.at(-1) ?? Date.now();
  return [Math.max(to - rangeMs, Math.min(times[0] ?? to, to - SHORTEST_MS)), to];
}

/** @param {Rates[]} rates @param {"arrived" | "sent" | "stored" | "lost"} name @param {number} [laterMs] */
const line = (rates, name, laterMs = 0) => rates.map((point) => ({ timeMs: point.timeMs + laterMs, value: point[name] }));

/** @param {Element} body @param {Rates[]} looked @param {Past | null} past @param {number} rangeMs @param {boolean} isWithoutStore */
function showRates(body, looked, past, rangeMs, isWithoutStore) {
  const last = looked.at(-1);
  const words = h("p", { class: "now" }, "Now ", h("b", null, perSecond(last?.arrived ?? null)), " datagrams arrive, ",
    h("b", null, perSecond(last?.sent ?? null)), " are handed to targets, and sinks take ", h("b", null, perSecond(last?.stored ?? null)), " records.");
  const rates = past?.rates.length ? past.rates : looked;
  const [fromMs, toMs] = span(rates.map((point) => point.timeMs), rangeMs);
  const drawing = h("div", null);
  // The element is kept, so that it stays open and keeps the focus.
  const more = body.querySelector("details") ?? h("details", null, h("summary", null, "Only what this page has seen is drawn. How to keep more"), noHistory());
  if (more.isConnected && isWithoutStore) {
    body.querySelector(":scope > p")?.replaceWith(words);
    body.querySelector(":scope > div")?.replaceWith(drawing);
  } else {
    replace(body, words, drawing, isWithoutStore && more);
  }
  drawChart(drawing, {
    title: "Datagrams that arrived and that were handed to targets, and records that sinks took, per second", unit: each, fromMs, toMs,
    series: [
      ...(past?.before.length ? [{ name: "arrived in the range before", className: "first before", points: line(past.before, "arrived", rangeMs) }] : []),
      { name: "arrived", className: "first", points: line(rates, "arrived") },
      { name: "handed to targets", className: "second", points: line(rates, "sent") },
      { name: "taken by sinks", className: "third", points: line(rates, "stored") },
    ],
  });
}

/** @param {Element} body @param {Rates[]} looked @param {Past | null} past @param {number} rangeMs */
function showLost(body, looked, past, rangeMs) {
  const rates = past?.rates.length ? past.rates : looked;
  const [fromMs, toMs] = span(rates.map((point) => point.timeMs), rangeMs);
  const drawing = h("div", null);
  replace(body, h("p", { class: "now" }, "Now ", h("b", null, perSecond(looked.at(-1)?.lost ?? null)), " are lost."), drawing);
  drawChart(drawing, {
    title: "Losses per second", unit: each, fromMs, toMs,
    series: [{ name: past ? "not delivered" : "lost", className: "lost-line", points: line(rates, "lost") }],
  });
}

/** @param {Past} past @param {Context} context */
function storedLosses({ losses }, context) {
  const all = losses.filter((row) => row["hop"] !== "member" && !context.words()[row["reason"] || row["way"]]?.intended);
  if (all.length === 0) return `In the last ${context.address.range}, nothing was lost.`;
  return `In the last ${context.address.range}, lost: ${all.slice(0, 3).map((row) => `${grouped(row["lost"])} ${row["reason"] || row["way"]} at ${row["hop"]} of ${[row["origin"], row["target"]].filter(Boolean).join(" → ")}`).join("; ")}.`;
}

/** @param {Context} context @param {number} rangeMs */
function watchedLosses({ looks }, rangeMs) {
  const watched = lasting(Math.min(looks.spanMs(), rangeMs));
  const lost = looks.lost(rangeMs);
  if (lost.length === 0) return `In the ${watched} that this page has watched, nothing was lost.`;
  return `In the ${watched} that this page has watched, lost: ${lost.slice(0, 3).map(([where, count]) => `${grouped(count)} ${where}`).join("; ")}.`;
}
