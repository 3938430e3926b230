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
 * @param {object} what
 * @param {string} what.caption
 * @param {Column<Row>[]} what.columns
 * @param {Row[]} what.rows
 * @param {(row: Row) => Record<string, string | undefined>} [what.attributes]
 * @param {string} [what.sort] A column's name, preceded by `-` for descending order.
 * @param {(sort: string) => void} [what.onSort]
 * @param {string} [what.empty]
 * @param {Hidden} [what.hidden]
 */
export function table({ caption, columns, rows, attributes = () => ({}), sort = "", onSort, empty = "Nothing.", hidden }) {
  const head = columns.map((column) => header(column, sort, onSort));
  const body = rows.map((row) => h("tr", attributes(row), columns.map((column) =>
    h(column.isName ? "th" : "td", { class: classes(column), scope: column.isName ? "row" : undefined, title: column.tip?.(row) }, column.cell(row)))));
  if (hidden) {
    body.forEach((row, at) => row.setAttribute("aria-rowindex", String(hidden.before + at + 2)));
    if (hidden.before > 0) body.unshift(spacer(hidden.before * hidden.rowPx, columns.length));
    if (hidden.after > 0) body.push(spacer(hidden.after * hidden.rowPx, columns.length));
  }
  const count = hidden && hidden.before + rows.length + hidden.after + 1;
  const nothing = h("tr", null, h("td", { colspan: columns.length, class: "empty" }, empty));
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    h("table", { "aria-rowcount": count }, h("caption", { class: "unseen" }, caption),
      h("thead", null, h("tr", null, head)), h("tbody", null, rows.length ? body : nothing)));
}

/**
 * @typedef {object} Hidden Rows of a long table that are out of sight and have no elements.
 * @property {number} before
 * @property {number} after
 * @property {number} rowPx
 */

/** Space for rows without elements. @param {number} px @param {number} columns */
function spacer(px, columns) {
  const cell = h("td", { colspan: columns, class: "spacer" });
  cell.style.height = `${px}px`;
  return h("tr", { "aria-hidden": "true" }, cell);
}

/** Rows rendered above and below the visible ones, so that a short scroll shows no gap. */
const SPARE = 2;
const ROW_PX = 29;
/** Of the window's height, as in the style sheet. */
const TALLEST = 0.8;

// Paper shows every row.
let isOnPaper = false;
addEventListener("beforeprint", () => { isOnPaper = true; });
addEventListener("afterprint", () => { isOnPaper = false; });

/**
 * Which rows of the table in `body` are visible, in the table's own window and in the browser's.
 * @param {Element} body
 * @param {number} count
 */
export function inSight(body, count) {
  const scroller = body.querySelector(":scope > .scroll");
  const row = body.querySelector("tbody tr:not([aria-hidden])");
  const rowPx = (row instanceof HTMLElement && row.offsetHeight) || ROW_PX;
  if (isOnPaper) return { first: 0, last: count, hidden: { before: 0, after: 0, rowPx } };

  const { top } = (scroller ?? body).getBoundingClientRect();
  const [above, below] = [Math.max(0, -top), Math.max(0, Math.min(innerHeight - top, innerHeight * TALLEST))];
  const scrolled = scroller?.scrollTop ?? 0;
  const room = Math.ceil((below - Math.min(above, below)) / rowPx) + 2 * SPARE;
  const first = Math.max(0, Math.min(Math.floor((scrolled + above) / rowPx) - SPARE, count - room));
  const last = Math.min(count, first + room);
  return { first, last, hidden: { before: first, after: count - last, rowPx } };
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
