//! A sink that writes Parquet files into a folder.

use super::Sink;
use super::kind::{Kind, Scheme};
use crate::address::path;
use crate::form::{OrOff, Span, size};
use crate::host::{self, Finding};
use crate::keys::{Values, keys};
use ::sink::BatchLimits;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

pub(super) const SCHEMES: &[Scheme] = &[Scheme {
    words: &["parquet"],
    form: "parquet:/folder",
    feature: Some("parquet"),
    read: |to, reader| {
        let folder = path(to.rest, "parquet:/var/lib/weir/records")?;
        Ok(ParquetSink::read(reader, folder).map(Sink::Parquet))
    },
}];

keys! {
    /// What a sink that is a folder of Parquet files has.
    pub struct ParquetSink in "sink" of "Parquet files" given { folder: PathBuf } {
        /// Files that were written longer ago than this are deleted.
        keep_age => keep_age: Option<Duration> =
            OrOff(Span(Duration::from_secs(3_600), Duration::from_secs(3_660 * 86_400))), default(None);
        /// While all files of this host are together larger than this, the oldest are deleted.
        keep_size => keep_bytes: Option<u64> = OrOff(size(256 << 20, 1 << 50)), default(None);
    }
}

/// A file per minute, sooner under high volume: readers want few, large files.
pub(super) fn usual() -> (BatchLimits, usize) {
    let age = Duration::from_secs(60);
    (BatchLimits { rows: 1_000_000, bytes: 64 << 20, age }, 1)
}

impl Kind for ParquetSink {
    fn values(&self) -> Values {
        ParquetSink::values(self)
    }

    #[cfg(feature = "parquet")]
    fn open(&self, given: &super::Opening) -> std::io::Result<::sink::Connector> {
        let options = ::sink::parquet::FolderOptions {
            folder: self.folder.clone(),
            host: sys::process::host_name()?,
            keep_age: self.keep_age,
            keep_bytes: self.keep_bytes,
        };
        let fields = given.fields.unwrap_or(record::FieldSet::ALL);
        Ok(::sink::parquet::folder(options, fields))
    }

    fn usual(&self) -> (BatchLimits, usize) {
        usual()
    }

    fn is_exclusive(&self) -> bool {
        true
    }

    fn examine(&self, what: &str, findings: &mut Vec<Finding>) {
        findings.push(host::folder(what, &self.folder));
    }
}

impl fmt::Display for ParquetSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "parquet:{}", self.folder.display())
    }
}
