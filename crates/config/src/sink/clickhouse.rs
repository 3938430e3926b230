//! A ClickHouse sink.

use super::credentials::Accepts;
use super::http::Requests;
#[cfg(feature = "http")]
use super::kind::Opening;
use super::kind::{Kind, Scheme};
use super::{Credentials, Sink, Tls, Url};
use crate::address::AddressError;
use crate::form::{Bool, text};
use crate::keys::{Values, keys};
use crate::reader::Reader;
use ::sink::BatchLimits;
#[cfg(feature = "http")]
use ::sink::{ClickHouseOptions, Connector, Duplicates, Insertion, MissingTables};
#[cfg(feature = "http")]
use record::FieldSet;
use std::fmt;
#[cfg(feature = "http")]
use std::io;
use std::time::Duration;

pub(super) const SCHEMES: &[Scheme] = &[
    Scheme {
        words: &["clickhouse"],
        form: "clickhouse://HOST:PORT/database",
        feature: Some("http"),
        read: |to, reader| {
            let url = Url::parse_single(to.rest, 8123)?;
            Ok(ClickHouseSink::at(url, None, reader)?.map(Sink::ClickHouse))
        },
    },
    Scheme {
        words: &["clickhouses"],
        form: "clickhouses://HOST:PORT/database",
        feature: Some("http"),
        read: |to, reader| {
            let url = Url::parse_single(to.rest, 8443)?;
            let Some(tls) = Tls::read(reader) else { return Ok(None) };
            Ok(ClickHouseSink::at(url, Some(tls), reader)?.map(Sink::ClickHouse))
        },
    },
];

keys! {
    /// What a sink to ClickHouse has.
    pub struct ClickHouseSink in "sink" of "sinks to ClickHouse" given {
        /// The path is the database.
        url: Url,
        /// `None`: without TLS.
        tls: Option<Tls>,
        credentials: Credentials,
        requests: Requests
    } {
        /// What stands before the names of the tables `sockets`, `polls` and `datagrams`.
        table_prefix => table_prefix: Option<String> = text("1 to 64 letters, digits and `_`", prefix), unset("nothing");
        /// Whether database and tables are made, as `deploy/clickhouse` has them, where they are missing.
        create_tables => creates_tables: bool = Bool, default(false);
        /// Whether the tables take a batch once that is sent twice: replicated ones, and those with
        /// `non_replicated_deduplication_window`, which `create_tables` sets. Without, rows that were sent twice are counted as
        /// `possible_duplicates`.
        deduplicate => deduplicates: bool = Bool, default(false);
        /// Whether the server gathers rows of many senders before it writes them (`async_insert`). It answers when they are
        /// written. For many senders of few rows.
        async_insert => inserts_async: bool = Bool, default(false);
    }
}

fn prefix(text: &str) -> Result<String, String> {
    let is_sound = (1..=64).contains(&text.len())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_sound
        .then(|| text.to_owned())
        .ok_or_else(|| "it is not 1 to 64 letters, digits and _".to_owned())
}

impl ClickHouseSink {
    fn at(
        url: Url,
        tls: Option<Tls>,
        reader: &Reader<'_>,
    ) -> Result<Option<ClickHouseSink>, AddressError> {
        if url.path.contains('/') {
            return Err(AddressError::HostInPath(url.path));
        }
        let credentials = Credentials::accepted(reader, Accepts::Password);
        let requests = Requests::read(reader);
        let (Some(credentials), Some(requests)) = (credentials, requests) else { return Ok(None) };
        Ok(ClickHouseSink::read(reader, url, tls, credentials, requests))
    }
}

#[cfg(feature = "http")]
impl ClickHouseSink {
    /// What its client needs, with all fields.
    pub fn options(&self) -> ClickHouseOptions {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let host = &self.url.hosts[0];
        let database = Some(self.url.path.as_str()).filter(|path| !path.is_empty());
        ClickHouseOptions {
            url: format!("{scheme}://{host}"),
            database: database.unwrap_or("default").to_owned(),
            table_prefix: self.table_prefix.clone().unwrap_or_default(),
            login: self.credentials.login(),
            tls: self.tls.as_ref().map(Tls::options).unwrap_or_default(),
            request_timeout: self.requests.timeout,
            compression: self.requests.compression,
            fields: FieldSet::ALL,
            missing_tables: match self.creates_tables {
                true => MissingTables::Created,
                false => MissingTables::Awaited,
            },
            duplicates: match self.deduplicates {
                true => Duplicates::Removed,
                false => Duplicates::Kept,
            },
            insertion: match self.inserts_async {
                true => Insertion::Gathered,
                false => Insertion::AtOnce,
            },
        }
    }
}

impl Kind for ClickHouseSink {
    fn values(&self) -> Values {
        let tls = self.tls.iter().flat_map(Tls::values);
        let shared = self.credentials.values().into_iter().chain(tls).chain(self.requests.values());
        shared.chain(ClickHouseSink::values(self)).collect()
    }

    #[cfg(feature = "http")]
    fn open(&self, given: &Opening) -> io::Result<Connector> {
        let fields = given.fields.unwrap_or(FieldSet::ALL);
        Ok(::sink::clickhouse(ClickHouseOptions { fields, ..self.options() }))
    }

    /// Few large inserts: a server merges small ones, and refuses inserts when merging falls behind.
    fn usual(&self) -> (BatchLimits, usize) {
        (BatchLimits { rows: 100_000, bytes: 32 << 20, age: Duration::from_secs(5) }, 2)
    }
}

impl fmt::Display for ClickHouseSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() { "clickhouses" } else { "clickhouse" };
        write!(f, "{scheme}:{}", self.url)
    }
}
