//! What a running relay says of itself: `/metrics`, `/ledger`, `/healthz` and `/readyz` over HTTP, and the same
//! figures pushed as StatsD.
//!
//! Everything at these addresses reads. What a [`Rest`] serves, at an address of its own, may change what is counted of flows. The numbers come from the [`ledger`], from [`Health`] (which
//! the daemon feeds) and from the kernel's files (which explain losses before the socket).

#![forbid(unsafe_code)]

mod assets;
mod health;
pub mod host;
mod http;
pub mod metrics;
mod page;
pub mod process;
mod rest;
mod server;
pub mod service;
pub mod statsd;
mod token;

pub use health::{Health, Phase, Said};
pub use http::{HttpCounts, router};
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

use ledger::Ledger;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::watch;

/// Everything that the admin server shows.
pub struct AdminState {
    /// The hops.
    pub ledger: Arc<Ledger>,
    /// Whether the data loops live, and which configuration they run. The daemon feeds it.
    pub health: Arc<Health>,
    /// What was built.
    pub build: Build,
    /// The process that serves.
    pub process: Process,
    /// The address the server is bound to. On a loopback address only requests that name this machine in their Host
    /// header are answered, so that no web page can read the figures through a name that it points at 127.0.0.1. On any
    /// other, `/ledger` and `/sockets`, which name every listener, target and peer, are answered to this machine alone.
    pub bind: IpAddr,
    /// What everybody but the known users of a unix socket has to show, wherever they ask from, for anything but `/`, `/healthz` and
    /// `/readyz`; whoever shows it is answered. `None`: [`bind`](Self::bind) decides.
    pub token: Option<Token>,
    /// Where the kernel's figures are read.
    pub host: host::Reader,
    /// What the StatsD push counts; stays 0 where nothing is pushed.
    pub statsd: Arc<statsd::Counts>,
    /// What the server itself counts.
    pub http: Arc<HttpCounts>,
    /// Answers `/sockets`; `None` without a socket collector.
    pub sockets: Option<Page>,
    /// Where `/sockets` is for known users alone ([`serve_users`]): what everybody else is told, a sentence that says where to
    /// ask. `None`: those who may see the ledger may ask.
    pub sockets_elsewhere: Option<String>,
    /// Answers `/flows` and what is below it, and gives figures for `/metrics`; `None` where no flows are analyzed.
    pub flows: Option<Flows>,
    /// Answers `/query` and what is below it; `None` where there is no store.
    pub query: Option<Query>,
    /// Says so to those who wait for an answer when the server stops.
    pub(crate) stopping: watch::Sender<bool>,
}

impl AdminState {
    /// The state of a server that is bound to `bind`.
    pub fn new(ledger: Arc<Ledger>, health: Arc<Health>, bind: IpAddr) -> AdminState {
        AdminState {
            ledger,
            health,
            build: Build::default(),
            process: Process::default(),
            bind,
            token: None,
            host: host::Reader::system(),
            statsd: Arc::default(),
            http: Arc::default(),
            sockets: None,
            sockets_elsewhere: None,
            flows: None,
            query: None,
            stopping: watch::Sender::new(false),
        }
    }
}

/// The history that a store has.
#[derive(Clone)]
pub struct Query {
    /// Answers questions.
    pub pages: service::Service,
    /// Whether a path and a query ask about single sockets: then they are answered to those who may ask for `/sockets`.
    pub shows_sockets: fn(&str, &str) -> bool,
}

/// The process that serves, for commands that signal it.
#[derive(Clone, Debug, Default)]
pub struct Process {
    pub pid: u32,
    /// When it started: with its id, what no other process has.
    pub started: String,
    /// The file that SIGHUP reads again; `None` where SIGHUP ends it.
    pub config_file: Option<String>,
}

/// What was built: the labels of `weir_build_info`.
#[derive(Clone, Debug)]
pub struct Build {
    pub version: String,
    /// Commit, or `unknown`.
    pub commit: String,
    /// Processor and system that it was built for, such as `x86_64-linux`.
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
