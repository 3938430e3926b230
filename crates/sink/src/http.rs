//! HTTP POST: each batch is the body of one request.

#[cfg(feature = "http")]
mod answers;
#[cfg(feature = "http")]
mod body;
#[cfg(feature = "http")]
mod client;
#[cfg(feature = "http")]
mod otlp;
#[cfg(feature = "http")]
mod post;

#[cfg(feature = "http")]
pub use post::{http, otlp};

#[cfg(feature = "http")]
pub(crate) use {
    answers::fate_of,
    body::{BodyEncoder, body_of},
    client::{Answer, BodyEnd, BodyLimits, Client, failure},
    post::{IN_FLIGHT_MAX, authorized, no_secret, parse_url, secret_value, tasks},
};

use crate::secret::{Login, SecretSource, TlsOptions};
use std::time::Duration;

/// A server that accepts batches as request bodies.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// The whole URL, `http://…` or `https://…`.
    pub url: String,
    pub login: Login,
    pub tls: TlsOptions,
    /// Timeout of a whole request, including its answer.
    pub request_timeout: Duration,
    pub compression: Compression,
    /// Sent with every request.
    pub headers: Vec<(String, String)>,
    /// The same, with secret values.
    pub secret_headers: Vec<(String, SecretSource)>,
}

/// How a body is compressed (`Content-Encoding`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Compression {
    #[default]
    None,
    Gzip,
    Zstd,
}
