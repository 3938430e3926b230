// A heat map of round-trip times: a column for each poll, a row for each band of times, colored by count.

import { h, replace } from "./dom.js";
import { clock, grouped, microseconds } from "./figures.js";

/**
 * @typedef {{timeMs: number, bands: [number, number][]}} Column A band is its lower bound in microseconds and its count.
 */

// Cividis, a color map that people with color blindness can read.
const RAMP = ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"];
const [LEFT, RIGHT, TOP, BOTTOM] = [58, 8, 6, 20];

/**
 * @param {Element} into
 * @param {Column[]} columns
 * @param {{fromMs: number, toMs: number, title: string, widthMs?: number}} about A column is at most as wide as `widthMs`.
 * @param {number} [height]
 */
export function drawHeat(into, columns, { fromMs, toMs, title, widthMs }, height = 170) {
  const width = Math.max(into.clientWidth, 200);
  const canvas = h("canvas", { width: width * devicePixelRatio, height: height * devicePixelRatio, role: "img", "aria-label": `${title}. ${quantiles(columns.at(-1))}` });
  // Set as properties: the content security policy forbids a style attribute.
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  // Low counts blend into the background, high counts stand out.
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  const ramp = isDark ? RAMP : RAMP.toReversed();
  replace(into, canvas, h("p", { class: "keys" }, `${quantiles(columns.at(-1))} The ${isDark ? "lighter" : "darker"} a field, the more sockets.`));
  const pen = canvas.getContext("2d");
  if (!pen) return;
  pen.scale(devicePixelRatio, devicePixelRatio);

  const rows = [...new Set(columns.flatMap((column) => column.bands.map(([low]) => low)))].sort((a, b) => a - b);
  const most = Math.max(1, ...columns.flatMap((column) => column.bands.map(([, count]) => count)));
  const [lowest, highest] = [Math.log2(rows[0] || 32), Math.log2(Math.max((rows.at(-1) ?? 64) * 1.5, 2))];
  const y = (/** @type {number} */ us) =>
    TOP + (1 - (Math.log2(Math.max(us, 2 ** lowest)) - lowest) / Math.max(highest - lowest, 0.5)) * (height - TOP - BOTTOM);
  const x = (/** @type {number} */ timeMs) => LEFT + ((timeMs - fromMs) / Math.max(toMs - fromMs, 1)) * (width - LEFT - RIGHT);

  const ink = getComputedStyle(into);
  pen.fillStyle = ink.getPropertyValue("--soft");
  pen.font = "12px system-ui, sans-serif";
  pen.textAlign = "right";
  for (const us of scale(2 ** lowest, 2 ** highest)) pen.fillText(microseconds(us), LEFT - 6, Math.min(Math.max(y(us) + 4, TOP + 8), height - BOTTOM));
  pen.textAlign = "left";
  pen.fillText(clock(fromMs), LEFT, height - 5);
  pen.textAlign = "right";
  pen.fillText(clock(toMs), width - RIGHT, height - 5);

  columns.forEach((column, at) => {
    if (column.timeMs < fromMs) return;
    const begins = x(column.timeMs);
    const widest = widthMs ? x(fromMs + widthMs) - LEFT : (width - LEFT) / 12;
    const ends = Math.min(x(columns[at + 1]?.timeMs ?? toMs), begins + widest);
    for (const [low, count] of column.bands) {
      pen.fillStyle = ramp[Math.min(RAMP.length - 1, Math.floor((Math.log1p(count) / Math.log1p(most)) * (RAMP.length - 1)))] ?? "";
      const [top, bottom] = [y(nextBand(low)), y(low)];
      pen.fillRect(begins, top, Math.max(ends - begins, 2), Math.max(bottom - top, 1));
    }
  });
}

/** The end of a band: there are two for each power of two, and the store's first is from 0. @param {number} low */
const nextBand = (low) => (low === 0 ? 64 : low <= 1 ? 2 : Number.isInteger(Math.log2(low)) ? low * 1.5 : (low / 3) * 4);

/** Powers of ten between two values. @param {number} low @param {number} high */
function scale(low, high) {
  const first = Math.ceil(Math.log10(low));
  const count = Math.max(0, Math.floor(Math.log10(high)) - first + 1);
  return count > 0 ? Array.from({ length: count }, (_, at) => 10 ** (first + at)) : [low, high];
}

/** @param {Column | undefined} column */
function quantiles(column) {
  const total = column?.bands.reduce((sum, [, count]) => sum + count, 0) ?? 0;
  if (!column || total === 0) return "No socket has a round-trip time yet.";
  const at = (/** @type {number} */ share) => {
    let left = total * share;
    const found = [...column.bands].sort(([a], [b]) => a - b).find(([, count]) => (left -= count) <= 0);
    return microseconds(nextBand(found?.[0] ?? 0));
  };
  return `Latest: half of ${grouped(total)} round-trip times are below ${at(0.5)}, 90% below ${at(0.9)}, 99% below ${at(0.99)}.`;
}
