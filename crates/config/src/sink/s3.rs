//! A sink that writes Parquet files to a bucket of an S3-compatible store.

use super::credentials::Accepts;
use super::kind::{Kind, Scheme};
use super::{Credentials, Sink, Tls, parquet};
use crate::address::AddressError;
use crate::form::text;
use crate::keys::{Values, keys};
use crate::reader::Reader;
use ::sink::BatchLimits;
use std::fmt;

pub(super) const SCHEMES: &[Scheme] = &[Scheme {
    words: &["s3"],
    form: "s3://BUCKET/PREFIX",
    feature: Some("s3"),
    read: |to, reader| Ok(S3Sink::at(place(to.rest)?, reader).map(Sink::S3)),
}];

/// A bucket, and the prefix of its objects' names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub bucket: String,
    /// Empty if there is none.
    pub prefix: String,
}

keys! {
    /// What a sink that is a bucket has.
    pub struct S3Sink in "sink" of "S3" given {
        place: Place,
        credentials: Box<Credentials>,
        tls: Box<Tls>,
        layout: parquet::ParquetLayout
    } {
        /// URL of the store, where it is not Amazon's: `https://minio.example.net:9000`.
        endpoint => endpoint: Option<String> = text("URL", endpoint), unset("that of the region, or AWS_ENDPOINT_URL");
        /// Region that the bucket is in.
        region => region: Option<String> = text("name of a region", region), unset("AWS_REGION, or us-east-1");
    }
}

impl S3Sink {
    fn at(place: Place, reader: &Reader<'_>) -> Option<S3Sink> {
        let credentials = Credentials::accepted(reader, Accepts::Either);
        let (tls, layout) = (Tls::read(reader), parquet::ParquetLayout::read(reader));
        for key in [&Tls::tls_cert, &Tls::tls_key].into_iter().filter(|key| reader.has(key)) {
            reader.error(key, "S3 knows its users by keys. Fix: remove it");
        }
        S3Sink::read(reader, place, Box::new(credentials?), Box::new(tls?), layout?)
    }
}

fn place(rest: &str) -> Result<Place, AddressError> {
    let text = rest.strip_prefix("//").unwrap_or_default();
    if text.contains('@') {
        return Err(AddressError::UserInfo);
    }
    if let Some((_, options)) = text.split_once('?') {
        return Err(AddressError::Options(options.to_owned()));
    }

    let (bucket, prefix) = text.split_once('/').unwrap_or((text, ""));
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    if bucket.len() < 3 || bucket.len() > 63 || !bucket.chars().all(is_plain) {
        return Err(AddressError::NoHost("s3://bucket/prefix".to_owned()));
    }
    if prefix.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(AddressError::ControlInPath);
    }
    Ok(Place { bucket: bucket.to_owned(), prefix: prefix.trim_matches('/').to_owned() })
}

fn endpoint(text: &str) -> Result<String, String> {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    match host {
        // The password would be shown.
        Some(host) if host.contains('@') => {
            Err("a URL here has no user and no password. Fix: set user and password_file"
                .to_owned())
        }
        Some(host) if !host.is_empty() && !host.contains(char::is_whitespace) => {
            Ok(text.trim_end_matches('/').to_owned())
        }
        _ => Err("it is not a URL. Fix: write for example https://s3.example.net".to_owned()),
    }
}

fn region(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    match !text.is_empty() && text.chars().all(is_plain) {
        true => Ok(text.to_owned()),
        false => Err("it is not a region. Fix: write for example eu-central-1".to_owned()),
    }
}

impl Kind for S3Sink {
    fn values(&self) -> Values {
        let shared = self.credentials.values().into_iter().chain(self.tls.values());
        let own = S3Sink::values(self).into_iter().chain(self.layout.values());
        own.chain(shared).collect()
    }

    #[cfg(feature = "s3")]
    fn open(&self, given: &super::Opening) -> std::io::Result<::sink::Connector> {
        let options = ::sink::S3Options {
            bucket: self.place.bucket.clone(),
            prefix: self.place.prefix.clone(),
            endpoint: self.endpoint.clone(),
            region: self.region.clone(),
            login: self.credentials.login(),
            tls: self.tls.options(),
            host: sys::process::host_name()?,
        };
        let fields = given.fields.unwrap_or(record::FieldSet::ALL);
        Ok(::sink::s3(options, fields, self.layout.numbers))
    }

    fn usual(&self) -> (BatchLimits, usize) {
        // One object is uploaded while another waits for its response.
        (parquet::usual().0, 2)
    }
}

impl fmt::Display for S3Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}", self.place.bucket)?;
        if self.place.prefix.is_empty() { Ok(()) } else { write!(f, "/{}", self.place.prefix) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_and_prefixes() {
        let read = |text| place(text).map(|place| (place.bucket, place.prefix));
        let of = |bucket: &str, prefix: &str| Ok((bucket.to_owned(), prefix.to_owned()));
        assert_eq!(read("//records/weir/eu"), of("records", "weir/eu"));
        assert_eq!(read("//records"), of("records", ""));
        assert_eq!(read("//records//x/"), of("records", "x"));
        assert_eq!(read("//key:geheim@records"), Err(AddressError::UserInfo));
        assert_eq!(read("//records?a=b"), Err(AddressError::Options("a=b".to_owned())));
        for text in ["//", "//ab", "records/x", "//a b c"] {
            assert!(matches!(read(text), Err(AddressError::NoHost(_))), "{text}");
        }
    }

    #[test]
    fn endpoints_hold_no_secret() {
        assert_eq!(endpoint("https://s3.example.net/").as_deref(), Ok("https://s3.example.net"));
        assert!(!endpoint("https://key:geheim@s3.example.net").unwrap_err().contains("geheim"));
        assert!(endpoint("s3.example.net").is_err());
    }
}
