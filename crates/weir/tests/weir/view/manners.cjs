// For everybody: no violation of WCAG 2.2 AA, everything by the keyboard, no sideways scrolling on a telephone, all of it on paper.

const { assert, main, obeys, picture, until } = require("./driver.cjs");
const path = require("node:path");

const PAGES = ["overview", "sockets", "closes", "flows", "sinks", "query"];

main(async ({ open, question }) => {
  let rules = 0;
  for (const scheme of ["light", "dark"]) {
    for (const name of PAGES) {
      const { page, context } = await open({ path: `/?page=${name}`, scheme, height: 2500 });
      await until(`${name} has figures`, () => page.$(".panel table, .panel svg, .no-history"));
      rules += await obeys(page, context, `${name} in ${scheme}`);
      await context.close();
    }
  }

  // A window of 1280 px at twice and at four times the size.
  for (const name of PAGES) for (const width of [640, 320]) await narrow(open, name, width);
  await keyboard(open);
  await paper(open, question);
  return { rules };
});

/** Nothing is wider than the window. */
async function narrow(open, name, width) {
  const { page, context, checked } = await open({ path: `/?page=${name}`, width, height: 6000 });
  await until(`${name} has figures`, () => page.$(".panel table, .panel svg, .no-history"));
  const [is, room] = await page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]);
  await picture(page, `${name}-${width}`);
  assert.ok(is <= room, `${name}: ${is} px in ${room}`);
  await checked();
  await context.close();
}

/** From the top of the page to each link, control and table, in their order. */
async function keyboard(open) {
  const { page, context } = await open({ path: "/?page=sockets" });
  await until("sockets", () => page.$("#sockets tbody a"));
  const reached = new Set();
  for (let step = 0; step < 80; step += 1) {
    await page.keyboard.press("Tab");
    reached.add(await page.evaluate(() => {
      const at = document.activeElement;
      return at.id || at.dataset.sort || at.className || at.textContent;
    }));
  }
  for (const wanted of ["skip", "brand", "Overview", "range", "filter", "group", "rtt_us", "scroll long"]) assert.ok(reached.has(wanted), `${wanted}: ${[...reached]}`);
  await context.close();
}

/** Every row of the ledger, and no controls. */
async function paper(open, question) {
  const { page, context } = await open({ height: 700 });
  await until("the ledger's rows", () => page.evaluate(() => {
    scrollTo(0, document.body.scrollHeight);
    return document.querySelectorAll("#ledger tbody tr").length > 5;
  }));
  await page.emulateMedia({ media: "print" });
  const shown = await page.evaluate(() => ({
    controls: getComputedStyle(document.querySelector(".controls")).display,
    overflow: getComputedStyle(document.querySelector("#ledger .scroll")).overflow,
    rows: document.querySelectorAll("#ledger tbody tr").length,
  }));
  const ledger = await page.evaluate(() => fetch("/ledger").then((response) => response.json()));
  assert.deepEqual(shown, { controls: "none", overflow: "visible", rows: ledger.hops.length });
  await page.pdf({ path: path.join(question.pictures, "overview.pdf") });
  await context.close();
}
