//! The services of proto/weir_grpc.proto at an address of their own: gRPC over HTTP/2. They only read.
//!
//! Written by hand on `h2`, which the BGP speaker's client needs too: three calls with a handful of fields need no generated
//! code. Who may ask, and what for, is decided where it is for HTTP: each call has a page of the admin server that shows the same,
//! and is refused where that page is.

mod call;
mod ledger_message;
mod reflection;
mod stream;
#[cfg(test)]
mod tests;
mod watchers;
mod written;

use self::watchers::Watchers;
use self::written::{Counted, Streams};
use crate::AdminState;
use crate::access::Peer;
use crate::connection::Connection;
use crate::live::STALL_MAX;
use crate::server::{
    Accept, CONNECTION_LIFETIME_MAX, Connections, HEAD_BYTES_MAX, HEAD_TIMEOUT, Limits, STOP_GRACE,
};
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// Most connections at a time that neither follow nor watch; one more closes the oldest of the client that has most of them.
const CONNECTIONS_MAX: usize = 16;
/// Most streams of one connection at a time.
pub const STREAMS_MAX: u32 = 16;
/// Most clients that watch the ledger at a time.
pub const WATCHERS_MAX: usize = 8;
/// Most bytes of a message that a client sends.
pub const MESSAGE_BYTES_MAX: usize = 16 * 1024;
/// Most bytes of all streams of a connection that wait in its memory for its client.
const SEND_BUFFER_BYTES: usize = 64 * 1024;

/// The server, as its connections share it.
struct Shared {
    state: Arc<AdminState>,
    watchers: Arc<Watchers>,
    /// Longest time in which a client takes nothing of what waits for it.
    stall_max: Duration,
}

/// Serves until `shutdown` resolves; streams then have a second to end. Over TLS if there is an identity.
///
/// The state has the address that `listener` is bound to, the token, and the streams of records.
pub async fn serve_grpc(
    listener: TcpListener,
    #[cfg(feature = "tls")] identity: Option<&tls::Identity>,
    state: Arc<AdminState>,
    shutdown: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    #[cfg(feature = "tls")]
    if let Some(identity) = identity {
        let encrypted = crate::server::encrypted(listener, identity, Some(b"h2"));
        serve_accepted(encrypted, state, STALL_MAX, shutdown).await;
        return Ok(());
    }
    serve_accepted(listener, state, STALL_MAX, shutdown).await;
    Ok(())
}

async fn serve_accepted(
    listener: impl Accept,
    state: Arc<AdminState>,
    stall_max: Duration,
    shutdown: impl Future<Output = ()> + Send,
) {
    let shared =
        Arc::new(Shared { state: Arc::clone(&state), watchers: Arc::default(), stall_max });
    let mut connections = Connections::new(CONNECTIONS_MAX);
    let mut shutdown = std::pin::pin!(shutdown);

    loop {
        tokio::select! {
            () = &mut shutdown => break,
            Some(_) = connections.tasks.join_next() => connections.forget_ended(),
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    if connections.make_room() {
                        state.http.crowded.fetch_add(1, Ordering::Relaxed);
                    }
                    let connection = Arc::new(Connection::of(peer.holder()));
                    let opening = listener.open(stream, peer);
                    let serving = serve_one(opening, Arc::clone(&shared), Arc::clone(&connection));
                    connections.add(serving, connection);
                }
                Err(_) => tokio::time::sleep(crate::server::ACCEPT_PAUSE).await,
            },
        }
    }

    drop(listener);
    state.stopping.send_replace(true);
    let ended = async { while connections.tasks.join_next().await.is_some() {} };
    // Connections still open after the grace are closed when the set is dropped.
    let _ = tokio::time::timeout(STOP_GRACE, ended).await;
}

async fn serve_one<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    opening: impl Future<Output = io::Result<(S, Peer)>> + Send,
    shared: Arc<Shared>,
    connection: Arc<Connection>,
) {
    let limits = Limits { connection: Arc::clone(&connection), lifetime: CONNECTION_LIFETIME_MAX };
    let timeouts = Arc::clone(&shared.state);
    let serving = async {
        // A client that left, or that spoke something else, is not our concern.
        let Ok((stream, peer)) = opening.await else { return };
        if peer == Peer::Unencrypted {
            return;
        }
        let streams = Arc::new(Streams::default());
        let stream = Counted::new(stream, Arc::clone(&streams));
        let mut builder = h2::server::Builder::new();
        builder
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(HEAD_BYTES_MAX as u32)
            .max_send_buffer_size(SEND_BUFFER_BYTES);
        let Ok(Ok(served)) = tokio::time::timeout(HEAD_TIMEOUT, builder.handshake(stream)).await
        else {
            return;
        };
        let client = Client { shared, peer, streams, connection, live: Arc::default() };
        answer_all(served, Arc::new(client)).await;
    };

    tokio::select! {
        () = serving => {}
        () = limits.over() => {
            timeouts.http.timeouts.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// One connection's client.
struct Client {
    shared: Arc<Shared>,
    peer: Peer,
    streams: Arc<Streams>,
    connection: Arc<Connection>,
    /// Its streams that follow or watch.
    live: Arc<AtomicUsize>,
}

impl Client {
    /// Keeps the connection open for as long as the result lives.
    fn keep(self: &Arc<Client>) -> Kept {
        if self.live.fetch_add(1, Ordering::Relaxed) == 0 {
            self.connection.begin_live();
        }
        Kept(Arc::clone(self))
    }
}

struct Kept(Arc<Client>);

impl Drop for Kept {
    fn drop(&mut self) {
        if self.0.live.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.connection.end_live();
        }
    }
}

/// Answers the calls of a connection. Those under way end with it.
async fn answer_all<S: AsyncRead + AsyncWrite + Unpin>(
    mut served: h2::server::Connection<S, hyper::body::Bytes>,
    client: Arc<Client>,
) {
    let mut calls = JoinSet::new();
    let mut stopping = client.shared.state.stopping.subscribe();
    let mut is_stopping = false;
    loop {
        tokio::select! {
            // Also writes what the calls have for the client.
            accepted = served.accept() => match accepted {
                Some(Ok((request, respond))) => {
                    calls.spawn(call::answer(request, respond, Arc::clone(&client)));
                }
                Some(Err(_)) | None => return,
            },
            Some(_) = calls.join_next() => {}
            _ = stopping.wait_for(|stopping| *stopping), if !is_stopping => {
                is_stopping = true;
                served.graceful_shutdown();
            }
        }
    }
}
