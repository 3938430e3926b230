//! Real servers: one of each kind shared by all tests, and instances of a test's own that it may pause, kill, and restart.
//!
//! ```no_run
//! # use testkit::servers::Server;
//! let Some(kafka) = Server::Kafka.shared() else { return }; // it has printed `skipped: …`
//! let Some(mut own) = Server::Kafka.start() else { return };
//! own.kill();
//! own.restart();
//! ```
//!
//! Servers listen only on loopback. A second port (HTTP of nsqd, monitoring of nats-server) is the next one: [`second_port`].
//! Tests that use a shared server need unique names for topics, subjects, tables and buckets: [`unique`].

mod certificates;
mod clickhouse;
mod kafka;
mod nats;
mod nsqd;
mod place;
mod redis;
mod s3;
mod schema_registry;
mod shared;

pub use certificates::{Certificate, Certificates};

use crate::process::{Peer, signal};
use crate::proxy::Proxy;
use crate::readback::At;
use crate::{TempDir, free_port, need_python_module, need_tool, say, wait_for};
use place::{Life, Place, Tls};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

/// A kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// A broker that is its own controller (`KRaft`). It creates no topics by itself.
    Kafka,
    /// NSQ's daemon. Its HTTP interface is on the second port.
    Nsqd,
    /// NATS with `JetStream`. Its HTTP monitoring is on the second port.
    Nats,
    /// Redis with an append-only file.
    Redis,
    /// `ClickHouse`'s engine behind HTTP. The user `default` has no password, the user `weir` the password `right`. It inserts a
    /// block once per `insert_deduplication_token` if the table has `non_replicated_deduplication_window`.
    ClickHouse,
    /// An S3-compatible store. The access key is `weir`; secrets are not checked.
    S3,
    /// Apicurio Registry, which keeps its schemas in memory. Confluent's interface is below [`SCHEMA_REGISTRY_PATH`].
    SchemaRegistry,
}

/// The path of Confluent's interface in a schema registry.
pub const SCHEMA_REGISTRY_PATH: &str = "/apis/ccompat/v7";

impl Server {
    /// Every kind.
    pub const ALL: [Server; 7] = [
        Server::Kafka,
        Server::Nsqd,
        Server::Nats,
        Server::Redis,
        Server::ClickHouse,
        Server::S3,
        Server::SchemaRegistry,
    ];

    /// The server shared by all tests of a run, started when first needed; `None` if it is not installed.
    #[track_caller]
    pub fn shared(self) -> Option<SocketAddr> {
        self.is_installed().then(|| shared::address(self))
    }

    /// A new server with an empty directory, for a test that ends it; `None` if it is not installed.
    #[track_caller]
    pub fn start(self) -> Option<Own> {
        self.is_installed().then(|| {
            let mut own = Own::prepare(self);
            own.restart();
            own
        })
    }

    /// The same behind a proxy, to which clients connect: Kafka's clients are told the proxy's address.
    #[track_caller]
    pub fn start_with_proxy(self) -> Option<(Own, Proxy)> {
        self.start_behind(SocketAddr::from((Ipv4Addr::LOCALHOST, free_port())))
    }

    /// The same with the proxy at this address, which the calling thread's namespace has.
    #[track_caller]
    pub fn start_behind(self, addr: SocketAddr) -> Option<(Own, Proxy)> {
        self.is_installed().then(|| {
            let mut own = Own::prepare(self);
            let proxy = Proxy::start_at(addr, own.addr());
            own.place.advertised = proxy.addr();
            own.restart();
            (own, proxy)
        })
    }

    /// The same with TLS and a user `weir` whose password is `right`: SASL (PLAIN, SCRAM-SHA-512) in Kafka. `ClickHouse` and S3
    /// have the same users as without TLS; nsqd and the schema registry have none.
    #[track_caller]
    pub fn start_secured(self, shown: Certificate) -> Option<Own> {
        if !self.is_installed() {
            return None;
        }
        let mut own = Own::prepare(self);
        let folder = own.place.folder.join("tls");
        fs::create_dir(&folder).unwrap();
        own.place.tls = Some(Tls { certificates: Certificates::make(&folder)?, shown });
        own.restart();
        Some(own)
    }

    fn name(self) -> &'static str {
        match self {
            Server::Kafka => "kafka",
            Server::Nsqd => "nsqd",
            Server::Nats => "nats",
            Server::Redis => "redis",
            Server::ClickHouse => "clickhouse",
            Server::S3 => "s3",
            Server::SchemaRegistry => "schema-registry",
        }
    }

    /// Includes the client that prepares it and reads it back.
    fn is_installed(self) -> bool {
        let tools: &[&str] = match self {
            Server::Kafka => &["weir-kafka", "kcat"],
            Server::Nsqd => &["nsqd", "weir-python"],
            Server::Nats => &["nats-server"],
            Server::Redis => &["redis-server", "redis-cli"],
            Server::ClickHouse => &["weir-clickhouse", "weir-python"],
            Server::S3 => &[],
            Server::SchemaRegistry => &["weir-schema-registry"],
        };
        let module = match self {
            Server::Kafka => Some("confluent_kafka"),
            Server::Nats => Some("nats"),
            Server::Redis => Some("redis"),
            Server::S3 => Some("moto"),
            Server::SchemaRegistry => Some("confluent_kafka.schema_registry.protobuf"),
            Server::Nsqd | Server::ClickHouse => None,
        };
        tools.iter().all(|tool| need_tool(tool)) && module.is_none_or(need_python_module)
    }

    /// The command that starts it in the foreground, with its data in the place's directory. Only program and arguments count.
    fn command(self, place: &Place) -> Command {
        match self {
            Server::Kafka => kafka::command(place),
            Server::Nsqd => nsqd::command(place),
            Server::Nats => nats::command(place),
            Server::Redis => redis::command(place),
            Server::ClickHouse => clickhouse::command(place),
            Server::S3 => s3::command(place),
            Server::SchemaRegistry => schema_registry::command(place),
        }
    }

    /// Whether it answers a request that only a ready server answers.
    fn answers(self, place: &Place) -> bool {
        match self {
            Server::Kafka => kafka::answers(place),
            Server::Nsqd => nsqd::answers(place),
            Server::Nats => nats::answers(place),
            Server::Redis => redis::answers(place),
            Server::ClickHouse => clickhouse::answers(place),
            Server::S3 => s3::answers(place),
            Server::SchemaRegistry => schema_registry::answers(place),
        }
    }
}

/// The address of a server's second port.
pub fn second_port(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip(), addr.port() + 1)
}

/// A name that starts with `prefix` and is unique over all tests and runs: for topics, subjects, tables, buckets. In SQL it needs
/// backticks.
pub fn unique(prefix: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{prefix}-{}-{number}", std::process::id())
}

/// A server of a test's own. It is killed with this value, and its directory removed.
pub struct Own {
    server: Server,
    place: Place,
    process: Option<Peer>,
    // Dropped last, because the process writes to it until then.
    _folder: TempDir,
}

impl Own {
    #[track_caller]
    fn prepare(server: Server) -> Own {
        let folder = match server {
            Server::Nsqd => TempDir::in_memory(),
            _ => TempDir::new(),
        };
        let place = Place::new(folder.path(), Life::Killed);
        Own { server, place, process: None, _folder: folder }
    }

    /// Its address, which a restart does not change.
    pub fn addr(&self) -> SocketAddr {
        self.place.addr
    }

    /// The CA certificate that clients of a secured server need.
    pub fn ca(&self) -> Option<String> {
        Some(self.place.tls.as_ref()?.certificates.ca())
    }

    /// The process id, while it runs.
    #[track_caller]
    pub fn pid(&self) -> u32 {
        self.running().0.id()
    }

    /// Suspends it (SIGSTOP): connections stay open, and nothing is answered.
    #[track_caller]
    pub fn pause(&self) {
        signal(&self.running().0, "STOP");
    }

    /// Resumes it after [`pause`](Own::pause).
    #[track_caller]
    pub fn resume(&self) {
        signal(&self.running().0, "CONT");
    }

    /// Kills it (SIGKILL), and waits for its end.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Restarts it at the same address with its old data, and waits until it answers.
    #[track_caller]
    pub fn restart(&mut self) {
        self.kill();
        let mut command = self.server.command(&self.place);
        command.stdin(Stdio::null()).stdout(self.place.log()).stderr(self.place.log());
        let process = self.process.insert(Peer::start(&mut command));

        let (server, place) = (self.server, &self.place);
        let what = || format!("{} to answer: {}", server.name(), place.last_words());
        wait_for(what, || {
            let ended = process.0.try_wait().unwrap();
            assert!(ended.is_none(), "{} ended: {}", server.name(), place.last_words());
            server.answers(place).then_some(())
        });
    }

    #[track_caller]
    fn running(&self) -> &Peer {
        self.process.as_ref().expect("it was killed, and not started again")
    }
}

/// For an independent client; bypasses a proxy.
impl From<&Own> for At {
    fn from(own: &Own) -> At {
        let (addr, place) = (own.place.addr, &own.place);
        let Some(ca) = own.ca() else { return addr.into() };
        let address = match own.server {
            Server::Kafka => return place.third_port().into(),
            Server::Nats => format!("tls://weir:right@{addr}"),
            Server::Redis => format!("rediss://weir:right@{addr}"),
            Server::ClickHouse | Server::S3 | Server::SchemaRegistry => format!("https://{addr}"),
            Server::Nsqd => format!("nsqs://{addr}"),
        };
        At { address, ca: Some(ca) }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.kill();
        if thread::panicking() {
            say(&format!("{} said: {}", self.server.name(), self.place.last_words()));
        }
    }
}
