// Every page by its link: what it shows against what the server and the kernel say, pictures of it, and that its address restores it.

const { answers, assert, digits, main, picture, until } = require("./driver.cjs");
const { execFileSync } = require("node:child_process");

const PAGES = ["overview", "sockets", "closes", "flows", "sinks", "query"];

main(async ({ open, question }) => {
  const seen = {};
  for (const scheme of ["light", "dark"]) {
    const { page, context, checked } = await open({ scheme, height: 3000 });
    for (const name of PAGES) {
      await page.click(`nav a[href*="page=${name}"], nav a:text-is("${name === "overview" ? "Overview" : "none"}")`);
      await until(`${name} is the page`, () => page.evaluate((name) => new URLSearchParams(location.search).get("page") ?? "overview", name).then((shown) => shown === name));
      seen[name] = await CHECKS[name](page, question);
      await picture(page, `${name}-${scheme}`);
      await checked();
    }
    await context.close();
  }

  await restores(open);
  return seen;
});

const texts = (page, selector) => page.$$eval(selector, (all) => all.map((one) => one.textContent));

const CHECKS = {
  async overview(page) {
    await until("a drawing and a heat map", () => page.evaluate(() => document.querySelector("#stream svg") && document.querySelector("#heat canvas")));
    await until("a line of some looks", () => page.$eval("#rates path.first", (line) => line.getAttribute("d").split("L").length > 4).catch(() => false));
    return (await texts(page, "#ledger tbody tr")).length;
  },

  // The connections that this test holds, by the kernel's own tool.
  async sockets(page, { held }) {
    await page.fill("#filter", `state established and dport = :${held.port}`);
    await page.press("#filter", "Enter");
    await until("the sockets that are held", async () => (await texts(page, "#matched"))[0] === String(held.count));
    const listed = execFileSync("ss", ["-Htn", "state", "established", "dport", "=", `:${held.port}`], { encoding: "utf8" });
    const expected = listed.trim().split("\n").map((line) => line.trim().split(/\s+/).slice(2, 4).join(" ")).sort();
    // A panel is drawn once the browser has said that it is in sight.
    const shown = await until("their rows", async () => {
      const rows = await page.$$eval("#sockets tr[data-cookie]", (rows) => rows.map((row) => [...row.children].slice(0, 2).map((cell) => cell.textContent).join(" ")));
      return rows.length > 0 && rows;
    });
    assert.deepEqual(shown.sort(), expected);
    const groups = await page.$$eval("#groups tbody tr", (rows) => rows.map((row) => Number(row.querySelector("td:nth-of-type(2)").textContent.replaceAll(",", ""))));
    assert.equal(groups.reduce((sum, count) => sum + count, 0), held.count, "groups and other are all");

    // Sorted by the server, by the keyboard.
    await page.focus('button[data-sort="dst_port"]');
    await page.keyboard.press("Enter");
    await until("the direction in the header", () => page.$eval('th:has(button[data-sort="dst_port"])', (head) => head.getAttribute("aria-sort") === "ascending"));
    assert.equal(await page.evaluate(() => document.activeElement.dataset.sort), "dst_port", "the focus stays");

    // One of them.
    await page.click("#sockets tbody a");
    await until("its figures", () => page.$eval("#now h3", (head) => head.textContent).catch(() => ""));
    await until("a line of some looks", () => page.$eval("#rtt path.first", (line) => line.getAttribute("d").split("L").length > 3).catch(() => false));
    await picture(page, "connection");
    await page.goBack();
    await until("all sockets again", async () => (await page.$$("#sockets tbody a")).length === held.count);
    return shown.length;
  },

  async closes(page) {
    const ledgers = answers(page, "/ledger");
    await until("counts that agree with an answer", async () => {
      const shown = await page.evaluate(() => ({
        taken: document.querySelector("#ends .body")?.dataset.taken,
        ends: [...document.querySelectorAll("#ends [data-end]")].map((row) => [row.dataset.end, row.querySelector("td").textContent]),
      }));
      const ledger = ledgers.find((one) => one.taken_at_unix_ms === shown.taken);
      if (!ledger) return false;
      const events = ledger.hops.find((hop) => hop.hop === "close").events;
      for (const [end, count] of shown.ends) assert.equal(digits(count), events[`ended_${end}`] ?? "0", end);
      return shown.ends.length === 7;
    });
    await until("how to keep a history", () => page.$("#recent .no-history"));
    return true;
  },

  async flows(page) {
    const tops = answers(page, "/flows/top");
    await until("flows", async () => (await texts(page, "#top tbody tr")).length > 1);
    const rows = await until("rows of an answer", async () => {
      const shown = await page.$$eval("#top tbody tr", (rows) => rows.map((row) => Number(row.dataset.samples)));
      const sum = shown.reduce((sum, count) => sum + count, 0);
      return tops.some(({ definition }) => definition.name === "pairs" && definition.samples.counted === sum) && shown;
    });
    return rows.length;
  },

  async sinks(page) {
    const ledger = answers(page, "/ledger");
    await until("both sinks", async () => (await texts(page, "#fate tbody tr")).length === 2);
    await until("the trouble of one", async () => (await texts(page, "#lag tbody")).join().includes("Fix: "));
    await until("counts that an answer has", async () => {
      const shown = await page.$$eval("#fate tbody tr", (rows) => rows.map((row) => [row.dataset.hop, ...[...row.children].slice(1, 4).map((cell) => cell.textContent.replaceAll(",", ""))]));
      return ledger.some(({ hops }) => {
        const sinks = hops.filter((hop) => hop.hop === "sink");
        return JSON.stringify(sinks.map((hop) => [`sink/${hop.origin}/${hop.target}`, hop.received.count, hop.delivered.count, hop.in_flight.count])) === JSON.stringify(shown);
      });
    });
    return true;
  },

  async query(page) {
    await until("how to keep a history", () => page.$(".named .no-history"));
    await page.fill("#sql", "select 1");
    await page.press("#sql", "Control+Enter");
    await until("the answer", () => page.$("#answer .no-history"));
    assert.equal(await page.evaluate(() => new URLSearchParams(location.search).get("sql")), "select 1");
    return true;
  },
};

/** Page, range, filter, group and sort come back from the address alone, and so does what was picked or written. */
async function restores(open) {
  for (const [name, query, shows] of [
    ["overview", "", "#verdict"], ["closes", "", "#ends"], ["sinks", "", "#lag"], ["flows", "&pick=pairs", "#definition"],
    ["query", "&sql=select+2", "#answer"], ["query", "&pick=losses", "#answer"],
  ]) {
    const { page, context, checked } = await open({ path: `/?page=${name}&range=24h${query}` });
    await until(`${name} with ${query}`, () => page.$(shows));
    assert.equal(await page.$eval("#range", (select) => select.value), "24h", name);
    assert.equal(await page.$eval('nav a[aria-current="page"]', (link) => new URL(link.href).searchParams.get("page") ?? "overview"), name);
    if (name === "flows") assert.equal(await page.$eval("#definition", (select) => select.value), "pairs");
    if (query.includes("sql")) assert.equal(await page.$eval("#sql", (text) => text.value), "select 2");
    await checked();
    await context.close();
  }

  const { page, context, checked } = await open({ path: "/?page=sockets&range=6h&filter=dport+%3D+%3A1&group=state&sort=-bytes_sent" });
  await until("the page", () => page.$("#sockets table"));
  const shown = await page.evaluate(() => ({
    title: document.querySelector("h1").textContent,
    range: document.querySelector("#range").value,
    filter: document.querySelector("#filter").value,
    group: document.querySelector("#group").value,
    sort: document.querySelector('th[aria-sort="descending"] button').dataset.sort,
  }));
  assert.deepEqual(shown, { title: "TCP sockets", range: "6h", filter: "dport = :1", group: "state", sort: "bytes_sent" });
  await page.fill("#filter", "sprot = :1");
  await page.press("#filter", "Enter");
  await until("a mistake with its caret", () => page.$eval(".mistake", (said) => said.textContent.includes("^")).catch(() => false));
  await checked();
  await context.close();
}
