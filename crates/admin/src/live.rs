//! `GET /records?follow`: an answer that goes on until its source ends it.

use crate::AdminState;
use crate::connection::Connection;
use crate::service::Told;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use hyper::body::{Bytes, Frame};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;

/// Longest time in which the client of a live answer takes nothing, although something waits for it. The answer then ends.
pub const STALL_MAX: Duration = Duration::from_secs(60);

/// Streams of records as they are made.
#[derive(Clone)]
pub struct Records {
    /// Begins a stream for a query (the text after the question mark, still percent-encoded), over this connection. Runs on a
    /// thread that may block.
    pub follow: Follow,
    /// Whether a query asks for individual sockets: such answers are only for those who may see `/sockets`.
    pub shows_sockets: fn(&str) -> bool,
}

/// Begins a stream, or says why not.
pub type Follow = Arc<dyn Fn(&str, Form, &Arc<Connection>) -> Result<Live, Told> + Send + Sync>;

/// How the records of a stream are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// Lines of JSON.
    Lines,
    /// Messages of protobuf, each in a frame of gRPC: `FollowResponse` of proto/weir_grpc.proto.
    Messages,
}

/// An answer in pieces that goes on until its source drops the sender. What becomes of the pieces is seen at the [`Connection`].
pub struct Live {
    /// The pieces.
    pub pieces: mpsc::Receiver<Vec<u8>>,
    /// Dropped once nothing more is taken, even if the answer never began.
    pub at_end: AtEnd,
    /// Set before the sender is dropped, if the stream ends before the client has all that it asked for: the word that says why.
    pub early: Arc<OnceLock<&'static str>>,
}

/// Calls a function when it is dropped.
pub struct AtEnd(Option<Box<dyn FnOnce() + Send>>);

impl AtEnd {
    /// Of this function.
    pub fn new(call: impl FnOnce() + Send + 'static) -> AtEnd {
        AtEnd(Some(Box::new(call)))
    }
}

impl Drop for AtEnd {
    fn drop(&mut self) {
        if let Some(call) = self.0.take() {
            call();
        }
    }
}

/// The stream that a request asks for.
pub(crate) async fn show(State(state): State<Arc<AdminState>>, request: Request) -> Response {
    let Some(records) = state.records.clone() else {
        return Told::text(404, "this server has no records").into_response();
    };

    let query = request.uri().query().unwrap_or_default().to_owned();
    // Only a router that no server runs has no connection.
    let connection = request.extensions().get::<Arc<Connection>>().cloned().unwrap_or_default();
    let of_thread = Arc::clone(&connection);
    let begun =
        tokio::task::spawn_blocking(move || (records.follow)(&query, Form::Lines, &of_thread))
            .await;
    let live = match begun {
        Ok(Ok(live)) => live,
        Ok(Err(refusal)) => return refusal.into_response(),
        Err(error) => return Told::text(500, &error.to_string()).into_response(),
    };

    connection.begin_live();
    let body = LiveBody { pieces: live.pieces, connection, _at_end: live.at_end };
    ([(header::CONTENT_TYPE, NDJSON)], Body::new(body)).into_response()
}

/// The content type of lines of JSON.
const NDJSON: &str = "application/x-ndjson";

struct LiveBody {
    pieces: mpsc::Receiver<Vec<u8>>,
    connection: Arc<Connection>,
    _at_end: AtEnd,
}

impl hyper::body::Body for LiveBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = self.get_mut();
        let piece = this.pieces.poll_recv(context);
        if let Poll::Ready(Some(_)) = &piece {
            this.connection.took_piece();
        }
        piece.map(|piece| piece.map(|piece| Ok(Frame::data(piece.into()))))
    }
}

impl Drop for LiveBody {
    fn drop(&mut self) {
        self.connection.end_live();
    }
}
