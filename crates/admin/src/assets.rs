//! The browser page from `ui/`: plain modules, embedded unchanged, so that a build needs no other tool and the reviewed files
//! are the ones that run. They contain no figures and are served to everyone, like `/healthz`.

use crate::{AdminState, View};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use ledger::{Reason, RejectClass, Way};
use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

/// The path of the files. The shell is also at `/`.
pub(crate) const BELOW: &str = "/ui/";

/// The page's content security policy: it may run only its own modules and contact only its own server. No string becomes markup
/// (trusted types), and no other page can frame it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const JSON: &str = "application/json";
const SVG: &str = "image/svg+xml";

/// The names of the page itself.
const SHELL: &str = "index.html";
const FLEET_SHELL: &str = "fleet.html";

/// What differs in the shell of a fleet: what the page looks at, and what answers without JavaScript.
const OF_FLEET: [(&str, &str); 2] = [
    ("<html lang=\"en\">", "<html lang=\"en\" data-view=\"fleet\">"),
    (
        "<a href=\"/ledger?format=text\">The ledger as text</a>",
        "<a href=\"/query/completeness\">Its first table as JSON</a>",
    ),
];

fn fleet_shell() -> String {
    let shell = include_str!("../../../ui/index.html").to_owned();
    OF_FLEET.iter().fold(shell, |shell, (of_daemon, of_fleet)| shell.replace(of_daemon, of_fleet))
}

struct Asset {
    name: &'static str,
    content_type: &'static str,
    bytes: Cow<'static, [u8]>,
    etag: HeaderValue,
}

macro_rules! files {
    ($($name:literal: $content_type:ident,)+) => {
        vec![$(Asset::new($name, $content_type, Cow::Borrowed(include_bytes!(concat!("../../../ui/", $name)))),)+]
    };
}

static ASSETS: LazyLock<Vec<Asset>> = LazyLock::new(|| {
    let mut assets = files! {
        "index.html": HTML,
        "icon.svg": SVG,
        "style.css": CSS,
        "panels.css": CSS,
        "main.js": SCRIPT,
        "address.js": SCRIPT,
        "answers.js": SCRIPT,
        "chart.js": SCRIPT,
        "closes.js": SCRIPT,
        "connection.js": SCRIPT,
        "dom.js": SCRIPT,
        "figures.js": SCRIPT,
        "fleet.js": SCRIPT,
        "fleet-trends.js": SCRIPT,
        "flows.js": SCRIPT,
        "heat.js": SCRIPT,
        "history.js": SCRIPT,
        "ledger.js": SCRIPT,
        "overview.js": SCRIPT,
        "poller.js": SCRIPT,
        "query.js": SCRIPT,
        "sinks.js": SCRIPT,
        "sockets.js": SCRIPT,
        "stored.js": SCRIPT,
        "stream.js": SCRIPT,
        "table.js": SCRIPT,
        "trends.js": SCRIPT,
        "verdict.js": SCRIPT,
    };
    assets.push(Asset::new("reasons.json", JSON, Cow::Owned(reasons())));
    assets.push(Asset::new(FLEET_SHELL, HTML, Cow::Owned(fleet_shell().into_bytes())));
    assets
});

impl Asset {
    fn new(name: &'static str, content_type: &'static str, bytes: Cow<'static, [u8]>) -> Asset {
        let etag = format!("\"{:016x}\"", hash(&bytes));
        let etag = HeaderValue::from_str(&etag).expect("hexadecimal digits are a header's value");
        Asset { name, content_type, bytes, etag }
    }

    fn response(&self, asked: &HeaderMap) -> Response {
        let mut response = if asked.get(header::IF_NONE_MATCH) == Some(&self.etag) {
            StatusCode::NOT_MODIFIED.into_response()
        } else {
            let body = match &self.bytes {
                Cow::Borrowed(bytes) => (*bytes).into_response(),
                Cow::Owned(bytes) => bytes.clone().into_response(),
            };
            ([(header::CONTENT_TYPE, self.content_type)], body).into_response()
        };

        let headers = response.headers_mut();
        headers.insert(header::ETAG, self.etag.clone());
        for (name, value) in [
            (header::CONTENT_SECURITY_POLICY, POLICY),
            // Revalidated each time, so that a page never mixes modules of two versions; unchanged files are not sent again.
            (header::CACHE_CONTROL, "no-cache"),
            (header::REFERRER_POLICY, "no-referrer"),
            (header::VARY, "accept"),
            (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        response
    }
}

/// The page, for clients that ask for HTML (browsers). `None` for all others, which get text.
pub(crate) fn shell(view: View, asked: &HeaderMap) -> Option<Response> {
    let accept = asked.get(header::ACCEPT).and_then(|value| value.to_str().ok())?;
    accept.contains("text/html").then(|| find(shell_of(view), asked)).flatten()
}

fn shell_of(view: View) -> &'static str {
    match view {
        View::Daemon => SHELL,
        View::Fleet => FLEET_SHELL,
    }
}

/// Serves one of the files by name. Of the shells, only its own: the others' pages ask for what this server does not have.
pub(crate) async fn show(
    State(state): State<Arc<AdminState>>,
    Path(name): Path<String>,
    asked: HeaderMap,
) -> Response {
    let is_here = !name.ends_with(".html") || name == shell_of(state.view);
    let found = is_here.then(|| find(&name, &asked)).flatten();
    found.unwrap_or_else(|| (StatusCode::NOT_FOUND, "no such part of the page\n").into_response())
}

fn find(name: &str, asked: &HeaderMap) -> Option<Response> {
    ASSETS.iter().find(|asset| asset.name == name).map(|asset| asset.response(asked))
}

/// The ledger's texts for each kind of loss, so that the page says what `weir ledger` says.
fn reasons() -> Vec<u8> {
    let dropped = Reason::ALL.iter().map(|reason| Way::Dropped(*reason));
    let rejected = RejectClass::ALL.iter().map(|class| Way::Rejected(*class));
    let ways = dropped.chain(rejected).chain([Way::Uncertain, Way::Kept]);
    let words: serde_json::Map<String, serde_json::Value> = ways
        .map(|way| {
            let words = serde_json::json!({
                "cause": way.cause(), "advice": way.advice(), "intended": way.is_intended(),
            });
            (way.to_string(), words)
        })
        .collect();
    serde_json::Value::Object(words).to_string().into_bytes()
}

/// 64-bit FNV-1a: tells versions of a file apart; not a cryptographic hash.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_file_of_the_page_is_embedded() {
        let folder = testkit::root().join("ui");
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        let files: BTreeSet<String> = files.map(|name| name.into_string().unwrap()).collect();
        let embedded = ASSETS.iter().map(|asset| asset.name.to_owned());
        let embedded: BTreeSet<String> =
            embedded.filter(|name| !["reasons.json", FLEET_SHELL].contains(&&**name)).collect();
        // The configuration of the type checker is not for browsers.
        assert_eq!(files, embedded.into_iter().chain(["jsconfig.json".to_owned()]).collect());
    }

    #[test]
    fn the_shell_of_a_fleet_differs_where_it_must() {
        let ours = include_str!("../../../ui/index.html");
        assert!(OF_FLEET.iter().all(|(of_daemon, _)| ours.matches(of_daemon).count() == 1));
        assert!(OF_FLEET.iter().all(|(_, of_fleet)| fleet_shell().contains(of_fleet)));
    }

    #[test]
    fn an_asset_is_sent_once() {
        let asset = &ASSETS[0];
        let asked = HeaderMap::from_iter([(header::IF_NONE_MATCH, asset.etag.clone())]);
        assert_eq!(asset.response(&asked).status(), StatusCode::NOT_MODIFIED);
        assert_eq!(asset.response(&HeaderMap::new()).status(), StatusCode::OK);
    }
}
