// Every page by the link of `weir ui`, of a daemon that keeps something from strangers; without it; and with a token that is not its own.

const { assert, main, obeys, until } = require("./driver.cjs");

const PAGES = { overview: "#ledger tbody tr", sockets: "#sockets tbody a", closes: "#ends tbody tr", flows: "#agents, main .panel", sinks: "#fate tbody tr", query: "main .panel" };

main(async ({ open, question }) => {
  const { page, context, checked } = await open({ path: question.path });
  assert.equal(page.url(), `${question.url}/`, "the token is not left in the address");
  const seen = {};
  for (const [name, data] of Object.entries(PAGES)) {
    await page.click(`nav a:nth-of-type(${Object.keys(PAGES).indexOf(name) + 1})`);
    const began = Date.now();
    await until(`data on ${name}`, () => page.$(data));
    seen[name] = Date.now() - began;
    assert.deepEqual(await page.$$eval(".mistake", (all) => all.map((one) => one.textContent)), [], name);
    assert.equal(await page.$eval("#notice", (one) => one.hidden), true, name);
  }
  await page.click("nav a:nth-of-type(2)");
  await until("sockets of every namespace", () => page.$eval(".said", (said) => /in [2-9]\d* namespaces/.test(said.textContent)).catch(() => false));
  await checked();
  await context.close();

  for (const name of Object.keys(PAGES)) {
    const stranger = await open({ path: `/?page=${name}`, width: name === "closes" ? 400 : 1280 });
    await until("the notice", () => stranger.page.$eval("#notice", (one) => !one.hidden && one.textContent.includes("weir ui")));
    await until(`${name} is there`, () => stranger.page.$("main .panel"));
    const told = await stranger.page.$$eval("[role=status], .mistake", (all) => all.filter((one) => /token|weir ui|Not shown/.test(one.textContent)).map((one) => one.id));
    assert.deepEqual(told, ["notice"], `exactly one notice on ${name}`);
    if (name === "overview") await obeys(stranger.page, stranger.context, "the notice");
    await stranger.checked();
    await stranger.context.close();
  }

  const thief = await open({ path: "/?page=overview#token=0123456789abcdef0123456789abcdef" });
  await until("the page asks", () => thief.page.$("#token"));
  await until("the verdict is not known", () => thief.page.$eval("#verdict", (one) => one.dataset.level === "bad" && one.textContent.includes("Unknown")).catch(() => false));
  assert.equal(await thief.page.$("#ledger tbody tr"), null, "an old token shows nothing");
  await thief.context.close();
  return { seen };
});
