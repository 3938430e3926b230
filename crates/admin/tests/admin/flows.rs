//! Flows over HTTP: who gets answers, what can be changed, and what labels may contain.

use crate::support::{busy_hops, state};
use admin::service::{Asked, Service, Told};
use admin::{
    AdminState, BODY_BYTES_MAX, Changes, DefinitionFigures, FlowFigures, FlowSeries, Flows, Rest,
    Token, Unit, router, serve_rest,
};
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use testkit::{find_tool, need_tool};
use tower::ServiceExt;

/// Figures with one series of every family of flows, which has these labels after the flow's name.
pub(crate) fn figures(labels: Vec<(String, String)>) -> FlowFigures {
    let series = |unit| FlowSeries {
        flow: "pairs".into(),
        unit,
        labels: labels.clone(),
        value: 1_250_000.5,
        low: 1_000_000.0,
        high: 1_500_000.0,
        samples: 96.5,
    };
    FlowFigures {
        agents: 3,
        datagrams: vec![("read", 10), ("duplicate", 1)],
        samples: vec![("flow", 50)],
        unknown_structures: 2,
        faults: vec![("truncated", 4)],
        discrepancies: vec![("no_rate", 7)],
        definitions: vec![DefinitionFigures {
            name: "pairs".into(),
            samples: vec![("counted", 40), ("filtered", 10)],
            lacking: vec![("src".into(), 3)],
            flows: 7,
            evicted: 1,
        }],
        series: vec![series(Unit::Bytes), series(Unit::Frames), series(Unit::Samples)],
        series_omitted: 0,
    }
}

/// Answers with the request it got.
fn echo() -> Service {
    Arc::new(|asked: Asked| {
        Box::pin(async move {
            let Asked { action, path, query, body, .. } = asked;
            if path.ends_with("/wait") {
                std::future::pending::<()>().await;
            }
            let body = String::from_utf8_lossy(&body);
            Told::json(format!("{action:?} {path} {query} {body}"))
        })
    })
}

pub(crate) fn shown(figures: FlowFigures) -> Flows {
    Flows { pages: echo(), figures: Arc::new(move || figures.clone()) }
}

fn get(state: AdminState, path: &str, host: &str) -> (StatusCode, String) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let request = Request::get(path).header("host", host).body(Body::empty()).unwrap();
        let response = router(Arc::new(state)).oneshot(request).await.unwrap();
        let status = response.status();
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    })
}

fn with_flows(bind: &str) -> AdminState {
    let mut state = state(busy_hops(), bind);
    state.flows = Some(shown(figures(Vec::new())));
    state
}

#[test]
fn flows_are_answered_to_this_machine_alone() {
    let (status, body) = get(with_flows("127.0.0.1"), "/flows/top?flow=pairs", "localhost");
    assert_eq!((status.as_u16(), body.as_str()), (200, "Read /flows/top flow=pairs "));
    for path in ["/flows", "/flows/top", "/flows/events?wait=30s"] {
        let (status, _) = get(with_flows("127.0.0.1"), path, "evil.example");
        assert_eq!(status, StatusCode::FORBIDDEN, "{path}");
        let (status, _) = get(with_flows("0.0.0.0"), path, "localhost");
        assert_eq!(status, StatusCode::FORBIDDEN, "{path}");
    }
    let (status, body) = get(state(busy_hops(), "127.0.0.1"), "/flows", "localhost");
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(body.contains("[flows]"), "{body}");
}

#[test]
fn labels_of_flows_are_escaped() {
    let hostile = "a\"} 1\nweir_evil{x=\"\\ \u{1b}[31m\u{202e}é".to_owned();
    let labels = vec![("group_src".to_owned(), hostile), ("dst".to_owned(), "192.0.2.1".into())];
    let mut state = state(busy_hops(), "127.0.0.1");
    state.flows = Some(shown(figures(labels)));
    let (_, text) = get(state, "/metrics", "localhost");

    assert!(!text.lines().any(|line| line.starts_with("weir_evil")), "{text}");
    let line = "weir_flow_bytes_per_second{flow=\"pairs\",group_src=\"a\\\"} 1\\nweir_evil{x=\\\"\\\\ \
                \u{1b}[31m\u{202e}é\",dst=\"192.0.2.1\"} 1250000.5";
    assert!(text.lines().any(|one| one == line), "{text}");
    if need_tool("promtool") {
        check_by_promtool(&text);
    }
}

fn check_by_promtool(text: &str) {
    let mut promtool = Command::new(find_tool("promtool").unwrap())
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
}

/// Runs a [`Rest`] on a real socket.
struct Server {
    address: SocketAddr,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start(bind: &str, changes: Changes) -> Server {
        let listener = std::net::TcpListener::bind((bind, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let rest = Arc::new(Rest::new(address.ip(), changes, echo(), Arc::default()));
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let thread = std::thread::spawn(move || {
            let serving = async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let shutdown = async {
                    let _ = stopped.await;
                };
                serve_rest(listener, rest, shutdown).await.unwrap();
            };
            runtime.block_on(serving);
        });
        Server { address, stop: Some(stop), thread: Some(thread) }
    }

    fn send(&self, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }

    /// Returns the status and the whole response.
    fn ask(&self, method: &str, headers: &str, body: &str) -> (u16, String) {
        let length = body.len();
        let head = format!(
            "{method} /flow/x/json?n=1 HTTP/1.1\r\n{headers}Content-Length: {length}\r\n\r\n"
        );
        answer(&mut self.send(&(head + body)))
    }
}

fn answer(stream: &mut TcpStream) -> (u16, String) {
    let mut text = String::new();
    // A reset after the response keeps what was read.
    let _ = stream.read_to_string(&mut text);
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("{text:?}")), text)
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        self.thread.take().unwrap().join().unwrap();
    }
}

const HERE: &str = "Host: 127.0.0.1:8008\r\n";

#[test]
fn programs_change_things_and_pages_of_other_sites_do_not() {
    let server = Server::start("127.0.0.1", Changes::Allowed);
    let (status, text) = server.ask("PUT", HERE, "{}");
    assert_eq!(status, 200);
    assert!(text.ends_with("Put /flow/x/json n=1 {}"), "{text}");
    let lower = text.to_lowercase();
    assert!(lower.contains("x-content-type-options: nosniff"), "{text}");
    assert!(!lower.contains("access-control"), "{text}");
    assert_eq!(server.ask("DELETE", HERE, "").0, 200);

    for (headers, why) in [
        ("Host: evil.example\r\n", "a name that points at loopback"),
        ("Host: localhost\r\nOrigin: https://evil.example\r\n", "a page of another site"),
        ("Host: localhost\r\nOrigin: null\r\n", "a page without a site"),
        ("Host: localhost\r\nSec-Fetch-Site: cross-site\r\n", "an image of another site"),
    ] {
        for method in ["GET", "PUT", "DELETE"] {
            assert_eq!(server.ask(method, headers, "").0, 403, "{method}: {why}");
        }
    }
    assert_eq!(server.ask("POST", HERE, "{}").0, 405);
    assert_eq!(server.ask("OPTIONS", HERE, "").0, 405);
}

#[test]
fn an_open_address_is_read_only_unless_the_file_says_so() {
    let server = Server::start("0.0.0.0", Changes::Refused);
    assert_eq!(server.ask("GET", "Host: collector.example\r\n", "").0, 200);
    for method in ["PUT", "DELETE"] {
        let (status, text) = server.ask(method, "Host: collector.example\r\n", "");
        assert_eq!(status, 403, "{text}");
        assert!(text.contains("rest_changes"), "{text}");
    }
}

#[test]
fn changes_that_routes_follow_from_need_the_token() {
    let server = Server::start("127.0.0.1", Changes::WithToken(None));
    assert_eq!(server.ask("GET", HERE, "").0, 200);
    let (status, text) = server.ask("PUT", HERE, "{}");
    assert_eq!(status, 403);
    assert!(text.contains("Fix: token_file"), "{text}");

    let token = Token::new("0123456789abcdef").unwrap();
    let server = Server::start("127.0.0.1", Changes::WithToken(Some(token)));
    let with = |token: &str| format!("{HERE}Authorization: Bearer {token}\r\n");
    for method in ["PUT", "DELETE"] {
        assert_eq!(server.ask(method, HERE, "").0, 401, "{method}");
        assert_eq!(server.ask(method, &with("0123456789abcdeg"), "").0, 401, "{method}");
        assert_eq!(server.ask(method, &with("0123456789abcdef"), "").0, 200, "{method}");
    }
    assert_eq!(server.ask("GET", HERE, "").0, 200);
}

#[test]
fn a_body_is_bounded() {
    let server = Server::start("127.0.0.1", Changes::Allowed);
    assert_eq!(server.ask("PUT", HERE, &"x".repeat(BODY_BYTES_MAX)).0, 200);
    assert_eq!(server.ask("PUT", HERE, &"x".repeat(BODY_BYTES_MAX + 1)).0, 413);
}

#[test]
fn those_who_wait_are_told_when_the_server_stops() {
    let server = Server::start("127.0.0.1", Changes::Refused);
    let mut waiting = server.send(&format!("GET /events/wait HTTP/1.1\r\n{HERE}\r\n"));
    // Later requests are answered while the first is waiting.
    assert_eq!(server.ask("GET", HERE, "").0, 200);
    drop(server);
    assert_eq!(answer(&mut waiting).0, 503);
}
