//! A service at an address of its own, which may make changes.

use crate::HttpCounts;
use crate::access::refuse_foreign_name;
use crate::http::{seal, stopped};
use crate::service::{Action, Asked, Asker, Service, Told};
use crate::token::Token;
use axum::Router;
use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::watch;

/// Most bytes of a request's body.
pub const BODY_BYTES_MAX: usize = 64 * 1024;

/// Whether PUT and DELETE are answered.
#[derive(Clone, Debug)]
pub enum Changes {
    /// They are answered.
    Allowed,
    /// They are refused.
    Refused,
    /// Who has the token is answered, and nobody if there is none: routes may follow from what is changed.
    WithToken(Option<Token>),
}

/// A service at an address of its own.
pub struct Rest {
    /// The address. On a loopback address, only requests that name this machine are answered.
    pub bind: IpAddr,
    /// Whether it may make changes.
    pub changes: Changes,
    /// Answers requests.
    pub service: Service,
    /// Counts its requests, under the handler `rest`.
    pub counts: Arc<HttpCounts>,
    pub(crate) stopping: watch::Sender<bool>,
}

impl Rest {
    /// A service at `bind`.
    pub fn new(bind: IpAddr, changes: Changes, service: Service, counts: Arc<HttpCounts>) -> Rest {
        Rest { bind, changes, service, counts, stopping: watch::Sender::new(false) }
    }
}

/// The handler under which its requests are counted.
const HANDLER: &str = "rest";

/// Routes every path to the service.
pub(crate) fn router(rest: Arc<Rest>) -> Router {
    Router::new().fallback(answer).with_state(rest)
}

async fn answer(State(rest): State<Arc<Rest>>, request: Request) -> Response {
    let mut response = match refuse(&rest, &request) {
        Some(refusal) => refusal,
        None => ask(&rest, request).await,
    };
    rest.counts.count(HANDLER, response.status());
    seal(&mut response);
    response
}

fn refuse(rest: &Rest, request: &Request) -> Option<Response> {
    if let Some(refusal) = refuse_foreign_name(rest.bind, request) {
        return Some(refusal);
    }
    if is_of_another_page(request.headers()) {
        let text =
            "a page of another site asks: only programs and this site's own pages are answered\n";
        return Some((StatusCode::FORBIDDEN, text).into_response());
    }

    match (action(request.method()), &rest.changes) {
        // No POST: a form on any web page can send one without a preflight request.
        (None, _) => {
            let allow = [(header::ALLOW, "GET, HEAD, PUT, DELETE")];
            Some(
                (StatusCode::METHOD_NOT_ALLOWED, allow, "use GET, PUT or DELETE\n").into_response(),
            )
        }
        (Some(Action::Put | Action::Delete), Changes::Refused) => {
            let text = "nothing can be changed here: the address is not a loopback address, and rest_changes is off\n";
            Some((StatusCode::FORBIDDEN, text).into_response())
        }
        (Some(Action::Put | Action::Delete), Changes::WithToken(None)) => {
            let text = "nothing can be changed here while a [[mitigation]] announces routes, because there is no token. \
                        Fix: token_file = \"/etc/weir/token\" under [admin], and send what it has as Authorization: Bearer ...\n";
            Some((StatusCode::FORBIDDEN, text).into_response())
        }
        (Some(Action::Put | Action::Delete), Changes::WithToken(Some(token))) => {
            let shown = request.headers().get(header::AUTHORIZATION);
            let is_known = shown.is_some_and(|shown| token.is_in(shown.as_bytes()));
            let text = "while a [[mitigation]] announces routes, a change needs the token of admin.token_file \
                        (Authorization: Bearer ...), and the request has none or another\n";
            (!is_known).then(|| (StatusCode::UNAUTHORIZED, text).into_response())
        }
        _ => None,
    }
}

/// Whether a browser made the request for a page of another site. Other programs send neither header.
fn is_of_another_page(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site").map(|site| site.as_bytes());
    headers.contains_key(header::ORIGIN)
        || site.is_some_and(|site| !matches!(site, b"none" | b"same-origin"))
}

fn action(method: &Method) -> Option<Action> {
    match *method {
        Method::GET | Method::HEAD => Some(Action::Read),
        Method::PUT => Some(Action::Put),
        Method::DELETE => Some(Action::Delete),
        _ => None,
    }
}

async fn ask(rest: &Rest, request: Request) -> Response {
    let action = action(request.method()).unwrap_or(Action::Read);
    let (parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, BODY_BYTES_MAX).await else {
        let text = format!("the body is longer than {BODY_BYTES_MAX} bytes, or was broken off");
        return Told::text(413, &text).into_response();
    };

    let asked = Asked {
        action,
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        body: body.into(),
        asker: Asker::Anyone,
    };
    let mut stopping = rest.stopping.subscribe();
    tokio::select! {
        told = (rest.service)(asked) => told.into_response(),
        _ = stopping.wait_for(|stopping| *stopping) => stopped().into_response(),
    }
}
