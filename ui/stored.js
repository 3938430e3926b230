// Panels that show the answer of a named query over the range as a table.

import { pageLink } from "./address.js";
import { isHidden, why } from "./answers.js";
import { h, panel, replace } from "./dom.js";
import { clock, grouped, microseconds, share, size } from "./figures.js";
import { STORE_EVERY_MS, askStore, milliseconds, missing, namedPath } from "./history.js";
import { poll } from "./poller.js";
import { showTable, table } from "./table.js";

const ROWS = "20";

/** Links for a named query: its JSON, and its page. @param {string} name @param {Record<string, string>} parameters @returns {[string, string][]} */
export const sources = (name, parameters) => [["JSON", namedPath(name, parameters)], ["query", pageLink("query", { pick: name })]];

/**
 * @param {object} about
 * @param {string} about.id
 * @param {string} about.title
 * @param {string} about.name The name of the query.
 * @param {string} about.range
 * @param {string} [about.host] Of a fleet: the only host.
 */
export function storedPanel({ id, title, name, range, host }) {
  const parameters = { since: range, limit: ROWS, ...(host && { host }) };
  const shown = panel({ id, title, className: "wide", links: sources(name, parameters) });
  const stop = poll(STORE_EVERY_MS, async (signal) => {
    try {
      const answer = await askStore(namedPath(name, parameters), signal);
      shown.lacks(missing(answer));
      shown.show(() => (answer ? showTable(shown.body, answerTable(answer, `Rows of the answer: ${title}`)) : replace(shown.body, h("p", null, "This daemon keeps no history. ", h("a", { href: pageLink("query") }, "What turns one on"), "."))));
    } catch (error) {
      if (isHidden(error)) shown.root.hidden = true;
      else if (!signal.aborted) shown.show(() => replace(shown.body, h("p", { class: "mistake" }, why(error))));
    }
  });
  return {
    root: shown.root,
    stop() {
      stop();
      shown.stop();
    },
  };
}

/** @param {import("./history.js").Answer} answer @param {string} caption */
function answerTable(answer, caption) {
  // What a row is about is a name, even if it has only digits: a port. Of a fleet, the host comes first.
  const names = answer.columns[0]?.name === "host" ? 2 : 1;
  return table({
    caption,
    rows: answer.rows,
    isLong: true,
    empty: "Nothing in this range.",
    columns: answer.columns.map(({ name }, at) => ({
      name, title: inWords(name), isName: at === 0, isNumber: at >= names && answer.rows.every((row) => row[at] === null || isNumber(row[at])),
      cell: (/** @type {unknown[]} */ row) => (at < names ? String(row[at] ?? "–") : figure(name, row[at])),
      tip: (/** @type {unknown[]} */ row) => (name.endsWith("_bytes") && isNumber(row[at]) ? `${row[at]} bytes` : undefined),
    })),
  });
}

/** @param {unknown} value */
const isNumber = (value) => typeof value === "number" || /^-?\d+$/.test(String(value));

/** A column's name without its unit, which is in the cells. @param {string} name */
const inWords = (name) => name.replace(/_(us|bytes|unix_ns|ns|share)$/, "").replaceAll("_", " ");

/** A figure with the unit that its column's name has. @param {string} name @param {unknown} value */
function figure(name, value) {
  if (value === null || value === undefined) return "–";
  if (!isNumber(value)) return String(value);
  if (name.endsWith("_us")) return microseconds(Number(value));
  if (name.endsWith("_unix_ns")) return clock(milliseconds(String(value)));
  if (name.endsWith("_bytes")) return size(Number(value));
  if (name.endsWith("_share")) return share(BigInt(Math.round(Number(value) * 1e6)), 1_000_000n);
  return /^-?\d+$/.test(String(value)) ? grouped(String(value)) : Number(value).toPrecision(3);
}
