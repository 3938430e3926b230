// Whether the page and its daemon stay as they are: long.cjs WEIR [SOCKETS] [MINUTES]. Prints JSON. NODE_PATH has playwright-core, CHROMIUM
// names the browser. More sockets than one address has ports for are spread over 200; run it in a network namespace of its own.
//
// A daemon collects SOCKETS and keeps a history. Three tabs are open: the overview, the TCP page, and a TCP page that believes itself hidden.

const { connections, cpuOf, get, launch, memoryOf, pause, run, startDaemon, status } = require("./rig.cjs");

const [weir, count = "100000", minutes = "30"] = process.argv.slice(2);
const EVERY_MINUTES = 2;
/** Of all connections, ten times a second. */
const TALKING = 100;

run(async () => {
  await connections(Number(count), TALKING);
  const { pid, url } = await startDaemon(weir, (folder) => `store:${folder}/history`);
  await pause(15_000);
  const sockets = Number(JSON.parse(await get(`${url}/sockets?sort=-rtt_us&limit=1`)).matched);

  const { server, pid: browserPid, browser } = await launch();
  const tabs = {};
  for (const [name, query] of [["overview", "/"], ["sockets", "/?page=sockets"], ["hidden", "/?page=sockets"]]) {
    const page = await (await browser.newContext({ viewport: { width: 1280, height: 900 } })).newPage();
    tabs[name] = { page, requests: 0 };
    page.on("request", () => { tabs[name].requests += 1; });
    await page.goto(url + query);
    await page.waitForSelector(name === "overview" ? "#stream svg" : "#sockets .head");
  }
  await tabs.hidden.page.evaluate(() => {
    Object.defineProperty(document, "hidden", { configurable: true, get: () => true });
    document.dispatchEvent(new Event("visibilitychange"));
  });
  await pause(10_000);

  const samples = [];
  const hiddenBefore = tabs.hidden.requests;
  for (let minute = 0; minute <= Number(minutes); minute += EVERY_MINUTES) {
    const sample = { minute, daemon_rss_mib: status(pid, "VmRSS"), daemon_rss_most_mib: status(pid, "VmHWM"), daemon_cpu_s: cpuOf(pid), browser_cpu_s: cpuOf(browserPid) };
    for (const [name, { page, requests }] of Object.entries(tabs)) sample[name] = { ...(await memoryOf(page)), requests, said: await page.$eval("#status", (one) => one.dataset.level) };
    samples.push(sample);
    process.stderr.write(`${JSON.stringify(sample)}\n`);
    if (minute < Number(minutes)) await pause(EVERY_MINUTES * 60_000);
  }
  const last = samples.at(-1);
  await server.close();
  const share = (name) => (100 * (last[name] - samples[0][name])) / (Number(minutes) * 60);
  return { sockets, minutes: Number(minutes), daemon_share: share("daemon_cpu_s"), browser_share: share("browser_cpu_s"), hidden_requests: last.hidden.requests - hiddenBefore, samples };
});
