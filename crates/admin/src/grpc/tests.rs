//! Clients of HTTP/2 that hold what they can by not reading, not asking, or leaving.

use super::*;
use axum::http::{HeaderMap, Request};
use h2::client::SendRequest;
use h2::{Reason, RecvStream, SendStream};
use hyper::body::Bytes;
use ledger::Ledger;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use tokio::net::TcpSocket;

const WATCH: &str = "/weir.v1.Ledger/Watch";
const REFLECT: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
const HERE: [u8; 4] = [127, 0, 0, 1];
const ELSEWHERE: [u8; 4] = [127, 0, 0, 2];
/// Time for anything that has to happen soon.
const SOON: Duration = Duration::from_secs(20);
/// No client is ended for taking nothing.
const NEVER: Duration = Duration::from_secs(3_600);
const EXHAUSTED: &str = "8";

/// A server whose clients are ended after this time in which they take nothing.
async fn serve(stall_max: Duration) -> (SocketAddr, Arc<AdminState>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let addr = listener.local_addr().unwrap();
    let ledger = Arc::new(Ledger::new("1".to_owned()));
    let health = Arc::new(crate::Health::new(Duration::from_secs(5)));
    let state = Arc::new(AdminState::new(ledger, health, addr.ip()));
    tokio::spawn(serve_accepted(listener, Arc::clone(&state), stall_max, std::future::pending()));
    (addr, state)
}

/// A client that lets the server send this many bytes of each stream before it reads any.
async fn connect(from: [u8; 4], addr: SocketAddr, window: u32) -> SendRequest<Bytes> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(IpAddr::from(from), 0)).unwrap();
    let stream = socket.connect(addr).await.unwrap();
    let mut builder = h2::client::Builder::new();
    let (requests, connection) =
        builder.initial_window_size(window).handshake(stream).await.unwrap();
    tokio::spawn(connection);
    requests
}

/// A call that has begun: where its request goes on, the head of its answer, and its body.
struct Call {
    request: SendStream<Bytes>,
    head: HeaderMap,
    body: RecvStream,
}

impl Call {
    async fn begin(requests: &SendRequest<Bytes>, path: &str) -> Call {
        let mut requests = requests.clone().ready().await.unwrap();
        let request = Request::post(format!("http://127.0.0.1{path}"));
        let request = request.header("content-type", "application/grpc").body(()).unwrap();
        let (response, mut request) = requests.send_request(request, false).unwrap();
        if path == WATCH {
            // One message, without a field.
            request.send_data(Bytes::from_static(&[0; 5]), true).unwrap();
        }
        let response = tokio::time::timeout(SOON, response).await.expect("a head").unwrap();
        let (parts, body) = response.into_parts();
        Call { request, head: parts.headers, body }
    }

    fn status(&self) -> Option<&str> {
        self.head.get("grpc-status").map(|status| status.to_str().unwrap())
    }

    /// Waits until the server has reset it.
    async fn was_reset(&mut self) {
        let ended = tokio::time::timeout(SOON, self.body.data()).await.expect("the end");
        let reason = ended.and_then(Result::err).and_then(|error| error.reason());
        assert_eq!(reason, Some(Reason::CANCEL));
    }

    /// Waits for bytes of a message.
    async fn has_data(&mut self) {
        let data = tokio::time::timeout(SOON, self.body.data()).await.expect("a message");
        assert!(!data.unwrap().unwrap().is_empty());
    }
}

/// Waits until a client at this address may watch, and does.
async fn watches(from: [u8; 4], addr: SocketAddr) -> Call {
    let requests = connect(from, addr, 65_535).await;
    let deadline = tokio::time::Instant::now() + SOON;
    loop {
        let call = Call::begin(&requests, WATCH).await;
        if call.status().is_none() {
            return call;
        }
        assert!(tokio::time::Instant::now() < deadline, "no place is free");
        tokio::task::yield_now().await;
    }
}

async fn eight(requests: &SendRequest<Bytes>) -> Vec<Call> {
    let mut calls = Vec::new();
    for _ in 0..WATCHERS_MAX {
        let call = Call::begin(requests, WATCH).await;
        assert_eq!(call.status(), None);
        calls.push(call);
    }
    calls
}

#[tokio::test]
async fn eight_watchers_that_take_nothing_are_reset_and_others_may_watch() {
    let (addr, _state) = serve(Duration::from_millis(500)).await;
    let stalled = connect(HERE, addr, 0).await;
    let mut calls = eight(&stalled).await;
    let others = connect(HERE, addr, 65_535).await;
    assert_eq!(Call::begin(&others, WATCH).await.status(), Some(EXHAUSTED));

    for call in &mut calls {
        call.was_reset().await;
    }
    watches(HERE, addr).await.has_data().await;
}

#[tokio::test]
async fn a_watcher_that_takes_nothing_and_leaves_gives_its_place_back_at_once() {
    let (addr, state) = serve(NEVER).await;
    let stalled = connect(HERE, addr, 0).await;
    let mut calls = eight(&stalled).await;
    calls[3].request.send_reset(Reason::CANCEL);
    let mut watching = watches(HERE, addr).await;
    watching.has_data().await;

    // All the others, with their connection.
    drop((calls, stalled));
    for _ in 1..WATCHERS_MAX {
        watching = watches(HERE, addr).await;
        watching.has_data().await;
    }
    drop(state);
}

#[tokio::test]
async fn a_client_that_has_all_places_gives_one_to_another() {
    let (addr, _state) = serve(NEVER).await;
    let stalled = connect(HERE, addr, 0).await;
    let mut calls = eight(&stalled).await;
    let elsewhere = connect(ELSEWHERE, addr, 65_535).await;
    let mut call = Call::begin(&elsewhere, WATCH).await;
    assert_eq!(call.status(), None);
    call.has_data().await;

    // The first of the eight has ended, and says why.
    let trailers = tokio::time::timeout(SOON, calls[0].body.trailers()).await.expect("the end");
    let trailers = trailers.unwrap().expect("a status");
    assert_eq!(trailers["grpc-status"], "14");
    assert!(trailers["grpc-message"].to_str().unwrap().contains("another client"));
    // It cannot take it back.
    let others = connect(HERE, addr, 65_535).await;
    assert_eq!(Call::begin(&others, WATCH).await.status(), Some(EXHAUSTED));
}

#[tokio::test]
async fn a_client_that_asks_for_nothing_of_reflection_is_ended() {
    let (addr, _state) = serve(Duration::from_millis(500)).await;
    let silent = connect(HERE, addr, 0).await;
    let mut call = Call::begin(&silent, REFLECT).await;
    let trailers = tokio::time::timeout(SOON, call.body.trailers()).await.expect("the end");
    assert_eq!(trailers.unwrap().expect("a status")["grpc-status"], "4");

    // One that asks, and does not take the answer: which services are there (`list_services`, field 7).
    let mut call = Call::begin(&silent, REFLECT).await;
    call.request.send_data(Bytes::from_static(&[0, 0, 0, 0, 2, 0x3a, 0]), false).unwrap();
    call.was_reset().await;
}

#[tokio::test]
async fn a_connection_that_does_nothing_is_closed_when_others_come() {
    let (addr, state) = serve(NEVER).await;
    let honest = connect(ELSEWHERE, addr, 65_535).await;
    // Whoever opens many closes its own, and nobody else's.
    let mut idle = Vec::new();
    for _ in 0..4 * CONNECTIONS_MAX {
        idle.push(tokio::net::TcpStream::connect(addr).await.unwrap());
    }
    let crowded = || state.http.crowded.load(Ordering::Relaxed);
    let deadline = tokio::time::Instant::now() + SOON;
    while crowded() < 3 * CONNECTIONS_MAX as u64 + 1 {
        assert!(tokio::time::Instant::now() < deadline, "{} closed", crowded());
        tokio::task::yield_now().await;
    }
    let mut call = Call::begin(&honest, WATCH).await;
    call.has_data().await;
}
