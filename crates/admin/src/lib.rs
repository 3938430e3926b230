//! A running relay's HTTP server for `/metrics`, `/ledger`, `/healthz` and `/readyz`, and the same figures pushed as StatsD.
//!
//! All of these addresses are read-only. A server of a [`View::Fleet`] shows a fleet's history instead of a daemon. A [`Rest`] is
//! served at an address of its own and may change the definitions of flows.
//! The figures come from the [`ledger`], from [`Health`] (which the daemon updates) and from the kernel's files (which explain
//! losses before the socket).

#![forbid(unsafe_code)]

mod access;
mod assets;
mod condition;
mod connection;
mod fleet;
#[cfg(feature = "grpc")]
mod grpc;
mod health;
mod holder;
pub mod host;
mod http;
mod live;
pub mod message;
pub mod metrics;
mod page;
pub mod process;
mod rest;
mod server;
pub mod service;
pub mod statsd;
mod token;

pub use condition::VIOLATION_RECENT;
pub use connection::{Connection, Progress};
#[cfg(feature = "grpc")]
pub use grpc::{MESSAGE_BYTES_MAX, STREAMS_MAX, WATCHERS_MAX, serve_grpc};
pub use health::{Health, Phase, Said};
pub use holder::{Holder, place_to_give};
pub use http::{HttpCounts, router};
pub use live::{AtEnd, Follow, Form, Live, Records, STALL_MAX};
pub use metrics::flows::{DefinitionFigures, FlowFigures, FlowSeries, Flows, Unit};
pub use page::{Page, PageError, Pieces};
pub use rest::{BODY_BYTES_MAX, Changes, Rest};
#[cfg(feature = "tls")]
pub use server::serve_tls;
pub use server::{
    CONNECTION_LIFETIME_MAX, CONNECTIONS_MAX, HEAD_BYTES_MAX, HEAD_TIMEOUT, HEADERS_MAX,
    POLL_LIFETIME_MAX, serve, serve_rest, serve_users,
};
pub use token::{TOKEN_CHARS_MIN, Token};

use ledger::{Ledger, Speaker};
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::watch;

/// Everything that the admin server shows.
pub struct AdminState {
    /// What it is about.
    pub view: View,
    /// The hops.
    pub ledger: Arc<Ledger>,
    /// Whether the data loops are alive, and which configuration they run. The daemon updates it.
    pub health: Arc<Health>,
    /// The version of the build.
    pub build: Build,
    /// The serving process.
    pub process: Process,
    /// The address that the server is bound to. On a loopback address, only requests whose Host header names this machine are
    /// answered, so that no web page can read the figures through a domain that it points at 127.0.0.1. On any other address,
    /// `/ledger`, `/sockets`, `/flows`, `/query`, `/records` and `/daemon`, which name listeners, targets and peers, are answered only to
    /// this machine.
    pub bind: IpAddr,
    /// The token that every client must send, from any address, for anything but `/`, `/ui/`, `/health`, `/healthz` and `/readyz`; a client
    /// with the token gets everything. Known users of a unix socket need none. `None`: [`bind`](Self::bind) decides.
    pub token: Option<Token>,
    /// The token of this run of the daemon: a client of this machine that shows it gets everything, one that shows another gets
    /// nothing, and one that shows none gets what anyone may see. Without [`token`](Self::token) only.
    pub run_token: Option<Token>,
    /// Where the kernel's counters are read.
    pub host: host::Reader,
    /// Counters of the StatsD push; 0 if nothing is pushed.
    pub statsd: Arc<statsd::Counts>,
    /// Counters of the server itself.
    pub http: Arc<HttpCounts>,
    /// Answers `/sockets`; `None` without a socket collector.
    pub sockets: Option<Page>,
    /// Answers `/sockets` to those to whom [`sockets_elsewhere`](Self::sockets_elsewhere) is said: what they could list
    /// themselves. `None`: they are refused.
    pub own_sockets: Option<Page>,
    /// If only known users of a unix socket may see `/sockets` ([`serve_users`]): the sentence that tells everyone else where to
    /// ask. `None`: those who may see the ledger may see it.
    pub sockets_elsewhere: Option<String>,
    /// What is kept from clients that are not known, and how to become one; `None` if nothing is.
    pub hidden: Option<Hidden>,
    /// Answers `/flows` and the paths below it, and has figures for `/metrics`; `None` if no flows are analyzed.
    pub flows: Option<Flows>,
    /// Answers `/query` and the paths below it; `None` without a store.
    pub query: Option<Query>,
    /// Answers `/records`; `None` if this server has no records.
    pub records: Option<Records>,
    /// Tells requests that are waiting for an answer that the server stops.
    pub(crate) stopping: watch::Sender<bool>,
}

impl AdminState {
    /// The state of a server that is bound to `bind`.
    pub fn new(ledger: Arc<Ledger>, health: Arc<Health>, bind: IpAddr) -> AdminState {
        AdminState {
            view: View::Daemon,
            ledger,
            health,
            build: Build::default(),
            process: Process::default(),
            bind,
            token: None,
            run_token: None,
            host: host::Reader::system(),
            statsd: Arc::default(),
            http: Arc::default(),
            sockets: None,
            own_sockets: None,
            sockets_elsewhere: None,
            hidden: None,
            flows: None,
            query: None,
            records: None,
            stopping: watch::Sender::new(false),
        }
    }
}

/// What a server shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum View {
    /// A running daemon, with all that [`AdminState`] holds.
    Daemon,
    /// The history of many hosts: what [`AdminState::query`] answers, and the page.
    Fleet,
}

/// What clients that are not known do not see.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hidden {
    /// What it is, such as `sockets of other network namespaces`.
    pub what: String,
    /// The command or setting that shows it.
    pub fix: String,
}

/// The history in a store, or that of a fleet.
#[derive(Clone)]
pub struct Query {
    /// Answers requests, each with what its asker may see.
    pub pages: service::Service,
}

/// The serving process, for commands that signal it.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// Its host, the address of the admin server, and the file that SIGHUP reloads; without one, SIGHUP ends the process.
    pub speaker: Speaker,
    pub pid: u32,
    /// Its start time: together with the process id it identifies the process.
    pub started: String,
}

/// The version of the build: the labels of `weir_build_info`.
#[derive(Clone, Debug)]
pub struct Build {
    pub version: String,
    /// Commit, or `unknown`.
    pub commit: String,
    /// The processor and system it was built for, such as `x86_64-linux`.
    pub target: String,
}

impl Default for Build {
    fn default() -> Build {
        Build {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: "unknown".to_owned(),
            target: format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS),
        }
    }
}
