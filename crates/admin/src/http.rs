use crate::holder::Holder;
use crate::metrics::Exposition;
use crate::service::{Action, Asked, Asker, Service, Told};
use crate::{AdminState, Process, Said, View, assets, condition, fleet, live, metrics, page};
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;

/// Counters of the server itself.
#[derive(Debug, Default)]
pub struct HttpCounts {
    handlers: [HandlerCounts; HANDLERS.len()],
    /// Connections closed because too many were open.
    pub(crate) crowded: AtomicU64,
    /// Connections closed because the client was too slow.
    pub(crate) timeouts: AtomicU64,
}

#[derive(Debug, Default)]
struct HandlerCounts {
    requests: AtomicU64,
    failures: AtomicU64,
}

/// The label values of `handler`: a fixed list, so that unknown paths do not create series.
const HANDLERS: [&str; 15] = [
    "/", "/ui/", "/metrics", "/ledger", "/sockets", "/flows", "/query", "/records", "/daemon",
    "/health", "/healthz", "/readyz", "rest", "grpc", "other",
];

/// How long a request waits for the daemon to end before it is told that it has not. Shorter than the life of a connection.
const END_WAIT: Duration = Duration::from_secs(10);

const FLOWS: &str = "/flows";
const FLOWS_BELOW: &str = "/flows/";
const RECORDS: &str = "/records";
const QUERY: &str = "/query";
const QUERY_BELOW: &str = "/query/";

impl HttpCounts {
    /// Each handler with its requests, and how many of them got a 4xx or 5xx response.
    pub(crate) fn handlers(&self) -> impl Iterator<Item = (&'static str, u64, u64)> {
        HANDLERS.into_iter().zip(&self.handlers).map(|(name, counts)| {
            (name, counts.requests.load(Ordering::Relaxed), counts.failures.load(Ordering::Relaxed))
        })
    }

    /// Counts a request under its handler, one of [`HANDLERS`]; unknown paths count as `other`.
    pub(crate) fn count(&self, path: &str, status: StatusCode) {
        let other = HANDLERS.len() - 1;
        let path = match path {
            _ if path.starts_with(FLOWS_BELOW) => FLOWS,
            _ if path.starts_with(QUERY_BELOW) => QUERY,
            _ if path.starts_with(assets::BELOW) => assets::BELOW,
            _ => path,
        };
        let index = HANDLERS[..other].iter().position(|name| *name == path).unwrap_or(other);
        let counts = &self.handlers[index];
        counts.requests.fetch_add(1, Ordering::Relaxed);
        if status.is_client_error() || status.is_server_error() {
            counts.failures.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The admin server's routes. All of them only read: GET and HEAD.
pub fn router(state: Arc<AdminState>) -> Router {
    let routes = match state.view {
        View::Daemon => daemon_routes(),
        View::Fleet => fleet::routes(),
    };
    routes
        .fallback(not_found)
        .layer(middleware::from_fn_with_state(Arc::clone(&state), guard))
        .with_state(state)
}

fn daemon_routes() -> Router<Arc<AdminState>> {
    Router::new()
        .route("/", get(index))
        .route("/ui/{name}", get(assets::show))
        .route("/metrics", get(show_metrics))
        .route("/ledger", get(show_ledger))
        .route("/sockets", get(show_sockets))
        .route("/flows", get(show_flows))
        .route("/flows/{*below}", get(show_flows))
        .route("/query", get(show_query))
        .route("/query/{*below}", get(show_query))
        .route(RECORDS, get(live::show))
        .route("/daemon", get(show_daemon))
        .route("/health", get(condition::health))
        .route("/healthz", get(condition::healthz))
        .route("/readyz", get(condition::readyz))
}

/// Refuses requests that must not be answered, counts every request, and sets the headers of every response.
async fn guard(State(state): State<Arc<AdminState>>, request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let mut response = match refuse(&state, &request) {
        Some(refusal) => refusal,
        None => next.run(request).await,
    };
    state.http.count(&path, response.status());
    seal(&mut response);
    response
}

/// Sets the security headers of a response, unless it has its own: browsers must not guess its type, run it, or cache it.
pub(crate) fn seal(response: &mut Response) {
    let headers = response.headers_mut();
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
}

pub(crate) fn refuse(state: &AdminState, request: &Request) -> Option<Response> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let allow = [(header::ALLOW, "GET, HEAD")];
        let text = "only GET and HEAD: nothing can be changed here\n";
        return Some((StatusCode::METHOD_NOT_ALLOWED, allow, text).into_response());
    }

    match request.extensions().get::<Peer>() {
        Some(Peer::Unencrypted) => {
            let text = "this address speaks TLS. Fix: write https:// in front of it\n";
            return Some((StatusCode::BAD_REQUEST, text).into_response());
        }
        // The kernel vouches for this user, and no web page can reach a unix socket, so nothing else is checked.
        Some(Peer::User(_)) => return None,
        Some(Peer::Stranger(_)) => {
            let text = "this socket answers root, the daemon's own user, and those of admin.socket_users\n";
            return Some((StatusCode::FORBIDDEN, text).into_response());
        }
        Some(Peer::Address(_)) | None => {}
    }

    let foreign = refuse_foreign_name(state.bind, request).or_else(|| refuse_foreign_page(request));
    if foreign.is_some() {
        return foreign;
    }

    let path = request.uri().path();
    if let Some(token) = &state.token {
        let is_shown = request.headers().get(header::AUTHORIZATION);
        let is_known = is_shown.is_some_and(|shown| token.is_in(shown.as_bytes()));
        let is_open = OPEN.contains(&path) || path.starts_with(assets::BELOW);
        return (!is_known && !is_open).then(without_token);
    }

    if let (true, Some(elsewhere)) =
        (asks_about_sockets(state, request.uri()), &state.sockets_elsewhere)
    {
        return Some((StatusCode::FORBIDDEN, format!("{elsewhere}\n")).into_response());
    }

    let is_telling = matches!(path, "/ledger" | "/sockets" | "/daemon" | FLOWS | QUERY | RECORDS)
        || path.starts_with(FLOWS_BELOW)
        || path.starts_with(QUERY_BELOW);
    if is_telling && !is_from_this_machine(state, request) {
        let text = "this is only shown to this machine, at a loopback address, or to who has the token of admin.token_file: it names \
                    every listener, target and peer\n";
        return Some((StatusCode::FORBIDDEN, text).into_response());
    }
    None
}

/// Whether a request asks for individual sockets. The history looks at who asks itself.
fn asks_about_sockets(state: &AdminState, uri: &Uri) -> bool {
    let (path, query) = (uri.path(), uri.query().unwrap_or_default());
    match &state.records {
        _ if path == "/sockets" => state.sockets.is_some(),
        Some(records) if path == RECORDS => (records.shows_sockets)(query),
        _ => false,
    }
}

/// Pages without figures. They and the files of the browser page are served without the token.
const OPEN: [&str; 4] = ["/", "/health", "/healthz", "/readyz"];

fn without_token() -> Response {
    let challenge = [(header::WWW_AUTHENTICATE, "Bearer realm=\"weir\"")];
    let text = "this needs the token of admin.token_file (Authorization: Bearer ...), and the request has none or another; commands \
                take it with --token-file FILE or WEIR_TOKEN_FILE\n";
    (StatusCode::UNAUTHORIZED, challenge, text).into_response()
}

/// Refuses requests that a page of another server makes; browsers name it in the `Origin` header.
fn refuse_foreign_page(request: &Request) -> Option<Response> {
    let named = host_names(request.uri(), request.headers());
    let is_foreign = |origin: &HeaderValue| {
        let host = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
        !host.is_some_and(|(_, host)| named.iter().any(|name| name.eq_ignore_ascii_case(host)))
    };

    // What a foreign page embeds, an image for example, comes without an Origin. A link from there to the page is fine.
    let path = request.uri().path();
    let site = request.headers().get("sec-fetch-site").map(HeaderValue::as_bytes);
    let is_embedded = site.is_some_and(|site| !matches!(site, b"none" | b"same-origin"))
        && path != "/"
        && !path.starts_with(assets::BELOW);

    let mut origins = request.headers().get_all(header::ORIGIN).iter();
    (is_embedded || origins.any(is_foreign)).then(|| {
        let text =
            "the Origin header names another server: no page but this server's own may ask here\n";
        (StatusCode::FORBIDDEN, text).into_response()
    })
}

/// Refuses a request to a loopback address whose Host header names another machine. A web page can reach 127.0.0.1 by pointing
/// its own domain there, but the Host header then has that domain.
pub(crate) fn refuse_foreign_name(bind: IpAddr, request: &Request) -> Option<Response> {
    if !bind.is_loopback() {
        return None;
    }
    let named = host_names(request.uri(), request.headers());
    if named.is_empty() {
        return Some((StatusCode::BAD_REQUEST, "no Host header\n").into_response());
    }

    let stranger = named.iter().any(|host| !is_this_machine(host, bind));
    stranger.then(|| {
        let text =
            "the Host header names another machine. Fix: use localhost, 127.0.0.1 or [::1]\n";
        (StatusCode::FORBIDDEN, text).into_response()
    })
}

/// Whether a request comes from this machine: the server is bound to a loopback address, or the client connected from one and
/// its Host header names this machine (a web page whose domain points at 127.0.0.1 would send that domain).
fn is_from_this_machine(state: &AdminState, request: &Request) -> bool {
    if state.bind.is_loopback() {
        return true;
    }

    let peer = request.extensions().get::<Peer>();
    let is_near = matches!(peer, Some(Peer::Address(addr)) if addr.is_loopback());
    let named = host_names(request.uri(), request.headers());
    let localhost = IpAddr::from([127, 0, 0, 1]);
    is_near && !named.is_empty() && named.iter().all(|host| is_this_machine(host, localhost))
}

/// All hosts that the request names, in its target and in its Host headers.
fn host_names<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Vec<&'a str> {
    let in_headers = headers.get_all(header::HOST).iter();
    // A value that is not text matches nothing.
    in_headers
        .map(|value| value.to_str().unwrap_or("?"))
        .chain(uri.authority().map(|a| a.as_str()))
        .collect()
}

/// Whether `host` means this machine. The port is ignored, since port forwarding may change it.
fn is_this_machine(host: &str, bind: IpAddr) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };

    if name.eq_ignore_ascii_case("localhost") {
        return true;
    }

    let address = match name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
        Some(v6) => v6.parse().map(IpAddr::V6),
        None => name.parse().map(IpAddr::V4),
    };

    address.is_ok_and(|address| {
        let names = [IpAddr::from([127, 0, 0, 1]), IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]), bind];
        names.contains(&address)
    })
}

/// The client of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Peer {
    /// A client at this address.
    Address(IpAddr),
    /// A user of this machine, identified by the kernel, who may ask for everything.
    User(u32),
    /// A user of this machine who may not.
    Stranger(u32),
    /// A client that speaks plain HTTP to a TLS server.
    #[cfg_attr(
        not(any(feature = "tls", feature = "grpc")),
        expect(dead_code, reason = "only a server over TLS meets one")
    )]
    Unencrypted,
}

impl Peer {
    /// Who holds what this client takes.
    pub(crate) fn holder(self) -> Holder {
        match self {
            Peer::Address(address) => Holder::at(address),
            Peer::User(uid) | Peer::Stranger(uid) => Holder::User(uid),
            Peer::Unencrypted => Holder::Unknown,
        }
    }
}

/// The page for a browser; for all other clients, the list of paths.
async fn index(headers: HeaderMap) -> Response {
    let vary = [(header::VARY, "accept")];
    assets::shell(View::Daemon, &headers).unwrap_or_else(|| (vary, INDEX).into_response())
}

const INDEX: &str = "weir\n\n\
     /metrics             figures for Prometheus; OpenMetrics if asked for\n\
     /ledger              what came in, what left, what was lost, where and why (JSON)\n\
     /ledger?format=text  the same to read\n\
     /sockets?filter=...  TCP sockets of this machine, as `weir sockets` filters them (JSON)\n\
     /flows               sFlow's definitions and what was counted; below it top, agents, interfaces, events (JSON)\n\
     /query               questions to this machine's history; below it their answers, and ?sql=... (JSON)\n\
     /records?follow      records as they are made, a line of JSON each, with from=, filter=, limit= and for=\n\
     /daemon              its process, and how its last reload went (JSON); ?wait=end waits for its end\n\
     /health              200 while data gets through; otherwise 503, and what is wrong\n\
     /healthz             200 while the data loops are alive\n\
     /readyz              200 while datagrams are taken\n\
     /ui/index.html       a page for browsers, which get it at / too\n";

async fn not_found() -> (StatusCode, &'static str) {
    (StatusCode::NOT_FOUND, "no such page; / lists those that exist\n")
}

async fn show_metrics(State(state): State<Arc<AdminState>>, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let exposition = Exposition::negotiate(accept.unwrap_or_default());
    // The figures of flows have to wait for the analysis thread.
    match tokio::task::spawn_blocking(move || metrics::render(&state, exposition)).await {
        Ok(text) => ([(header::CONTENT_TYPE, exposition.content_type())], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

async fn show_ledger(State(state): State<Arc<AdminState>>, uri: Uri) -> Response {
    let snapshot = state.ledger.check();
    match uri.query() {
        Some("format=text") => ledger::waterfall(&snapshot).into_response(),
        None | Some("" | "format=json") => match serde_json::to_string(&snapshot) {
            Ok(json) => ([(header::CONTENT_TYPE, "application/json")], json + "\n").into_response(),
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
        },
        Some(_) => {
            (StatusCode::BAD_REQUEST, "unknown query. Fix: use format=text or format=json\n")
                .into_response()
        }
    }
}

async fn show_sockets(State(state): State<Arc<AdminState>>, uri: Uri) -> Response {
    let Some(asked) = state.sockets.clone() else {
        let text = "no socket collector here: the configuration has no [sockets]\n";
        return (StatusCode::NOT_FOUND, text).into_response();
    };

    let query = uri.query().unwrap_or_default().to_owned();
    page::answer(asked, query).await
}

async fn show_flows(State(state): State<Arc<AdminState>>, request: Request) -> Response {
    let Some(flows) = &state.flows else {
        let text = "no flows here: the configuration has no [flows]\n";
        return (StatusCode::NOT_FOUND, text).into_response();
    };

    told(&state, &flows.pages, asked(&state, &request)).await
}

pub(crate) async fn show_query(State(state): State<Arc<AdminState>>, request: Request) -> Response {
    let Some(query) = &state.query else {
        let text = "no history here: the configuration has no sink to a store. Fix: add a [[sink]] with from = [\"sockets\"] and \
                    to = \"store:/var/lib/weir/history\"\n";
        return (StatusCode::NOT_FOUND, text).into_response();
    };

    told(&state, &query.pages, asked(&state, &request)).await
}

/// A request that reads, for a service.
fn asked(state: &AdminState, request: &Request) -> Asked {
    // With a token, nobody gets here without it.
    let is_user = matches!(request.extensions().get::<Peer>(), Some(Peer::User(_)));
    let is_known = is_user || state.token.is_some();
    Asked {
        action: Action::Read,
        path: request.uri().path().to_owned(),
        query: request.uri().query().unwrap_or_default().to_owned(),
        body: Vec::new(),
        asker: if is_known { Asker::Known } else { Asker::Anyone },
    }
}

/// What a service answers, unless the server is stopped before.
async fn told(state: &AdminState, pages: &Service, asked: Asked) -> Response {
    let mut stopping = state.stopping.subscribe();
    tokio::select! {
        told = pages(asked) => told.into_response(),
        _ = stopping.wait_for(|stopping| *stopping) => stopped().into_response(),
    }
}

async fn show_daemon(State(state): State<Arc<AdminState>>, uri: Uri) -> Response {
    let json = [(header::CONTENT_TYPE, "application/json")];
    match uri.query() {
        None | Some("") => (json, about_daemon(&state)).into_response(),
        Some("wait=end") => (json, page::streamed(told_at_the_end(state))).into_response(),
        Some(_) => (StatusCode::BAD_REQUEST, "unknown query. Fix: use wait=end\n").into_response(),
    }
}

/// A response that begins at once, to tell the client that it is waiting, and ends when the server stops.
fn told_at_the_end(state: Arc<AdminState>) -> mpsc::Receiver<io::Result<Vec<u8>>> {
    let (sender, receiver) = mpsc::channel(1);
    let mut stopping = state.stopping.subscribe();
    tokio::spawn(async move {
        // JSON may begin with white space. The client may have left; it is then told nothing.
        let _ = sender.send(Ok(b" ".to_vec())).await;
        // Whether the daemon has ended or the wait is over, the current state is the answer.
        let ending = tokio::time::timeout(END_WAIT, stopping.wait_for(|stopping| *stopping));
        tokio::select! {
            _ = ending => {}
            // Connections are bounded, and so are the tasks that wait for them, if they end with their clients.
            () = sender.closed() => return,
        }
        let _ = sender.send(Ok(about_daemon(&state).into_bytes())).await;
    });
    receiver
}

fn about_daemon(state: &AdminState) -> String {
    let view = state.health.view();
    let said = |said: &Option<Said>| {
        said.as_ref().map(|said| serde_json::json!({ "code": said.code, "lines": said.lines }))
    };
    let Process { pid, started, config_file } = &state.process;
    let text = serde_json::json!({
        "pid": pid,
        "started": started,
        "config_file": config_file,
        "phase": view.phase.label(),
        "reloads": view.config.reloads,
        "last_reload": said(&view.config.last_reload),
        "ended": said(&view.ended),
    });
    format!("{text}\n")
}

/// The answer to requests that are waiting when the server stops.
pub(crate) fn stopped() -> Told {
    Told::text(503, "the server is being stopped")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(host: &str, bind: &str, expected: bool) {
        assert_eq!(is_this_machine(host, bind.parse().unwrap()), expected, "{host} at {bind}");
    }

    #[test]
    fn loopback_names_with_and_without_port() {
        for host in
            ["localhost", "LocalHost:9464", "127.0.0.1:80", "127.0.0.1", "[::1]", "[::1]:9464"]
        {
            check(host, "127.0.0.1", true);
        }
    }

    #[test]
    fn the_bound_address() {
        check("127.0.0.5:9464", "127.0.0.5", true);
        check("127.0.0.5:9464", "127.0.0.1", false);
    }

    #[test]
    fn strangers() {
        for host in [
            "",
            ":80",
            "evil.example",
            "localhost.evil.example:9464",
            "10.0.0.1",
            "::1",
            "[::1",
            "127.1",
            "0x7f.1",
            "localhost:9464@evil",
        ] {
            check(host, "127.0.0.1", false);
        }
    }
}
