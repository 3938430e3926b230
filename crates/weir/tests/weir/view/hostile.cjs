// Names that strangers choose: markup, controls, marks that turn the direction, very long ones. They are text everywhere.

const { assert, main, until } = require("./driver.cjs");

const MARKUP = '<img src=x onerror="globalThis.broken = true"><script>globalThis.broken = true</script>';
const NAMES = [MARKUP, "a\u202eb\u0000c\u0007\n", "n".repeat(4096), "\u05d0\u05d1\u05d2", "' onclick='1", "javascript:alert(1)"];

const amount = (count) => ({ count: String(count), bytes: "18446744073709551615" });
const hop = (kind, name, at) => ({
  hop: kind, origin: name, ...(["target", "sink"].includes(kind) ? { target: NAMES[(at + 1) % NAMES.length] } : {}),
  received: amount("18446744073709551615"), delivered: amount("18446744073709551000"), dropped: [{ reason: "queue_full", ...amount(615) }],
  in_flight: amount(0), accounting: "exact", unaccounted: "0", trouble: { what: name, fix: name }, gauges: { up: "1", spool_bytes: "5", spool_capacity_bytes: "0" },
});
const LEDGER = {
  run_id: MARKUP, version: MARKUP, taken_at_unix_ms: "1790000000000", uptime_ms: "1000", violations: "0",
  hops: NAMES.flatMap((name, at) => ["socket", "target", "close", "sink"].map((kind) => hop(kind, name, at))),
};
const SOCKETS = {
  time_unix_ns: "1790000000000000000", polls: 1, namespaces: 1, namespaces_failed: 0, truncated: false, matched: NAMES.length, shown: NAMES.length,
  sockets: NAMES.map((name, at) => ({ cookie: at, state: name, src_address: name, src_port: 1, dst_address: name, dst_port: 2, systemd_unit: name, netns_name: name, rtt_us: 100 })),
  rtt_us: [[64, 3]], groups: NAMES.map((key) => ({ key, sockets: 1, bytes_sent: "1", bytes_received: "1", bytes_retrans: "0", rtt_us_max: 1 })),
  other: { sockets: 0, bytes_sent: "0", bytes_received: "0", bytes_retrans: "0", rtt_us_max: 0 },
};
const DEFINITION = { name: MARKUP, keys: ["src", MARKUP], of: "sampled", value: "bytes", top: 20, samples: { counted: 5 } };
const ANSWERS = {
  "/ledger": LEDGER,
  "/sockets": SOCKETS,
  "/flows": { agents: 1, datagrams: { received: 1 }, samples: { flow: 1, counter: 0, dropped_packet: 0 }, definitions: [DEFINITION] },
  "/flows/top": { definition: DEFINITION, flows: NAMES.map((name) => ({ key: { src: name, [MARKUP]: name }, per_s: { low: 1, value: 2, high: 3 }, samples: 1 })) },
  "/flows/events": { events: NAMES.map((name) => ({ time_unix_ns: "1790000000000000000", change: name, text: name })) },
  "/flows/mitigations": { entries: NAMES.map((name) => ({ time_unix_ns: "1790000000000000000", event: name, route: name, attack: name, threshold: name, reason: name })) },
  "/flows/agents": NAMES.map((name) => ({ address: name, sub_agent: 0, datagrams: 1, lost: 1, resets: 0, samplers: [] })),
  "/flows/interfaces": NAMES.map((name) => ({ agent: name, index: 1, rates: null })),
  "/query": NAMES.map((name) => ({ name, title: name })),
};

main(async ({ browser, question }) => {
  let shown = 0;
  for (const name of ["overview", "sockets", "closes", "flows", "sinks", "query"]) {
    const page = await (await browser.newContext({ viewport: { width: 800, height: 6000 } })).newPage();
    const faults = [];
    page.on("pageerror", (error) => faults.push(String(error)));
    await page.addInitScript(() => addEventListener("securitypolicyviolation", (event) => { globalThis.broken = event.violatedDirective; }));
    for (const [at, answer] of Object.entries(ANSWERS)) await page.route((url) => url.pathname === at, (route) => route.fulfill({ json: answer }));
    await page.route((url) => url.pathname.startsWith("/query/"), (route) => route.fulfill({
      json: { columns: [{ name: MARKUP, unit: MARKUP }, ...["time_unix_ns", "bucket_unix_ns", "width_ns", "close_reason"].map((name) => ({ name }))],
        rows: NAMES.map((one) => [one, "1790000000000000000", "1790000000000000000", "1000000000", one]), row_count: 6, elapsed_ms: 1, truncated: false },
    }));
    await page.goto(`${question.url}/?page=${name}${name === "query" ? `&pick=${encodeURIComponent(MARKUP)}` : ""}`);
    await until(`${name} shows the names as text`, () => page.evaluate(() => document.querySelector("main").textContent.includes("<img src=x")));
    const found = await page.evaluate(() => ({
      broken: globalThis.broken ?? null,
      strange: document.querySelectorAll("main img, main script, [onclick], [onerror], a[href^='javascript:']").length,
      unseen: /[\u0000-\u0008\u000b-\u001f\u202a-\u202e\u2066-\u2069]/.test(document.querySelector("main").innerText),
      wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    }));
    assert.deepEqual(found, { broken: null, strange: 0, unseen: false, wide: 0 }, name);
    assert.deepEqual(faults, [], name);
    if (name === "overview") assert.ok(await page.evaluate(() => document.querySelector("#ledger").textContent.includes("18,446,744,073,709,551,615")), "all digits of the largest count");
    shown += 1;
  }
  return { shown };
});
