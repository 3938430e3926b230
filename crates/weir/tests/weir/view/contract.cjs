// What a store answers, by its contract: an hour of every question that the pages ask.

const SECOND = 1_000_000_000n;
const NOW = (BigInt(Date.now()) * 1_000_000n) / (30n * SECOND) * 30n * SECOND;
const WIDTH = String(30n * SECOND);
const COUNT = 120;
const bucket = (at) => String(NOW - BigInt(COUNT - at) * 30n * SECOND);
const wave = (at) => Math.round(15_000 + 4_000 * Math.sin(at / 9));
const answer = (columns, rows) => ({ columns: columns.map((name) => ({ name, unit: name.endsWith("_ns") ? "ns" : null })), rows, row_count: rows.length, elapsed_ms: 3, truncated: false });
const buckets = (rows) => Array.from({ length: COUNT }, (_, at) => rows(at)).flat();

const STORE = {
  "ledger-rates": answer(["bucket_unix_ns", "width_ns", "hop", "origin", "target", "way", "amount", "amount_bytes"], buckets((at) => [
    [bucket(at), WIDTH, "socket", "syslog", null, "received", wave(at), 1], [bucket(at), WIDTH, "egress", "syslog", "old", "delivered", wave(at) - (at > 100 ? 900 : 0), 1],
    [bucket(at), WIDTH, "sink", "sockets", "records", "delivered", 3000, 1], ...(at > 100 ? [[bucket(at), WIDTH, "target", "syslog", "old", "dropped", 900, 1]] : [])]).toReversed()),
  losses: answer(["hop", "origin", "target", "way", "reason", "lost", "lost_bytes", "first_unix_ns", "last_unix_ns"], [
    ["poll", "sockets", null, "dropped", "unchanged", "9007199254740993", 1, bucket(1), bucket(2)], ["target", "syslog", "old", "dropped", "queue_full", "9007199254740993", 1, bucket(1), bucket(2)]]),
  "rtt-heat": answer(["bucket_unix_ns", "width_ns", "low_us", "high_us", "samples"], buckets((at) =>
    [64, 96, 128, 192, 256, 384, 512, 768, 1024, 8192, 12288].map((low, band) => [bucket(at), WIDTH, low, low * 1.5, Math.round(400 * Math.exp(-(((band - 4 - 2 * Math.sin(at / 15)) / 2) ** 2)) + (band > 8 && at > 90 ? 60 : 0))]).filter((row) => row[4] > 0))),
  "closes-by-end": answer(["bucket_unix_ns", "width_ns", "close_reason", "closed"], buckets((at) => [[bucket(at), WIDTH, "peer_close", 900], [bucket(at), WIDTH, "peer_reset", 30 + (at % 7) * 9], [bucket(at), WIDTH, "timed_out", at > 80 ? 90 : 4]])),
  "recent-closes": answer(["time_unix_ns", "close_reason", "src_address", "src_port", "dst_address", "dst_port", "seen_ns", "rtt_us", "total_retrans_segments", "bytes_sent", "bytes_received", "systemd_unit"],
    Array.from({ length: 12 }, (_, at) => [bucket(COUNT - at), at % 3 ? "peer_close" : "timed_out", "10.0.0.1", 443, "192.0.2.7", 40000 + at, String(61n * SECOND), 35000, 3, "18446744073709551615", 70000, "nginx.service"])),
  "worst-peers": answer(["peer", "rtt_p50_us", "rtt_p99_us", "samples", "sent_bytes", "retransmitted_bytes", "retransmitted_share", "peer_window_share"],
    [["192.0.2.0/24", 35000, 912000, 5400, "18446744073709551615", 70000, 0.0312, 0.4], ["198.51.100.0/24", 1200, 2400, 90000, 5_000_000, 0, 0, null]]),
  "worst-services": answer(["service", "rtt_p50_us", "rtt_p99_us", "samples"], [["443", 35000, 912000, 5400]]),
  "top-flows": answer(["definition", "key", "total_bytes", "total_bytes_low", "total_bytes_high", "total_frames", "total_samples", "merged"], [["pairs", "10.0.0.1,198.51.100.1", "18446744073709551615", 1, 2, 9000, 90, 1]]),
  "flow-drops": answer(["definition", "key", "drop_reason", "agent_address", "total_frames", "first_unix_ns"], [["drops", "10.0.0.1,198.51.100.1", "acl", "192.0.2.1", 4000, bucket(3)]]),
  connection: answer(["time_unix_ns", "rtt_us", "rttvar_us", "min_rtt_us", "snd_cwnd_segments", "total_retrans_segments", "busy_time_us", "rwnd_limited_us", "sndbuf_limited_us"],
    buckets((at) => [[bucket(at), 35_000 + 9_000 * Math.sin(at / 5), 3_000, 30_000, 40 + (at % 20), at, at * 1e6, at * 2e5, 0]])),
};
const NAMED = Object.keys(STORE).map((name) => ({ name, title: `what ${name} answers` }));

module.exports = { COUNT, NAMED, STORE, answer };
