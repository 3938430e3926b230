// With a store, by its contract: what was before is drawn and listed, and questions are answered.

const { assert, main, picture, until } = require("./driver.cjs");

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

main(async ({ open, question }) => {
  for (const scheme of ["light", "dark"]) {
    const { page, context, checked } = await open({ path: "/favicon", scheme, height: 2600 });
    await page.route((url) => url.pathname === "/query", (route) => route.fulfill({ json: new URL(route.request().url()).searchParams.has("sql") ? answer(["one", "two"], [["9007199254740993", null]]) : NAMED }));
    await page.route((url) => url.pathname.startsWith("/query/"), (route) => route.fulfill({ json: STORE[new URL(route.request().url()).pathname.slice(7)] }));
    for (const [name, look] of Object.entries(VISITS)) {
      await look(page, question);
      await picture(page, `${name}-${scheme}`);
    }
    await page.unrouteAll();
    await page.route((url) => url.pathname.startsWith("/query/"), (route) => route.fulfill({ json: { ...STORE[new URL(route.request().url()).pathname.slice(7)], truncated: true } }));
    await cut(page, question);
    await checked();
    await context.close();
  }
  return { visits: Object.keys(VISITS) };
});

/** Every panel that an answer at its limit fills says so, and a point that may be a part is not drawn. */
async function cut(page, { url }) {
  for (const [query, panels] of [["", ["rates", "lost", "heat"]], ["page=sockets", ["peers", "services"]], ["page=sockets&pick=1.0", ["rtt", "window", "again", "limits"]],
    ["page=closes", ["abnormal", "recent"]], ["page=flows", ["carried", "dropped"]], ["page=query&pick=losses", ["answer"]]]) {
    await page.goto(`${url}/?range=1h&${query}`);
    for (const panel of panels) await until(`${panel} says that there is more`, () => page.$eval(`#${panel}`, (one) => /there (may be|are) more/.test(one.textContent)).catch(() => false));
    if (query === "") assert.equal(await page.$eval("#rates path.first:not(.before)", (line) => line.getAttribute("d").split(/[ML]/).length - 1), COUNT - 1);
  }
}

const VISITS = {
  async "history-overview"(page, { url }) {
    await page.goto(`${url}/?range=1h`);
    await until("the range in words, without what a setting asks for", async () => (await page.$eval(".range", (words) => words.textContent).catch(() => "")) === "In the last 1h, lost: 9,007,199,254,740,993 queue_full at target of syslog → old.");
    await until("a whole line, in the order of time", () => page.$eval("#rates path.first", (line) => {
      const times = [...line.getAttribute("d").matchAll(/[ML]([\d.]+)/g)].map(([, x]) => Number(x));
      return times.length === 120 && times.every((x, at) => at === 0 || x > times[at - 1]);
    }).catch(() => false));
    await until("the heat map", () => page.$("#heat canvas"));
    assert.equal(await page.$(".no-history"), null);
  },
  async "history-closes"(page, { url }) {
    await page.goto(`${url}/?page=closes&range=1h`);
    await until("the last ones", async () => (await page.$$("#recent tbody tr")).length === 12);
    await until("a whole line", () => page.$$eval("#abnormal path.first", (lines) => lines.some((line) => line.getAttribute("d").length > 500)));
  },
  async "history-sockets"(page, { url }) {
    await page.goto(`${url}/?page=sockets&range=1h`);
    await until("the slowest peers", async () => (await page.$eval("#peers tbody tr", (row) => row.textContent).catch(() => "")).startsWith("192.0.2.0/2435 ms912 ms5,400"));
    await until("the live ones", () => page.$("#sockets tbody a"));
  },
  async "history-flows"(page, { url }) {
    await page.goto(`${url}/?page=flows&range=1h`);
    await until("what carried most", async () => (await page.$eval("#carried tbody tr", (row) => row.textContent).catch(() => "")).startsWith("pairs10.0.0.1,198.51.100.1"));
    await until("what was dropped", async () => (await page.$eval("#dropped tbody tr", (row) => row.textContent).catch(() => "")).includes("acl192.0.2.14,000"));
  },
  async "history-connection"(page, { url }) {
    await page.goto(`${url}/?page=sockets&pick=1.0&range=1h`);
    await until("a whole line", () => page.$$eval("#rtt path.first", (lines) => lines.some((line) => line.getAttribute("d").length > 500)));
  },
  async "history-query"(page, { url }) {
    await page.goto(`${url}/?page=query`);
    await page.click('.named a:text-is("recent-closes")');
    await until("its rows", async () => (await page.$$("#answer tbody tr")).length === 12);
    assert.ok((await page.$eval("#answer", (panel) => panel.textContent)).includes("18446744073709551615"));
    await page.fill("#sql", "select 1");
    await page.click("#ask button");
    await until("the row of the statement", async () => (await page.$eval("#answer tbody", (rows) => rows.textContent)).startsWith("9007199254740993"));
  },
};
