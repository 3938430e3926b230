// A server that wants a token: by a link that carries it behind the `#`, and typed in.

const { assert, main, until } = require("./driver.cjs");

const TOKEN = "correct-horse-battery-staple-0123456789";

main(async ({ open, question }) => {
  const { page, context, checked } = await open({ path: "/healthz" });
  const shown = [];
  await page.route((url) => url.pathname === "/ledger", (route) => {
    const given = route.request().headers().authorization;
    shown.push(given ?? null);
    return given === `Bearer ${TOKEN}` ? route.continue() : route.fulfill({ status: 401, body: "this needs the token\n" });
  });
  const isLive = () => page.$eval("#status", (status) => status.dataset.level === "live").catch(() => false);

  await page.goto(`${question.url}/?range=1h`);
  await page.fill("#token", TOKEN);
  await page.press("#token", "Enter");
  await until("the page is live by what was typed", isLive);

  await page.evaluate(() => sessionStorage.clear());
  await page.goto(`${question.url}/?range=6h#token=${TOKEN}`);
  await until("the page is live by its link", isLive);
  assert.equal(page.url(), `${question.url}/?range=6h`, "the token is not left in the address");
  assert.deepEqual(await context.cookies(), []);
  assert.ok(shown.includes(null));
  await checked();
  return { asked: shown.length };
});
