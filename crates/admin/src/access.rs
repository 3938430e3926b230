//! Who may ask for what: every request is judged here before a page sees it.

use crate::holder::Holder;
use crate::http::{FLOWS, FLOWS_BELOW, QUERY, QUERY_BELOW, RECORDS};
use crate::service::Asker;
use crate::{AdminState, assets};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use std::net::IpAddr;

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
    let is_open = OPEN.contains(&path) || path.starts_with(assets::BELOW);
    match proof(state, request) {
        Proof::Known => return None,
        Proof::Wrong => return (!is_open).then(with_another_token),
        Proof::None if state.token.is_some() => return (!is_open).then(without_token),
        Proof::None => {}
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
        _ if path == "/sockets" => state.sockets.is_some() && state.own_sockets.is_none(),
        Some(records) if path == RECORDS => (records.shows_sockets)(query),
        _ => false,
    }
}

/// Pages without figures. They and the files of the browser page are served without the token.
const OPEN: [&str; 4] = ["/", "/health", "/healthz", "/readyz"];

/// What a request proves about who sends it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Proof {
    /// The kernel vouches for its user, or it has the token.
    Known,
    /// It has another token than the one that counts here.
    Wrong,
    /// It has no token, or none counts here.
    None,
}

pub(crate) fn proof(state: &AdminState, request: &Request) -> Proof {
    if matches!(request.extensions().get::<Peer>(), Some(Peer::User(_))) {
        return Proof::Known;
    }
    // A token of the run is shown in plain HTTP, so it counts on this machine only.
    let token = match (&state.token, &state.run_token) {
        (Some(token), _) => token,
        (None, Some(token)) if is_from_this_machine(state, request) => token,
        _ => return Proof::None,
    };
    match request.headers().get(header::AUTHORIZATION) {
        None => Proof::None,
        Some(shown) if token.is_in(shown.as_bytes()) => Proof::Known,
        Some(_) => Proof::Wrong,
    }
}

pub(crate) fn asker(state: &AdminState, request: &Request) -> Asker {
    match proof(state, request) {
        Proof::Known => Asker::Known,
        Proof::Wrong | Proof::None => Asker::Anyone,
    }
}

fn without_token() -> Response {
    unauthorized(
        "missing token: this daemon asks for that of admin.token_file. Fix: Authorization: Bearer TOKEN; with commands, --token-file FILE\n",
    )
}

fn with_another_token() -> Response {
    unauthorized(
        "wrong token: it is another daemon's, or that of an earlier run. Fix: weir ui; or, with token_file, --token-file FILE\n",
    )
}

fn unauthorized(text: &'static str) -> Response {
    let challenge = [(header::WWW_AUTHENTICATE, "Bearer realm=\"weir\"")];
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
