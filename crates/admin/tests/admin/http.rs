//! The admin server's responses, and who gets them.

use crate::support::{amount, busy_hops, state};
use admin::{AdminState, Health, PageError, Phase, Pieces, Token, router};
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode, header};
use ledger::{HopBuilder, HopKind, Ledger, Snapshot};
use std::sync::Arc;
use std::time::Duration;
use tower::ServiceExt;

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
}

fn send(state: &Arc<AdminState>, request: Request<Body>) -> Answer {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let response = router(Arc::clone(state)).oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = to_bytes(body, usize::MAX).await.unwrap();
        let body = String::from_utf8(body.to_vec()).unwrap();
        Answer { status: parts.status, headers: parts.headers, body }
    })
}

fn get(state: &Arc<AdminState>, path: &str) -> Answer {
    let request = Request::get(path).header(header::HOST, "localhost:9464");
    send(state, request.body(Body::empty()).unwrap())
}

fn with_host(state: &Arc<AdminState>, host: &str) -> StatusCode {
    let request = Request::get("/readyz").header(header::HOST, host);
    send(state, request.body(Body::empty()).unwrap()).status
}

fn local() -> Arc<AdminState> {
    Arc::new(state(busy_hops(), "127.0.0.1"))
}

#[test]
fn ledger_as_json_is_the_snapshot() {
    let answer = get(&local(), "/ledger");
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.headers[header::CONTENT_TYPE], "application/json");
    let snapshot: Snapshot = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(snapshot.run_id, "5eed");
    assert_eq!(snapshot.hops.len(), busy_hops().len());
    assert!(answer.body.contains(r#""count":"1000""#), "{}", answer.body);
}

#[test]
fn ledger_as_text_is_the_waterfall() {
    let answer = get(&local(), "/ledger?format=text");
    assert!(answer.body.contains("unaccounted: 0"), "{}", answer.body);
    assert_eq!(get(&local(), "/ledger?format=xml").status, StatusCode::BAD_REQUEST);
}

#[test]
fn metrics_in_the_format_that_is_asked_for() {
    let state = local();
    let answer = get(&state, "/metrics");
    assert_eq!(answer.headers[header::CONTENT_TYPE], "text/plain; version=0.0.4; charset=utf-8");
    assert!(
        answer.body.contains("\nweir_relay_received_datagrams_total{origin=\"syslog\"} 1000\n")
    );
    let request = Request::get("/metrics")
        .header(header::HOST, "localhost")
        .header(header::ACCEPT, "application/openmetrics-text; version=1.0.0");
    let answer = send(&state, request.body(Body::empty()).unwrap());
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(answer.headers[header::CONTENT_TYPE], content_type);
    assert!(answer.body.ends_with("# EOF\n"));
}

#[test]
fn requests_are_counted_by_handler_and_unknown_paths_make_no_series() {
    let state = local();
    get(&state, "/healthz");
    get(&state, "/secret/one");
    get(&state, "/secret/two");
    let text = get(&state, "/metrics").body;
    assert!(text.contains("weir_http_requests_total{handler=\"/healthz\"} 1\n"), "{text}");
    assert!(text.contains("weir_http_requests_total{handler=\"other\"} 2\n"), "{text}");
    assert!(text.contains("weir_http_request_failures_total{handler=\"other\"} 2\n"), "{text}");
    assert!(!text.contains("secret"));
}

#[test]
fn healthy_and_ready() {
    let state = local();
    assert_eq!(get(&state, "/healthz").status, StatusCode::OK);
    assert_eq!(get(&state, "/healthz").body, "ok\n");
    assert_eq!(get(&state, "/readyz").status, StatusCode::OK);
}

#[test]
fn not_ready_while_starting_and_draining_but_healthy() {
    let state = local();
    for phase in [Phase::Starting, Phase::Draining] {
        state.health.set_phase(phase);
        let answer = get(&state, "/readyz");
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(answer.body, format!("{}\n", phase.label()));
        assert_eq!(get(&state, "/healthz").status, StatusCode::OK);
    }
}

#[test]
fn a_stuck_data_loop_is_unhealthy_and_named() {
    let health = Arc::new(Health::new(Duration::ZERO));
    health.heartbeat("syslog", 7);
    let ledger = Arc::new(Ledger::new("1".into()));
    let state = Arc::new(AdminState::new(ledger, health, [127, 0, 0, 1].into()));
    let answer = get(&state, "/healthz");
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(answer.body.contains("listener syslog"), "{}", answer.body);
    let text = get(&state, "/metrics").body;
    let failed = "weir_component_state{component=\"listener/syslog\",state=\"failed\"} 1\n";
    assert!(text.contains(failed), "{text}");
}

#[test]
fn a_broken_law_degrades_health_but_does_not_restart_the_relay() {
    let broken = HopBuilder::new(HopKind::Target, "l", Some("t"), amount(0))
        .delivered(amount(2))
        .finish(amount(1));
    let state = Arc::new(state(vec![broken], "127.0.0.1"));
    let answer = get(&state, "/healthz");
    assert_eq!(answer.status, StatusCode::OK);
    assert!(answer.body.starts_with("degraded"), "{}", answer.body);
    let answer = get(&state, "/health");
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(answer.body.starts_with("unhealthy\nfailed: the ledger did not"), "{}", answer.body);
    let text = get(&state, "/metrics").body;
    assert!(text.contains("weir_ledger_violations_total 3\n"), "{text}");
    let residual = "weir_ledger_residual{hop=\"target\",origin=\"l\",target=\"t\"} -1\n";
    assert!(text.contains(residual), "{text}");
    assert!(text.contains("{component=\"daemon\",state=\"degraded\"} 1\n"), "{text}");
}

#[test]
fn every_answer_has_the_protecting_headers_and_none_allows_other_origins() {
    let state = local();
    for path in ["/", "/metrics", "/ledger", "/health", "/healthz", "/readyz", "/nothing"] {
        let request = Request::get(path)
            .header(header::HOST, "localhost")
            .header(header::ORIGIN, "http://evil.example");
        let answer = send(&state, request.body(Body::empty()).unwrap());
        assert_eq!(answer.headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff", "{path}");
        assert!(answer.headers.contains_key(header::CONTENT_SECURITY_POLICY), "{path}");
        assert!(!answer.headers.contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN), "{path}");
    }
}

#[test]
fn only_get_and_head() {
    let state = local();
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"] {
        let request = Request::builder().method(method).uri("/ledger").header("host", "localhost");
        let answer = send(&state, request.body(Body::empty()).unwrap());
        assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED, "{method}");
        assert_eq!(answer.headers[header::ALLOW], "GET, HEAD");
    }
    let head = Request::head("/metrics").header("host", "localhost").body(Body::empty()).unwrap();
    let answer = send(&state, head);
    assert_eq!((answer.status, answer.body.as_str()), (StatusCode::OK, ""));
}

#[test]
fn a_name_that_somebody_points_at_loopback_is_refused() {
    let state = local();
    assert_eq!(with_host(&state, "127.0.0.1:9464"), StatusCode::OK);
    assert_eq!(with_host(&state, "evil.example:9464"), StatusCode::FORBIDDEN);
    let none = Request::get("/readyz").body(Body::empty()).unwrap();
    assert_eq!(send(&state, none).status, StatusCode::BAD_REQUEST);
    let two = Request::get("/readyz").header("host", "localhost").header("host", "evil.example");
    assert_eq!(send(&state, two.body(Body::empty()).unwrap()).status, StatusCode::FORBIDDEN);
    let absolute = Request::get("http://evil.example/readyz").header("host", "localhost");
    let answer = send(&state, absolute.body(Body::empty()).unwrap());
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
}

#[test]
fn beyond_loopback_the_ledger_is_closed() {
    let closed = Arc::new(state(busy_hops(), "0.0.0.0"));
    assert_eq!(with_host(&closed, "weir.monitoring.svc:9464"), StatusCode::OK);
    for path in ["/metrics", "/healthz", "/readyz"] {
        assert_eq!(get(&closed, path).status, StatusCode::OK, "{path}");
    }
    let answer = get(&closed, "/ledger");
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    assert!(answer.body.contains("loopback"), "{}", answer.body);
}

const TOKEN: &str = "0123456789abcdef";

/// The response of a server that is bound to `bind` and requires a token, to a request with these headers.
fn with_token(bind: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
    let mut state = state(busy_hops(), bind);
    state.token = Some(Token::new(TOKEN).unwrap());
    let request = Request::get(path).header(header::HOST, "localhost:9464");
    let request =
        headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    send(&Arc::new(state), request.body(Body::empty()).unwrap())
}

#[test]
fn a_token_opens_every_page_from_anywhere_and_nothing_else_does() {
    let right = format!("Bearer {TOKEN}");
    for bind in ["127.0.0.1", "0.0.0.0"] {
        for path in ["/metrics", "/ledger", "/daemon"] {
            let shown = with_token(bind, path, &[("authorization", &right)]);
            assert_eq!(shown.status, StatusCode::OK, "{path} at {bind}");
        }
        for path in ["/metrics", "/ledger", "/sockets", "/flows", "/flows/top", "/daemon", "/no"] {
            for headers in [
                &[][..],
                &[("authorization", "Bearer 0123456789abcdeF")],
                &[("authorization", TOKEN)],
            ] {
                let answer = with_token(bind, path, headers);
                assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{path} at {bind}");
                assert_eq!(answer.headers[header::WWW_AUTHENTICATE], "Bearer realm=\"weir\"");
                assert!(answer.body.contains("--token-file"), "{}", answer.body);
            }
        }
        for path in ["/", "/healthz", "/readyz"] {
            assert_eq!(with_token(bind, path, &[]).status, StatusCode::OK, "{path} at {bind}");
        }
        // Its status is open, and what it says needs the token.
        for (headers, is_shown) in [(&[][..], false), (&[("authorization", &*right)], true)] {
            let answer = with_token(bind, "/health", headers);
            assert_eq!(answer.body.contains("syslog"), is_shown, "{}", answer.body);
        }
    }
}

#[test]
fn with_a_token_the_sockets_of_other_namespaces_are_shown_too() {
    let mut state = state(busy_hops(), "0.0.0.0");
    state.token = Some(Token::new(TOKEN).unwrap());
    state.sockets = Some(Arc::new(|_: &str| {
        let pieces: Pieces = Box::new([b"[]".to_vec()].into_iter().map(Ok));
        Ok(pieces)
    }));
    state.sockets_elsewhere = Some("elsewhere".to_owned());
    let request = Request::get("/sockets").header("authorization", format!("Bearer {TOKEN}"));
    let answer = send(&Arc::new(state), request.body(Body::empty()).unwrap());
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
}

#[test]
fn the_token_of_a_run_shows_all_to_this_machine_and_another_one_nothing() {
    let page = |body: &'static str| {
        let answer = move |_: &str| -> Result<Pieces, PageError> {
            Ok(Box::new([Ok(body.as_bytes().to_vec())].into_iter()))
        };
        Some(Arc::new(answer) as admin::Page)
    };
    let ask = |bind: &str, path: &str, token: Option<&str>| {
        let mut state = state(busy_hops(), bind);
        state.run_token = Some(Token::new(TOKEN).unwrap());
        state.sockets = page("all");
        state.own_sockets = page("own");
        state.sockets_elsewhere = Some("elsewhere".to_owned());
        let what = "sockets of others".to_owned();
        state.hidden = Some(admin::Hidden { what, fix: "weir ui".to_owned() });
        let request = Request::get(path).header(header::HOST, "localhost:9464");
        let request = token.into_iter().fold(request, |request, token| {
            request.header("authorization", format!("Bearer {token}"))
        });
        send(&Arc::new(state), request.body(Body::empty()).unwrap())
    };

    let wrong = "0123456789abcdeF";
    assert_eq!(ask("127.0.0.1", "/sockets", Some(TOKEN)).body, "all");
    assert_eq!(ask("127.0.0.1", "/sockets", None).body, "own");
    for path in ["/sockets", "/ledger", "/daemon", "/metrics"] {
        let answer = ask("127.0.0.1", path, Some(wrong));
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{path}");
        assert!(answer.body.starts_with("wrong token"), "{}", answer.body);
    }
    assert_eq!(ask("127.0.0.1", "/ui/main.js", Some(wrong)).status, StatusCode::OK);
    // From another machine it counts for nothing: it would have come in plain HTTP.
    for path in ["/sockets", "/ledger"] {
        assert_eq!(ask("0.0.0.0", path, Some(TOKEN)).status, StatusCode::FORBIDDEN, "{path}");
    }

    let hidden = |token| {
        let answer = ask("127.0.0.1", "/daemon", token).body;
        let json: serde_json::Value = serde_json::from_str(&answer).unwrap();
        json["hidden"]["what"].as_str().map(str::to_owned)
    };
    assert_eq!(hidden(None).as_deref(), Some("sockets of others"));
    assert_eq!(hidden(Some(TOKEN)), None);
}

#[test]
fn no_page_of_another_server_may_ask() {
    let right = format!("Bearer {TOKEN}");
    for path in ["/ledger", "/metrics", "/sockets", "/flows", "/daemon", "/healthz"] {
        for origin in [
            "http://evil.example",
            "http://localhost",
            "http://localhost:80",
            "null",
            "localhost:9464",
        ] {
            let answer =
                with_token("0.0.0.0", path, &[("authorization", &right), ("origin", origin)]);
            assert_eq!(answer.status, StatusCode::FORBIDDEN, "{origin} of {path}");
        }
    }
    for origin in ["http://localhost:9464", "https://LOCALHOST:9464"] {
        let answer =
            with_token("0.0.0.0", "/ledger", &[("authorization", &right), ("origin", origin)]);
        assert_eq!(answer.status, StatusCode::OK, "{origin}");
    }
    let named =
        with_token("127.0.0.1", "/ledger", &[("authorization", &right), ("host", "evil.example")]);
    assert_eq!(named.status, StatusCode::FORBIDDEN);
}

/// The response of `/sockets` for what its page returns.
fn sockets(page: impl Fn(&str) -> Result<Pieces, PageError> + Send + Sync + 'static) -> Answer {
    let mut state = state(busy_hops(), "127.0.0.1");
    state.sockets = Some(Arc::new(page));
    get(&Arc::new(state), "/sockets?limit=3")
}

#[test]
fn a_page_is_sent_in_pieces_as_they_come() {
    let answer = sockets(|query| {
        assert_eq!(query, "limit=3");
        let pieces = ["{\"sockets\":", "", "[]}\n"].map(|piece| Ok(piece.as_bytes().to_vec()));
        Ok(Box::new(pieces.into_iter()))
    });
    assert_eq!((answer.status, answer.body.as_str()), (StatusCode::OK, "{\"sockets\":[]}\n"));
    assert_eq!(answer.headers[header::CONTENT_TYPE], "application/json");
}

#[test]
fn a_page_that_is_broken_off_is_no_whole_answer() {
    let mut state = state(busy_hops(), "127.0.0.1");
    state.sockets = Some(Arc::new(|_| {
        let pieces = [Ok(b"{\"sockets\":[".to_vec()), Err(std::io::Error::other("gone"))];
        Ok(Box::new(pieces.into_iter()))
    }));
    let request = Request::get("/sockets").header(header::HOST, "localhost");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let request = request.body(Body::empty()).unwrap();
        let response = router(Arc::new(state)).oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let error = to_bytes(response.into_body(), usize::MAX).await.unwrap_err();
        assert!(format!("{error:?}").contains("gone"), "{error:?}");
    });
}

#[test]
fn a_page_without_an_answer_says_why() {
    let text = || "because".to_owned();
    let wrong = sockets(move |_| Err(PageError::BadQuery(text())));
    assert_eq!((wrong.status, wrong.body.as_str()), (StatusCode::BAD_REQUEST, "because\n"));
    let gone = sockets(move |_| Err(PageError::Unavailable(text())));
    assert_eq!(gone.status, StatusCode::SERVICE_UNAVAILABLE);
    let busy = sockets(move |_| Err(PageError::Busy(text())));
    assert_eq!(busy.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(busy.headers[header::RETRY_AFTER], "1");
    assert_eq!(get(&local(), "/sockets").status, StatusCode::NOT_FOUND);
}

#[test]
fn sockets_that_are_for_known_users_are_not_shown_at_an_address() {
    let mut state = state(busy_hops(), "127.0.0.1");
    state.sockets = Some(Arc::new(|_| panic!("nobody is asked")));
    state.sockets_elsewhere = Some("ask there".to_owned());
    let state = Arc::new(state);
    let answer = get(&state, "/sockets");
    assert_eq!((answer.status, answer.body.as_str()), (StatusCode::FORBIDDEN, "ask there\n"));
    assert_eq!(get(&state, "/ledger").status, StatusCode::OK);
}

#[test]
fn a_browser_gets_the_page_and_a_program_the_list() {
    let state = local();
    assert!(get(&state, "/").body.contains("/ledger?format=text"));

    let request = Request::get("/").header(header::HOST, "localhost:9464");
    let request = request.header(header::ACCEPT, "text/html,*/*;q=0.8");
    let page = send(&state, request.body(Body::empty()).unwrap());
    assert_eq!(page.headers[header::CONTENT_TYPE], "text/html; charset=utf-8");
    let policy = page.headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
    assert!(policy.contains("require-trusted-types-for 'script'"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(page.headers["cross-origin-resource-policy"], "same-origin");
    assert_eq!(page.headers[header::REFERRER_POLICY], "no-referrer");
    assert_eq!(page.headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");

    assert_eq!(get(&state, "/ui/index.html").body, page.body);
    assert_eq!(get(&state, "/ui/fleet.html").status, StatusCode::NOT_FOUND);
    assert_eq!(get(&state, "/ui/other.js").status, StatusCode::NOT_FOUND);
    let words: serde_json::Value =
        serde_json::from_str(&get(&state, "/ui/reasons.json").body).unwrap();
    assert_eq!(words["refused"]["cause"], "nobody listens at the target");
}

#[test]
fn the_page_holds_no_figures_and_is_shown_to_all_but_its_data_is_not() {
    let open = Arc::new(state(busy_hops(), "0.0.0.0"));
    assert_eq!(get(&open, "/ui/main.js").status, StatusCode::OK);
    assert_eq!(get(&open, "/ledger").status, StatusCode::FORBIDDEN);
}
