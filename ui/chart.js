// A line chart with a scale of its own, and the previous range in the background.

import { h, s, replace } from "./dom.js";
import { clock, zone } from "./figures.js";

/**
 * @typedef {object} Series
 * @property {string} name
 * @property {string} className Color and dash pattern.
 * @property {{timeMs: number, value: number | null}[]} points A value of `null` is a gap.
 *
 * @typedef {object} Chart
 * @property {string} title Describes the chart for screen readers.
 * @property {Series[]} series
 * @property {(value: number) => string} unit
 * @property {number} fromMs
 * @property {number} toMs
 */

const [LEFT, RIGHT, TOP, BOTTOM] = [58, 8, 8, 20];

/**
 * @param {Element} into
 * @param {Chart} chart
 * @param {number} [height]
 */
export function drawChart(into, chart, height = 130) {
  const width = Math.max(into.clientWidth, 200);
  const values = chart.series.flatMap((one) => one.points.map((point) => point.value ?? 0));
  const top = niceTop(Math.max(...values, 0));
  const x = (/** @type {number} */ timeMs) =>
    LEFT + ((timeMs - chart.fromMs) / Math.max(chart.toMs - chart.fromMs, 1)) * (width - LEFT - RIGHT);
  const y = (/** @type {number} */ value) => TOP + (1 - value / top) * (height - TOP - BOTTOM);

  const lines = [0, top / 2, top].flatMap((value) => [
    s("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }),
    s("text", { class: "tick", x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, chart.unit(value)),
  ]);
  const times = [[chart.fromMs, "start"], [(chart.fromMs + chart.toMs) / 2, "middle"], [chart.toMs, "end"]];
  const ticks = times.map(([at, anchor]) =>
    s("text", { class: "tick", x: x(Number(at)), y: height - 5, "text-anchor": String(anchor) }, clock(Number(at)) + (anchor === "end" ? ` ${zone()}` : "")));
  const paths = chart.series.map((one) => s("path", { class: `line ${one.className}`, d: path(one.points, x, y) }));

  const drawing = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": chart.title }, ...lines, ...ticks, ...paths);
  const isNamed = chart.series.length > 1;
  const names = chart.series.map((one) =>
    h("span", { class: "key" }, s("svg", { width: 24, height: 10, "aria-hidden": "true" },
      s("path", { class: `line ${one.className}`, d: "M1 5H23" })), one.name));
  replace(into, drawing, isNamed && h("p", { class: "keys" }, names));
}

/**
 * @param {Series["points"]} points
 * @param {(timeMs: number) => number} x
 * @param {(value: number) => number} y
 */
function path(points, x, y) {
  let isDown = false;
  let text = "";
  for (const { timeMs, value } of points) {
    if (value === null) {
      isDown = false;
      continue;
    }
    const at = `${x(timeMs).toFixed(1)} ${y(value).toFixed(1)}`;
    // A single point between two gaps would be invisible as a line.
    text += isDown ? `L${at}` : `M${at}h0.1`;
    isDown = true;
  }
  return text;
}

/** The top of a scale: 1, 2 or 5 times a power of ten. @param {number} most */
export function niceTop(most) {
  if (!(most > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 5, 10].map((step) => step * power).find((top) => top >= most * 0.999) ?? most;
}
