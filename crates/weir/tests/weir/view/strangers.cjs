// Another site, by a name that it points at this machine and from a page of its own: neither gets a figure.

const { assert, main } = require("./driver.cjs");
const { chromium } = require("playwright-core");

const DATA = ["/ledger", "/ledger?format=text", "/sockets?sort=-rtt_us", "/flows", "/flows/top?flow=pairs", "/flows/agents", "/flows/events", "/daemon", "/metrics"];

main(async ({ question }) => {
  const { port } = new URL(question.url);
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP evil.example 127.0.0.1"] });
  const page = await (await browser.newContext()).newPage();
  for (const path of ["/", "/ui/main.js", ...DATA]) {
    const response = await page.goto(`http://evil.example:${port}${path}`);
    assert.equal(response.status(), 403, path);
  }

  // The page of another site is made up here; what it asks goes to the daemon.
  await page.route("http://other.example/", (route) => route.fulfill({ contentType: "text/html", body: "<title>other</title>" }));
  await page.goto("http://other.example/");
  const read = await page.evaluate(async ([url, paths]) => {
    const texts = [];
    for (const path of paths) texts.push(await fetch(url + path).then((response) => response.text()).catch(() => null));
    return texts;
  }, [question.url, DATA]);
  assert.deepEqual(read, DATA.map(() => null));
  await browser.close();
  return { refused: DATA.length + 2 };
});
