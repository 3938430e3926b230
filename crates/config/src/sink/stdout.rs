//! The standard output sink.

use super::kind::{Kind, Opening, SYNC_WAIT, Scheme, synced};
use super::{Sink, Written};
use crate::address::AddressError;
use crate::keys::Values;
use ::sink::{BatchLimits, Connector};
use record::Encoding;
use std::fmt;
use std::io;
use std::time::Duration;

pub(super) const SCHEMES: &[Scheme] = &[Scheme {
    words: &["stdout"],
    form: "stdout:",
    feature: None,
    read: |to, reader| match to.rest {
        "" | "//" => {
            let written = Written::read(reader, Encoding::Jsonl);
            Ok(written.map(StdoutSink).map(Sink::Stdout))
        }
        _ => Err(AddressError::Nothing(to.scheme.to_owned())),
    },
}];

/// Standard output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StdoutSink(pub Written);

impl Kind for StdoutSink {
    fn values(&self) -> Values {
        self.0.values()
    }

    fn open(&self, given: &Opening) -> io::Result<Connector> {
        ::sink::stdout(given.content(&self.0), given.durability)
    }

    fn usual_with_spool(&self) -> (BatchLimits, usize) {
        synced()
    }

    fn tries_for(&self) -> Duration {
        SYNC_WAIT
    }

    fn is_exclusive(&self) -> bool {
        true
    }

    fn written(&self) -> Option<&Written> {
        Some(&self.0)
    }
}

impl fmt::Display for StdoutSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("stdout:")
    }
}
