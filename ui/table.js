// Tables with header cells. Sortable columns have buttons in them.

import { h } from "./dom.js";

/** @typedef {import("./dom.js").Part} Part */

/**
 * @template Row
 * @typedef {object} Column
 * @property {string} name
 * @property {string} title
 * @property {string} [about] Shown as a tooltip of the title.
 * @property {boolean} [isNumber]
 * @property {boolean} [isName] The cell is its row's header.
 * @property {boolean} [isCode] Set in the type of code: addresses, keys.
 * @property {boolean} [isSortable]
 * @property {boolean} [isExtra] Left out on narrow screens.
 * @property {(row: Row) => Part | Part[]} cell
 * @property {(row: Row) => string | undefined} [tip] The tooltip of the cell.
 */

/**
 * @template Row
 * @typedef {object} Table
 * @property {string} caption
 * @property {Column<Row>[]} columns
 * @property {Row[]} rows
 * @property {(row: Row) => Record<string, string | undefined>} [attributes]
 * @property {string} [sort] A column's name, preceded by `-` for descending order.
 * @property {(sort: string) => void} [onSort]
 * @property {string} [empty]
 * @property {boolean} [isLong] May have many rows, all of the same height: `replaceTable` makes elements for those in sight alone.
 */

/** The long tables whose rows are still to be made. @type {WeakMap<Element, Table<any>>} */
const unmade = new WeakMap();

/**
 * @template Row
 * @param {Table<Row>} what
 */
export function table(what) {
  const { caption, columns, rows, sort = "", onSort, empty = "Nothing.", isLong } = what;
  const head = columns.map((column) => header(column, sort, onSort));
  const nothing = h("tr", null, h("td", { colspan: columns.length, class: "empty" }, empty));
  const body = h("tbody", null, rows.length === 0 ? nothing : isLong ? [] : makeRows(what));
  const made = h("div", { class: isLong ? "scroll long" : "scroll", tabindex: 0, role: "region", "aria-label": caption },
    h("table", { "aria-rowcount": isLong && rows.length + 1 }, h("caption", { class: "unseen" }, caption), h("thead", null, h("tr", null, head)), body));
  if (isLong && rows.length > 0) unmade.set(made, what);
  return made;
}

/** @param {Table<any>} what */
const makeRows = ({ columns, rows, attributes = () => ({}) }) => rows.map((row) => h("tr", attributes(row), columns.map((column) =>
  h(column.isName ? "th" : "td", { class: classes(column), scope: column.isName ? "row" : undefined, title: column.tip?.(row) }, column.cell(row)))));

/** The long tables on the page, by what they are in. @type {Map<Element, {what: Table<any>, sight: Sight}>} */
const long = new Map();

/** @param {Element} into @param {HTMLElement} made @param {Table<any>} what @param {Sight} sight */
function makeRowsInSight(into, made, what, sight) {
  const { first, last, rowPx } = sight;
  const rows = makeRows({ ...what, rows: what.rows.slice(first, last) });
  rows.forEach((row, at) => row.setAttribute("aria-rowindex", String(first + at + 2)));
  if (first > 0) rows.unshift(spacer(first * rowPx, what.columns.length));
  if (last < what.rows.length) rows.push(spacer((what.rows.length - last) * rowPx, what.columns.length));
  made.querySelector("tbody")?.replaceChildren(...rows);
  long.set(into, { what, sight });
}

/** Shows other rows where others came in sight. */
function look() {
  for (const [into, { what, sight }] of long) {
    const { first, last } = inSight(into, what.rows.length);
    if (!into.isConnected) long.delete(into);
    else if (first !== sight.first || last !== sight.last) replaceTable(into, table(what));
  }
}

// In the phase of capturing, the window hears its own scrolling and the tables'.
addEventListener("scroll", look, { capture: true, passive: true });

/** Space for rows without elements. @param {number} px @param {number} columns */
function spacer(px, columns) {
  const cell = h("td", { colspan: columns, class: "spacer" });
  cell.style.height = `${px}px`;
  return h("tr", { "aria-hidden": "true" }, cell);
}

/** Rows rendered above and below the visible ones, so that scrolling shows no gap. */
const SPARE = 1;
const ROW_PX = 29;
/** Of the window's height, as in the style sheet. */
const TALLEST = 0.7;

// Paper shows every row.
let isOnPaper = false;
for (const event of ["beforeprint", "afterprint"]) {
  addEventListener(event, () => {
    isOnPaper = event === "beforeprint";
    look();
  });
}

/** @typedef {{first: number, last: number, rowPx: number}} Sight From the first row in sight up to, without, the last. */

/**
 * Which rows of the table in `into` are visible, in the table's own window and in the browser's.
 * @param {Element} into
 * @param {number} count
 * @returns {Sight}
 */
function inSight(into, count) {
  const scroller = into.querySelector(":scope > .scroll");
  const row = scroller?.querySelector("tbody tr:not([aria-hidden])");
  const rowPx = (row instanceof HTMLElement && row.offsetHeight) || ROW_PX;
  if (isOnPaper) return { first: 0, last: count, rowPx };

  const { top } = (scroller ?? into).getBoundingClientRect();
  const [above, below] = [Math.max(0, -top), Math.max(0, Math.min(innerHeight - top, innerHeight * TALLEST))];
  const scrolled = scroller?.scrollTop ?? 0;
  const room = Math.ceil((below - Math.min(above, below)) / rowPx) + 2 * SPARE;
  const first = Math.max(0, Math.min(Math.floor((scrolled + above) / rowPx) - SPARE, count - room));
  return { first, last: Math.min(count, first + room), rowPx };
}

/**
 * @template Row
 * @param {Column<Row>} column
 * @param {string} sort
 * @param {((sort: string) => void) | undefined} onSort
 */
function header(column, sort, onSort) {
  const isSortable = onSort && column.isSortable;
  const direction = sort === column.name ? "ascending" : sort === `-${column.name}` ? "descending" : undefined;
  // Numbers are sorted in descending order first.
  const next = direction === "descending" ? column.name : direction === "ascending" || column.isNumber ? `-${column.name}` : column.name;
  const mark = direction === "ascending" ? " ▲" : direction === "descending" ? " ▼" : "";
  const content = isSortable
    ? h("button", { type: "button", "data-sort": column.name, click: () => onSort(next) }, column.title, mark && h("span", { "aria-hidden": "true" }, mark))
    : column.title;
  return h("th", { scope: "col", class: classes(column), title: column.about, "aria-sort": isSortable ? (direction ?? "none") : undefined }, content);
}

/** @param {Column<any>} column */
function classes(column) {
  const names = [column.isNumber && "number", column.isCode && "mono", column.isExtra && "extra"].filter(Boolean);
  return names.length ? names.join(" ") : undefined;
}

/**
 * Replaces a table; keyboard focus and scroll position stay.
 * @param {Element} into
 * @param {HTMLElement} next
 */
export function replaceTable(into, next) {
  const what = unmade.get(next);
  if (what) makeRowsInSight(into, next, what, inSight(into, what.rows.length));
  else long.delete(into);
  const old = into.querySelector(":scope > .scroll");
  if (!(old instanceof HTMLElement)) return into.append(next);
  const focused = document.activeElement;
  const key = focused instanceof HTMLElement && focused !== old && old.contains(focused) ? (focused.dataset["sort"] ?? focused.dataset["key"]) : undefined;

  // The scrolling element is kept, so that dragging its scrollbar is not interrupted.
  old.setAttribute("aria-label", next.getAttribute("aria-label") ?? "");
  takeOver(old, next, DEPTH);
  if (key === undefined) return;
  const again = [...old.querySelectorAll("[data-sort], [data-key]")].find((one) =>
    one instanceof HTMLElement && (one.dataset["sort"] === key || one.dataset["key"] === key));
  if (again instanceof HTMLElement) again.focus({ preventScroll: true });
}

/**
 * The same where a table is all that there is: words that stood in its place go.
 * @param {Element} into
 * @param {HTMLElement} next
 */
export function showTable(into, next) {
  for (const one of into.querySelectorAll(":scope > :not(.scroll)")) one.remove();
  replaceTable(into, next);
}

/** From the scrolling element down to its cells. */
const DEPTH = 4;

/**
 * Replaces what differs, so that the browser lays out and draws no cell that stays the same.
 * @param {Element} old
 * @param {Element} next
 * @param {number} depth Elements further down are replaced whole.
 */
function takeOver(old, next, depth) {
  const [olds, nexts] = [[...old.children], [...next.children]];
  olds.slice(nexts.length).forEach((one) => one.remove());
  nexts.forEach((one, at) => {
    const was = olds[at];
    if (!was) old.append(one);
    else if (was.isEqualNode(one)) return;
    else if (depth > 1 && was.cloneNode(false).isEqualNode(one.cloneNode(false))) takeOver(was, one, depth - 1);
    else was.replaceWith(one);
  });
}
