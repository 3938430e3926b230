// The ledger from the server. Every count is a BigInt, so that no digit is lost.

import { ask } from "./answers.js";

/**
 * @typedef {{count: bigint, bytes: bigint}} Amount
 * @typedef {{way: string, amount: Amount, intended: boolean, cause: string, advice: string}} Loss
 * @typedef {{what: string, fix: string}} Trouble
 *
 * @typedef {object} Hop
 * @property {string} key
 * @property {string} kind
 * @property {string} origin
 * @property {string} target Empty for hops without one.
 * @property {Amount} received
 * @property {Amount} delivered
 * @property {Amount} inFlight
 * @property {Loss[]} losses
 * @property {string} accounting
 * @property {bigint} unaccounted
 * @property {bigint | null} capacity
 * @property {Map<string, bigint>} events
 * @property {Map<string, bigint>} gauges
 * @property {Trouble | null} trouble
 *
 * @typedef {object} Ledger
 * @property {string} runId
 * @property {string} version
 * @property {number} takenAtMs
 * @property {number} uptimeMs
 * @property {bigint} violations
 * @property {Hop[]} hops
 *
 * @typedef {Record<string, {cause: string, advice: string, intended: boolean}>} Words
 */

/** @returns {Promise<Words>} The ledger's texts for each kind of loss. */
export const askWords = () => ask("/ui/reasons.json");

/**
 * @param {any} json
 * @param {Words} words
 * @returns {Ledger}
 */
export function read(json, words) {
  return {
    runId: json.run_id,
    version: json.version,
    takenAtMs: Number(json.taken_at_unix_ms),
    uptimeMs: Number(json.uptime_ms),
    violations: BigInt(json.violations),
    hops: json.hops.map((/** @type {any} */ hop) => readHop(hop, words)),
  };
}

/** @param {any} json @returns {Amount} */
const amount = (json) => ({ count: BigInt(json?.count ?? 0), bytes: BigInt(json?.bytes ?? 0) });

/** @param {Record<string, string> | undefined} json */
const counts = (json) => new Map(Object.entries(json ?? {}).map(([name, value]) => [name, BigInt(value)]));

/**
 * @param {any} json
 * @param {Words} words
 * @returns {Hop}
 */
function readHop(json, words) {
  /** @type {[string, Amount][]} */
  const ways = [
    ...json.dropped.map((/** @type {any} */ one) => [one.reason, amount(one)]),
    ...(json.rejected ?? []).map((/** @type {any} */ one) => [`rejected (${one.class})`, amount(one)]),
    ["uncertain", amount(json.uncertain)],
    ["kept", amount(json.kept)],
  ];
  const losses = ways.filter(([, lost]) => lost.count > 0n).map(([way, lost]) => {
    const { cause = "", advice = "", intended = false } = words[way] ?? {};
    return { way, amount: lost, intended, cause, advice };
  });
  const target = json.target ?? "";
  return {
    key: `${json.hop}/${json.origin}/${target}`,
    kind: json.hop,
    origin: json.origin,
    target,
    received: amount(json.received),
    delivered: amount(json.delivered),
    inFlight: amount(json.in_flight),
    losses,
    accounting: json.accounting,
    unaccounted: BigInt(json.unaccounted),
    capacity: json.capacity === undefined ? null : BigInt(json.capacity),
    events: counts(json.events),
    gauges: counts(json.gauges),
    trouble: json.trouble ?? null,
  };
}

/** @param {Hop} hop Whether its counts are part of another hop's, so that they must not be added. */
export const isPart = (hop) => hop.kind === "member";

/** @param {Hop} hop The unintended losses at this hop. */
export const lostAt = (hop) =>
  hop.losses.reduce((sum, loss) => (loss.intended ? sum : sum + loss.amount.count), 0n);

/**
 * Every unintended loss, the largest first.
 * @param {Ledger} ledger
 */
export function losses(ledger) {
  const all = ledger.hops.filter((hop) => !isPart(hop)).flatMap((hop) =>
    hop.losses.filter((loss) => !loss.intended).map((loss) => ({ hop, loss })));
  return all.sort((a, b) => (a.loss.amount.count < b.loss.amount.count ? 1 : -1));
}

/** @param {Ledger} ledger Whether received = delivered + dropped + in flight holds at every hop, and held at every earlier check. */
export const isBalanced = (ledger) => ledger.violations === 0n && ledger.hops.every((hop) => hop.unaccounted === 0n);

/** Whether a listener's hop leads into the queue of this sink. @param {Hop} target @param {Hop} sink */
export const feeds = (target, sink) =>
  target.kind === "target" && sink.kind === "sink" && target.target === sink.target && sink.origin.split("+").includes(target.origin);

/** Which part of a sink's way a hop is, where a listener feeds the sink. @param {Ledger} ledger @param {Hop} hop */
export function partOfSink(ledger, hop) {
  if (ledger.hops.some((sink) => feeds(hop, sink))) return "queue of";
  return ledger.hops.some((target) => feeds(target, hop)) ? "sink" : undefined;
}

/** @param {{origin: string, target: string}} hop */
export const place = (hop) => (hop.target ? `${hop.origin} → ${hop.target}` : hop.origin);

/** The names of the kinds of hops in tables. */
export const KINDS = /** @type {Record<string, string>} */ ({
  socket: "kernel socket",
  receive: "receive",
  member: "one socket",
  target: "target",
  egress: "handed over",
  receiver: "receiver's socket",
  poll: "polled",
  close: "closed",
  analysis: "analyzed",
  sink: "sink",
});

/**
 * Totals of all hops: arrived, sent, stored and lost, in the units that the hops count.
 * @param {Ledger} ledger
 */
export function totals(ledger) {
  let [arrived, sent, stored, lost] = [0n, 0n, 0n, 0n];
  const egress = new Set(ledger.hops.filter((hop) => hop.kind === "egress").map(place));
  for (const hop of ledger.hops) {
    if (hop.kind === "socket") arrived += hop.received.count;
    if (hop.kind === "egress" || (hop.kind === "target" && !egress.has(place(hop)))) sent += hop.delivered.count;
    if (hop.kind === "sink") stored += hop.delivered.count;
    if (!isPart(hop)) lost += lostAt(hop);
  }
  return { arrived, sent, stored, lost };
}
