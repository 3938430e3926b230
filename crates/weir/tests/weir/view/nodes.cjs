// The most nodes that a page has in a window of 1280 × 900, with a history whose every answer is full: where each of its parts is in sight.

const { NAMED, STORE, answer } = require("./contract.cjs");
const { main, nodesOf, until } = require("./driver.cjs");

const PAGES = { overview: "", sockets: "page=sockets", closes: "page=closes", flows: "page=flows", sinks: "page=sinks", query: "page=query&pick=recent-closes" };
/** Rows of a list whose question has no limit: more than any page shows at once. */
const ROWS_MAX = 1_000;

/** As many rows as were asked for; a drawing keeps its own. */
function full(url) {
  const name = url.pathname.slice(7);
  const { columns, rows } = STORE[name];
  if (columns.some((column) => column.name === "bucket_unix_ns")) return STORE[name];
  const limit = Number(url.searchParams.get("limit") ?? ROWS_MAX);
  return answer(columns.map((column) => column.name), Array.from({ length: limit }, (_, at) => rows[at % rows.length]));
}

main(async ({ open, question }) => {
  const { page, checked } = await open({ path: "/favicon", height: 900 });
  await page.route((url) => url.pathname === "/query", (route) => route.fulfill({ json: NAMED }));
  await page.route((url) => url.pathname.startsWith("/query/"), (route) => route.fulfill({ json: full(new URL(route.request().url())) }));

  const most = {};
  for (const [name, query] of Object.entries(PAGES)) {
    await page.goto(`${question.url}/?${query}`);
    await until(`${name} has figures`, () => page.$(".panel table, .panel svg"));
    const panels = await page.$$eval(".panel", (all) => all.map(({ id }) => id));
    // Twice, so that what the first visit drew is there at the second one.
    for (const id of [...panels, ...panels]) {
      await page.$eval(`#${id}`, (panel) => panel.scrollIntoView());
      await until(`${name} draws ${id}`, () => page.$eval(`#${id}`, (panel) => panel.querySelector(".body > *")));
      await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
      most[name] = Math.max(most[name] ?? 0, await nodesOf(page));
    }
  }
  await checked();
  return most;
});
