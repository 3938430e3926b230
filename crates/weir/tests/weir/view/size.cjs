// What the page weighs: each file as it is sent, and compressed as a proxy would send it.

const { main } = require("./driver.cjs");
const { gzipSync } = require("node:zlib");

main(async ({ browser, question }) => {
  const page = await (await browser.newContext()).newPage();
  const first = [];
  page.on("response", async (response) => {
    const { pathname } = new URL(response.url());
    if (pathname === "/" || pathname.startsWith("/ui/")) first.push([pathname, await response.body()]);
  });
  await page.goto(question.url, { waitUntil: "networkidle" }).catch(() => {});
  await page.waitForSelector("#ledger tbody tr");
  const bytes = first.reduce((sum, [, body]) => sum + body.length, 0);
  const compressed = first.reduce((sum, [, body]) => sum + gzipSync(body, { level: 9 }).length, 0);
  return { files: first.length, bytes, compressed };
});
