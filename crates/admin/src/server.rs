#[cfg(feature = "tls")]
mod encrypted;
#[cfg(all(feature = "tls", feature = "grpc"))]
pub(crate) use encrypted::encrypted;

#[cfg(feature = "tls")]
pub use encrypted::serve_tls;

use crate::access::Peer;
use crate::connection::{Connection, Watched};
use crate::holder::first_of_most;
use crate::rest::{self, Rest};
use crate::{AdminState, HttpCounts, router};
use axum::Extension;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::collections::VecDeque;
use std::future::{Future, ready};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

/// Most connections at a time. One more closes the oldest of the client that has most: an honest request takes milliseconds, so
/// that one is idle, and neither idle connections nor a client that opens many keep a health check out. Live answers do not
/// count: their source limits how many there are.
pub const CONNECTIONS_MAX: usize = 64;
/// The same for users who are not allowed, and get a response that says so.
const STRANGERS_MAX: usize = 8;
/// Longest time from accepting a connection to the end of the request's head.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest life of a connection, even with a client that reads slowly, unless its answer is live. A connection serves one request.
pub const CONNECTION_LIFETIME_MAX: Duration = Duration::from_secs(15);
/// The same for a server with events, for which a client may wait half a minute.
const EVENT_LIFETIME_MAX: Duration = Duration::from_secs(45);
/// The same where clients may wait for a change: a minute, as scripts do, and the time to answer.
pub const POLL_LIFETIME_MAX: Duration = Duration::from_secs(75);
/// Most bytes of a request's head.
pub const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Most header lines of a request.
pub const HEADERS_MAX: usize = 64;
/// Time for responses in progress when the server stops.
pub(crate) const STOP_GRACE: Duration = Duration::from_secs(1);
/// Pause after a failed accept: while descriptors are short, accepting fails again at once.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `shutdown` resolves; responses in progress then have a second to finish.
///
/// The loop is our own, on the hyper that axum uses, because `axum::serve` does not limit the number of connections, or the time
/// and size of a request's head.
pub async fn serve(
    listener: TcpListener,
    state: Arc<AdminState>,
    shutdown: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    serve_accepted(listener, Served::admin(state), shutdown).await;
    Ok(())
}

/// Serves a [`Rest`] like [`serve`], to clients that may wait longer.
pub async fn serve_rest(
    listener: TcpListener,
    rest: Arc<Rest>,
    shutdown: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    let served = Served {
        counts: Arc::clone(&rest.counts),
        stopping: rest.stopping.clone(),
        lifetime: POLL_LIFETIME_MAX,
        router: rest::router(rest),
    };
    serve_accepted(listener, served, shutdown).await;
    Ok(())
}

/// Serves on a unix socket, like [`serve`], the users for whom `is_known` holds; the kernel records the user id when the client
/// connects (`SO_PEERCRED`). Other users are told that they are not allowed, and do not count against the connections of known
/// users.
pub async fn serve_users(
    listener: UnixListener,
    is_known: impl Fn(u32) -> bool + Send + Sync,
    state: Arc<AdminState>,
    shutdown: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    serve_accepted(Users { listener, is_known }, Served::admin(state), shutdown).await;
    Ok(())
}

/// The routes, and the longest life of a connection.
struct Served {
    router: axum::Router,
    counts: Arc<HttpCounts>,
    stopping: watch::Sender<bool>,
    lifetime: Duration,
}

impl Served {
    fn admin(state: Arc<AdminState>) -> Served {
        Served {
            counts: Arc::clone(&state.http),
            stopping: state.stopping.clone(),
            // Clients wait for an event for at most half a minute.
            lifetime: if state.flows.is_some() {
                EVENT_LIFETIME_MAX
            } else {
                CONNECTION_LIFETIME_MAX
            },
            router: router(state),
        }
    }
}

/// A listening socket.
pub(crate) trait Accept {
    /// A connection as accepted.
    type Raw: Send + 'static;
    /// A connection ready for requests.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Waits for the next connection, and returns it with its client.
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Raw, Peer)>> + Send;

    /// Prepares a connection for its first request. May wait for the client, so it must not hold up other connections.
    fn open(
        &self,
        stream: Self::Raw,
        peer: Peer,
    ) -> impl Future<Output = io::Result<(Self::Stream, Peer)>> + Send + 'static;
}

impl Accept for TcpListener {
    type Raw = TcpStream;
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<(TcpStream, Peer)> {
        let (stream, peer) = TcpListener::accept(self).await?;
        // An IPv4 client of `[::]` has an IPv4-mapped address.
        Ok((stream, Peer::Address(peer.ip().to_canonical())))
    }

    fn open(
        &self,
        stream: TcpStream,
        peer: Peer,
    ) -> impl Future<Output = io::Result<(TcpStream, Peer)>> + Send + 'static {
        ready(Ok((stream, peer)))
    }
}

/// A unix socket and the users allowed on it.
struct Users<F> {
    listener: UnixListener,
    is_known: F,
}

impl<F: Fn(u32) -> bool + Send + Sync> Accept for Users<F> {
    type Raw = UnixStream;
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<(UnixStream, Peer)> {
        let (stream, _) = self.listener.accept().await?;
        let uid = stream.peer_cred()?.uid();
        Ok((stream, if (self.is_known)(uid) { Peer::User(uid) } else { Peer::Stranger(uid) }))
    }

    fn open(
        &self,
        stream: UnixStream,
        peer: Peer,
    ) -> impl Future<Output = io::Result<(UnixStream, Peer)>> + Send + 'static {
        ready(Ok((stream, peer)))
    }
}

async fn serve_accepted(
    listener: impl Accept,
    served: Served,
    shutdown: impl Future<Output = ()> + Send,
) {
    let Served { router, counts, stopping, lifetime } = served;
    let mut known = Connections::new(CONNECTIONS_MAX);
    let mut strangers = Connections::new(STRANGERS_MAX);
    let mut shutdown = std::pin::pin!(shutdown);

    loop {
        tokio::select! {
            () = &mut shutdown => break,
            Some(_) = known.tasks.join_next() => known.forget_ended(),
            Some(_) = strangers.tasks.join_next() => strangers.forget_ended(),
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    let connections = if matches!(peer, Peer::Stranger(_)) { &mut strangers } else { &mut known };
                    if connections.make_room() {
                        counts.crowded.fetch_add(1, Ordering::Relaxed);
                    }
                    let opening = listener.open(stream, peer);
                    let connection = Arc::new(Connection::of(peer.holder()));
                    let limits = Limits { connection: Arc::clone(&connection), lifetime };
                    let serving = serve_one(opening, router.clone(), limits, Arc::clone(&counts));
                    connections.add(serving, connection);
                }
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
        }
    }

    drop(listener);
    stopping.send_replace(true);
    let ended = async { while known.tasks.join_next().await.is_some() {} };
    // Connections still open after the grace are closed when the set is dropped.
    let _ = tokio::time::timeout(STOP_GRACE, ended).await;
}

pub(crate) struct Connections {
    pub(crate) tasks: JoinSet<()>,
    /// In the order of accepting.
    handles: VecDeque<(AbortHandle, Arc<Connection>)>,
    most: usize,
}

impl Connections {
    pub(crate) fn new(most: usize) -> Connections {
        Connections { tasks: JoinSet::new(), handles: VecDeque::new(), most }
    }

    pub(crate) fn add(
        &mut self,
        serving: impl Future<Output = ()> + Send + 'static,
        connection: Arc<Connection>,
    ) {
        self.handles.push_back((self.tasks.spawn(serving), connection));
    }

    pub(crate) fn forget_ended(&mut self) {
        self.handles.retain(|(handle, _)| !handle.is_finished());
    }

    /// Closes a connection if there are too many: the oldest of the client that has most. Returns whether it did.
    pub(crate) fn make_room(&mut self) -> bool {
        self.forget_ended();
        let counted = self.handles.iter().enumerate().filter(|(_, one)| !one.1.is_live());
        let (places, holders): (Vec<_>, Vec<_>) =
            counted.map(|(at, (_, connection))| (at, connection.holder())).unzip();
        if holders.len() < self.most {
            return false;
        }
        let oldest = first_of_most(&holders).and_then(|at| self.handles.remove(places[at]));
        if let Some((oldest, _)) = oldest {
            oldest.abort();
        }
        true
    }
}

/// What ends a connection that does not end by itself.
pub(crate) struct Limits {
    pub(crate) connection: Arc<Connection>,
    pub(crate) lifetime: Duration,
}

impl Limits {
    /// Waits until the connection has lived too long, which a live answer may, or was cut.
    pub(crate) async fn over(&self) {
        let too_long = async {
            loop {
                tokio::time::sleep(self.lifetime).await;
                if !self.connection.is_live() {
                    return;
                }
            }
        };
        tokio::select! {
            () = too_long => {}
            () = self.connection.was_cut() => {}
        }
    }
}

async fn serve_one<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    opening: impl Future<Output = io::Result<(S, Peer)>> + Send,
    router: axum::Router,
    limits: Limits,
    counts: Arc<HttpCounts>,
) {
    let connection = Arc::clone(&limits.connection);
    let serving = async {
        // A client that left, or that did not speak TLS, is not our concern.
        let (stream, peer) = match opening.await {
            Ok(opened) => opened,
            Err(error) => return error.kind() == io::ErrorKind::TimedOut,
        };
        let stream = Watched { stream, connection: Arc::clone(&connection) };
        let router = router.layer(Extension(peer)).layer(Extension(connection));
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(HEAD_BYTES_MAX)
            .max_headers(HEADERS_MAX)
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
        // Nor is one that did not speak HTTP.
        served.await.is_err_and(|error| error.is_timeout())
    };

    let is_too_slow = tokio::select! {
        is_too_slow = serving => is_too_slow,
        () = limits.over() => true,
    };
    if is_too_slow {
        counts.timeouts.fetch_add(1, Ordering::Relaxed);
    }
}
