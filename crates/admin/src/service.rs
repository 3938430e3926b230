//! Requests and responses of pages that other crates provide.

use crate::page::{self, Pieces};
use axum::body::Body as HttpBody;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// The action of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Reads: GET and HEAD.
    Read,
    /// Creates or replaces: PUT.
    Put,
    /// Removes: DELETE.
    Delete,
}

/// One request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asked {
    /// The action.
    pub action: Action,
    /// The path, still percent-encoded.
    pub path: String,
    /// The query after the question mark, still percent-encoded.
    pub query: String,
    /// The complete body.
    pub body: Vec<u8>,
    pub asker: Asker,
}

/// Who sent a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asker {
    /// A user whom the unix socket answers, or a client that showed the token.
    Known,
    /// Any process that reaches the address.
    Anyone,
}

/// An answer.
pub struct Told {
    /// The HTTP status.
    pub status: u16,
    /// The content type of the body.
    pub content_type: &'static str,
    /// The body.
    pub body: Body,
}

/// The body of an answer.
pub enum Body {
    /// The complete body.
    Whole(Vec<u8>),
    /// Produced while it is sent, on a thread that may block.
    Pieces(Pieces),
}

/// The content type of JSON.
pub const JSON: &str = "application/json";
/// The content type of text.
pub const TEXT: &str = "text/plain; charset=utf-8";

impl Told {
    /// JSON, with status 200.
    pub fn json(text: impl Into<Vec<u8>>) -> Told {
        Told { status: 200, content_type: JSON, body: Body::Whole(text.into()) }
    }

    /// A sentence, with a status.
    pub fn text(status: u16, text: &str) -> Told {
        let body = Body::Whole(format!("{text}\n").into_bytes());
        Told { status, content_type: TEXT, body }
    }

    /// JSON that is produced while it is sent, with status 200.
    pub fn pieces(pieces: Pieces) -> Told {
        Told { status: 200, content_type: JSON, body: Body::Pieces(pieces) }
    }
}

/// Answers a request. The future may wait as long as a connection may live; it is dropped when the client leaves or the server
/// stops.
pub type Service = Arc<dyn Fn(Asked) -> Answer + Send + Sync>;
/// A future answer.
pub type Answer = Pin<Box<dyn Future<Output = Told> + Send>>;

impl IntoResponse for Told {
    fn into_response(self) -> Response {
        let body = match self.body {
            Body::Whole(bytes) => HttpBody::from(bytes),
            Body::Pieces(pieces) => page::stream(pieces),
        };
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let content_type = [(header::CONTENT_TYPE, HeaderValue::from_static(self.content_type))];
        let mut response = (status, content_type, body).into_response();
        if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// Decodes `%` with two hexadecimal digits, and `+` as a space, as forms and `curl --data-urlencode` encode them.
///
/// # Errors
/// A `%` without two digits, or a result that is not text; the message says which.
pub fn decode(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes().iter();

    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digit =
                    |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
                match (digit(rest.next()), digit(rest.next())) {
                    (Some(high), Some(low)) => (high * 16 + low) as u8,
                    _ => {
                        return Err(
                            "a % is followed by two hexadecimal digits; % itself is %25".to_owned()
                        );
                    }
                }
            }
            other => *other,
        });
    }

    String::from_utf8(bytes).map_err(|_| "it is no text in UTF-8".to_owned())
}

/// The decoded pairs of a query, in order.
///
/// # Errors
/// As [`decode`].
pub fn pairs(query: &str) -> Result<Vec<(String, String)>, String> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let decoded = pairs.map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        Ok((decode(name)?, decode(value)?))
    });
    decoded.collect()
}
