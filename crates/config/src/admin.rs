//! `[admin]`: the HTTP server for metrics, health and the ledger.

use crate::address::socket_path;
use crate::form::{List, parsed, path, text};
use crate::host::{Finding, unix_listener};
use crate::keys::{Section, keys};
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
        /// collects from this process's own network namespace alone (`namespaces = "own"`).
        listen => listen: AdminListen = text("IP address and port, or `off`", parsed),
            default(AdminListen::On(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 9464)));
        /// Where the same and `/sockets` of every namespace are served, to root, to this process's user and to
        /// those of `socket_users`; whom the kernel says to be another is refused.
        /// `curl --unix-socket PATH http://localhost/sockets`
        socket => socket: Option<PathBuf> = path("path of a unix socket", socket_path), unset("none");
        /// Users that may ask at `socket` as well. The file of the socket is open to its owner alone without
        /// them, and to everybody with them: the kernel says who it is that has connected.
        socket_users => socket_users: Vec<String> =
            List { of: "users, by name (of `/etc/passwd`) or number", parse: user }, empty("none")
            where |admin| admin.socket.is_some(),
            "there is no socket; add socket = \"/run/weir/admin.sock\"";
    }
}

impl AdminConfig {
    pub(crate) fn examine(&self, findings: &mut Vec<Finding>) {
        findings.extend(self.socket.as_deref().map(|path| unix_listener("admin socket", path)));
    }
}

/// Whether there is such a user is the host's to say.
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
            return Err(format!("say at which address: 127.0.0.1:{port} or 0.0.0.0:{port}"));
        }
        let literal = text.replacen("localhost:", "127.0.0.1:", 1);
        literal
            .parse()
            .map(AdminListen::On)
            .map_err(|_| "it is not an IP address and port; write 127.0.0.1:9464 or off".to_owned())
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
