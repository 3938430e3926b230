//! The routes of a fleet's view: its history, and the page, which learns from its first file that it looks at a fleet.

use crate::http::show_query;
use crate::{AdminState, View, assets};
use axum::Router;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use std::sync::Arc;

/// None of a daemon's: the server has none.
pub(crate) fn routes() -> Router<Arc<AdminState>> {
    Router::new()
        .route("/", get(index))
        .route("/ui/{name}", get(assets::show))
        .route("/query", get(show_query))
        .route("/query/{*below}", get(show_query))
        .route("/healthz", get(async || "ok\n"))
}

async fn index(headers: HeaderMap) -> Response {
    let vary = [(header::VARY, "accept")];
    assets::shell(View::Fleet, &headers).unwrap_or_else(|| (vary, INDEX).into_response())
}

const INDEX: &str = "weir view\n\n\
     /query           questions to the fleet's history; below it their answers, and ?sql=... (JSON)\n\
     /healthz         200 while this program runs, whether ClickHouse answers or not\n\
     /ui/fleet.html   a page for browsers, which get it at / too\n";
