// What the benches of the page share: a daemon with sockets and load, a browser, and what each of them costs.

const { chromium } = require("playwright-core");
const { fork, spawn } = require("node:child_process");
const fs = require("node:fs");
const http = require("node:http");
const os = require("node:os");
const path = require("node:path");

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

/** A size in `/proc/PID/status`, in MiB. */
const status = (pid, name) => Number(new RegExp(`^${name}:\\s+(\\d+)`, "m").exec(fs.readFileSync(`/proc/${pid}/status`, "utf8"))[1]) / 1024;

async function shareOf(pid, seconds) {
  const [before, began] = [cpuOf(pid), performance.now()];
  await pause(seconds * 1000);
  return (100 * (cpuOf(pid) - before)) / ((performance.now() - began) / 1000);
}

/** Sockets that one process holds: fewer than most systems let it open. */
const SOCKETS_MAX = 10_000;

/** Half as many connections as sockets are wanted, of which `talking` send something ten times a second. Ends with the bench. */
async function connections(sockets, talking) {
  const count = Math.ceil(sockets / SOCKETS_MAX);
  const talkers = Array.from({ length: count }, () => fork(path.join(__dirname, "talk.cjs"), [String(sockets / count / 2), String(talking / count)]));
  children.push(...talkers);
  await Promise.all(talkers.map((talker) => new Promise((resolve) => talker.once("message", resolve))));
}

const get = (url) => new Promise((resolve, reject) => http.get(url, (answer) => {
  let text = "";
  answer.on("data", (part) => { text += part; }).on("end", () => resolve(text));
}).on("error", reject));

/** A daemon that collects this namespace's sockets for a sink, and relays 1,000 datagrams a second to two targets. */
async function startDaemon(weir, sink) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "weir-view-"));
  const file = path.join(folder, "weir.toml");
  const [admin, listen] = [29464, 29514];
  fs.writeFileSync(file, `[admin]\nlisten = "127.0.0.1:${admin}"\n[[listener]]\nname = "in"\nlisten = "127.0.0.1:${listen}"\n` +
    `[[listener.target]]\nname = "one"\nto = "null:"\n[[listener.target]]\nname = "two"\nto = "null:"\n` +
    `[sockets]\ninterval = "10s"\nnamespaces = "own"\n[[sink]]\nname = "records"\nfrom = ["sockets"]\nto = "${sink(folder)}"\n`);
  const { pid } = start(weir, ["run", "-c", file]);
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
  return { pid, url };
}

const BROWSER = { executablePath: process.env.CHROMIUM, args: ["--no-sandbox", "--disable-gpu"] };

/** A browser whose process is known. */
async function launch() {
  const server = await chromium.launchServer(BROWSER);
  return { server, pid: server.process().pid, browser: await chromium.connect(server.wsEndpoint()) };
}

/** What a page holds once the garbage is collected. */
async function memoryOf(page) {
  const session = await page.context().newCDPSession(page);
  await session.send("Performance.enable");
  await session.send("HeapProfiler.collectGarbage");
  const { metrics } = await session.send("Performance.getMetrics");
  await session.detach();
  const value = (name) => metrics.find((one) => one.name === name).value;
  return { heap_mb: value("JSHeapUsedSize") / 1e6, nodes: value("Nodes") };
}

/** Runs a bench, prints its report and ends what it started. */
function run(main) {
  main().then((report) => process.stdout.write(`${JSON.stringify(report, null, 2)}\n`)).catch((error) => {
    process.stderr.write(`${error.stack}\n`);
    process.exitCode = 1;
  }).finally(() => {
    for (const child of children) child.kill("SIGTERM");
    setTimeout(() => process.exit(), 1_000);
  });
}

module.exports = { connections, cpuOf, get, launch, median, memoryOf, pause, run, shareOf, start, startDaemon, status };
