// TCP sockets, sorted and limited by the server: which are slow, retransmit, or are held up.

import { go, link, note } from "./address.js";
import { Refused, ask, why } from "./answers.js";
import { startConnection } from "./connection.js";
import { fill, h, lines, panel, replace, s } from "./dom.js";
import { bitsPerSecond, endpoint, grouped, microseconds, size } from "./figures.js";
import { drawHeat } from "./heat.js";
import { Seen } from "./history.js";
import { poll } from "./poller.js";
import { storedPanel } from "./stored.js";
import { replaceTable, table } from "./table.js";

/** @typedef {import("./main.js").Context} Context */

const EVERY_MS = 1_000;
const LIMIT = 200;
/** Groups that are shown; the row for all others is the sum of the rest. */
const GROUPS_MAX = 20;
const FIELDS = "cookie,state,src_address,src_port,dst_address,dst_port,rtt_us,rttvar_us,min_rtt_us,snd_cwnd_segments,total_retrans_segments," +
  "bytes_sent,bytes_received,bytes_retrans,send_queue,receive_queue,busy_time_us,rwnd_limited_us,sndbuf_limited_us,delivery_rate_bytes_per_sec," +
  "systemd_unit,container_id,netns_name,netns_inode,congestion_algorithm";

/** The fields by which sockets can be counted. */
const GROUPS = [["dst_network", "network of the peer"], ["dst_address", "peer"], ["dst_port", "port of the peer"], ["src_port", "own port"], ["src_address", "own address"],
  ["systemd_unit", "unit"], ["container_id", "container"], ["netns", "namespace"], ["state", "state"], ["congestion_algorithm", "congestion control"]];

/** @param {import("./address.js").Address} address */
function path({ filter, sort, group }, limit = LIMIT) {
  const query = new URLSearchParams({ sort: sort || "-rtt_us", group: group || "dst_network", limit: String(limit), fields: FIELDS });
  if (filter) query.set("filter", filter);
  return `/sockets?${query}`;
}

/** @param {Element} root @param {Context} context */
export function start(root, context) {
  const { address } = context;
  if (address.pick) return startConnection(root, context);
  const panels = {
    heat: panel({ id: "heat", title: "When did round-trip times change?" }),
    groups: panel({ id: "groups", title: "Is it one peer, one port, one unit, or all?" }),
    sockets: panel({ id: "sockets", title: "Which sockets are worst?", className: "wide", links: [["JSON", path(address)]] }),
  };
  const said = h("p", { class: "said", role: "status" });
  const stored = [
    storedPanel({ id: "peers", title: "Which peers were slowest in the range?", name: "worst-peers", range: address.range }),
    storedPanel({ id: "services", title: "Which services were slowest in the range?", name: "worst-services", range: address.range }),
  ];
  fill(root, form(address), said, h("div", { class: "panels" }, [...Object.values(panels), ...stored].map((one) => one.root)));
  /** @type {Seen<import("./heat.js").Column>} */
  const columns = new Seen();
  const stop = poll(EVERY_MS, async (signal) => {
    try {
      const answer = await ask(path(address), { signal, timeoutMs: 8_000 });
      const timeMs = Number(BigInt(answer.time_unix_ns) / 1_000_000n);
      columns.keep({ timeMs, bands: answer.rtt_us });
      replace(said, words(answer));
      // Sorting changes the query without a new page.
      panels.sockets.head.querySelector("a")?.setAttribute("href", path(address));
      panels.heat.show(() => drawHeat(panels.heat.body, columns.all, { title: "Round-trip times", fromMs: Math.min(columns.all[0]?.timeMs ?? 0, timeMs - 30_000), toMs: timeMs + EVERY_MS }));
      panels.groups.show(() => replaceTable(panels.groups.body, groupTable(answer, address)));
      panels.sockets.show(() => replaceTable(panels.sockets.body, socketTable(answer, address)));
    } catch (error) {
      if (!signal.aborted) replace(said, refusal(error));
    }
  });
  return () => {
    stop();
    for (const one of [...Object.values(panels), ...stored]) one.stop();
  };
}

/** @param {any} answer */
function words({ matched, shown, namespaces, namespaces_failed: failed, truncated }) {
  return [h("b", { id: "matched" }, grouped(matched)), ` sockets pass in ${grouped(namespaces)} ${namespaces === 1 ? "namespace" : "namespaces"}; `,
    h("b", { id: "shown" }, grouped(shown)), " are shown.",
    failed > 0 && ` ${grouped(failed)} namespaces could not be read.`, truncated && " The walk took too long: this is a part."];
}

/** @param {unknown} error The error for a query that the server does not answer. */
function refusal(error) {
  if (error instanceof Refused && error.status === 400) return h("pre", { class: "mistake" }, lines(error.message));
  return h("span", { class: "mistake" }, why(error));
}

/** @param {import("./address.js").Address} address */
function form(address) {
  const filter = h("input", { id: "filter", name: "filter", value: address.filter, size: 40, spellcheck: "false", autocomplete: "off", placeholder: "dport = :443 and rtt > 100ms" });
  const group = h("select", { id: "group", change: () => go(link({ group: group.value })) },
    GROUPS.map(([value, text]) => h("option", { value, selected: value === (address.group || "dst_network") }, text)));
  return h("form", { class: "ask", role: "search", submit: (/** @type {Event} */ event) => {
    event.preventDefault();
    go(link({ filter: filter.value.trim() }));
  } }, h("label", { for: "filter" }, "filter "), filter, h("button", null, "Apply"),
    h("label", { for: "group" }, "count by "), group);
}

/** @param {any} answer @param {import("./address.js").Address} address */
function groupTable(answer, address) {
  const by = GROUPS.find(([value]) => value === (address.group || "dst_network"))?.[1] ?? "";
  const rows = answer.groups.slice(0, GROUPS_MAX).map((/** @type {any} */ group) => ({ ...group, name: group.key || "unknown" }));
  const other = [...answer.groups.slice(GROUPS_MAX), answer.other].reduce(together);
  if (other.sockets > 0) rows.push({ ...other, name: "other" });
  const most = Math.max(1, ...rows.map((/** @type {any} */ row) => row.sockets));
  return table({
    caption: `Sockets by ${by}`,
    rows,
    isLong: true,
    empty: "No socket passes.",
    columns: [
      { name: "name", title: by, isName: true, cell: (row) => row.name },
      { name: "bar", title: "share", isExtra: true, cell: (row) => s("svg", { class: "bar", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" }, s("rect", { class: "delivered", width: (100 * row.sockets) / most, height: 10 })) },
      { name: "sockets", title: "sockets", isNumber: true, cell: (row) => grouped(row.sockets) },
      { name: "rtt", title: "longest RTT", isNumber: true, cell: (row) => microseconds(row.rtt_us_max) },
      { name: "sent", title: "sent", isNumber: true, isExtra: true, cell: (row) => size(BigInt(row.bytes_sent)) },
      { name: "retransmitted", title: "retransmitted", isNumber: true, cell: (row) => part(row.bytes_retrans, row.bytes_sent) },
    ],
  });
}

/** Two groups as one. @param {any} a @param {any} b */
const together = (a, b) => ({
  sockets: a.sockets + b.sockets,
  bytes_sent: BigInt(a.bytes_sent) + BigInt(b.bytes_sent),
  bytes_retrans: BigInt(a.bytes_retrans) + BigInt(b.bytes_retrans),
  rtt_us_max: Math.max(a.rtt_us_max, b.rtt_us_max),
});

/** @param {any} answer @param {import("./address.js").Address} address */
function socketTable(answer, address) {
  return table({
    caption: "Sockets",
    rows: answer.sockets,
    isLong: true,
    empty: "No socket passes.",
    sort: address.sort || "-rtt_us",
    onSort: (sort) => {
      note({ sort });
      address.sort = sort;
    },
    attributes: (row) => ({ "data-cookie": String(row.cookie) }),
    columns: /** @type {import("./table.js").Column<any>[]} */ ([
      { name: "local", title: "local", isName: true, isCode: true, cell: (row) => h("a", { href: link({ pick: `${row.cookie}.${row.netns_inode ?? 0}` }), "data-key": String(row.cookie) }, endpoint(row.src_address, row.src_port)) },
      { name: "dst_port", title: "peer", isCode: true, isSortable: true, cell: (row) => endpoint(row.dst_address, row.dst_port) },
      { name: "whose", title: "owner", cell: (row) => row.process_name ?? row.systemd_unit ?? row.container_id?.slice(0, 12) ?? row.netns_name ?? "" },
      { name: "state", title: "state", isExtra: true, cell: (row) => row.state },
      { name: "rtt_us", title: "RTT", isNumber: true, isSortable: true, about: "smoothed round-trip time ± its deviation", cell: (row) => (row.rtt_us ? `${microseconds(row.rtt_us)} ± ${microseconds(row.rttvar_us ?? 0)}` : "–") },
      { name: "rtt_ratio", title: "× min", isNumber: true, isSortable: true, about: "round-trip time as a multiple of the smallest", cell: (row) => (row.rtt_us && row.min_rtt_us ? (row.rtt_us / row.min_rtt_us).toFixed(1) : "–") },
      { name: "snd_cwnd_segments", title: "cwnd", isNumber: true, isSortable: true, isExtra: true, cell: (row) => number(row.snd_cwnd_segments) },
      { name: "total_retrans_segments", title: "retrans", isNumber: true, isSortable: true, about: "segments retransmitted so far", cell: (row) => number(row.total_retrans_segments) },
      { name: "bytes_retrans", title: "retransmitted", isNumber: true, isSortable: true, isExtra: true, about: "share of the bytes sent that were sent again", cell: (row) => part(row.bytes_retrans ?? 0, row.bytes_sent ?? 0) },
      { name: "bytes_sent", title: "sent", isNumber: true, isSortable: true, cell: (row) => bytes(row.bytes_sent), tip: (row) => digits(row.bytes_sent) },
      { name: "bytes_received", title: "received", isNumber: true, isSortable: true, cell: (row) => bytes(row.bytes_received), tip: (row) => digits(row.bytes_received) },
      { name: "send_queue", title: "send-Q", isNumber: true, isSortable: true, isExtra: true, cell: (row) => number(row.send_queue) },
      { name: "receive_queue", title: "recv-Q", isNumber: true, isSortable: true, isExtra: true, cell: (row) => number(row.receive_queue) },
      { name: "rwnd_limited_us", title: "held up by", isNumber: true, isSortable: true, about: "shares of the time with data to send; sorted by the peer's window", cell: (row) => heldUp(row) },
      { name: "delivery_rate_bytes_per_sec", title: "rate", isNumber: true, isSortable: true, isExtra: true, cell: (row) => (row.delivery_rate_bytes_per_sec ? bitsPerSecond(Number(row.delivery_rate_bytes_per_sec) * 8) : "–") },
    ]),
  });
}

/** @param {number | bigint | undefined} value */
const number = (value) => (value === undefined ? "–" : grouped(value));
/** @param {number | bigint | undefined} value */
const bytes = (value) => (value === undefined ? "–" : size(value));
/** @param {number | bigint | undefined} value */
const digits = (value) => (value === undefined ? undefined : `${grouped(value)} bytes`);

/** @param {string | number | bigint} some @param {string | number | bigint} all */
function part(some, all) {
  const [part, whole] = [Number(some), Number(all)];
  if (!(whole > 0) || part === 0) return "0%";
  return part / whole < 0.0001 ? "<0.01%" : `${((100 * part) / whole).toFixed(2)}%`;
}

/** @param {any} row */
function heldUp(row) {
  const busy = Number(row.busy_time_us ?? 0);
  const shares = [["peer", row.rwnd_limited_us], ["buffer", row.sndbuf_limited_us]]
    .map(([name, us]) => ({ name, share: busy > 0 ? Math.round((100 * Number(us ?? 0)) / busy) : 0 })).filter(({ share }) => share > 0);
  return shares.map(({ name, share }) => `${name} ${share}%`).join(" ") || "–";
}
