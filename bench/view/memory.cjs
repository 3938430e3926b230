// What memory a daemon keeps that collects SOCKETS and has a history: memory.cjs WEIR [SOCKETS] [MINUTES]. Prints JSON. Nobody looks at its page.
// Run it in a network namespace of its own; several at once compare builds.

const { connections, cpuOf, get, pause, run, startDaemon, status } = require("./rig.cjs");

const [weir, count = "60000", minutes = "20"] = process.argv.slice(2);

run(async () => {
  await connections(Number(count), 100);
  const { pid, url } = await startDaemon(weir, (folder) => `store:${folder}/history`);
  const samples = [];
  for (let minute = 0; minute <= Number(minutes); minute += 1) {
    samples.push({ minute, rss_mib: status(pid, "VmRSS"), rss_most_mib: status(pid, "VmHWM"), cpu_s: cpuOf(pid) });
    await pause(60_000);
  }
  return { sockets: Number(JSON.parse(await get(`${url}/sockets?limit=1`)).matched), samples };
});
