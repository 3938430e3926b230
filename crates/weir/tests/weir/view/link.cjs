// A link with a token, as `weir ui` prints it: the page is live, and the token is not left in the address.

const { assert, main, until } = require("./driver.cjs");

main(async ({ open, question }) => {
  const { page, checked } = await open({ path: question.path });
  const level = await until("the page is live", async () => {
    const level = await page.$eval("#status", (status) => status.dataset.level).catch(() => "");
    return level === "live" && level;
  });
  assert.equal(page.url(), `${question.url}/`);
  await checked();
  return { level };
});
