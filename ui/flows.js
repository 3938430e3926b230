// Traffic from sFlow: the heaviest flows with their confidence intervals, dropped frames, and losses of agents.

import { go, link } from "./address.js";
import { Refused, ask, why } from "./answers.js";
import { fill, h, panel, replace, s } from "./dom.js";
import { bitsPerSecond, clock, grouped, perSecond, plural, short } from "./figures.js";
import { milliseconds } from "./history.js";
import { poll } from "./poller.js";
import { storedPanel } from "./stored.js";
import { replaceTable, table } from "./table.js";

/** @typedef {import("./main.js").Context} Context */

const EVERY_MS = 1_000;
const SLOWLY_MS = 5_000;
const ASKED = 200;
const EVENTS = 50;

/** @param {string} name */
const topPath = (name) => `/flows/top?${new URLSearchParams({ flow: name, n: String(ASKED) })}`;

/** @param {Element} root @param {Context} context */
export function start(root, context) {
  const panels = {
    top: panel({ id: "top", title: "Which flows are heaviest?", className: "wide", links: [["JSON", "/flows"]] }),
    drops: panel({ id: "drops", title: "What does the network drop?", className: "wide", links: [["JSON", "/flows"]] }),
    events: panel({ id: "events", title: "Which thresholds fire?", links: [["JSON", "/flows/events"]] }),
    mitigations: panel({ id: "mitigations", title: "What was announced against attacks?", className: "wide", links: [["JSON", "/flows/mitigations"]] }),
    agents: panel({ id: "agents", title: "Which agents are lossy or late?", links: [["JSON", "/flows/agents"]] }),
    interfaces: panel({ id: "interfaces", title: "How full are interfaces?", className: "wide", links: [["JSON", "/flows/interfaces"]] }),
  };
  const stored = [
    storedPanel({ id: "carried", title: "Which flows carried most in the range?", name: "top-flows", range: context.address.range }),
    storedPanel({ id: "dropped", title: "What was dropped in the range, where and why?", name: "flow-drops", range: context.address.range }),
  ];
  const said = h("p", { class: "said", role: "status" });
  const chooser = h("div", null);
  fill(root, chooser, said, h("div", { class: "panels" }, [...Object.values(panels), ...stored].map((one) => one.root)));

  const stopTop = poll(EVERY_MS, async (signal) => {
    try {
      const about = await ask("/flows", { signal });
      const sampled = about.definitions.filter((/** @type {any} */ one) => one.of !== "dropped");
      const dropped = about.definitions.filter((/** @type {any} */ one) => one.of === "dropped");
      const chosen = sampled.find((/** @type {any} */ one) => one.name === context.address.pick) ?? sampled[0];
      const [top, drops] = await Promise.all([chosen && ask(topPath(chosen.name), { signal }), Promise.all(dropped.slice(0, 4).map((/** @type {any} */ one) => ask(topPath(one.name), { signal })))]);
      if (chooser.querySelectorAll("option").length !== sampled.length) replace(chooser, choose(sampled, chosen?.name));
      replace(said, words(about));
      panels.top.show(() => top && replaceTable(panels.top.body, topTable(top)));
      panels.drops.show(() => showDrops(panels.drops.body, drops));
    } catch (error) {
      if (signal.aborted) return;
      const isOff = error instanceof Refused && error.status === 404;
      replace(said, isOff ? "No sFlow is analyzed here: the configuration has no [flows]." : why(error));
    }
  });
  const stopRest = poll(SLOWLY_MS, async (signal) => {
    try {
      const [events, mitigations, agents, interfaces] = await Promise.all(["/flows/events", "/flows/mitigations", "/flows/agents", "/flows/interfaces"].map((path) => ask(path, { signal })));
      panels.events.show(() => replaceTable(panels.events.body, eventTable(events.events)));
      panels.mitigations.show(() => replaceTable(panels.mitigations.body, mitigationTable(mitigations.entries)));
      panels.agents.show(() => replaceTable(panels.agents.body, agentTable(agents)));
      panels.interfaces.show(() => replaceTable(panels.interfaces.body, interfaceTable(interfaces)));
    } catch {
      // The other poll asks the same server and reports the error.
    }
  });
  return () => {
    stopTop();
    stopRest();
    for (const one of [...Object.values(panels), ...stored]) one.stop();
  };
}

/** @param {any} about */
const words = ({ agents, datagrams, samples }) => [
  h("b", { id: "flow-agents" }, plural(agents, "agent", "agents")), ", ", h("b", { id: "flow-datagrams" }, grouped(datagrams.received)), " datagrams, ",
  h("b", null, grouped(samples.flow)), " samples of flows, ", h("b", null, grouped(samples.counter)), " of counters, ",
  h("b", null, grouped(samples.dropped_packet)), " of dropped frames."];

/** @param {any[]} definitions @param {string | undefined} chosen */
function choose(definitions, chosen) {
  const select = h("select", { id: "definition", change: () => go(link({ pick: select.value })) },
    definitions.map((one) => h("option", { value: one.name, selected: one.name === chosen }, `${one.name}: ${one.keys.join(", ") || "everything"}`)));
  return h("form", { class: "ask" }, h("label", { for: "definition" }, "definition "), select);
}

/** @param {string} value The measure of a definition. @returns {(perSecond: number) => string} */
const unit = (value) => (value === "bytes" ? (rate) => bitsPerSecond(rate * 8) : (rate) => `${short(rate)} ${value}/s`);

/** @param {Record<string, any>} key */
const inWords = (key, names = Object.keys(key)) => names.map((name) => `${name} ${key[name] ?? "?"}`).join("  ");

const OTHER_WAY = /** @type {Record<string, string>} */ ({ src: "dst", dst: "src", src_port: "dst_port", dst_port: "src_port" });

/** The same flow in the opposite direction, as a key. @param {Record<string, any>} key */
const turned = (key) => JSON.stringify(Object.fromEntries(Object.keys(key).sort().map((name) => [name, key[OTHER_WAY[name] ?? name]])));
/** @param {Record<string, any>} key */
const straight = (key) => JSON.stringify(Object.fromEntries(Object.keys(key).sort().map((name) => [name, key[name]])));

/** @param {any} top */
function topTable({ definition, flows }) {
  const format = unit(definition.value);
  const byKey = new Map(flows.map((/** @type {any} */ flow) => [straight(flow.key), flow]));
  const shown = flows.slice(0, definition.top);
  const most = Math.max(1, ...shown.map((/** @type {any} */ flow) => flow.per_s.high));
  const samples = shown.reduce((/** @type {number} */ sum, /** @type {any} */ flow) => sum + flow.samples, 0);
  const other = flows.slice(definition.top).reduce((/** @type {number} */ sum, /** @type {any} */ flow) => sum + flow.per_s.value, 0);
  /** @type {any[]} */
  const rows = [...shown, { other: true, samples: definition.samples.counted - samples, value: other }];
  return table({
    caption: `Heaviest flows of ${definition.name}`,
    rows,
    isLong: true,
    attributes: (row) => ({ "data-samples": String(row.samples) }),
    columns: [
      { name: "flow", title: "flow", isName: true, cell: (row) => (row.other ? "other: lighter ones, and those that have ended" : h("span", { class: "mono" }, inWords(row.key, definition.keys))) },
      { name: "rate", title: "rate", isNumber: true, cell: (row) => format(row.other ? row.value : row.per_s.value) },
      { name: "interval", title: "95% interval", isNumber: true, cell: (row) => (row.other ? "–" : `${format(row.per_s.low)} – ${format(row.per_s.high)}`) },
      { name: "drawn", title: "drawn", isExtra: true, cell: (row) => (row.other ? "" : interval(row.per_s, most)) },
      { name: "back", title: "other direction", isNumber: true, cell: (row) => {
        const back = row.other ? null : byKey.get(turned(row.key));
        return back ? format(back.per_s.value) : "–";
      } },
      { name: "samples", title: "samples", isNumber: true, cell: (row) => grouped(row.samples) },
    ],
  });
}

/** A rate as a bar with its interval. @param {{low: number, value: number, high: number}} rate @param {number} most */
function interval({ low, value, high }, most) {
  const at = (/** @type {number} */ rate) => (100 * rate) / most;
  return s("svg", { class: "bar", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
    s("rect", { class: "delivered", width: at(value), height: 10 }), s("rect", { class: "interval", x: at(low), width: Math.max(at(high) - at(low), 0.5), y: 3, height: 4 }));
}

/** @param {HTMLElement} body @param {any[]} drops */
function showDrops(body, drops) {
  const rows = drops.flatMap(({ definition, flows }) => flows.slice(0, definition.top).map((/** @type {any} */ flow) => ({ definition, flow })));
  if (drops.length === 0) return replace(body, h("p", null, "No definition counts dropped frames. With traffic = \"dropped\", a [[flow]] does."));
  replaceTable(body, table({
    caption: "Dropped frames", rows, isLong: true, empty: "No agent reports that it drops frames.",
    columns: [
      { name: "definition", title: "definition", cell: ({ definition }) => definition.name },
      { name: "flow", title: "what was dropped", isName: true, cell: ({ definition, flow }) => h("span", { class: "mono" }, inWords(flow.key, definition.keys)) },
      { name: "rate", title: "rate", isNumber: true, cell: ({ definition, flow }) => unit(definition.value)(flow.per_s.value) },
      { name: "samples", title: "samples", isNumber: true, cell: ({ flow }) => grouped(flow.samples) },
    ],
  }));
}

/** @param {any[]} events */
const eventTable = (events) => table({
  caption: "Events of thresholds", rows: events.slice(-EVENTS).reverse(), empty: "No threshold was passed.",
  columns: [
    { name: "time", title: "time", isName: true, cell: (event) => clock(milliseconds(event.time_unix_ns)) },
    { name: "change", title: "change", cell: (event) => h("span", { class: `state ${event.change === "raised" ? "bad" : "good"}` }, event.change) },
    { name: "text", title: "what", cell: (event) => event.text },
  ],
});

/** @param {any[]} entries The last decisions of mitigations and answers of speakers, oldest first. */
const mitigationTable = (entries) => table({
  caption: "Routes against attacks", rows: [...entries].reverse(), isLong: true, empty: "No [[mitigation]] has decided anything.",
  columns: [
    { name: "time", title: "time", isName: true, cell: (entry) => clock(milliseconds(entry.time_unix_ns)) },
    { name: "event", title: "what", cell: (entry) => h("span", { class: entry.event === "announce" && !entry.dry_run ? "state bad" : "" }, [entry.event, entry.of].filter(Boolean).join(" "), entry.dry_run ? ", not sent: dry run" : "") },
    { name: "route", title: "route", isCode: true, cell: (entry) => entry.route ?? (entry.routes ?? []).join(", ") },
    { name: "attack", title: "attack", cell: (entry) => (entry.attack ? `#${entry.attack} ${entry.threshold}` : "") },
    { name: "reason", title: "why", cell: (entry) => entry.reason ?? entry.error ?? entry.speaker ?? "" },
  ],
});

/** @param {any[]} agents */
function agentTable(agents) {
  const share = (/** @type {number | null | undefined} */ value) => (value === null || value === undefined ? "–" : `${(100 * value).toFixed(2)}%`);
  const worst = (/** @type {any} */ agent, /** @type {string} */ name) => agent.samplers.reduce((/** @type {number | null} */ most, /** @type {any} */ one) => (one[name] === null ? most : Math.max(most ?? 0, one[name])), null);
  return table({
    caption: "Agents", rows: agents.slice(0, 200), isLong: true, empty: "No agent was heard.",
    columns: [
      { name: "agent", title: "agent", isName: true, cell: (agent) => `${agent.address}/${agent.sub_agent}` },
      { name: "datagrams", title: "datagrams", isNumber: true, cell: (agent) => grouped(agent.datagrams) },
      { name: "lost", title: "lost on the way", isNumber: true, cell: (agent) => (agent.lost > 0 ? h("span", { class: "lost-text" }, "✕ ", grouped(agent.lost)) : "0") },
      { name: "path", title: "samples lost", isNumber: true, isExtra: true, cell: (agent) => share(worst(agent, "path_loss")) },
      { name: "inside", title: "lost inside", isNumber: true, cell: (agent) => share(worst(agent, "agent_loss")) },
      { name: "resets", title: "restarts", isNumber: true, isExtra: true, cell: (agent) => grouped(agent.resets) },
      { name: "discrepancies", title: "contradictions", about: "how often the agent says what contradicts the rest of what it says, by kind; docs/flows.md says what is used instead", isExtra: true, cell: (agent) => Object.entries(agent.discrepancies ?? {}).map(([kind, count]) => `${kind} ${grouped(count)}`).join(", ") || "–" },
    ],
  });
}

/** @param {any[]} interfaces */
function interfaceTable(interfaces) {
  const rate = (/** @type {any} */ side, /** @type {string} */ name, /** @type {(value: number) => string} */ format) => {
    const value = side?.[name];
    return value === undefined || value === null ? "–" : format(value);
  };
  const both = (/** @type {any} */ rates, /** @type {string} */ name) => `${rate(rates?.in, name, perSecond)} / ${rate(rates?.out, name, perSecond)}`;
  return table({
    caption: "Interfaces of agents, by their counters", rows: interfaces.slice(0, 200), isLong: true, empty: "No agent has sent counters.",
    columns: [
      { name: "interface", title: "interface", isName: true, cell: (one) => `${one.agent} ${one.index}` },
      { name: "in", title: "in", isNumber: true, cell: ({ rates }) => rate(rates?.in, "bits_per_s", bitsPerSecond) },
      { name: "out", title: "out", isNumber: true, cell: ({ rates }) => rate(rates?.out, "bits_per_s", bitsPerSecond) },
      { name: "discards", title: "discards in / out", isNumber: true, cell: ({ rates }) => both(rates, "discards_per_s") },
      { name: "errors", title: "errors in / out", isNumber: true, cell: ({ rates }) => both(rates, "errors_per_s") },
      { name: "ratio", title: "samples against counters", about: "what its samples say of its traffic, divided by what its counters say", isNumber: true, cell: ({ rates }) => (typeof rates?.sampled_ratio === "number" ? rates.sampled_ratio.toFixed(3) : "–") },
    ],
  });
}
