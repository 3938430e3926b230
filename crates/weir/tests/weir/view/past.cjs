// The past from a real store: what is drawn and listed is what the daemon answers to the same questions.

const { answers, assert, cells, digits, main, picture, until } = require("./driver.cjs");

const WAITED = ["ledger-rates", "losses", "rtt-heat", "worst-peers", "worst-services", "closes-by-end", "recent-closes", "top-flows"];

main(async ({ open, question }) => {
  const { page, checked } = await open({ path: "/?range=15m" });
  const ask = (path) => page.evaluate((path) => fetch(path).then((response) => response.json()), path);
  for (const name of WAITED) await until(`rows of ${name}`, async () => (await ask(`/query/${name}?since=30m`)).row_count > 0, 120_000);
  await until("two points", async () => new Set((await ask("/query/ledger-rates?since=30m")).rows.map((row) => row[0])).size > 1, 120_000);

  await overview(page);
  for (const [name, [path, panel, title, compare]] of Object.entries(LISTS)) {
    const asked = answers(page, `/query/${title}`);
    await page.goto(`${question.url}/?page=${path}&range=15m`);
    await until(`${name} as it is answered`, async () => {
      const shown = await cells(page, panel);
      return asked.some((answer) => shown.length > 0 && shown.length === answer.row_count && records(answer).every((row, at) => compare(shown[at], row)));
    });
  }
  await connection(page, question, ask);
  const named = await queries(page, question, ask);
  await picture(page, "past-query");
  await checked();
  return { named };
});

const records = ({ columns, rows }) => rows.map((row) => Object.fromEntries(columns.map(({ name }, at) => [name, row[at]])));
const same = ({ text }, value) => digits(text) === String(value);
const bytes = ({ tip }, value) => tip === `${value} bytes`;

/** The panels that list an answer: page, panel, question, and whether cells are those of a row. */
const LISTS = {
  peers: ["sockets", "#peers", "worst-peers", (cells, row) => cells[0].text === row.peer && same(cells[3], row.samples) && bytes(cells[4], row.sent_bytes)],
  services: ["sockets", "#services", "worst-services", (cells, row) => cells[0].text === String(row.service) && same(cells[3], row.samples)],
  closes: ["closes", "#recent", "recent-closes", (cells, row) => cells[1].text === row.close_reason.replaceAll("_", " ") && cells[2].text.endsWith(`:${row.src_port}`) && cells[3].text.endsWith(`:${row.dst_port}`)],
  flows: ["flows", "#carried", "top-flows", (cells, row) => cells[0].text === row.definition && cells[1].text === row.key && bytes(cells[2], row.total_bytes)],
};

/** The line is every point of the answer at its height, and the words have every loss of the answer. */
async function overview(page) {
  const [rates, losses] = [answers(page, "/query/ledger-rates"), answers(page, "/query/losses")];
  const words = await page.evaluate(() => fetch("/ui/reasons.json").then((response) => response.json()));
  await until("the line of an answer", async () => {
    const line = await page.$eval("#rates path.first:not(.before)", (line) => line.getAttribute("d")).catch(() => "");
    const { heights } = await page.evaluate(drawn, rates.map(({ columns, rows }) => ({ columns, rows })));
    return heights.some((expected) => expected.length > 1 && expected.join() === aboveZero(heightsOf(line)).join());
  });
  await until("the losses of an answer", async () => {
    const text = await page.$eval(".range", (range) => range.textContent);
    return losses.some((answer) => {
      const lost = records(answer).filter((row) => row.hop !== "member" && !words[row.reason || row.way]?.intended).slice(0, 3);
      return lost.length > 0 && lost.every((row) => digits(text).includes(`${row.lost} ${row.reason || row.way} at ${row.hop}`));
    });
  });
  const times = rates.at(-1).rows.map((row) => BigInt(row[0]));
  assert.ok(times.every((time, at) => at === 0 || time <= times[at - 1]), "newest first");
  await picture(page, "past-overview");
}

/** Of a chart of the usual height; where the store has no row, which a busy machine may write late, the page draws a zero. */
const aboveZero = (heights) => heights.filter((height) => height !== "110.0");
const heightsOf = (line) => [...line.matchAll(/[ML][\d.]+ ([\d.]+)/g)].map(([, height]) => height);

/** Runs in the page: where its chart has to draw what arrived, by each of these answers. */
async function drawn(answers) {
  const { niceTop } = await import("/ui/chart.js");
  const svg = document.querySelector("#rates svg");
  const [top, bottom] = [8, 20];
  const heights = answers.map(({ columns, rows }) => {
    const at = Object.fromEntries(columns.map(({ name }, at) => [name, at]));
    const egress = new Set(rows.filter((row) => row[at.hop] === "egress").map((row) => `${row[at.origin]} ${row[at.target]}`));
    const sums = new Map();
    for (const row of rows) {
      const sum = sums.get(row[at.bucket_unix_ns]) ?? { arrived: 0, sent: 0, stored: 0 };
      sums.set(row[at.bucket_unix_ns], sum);
      const rate = Number(row[at.amount]) / (Number(row[at.width_ns]) / 1e9);
      const [hop, way] = [row[at.hop], row[at.way]];
      if (hop === "socket" && way === "received") sum.arrived += rate;
      if (way === "delivered" && (hop === "egress" || (hop === "target" && !egress.has(`${row[at.origin]} ${row[at.target]}`)))) sum.sent += rate;
      if (way === "delivered" && hop === "sink") sum.stored += rate;
    }
    const all = [...sums].sort(([a], [b]) => Number(BigInt(a) - BigInt(b))).map(([, sum]) => sum);
    const scale = niceTop(Math.max(0, ...all.flatMap((sum) => [sum.arrived, sum.sent, sum.stored])));
    return all.filter((sum) => sum.arrived > 0).map((sum) => (top + (1 - sum.arrived / scale) * (svg.height.baseVal.value - top - bottom)).toFixed(1));
  });
  return { heights };
}

/** One of the connections that the test holds: each of its records is a point. */
async function connection(page, { url, held }, ask) {
  const { sockets: [{ cookie, netns_inode: namespace }] } = await ask(`/sockets?${new URLSearchParams({ filter: `state established and dport = :${held.port}`, sort: "-rtt_us", limit: "1", fields: "cookie,netns_inode" })}`);
  const asked = answers(page, "/query/connection");
  await page.goto(`${url}/?page=sockets&pick=${cookie}.${namespace ?? 0}&range=15m`);
  await until("a line of its records", async () => {
    const line = await page.$eval("#rtt path.first", (line) => line.getAttribute("d")).catch(() => "");
    const known = asked.at(-1)?.row_count ?? 0;
    return known > 1 && heightsOf(line).length >= known;
  });
}

/** Every question that has a name, with all digits of its answer. */
async function queries(page, { url }, ask) {
  const { queries: all } = await ask("/query");
  // One asks about a connection; another is answered to those only who may read what datagrams say.
  const named = all.filter(({ name }) => !["connection", "events"].includes(name));
  for (const { name } of named) {
    const asked = answers(page, `/query/${name}`);
    await page.goto(`${url}/?page=query&pick=${name}&range=15m`);
    const answer = await until(`the answer to ${name}`, () => asked[0]);
    const expected = answer.rows.map((row) => row.map((value) => (value === null ? "" : String(value))));
    await until(`all digits of ${name}`, async () => {
      const shown = (await cells(page, "#answer")).map((row) => row.map(({ text }) => text));
      return JSON.stringify(shown) === JSON.stringify(expected.length ? expected : [["No rows."]]);
    });
  }
  return named.length;
}
