// With a store, by its contract: what was before is drawn and listed, and questions are answered.

const { COUNT, NAMED, STORE, answer } = require("./contract.cjs");
const { assert, main, picture, until } = require("./driver.cjs");

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
    const line = query === "" && await until("the line", () => page.$eval("#rates path.first:not(.before)", (line) => line.getAttribute("d")).catch(() => ""));
    if (line) assert.equal(line.split(/[ML]/).length - 1, COUNT - 1);
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
