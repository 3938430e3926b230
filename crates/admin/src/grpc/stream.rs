//! One call's answer: messages, and the status at its end.

use axum::http::{HeaderMap, HeaderValue, Response, StatusCode};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use hyper::body::Bytes;
use std::fmt::Write;
use std::future::poll_fn;

/// How a call ends, by the numbers of gRPC: <https://grpc.io/docs/guides/status-codes/>.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) code: Code,
    pub(super) message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Code {
    Ok = 0,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    Unauthenticated = 16,
}

impl Status {
    pub(super) const OK: Status = Status { code: Code::Ok, message: String::new() };

    pub(super) fn new(code: Code, message: impl Into<String>) -> Status {
        Status { code, message: message.into() }
    }

    /// What a page of the admin server answered instead of records.
    pub(super) fn of_page(status: StatusCode, text: &str) -> Status {
        let code = match status.as_u16() {
            400 | 405 => Code::InvalidArgument,
            401 => Code::Unauthenticated,
            403 => Code::PermissionDenied,
            404 => Code::NotFound,
            503 => Code::Unavailable,
            _ => Code::Internal,
        };
        Status::new(code, text.trim_end())
    }

    /// The HTTP status under which the call is counted.
    pub(super) fn counted_as(&self) -> StatusCode {
        match self.code {
            Code::Ok => StatusCode::OK,
            Code::Unavailable | Code::Internal => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::BAD_REQUEST,
        }
    }

    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("grpc-status", HeaderValue::from(self.code as u16));
        if let Ok(message) = HeaderValue::try_from(percent_encoded(&self.message)) {
            headers.insert("grpc-message", message);
        }
        headers
    }
}

/// A text as `grpc-message` has it.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if matches!(byte, b' '..=b'~') && byte != b'%' {
            encoded.push(char::from(byte));
        } else {
            write!(encoded, "%{byte:02X}").expect("writing to a string cannot fail");
        }
    }
    encoded
}

/// The client has left, or its stream is reset.
pub(super) struct Gone;

/// The answer of a call.
pub(super) struct Answer(SendStream<Bytes>);

impl Answer {
    /// Begins the answer.
    pub(super) fn begin(mut respond: SendResponse<Bytes>) -> Result<Answer, Gone> {
        respond.send_response(head(), false).map(Answer).map_err(|_| Gone)
    }

    pub(super) fn id(&self) -> u32 {
        self.0.stream_id().into()
    }

    /// Hands over bytes as far as the client allows it, until all are handed over.
    pub(super) async fn send(&mut self, bytes: Vec<u8>) -> Result<(), Gone> {
        let mut rest = Bytes::from(bytes);
        while !rest.is_empty() {
            self.0.reserve_capacity(rest.len());
            match poll_fn(|context| self.0.poll_capacity(context)).await {
                Some(Ok(allowed)) => {
                    let part = rest.split_to(allowed.min(rest.len()));
                    self.0.send_data(part, false).map_err(|_| Gone)?;
                }
                Some(Err(_)) | None => return Err(Gone),
            }
        }
        Ok(())
    }

    /// Waits until the client has left.
    pub(super) async fn left(&mut self) {
        // Whether it has reset the stream or closed the connection is the same.
        let _ = poll_fn(|context| self.0.poll_reset(context)).await;
    }

    pub(super) fn end(mut self, status: &Status) {
        // A client that has left needs no status.
        let _ = self.0.send_trailers(status.headers());
    }

    /// Ends the stream at once: its client reads nothing.
    pub(super) fn reset(mut self) {
        self.0.send_reset(Reason::CANCEL);
    }
}

/// Answers with a status alone.
pub(super) fn refuse(mut respond: SendResponse<Bytes>, status: &Status) {
    let mut response = head();
    response.headers_mut().extend(status.headers());
    // A client that has left needs no status.
    let _ = respond.send_response(response, true);
}

fn head() -> Response<()> {
    let mut response = Response::new(());
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    response
}

/// The messages that a client sends.
pub(super) struct Asked {
    body: RecvStream,
    received: Vec<u8>,
}

impl Asked {
    pub(super) fn new(body: RecvStream) -> Asked {
        Asked { body, received: Vec::new() }
    }

    /// The next message; `None` after the last.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<u8>>, Status> {
        loop {
            if let Some(message) = self.take()? {
                return Ok(Some(message));
            }
            match self.body.data().await {
                Some(Ok(bytes)) => {
                    self.received.extend_from_slice(&bytes);
                    // The client may send as much again.
                    let _ = self.body.flow_control().release_capacity(bytes.len());
                }
                None if self.received.is_empty() => return Ok(None),
                Some(Err(_)) | None => {
                    return Err(Status::new(Code::InvalidArgument, "the message is broken off"));
                }
            }
        }
    }

    fn take(&mut self) -> Result<Option<Vec<u8>>, Status> {
        let [compressed, a, b, c, d, ..] = self.received[..] else { return Ok(None) };
        if compressed != 0 {
            return Err(Status::new(Code::Unimplemented, "compressed messages are not read"));
        }
        let len = u32::from_be_bytes([a, b, c, d]) as usize;
        if len > super::MESSAGE_BYTES_MAX {
            let text = format!("a message has at most {} bytes", super::MESSAGE_BYTES_MAX);
            return Err(Status::new(Code::ResourceExhausted, text));
        }
        let end = crate::message::FRAME_HEAD_BYTES + len;
        if self.received.len() < end {
            return Ok(None);
        }
        let rest = self.received.split_off(end);
        let message = std::mem::replace(&mut self.received, rest);
        Ok(Some(message[crate::message::FRAME_HEAD_BYTES..].to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_a_status_is_one_header() {
        assert_eq!(percent_encoded("100 % \"é\"\n"), "100 %25 \"%C3%A9\"%0A");
        let status = Status::of_page(StatusCode::UNAUTHORIZED, "no token\n");
        assert_eq!(status.headers()["grpc-status"], "16");
        assert_eq!(status.headers()["grpc-message"], "no token");
    }
}
