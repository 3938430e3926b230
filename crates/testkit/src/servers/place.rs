//! Where a server runs, and how it will end.

use super::{Certificate, Certificates, second_port};
use crate::free_port;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// Addresses and files of a server.
pub(super) struct Place {
    pub(super) addr: SocketAddr,
    /// The address that clients are told to connect to.
    pub(super) advertised: SocketAddr,
    pub(super) folder: PathBuf,
    pub(super) life: Life,
    pub(super) tls: Option<Tls>,
}

/// How a server will end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    /// With the tests, and its data too.
    Shared,
    /// It will be killed, and must then still have what it acknowledged.
    Killed,
}

/// The certificate that a TLS server presents to its clients.
pub(super) struct Tls {
    pub(super) certificates: Certificates,
    pub(super) shown: Certificate,
}

impl Tls {
    pub(super) fn certificate(&self) -> String {
        self.certificates.certificate(self.shown)
    }

    pub(super) fn key(&self) -> String {
        self.certificates.key(self.shown)
    }
}

impl Place {
    /// In an existing directory, on three consecutive ports that were free a moment ago.
    pub(super) fn new(folder: &Path, life: Life) -> Place {
        let mut ports = [free_port(), free_port(), free_port()];
        // `free_port` never returns a port twice in a process, so the second and third cannot be taken either.
        while ports[1] != ports[0] + 1 || ports[2] != ports[1] + 1 {
            ports = [ports[1], ports[2], free_port()];
        }
        let addr = (Ipv4Addr::LOCALHOST, ports[0]).into();
        Place { addr, advertised: addr, folder: folder.to_owned(), life, tls: None }
    }

    /// For uses other than the server's own interface and its second.
    pub(super) fn third_port(&self) -> SocketAddr {
        second_port(second_port(self.addr))
    }

    pub(super) fn file(&self, name: &str) -> String {
        self.folder.join(name).to_str().expect("a test's folder has a plain name").to_owned()
    }

    /// The file for the server's output.
    pub(super) fn log(&self) -> File {
        let mut options = File::options();
        options.create(true).append(true).open(self.file("log")).unwrap()
    }

    /// The end of its output, for a failure's message.
    pub(super) fn last_words(&self) -> String {
        let log = fs::read(self.file("log")).unwrap_or_default();
        let text = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}
