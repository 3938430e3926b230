//! The server on a real socket: what slow, numerous and misbehaving clients can and cannot do.

use crate::support::{amount, busy_hops, state};
use admin::{
    AdminState, CONNECTION_LIFETIME_MAX, CONNECTIONS_MAX, HEAD_TIMEOUT, router, serve, serve_users,
};
use axum::body::{Body, to_bytes};
use axum::http::Request;
use ledger::{HopBuilder, HopKind, HopSnapshot};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use testkit::wait_for;
use tokio::runtime::Builder;
use tower::ServiceExt;

struct Server {
    address: SocketAddr,
    runtime: tokio::runtime::Handle,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start() -> Server {
        Server::start_on("127.0.0.1", Builder::new_current_thread().enable_all())
    }

    /// Starts a server on every address of the machine.
    fn start_open() -> Server {
        Server::start_on("0.0.0.0", Builder::new_current_thread().enable_all())
    }

    fn start_on(bind: &str, runtime: &mut Builder) -> Server {
        let listener = std::net::TcpListener::bind((bind, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let state: Arc<AdminState> = Arc::new(state(busy_hops(), bind));
        let runtime = runtime.build().unwrap();
        let handle = runtime.handle().clone();
        let thread = std::thread::spawn(move || {
            let serving = async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let shutdown = async {
                    // A dropped sender stops the server too.
                    let _ = stopped.await;
                };
                serve(listener, state, shutdown).await.unwrap();
            };
            runtime.block_on(serving);
        });
        Server { address, runtime: handle, stop: Some(stop), thread: Some(thread) }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }

    /// As a client at another address.
    fn connect_elsewhere(&self) -> TcpStream {
        let connecting = async {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.bind(([127, 0, 0, 2], 0).into()).unwrap();
            let to = ([127, 0, 0, 1], self.address.port()).into();
            socket.connect(to).await.unwrap().into_std().unwrap()
        };
        Builder::new_current_thread().enable_all().build().unwrap().block_on(connecting)
    }

    /// Sends a request unchanged and reads until the server closes the connection.
    fn ask(&self, request: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        // A reset after the response (we may have sent more than was read) keeps what was read.
        let _ = stream.read_to_string(&mut answer);
        answer
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        self.thread.take().unwrap().join().unwrap();
    }
}

#[test]
fn one_request_for_each_connection() {
    let server = Server::start();
    let answer = server.ask("GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nready\n"), "{answer}");
}

#[test]
fn idle_connections_cannot_keep_a_health_check_out() {
    let server = Server::start();
    let mut idle: Vec<TcpStream> = (0..3 * CONNECTIONS_MAX).map(|_| server.connect()).collect();
    let answer = server.ask("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    // The new connection closed the oldest one; its own timeout is much later.
    assert_eq!(idle[0].read(&mut [0]).unwrap_or(0), 0);
    let text = server.ask("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(!text.contains("{cause=\"crowded\"} 0\n"), "{text}");
}

#[test]
fn clients_that_ask_for_the_end_and_leave_leave_nothing_behind() {
    const CLIENTS: usize = 3_000;
    let server = Server::start();
    let tasks = || server.runtime.metrics().num_alive_tasks();
    let begun = Instant::now();
    let mut most = 0;
    for _ in 0..CLIENTS {
        let mut client = server.connect();
        client.write_all(b"GET /daemon?wait=end HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        // The answer has begun: the request is waiting.
        let head = client.read(&mut [0; 512]).unwrap();
        assert!(head > 0);
        drop(client);
        most = most.max(tasks());
    }
    // Well before the wait would have been over.
    let ended = wait_for("the end of the tasks", || (tasks() <= 4).then(Instant::now));
    assert!(
        ended - begun < Duration::from_secs(9),
        "{:?}: too slow to prove anything",
        ended - begun
    );
    assert!(most <= 2 * CONNECTIONS_MAX, "{most} tasks");
}

#[test]
fn a_client_with_many_connections_closes_its_own() {
    let server = Server::start_open();
    // Its request waits, as one for events may.
    let mut honest = server.connect();
    honest.write_all(b"GET /daemon?wait=end HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut begun = Vec::new();
    while !begun.ends_with(b"1\r\n \r\n") {
        let mut piece = [0; 512];
        let len = honest.read(&mut piece).unwrap();
        assert!(len > 0);
        begun.extend_from_slice(&piece[..len]);
    }
    let _idle: Vec<TcpStream> =
        (0..3 * CONNECTIONS_MAX).map(|_| server.connect_elsewhere()).collect();
    let text = server.ask("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(!text.contains("{cause=\"crowded\"} 0\n"), "{text}");
    honest.set_nonblocking(true).unwrap();
    let still = honest.read(&mut [0; 512]).map_err(|error| error.kind());
    assert_eq!(still, Err(std::io::ErrorKind::WouldBlock), "it is open and waits");
}

#[test]
fn a_head_that_is_too_large_is_refused() {
    let server = Server::start();
    let long = "x".repeat(2 * admin::HEAD_BYTES_MAX);
    let answer = server.ask(&format!("GET / HTTP/1.1\r\nHost: localhost\r\nA: {long}\r\n\r\n"));
    assert!(!answer.starts_with("HTTP/1.1 200"), "{answer}");
    let many = "A: b\r\n".repeat(admin::HEADERS_MAX + 1);
    let answer = server.ask(&format!("GET / HTTP/1.1\r\nHost: localhost\r\n{many}\r\n"));
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    let answer = server.ask("\0\u{1}nonsense\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
}

#[test]
fn stopping_does_not_wait_for_idle_connections_for_long() {
    let server = Server::start();
    let mut idle = server.connect();
    // A complete response proves that the server has accepted the previous connection.
    server.ask("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    drop(server);
    assert_eq!(idle.read(&mut [0]).unwrap_or(0), 0);
}

/// Connections that the server closed because the client was too slow.
async fn timeouts(state: &Arc<AdminState>) -> String {
    let request = Request::get("/metrics").header("host", "localhost").body(Body::empty()).unwrap();
    let page = router(Arc::clone(state)).oneshot(request).await.unwrap().into_body();
    let page = String::from_utf8(to_bytes(page, usize::MAX).await.unwrap().to_vec()).unwrap();
    let line = page.lines().find(|line| line.contains("{cause=\"timeout\"}")).unwrap();
    line.rsplit_once(' ').unwrap().1.to_owned()
}

/// Serves clients that have connected and sent their bytes, and returns how many were closed for being slow shortly before and
/// shortly after a limit. The clock stands still, and jumps to the next timer when nothing else can run.
fn slow_ones_around(limit: Duration, hops: Vec<HopSnapshot>, sends: &[&str]) -> [String; 2] {
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        // Before the server starts, so that nothing is in progress when the clock jumps.
        let connect = |text: &&str| {
            let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            stream.write_all(text.as_bytes()).unwrap();
            stream
        };
        let clients: Vec<_> = sends.iter().map(connect).collect();
        let state = Arc::new(state(hops, "127.0.0.1"));
        let begin = tokio::time::Instant::now();
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let server = tokio::spawn(serve(listener, Arc::clone(&state), std::future::pending()));
        tokio::time::sleep_until(begin + limit - Duration::from_millis(50)).await;
        let before = timeouts(&state).await;
        tokio::time::sleep_until(begin + limit + Duration::from_millis(50)).await;
        let after = timeouts(&state).await;
        let closed = if after == "0" { vec![] } else { clients };
        for mut client in closed {
            // Closed or reset: nothing more arrives, and no response was complete.
            client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            let mut answer = Vec::new();
            let end = client.read_to_end(&mut answer).map_err(|error| error.kind());
            assert_ne!(end, Err(std::io::ErrorKind::WouldBlock), "it is still open");
            assert!(!answer.ends_with(b"# EOF\n"), "a whole answer");
        }
        server.abort();
        [before, after]
    })
}

#[test]
fn clients_that_do_not_finish_their_head_are_closed_when_its_time_is_over() {
    let starts = ["", "GET /metrics HTTP/1.1\r\nHost: lo"];
    assert_eq!(slow_ones_around(HEAD_TIMEOUT, busy_hops(), &starts), ["0", "2"]);
}

/// The response is larger than the buffers of both ends, and the client does not read.
#[test]
fn a_client_that_does_not_read_its_answer_is_closed_when_its_time_is_over() {
    let hop = |n| {
        let name = format!("{n:0100}");
        HopBuilder::new(HopKind::Target, "syslog", Some(&name), amount(0)).finish(amount(0))
    };
    let hops = || (0..6_000).map(hop).collect();
    let accept = "Accept: application/openmetrics-text; version=1.0.0";
    let request = format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\n{accept}\r\n\r\n");
    let request = [request.as_str()];
    assert_eq!(slow_ones_around(HEAD_TIMEOUT, hops(), &request), ["0", "0"]);
    assert_eq!(slow_ones_around(CONNECTION_LIFETIME_MAX, hops(), &request), ["0", "1"]);
}

#[test]
fn a_server_open_to_all_shows_the_ledger_to_its_own_machine() {
    let server = Server::start_open();
    let answer = server.ask("GET /ledger HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let answer = server.ask("GET /ledger HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
}

/// A server on a unix socket on which every user is allowed, or none; `f` gets a function that connects.
fn at_a_socket(is_known: &'static AtomicBool, f: impl FnOnce(&dyn Fn() -> UnixStream)) {
    let path =
        std::env::temp_dir().join(format!("weir-admin-{:p}-{}", is_known, std::process::id()));
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    listener.set_nonblocking(true).unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let mut state = state(busy_hops(), "127.0.0.1");
    state.sockets = Some(Arc::new(|_| Ok(Box::new([Ok(b"{}".to_vec())].into_iter()))));
    state.sockets_elsewhere = Some("elsewhere".to_owned());
    let own = std::fs::metadata("/proc/self").unwrap().uid();
    let thread = std::thread::spawn(move || {
        Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let listener = tokio::net::UnixListener::from_std(listener).unwrap();
            let knows = move |uid| uid == own && is_known.load(Ordering::Relaxed);
            let shutdown = async { drop(stopped.await) };
            serve_users(listener, knows, Arc::new(state), shutdown).await.unwrap();
        });
    });
    f(&|| {
        let stream = UnixStream::connect(&path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    });
    drop(stop);
    thread.join().unwrap();
    std::fs::remove_file(&path).unwrap();
}

fn ask_at(connect: &dyn Fn() -> UnixStream, page: &str) -> String {
    let mut stream = connect();
    let request = format!("GET {page} HTTP/1.1\r\nHost: whatever.example\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

#[test]
fn at_a_unix_socket_known_users_are_shown_everything_and_others_nothing() {
    static IS_KNOWN: AtomicBool = AtomicBool::new(true);
    at_a_socket(&IS_KNOWN, |connect| {
        let answer = ask_at(connect, "/sockets");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("{}"), "{answer}");
        assert!(ask_at(connect, "/ledger").starts_with("HTTP/1.1 200 OK\r\n"));
        IS_KNOWN.store(false, Ordering::Relaxed);
        for page in ["/sockets", "/ledger", "/metrics", "/"] {
            let answer = ask_at(connect, page);
            assert!(answer.starts_with("HTTP/1.1 403"), "{page}: {answer}");
            assert!(answer.contains("admin.socket_users"), "{answer}");
        }
    });
}

#[test]
fn strangers_keep_no_known_user_out() {
    static IS_KNOWN: AtomicBool = AtomicBool::new(true);
    at_a_socket(&IS_KNOWN, |connect| {
        // An allowed user that is slow to send a request.
        let mut slow = connect();
        slow.write_all(b"GET /readyz HTTP/1.1\r\n").unwrap();
        ask_at(connect, "/readyz");
        IS_KNOWN.store(false, Ordering::Relaxed);
        let idle: Vec<_> = (0..2 * CONNECTIONS_MAX).map(|_| connect()).collect();
        // One more response to a user who is not allowed proves that all of them were accepted.
        assert!(ask_at(connect, "/readyz").starts_with("HTTP/1.1 403"));
        slow.write_all(b"Host: localhost\r\n\r\n").unwrap();
        let mut answer = String::new();
        let _ = slow.read_to_string(&mut answer);
        assert!(answer.starts_with("HTTP/1.1 200"), "it was not closed for them: {answer}");
        drop(idle);
    });
}
