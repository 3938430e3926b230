//! A sink that writes Parquet files into a folder.

use super::Sink;
use super::kind::{Kind, Scheme};
use crate::address::path;
use crate::form::{Choice, OrOff, Span, size};
use crate::host::{self, Finding};
use crate::keys::{Values, keys};
use crate::reader::Reader;
use ::sink::{BatchLimits, NumberEncoding};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

pub(super) const SCHEMES: &[Scheme] = &[Scheme {
    words: &["parquet"],
    form: "parquet:/folder",
    feature: Some("parquet"),
    read: |to, reader| {
        let folder = path(to.rest, "parquet:/var/lib/weir/records")?;
        Ok(ParquetSink::at(folder, reader).map(Sink::Parquet))
    },
}];

keys! {
    /// What Parquet files look like, wherever they go.
    pub struct ParquetLayout in "sink" of "Parquet files and S3" {
        /// How numbers are stored. `delta`: as differences, the smallest files. `plain`: as they are, for readers that refuse
        /// DELTA_BINARY_PACKED (Spark before 3.3, Iceberg's vectorized reader, StarRocks).
        number_encoding => numbers: NumberEncoding =
            Choice(&[("delta", NumberEncoding::Delta), ("plain", NumberEncoding::Plain)]), default(NumberEncoding::Delta);
    }
}

keys! {
    /// What a sink that is a folder of Parquet files has.
    pub struct ParquetSink in "sink" of "Parquet files" given { folder: PathBuf, layout: ParquetLayout } {
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

impl ParquetSink {
    fn at(folder: PathBuf, reader: &Reader<'_>) -> Option<ParquetSink> {
        let layout = ParquetLayout::read(reader);
        ParquetSink::read(reader, folder, layout?)
    }
}

impl Kind for ParquetSink {
    fn values(&self) -> Values {
        ParquetSink::values(self).into_iter().chain(self.layout.values()).collect()
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
        Ok(::sink::parquet::folder(options, fields, self.layout.numbers))
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
