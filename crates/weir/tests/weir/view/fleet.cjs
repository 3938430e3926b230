// A fleet's page: what it shows is what ClickHouse answers to `weir query --at`, through an outage, for everybody, on every screen.

const { assert, cells, digits, main, obeys, picture, until } = require("./driver.cjs");

main(async ({ open, question, say }) => {
  const { page, checked } = await open({ path: "/?range=6h", height: 8000 });
  const asked = [];
  page.on("request", (request) => asked.push(new URL(request.url()).pathname));
  const level = () => page.$eval("#status", (status) => status.dataset.level).catch(() => "");
  const said = () => page.$eval("#status", (status) => status.textContent);
  await until("the page is live", async () => (await level()) === "live");
  assert.match(await said(), /^Fleet · 3 hosts, answered at /);

  say("kill it");
  // An answer that was under way when it was killed may break off in another way first.
  const isDown = /^No answer since .*: no connection to .*Fix: .* This page goes on by itself\.$/;
  await until("the page says that there is no answer", async () => (await level()) === "dead" && isDown.test(await said()));
  assert.ok(await page.$("#runs tbody tr"), "the last figures stay");
  say("start it");
  await until("the page is live again", async () => (await level()) === "live");

  assert.deepEqual(await page.$$eval("nav a", (all) => all.map((one) => one.textContent)), ["Fleet", "Query"]);
  await until("the runs as they are answered", () => showsRuns(page, question.runs));
  for (const [at, panel] of ["#peers", "#services", "#units"].entries()) await until(`${panel} as it is answered`, () => showsWorst(page, panel, question.worst[at]));
  await until("charts of what is answered", () => showsTrends(page, question.named, question.recent));
  await picture(page, "fleet-light");
  await oneHost(page, question);
  const named = await queries(page, question);
  assert.deepEqual(asked.filter((path) => path !== "/" && !path.startsWith("/ui/") && !path.startsWith("/query")), []);
  await checked();

  for (const scheme of ["light", "dark"]) for (const name of ["fleet", "query"]) await manners(open, name, scheme);
  for (const name of ["fleet", "query"]) for (const width of [640, 320]) await narrow(open, name, width);
  return { named };
});

const records = ({ columns, rows }) => rows.map((row) => Object.fromEntries(columns.map(({ name }, at) => [name, row[at]])));

/** Names of strangers are text, with what cannot be seen written out. */
const plain = (page, text) => page.evaluate(async (text) => (await import("/ui/dom.js")).plain(text), text);

async function showsRuns(page, answer) {
  const shown = await cells(page, "#runs");
  if (shown.length !== answer.row_count || answer.row_count === 0) return false;
  for (const [at, row] of records(answer).entries()) {
    const [host, state, missing, , made, polls, , sockets, closes, unobserved, namespaces, run] = shown[at].map(({ text }) => digits(text));
    const expected = [row.missing, row.made, row.poll_count, row.lost_sockets, row.lost_closes, row.unobserved_closes, row.failed_namespaces, row.run_id].map(String);
    if ([missing, made, polls, sockets, closes, unobserved, namespaces, run].join() !== expected.join()) return false;
    assert.equal(host, await plain(page, row.host));
    assert.equal(state.includes("✕ some missing"), row.missing > 0, "in words");
  }
  return true;
}

async function showsWorst(page, panel, answer) {
  const shown = await cells(page, panel);
  if (shown.length !== answer.row_count || answer.row_count === 0) return false;
  const heads = await page.$$eval(`${panel} thead th`, (all) => all.map((one) => one.textContent));
  assert.deepEqual(heads.slice(0, 1), ["host"]);
  const names = answer.columns.map(({ name }) => name);
  for (const [at, row] of answer.rows.entries()) {
    const is = Object.fromEntries(shown[at].map((cell, at) => [names[at], cell]));
    const wants = Object.fromEntries(row.map((value, at) => [names[at], value]));
    if (is.host.text !== (await plain(page, wants.host)) || is[names[1]].text !== (await plain(page, String(wants[names[1]] ?? "–")))) return false;
    for (const name of ["samples", "without_window", "closed", "aborted"]) if (digits(is[name].text) !== String(wants[name])) return false;
    for (const name of ["sent_bytes", "retransmitted_bytes"]) if (is[name].tip !== `${wants[name]} bytes`) return false;
  }
  return true;
}

/** What is drawn over time has the sums of the answers in words, and a line through its points. */
async function showsTrends(page, named, recent) {
  const sum = (rows, name) => rows.reduce((all, row) => all + BigInt(row[name]), 0n);
  const figures = (panel) => page.$$eval(`${panel} .now b`, (all) => all.map((one) => one.textContent.replaceAll(",", "")));
  const rates = records(named["poll-rates"]);
  if ((await figures("#made")).join() !== String(sum(rates, "made"))) return false;
  if ((await figures("#lost")).join() !== ["lost_sockets", "lost_closes", "unobserved_closes"].map((name) => sum(rates, name)).join()) return false;
  for (const [panel, lines] of [["#made", 1], ["#lost", 3], ["#abnormal", 4]]) {
    const points = await page.$$eval(`${panel} svg[role=img] path.line`, (all) => all.map((one) => one.getAttribute("d").match(/[ML]/g)?.length ?? 0));
    if (points.length !== lines || !points.every((count) => count > 3)) return false;
  }

  const closes = records(named["closes-by-end"]);
  assert.ok(sum(closes, "closed") > 0n && sum(rates, "made") > 0n);
  if ((await figures("#ends")).join() !== String(sum(closes, "closed"))) return false;
  const ends = await page.$$eval("#ends tbody tr", (all) => all.map((row) => [row.dataset.end, row.cells[1].textContent.replaceAll(",", "")]));
  for (const [end, count] of ends) if (count !== String(sum(closes.filter((row) => (row.close_reason ?? "unknown") === end), "closed"))) return false;
  assert.equal(sum(ends, 1), sum(closes, "closed"), "each end has a row");
  const samples = records(named["rtt-heat"]);
  const last = samples.filter((row) => row.bucket_unix_ns === samples.at(-1).bucket_unix_ns);
  const label = await page.$eval("#heat canvas", (canvas) => canvas.getAttribute("aria-label")).catch(() => "");
  if (!digits(label).includes(`half of ${sum(last, "samples")} round-trip times`)) return false;

  if (!recent) return true;
  const shown = await cells(page, "#recent");
  if (shown.length !== recent.row_count || shown.length === 0) return false;
  for (const [at, row] of records(recent).entries()) {
    const [, host, how] = shown[at].map(({ text }) => text);
    if (host !== (await plain(page, row.host)) || how !== String(row.close_reason ?? "unknown").replaceAll("_", " ")) return false;
  }
  return true;
}

/** A link shows one host, whatever its name, and the address keeps it. */
async function oneHost(page, { hostile, runs_of_one: answer, past_of_one: past }) {
  await page.click(`#runs tbody a:has-text("onerror")`);
  await until("one host", () => showsRuns(page, answer));
  assert.equal(new URL(page.url()).searchParams.get("host"), hostile);
  await until("charts of one host", () => showsTrends(page, past));
  await page.reload();
  await until("one host again", () => showsRuns(page, answer));
  assert.equal(await page.$eval("#host", (input) => input.value), hostile);
  const strange = await page.evaluate(() => [globalThis.broken ?? null, document.querySelectorAll("main img, main script").length, /[\u202a-\u202e]/.test(document.querySelector("main").innerText)]);
  assert.deepEqual(strange, [null, 0, false]);
  await page.click('form a:text-is("all hosts")');
  await until("all hosts", async () => (await cells(page, "#runs")).length > answer.row_count);
}

/** Every question that a fleet can be asked, with all digits of its answer. */
async function queries(page, { url, named }) {
  const { queries: all } = await page.evaluate(() => fetch("/query").then((response) => response.json()));
  assert.deepEqual(all.map(({ name }) => name).filter((name) => name !== "connection").sort(), Object.keys(named).sort());
  for (const [name, answer] of Object.entries(named)) {
    await page.goto(`${url}/?page=query&pick=${name}&range=6h`);
    const expected = [];
    for (const row of answer.rows) expected.push(await page.evaluate(async (row) => {
      const { plain } = await import("/ui/dom.js");
      return row.map((value) => (value === null ? "" : plain(String(value))));
    }, row));
    await until(`all digits of ${name}`, async () => {
      const shown = (await cells(page, "#answer")).map((row) => row.map(({ text }) => text));
      return JSON.stringify(shown) === JSON.stringify(expected);
    });
    const { columns, rows } = await page.evaluate((name) => fetch(`/query/${name}?since=6h`).then((response) => response.json()), name);
    assert.deepEqual({ columns, rows }, { columns: answer.columns, rows: answer.rows }, `the JSON of ${name}`);
  }
  return Object.keys(named).length;
}

/** The closes are asked about last. */
async function hasFigures(page, name) {
  const parts = name === "fleet" ? ["#units tbody th", "#recent tbody th", "#heat canvas", "#lost svg"] : [".named a"];
  return (await Promise.all(parts.map((part) => page.$(part)))).every(Boolean);
}

async function manners(open, name, scheme) {
  const { page, context } = await open({ path: `/?page=${name}&range=6h`, scheme, height: 6000 });
  await until(`${name} has figures`, () => hasFigures(page, name));
  assert.ok((await obeys(page, context, `${name} in ${scheme}`)) > 10);
  await picture(page, `fleet-${name}-${scheme}`);
  await context.close();
}

async function narrow(open, name, width) {
  const { page, context, checked } = await open({ path: `/?page=${name}&range=6h`, width, height: 9000 });
  await until(`${name} has figures`, () => hasFigures(page, name));
  const [is, room] = await page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]);
  await picture(page, `fleet-${name}-${width}`);
  assert.ok(is <= room, `${name}: ${is} px in ${room}`);
  await checked();
  await context.close();
}
