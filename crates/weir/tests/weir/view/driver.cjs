// A Chromium without a window, and what every page must hold: no violation of its policy, no error, no question to another host.

const assert = require("node:assert/strict");
const fs = require("node:fs");
const path = require("node:path");
const { chromium } = require("playwright-core");

const question = JSON.parse(process.argv[2]);

/** Says something to the test. */
const say = (text) => process.stderr.write(`${text}\n`);

/**
 * Runs `script` with a browser; what it returns is the answer.
 * @param {(tools: any) => Promise<unknown>} script
 */
async function main(script) {
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox", "--disable-gpu"] });
  try {
    const seen = await script({ browser, question, say, open: (how) => open(browser, how) });
    process.stdout.write(JSON.stringify(seen));
  } finally {
    await browser.close();
  }
}

/**
 * Opens a page, and notes what must not be.
 * @param {{path?: string, width?: number, height?: number, scheme?: string, url?: string}} how
 */
async function open(browser, { path = "/", width = 1280, height = 4000, scheme = "light", url = question.url } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: scheme });
  const page = await context.newPage();
  const faults = [];
  page.on("pageerror", (error) => faults.push(String(error)));
  page.on("console", (message) => {
    // A daemon that is gone, or has no history, is no fault of the page.
    if (message.type() === "error" && !/Failed to load resource/.test(message.text())) faults.push(message.text());
  });
  page.on("request", (request) => {
    if (!request.url().startsWith(`${url}/`) && !request.url().startsWith("data:")) faults.push(`asked another host: ${request.url()}`);
  });
  await page.addInitScript(() => {
    globalThis.violations = [];
    addEventListener("securitypolicyviolation", (event) => globalThis.violations.push(`${event.violatedDirective}: ${event.blockedURI}`));
  });
  await page.goto(url + path);

  const checked = async () => {
    faults.push(...(await page.evaluate(() => globalThis.violations.splice(0))));
    assert.deepEqual(faults, []);
  };
  return { page, context, checked };
}

/** Waits until `look` returns something, which is returned. */
async function until(what, look, limitMs = 60_000) {
  const end = Date.now() + limitMs;
  for (;;) {
    const found = await look();
    if (found) return found;
    if (Date.now() > end) throw new Error(`not within ${limitMs} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** Answers of the server that a page gets from now on, by path. */
function answers(page, pathname) {
  const all = [];
  page.on("response", async (response) => {
    if (new URL(response.url()).pathname !== pathname || !response.ok()) return;
    const json = await response.json().catch(() => null);
    if (json) all.push(json);
  });
  return all;
}

const digits = (text) => text.replaceAll(",", "");

/** The texts of the cells of a table's rows, and what they say when they are pointed at; as on paper, which has the rows out of sight too. */
const cells = (page, selector) => page.$$eval(selector, (tables) => {
  dispatchEvent(new Event("beforeprint"));
  const rows = tables.flatMap((table) => [...table.querySelectorAll("tbody tr")]);
  const found = rows.map((row) => [...row.children].map((cell) => ({ text: cell.textContent, tip: (cell.querySelector("[title]") ?? cell).title })));
  dispatchEvent(new Event("afterprint"));
  return found;
});

/** How many nodes a document has, with those of text. */
const nodesOf = (page) => page.evaluate(() => document.evaluate("count(//node())", document, null, XPathResult.NUMBER_TYPE).numberValue);

/** Leaves a picture of all that a page shows, for people to look at. */
async function picture(page, name) {
  const { width, height } = await page.evaluate(() => ({ width: document.documentElement.clientWidth, height: Math.ceil(document.body.getBoundingClientRect().height) }));
  await page.screenshot({ path: path.join(question.pictures, `${name}.png`), clip: { x: 0, y: 0, width, height } });
}

const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];

/** Holds a page to WCAG 2.2 AA; returns how many rules it passed. */
async function obeys(page, context, what) {
  // Runs in a world of its own, which the page's policy does not reach.
  const axe = fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
  const session = await context.newCDPSession(page);
  const { frameTree } = await session.send("Page.getFrameTree");
  const { executionContextId } = await session.send("Page.createIsolatedWorld", { frameId: frameTree.frame.id, worldName: "axe" });
  const run = (expression) => session.send("Runtime.evaluate", { contextId: executionContextId, expression, awaitPromise: true, returnByValue: true });
  await run(axe);
  const { result, exceptionDetails } = await run(`axe.run({ runOnly: ${JSON.stringify(RULES)} }).then(({ violations, passes }) => ({
    passes: passes.length,
    violations: violations.map(({ id, nodes }) => id + ": " + nodes.slice(0, 3).map((node) => node.html.slice(0, 200) + " " + node.failureSummary).join(" | ")),
  }))`);
  assert.equal(exceptionDetails, undefined);
  assert.deepEqual(result.value.violations, [], what);
  return result.value.passes;
}

module.exports = { answers, assert, cells, digits, main, nodesOf, obeys, picture, until };
