//! Sinks that receive batches by HTTP POST.

use super::credentials::Accepts;
#[cfg(feature = "http")]
use super::kind::Opening;
use super::kind::{Kind, Scheme};
use super::{Credentials, Sink, Tls, Url, Written};
use crate::form::{Choice, Span, pairs};
use crate::keys::{Values, keys};
use crate::reader::Reader;
use ::sink::{BatchLimits, Compression};
#[cfg(feature = "http")]
use ::sink::{Connector, HttpOptions, SecretSource};
use record::Encoding;
use std::collections::BTreeMap;
use std::fmt;
#[cfg(feature = "http")]
use std::io;
use std::time::Duration;

pub(super) const SCHEMES: &[Scheme] = &[
    Scheme {
        words: &["http"],
        form: "http://HOST/path",
        feature: Some("http"),
        read: |to, reader| {
            let url = Url::parse_single(to.rest, 80)?;
            Ok(HttpSink::at(url, None, reader).map(Sink::Http))
        },
    },
    Scheme {
        words: &["https"],
        form: "https://HOST/path",
        feature: Some("http"),
        read: |to, reader| {
            let url = Url::parse_single(to.rest, 443)?;
            let Some(tls) = Tls::read(reader) else { return Ok(None) };
            Ok(HttpSink::at(url, Some(tls), reader).map(Sink::Http))
        },
    },
];

pub(super) const OTLP_SCHEMES: &[Scheme] = &[
    Scheme {
        words: &["otlp"],
        form: "otlp://HOST:PORT",
        feature: Some("http"),
        read: |to, reader| {
            let url = Url::parse_single(to.rest, 4318)?;
            Ok(OtlpSink::at(url, None, reader).map(Sink::Otlp))
        },
    },
    Scheme {
        words: &["otlps"],
        form: "otlps://HOST:PORT",
        feature: Some("http"),
        read: |to, reader| {
            let url = Url::parse_single(to.rest, 4318)?;
            let Some(tls) = Tls::read(reader) else { return Ok(None) };
            Ok(OtlpSink::at(url, Some(tls), reader).map(Sink::Otlp))
        },
    },
];

/// Memory of the client before its first batch: its code, mostly for TLS, and the certificates of authorities. Measured with ten
/// rows: 5.4 MiB, including the batch and the chunk that hold them.
const CLIENT_BYTES: u64 = 5 << 20;

keys! {
    /// How requests are made.
    pub struct Requests in "sink" of "sinks over HTTP" {
        /// How a body is compressed.
        compression => compression: Compression = Choice(&[
            ("none", Compression::None),
            ("gzip", Compression::Gzip),
            ("zstd", Compression::Zstd),
        ]), default(Compression::None);
        /// How long a request may take until the end of its answer; below `answer_max`.
        request_timeout => timeout: Duration =
            Span(Duration::from_secs(1), Duration::from_secs(3_600)), default(Duration::from_secs(30));
    }
}

keys! {
    /// What a sink by HTTP POST has.
    pub struct HttpSink in "sink" of "sinks by HTTP POST" given {
        url: Url,
        /// `None`: without TLS.
        tls: Option<Tls>,
        credentials: Credentials,
        requests: Requests,
        written: Written
    } {
        /// Headers of every request: `headers = { "X-Scope-OrgID" = "net" }`. Everybody sees them who sees the configuration.
        headers => headers: BTreeMap<String, String> = pairs(header), empty("none");
        /// Headers whose values are secrets, each with the file that holds its value: `header_files = { "X-Api-Key" = "/path" }`.
        header_files => header_files: BTreeMap<String, String> = pairs(header_file), empty("none");
    }
}

fn header(name: &str, value: &str) -> Result<String, String> {
    let is_name =
        !name.is_empty() && name.bytes().all(|c| c.is_ascii_alphanumeric() || b"-_.".contains(&c));
    if !is_name || value.chars().any(|c| c.is_control() || !c.is_ascii()) {
        return Err(format!(
            "{name}: it is not a header with its value. Fix: write \"X-Name\" = \"value\""
        ));
    }
    match name.to_ascii_lowercase().as_str() {
        "authorization" | "proxy-authorization" | "cookie" => Err(format!(
            "{name}: its value is a secret. Fix: name its file in token_file, password_file or header_files"
        )),
        "content-type" | "content-encoding" | "content-length" | "host" | "transfer-encoding" => {
            Err(format!("{name}: it follows from `to`, `format` and `compression`. Fix: remove it"))
        }
        _ => Ok(value.to_owned()),
    }
}

fn header_file(name: &str, path: &str) -> Result<String, String> {
    let is_secret = matches!(
        name.to_ascii_lowercase().as_str(),
        "authorization" | "proxy-authorization" | "cookie"
    );
    if !is_secret {
        header(name, "")?;
    }
    match path.starts_with('/') {
        true => Ok(path.to_owned()),
        // The value may be a secret written here by mistake, so it is not repeated in a message that is logged.
        false => Err(format!(
            "{name}: it is not an absolute path. Fix: write for example /etc/weir/token"
        )),
    }
}

impl HttpSink {
    fn at(url: Url, tls: Option<Tls>, reader: &Reader<'_>) -> Option<HttpSink> {
        let credentials = Credentials::accepted(reader, Accepts::Either)?;
        let requests = Requests::read(reader)?;
        let written = Written::read(reader, Encoding::Jsonl)?;
        HttpSink::read(reader, url, tls, credentials, requests, written)
    }
}

impl Kind for HttpSink {
    fn values(&self) -> Values {
        let tls = self.tls.iter().flat_map(Tls::values);
        let shared = self.credentials.values().into_iter().chain(tls).chain(self.requests.values());
        shared.chain(self.written.values()).chain(HttpSink::values(self)).collect()
    }

    #[cfg(feature = "http")]
    fn open(&self, given: &Opening) -> io::Result<Connector> {
        let secret_headers = self.header_files.iter();
        let secret_headers =
            secret_headers.map(|(name, path)| (name.clone(), SecretSource::File(path.into())));
        let options = HttpOptions {
            url: self.to_string(),
            login: self.credentials.login(),
            tls: self.tls.as_ref().map(Tls::options).unwrap_or_default(),
            request_timeout: self.requests.timeout,
            compression: self.requests.compression,
            headers: self.headers.clone().into_iter().collect(),
            secret_headers: secret_headers.collect(),
        };
        Ok(::sink::http(options, given.content(&self.written)))
    }

    fn usual(&self) -> (BatchLimits, usize) {
        (BatchLimits { rows: 10_000, bytes: 1 << 20, age: Duration::from_secs(1) }, 4)
    }

    fn encoder_bytes_max(&self, batch_bytes: u64) -> u64 {
        2 * batch_bytes + CLIENT_BYTES
    }

    fn written(&self) -> Option<&Written> {
        Some(&self.written)
    }
}

impl fmt::Display for HttpSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        write!(f, "{scheme}:{}", self.url)
    }
}

/// OpenTelemetry logs to a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtlpSink {
    pub url: Url,
    /// `None`: without TLS.
    pub tls: Option<Tls>,
    pub credentials: Credentials,
    pub requests: Requests,
}

impl OtlpSink {
    fn at(url: Url, tls: Option<Tls>, reader: &Reader<'_>) -> Option<OtlpSink> {
        let credentials = Credentials::accepted(reader, Accepts::Either)?;
        let requests = Requests::read(reader)?;
        Some(OtlpSink { url, tls, credentials, requests })
    }
}

impl Kind for OtlpSink {
    fn values(&self) -> Values {
        let tls = self.tls.iter().flat_map(Tls::values);
        let shared = self.credentials.values().into_iter().chain(tls);
        shared.chain(self.requests.values()).collect()
    }

    #[cfg(feature = "http")]
    fn open(&self, given: &Opening) -> io::Result<Connector> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        // The default path of collectors.
        let path = Some(self.url.path.as_str()).filter(|path| !path.is_empty());
        let options = HttpOptions {
            url: format!("{scheme}://{}/{}", self.url.hosts[0], path.unwrap_or("v1/logs")),
            login: self.credentials.login(),
            tls: self.tls.as_ref().map(Tls::options).unwrap_or_default(),
            request_timeout: self.requests.timeout,
            compression: self.requests.compression,
            headers: Vec::new(),
            secret_headers: Vec::new(),
        };
        Ok(::sink::otlp(options, given.fields.unwrap_or(record::FieldSet::ALL)))
    }

    /// By default, a collector accepts 4 MiB at a time.
    fn usual(&self) -> (BatchLimits, usize) {
        (BatchLimits { rows: 8_192, bytes: 2 << 20, age: Duration::from_secs(1) }, 4)
    }

    fn encoder_bytes_max(&self, batch_bytes: u64) -> u64 {
        2 * batch_bytes + CLIENT_BYTES
    }
}

impl fmt::Display for OtlpSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() { "otlps" } else { "otlp" };
        write!(f, "{scheme}:{}", self.url)
    }
}
