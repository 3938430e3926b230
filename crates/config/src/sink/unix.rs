//! A sink that sends to a unix socket.

use super::kind::{Kind, Opening, Scheme};
use super::tcp::{Framed, IN_FLIGHT};
use super::{Sink, Written};
use crate::address::unix_path;
use crate::keys::Values;
use ::sink::{BatchLimits, Connector};
use record::Encoding;
use std::fmt;
use std::io;
use std::path::PathBuf;

pub(super) const SCHEMES: &[Scheme] = &[
    Scheme {
        words: &["unix"],
        form: "unix:/path",
        feature: None,
        read: |to, reader| {
            let path = unix_path(to.rest)?;
            let keys = Framed::with_format(reader);
            let sink = |(framed, written)| UnixSink { path, framed: Some(framed), written };
            Ok(keys.map(sink).map(Sink::Unix))
        },
    },
    Scheme {
        words: &["unixgram"],
        form: "unixgram:/path",
        feature: None,
        read: |to, reader| {
            let path = unix_path(to.rest)?;
            let written = Written::read(reader, Encoding::Jsonl);
            Ok(written.map(|written| Sink::Unix(UnixSink { path, framed: None, written })))
        },
    },
];

/// A unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnixSink {
    pub path: PathBuf,
    /// The framing of rows in a stream. `None`: each row is a datagram.
    pub framed: Option<Framed>,
    pub written: Written,
}

impl Kind for UnixSink {
    fn values(&self) -> Values {
        let framed = self.framed.iter().flat_map(Framed::values);
        self.written.values().into_iter().chain(framed).collect()
    }

    fn open(&self, given: &Opening) -> io::Result<Connector> {
        let (path, content) = (self.path.clone(), given.content(&self.written));
        Ok(match &self.framed {
            Some(framed) => ::sink::unix(path, framed.framing, content),
            None => ::sink::unixgram(path, content),
        })
    }

    fn usual(&self) -> (BatchLimits, usize) {
        (BatchLimits::default(), if self.framed.is_some() { IN_FLIGHT } else { 1 })
    }

    fn encoder_bytes_max(&self, batch_bytes: u64) -> u64 {
        // With length prefixes, rows are copied once more.
        3 * batch_bytes
    }

    fn written(&self) -> Option<&Written> {
        Some(&self.written)
    }
}

impl fmt::Display for UnixSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.framed.is_some() { "unix" } else { "unixgram" };
        write!(f, "{scheme}:{}", self.path.display())
    }
}
