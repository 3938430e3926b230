//! What TLS needs in tests.

use crate::{find_tool, need_python_module, root, run};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Which certificate a server shows. Both are for `localhost` and 127.0.0.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certificate {
    /// For a month.
    Valid,
    /// Since yesterday.
    Expired,
}

/// An authority and the certificates that it has signed, in a folder of the test's.
pub struct Certificates(PathBuf);

impl Certificates {
    /// Makes them; `None` where what makes them is not installed.
    #[track_caller]
    pub fn make(folder: &Path) -> Option<Certificates> {
        need_python_module("cryptography").then(|| {
            let python = find_tool("weir-python").expect("asked for before");
            let script = root().join("crates/testkit/servers/certificates.py");
            run(Command::new(python).arg(script).arg(folder));
            Certificates(folder.to_owned())
        })
    }

    /// The authority's certificate, by which a client knows the server's.
    pub fn ca(&self) -> String {
        self.file("ca.pem")
    }

    /// The certificate, behind its key.
    pub fn certificate(&self, which: Certificate) -> String {
        self.file(if which == Certificate::Valid { "server.pem" } else { "expired.pem" })
    }

    /// The key alone.
    pub fn key(&self, which: Certificate) -> String {
        self.file(if which == Certificate::Valid { "server.key" } else { "expired.key" })
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a test's folder has a plain name").to_owned()
    }
}
