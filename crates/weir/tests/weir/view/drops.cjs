// Frames that agents report as dropped, in the panel of flows and as the server counts them.

const { answers, cells, digits, main, picture, until } = require("./driver.cjs");

main(async ({ open }) => {
  const { page, checked } = await open({ path: "/?page=flows" });
  const tops = answers(page, "/flows/top");
  const rows = await until("the dropped frames of an answer", async () => {
    const shown = await cells(page, "#drops");
    const [definition, flow, , samples] = shown[0] ?? [];
    return definition?.text === "drops" && flow.text === "src 10.0.0.7  dst 10.1.0.7"
      && tops.some((top) => top.definition.name === "drops" && String(top.flows[0]?.samples) === digits(samples.text)) && shown;
  });
  await until("the sum over all agents", () => page.$eval(".said", (said) => /[1-9][0-9,]* of dropped frames/.test(said.textContent)));
  await picture(page, "drops");
  await checked();
  return { rows: rows.length };
});
