use crate::access::{asker, refuse};
use crate::metrics::Exposition;
use crate::service::{Action, Asked, Asker, Service, Told};
use crate::{
    AdminState, Hidden, Process, Said, View, assets, condition, fleet, live, metrics, page,
};
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use std::io;
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

pub(crate) const FLOWS: &str = "/flows";
pub(crate) const FLOWS_BELOW: &str = "/flows/";
pub(crate) const RECORDS: &str = "/records";
pub(crate) const QUERY: &str = "/query";
pub(crate) const QUERY_BELOW: &str = "/query/";

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
    let mut snapshot = state.ledger.check();
    let speaker = &state.process.speaker;
    snapshot.daemon = (!speaker.host.is_empty()).then(|| speaker.clone());
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

async fn show_sockets(State(state): State<Arc<AdminState>>, request: Request) -> Response {
    let page = match hides_sockets(&state, &request) {
        true => &state.own_sockets,
        false => &state.sockets,
    };
    let Some(asked) = page.clone() else {
        let text = "no socket collector here: the configuration has no [sockets]\n";
        return (StatusCode::NOT_FOUND, text).into_response();
    };

    let query = request.uri().query().unwrap_or_default().to_owned();
    page::answer(asked, query).await
}

/// Whether sockets of other namespaces are not for this client.
fn hides_sockets(state: &AdminState, request: &Request) -> bool {
    state.sockets_elsewhere.is_some() && asker(state, request) == Asker::Anyone
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
    Asked {
        action: Action::Read,
        path: request.uri().path().to_owned(),
        query: request.uri().query().unwrap_or_default().to_owned(),
        body: Vec::new(),
        asker: asker(state, request),
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

async fn show_daemon(State(state): State<Arc<AdminState>>, request: Request) -> Response {
    let json = [(header::CONTENT_TYPE, "application/json")];
    let asker = asker(&state, &request);
    match request.uri().query() {
        None | Some("") => (json, about_daemon(&state, asker)).into_response(),
        Some("wait=end") => (json, page::streamed(told_at_the_end(state, asker))).into_response(),
        Some(_) => (StatusCode::BAD_REQUEST, "unknown query. Fix: use wait=end\n").into_response(),
    }
}

/// A response that begins at once, to tell the client that it is waiting, and ends when the server stops.
fn told_at_the_end(state: Arc<AdminState>, asker: Asker) -> mpsc::Receiver<io::Result<Vec<u8>>> {
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
        let _ = sender.send(Ok(about_daemon(&state, asker).into_bytes())).await;
    });
    receiver
}

/// What the daemon is, how its last reload went, and what it does not show to this client.
fn about_daemon(state: &AdminState, asker: Asker) -> String {
    let view = state.health.view();
    let said = |said: &Option<Said>| {
        said.as_ref().map(|said| serde_json::json!({ "code": said.code, "lines": said.lines }))
    };
    let Process { speaker, pid, started } = &state.process;
    let hidden = state.hidden.as_ref().filter(|_| asker == Asker::Anyone);
    let hidden = hidden.map(|Hidden { what, fix }| serde_json::json!({ "what": what, "fix": fix }));
    let text = serde_json::json!({
        "host": speaker.host,
        "address": speaker.address,
        "version": state.build.version,
        "uptime_ms": state.ledger.snapshot().uptime_ms,
        "pid": pid,
        "started": started,
        "config_file": speaker.config_file,
        "phase": view.phase.label(),
        "reloads": view.config.reloads,
        "last_reload": said(&view.config.last_reload),
        "ended": said(&view.ended),
        "hidden": hidden,
    });
    format!("{text}\n")
}

/// The answer to requests that are waiting when the server stops.
pub(crate) fn stopped() -> Told {
    Told::text(503, "the server is being stopped")
}
