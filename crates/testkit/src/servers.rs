//! Real servers: one of each kind that all tests share, and instances of a test's own that it may pause, kill, and start again.
//!
//! ```no_run
//! # use testkit::servers::Server;
//! let Some(kafka) = Server::Kafka.shared() else { return }; // it has printed `skipped: …`
//! let Some(mut own) = Server::Kafka.start() else { return };
//! own.kill();
//! own.restart();
//! ```
//!
//! A server listens on loopback only. Where it has a second port (HTTP of nsqd, monitoring of nats-server), that is the next one:
//! [`second_port`]. Tests that use a shared server use topics, subjects, tables and buckets whose names nobody else has: [`unique`].

mod clickhouse;
mod kafka;
mod nats;
mod nsqd;
mod redis;
mod s3;
mod shared;

use crate::process::{Peer, signal};
use crate::proxy::Proxy;
use crate::{TempDir, free_port, need_python_module, need_tool, say, wait_for};
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

/// A kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// A broker that is its own controller (`KRaft`). It makes no topic by itself.
    Kafka,
    /// NSQ's daemon. Its HTTP interface is on the second port.
    Nsqd,
    /// NATS with `JetStream`. Its monitoring over HTTP is on the second port.
    Nats,
    /// Redis with an append-only file.
    Redis,
    /// `ClickHouse`'s engine behind HTTP. The user `default` has no password, the user `weir` the password `right`. It inserts a
    /// block once per `insert_deduplication_token` where the table has `non_replicated_deduplication_window`.
    ClickHouse,
    /// An S3-compatible store. The access key is `weir`; it looks at no secret.
    S3,
}

impl Server {
    /// Every kind.
    pub const ALL: [Server; 6] =
        [Server::Kafka, Server::Nsqd, Server::Nats, Server::Redis, Server::ClickHouse, Server::S3];

    /// The one that all tests of a run share, started at the first need; `None` where it is not installed.
    #[track_caller]
    pub fn shared(self) -> Option<SocketAddr> {
        self.is_installed().then(|| shared::address(self))
    }

    /// A new one with an empty folder, for a test that ends it; `None` where it is not installed.
    #[track_caller]
    pub fn start(self) -> Option<Own> {
        self.is_installed().then(|| {
            let mut own = Own::prepare(self);
            own.restart();
            own
        })
    }

    /// The same behind a proxy, which is where clients connect: Kafka's are told that its address is the proxy's.
    #[track_caller]
    pub fn start_with_proxy(self) -> Option<(Own, Proxy)> {
        self.is_installed().then(|| {
            let mut own = Own::prepare(self);
            let proxy = Proxy::start(own.addr());
            own.place.advertised = proxy.addr();
            own.restart();
            (own, proxy)
        })
    }

    fn name(self) -> &'static str {
        match self {
            Server::Kafka => "kafka",
            Server::Nsqd => "nsqd",
            Server::Nats => "nats",
            Server::Redis => "redis",
            Server::ClickHouse => "clickhouse",
            Server::S3 => "s3",
        }
    }

    fn is_installed(self) -> bool {
        match self {
            Server::Kafka => need_tool("weir-kafka") && need_tool("kcat"),
            Server::Nsqd => need_tool("nsqd"),
            Server::Nats => need_tool("nats-server"),
            Server::Redis => need_tool("redis-server"),
            Server::ClickHouse => need_tool("weir-clickhouse"),
            Server::S3 => need_python_module("moto"),
        }
    }

    /// What starts it in the foreground, with its data in the place's folder. Only program and arguments count.
    fn command(self, place: &Place) -> Command {
        match self {
            Server::Kafka => kafka::command(place),
            Server::Nsqd => nsqd::command(place),
            Server::Nats => nats::command(place),
            Server::Redis => redis::command(place),
            Server::ClickHouse => clickhouse::command(place),
            Server::S3 => s3::command(place),
        }
    }

    /// Whether it answers a question that only a server that is ready answers.
    fn answers(self, addr: SocketAddr) -> bool {
        match self {
            Server::Kafka => kafka::answers(addr),
            Server::Nsqd => nsqd::answers(addr),
            Server::Nats => nats::answers(addr),
            Server::Redis => redis::answers(addr),
            Server::ClickHouse => clickhouse::answers(addr),
            Server::S3 => s3::answers(addr),
        }
    }
}

/// The address of a server's second port.
pub fn second_port(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip(), addr.port() + 1)
}

/// A name that starts with `prefix` and that no other test has, nor another run: for topics, subjects, tables, buckets.
pub fn unique(prefix: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{prefix}-{}-{number}", std::process::id())
}

/// Where a server listens, and where its files are.
struct Place {
    addr: SocketAddr,
    /// Where its clients are told to connect.
    advertised: SocketAddr,
    folder: PathBuf,
}

impl Place {
    /// In a folder that is there, on two ports that were free a moment ago.
    fn new(folder: &Path) -> Place {
        let mut port = free_port();
        // The next call of this process gives another port, so that the second one is not given away either.
        let pair = |port: &u16| free_port() == port + 1;
        while !pair(&port) {
            port = free_port();
        }
        let addr = (Ipv4Addr::LOCALHOST, port).into();
        Place { addr, advertised: addr, folder: folder.to_owned() }
    }

    fn file(&self, name: &str) -> String {
        self.folder.join(name).to_str().expect("a test's folder has a plain name").to_owned()
    }

    /// What the server has written to its output.
    fn log(&self) -> File {
        let mut options = File::options();
        options.create(true).append(true).open(self.file("log")).unwrap()
    }

    /// The end of what it has written, for a failure's message.
    fn last_words(&self) -> String {
        let log = fs::read(self.file("log")).unwrap_or_default();
        let text = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

/// A server of a test's own. It ends with its owner, and its folder goes.
pub struct Own {
    server: Server,
    place: Place,
    process: Option<Peer>,
    // Dropped last: until then the process writes into it.
    _folder: TempDir,
}

impl Own {
    #[track_caller]
    fn prepare(server: Server) -> Own {
        let folder = TempDir::new();
        let place = Place::new(folder.path());
        Own { server, place, process: None, _folder: folder }
    }

    /// Where it listens; the same after a restart.
    pub fn addr(&self) -> SocketAddr {
        self.place.addr
    }

    /// The process, while there is one.
    #[track_caller]
    pub fn pid(&self) -> u32 {
        self.running().0.id()
    }

    /// Stops it where it stands (SIGSTOP): connections stay, and nothing is answered.
    #[track_caller]
    pub fn pause(&self) {
        signal(&self.running().0, "STOP");
    }

    /// Lets it go on after [`pause`](Own::pause).
    #[track_caller]
    pub fn resume(&self) {
        signal(&self.running().0, "CONT");
    }

    /// Ends it at once (SIGKILL), and waits for its end.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Starts it again at the same address with the data that it left, and waits until it answers.
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
            server.answers(place.addr).then_some(())
        });
    }

    #[track_caller]
    fn running(&self) -> &Peer {
        self.process.as_ref().expect("it was killed, and not started again")
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
