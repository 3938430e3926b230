// A long table: it has elements for what is in sight alone, the keyboard reaches its last row, and paper has all of it.

const { assert, cells, digits, main, nodesOf, until } = require("./driver.cjs");

main(async ({ open, question: { held } }) => {
  const filter = new URLSearchParams({ page: "sockets", filter: `state established and dport = :${held.port}` });
  const { page, checked } = await open({ path: `/?${filter}`, height: 900 });
  await until("all of them", () => page.$eval("#matched", (count) => count.textContent).then((count) => count === String(held.count)).catch(() => false));
  await page.evaluate(() => scrollTo(0, document.body.scrollHeight));
  const shown = () => page.$$eval("#sockets tbody tr[aria-rowindex]", (rows) => rows.map((row) => Number(row.getAttribute("aria-rowindex"))));
  await until("the first rows", async () => (await shown()).includes(2));
  assert.equal(await page.$eval("#sockets table", (table) => table.getAttribute("aria-rowcount")), String(held.count + 1));

  await page.focus("#sockets .scroll");
  await page.keyboard.press("End");
  await until("the last row", async () => (await shown()).includes(held.count + 1));
  const last = page.locator(`#sockets tr[aria-rowindex="${held.count + 1}"]`);
  await until("it is in sight", () => last.evaluate((row) => {
    const [is, room] = [row.getBoundingClientRect(), document.querySelector("#sockets .scroll").getBoundingClientRect()];
    return is.height > 0 && is.bottom <= room.bottom + 1 && is.top >= room.top;
  }));
  assert.ok((await shown()).length < 40, "rows out of sight have no elements");

  const nodes = await nodesOf(page);

  await page.evaluate(() => addEventListener("beforeprint", () => { globalThis.printed = document.querySelectorAll("#sockets tbody tr[aria-rowindex]").length; }));
  await page.pdf();
  assert.equal(await page.evaluate(() => globalThis.printed), held.count, "paper has every row");

  // Each of them has a port of its own: more groups than are shown.
  await page.selectOption("#group", "src_port");
  const groups = await until("the groups", async () => {
    const rows = await cells(page, "#groups").catch(() => []);
    return rows.length > 1 && rows;
  });
  assert.equal(groups.at(-1)[0].text, "other");
  assert.equal(groups.reduce((sum, [, , sockets]) => sum + Number(digits(sockets.text)), 0), held.count, "groups and other are all");
  await checked();
  return { nodes };
});
