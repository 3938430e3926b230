//! The sink for this machine's own history: SQLite and Parquet files in a folder, which `weir query` reads.

#[cfg(feature = "store")]
mod destination;

use super::Sink;
use super::kind::{Kind, Scheme};
use crate::address::path;
use crate::form::{OrOff, Span, size, whole};
use crate::host::{self, Finding};
use crate::keys::{Values, keys};
use ::sink::BatchLimits;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

pub(super) const SCHEMES: &[Scheme] = &[Scheme {
    words: &["store"],
    form: "store:/folder",
    feature: Some("store"),
    read: |to, reader| {
        let folder = path(to.rest, "store:/var/lib/weir/history")?;
        Ok(StoreSink::read(reader, folder).map(Sink::Store))
    },
}];

/// Memory of sealing and of the database's cache.
const SEALING_BYTES_MAX: u64 = 96 << 20;

const DAY: Duration = Duration::from_secs(86_400);

keys! {
    /// What a sink that is a store has.
    pub struct StoreSink in "sink" of "stores" given { folder: PathBuf } {
        /// What is older is deleted: raw rows, sums, closes, ledger and flows.
        history_age => history_age: Option<Duration> =
            OrOff(Span(Duration::from_secs(3_600), DAY * 3_660)), default(Some(DAY * 31));
        /// While the store is larger, its oldest is deleted: raw rows first, and other rows where they alone take more than half.
        history_size => history_bytes: Option<u64> = OrOff(size(64 << 20, 1 << 50)), default(Some(4 << 30));
        /// Raw rows become a Parquet file after this time. Until then they take several times the space.
        seal_after => seal_after: Duration =
            Span(Duration::from_secs(1), Duration::from_secs(3_600)), default(Duration::from_secs(300));
        /// Units, peer networks, services and their combinations that each minute has sums of; those beyond are added up as `other`.
        rollup_keys => rollup_keys: usize = whole(10, 100_000), default(1_000);
    }
}

#[cfg(feature = "store")]
impl StoreSink {
    fn options(&self) -> ::store::Options {
        ::store::Options {
            folder: self.folder.clone(),
            keep_age: self.history_age,
            keep_bytes: self.history_bytes,
            segment_age: self.seal_after,
            keys_max: self.rollup_keys,
        }
    }
}

impl Kind for StoreSink {
    fn values(&self) -> Values {
        StoreSink::values(self)
    }

    #[cfg(feature = "store")]
    fn open(&self, given: &super::Opening) -> std::io::Result<::sink::Connector> {
        Ok(destination::connector(self.options(), given.durability, given.ledger.clone()))
    }

    #[cfg(feature = "store")]
    fn open_to_check(&self, _given: &super::Opening) -> std::io::Result<::sink::Connector> {
        Ok(destination::rehearsal(self.options()))
    }

    /// A batch is a transaction, one per second, so that the page is up to date.
    fn usual(&self) -> (BatchLimits, usize) {
        (BatchLimits { rows: 20_000, bytes: 8 << 20, age: Duration::from_secs(1) }, 1)
    }

    fn encoder_bytes_max(&self, batch_bytes: u64) -> u64 {
        2 * batch_bytes + SEALING_BYTES_MAX
    }

    fn is_exclusive(&self) -> bool {
        true
    }

    fn examine(&self, what: &str, findings: &mut Vec<Finding>) {
        findings.push(host::folder(what, &self.folder));
    }
}

impl fmt::Display for StoreSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "store:{}", self.folder.display())
    }
}
