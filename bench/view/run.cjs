// What the page costs: run.cjs WEIR [SOCKETS]. Prints JSON. NODE_PATH has playwright-core, CHROMIUM names the browser.
//
// A daemon collects SOCKETS TCP sockets, both ends on loopback, and relays 1,000 datagrams a second to two targets. Paint is the median of
// five cold starts of the page. The browser's processor time is that of all its processes, from /proc, over SECONDS of a page that is left
// alone. The server's is the daemon's with ten viewers less that with one, by nine; a viewer asks what the TCP page asks, once a second.

const { chromium } = require("playwright-core");
const { spawn } = require("node:child_process");
const fs = require("node:fs");
const http = require("node:http");
const net = require("node:net");
const os = require("node:os");
const path = require("node:path");

const [weir, count = "10000"] = process.argv.slice(2);
const SECONDS = 25;
const STARTS = 5;
const MINUTES = Number(process.env.MINUTES ?? 4);
const ASKED = "/sockets?sort=-rtt_us&group=dst_network&limit=200&fields=cookie,state,src_address,src_port,dst_address,dst_port,rtt_us,rttvar_us,min_rtt_us," +
  "snd_cwnd_segments,total_retrans_segments,bytes_sent,bytes_received,bytes_retrans,send_queue,receive_queue,busy_time_us,rwnd_limited_us,sndbuf_limited_us," +
  "delivery_rate_bytes_per_sec,systemd_unit,container_id,netns_name,netns_inode,congestion_algorithm";

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const median = (all) => [...all].sort((a, b) => a - b)[Math.floor(all.length / 2)];
const children = [];

function start(program, args) {
  const child = spawn(program, args, { stdio: ["ignore", "ignore", "pipe"] });
  children.push(child);
  return child;
}

/** Processor seconds of a process and all below it. */
function cpuOf(root) {
  const processes = fs.readdirSync("/proc").filter((name) => /^\d+$/.test(name)).flatMap((pid) => {
    try {
      const fields = fs.readFileSync(`/proc/${pid}/stat`, "utf8").replace(/^.*\) /s, "").split(" ");
      return [{ pid: Number(pid), parent: Number(fields[1]), ticks: Number(fields[11]) + Number(fields[12]) }];
    } catch {
      return [];
    }
  });
  const family = new Set([root]);
  for (let grows = true; grows;) {
    const found = processes.filter(({ pid, parent }) => family.has(parent) && !family.has(pid));
    for (const { pid } of found) family.add(pid);
    grows = found.length > 0;
  }
  return processes.filter(({ pid }) => family.has(pid)).reduce((sum, { ticks }) => sum + ticks, 0) / 100;
}

async function shareOf(pid, seconds) {
  const [before, began] = [cpuOf(pid), performance.now()];
  await pause(seconds * 1000);
  return (100 * (cpuOf(pid) - before)) / ((performance.now() - began) / 1000);
}

/** Half as many connections as sockets are wanted, some of them talking. */
async function connections(sockets) {
  const server = net.createServer((socket) => socket.on("data", (data) => socket.write(data)).on("error", () => {}));
  await new Promise((resolve) => server.listen({ port: 0, host: "127.0.0.1", backlog: 4096 }, resolve));
  const all = [];
  for (let at = 0; at < sockets / 2; at += 1) {
    all.push(await new Promise((resolve, reject) => {
      const socket = net.connect({ port: server.address().port, host: "127.0.0.1", localAddress: `127.0.${1 + (at % 200)}.1` }, () => resolve(socket));
      socket.on("error", reject);
      socket.on("data", () => {});
    }));
  }
  let at = 0;
  return setInterval(() => {
    for (let talks = 0; talks < all.length / 100; talks += 1) all[(at += 1) % all.length].write("x".repeat(200));
  }, 100);
}

const get = (url) => new Promise((resolve, reject) => http.get(url, (answer) => {
  let text = "";
  answer.on("data", (part) => { text += part; }).on("end", () => resolve(text));
}).on("error", reject));

async function views(url, viewers) {
  let isOver = false;
  const loops = Array.from({ length: viewers }, async () => {
    while (!isOver) {
      const began = performance.now();
      await get(url + ASKED);
      await pause(Math.max(0, 1000 - (performance.now() - began)));
    }
  });
  return async () => {
    isOver = true;
    await Promise.all(loops);
  };
}

const walks = async (url) => Number(JSON.parse(await get(`${url}/ledger`)).hops.find((hop) => hop.hop === "poll").events.queries ?? 0);

async function main() {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "weir-view-"));
  const file = path.join(folder, "weir.toml");
  const [admin, listen] = [29464, 29514];
  fs.writeFileSync(file, `[admin]\nlisten = "127.0.0.1:${admin}"\n[[listener]]\nname = "in"\nlisten = "127.0.0.1:${listen}"\n` +
    `[[listener.target]]\nname = "one"\nto = "null:"\n[[listener.target]]\nname = "two"\nto = "file:${folder}/two.log"\n` +
    `[sockets]\ninterval = "10s"\nnamespaces = "own"\n[[sink]]\nname = "none"\nfrom = ["sockets"]\nto = "null:"\n`);
  const talk = await connections(Number(count));
  const daemon = start(weir, ["run", "-c", file]);
  const url = `http://127.0.0.1:${admin}`;
  for (;;) {
    try {
      await get(`${url}/readyz`);
      break;
    } catch {
      await pause(100);
    }
  }
  start(weir, ["gen", "--to", `127.0.0.1:${listen}`, "--rate", "1000", "--duration", "0s"]);
  await pause(12_000);

  const report = { sockets: Number(JSON.parse(await get(`${url}/sockets?sort=-rtt_us&limit=1`)).matched), seconds: SECONDS };
  report.daemon_alone = await shareOf(daemon.pid, SECONDS);
  for (const viewers of [1, 10]) {
    const stop = await views(url, viewers);
    await pause(2_000);
    const before = await walks(url);
    report[`daemon_with_${viewers}`] = await shareOf(daemon.pid, SECONDS);
    report[`walks_with_${viewers}`] = (await walks(url)) - before;
    await stop();
  }
  report.daemon_per_viewer = (report.daemon_with_10 - report.daemon_with_1) / 9;

  const starts = [];
  for (let at = 0; at < STARTS; at += 1) {
    const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox", "--disable-gpu"] });
    const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
    await page.addInitScript(() => new MutationObserver(() => {
      if (!globalThis.drawn && document.querySelector("#verdict .headline")) globalThis.drawn = performance.now();
    }).observe(document, { childList: true, subtree: true }));
    await page.goto(url);
    await page.waitForSelector("#verdict .headline");
    starts.push(await page.evaluate(() => ({ paint: performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? null, data: globalThis.drawn })));
    await browser.close();
  }
  report.first_paint_ms = median(starts.map((one) => one.paint));
  report.first_data_ms = median(starts.map((one) => one.data));

  const server = await chromium.launchServer({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox", "--disable-gpu"] });
  const browser = await chromium.connect(server.wsEndpoint());
  report.browser = browser.version();
  const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
  const session = await page.context().newCDPSession(page);
  await session.send("Performance.enable");
  const memory = async () => {
    await session.send("HeapProfiler.collectGarbage");
    const { metrics } = await session.send("Performance.getMetrics");
    const value = (name) => metrics.find((one) => one.name === name).value;
    return { heap_mb: value("JSHeapUsedSize") / 1e6, nodes: value("Nodes") };
  };
  report.browser_blank = await shareOf(server.process().pid, SECONDS);
  for (const [name, query] of [["overview", "/"], ["sockets", "/?page=sockets"]]) {
    await page.goto(url + query);
    await page.waitForSelector(name === "sockets" ? "#sockets tbody a" : "#stream svg");
    await pause(5_000);
    report[`browser_${name}`] = await shareOf(server.process().pid, SECONDS);
    report[`memory_${name}`] = await memory();
  }
  await page.goto(url);
  await pause(60_000);
  report.memory_after_1_min = await memory();
  await pause((MINUTES - 1) * 60_000);
  report[`memory_after_${MINUTES}_min`] = await memory();
  await server.close();
  clearInterval(talk);
  process.stdout.write(`${JSON.stringify(report, null, 2)}\n`);
}

main().catch((error) => {
  process.stderr.write(`${error.stack}\n`);
  process.exitCode = 1;
}).finally(() => {
  for (const child of children) child.kill("SIGTERM");
  setTimeout(() => process.exit(), 1_000);
});
