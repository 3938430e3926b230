//! The interface of a kind of sink, and the schemes by which `to` selects one.

use super::{Body, Sink, Written};
use crate::address::{AddressError, HostPort, split_scheme};
use crate::form::Slot;
use crate::host::Finding;
use crate::keys::Values;
use crate::mistyped;
use crate::reader::Reader;
use ::sink::{BatchLimits, Connector, Content, Durability, HostChanges, Remote};
use ledger::Ledger;
use record::{Encoding, FieldSet};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// A kind of sink. Its `Display` is the text of `to`.
pub(crate) trait Kind: fmt::Display {
    /// The values of the keys that not every sink has.
    fn values(&self) -> Values {
        Vec::new()
    }

    /// Creates the connector with which the sink's thread connects. Connects to nothing, and reads no secret.
    ///
    /// A kind behind a cargo feature implements this only with that feature: without it, `to` was refused.
    ///
    /// # Errors
    /// Something that the process itself must have is missing, such as standard output.
    fn open(&self, _given: &Opening) -> io::Result<Connector> {
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "this build does not have this kind of sink",
        ))
    }

    /// The same to try it out: it leaves no trace where test data cannot be told apart from the rest, or taken away.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    fn open_to_check(&self, given: &Opening) -> io::Result<Connector> {
        self.open(given)
    }

    /// The default batch limits, and the default number of batches in flight.
    fn usual(&self) -> (BatchLimits, usize) {
        (BatchLimits::default(), 1)
    }

    /// Most memory that its encoders and its client use on top of the batches in flight, with batches of `batch_bytes`.
    fn encoder_bytes_max(&self, batch_bytes: u64) -> u64 {
        2 * batch_bytes
    }

    /// The same of a sink with a spool.
    fn usual_with_spool(&self) -> (BatchLimits, usize) {
        self.usual()
    }

    /// How long its client retries on its own, or waits for a sync, before it returns a batch. This time is added to `answer_max`.
    fn tries_for(&self) -> Duration {
        Duration::ZERO
    }

    /// The keys of the format, if it can be chosen.
    fn written(&self) -> Option<&Written> {
        None
    }

    /// The encoding of the rows.
    fn encoding(&self) -> Encoding {
        self.written().map_or(Encoding::Protobuf, |written| written.format)
    }

    /// Whether two of them must not write to the same place at once while one replaces the other on reload.
    fn is_exclusive(&self) -> bool {
        false
    }

    /// The UDP address that it sends to, if it does; the daemon resolves it.
    fn receiver(&self) -> Option<&HostPort> {
        None
    }

    /// Checks what it needs of this host. `what` names the sink.
    fn examine(&self, _what: &str, _findings: &mut Vec<Finding>) {}
}

/// What a sink is opened with, in addition to its own keys.
pub struct Opening {
    /// The sink's name.
    pub name: String,
    /// The fields of socket records; `None` if it takes no socket records.
    pub fields: Option<FieldSet>,
    /// Whether it takes rows of the sFlow analysis.
    pub takes_flows: bool,
    /// The ledger, for sinks that store it; `None` without a daemon.
    pub ledger: Option<Arc<Ledger>>,
    /// When a destination on this host acknowledges rows.
    pub durability: Durability,
    /// The address of its receiver, which may change over time.
    pub remote: Remote,
    /// The changes of this host.
    pub host: HostChanges,
}

/// A file or a stream in front of which there is a spool: a row waits up to a second for a sync, so many batches are in flight.
/// Rows gather for a moment, or a slow stream of single rows would be as many batches.
pub(super) fn synced() -> (BatchLimits, usize) {
    (BatchLimits { age: Duration::from_millis(10), ..BatchLimits::default() }, 128)
}

/// How long that is.
pub(super) const SYNC_WAIT: Duration = Duration::from_secs(1);

impl Opening {
    /// The content that a kind with a choice of formats writes.
    pub(crate) fn content(&self, written: &Written) -> Content {
        match (written.body, self.fields) {
            (Body::Payload, _) => Content::Payloads,
            (Body::Record, Some(fields)) => Content::Records(written.format, fields),
            (Body::Record, None) if self.takes_flows => Content::Flows(written.format),
            (Body::Record, None) => Content::Datagrams(written.format),
        }
    }
}

/// One scheme of `to`, and the kind that it selects.
pub(crate) struct Scheme {
    /// The words before the colon.
    pub(crate) words: &'static [&'static str],
    /// The form of such an address, for messages and the documentation.
    pub(crate) form: &'static str,
    /// The cargo feature that it needs, one of [`FEATURES`]; `None` if every build has it.
    pub(crate) feature: Option<&'static str>,
    /// Reads the rest after the colon, and the keys of the kind. `None` if a key is wrong, which is reported.
    pub(crate) read: fn(&To<'_>, &Reader<'_>) -> Result<Option<Sink>, AddressError>,
}

/// An address, split at its first colon.
pub(crate) struct To<'a> {
    pub(crate) scheme: &'a str,
    pub(crate) rest: &'a str,
}

/// Cargo features of this crate that kinds of sinks and the admin server need, and whether this build has them.
const FEATURES: &[(&str, bool)] = &[
    ("kafka", cfg!(feature = "kafka")),
    ("nats", cfg!(feature = "nats")),
    ("redis", cfg!(feature = "redis")),
    ("http", cfg!(feature = "http")),
    ("parquet", cfg!(feature = "parquet")),
    ("s3", cfg!(feature = "s3")),
    ("store", cfg!(feature = "store")),
    ("tls", cfg!(feature = "tls")),
    ("grpc", cfg!(feature = "grpc")),
];

/// Generates the enum of all kinds, and the tables of their schemes and keys.
///
/// A row is the variant with its struct, its schemes after `at`, and the tables of its keys, if it has any.
macro_rules! kinds {
    (
        $(#[$about:meta])*
        pub enum $Sink:ident {
            $($(#[$meaning:meta])* $Variant:ident($Kind:ident) at $schemes:path $(, keys $($Keys:ident)+)?;)+
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum $Sink {
            $($(#[$meaning])* $Variant($Kind),)+
        }

        impl $Sink {
            pub(crate) fn kind(&self) -> &dyn $crate::sink::kind::Kind {
                match self {
                    $($Sink::$Variant(kind) => kind,)+
                }
            }
        }

        /// The schemes of all kinds, in the order of the documentation.
        pub(crate) const SCHEMES: &[&[$crate::sink::kind::Scheme]] = &[$($schemes),+];

        /// The keys of a sink: those of all sinks, those that several kinds share, and those of each kind.
        const TABLES: &[$crate::keys::Table] = &[
            SinkConfig::TABLE,
            Written::TABLE,
            Credentials::TABLE,
            Tls::TABLE,
            $($($($Keys::TABLE,)+)?)+
        ];
    };
}
pub(crate) use kinds;

/// Reads `to`.
pub(crate) fn read(slot: &Slot<'_>, schemes: &[&[Scheme]]) -> Option<Sink> {
    slot.parse(|text| {
        let read = scheme_of(text, schemes).and_then(|(scheme, to)| {
            (scheme.read)(&to, slot.reader).map_err(|error| match error {
                AddressError::NoHost(_) => AddressError::NoHost(scheme.form.to_owned()),
                AddressError::NoPort(_) if text != to.rest => {
                    AddressError::Mistyped { why: "it has no port", meant: scheme.form.to_owned() }
                }
                error => error,
            })
        });
        read.map_err(|error| mistyped::sink(text, form_of(text, schemes)).unwrap_or(error))
    })?
}

/// The form of an address with this scheme.
fn form_of(word: &str, schemes: &[&[Scheme]]) -> Option<&'static str> {
    let found = schemes.iter().copied().flatten().find(|one| one.words.contains(&word));
    found.map(|one| one.form)
}

/// The scheme of an address. Plain `HOST:PORT` is UDP.
fn scheme_of<'s, 'a>(
    text: &'a str,
    schemes: &'s [&[Scheme]],
) -> Result<(&'s Scheme, To<'a>), AddressError> {
    let (scheme, rest) = split_scheme(text).unwrap_or(("udp", text));
    let kind = scheme.to_owned();

    let all = || schemes.iter().copied().flatten();
    let Some(found) = all().find(|one| one.words.contains(&scheme)) else {
        let forms: Vec<_> = all().map(|one| one.form).collect();
        return Err(AddressError::SinkKind { kind, kinds: list(&forms) });
    };

    match found.feature.filter(|feature| !is_built(feature)) {
        Some(feature) => Err(AddressError::NotBuilt { kind, feature }),
        None => Ok((found, To { scheme, rest })),
    }
}

/// Whether a sink has addresses with this scheme.
pub(crate) fn is_scheme(word: &str) -> bool {
    form_of(word, super::SCHEMES).is_some()
}

pub(crate) fn is_built(feature: &str) -> bool {
    FEATURES.contains(&(feature, true))
}

/// `a, b or c`.
pub(crate) fn list(forms: &[&str]) -> String {
    match forms {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

#[cfg(test)]
pub(super) fn is_feature(name: &str) -> bool {
    FEATURES.iter().any(|(feature, _)| *feature == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_that_the_build_lacks_is_refused_with_the_command_that_builds_it() {
        let scheme = |words, form, feature| Scheme { words, form, feature, read: |_, _| Ok(None) };
        let schemes =
            [scheme(&["a", "b"], "a://HOST", Some("none")), scheme(&["c"], "c:/path", None)];
        let of = |text| scheme_of(text, &[&schemes]).map(|(_, to)| (to.scheme, to.rest));
        let said = |text| of(text).map_err(|error| error.to_string());

        assert_eq!(of("c:/path"), Ok(("c", "/path")));
        assert_eq!(
            said("b://host"),
            Err("this build has no b. Fix: build with `cargo build --release -p weir --features none`, or use the image".to_owned())
        );
        assert_eq!(
            said("d://host"),
            Err("\"d\" is not a kind of sink. Fix: write a://HOST or c:/path".to_owned())
        );
    }
}
