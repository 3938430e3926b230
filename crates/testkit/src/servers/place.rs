//! Where a server is, and what it has to be ready for.

use super::{Certificate, Certificates, second_port};
use crate::free_port;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// Where a server listens, and where its files are.
pub(super) struct Place {
    pub(super) addr: SocketAddr,
    /// Where its clients are told to connect.
    pub(super) advertised: SocketAddr,
    pub(super) folder: PathBuf,
    pub(super) life: Life,
    pub(super) tls: Option<Tls>,
}

/// What a server has to be ready for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    /// It ends with the tests, and its data too.
    Shared,
    /// It is killed, and must have what it has acknowledged still.
    Killed,
}

/// What a server that wants TLS shows to its clients.
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
    /// In a folder that is there, on three ports in a row that were free a moment ago.
    pub(super) fn new(folder: &Path, life: Life) -> Place {
        let mut ports = [free_port(), free_port(), free_port()];
        // A call of this process gives no port twice, so that the second and the third are not given away either.
        while ports[1] != ports[0] + 1 || ports[2] != ports[1] + 1 {
            ports = [ports[1], ports[2], free_port()];
        }
        let addr = (Ipv4Addr::LOCALHOST, ports[0]).into();
        Place { addr, advertised: addr, folder: folder.to_owned(), life, tls: None }
    }

    /// For what is neither the server's own interface nor its second.
    pub(super) fn third_port(&self) -> SocketAddr {
        second_port(second_port(self.addr))
    }

    pub(super) fn file(&self, name: &str) -> String {
        self.folder.join(name).to_str().expect("a test's folder has a plain name").to_owned()
    }

    /// What the server has written to its output.
    pub(super) fn log(&self) -> File {
        let mut options = File::options();
        options.create(true).append(true).open(self.file("log")).unwrap()
    }

    /// The end of what it has written, for a failure's message.
    pub(super) fn last_words(&self) -> String {
        let log = fs::read(self.file("log")).unwrap_or_default();
        let text = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}
