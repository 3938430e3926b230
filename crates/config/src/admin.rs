//! `[admin]`: the HTTP server for metrics, health and the ledger.

use crate::address::socket_path;
use crate::document::Table;
use crate::form::{List, parsed, path, text};
use crate::host::{Finding, Severity, socket_file};
use crate::keys::{Section, keys};
use crate::reader::{Reader, Report};
use crate::sink::{is_built, secret_path};
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

pub(crate) const SECTION: Section =
    Section { path: "admin", header: "[admin]", tables: &[AdminConfig::TABLE], subsections: &[] };

keys! {
    /// The HTTP server for metrics, health and the ledger.
    pub struct AdminConfig in "admin" {
        /// Where `/metrics`, `/ledger`, `/healthz` and `/readyz` are served over HTTP. Anyone who reaches it reads
        /// every figure, so it stays on this host unless you say otherwise. `/sockets` too, while `[sockets]`
        /// collects from this process's own network namespace alone (`namespaces = "own"`), or with the token.
        listen => listen: AdminListen = text("IP address and port, or `off`", parsed),
            default(AdminListen::On(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 9464)));
        /// Where the same and `/sockets` of every namespace are served, to root, to this process's user and to
        /// those of `socket_users`; all others are refused.
        /// `curl --unix-socket PATH http://localhost/sockets`
        socket => socket: Option<PathBuf> = path("path of a unix socket", socket_path), unset("none");
        /// Users that may ask at `socket` as well. The file of the socket is open to its owner alone without
        /// them, and to everybody with them: the kernel says who it is that has connected.
        socket_users => socket_users: Vec<String> =
            List { of: "users, by name (of `/etc/passwd`) or number", parse: user }, empty("none")
            where |admin| admin.socket.is_some(),
            "there is no socket. Fix: add socket = \"/run/weir/admin.sock\"";
        /// File that holds a token of at least 16 characters, and nothing else; a line end at its end is left out. Everything at
        /// `listen` but `/`, `/healthz` and `/readyz` is then answered only to requests with `Authorization: Bearer TOKEN`, and to
        /// those from anywhere. Without it `/ledger`, `/sockets`, `/flows` and `/daemon` are answered to this machine alone. Read
        /// at the start and at each reload. `openssl rand -hex 32`
        token_file => token_file: Option<PathBuf> = path("path", secret_path), unset("no token");
        /// File with the certificate and its chain (PEM) that `listen` shows: it then speaks TLS (`https://`). Needs `tls_key`. Read
        /// at the start and at each reload.
        tls_cert => certificate: Option<PathBuf> = path("path", secret_path), unset("plain HTTP")
            where |admin| admin.key.is_some(), "it has no key. Fix: add tls_key = \"/path\"";
        /// File with the key (PEM) of `tls_cert`.
        tls_key => key: Option<PathBuf> = path("path", secret_path), unset("none")
            where |admin| admin.certificate.is_some(), "it has no certificate. Fix: add tls_cert = \"/path\"";
        /// Where records as they are made and the ledger are served over gRPC, with reflection: `weir.v1.Records/Follow` and
        /// `weir.v1.Ledger/Watch`. With the same token, certificate and rules as `listen`; beyond this machine only with them.
        grpc => grpc: Option<SocketAddr> = text("IP address and port", grpc_address), unset("off");
    }
}

/// Reads the section, and refuses unsafe combinations.
pub(crate) fn read(report: &Report, document: &Table) -> Option<AdminConfig> {
    let reader = Reader::of_document(report, document, &SECTION);
    let admin = AdminConfig::read(&reader)?;

    if let Some(message) = admin.exposed_token() {
        reader.error(&AdminConfig::token_file, message);
    }
    if admin.certificate.is_some() && !is_built("tls") {
        let message = "this build has no TLS; build with `cargo build --release -p weir --features tls`, or use the image";
        reader.error(&AdminConfig::tls_cert, message);
    }
    if let Some(addr) = admin.grpc {
        if !is_built("grpc") {
            let message = "this build has no gRPC. Fix: build with `cargo build --release -p weir --features grpc`, or use the image";
            reader.error(&AdminConfig::grpc, message);
        } else if AdminListen::On(addr) == admin.listen && addr.port() != 0 {
            let message =
                format!("{addr} is the address of listen. Fix: grpc = \"127.0.0.1:9092\"");
            reader.error(&AdminConfig::grpc, message);
        }
        if let Some(message) = admin.exposed_grpc() {
            reader.error(&AdminConfig::grpc, message);
        }
    }
    Some(admin)
}

fn grpc_address(text: &str) -> Result<SocketAddr, String> {
    let literal = text.replacen("localhost:", "127.0.0.1:", 1);
    let wrong = |_| "it is not an IP address and port. Fix: write 127.0.0.1:9092".to_owned();
    literal.parse().map_err(wrong)
}

impl AdminConfig {
    /// Serves nothing.
    pub fn off() -> AdminConfig {
        AdminConfig {
            listen: AdminListen::Off,
            socket: None,
            socket_users: Vec::new(),
            token_file: None,
            certificate: None,
            key: None,
            grpc: None,
        }
    }

    /// The message for gRPC that others could reach, or read on the way.
    pub fn exposed_grpc(&self) -> Option<String> {
        let addr = self.grpc.filter(|addr| !addr.ip().is_loopback())?;
        let is_safe = self.token_file.is_some() && self.certificate.is_some();
        (!is_safe).then(|| {
            format!(
                "{addr} is reached from other machines, where gRPC is served only over TLS to who has the token. Fix: add token_file, \
                 tls_cert and tls_key, or write 127.0.0.1:{}",
                addr.port()
            )
        })
    }

    /// The message for a token that could be read on the way. Flags and the environment may change the address after the file is
    /// read, so the daemon checks again when it listens.
    pub fn exposed_token(&self) -> Option<String> {
        let addr = self.listens_beyond_this_machine()?;
        let is_exposed = self.token_file.is_some() && self.certificate.is_none();
        is_exposed.then(|| {
            format!(
                "{addr} is reached from other machines, and a token sent to it in plain HTTP can be read on the way. Fix: add tls_cert and \
                 tls_key, or listen at 127.0.0.1:{}",
                addr.port()
            )
        })
    }

    fn listens_beyond_this_machine(&self) -> Option<SocketAddr> {
        match self.listen {
            AdminListen::On(addr) if !addr.ip().is_loopback() => Some(addr),
            AdminListen::On(_) | AdminListen::Off => None,
        }
    }

    pub(crate) fn examine(&self, findings: &mut Vec<Finding>) {
        findings.extend(self.socket.as_deref().map(|path| socket_file("admin socket", path)));
        findings.extend(
            self.listens_beyond_this_machine().filter(|_| self.token_file.is_none()).map(|addr| {
                let value = format!("everybody who reaches {addr} reads /metrics");
                Finding::new(Severity::Advice, "admin address", value)
                    .because("it listens beyond this machine, and there is no token_file")
            }),
        );
    }
}

/// Whether the user exists is checked on the host.
fn user(text: &str) -> Result<String, String> {
    let is_name =
        !text.is_empty() && !text.contains([':', '/']) && !text.contains(char::is_control);
    let wrong = || "it is neither the name of a user nor a number".to_owned();
    is_name.then(|| text.to_owned()).ok_or_else(wrong)
}

/// Where the admin server listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminListen {
    Off,
    On(SocketAddr),
}

impl FromStr for AdminListen {
    type Err = String;

    fn from_str(text: &str) -> Result<AdminListen, String> {
        if text == "off" {
            return Ok(AdminListen::Off);
        }
        if let Some(port) = text.strip_prefix(':') {
            return Err(format!(
                "it has no address. Fix: write 127.0.0.1:{port}, or 0.0.0.0:{port} for every address"
            ));
        }
        let literal = text.replacen("localhost:", "127.0.0.1:", 1);
        literal.parse().map(AdminListen::On).map_err(|_| {
            "it is not an IP address and port. Fix: write 127.0.0.1:9464 or off".to_owned()
        })
    }
}

impl fmt::Display for AdminListen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AdminListen::Off => f.write_str("off"),
            AdminListen::On(addr) => addr.fmt(f),
        }
    }
}
