//! A page that is made while it is sent.

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::body::{Bytes, Frame};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// Answers a query (what follows the question mark, still percent-encoded) with JSON. Runs on a thread that may wait, and so
/// do the pieces.
pub type Page = Arc<dyn Fn(&str) -> Result<Pieces, PageError> + Send + Sync>;

/// An answer, piece by piece. The next one is asked for when the client has taken most of the one before; an error breaks the
/// answer off, so that the client can see that it has not all.
pub type Pieces = Box<dyn Iterator<Item = io::Result<Vec<u8>>> + Send>;

/// Why a page has no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PageError {
    /// The query is wrong, and why.
    BadQuery(String),
    /// Too much is asked, and why. The client may ask again in a second.
    Busy(String),
    /// There is no answer at the moment, and why.
    Unavailable(String),
}

/// What a client gets for a query.
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

/// A body whose pieces are made on a thread that may wait.
pub(crate) fn stream(pieces: Pieces) -> Body {
    // One piece waits, the rest is still to be made.
    let (sender, receiver) = mpsc::channel(1);
    tokio::task::spawn_blocking(move || {
        for piece in pieces {
            // The client may have gone: then the pieces are dropped, by which their maker knows.
            if sender.blocking_send(piece).is_err() {
                return;
            }
        }
    });

    streamed(receiver)
}

/// A body of pieces that somebody else makes.
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

/// The body of such an answer.
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
