// The ledger as a stream. A relay copies, so each target is a band of full height; losses leave it downward, by name.

import { h, s, replace, plain } from "./dom.js";
import { grouped, share } from "./figures.js";
import { KINDS, feeds, isPart } from "./ledger.js";
import { table } from "./table.js";

/**
 * @typedef {import("./ledger.js").Ledger} Ledger
 * @typedef {import("./ledger.js").Hop} Hop
 * @typedef {import("./ledger.js").Loss} Loss
 *
 * @typedef {object} Band
 * @property {string} name
 * @property {bigint} received
 * @property {bigint} delivered
 * @property {bigint} inside
 * @property {(Loss & {kind: string})[]} losses Each with the kind of hop where it occurred.
 *
 * @typedef {{origin: string, trunks: Band[], bands: Band[]}} Stream
 */

/** With more bands than this, a table with bars is shown instead. */
const BANDS_MAX = 8;

const BAND = 20;
const NAME = 17;
const LINE = 15;
const GAP = 12;
/** How far losses leave their band downward. */
const DOWN = 12;
const TRUNK = 190;
const FAN = 80;
const INDENT = 14;
const NARROW = 620;

/** @param {Ledger} ledger @returns {Stream[]} */
export function streams(ledger) {
  /** @type {Map<string, Stream>} */
  const found = new Map();
  const at = (/** @type {string} */ origin) => {
    const stream = found.get(origin) ?? { origin, trunks: [], bands: [] };
    found.set(origin, stream);
    return stream;
  };
  const find = (/** @type {string} */ kind, /** @type {Hop} */ hop) =>
    ledger.hops.find((one) => one.kind === kind && one.origin === hop.origin && one.target === hop.target);

  for (const hop of ledger.hops) {
    if (isPart(hop)) continue;
    const name = KINDS[hop.kind] ?? hop.kind;
    if (hop.kind === "socket") at(hop.origin).trunks.push(band("received", [hop, find("receive", hop)]));
    if (["poll", "close", "analysis"].includes(hop.kind)) at(hop.origin).trunks.push(band(name, [hop]));
    // A sink that one listener alone feeds continues its hop there.
    const sink = ledger.hops.find((one) => feeds(hop, one) && one.origin === hop.origin);
    if (hop.kind === "target") at(hop.origin).bands.push(band(hop.target, [hop, find("egress", hop), sink], find("receiver", hop)));
    if (hop.kind === "sink" && !find("target", hop)) at(hop.origin).bands.push(band(hop.target, [hop]));
  }
  return [...found.values()];
}

/**
 * Consecutive hops as one band. Losses at a receiver's own socket come after delivery, and are listed as well.
 * @param {string} name
 * @param {(Hop | undefined)[]} hops
 * @param {Hop} [beyond]
 * @returns {Band}
 */
function band(name, hops, beyond) {
  const there = hops.filter((hop) => hop !== undefined);
  const [first, last] = [there[0], there.at(-1)];
  return {
    name,
    received: first?.received.count ?? 0n,
    delivered: last?.delivered.count ?? 0n,
    inside: there.reduce((sum, hop) => sum + hop.inFlight.count, 0n),
    losses: [...there, ...(beyond ? [beyond] : [])].flatMap((hop) => hop.losses.map((loss) => ({ ...loss, kind: hop.kind }))),
  };
}

/**
 * @param {Element} into
 * @param {Ledger} ledger
 */
export function drawStreams(into, ledger) {
  const all = streams(ledger).filter((stream) => stream.trunks.length + stream.bands.length > 0);
  if (all.length === 0) return replace(into, h("p", null, "Nothing is counted yet: no listener is open."));
  const width = Math.max(into.clientWidth, 240);
  replace(into, all.map((stream) => (stream.bands.length > BANDS_MAX ? bars(stream) : drawing(stream, width))), LEGEND());
}

const LEGEND = () => h("p", { class: "keys", "aria-hidden": "true" },
  [["delivered", "delivered"], ["inside", "in flight"], ["asked", "left out by a setting"], ["lost", "✕ lost"]].map(([name, text]) =>
    h("span", { class: "key" }, s("svg", { width: 24, height: 12 }, patterns(`key-${name}`), s("rect", { class: name, fill: paint(`key-${name}`, String(name)), width: 24, height: 12 })), text)));

/** @param {string} id @param {string} name */
const paint = (id, name) => (name === "lost" ? `url(#${id}-hatch)` : name === "asked" ? `url(#${id}-dots)` : undefined);

/** Patterns, so that nothing depends on color alone. @param {string} id */
const patterns = (id) => s("defs", {},
  s("pattern", { id: `${id}-hatch`, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    s("rect", { class: "hatch-ground", width: 6, height: 6 }), s("rect", { class: "hatch-line", width: 3, height: 6 })),
  s("pattern", { id: `${id}-dots`, width: 5, height: 5, patternUnits: "userSpaceOnUse" },
    s("rect", { class: "dots-ground", width: 5, height: 5 }), s("circle", { class: "dots-mark", cx: 2.5, cy: 2.5, r: 1.2 })));

let drawings = 0;

/**
 * Side by side if there is room, otherwise one below the other.
 * @param {Stream} stream
 * @param {number} width
 */
function drawing(stream, width) {
  const isNarrow = width < NARROW;
  const id = `stream-${(drawings += 1)}`;
  const hasBoth = stream.bands.length > 0 && stream.trunks.length > 0;
  const [trunkEnd, bandStart] = !hasBoth ? [width, 0] : isNarrow ? [width, INDENT] : [TRUNK, TRUNK + FAN];

  const bands = stacked(stream.bands, isNarrow);
  const trunks = stacked(stream.trunks, isNarrow);
  const height = isNarrow ? trunks.height + bands.height : Math.max(bands.height, trunks.height);
  const centered = (/** @type {{height: number}} */ column) => Math.round((height - column.height) / 2);
  const [trunkTop, bandTop] = isNarrow ? [0, trunks.height] : [centered(trunks), centered(bands)];

  const parts = trunks.all.flatMap(({ band, y }) => {
    const top = trunkTop + y + NAME;
    const fans = isNarrow ? [] : bands.all.map((to) => fan([trunkEnd, top], [bandStart, bandTop + to.y + NAME]));
    return [...fans, ...drawBand(band, { from: 0, to: trunkEnd, top, id, isNarrow, isTrunk: true })];
  });
  parts.push(...bands.all.flatMap(({ band, y }) =>
    drawBand(band, { from: bandStart, to: width, top: bandTop + y + NAME, id, isNarrow, isTrunk: false })));

  const svg = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": inWords(stream) }, patterns(id), ...parts);
  return h("figure", { class: "stream" }, h("figcaption", null, stream.origin), svg);
}

/** The number of lines below a band. @param {Band} band */
const linesBelow = (band) => band.losses.length + (band.inside > 0n ? 1 : 0);

/** The top of each band. @param {Band[]} bands @param {boolean} isNarrow */
function stacked(bands, isNarrow) {
  let y = 0;
  const all = bands.map((band) => {
    const here = { band, y };
    const below = linesBelow(band);
    y += NAME + BAND + below * LINE + (isNarrow && below > 0 ? DOWN : 0) + GAP;
    return here;
  });
  return { all, height: y };
}

/** @param {[number, number]} from @param {[number, number]} to */
function fan([x, y], [toX, toY]) {
  const middle = (x + toX) / 2;
  const d = `M${x} ${y}C${middle} ${y} ${middle} ${toY} ${toX} ${toY}V${toY + BAND}C${middle} ${toY + BAND} ${middle} ${y + BAND} ${x} ${y + BAND}Z`;
  return s("path", { class: "fan", d });
}

/**
 * @param {Band} band
 * @param {{from: number, to: number, top: number, id: string, isNarrow: boolean, isTrunk: boolean}} where
 */
function drawBand(band, { from, to, top, id, isNarrow, isTrunk }) {
  const sums = { asked: sum(band, true), lost: sum(band, false) };
  const thick = heights(band, sums);
  const breaks = from + (to - from) * (isTrunk && !isNarrow ? 0.45 : 0.55);
  const bend = Math.min(34, (to - breaks) / 2);
  const passed = thick.delivered + thick.inside;

  const parts = [s("path", { class: "delivered", d:
    `M${from} ${top}H${to}V${top + thick.delivered}H${breaks + bend}C${breaks + bend / 2} ${top + thick.delivered} ${breaks + bend / 2} ${top + BAND} ${breaks} ${top + BAND}H${from}Z` })];
  if (thick.inside > 0) parts.push(s("rect", { class: "inside", x: breaks + bend, y: top + thick.delivered, width: bend, height: thick.inside }));
  if (thick.asked > 0) parts.push(s("path", { class: "asked", fill: `url(#${id}-dots)`, d: leaving(breaks, top + passed, thick.asked, bend, 3) }));
  if (thick.lost > 0) parts.push(s("path", { class: "lost", fill: `url(#${id}-hatch)`, d: leaving(breaks, top + BAND - thick.lost, thick.lost, bend, DOWN) }));

  const count = isTrunk ? grouped(band.received) : `${grouped(band.delivered)} delivered`;
  const name = clipped(band.name, (to - from) / 7 - count.length - 2);
  const title = s("text", { class: "name", x: from, y: top - 5 }, s("tspan", { class: "strong" }, name), `  ${count}`);
  // In a narrow drawing the text is below the losses, otherwise next to them.
  const isBelow = isNarrow || isTrunk;
  const [textX, textY] = isBelow ? [from + 12, top + BAND - 2 + (isNarrow ? DOWN : 0)] : [breaks + bend + 8, top + BAND - 2];
  const lines = [...band.losses.map((loss) => ({
    className: loss.intended ? "name asked-text" : "name lost-text",
    text: named(loss, band),
  })), ...(band.inside > 0n ? [{ className: "name", text: `${grouped(band.inside)} in flight` }] : [])];
  return [...parts, title, ...lines.map(({ className, text }, at) => s("text", { class: className, x: textX, y: textY + LINE * (at + 1) }, text))];
}

/** A name shortened in the middle to fit. @param {string} name @param {number} letters */
function clipped(name, letters) {
  const [text, most] = [plain(name), Math.max(8, Math.floor(letters))];
  return text.length <= most ? text : `${text.slice(0, Math.ceil(most / 2))}…${text.slice(-Math.floor(most / 2) + 1)}`;
}

/** A loss by name, with its hop if the band has the same loss at two hops. @param {Loss & {kind: string}} loss @param {Band} band */
function named({ way, kind, amount, intended }, band) {
  const isTwice = band.losses.filter((other) => other.way === way).length > 1;
  return `${intended ? "⊘" : "✕"} ${grouped(amount.count)} ${way}${isTwice ? ` (${KINDS[kind]})` : ""}`;
}

/** The part that leaves the band downward. @param {number} x @param {number} y @param {number} thick @param {number} bend @param {number} down */
function leaving(x, y, thick, bend, down) {
  const [half, to] = [x + bend / 2, x + bend];
  return `M${x} ${y}C${half} ${y} ${half} ${y + down} ${to} ${y + down}V${y + thick + down}C${half} ${y + thick + down} ${half} ${y + thick} ${x} ${y + thick}Z`;
}

/** @param {Band} band @param {boolean} intended */
const sum = (band, intended) => band.losses.reduce((sum, loss) => (loss.intended === intended ? sum + loss.amount.count : sum), 0n);

/**
 * The height of each part of a band. A part above 0 is always visible.
 * @param {Band} band
 * @param {{asked: bigint, lost: bigint}} sums
 */
function heights(band, sums) {
  const whole = band.received;
  const part = (/** @type {bigint} */ count) =>
    count === 0n || whole === 0n ? 0 : Math.min(BAND, Math.max(2, (Number((count * 10_000n) / whole) / 10_000) * BAND));
  const [lost, asked, inside] = [part(sums.lost), part(sums.asked), part(band.inside)];
  const left = BAND - Math.min(BAND, lost + asked + inside);
  return { lost, asked, inside, delivered: Math.max(left, band.delivered > 0n || whole === 0n ? 2 : 0) };
}

/** @param {Stream} stream */
function inWords({ origin, trunks, bands }) {
  const words = [...trunks, ...bands].map((band) => {
    const lost = band.losses.map((loss) => `${grouped(loss.amount.count)} ${loss.way}`).join(", ");
    return `${plain(band.name)}: ${grouped(band.delivered)} of ${grouped(band.received)} delivered${lost ? `, not ${lost}` : ""}`;
  });
  return `${plain(origin)}. ${words.join(". ")}.`;
}

/** @param {Stream} stream */
function bars(stream) {
  const rows = [...stream.trunks, ...stream.bands];
  return h("figure", { class: "stream" }, h("figcaption", null, stream.origin), table({
    caption: `What ${plain(stream.origin)} delivered, and what it lost`,
    rows,
    columns: [
      { name: "name", title: "to", isName: true, cell: (band) => band.name },
      { name: "bar", title: "delivered", cell: (band) => bar(band) },
      { name: "delivered", title: "count", isNumber: true, cell: (band) => grouped(band.delivered) },
      { name: "lost", title: "lost", cell: (band) => band.losses.map((loss) => h("div", { class: loss.intended ? "asked-text" : "lost-text" }, `${loss.intended ? "⊘" : "✕"} ${grouped(loss.amount.count)} ${loss.way}`)) },
    ],
  }));
}

/** @param {Band} band */
function bar(band) {
  const part = band.received === 0n ? 1 : Number((band.delivered * 1000n) / band.received) / 1000;
  return s("svg", { class: "bar", viewBox: "0 0 100 10", preserveAspectRatio: "none", role: "img", "aria-label": share(band.delivered, band.received) },
    s("rect", { class: "hatch-ground", width: 100, height: 10 }), s("rect", { class: "delivered", width: 100 * part, height: 10 }));
}
