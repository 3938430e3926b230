// A daemon that is killed and started again: the page says so, goes on by itself, and no rate is made of two lives.

const { assert, main, until } = require("./driver.cjs");

main(async ({ open, say }) => {
  const { page, checked } = await open();
  const level = () => page.$eval("#status", (status) => status.dataset.level).catch(() => "");
  await until("the page is live", async () => (await level()) === "live");
  const run = await page.$eval("#status", (status) => status.textContent);
  // The rates of the first table of another life.
  await page.evaluate(() => {
    const life = () => /run (\w+)/.exec(document.querySelector("#status").textContent)?.[1];
    let known = life();
    new MutationObserver(() => {
      const now = life();
      if (!now || now === known) return;
      known = now;
      globalThis.first = [...document.querySelectorAll("#ledger tbody tr")].flatMap((row) => [...row.children].slice(-2).map((cell) => cell.textContent));
    }).observe(document.querySelector("#ledger"), { childList: true, subtree: true });
  });

  say("kill it");
  const died = Date.now();
  await until("the page says that there is no answer", async () => (await level()) === "dead");
  const noticedMs = Date.now() - died;
  assert.match(await page.$eval("#status", (status) => status.textContent), /^No answer since .*the daemon cannot be reached/);
  assert.ok(await page.$("#ledger tbody tr"), "the last figures stay");

  say("start it");
  await until("the page is live again", async () => (await level()) === "live");
  assert.notEqual(await page.$eval("#status", (status) => status.textContent), run);
  await until("rates of the new life", () => page.$eval("#rates .now", (words) => !words.textContent.includes("–")).catch(() => false));
  const first = await page.evaluate(() => globalThis.first);
  assert.ok(first.length > 10 && first.every((rate) => rate === "–"), `no rate is made of two lives: ${first}`);
  await checked();
  return { noticedMs };
});
