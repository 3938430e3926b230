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
 * @property {(listener: OnLedger, onSilence?: (why: string) => void) => () => void} onLedger Calls the listener at once if there is a ledger, and for each later one; and the other one where there is no answer.
 *
 * @typedef {{start: (root: Element, context: Context) => () => void}} Page The exports of a page's module; `start` returns the function that stops the page.
 */

const LEDGER_EVERY_MS = 1_000;
const DAEMON_EVERY_MS = 30_000;

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
const [nav, controls, status, notice, main] = ["pages", "controls", "status", "notice", "page"].map(byId);

const looks = new Looks();
/** @type {Map<OnLedger, (why: string) => void>} */
const listeners = new Map();
/** @type {{now: Ledger | null, before: Ledger | null}} */
const ledgers = { now: null, before: null };
/** @type {import("./ledger.js").Words | null} */
let words = null;
let failedSince = 0;
let silence = "";
/** What the daemon says about itself, and when it was asked. @type {{host: string, address: string | null, config_file: string | null, hidden: {what: string, fix: string} | null} | null} */
let daemon = null;
let daemonAskedAt = -Infinity;
let title = "";
let shows = 0;
let endPage = () => {};

/** @type {Context["onLedger"]} */
function onLedger(listener, onSilence = () => {}) {
  listeners.set(listener, onSilence);
  if (ledgers.now) listener(ledgers.now, ledgers.before);
  if (silence) onSilence(silence);
  return () => listeners.delete(listener);
}

/** @param {AbortSignal} signal */
async function look(signal) {
  try {
    const [json, texts] = await Promise.all([ask("/ledger", { signal }), words ?? askWords(), introduce(signal)]);
    words = texts;
    const ledger = readLedger(json, texts);
    ledgers.before = ledgers.now;
    ledgers.now = ledger;
    looks.add(ledger);
    // Another life may be another configuration.
    if (ledgers.before && ledgers.before.runId !== ledger.runId) daemonAskedAt = -Infinity;
    failedSince = 0;
    silence = "";
    const who = daemon ? [daemon.host, daemon.address, daemon.config_file].filter(Boolean).map((one) => `${one} · `).join("") : "";
    say("live", ["Live · ", `${who}Weir ${ledger.version}, up ${lasting(ledger.uptimeMs)}, run ${ledger.runId}`]);
    for (const listener of listeners.keys()) listener(ledger, ledgers.before);
  } catch (error) {
    if (signal.aborted) return;
    failedSince ||= Date.now();
    silence = why(error);
    for (const onSilence of listeners.values()) onSilence(silence);
    if (error instanceof Refused && error.status === 401) return askForToken(silence);
    const since = ledgers.now ? `No answer since ${clock(failedSince)} (${lasting(Date.now() - failedSince)}): ` : "No answer: ";
    say("dead", [h("strong", null, since), why(error), ledgers.now ? ". The figures are the last ones; this page goes on by itself." : "."]);
  }
}

/** Asks the daemon who it is and what it does not show, once in a while: a reload may change it. @param {AbortSignal} signal */
async function introduce(signal) {
  if (performance.now() - daemonAskedAt < DAEMON_EVERY_MS) return;
  daemonAskedAt = performance.now();
  daemon = await ask("/daemon", { signal }).catch(() => daemon);
  showTitle();
  if (!notice) return;
  const hidden = daemon?.hidden;
  notice.hidden = !hidden;
  if (hidden) replace(notice, `Not shown to this browser: ${hidden.what}. To see it, run `, h("code", null, hidden.fix), ` on ${daemon?.host} as root or as the daemon's user, and open the link that it prints.`);
}

/** The page, and whose it is. */
const showTitle = () => { document.title = [title, daemon?.host, "Weir"].filter(Boolean).join(" · "); };

/** Shows a form for the token that the server requires. Shows it only once, so that typing is not disturbed. @param {string} why */
function askForToken(why) {
  if (status?.querySelector("#token") && status.dataset["why"] === why) return;
  const token = h("input", { id: "token", type: "password", autocomplete: "off", size: 40 });
  say("dead", [h("form", { class: "ask", submit: (/** @type {Event} */ event) => {
    event.preventDefault();
    keepToken(token.value.trim());
    say("", ["Asking …"]);
  } }, h("label", { for: "token" }, `${why}. Open the link that `, h("code", null, "weir ui"), " prints on the daemon's host, or enter the token: "), token, h("button", null, "Use it"))]);
  if (status) status.dataset["why"] = why;
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
  title = page.title;
  showTitle();
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
