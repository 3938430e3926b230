// Every count that the overview shows, against the answer from which the page has it.

const { assert, main, until } = require("./driver.cjs");

const LOOKS = 5;

main(async ({ open }) => {
  const { page, checked } = await open();
  const answers = new Map();
  page.on("response", async (response) => {
    if (new URL(response.url()).pathname !== "/ledger") return;
    const ledger = await response.json().catch(() => null);
    if (ledger) answers.set(ledger.taken_at_unix_ms, ledger);
  });

  const words = await page.evaluate(() => fetch("/ui/reasons.json").then((response) => response.json()));
  const seen = new Set();
  while (seen.size < LOOKS) {
    const shown = await until("another answer in the table", async () => {
      const shown = await page.evaluate(read);
      return shown.taken && !seen.has(shown.taken) && answers.has(shown.taken) && shown;
    });
    seen.add(shown.taken);
    compare(shown, answers.get(shown.taken), words);
  }
  await checked();
  return { compared: seen.size };
});

/** Runs in the page: its table and its verdict at one moment. */
function read() {
  const digits = (element) => element?.textContent.replaceAll(",", "") ?? null;
  const body = document.querySelector("#ledger .body");
  const rows = [...document.querySelectorAll("#ledger tbody tr")].map((row) => {
    const cells = [...row.children];
    return {
      hop: row.dataset.hop,
      received: digits(cells[3]),
      delivered: digits(cells[4]),
      losses: [...cells[5].querySelectorAll("[data-way]")].map((loss) => [loss.dataset.way, digits(loss.querySelector(".count"))]),
      inside: digits(cells[6]),
    };
  });
  return { taken: body?.dataset.taken, rows, total: digits(document.querySelector("#lost-total")), drawn: document.querySelector("#stream")?.textContent ?? "" };
}

function compare(shown, ledger, words) {
  const grouped = (digits) => digits.replace(/\B(?=(\d{3})+$)/g, ",");
  assert.equal(shown.rows.length, ledger.hops.length);
  let total = 0n;
  ledger.hops.forEach((hop, at) => {
    const row = shown.rows[at];
    assert.equal(row.hop, `${hop.hop}/${hop.origin}/${hop.target ?? ""}`);
    assert.equal(row.received, hop.received.count);
    assert.equal(row.delivered, hop.delivered.count);
    assert.equal(row.inside, hop.in_flight.count);
    assert.deepEqual(row.losses, hop.dropped.map(({ reason, count }) => [reason, count]));
    for (const { reason, count } of hop.dropped) {
      assert.ok(shown.drawn.includes(`${grouped(count)} ${reason}`), `${count} ${reason} is not drawn: ${shown.drawn}`);
      if (!words[reason].intended) total += BigInt(count);
    }
  });
  assert.equal(shown.total ?? "0", String(total));
}
