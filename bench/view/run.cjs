// What the page costs: run.cjs WEIR [SOCKETS]. Prints JSON. NODE_PATH has playwright-core, CHROMIUM names the browser.
//
// A daemon collects SOCKETS TCP sockets, both ends on loopback, and relays 1,000 datagrams a second to two targets. Paint is the median of
// five cold starts of the page. The browser's processor time is that of all its processes, from /proc, over SECONDS of a page that is left
// alone. The server's is the daemon's with ten viewers less that with one, by nine; a viewer asks what the TCP page asks, once a second.

const { connections, get, launch, median, memoryOf, pause, run, shareOf, start, startDaemon } = require("./rig.cjs");

const [weir, count = "10000"] = process.argv.slice(2);
const SECONDS = 25;
const STARTS = 5;
const ASKED = "/sockets?sort=-rtt_us&group=dst_network&limit=200&fields=cookie,state,src_address,src_port,dst_address,dst_port,rtt_us,rttvar_us,min_rtt_us," +
  "snd_cwnd_segments,total_retrans_segments,bytes_sent,bytes_received,bytes_retrans,send_queue,receive_queue,busy_time_us,rwnd_limited_us,sndbuf_limited_us," +
  "delivery_rate_bytes_per_sec,systemd_unit,container_id,netns_name,netns_inode,congestion_algorithm";


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

run(async () => {
  await connections(Number(count), Number(count) / 200);
  const { pid, url } = await startDaemon(weir, () => "null:");
  await pause(12_000);

  const report = { sockets: Number(JSON.parse(await get(`${url}/sockets?sort=-rtt_us&limit=1`)).matched), seconds: SECONDS };
  report.daemon_alone = await shareOf(pid, SECONDS);
  for (const viewers of [1, 10]) {
    const stop = await views(url, viewers);
    await pause(2_000);
    const before = await walks(url);
    report[`daemon_with_${viewers}`] = await shareOf(pid, SECONDS);
    report[`walks_with_${viewers}`] = (await walks(url)) - before;
    await stop();
  }
  report.daemon_per_viewer = (report.daemon_with_10 - report.daemon_with_1) / 9;

  const starts = [];
  for (let at = 0; at < STARTS; at += 1) starts.push(await firstPaint(url));
  report.first_paint_ms = median(starts.map((one) => one.paint));
  report.first_data_ms = median(starts.map((one) => one.data));

  const { server, pid: browserPid, browser } = await launch();
  report.browser = browser.version();
  const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
  report.browser_blank = await shareOf(browserPid, SECONDS);
  for (const [name, query, scroll] of [["overview", "/", 0], ["sockets", "/?page=sockets", 0], ["sockets_at_the_table", "/?page=sockets", 1e6]]) {
    await page.goto(url + query);
    await page.waitForSelector(name === "overview" ? "#stream svg" : "#groups tbody tr");
    await page.evaluate((y) => scrollTo(0, y), scroll);
    await pause(5_000);
    report[`browser_${name}`] = await shareOf(browserPid, SECONDS);
    report[`memory_${name}`] = await memoryOf(page);
  }
  await server.close();
  return report;
});

/** When a new browser paints the page first, and when it draws the first figure. */
async function firstPaint(url) {
  const { server, browser } = await launch();
  const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
  await page.addInitScript(() => new MutationObserver(() => {
    if (!globalThis.drawn && document.querySelector("#verdict .headline")) globalThis.drawn = performance.now();
  }).observe(document, { childList: true, subtree: true }));
  await page.goto(url);
  await page.waitForSelector("#verdict .headline");
  const times = await page.evaluate(() => ({ paint: performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? null, data: globalThis.drawn }));
  await server.close();
  return times;
}
