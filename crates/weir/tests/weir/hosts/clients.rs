//! Sinks with clients of libraries, when this host loses the address of their connections, and when their server moves.

use super::{Rig, client_of};
use crate::support::{Weir, hop};
use ledger::HopKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};
use testkit::proxy::Proxy;
use testkit::servers::{Own, Server};
use testkit::{TempDir, free_port, readback, say, wait_for_up_to};

/// The servers at the far end, each with its sink's own keys. `HTTP` and `ClickHouse` share the client of S3.
struct Stores {
    servers: Vec<(Server, Own, Proxy)>,
    sinks: String,
    names: Vec<&'static str>,
}

impl Stores {
    /// Sinks send to `host`, which is 10.9.9.9. `None` if one is not installed.
    fn open(rig: &Rig, folder: &TempDir, host: &str, kinds: &[Server]) -> Option<Stores> {
        std::fs::write(folder.file("secret"), "geheim\n").unwrap();
        let mut stores = Stores { servers: Vec::new(), sinks: String::new(), names: Vec::new() };
        for kind in kinds {
            let at = SocketAddr::from(([10, 9, 9, 9], free_port()));
            let (own, proxy) = rig.far.inside(|| kind.start_behind(at))?;
            let place = format!("{host}:{}", at.port());
            let (name, keys) = match kind {
                Server::Redis => ("redis", format!("to = \"redis://{place}/rows\"")),
                Server::Nats => ("nats", format!("to = \"nats://{place}/rows\"")),
                Server::Nsqd => ("nsq", format!("to = \"nsq://{place}/rows\"")),
                Server::Kafka => {
                    rig.far.inside(|| readback::make_kafka_topic(own.addr(), "rows", 1));
                    ("kafka", format!("to = \"kafka://{place}/rows\""))
                }
                _ => {
                    rig.far.inside(|| readback::make_bucket(own.addr(), "rows"));
                    let secret = folder.file("secret");
                    let secret = secret.display();
                    let login = format!("user = \"weir\"\npassword_file = \"{secret}\"");
                    ("s3", format!("to = \"s3://rows\"\nendpoint = \"http://{place}\"\n{login}"))
                }
            };
            stores.names.push(name);
            stores.sinks += &format!(
                "[[sink]]\nname = \"{name}\"\nfrom = [\"in\"]\nbatch_age = \"50ms\"\n{keys}\n"
            );
            stores.servers.push((*kind, own, proxy));
        }
        Some(stores)
    }

    fn start(&self, rig: &Rig, folder: &TempDir) -> Weir {
        let listener = "[[listener]]\nname = \"in\"\nlisten = \"127.0.0.1:0\"\n";
        std::fs::write(folder.file("weir.toml"), format!("{listener}{}", self.sinks)).unwrap();
        let mut command = rig.relay.place().weir();
        command.args(["run", "-c"]).arg(folder.file("weir.toml"));
        Weir::run_at(rig.relay.place(), command)
    }

    /// Waits until each sink has delivered what it receives from now on.
    fn expect_more(&self, weir: &Weir, client: &UdpSocket, limit: Duration, what: &str) {
        let counts = |name: &str| {
            let ledger = weir.ledger();
            let hop = hop(&ledger, HopKind::Sink, name);
            (hop.received.count, hop.delivered.count)
        };
        let begin = Instant::now();
        let mut waiting: Vec<_> = self.names.iter().map(|name| (*name, counts(name).0)).collect();
        while !waiting.is_empty() {
            let done = wait_for_up_to(
                limit,
                || format!("{waiting:?} after {what}"),
                || {
                    client.send(b"<13>x").unwrap();
                    waiting.iter().position(|(name, before)| counts(name).1 > *before)
                },
            );
            say(&format!("{what}: {} after {:?}", waiting.swap_remove(done).0, begin.elapsed()));
        }
    }
}

#[test]
fn clients_of_libraries_connect_anew_when_their_address_is_gone() {
    let Some(rig) = Rig::new() else { return };
    let folder = TempDir::new();
    let kinds = [Server::Redis, Server::Nats, Server::Nsqd, Server::S3, Server::Kafka];
    let Some(stores) = Stores::open(&rig, &folder, "10.9.9.9", &kinds) else { return };
    let weir = stores.start(&rig, &folder);
    let client = client_of(&rig, &weir);
    let limit = Duration::from_secs(20);
    stores.expect_more(&weir, &client, limit, "the start");

    rig.remove(1, 1);
    rig.add(1, 77);
    rig.route(1);
    // The clients' own timeouts are 10 s and more.
    stores.expect_more(&weir, &client, Duration::from_secs(8), "another address");
    rig.route(2);
    stores.expect_more(&weir, &client, Duration::from_secs(8), "a route by another interface");

    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    assert!(ended.said.contains("was ended: this host has lost the address"), "{}", ended.said);
    for name in &stores.names {
        let sink = hop(&ended.ledger, HopKind::Sink, name);
        assert_eq!(sink.delivered, sink.received, "{sink:?}: {}", ended.said);
    }
}

/// Takes a minute, the clients' own timeouts, and so runs with `WEIR_SILENT_HOST=1` only. Kafka's clients go on asking for the address that the broker advertises.
#[test]
fn clients_of_libraries_follow_a_name_whose_old_host_is_silent() {
    if std::env::var_os("WEIR_SILENT_HOST").is_none() {
        return;
    }
    let Some(rig) = Rig::new() else { return };
    let folder = TempDir::new();
    let kinds = [Server::Redis, Server::Nats, Server::Nsqd, Server::S3];
    rig.relay.write_hosts("10.9.9.9 store\n");
    // A name with a dot begins with a bucket, to S3.
    let Some(stores) = Stores::open(&rig, &folder, "store", &kinds) else { return };
    let weir = stores.start(&rig, &folder);
    let client = client_of(&rig, &weir);
    let limit = Duration::from_secs(20);
    stores.expect_more(&weir, &client, limit, "the start");

    rig.far.ip("address add 10.9.9.8/32 dev lo");
    for n in ["8", "9"] {
        rig.relay.ip(&format!("route replace 10.9.9.{n} via 10.9.1.9"));
    }
    let moved: Vec<Proxy> = stores
        .servers
        .iter()
        .map(|(_, own, proxy)| {
            let at = SocketAddr::from(([10, 9, 9, 8], proxy.addr().port()));
            rig.far.inside(|| Proxy::start_at(at, own.addr()))
        })
        .collect();
    // It neither answers nor resets.
    rig.far.ip("address del 10.9.9.9/32 dev lo");
    rig.relay.write_hosts("10.9.9.8 store\n");
    stores.expect_more(&weir, &client, Duration::from_secs(150), "a silent host");
    assert!(moved.iter().all(|proxy| proxy.accepted() > 0));

    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
}
