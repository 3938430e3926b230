//! The null sink: it counts rows and discards them.

use super::kind::{Kind, Opening, Scheme};
use super::{Sink, Written};
use crate::address::AddressError;
use crate::keys::Values;
use ::sink::Connector;
use record::Encoding;
use std::fmt;
use std::io;

pub(super) const SCHEMES: &[Scheme] = &[Scheme {
    words: &["null"],
    form: "null:",
    feature: None,
    read: |to, reader| match to.rest {
        "" | "//" => {
            let written = Written::read(reader, Encoding::Jsonl);
            Ok(written.map(NullSink).map(Sink::Null))
        }
        _ => Err(AddressError::Nothing(to.scheme.to_owned())),
    },
}];

/// Nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NullSink(pub Written);

impl Kind for NullSink {
    fn values(&self) -> Values {
        self.0.values()
    }

    fn open(&self, given: &Opening) -> io::Result<Connector> {
        Ok(::sink::null(given.content(&self.0)))
    }

    fn written(&self) -> Option<&Written> {
        Some(&self.0)
    }
}

impl fmt::Display for NullSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("null:")
    }
}
