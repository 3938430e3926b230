// Connections of a bench: talk.cjs CONNECTIONS TALKING. Both ends of each on loopback, from many addresses; TALKING send something ten times a
// second and get it back. Tells its parent when all are there.

const net = require("node:net");

const [count, talking] = process.argv.slice(2).map(Number);

async function main() {
  const server = net.createServer((socket) => socket.on("data", (data) => socket.write(data)).on("error", () => {}));
  await new Promise((resolve) => server.listen({ port: 0, host: "127.0.0.1", backlog: 4096 }, resolve));
  const all = [];
  for (let at = 0; at < count; at += 1) {
    all.push(await new Promise((resolve, reject) => {
      const socket = net.connect({ port: server.address().port, host: "127.0.0.1", localAddress: `127.0.${1 + (at % 200)}.1` }, () => resolve(socket));
      socket.on("error", reject);
      socket.on("data", () => {});
    }));
  }

  let at = 0;
  setInterval(() => {
    for (let talks = 0; talks < talking; talks += 1) all[(at += 1) % all.length].write("x".repeat(200));
  }, 100);
  process.send("ready");
}

process.on("disconnect", () => process.exit());
main();
