// One connection: its current state, and its round-trip time, window, retransmissions and limits over time.

import { link } from "./address.js";
import { ask, isHidden, why } from "./answers.js";
import { drawChart } from "./chart.js";
import { fill, h, panel, replace } from "./dom.js";
import { bitsPerSecond, endpoint, grouped, microseconds, perSecond, short, size } from "./figures.js";
import { STORE_EVERY_MS, Seen, askStore, milliseconds, missing, namedPath, noHistory, pairs, records } from "./history.js";
import { poll } from "./poller.js";

/**
 * @typedef {import("./main.js").Context} Context
 * @typedef {{timeMs: number, socket: Record<string, any>}} Moment
 */

/** Most records from the history. */
const ROWS = 5_000;

/** @param {Element} root @param {Context} context */
export function startConnection(root, context) {
  const [cookie = "0", namespace = "0"] = context.address.pick.split(".").map((text) => (/^\d+$/.test(text) ? text : "0"));
  const live = `/sockets?${new URLSearchParams({ filter: `state all cookie = ${cookie}`, sort: "-rtt_us", limit: "200" })}`;
  const past = namedPath("connection", { cookie, namespace, since: context.address.range, limit: String(ROWS) });
  const panels = {
    now: panel({ id: "now", title: "Connection", links: [["JSON", live]], className: "wide" }),
    rtt: panel({ id: "rtt", title: "Is the path slow?", links: [["JSON", past]] }),
    window: panel({ id: "window", title: "Congestion window", links: [["JSON", past]] }),
    again: panel({ id: "again", title: "Retransmissions", links: [["JSON", past]] }),
    limits: panel({ id: "limits", title: "Who holds it up?", links: [["JSON", past]] }),
  };
  const said = h("p", { class: "said", role: "status" });
  const note = h("div", null);
  fill(root, h("p", null, h("a", { href: link({ pick: "" }) }, "← all sockets")), said,
    h("div", { class: "panels" }, Object.values(panels).map((one) => one.root)), note);

  /** @type {Seen<Moment>} */
  const seen = new Seen();
  /** @type {Moment[]} */
  let before = [];
  const draw = () => {
    const first = seen.all[0]?.timeMs ?? Infinity;
    showLines(panels, [...before.filter((one) => one.timeMs < first), ...seen.all]);
  };

  const stopLive = poll(1_000, async (signal) => {
    try {
      const answer = await ask(live, { signal, timeoutMs: 8_000 });
      const socket = answer.sockets.find((/** @type {any} */ one) => namespace === "0" || String(one.netns_inode ?? 0) === namespace);
      replace(said, socket ? "" : seen.all.length > 0 ? "It is closed: these are the last figures." : "No socket with this number is open.");
      if (!socket) return;
      seen.keep({ timeMs: milliseconds(answer.time_unix_ns), socket });
      panels.now.show(() => replace(panels.now.body, about(socket)));
      draw();
    } catch (error) {
      if (!signal.aborted) replace(said, why(error));
    }
  });
  const stopPast = poll(STORE_EVERY_MS, async (signal) => {
    try {
      const answer = await askStore(past, signal);
      replace(note, answer ? "" : noHistory());
      for (const one of [panels.rtt, panels.window, panels.again, panels.limits]) one.lacks(missing(answer, ROWS));
      before = answer ? records(answer).map((socket) => ({ timeMs: milliseconds(socket["time_unix_ns"]), socket })).sort((a, b) => a.timeMs - b.timeMs) : [];
      draw();
    } catch (error) {
      if (!signal.aborted && !isHidden(error)) replace(note, h("p", null, `Its history is not shown: ${why(error)}.`));
    }
  });
  return () => {
    stopLive();
    stopPast();
    for (const one of Object.values(panels)) one.stop();
  };
}

/** @param {Record<string, any>} socket */
function about(socket) {
  /** @type {[string, string | undefined][]} */
  const facts = [
    ["state", socket["state"]], ["owner", socket["process_name"] ?? socket["systemd_unit"] ?? socket["container_id"] ?? socket["cgroup_path"]], ["namespace", socket["netns_name"] ?? socket["netns_inode"]],
    ["RTT", rtt(socket)], ["smallest RTT", !socket["min_rtt_us"] ? undefined : microseconds(socket["min_rtt_us"])],
    ["congestion window", !socket["snd_cwnd_segments"] ? undefined : `${grouped(socket["snd_cwnd_segments"])} segments of ${grouped(socket["snd_mss_bytes"] ?? 0)} bytes`],
    ["congestion control", socket["congestion_algorithm"]], ["path MTU", !socket["pmtu_bytes"] ? undefined : `${grouped(socket["pmtu_bytes"])} bytes`],
    ["sent", socket["bytes_sent"] !== undefined ? `${grouped(socket["bytes_sent"])} bytes` : undefined], ["received", socket["bytes_received"] !== undefined ? `${grouped(socket["bytes_received"])} bytes` : undefined],
    ["retransmitted", socket["total_retrans_segments"] !== undefined ? `${grouped(socket["total_retrans_segments"])} segments, ${grouped(socket["bytes_retrans"] ?? 0)} bytes` : undefined],
    ["delivery rate", !socket["delivery_rate_bytes_per_sec"] ? undefined : bitsPerSecond(Number(socket["delivery_rate_bytes_per_sec"]) * 8)],
    ["queues", `${size(socket["send_queue"] ?? 0)} to send, ${size(socket["receive_queue"] ?? 0)} to read`],
  ];
  return [h("h3", { class: "mono" }, `${endpoint(socket["src_address"], socket["src_port"])} → ${endpoint(socket["dst_address"], socket["dst_port"])}`),
    h("dl", { class: "facts" }, facts.filter(([, value]) => value !== undefined && value !== null).map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, String(value)))))];
}

/** @param {Record<string, any>} socket */
const rtt = (socket) => (socket["rtt_us"] ? `${microseconds(socket["rtt_us"])} ± ${microseconds(socket["rttvar_us"] ?? 0)}` : undefined);

/** @param {Record<string, ReturnType<typeof panel>>} panels @param {Moment[]} all */
function showLines(panels, all) {
  const [fromMs, toMs] = [Math.min(all[0]?.timeMs ?? 0, (all.at(-1)?.timeMs ?? 0) - 30_000), all.at(-1)?.timeMs ?? 0];
  const level = (/** @type {string} */ name) => all.map(({ timeMs, socket }) => ({ timeMs, value: socket[name] === undefined || socket[name] === null ? null : Number(socket[name]) }));
  const each = (/** @type {string} */ name) => pairs(all).map(([before, now]) => {
    const [from, to] = [before.socket[name], now.socket[name]].map(Number);
    const elapsed = (now.timeMs - before.timeMs) / 1000;
    return { timeMs: now.timeMs, value: elapsed > 0 && Number(to) >= Number(from) ? (Number(to) - Number(from)) / elapsed : null };
  });
  const chart = (/** @type {string} */ id, /** @type {string} */ title, /** @type {(value: number) => string} */ unit, /** @type {[string, {timeMs: number, value: number | null}[]][]} */ lines) =>
    panels[id]?.show(() => drawChart(/** @type {Element} */ (panels[id]?.body), { title, unit, fromMs, toMs, series: lines.map(([name, points], at) => ({ name, points, className: ["first", "second", "third"][at] ?? "" })) }));

  chart("rtt", "Round-trip time, its deviation and the smallest", microseconds, [["RTT", level("rtt_us")], ["deviation", level("rttvar_us")], ["smallest", level("min_rtt_us")]]);
  chart("window", "Congestion window and the limit of slow start, in segments", short, [["congestion window", level("snd_cwnd_segments")], ["limit of slow start", level("snd_ssthresh_segments")]]);
  chart("again", "Segments sent again, per second", perSecond, [["segments sent again", each("total_retrans_segments")]]);
  const share = (/** @type {string} */ name) => each(name).map(({ timeMs, value }) => ({ timeMs, value: value === null ? null : value / 10_000 }));
  chart("limits", "Share of the time with data to send, and what held it up", (value) => `${short(value)}%`, [["had data to send", share("busy_time_us")], ["held up by the peer's window", share("rwnd_limited_us")], ["held up by our buffer", share("sndbuf_limited_us")]]);
}
