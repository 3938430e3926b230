//! TLS certificates for tests.

use crate::{find_tool, need_python_module, root, run};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The certificate that a server presents. Both are for `localhost` and 127.0.0.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certificate {
    /// Valid for a month.
    Valid,
    /// Expired yesterday.
    Expired,
}

/// A CA and the certificates that it signed, in a test's directory.
pub struct Certificates(PathBuf);

impl Certificates {
    /// Creates them; `None` if the necessary tool is not installed.
    #[track_caller]
    pub fn make(folder: &Path) -> Option<Certificates> {
        need_python_module("cryptography").then(|| {
            let python = find_tool("weir-python").expect("asked for before");
            let script = root().join("crates/testkit/servers/certificates.py");
            run(Command::new(python).arg(script).arg(folder));
            Certificates(folder.to_owned())
        })
    }

    /// The CA certificate, with which a client verifies the server's.
    pub fn ca(&self) -> String {
        self.file("ca.pem")
    }

    /// The file with the key, followed by the certificate.
    pub fn certificate(&self, which: Certificate) -> String {
        self.file(if which == Certificate::Valid { "server.pem" } else { "expired.pem" })
    }

    /// The file with only the key.
    pub fn key(&self, which: Certificate) -> String {
        self.file(if which == Certificate::Valid { "server.key" } else { "expired.key" })
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a test's folder has a plain name").to_owned()
    }
}
