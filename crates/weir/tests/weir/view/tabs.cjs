// Seven tabs at once are all live. A tab that nobody sees asks nothing.

const { assert, main, until } = require("./driver.cjs");

const TABS = 7;

main(async ({ open, browser, question }) => {
  const context = await browser.newContext();
  const pages = [];
  for (let at = 0; at < TABS; at += 1) {
    const page = await context.newPage();
    await page.goto(`${question.url}/?page=${at % 2 ? "sockets" : "overview"}`);
    pages.push(page);
  }
  for (const page of pages) await goesOn(page);

  // Chromium without a window shows every tab, so the page is told that it is hidden.
  const { page } = await open();
  await until("a ledger", () => page.$("#ledger tbody tr"));
  await page.evaluate(() => {
    Object.defineProperty(document, "hidden", { configurable: true, get: () => true });
    document.dispatchEvent(new Event("visibilitychange"));
  });
  // What was under way ends while another tab goes on.
  await goesOn(pages[0]);
  let asked = 0;
  page.on("request", () => { asked += 1; });
  for (let looks = 0; looks < 3; looks += 1) await goesOn(pages[0]);
  assert.equal(asked, 0, "a hidden tab asks nothing");
  await page.evaluate(() => {
    delete document.hidden;
    document.dispatchEvent(new Event("visibilitychange"));
  });
  await until("it goes on when it is seen", () => asked > 0);
  return { tabs: pages.length };
});

/** Waits until a tab is live, and then for its next look: the time that the daemon is up changes. */
async function goesOn(page) {
  const status = () => page.$eval("#status", (status) => status.textContent).catch(() => "");
  const first = await until("a live tab", async () => (await page.$eval("#status", (one) => one.dataset.level).catch(() => "")) === "live" && status());
  await until("it goes on", async () => (await status()) !== first);
}
