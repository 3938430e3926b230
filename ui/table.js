// Tables with real headers. Those that can be sorted have buttons in them.

import { h } from "./dom.js";

/** @typedef {import("./dom.js").Part} Part */

/**
 * @template Row
 * @typedef {object} Column
 * @property {string} name
 * @property {string} title
 * @property {string} [about] Shown when one points at the title.
 * @property {boolean} [isNumber]
 * @property {boolean} [isName] The cell is the header of its row.
 * @property {boolean} [isSortable]
 * @property {boolean} [isExtra] Left out where there is little room.
 * @property {(row: Row) => Part | Part[]} cell
 */

/**
 * @template Row
 * @param {object} what
 * @param {string} what.caption
 * @param {Column<Row>[]} what.columns
 * @param {Row[]} what.rows
 * @param {(row: Row) => Record<string, string | undefined>} [what.attributes]
 * @param {string} [what.sort] A column's name, with `-` for the largest first.
 * @param {(sort: string) => void} [what.onSort]
 * @param {string} [what.empty]
 */
export function table({ caption, columns, rows, attributes = () => ({}), sort = "", onSort, empty = "Nothing." }) {
  const head = columns.map((column) => header(column, sort, onSort));
  const body = rows.map((row) => h("tr", attributes(row), columns.map((column) =>
    h(column.isName ? "th" : "td", { class: classes(column), scope: column.isName ? "row" : undefined }, column.cell(row)))));
  const nothing = h("tr", null, h("td", { colspan: columns.length, class: "empty" }, empty));
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    h("table", null, h("caption", { class: "unseen" }, caption),
      h("thead", null, h("tr", null, head)), h("tbody", null, body.length ? body : nothing)));
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
  // Numbers are looked at from the largest on.
  const next = direction === "descending" ? column.name : direction === "ascending" || column.isNumber ? `-${column.name}` : column.name;
  const mark = direction === "ascending" ? " ▲" : direction === "descending" ? " ▼" : "";
  const content = isSortable
    ? h("button", { type: "button", "data-sort": column.name, click: () => onSort(next) }, column.title, h("span", { "aria-hidden": "true" }, mark))
    : column.title;
  return h("th", { scope: "col", class: classes(column), title: column.about, "aria-sort": isSortable ? (direction ?? "none") : undefined }, content);
}

/** @param {Column<any>} column */
function classes(column) {
  const names = [column.isNumber && "number", column.isExtra && "extra"].filter(Boolean);
  return names.length ? names.join(" ") : undefined;
}

/**
 * Puts a new table in the place of the old one, and leaves the keyboard and the scrolled position where they were.
 * @param {Element} into
 * @param {HTMLElement} next
 */
export function replaceTable(into, next) {
  const old = into.querySelector(":scope > .scroll");
  const focused = document.activeElement;
  const sort = focused instanceof HTMLElement && old?.contains(focused) ? (focused.dataset["sort"] ?? focused.dataset["key"]) : undefined;
  const isScroller = focused === old && old !== null;
  const [left, top] = [old?.scrollLeft ?? 0, old?.scrollTop ?? 0];
  if (old) old.replaceWith(next);
  else into.append(next);
  next.scrollLeft = left;
  next.scrollTop = top;
  if (isScroller) next.focus({ preventScroll: true });
  else if (sort !== undefined) {
    const again = [...next.querySelectorAll("[data-sort], [data-key]")].find((one) =>
      one instanceof HTMLElement && (one.dataset["sort"] === sort || one.dataset["key"] === sort));
    if (again instanceof HTMLElement) again.focus({ preventScroll: true });
  }
}
