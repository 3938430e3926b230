// The address holds the state of the view, so that a link or a reload shows the same view.

/**
 * @typedef {object} Address
 * @property {string} page
 * @property {string} range The time range back from now, such as `1h`.
 * @property {string} filter
 * @property {string} group
 * @property {string} sort A column, preceded by `-` for descending order.
 * @property {string} pick The selected item of the page: a connection, a definition of flows.
 * @property {string} sql
 * @property {string} host Of a fleet: the host that is shown; all of them if empty.
 */

/** @type {Address} */
const DEFAULTS = { page: "overview", range: "15m", filter: "", group: "", sort: "", pick: "", sql: "", host: "" };

/** The selectable ranges, in seconds. */
export const RANGES = new Map([["15m", 900], ["1h", 3600], ["6h", 21600], ["24h", 86400]]);

const NAMES = /** @type {(keyof Address)[]} */ (Object.keys(DEFAULTS));

/** @returns {Address} */
export function read() {
  const query = new URLSearchParams(location.search);
  const address = { ...DEFAULTS };
  for (const name of NAMES) address[name] = query.get(name) ?? DEFAULTS[name];
  if (!RANGES.has(address.range)) address.range = DEFAULTS.range;
  return address;
}

/**
 * The address with some of its values changed, as a link.
 * @param {Partial<Address>} change
 */
export function link(change) {
  const next = { ...read(), ...change };
  const query = new URLSearchParams();
  for (const name of NAMES) if (next[name] !== DEFAULTS[name]) query.set(name, next[name]);
  const text = query.toString();
  return text ? `?${text}` : location.pathname;
}

/**
 * A link to another page, which keeps only the range and the host.
 * @param {string} page
 * @param {Partial<Address>} [more]
 */
export function pageLink(page, more = {}) {
  const { range, host } = read();
  return link({ ...DEFAULTS, range, host, page, ...more });
}

/** @type {() => void} */
let onChange = () => {};

/** @param {() => void} listener Called when the user opens another page or view. */
export function listen(listener) {
  onChange = listener;
  addEventListener("popstate", listener);
  document.addEventListener("click", (event) => {
    const from = event.target instanceof Element ? event.target.closest("a") : null;
    const isPlain = event.button === 0 && !(event.ctrlKey || event.metaKey || event.shiftKey || event.altKey);
    if (!from || !isPlain || from.target || from.origin !== location.origin || from.pathname !== location.pathname || from.hash) return;
    event.preventDefault();
    go(from.search || location.pathname);
  });
}

/** @param {string} to Shows this address, and adds it to the browser's history. */
export function go(to) {
  history.pushState(null, "", to);
  onChange();
}

/**
 * Changes the address without a new entry in the browser's history, for what is typed or sorted.
 * @param {Partial<Address>} change
 */
export function note(change) {
  history.replaceState(null, "", link(change));
}
