// More targets than are drawn as bands: a table with bars, whose counts are the ledger's.

const { answers, assert, cells, digits, main, picture, until } = require("./driver.cjs");

main(async ({ open }) => {
  const { page, checked } = await open();
  const ledgers = answers(page, "/ledger");
  const table = '#stream figure:has(figcaption:text-is("many"))';
  await until("the table", () => page.$(`${table} tbody tr`));
  const rows = await until("counts that an answer has, with losses", async () => {
    const shown = (await cells(page, table)).map(([name, , delivered, lost]) => [name.text, digits(delivered.text), digits(lost.text)]);
    return ledgers.some((ledger) => JSON.stringify(expected(ledger)) === JSON.stringify(shown)) && shown.some(([, , lost]) => lost) && shown;
  });
  assert.equal(await page.$(`${table} > svg`), null, "no bands are drawn");
  await picture(page, "targets");
  await checked();
  return { rows: rows.length };
});

/** What the table has to show: what was received, then each target with what it handed over and every loss. */
function expected({ hops }) {
  const own = hops.filter((hop) => hop.origin === "many");
  const at = (kind, target) => own.find((hop) => hop.hop === kind && hop.target === target);
  const row = (name, all, beyond) => {
    const there = all.filter(Boolean);
    const dropped = [...there, beyond].filter(Boolean).flatMap((hop) => hop.dropped);
    return [name, there.at(-1).delivered.count, dropped.map(({ reason, count }) => `✕ ${count} ${reason}`).join("")];
  };
  return [row("received", [at("socket"), at("receive")]),
    ...own.filter((hop) => hop.hop === "target").map((hop) => row(hop.target, [hop, at("egress", hop.target)], at("receiver", hop.target)))];
}
