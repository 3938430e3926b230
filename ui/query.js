// Queries on the history of this machine, or of a fleet: SQL, and named queries.

import { note, link } from "./address.js";
import { Refused, ask, isFleet, why } from "./answers.js";
import { fill, h, lines, panel, replace } from "./dom.js";
import { grouped, plural } from "./figures.js";
import { askStore, namedPath, noHistory, sqlPath } from "./history.js";
import { replaceTable, table } from "./table.js";

/** @typedef {import("./main.js").Context} Context */

const EXAMPLE = isFleet
  ? "select host, count() as closed from {closes} group by host order by closed desc"
  : "select origin, target, reason, sum(count) as lost from ledger where way = 'dropped' group by origin, target, reason order by lost desc";
const ROWS = "1000";

/** @param {Element} root @param {Context} context */
export function start(root, context) {
  const { address } = context;
  const ended = new AbortController();
  const ofHost = address.host ? { host: address.host } : {};
  const asked = panel({ id: "ask", title: "What do you want to know?", className: "wide" });
  const answered = panel({ id: "answer", title: "Answer", className: "wide" });
  const said = h("p", { class: "said", role: "status" });
  const statement = h("textarea", { id: "sql", rows: 4, spellcheck: "false", placeholder: EXAMPLE });
  statement.value = address.sql;
  const named = h("div", { class: "named" });
  const run = () => {
    const sql = statement.value.trim();
    note({ sql, pick: "" });
    if (sql) show(sqlPath(sql, { limit: ROWS, ...ofHost }));
  };
  fill(asked.body, h("form", { submit: (/** @type {Event} */ event) => {
    event.preventDefault();
    run();
  }, keydown: (/** @type {KeyboardEvent} */ event) => event.key === "Enter" && event.ctrlKey && run() },
    h("label", { for: "sql" }, "SQL; it can only read. Ctrl-Enter runs it."), statement, h("button", null, "Run")), named);
  fill(root, h("div", { class: "panels" }, asked.root, answered.root));
  answered.body.append(said);

  /** @param {string} path */
  async function show(path) {
    replace(said, "Asking …");
    try {
      const answer = await askStore(path, ended.signal);
      if (!answer) return replace(said, noHistory());
      replace(said, `${plural(answer.row_count, "row", "rows")} in ${grouped(Math.round(answer.elapsed_ms))} ms${answer.truncated ? "; there are more" : ""}. `, h("a", { href: path, target: "_blank", rel: "noopener" }, "JSON"));
      replaceTable(answered.body, answerTable(answer));
    } catch (error) {
      if (!ended.signal.aborted) replace(said, h("pre", { class: "mistake" }, lines(why(error))));
    }
  }

  list(named, ended.signal);
  if (address.sql) show(sqlPath(address.sql, { limit: ROWS, ...ofHost }));
  else if (address.pick) show(namedPath(address.pick, { since: address.range, ...ofHost }));
  return () => {
    ended.abort();
    asked.stop();
    answered.stop();
  };
}

/** @param {Element} into @param {AbortSignal} signal */
async function list(into, signal) {
  try {
    const answer = await ask("/query", { signal });
    const all = Array.isArray(answer) ? answer : (answer.queries ?? []);
    replace(into, h("h3", null, "Named queries"), h("ul", null, all.filter((/** @type {any} */ one) => !needsMore(one)).map((/** @type {any} */ one) =>
      h("li", null, h("a", { href: link({ pick: one.name, sql: "" }) }, one.name), one.title ? `: ${one.title}` : ""))));
  } catch (error) {
    if (!signal.aborted) replace(into, error instanceof Refused && error.status === 404 ? noHistory() : h("p", { class: "mistake" }, why(error)));
  }
}

/** A query about one connection is made from its page. @param {any} named */
const needsMore = (named) => named.name === "connection";

/** @param {import("./history.js").Answer} answer */
const answerTable = (answer) => table({
  caption: "Rows of the answer",
  rows: answer.rows,
  isLong: true,
  empty: "No rows.",
  columns: answer.columns.map(({ name, unit }, at) => ({
    name, title: unit ? `${name} (${unit})` : name,
    isNumber: answer.rows.every((row) => row[at] === null || typeof row[at] === "number" || /^-?\d+$/.test(String(row[at]))),
    cell: (/** @type {unknown[]} */ row) => (row[at] === null || row[at] === undefined ? "" : String(row[at])),
  })),
});
