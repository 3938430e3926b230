// The frame around the pages: selects the page, reads the ledger once a second, and shows whether the daemon answers.

import { RANGES, go, link, listen, pageLink, read as readAddress } from "./address.js";
import { Refused, ask, isFleet, keepToken, takeToken, why } from "./answers.js";
import { h, replace } from "./dom.js";
import { clock, lasting } from "./figures.js";
import { Looks } from "./history.js";
import { askWords, read as readLedger } from "./ledger.js";
import { poll } from "./poller.js";

/**
 * @typedef {import("./ledger.js").Ledger} Ledger
 * @typedef {(ledger: Ledger, before: Ledger | null) => void} OnLedger
 *
 * @typedef {object} Context What each page is given.
 * @property {import("./address.js").Address} address
 * @property {Looks} looks
 * @property {() => import("./ledger.js").Words} words
 * @property {(level: string, parts: import("./dom.js").Part[]) => void} say Sets the line above the page.
 * @property {(listener: OnLedger) => () => void} onLedger Calls the listener at once if there is a ledger, and for each later one.
 *
 * @typedef {{start: (root: Element, context: Context) => () => void}} Page The exports of a page's module; `start` returns the function that stops the page.
 */

const LEDGER_EVERY_MS = 1_000;

/** The pages; each module is loaded when its page is first shown. @type {Record<string, {title: string, load: () => Promise<Page>}>} */
const DAEMON_PAGES = {
  overview: { title: "Overview", load: () => import("./overview.js") },
  sockets: { title: "TCP sockets", load: () => import("./sockets.js") },
  closes: { title: "Closes", load: () => import("./closes.js") },
  flows: { title: "Flows", load: () => import("./flows.js") },
  sinks: { title: "Sinks", load: () => import("./sinks.js") },
  query: { title: "Query", load: () => import("./query.js") },
};

/** @type {typeof DAEMON_PAGES} */
const FLEET_PAGES = {
  fleet: { title: "Fleet", load: () => import("./fleet.js") },
  query: { title: "Query", load: () => import("./query.js") },
};

const [PAGES, FIRST] = isFleet ? [FLEET_PAGES, "fleet"] : [DAEMON_PAGES, "overview"];

/** @param {string} id */
const byId = (id) => /** @type {HTMLElement} */ (document.getElementById(id));
const [nav, controls, status, main] = ["pages", "controls", "status", "page"].map(byId);

const looks = new Looks();
/** @type {Set<OnLedger>} */
const listeners = new Set();
/** @type {{now: Ledger | null, before: Ledger | null}} */
const ledgers = { now: null, before: null };
/** @type {import("./ledger.js").Words | null} */
let words = null;
let failedSince = 0;
let shows = 0;
let endPage = () => {};

/** @type {Context["onLedger"]} */
function onLedger(listener) {
  listeners.add(listener);
  if (ledgers.now) listener(ledgers.now, ledgers.before);
  return () => listeners.delete(listener);
}

/** @param {AbortSignal} signal */
async function look(signal) {
  try {
    const [json, texts] = await Promise.all([ask("/ledger", { signal }), words ?? askWords()]);
    words = texts;
    const ledger = readLedger(json, texts);
    ledgers.before = ledgers.now;
    ledgers.now = ledger;
    looks.add(ledger);
    failedSince = 0;
    say("live", ["Live · ", `Weir ${ledger.version}, up ${lasting(ledger.uptimeMs)}, run ${ledger.runId}`]);
    for (const listener of listeners) listener(ledger, ledgers.before);
  } catch (error) {
    if (signal.aborted) return;
    failedSince ||= Date.now();
    if (error instanceof Refused && error.status === 401) return askForToken();
    const since = ledgers.now ? `No answer since ${clock(failedSince)} (${lasting(Date.now() - failedSince)}): ` : "No answer: ";
    say("dead", [h("strong", null, since), why(error), ledgers.now ? ". The figures are the last ones; this page goes on by itself." : "."]);
  }
}

/** Shows a form for the token that the server requires. Shows it only once, so that typing is not disturbed. */
function askForToken() {
  if (status?.querySelector("#token")) return;
  const token = h("input", { id: "token", type: "password", autocomplete: "off", size: 40 });
  say("dead", [h("form", { class: "ask", submit: (/** @type {Event} */ event) => {
    event.preventDefault();
    keepToken(token.value.trim());
    say("", ["Asking …"]);
  } }, h("label", { for: "token" }, "This daemon answers with its token alone, that of admin.token_file: "), token, h("button", null, "Use it"))]);
}

/** @param {string} level @param {import("./dom.js").Part[]} parts */
function say(level, parts) {
  if (!status) return;
  status.dataset["level"] = level;
  replace(status, parts);
}

/** Shows the page in the address. */
async function show() {
  if (!nav || !controls || !main) return;
  endPage();
  endPage = () => {};
  const address = readAddress();
  const name = Object.hasOwn(PAGES, address.page) ? address.page : FIRST;
  const page = /** @type {typeof PAGES[string]} */ (PAGES[name]);
  document.title = `${page.title} · Weir`;
  replace(nav, Object.entries(PAGES).map(([one, { title }]) =>
    h("a", { href: pageLink(one), "aria-current": one === name ? "page" : undefined }, title)));
  const options = [...RANGES.keys()].map((range) => h("option", { value: range, selected: range === address.range }, range));
  replace(controls, h("label", null, "last ", h("select", { id: "range", change: (/** @type {Event} */ event) =>
    go(link({ range: /** @type {HTMLSelectElement} */ (event.target).value })) }, options)));
  replace(main, h("h1", null, page.title));
  if (isFleet) say("", ["Fleet"]);
  const asked = (shows += 1);
  const { start } = await page.load();
  // The user may have opened another page meanwhile.
  if (asked === shows) endPage = start(main, { address, looks, words: () => words ?? {}, say, onLedger });
}

takeToken();
listen(show);
show();
if (!isFleet) poll(LEDGER_EVERY_MS, look);
