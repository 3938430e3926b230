//! A page that is produced while it is sent.

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::body::{Bytes, Frame};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// Answers a query (the text after the question mark, still percent-encoded) with JSON. Both it and the iterator run on a thread
/// that may block.
pub type Page = Arc<dyn Fn(&str) -> Result<Pieces, PageError> + Send + Sync>;

/// A response in pieces. The next piece is requested once the client has taken most of the previous one; an error breaks the
/// response off, so that the client can see that it is incomplete.
pub type Pieces = Box<dyn Iterator<Item = io::Result<Vec<u8>>> + Send>;

/// Why a page has no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PageError {
    /// The query is wrong; the text says why.
    BadQuery(String),
    /// Too many requests; the text says why. The client may retry in a second.
    Busy(String),
    /// There is no answer at the moment; the text says why.
    Unavailable(String),
}

/// The response to a query.
pub(crate) async fn answer(page: Page, query: String) -> Response {
    let pieces = match tokio::task::spawn_blocking(move || page(&query)).await {
        Ok(Ok(pieces)) => pieces,
        Ok(Err(error)) => return refusal(error),
        Err(error) => {
            return (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response();
        }
    };

    ([(header::CONTENT_TYPE, "application/json")], stream(pieces)).into_response()
}

/// A body whose pieces are produced on a thread that may block.
pub(crate) fn stream(pieces: Pieces) -> Body {
    // At most one piece waits in the channel.
    let (sender, receiver) = mpsc::channel(1);
    tokio::task::spawn_blocking(move || {
        for piece in pieces {
            // If the client left, the pieces are dropped, which tells their producer.
            if sender.blocking_send(piece).is_err() {
                return;
            }
        }
    });

    streamed(receiver)
}

/// A body of pieces from a channel.
pub(crate) fn streamed(pieces: mpsc::Receiver<io::Result<Vec<u8>>>) -> Body {
    Body::new(Streamed(pieces))
}

fn refusal(error: PageError) -> Response {
    match error {
        PageError::BadQuery(why) => (StatusCode::BAD_REQUEST, why + "\n").into_response(),
        PageError::Busy(why) => {
            let retry = [(header::RETRY_AFTER, "1")];
            (StatusCode::TOO_MANY_REQUESTS, retry, why + "\n").into_response()
        }
        PageError::Unavailable(why) => {
            (StatusCode::SERVICE_UNAVAILABLE, why + "\n").into_response()
        }
    }
}

/// The body of a streamed response.
struct Streamed(mpsc::Receiver<io::Result<Vec<u8>>>);

impl hyper::body::Body for Streamed {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let frame = |piece: io::Result<Vec<u8>>| piece.map(|piece| Frame::data(piece.into()));
        self.get_mut().0.poll_recv(context).map(|piece| piece.map(frame))
    }
}
