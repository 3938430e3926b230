//! `GET /query` and the pages below it: the history in this daemon's store, as JSON.

use super::flow_pages::on_a_thread;
use crate::question::{LIMIT_DEFAULT, as_json, moment, with_units};
use admin::service::{Answer, Asked, Asker, Service, Told, pairs};
use serde_json::{Value as Json, json};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use store::{Error, Limits, NAMED, Named, Parameters, Reader};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Queries that run at the same time: each reads files, next to the data loops.
const QUESTIONS_MAX: usize = 2;
/// Queries that may wait for their turn.
const WAITING_MAX: usize = 32;
/// Time limit of a query. Together with the wait it stays below the lifetime of a connection
/// ([`admin::CONNECTION_LIFETIME_MAX`]).
const TIME_MAX: Duration = Duration::from_secs(5);
/// Most rows in an answer.
const ROWS_MAX: usize = 10_000;
/// What one answer may take of the daemon, of which two are worked on at a time.
const LIMITS: Limits = Limits { time: TIME_MAX, rows_max: ROWS_MAX, bytes_max: 8 << 20 };

struct Pages {
    folder: PathBuf,
    /// The refusal for unknown users who ask about sockets while the store has some of other namespaces.
    only_for_known: String,
    /// Open readers that are idle.
    readers: Mutex<Vec<Reader>>,
    turns: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
}

/// The pages of a store, for the admin server. `only_for_known` is the refusal for unknown users who ask about sockets while
/// the store has some of other namespaces.
pub(super) fn pages(folder: &Path, only_for_known: String) -> Service {
    let pages = Arc::new(Pages {
        folder: folder.to_owned(),
        only_for_known,
        readers: Mutex::default(),
        turns: Arc::new(Semaphore::new(QUESTIONS_MAX)),
        waiting: Arc::new(Semaphore::new(WAITING_MAX)),
    });
    Arc::new(move |asked| answer(Arc::clone(&pages), asked))
}

fn answer(pages: Arc<Pages>, asked: Asked) -> Answer {
    Box::pin(async move {
        let Ok(_waiting) = Arc::clone(&pages.waiting).try_acquire_owned() else {
            return Told::text(429, "too many questions wait");
        };
        let turn = timeout(TIME_MAX, Arc::clone(&pages.turns).acquire_owned()).await;
        let Ok(Ok(turn)) = turn else {
            return Told::text(503, "other questions take all the time that there is; ask again");
        };
        on_a_thread(move || {
            // The thread holds the permit: if the client leaves, no other query starts before this one has ended.
            let _turn = turn;
            pages.told(&asked)
        })
        .await
    })
}

impl Pages {
    fn told(&self, asked: &Asked) -> Result<Told, Told> {
        let now = sys::clock::realtime_ns();
        let given = Given::read(&asked.query, now).map_err(|why| Told::text(400, &why))?;
        let name = asked.path.strip_prefix("/query").unwrap_or_default().trim_matches('/');
        let (named, statement) = match (name, &given.sql) {
            ("", None) => return Ok(Told::json(format!("{}\n", list()))),
            ("", Some(sql)) => (None, store::expand(sql, &given.parameters)),
            (_, Some(_)) => {
                return Err(Told::text(400, "a question has a name or is SQL, not both"));
            }
            (name, None) => {
                let unknown = || Told::text(404, "no question has this name; /query lists them");
                let named = Named::find(name).ok_or_else(unknown)?;
                (Some(named), named.statement(&given.parameters).map_err(|error| refusal(&error))?)
            }
        };
        let is_sensitive = shows_sockets(&asked.path, &asked.query);
        let reader = self.reader().map_err(|error| refusal(&error))?;
        if is_sensitive
            && asked.asker == Asker::Anyone
            && reader.has_foreign_rows().map_err(|error| refusal(&error))?
        {
            self.give_back(reader);
            return Err(Told::text(403, &self.only_for_known));
        }

        // A reader that failed is not reused: the store may have been replaced.
        let answer = reader.ask(&statement, LIMITS).map_err(|error| refusal(&error))?;
        self.give_back(reader);
        Ok(Told::json(format!("{}\n", as_json(&with_units(answer, named)))))
    }

    fn reader(&self) -> Result<Reader, Error> {
        let idle = self.readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.map_or_else(|| Reader::open(&self.folder), Ok)
    }

    fn give_back(&self, reader: Reader) {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner).push(reader);
    }
}

/// The parameters of a request.
struct Given {
    sql: Option<String>,
    parameters: Parameters,
}

impl Given {
    fn read(query: &str, now: u64) -> Result<Given, String> {
        let parameters = Parameters {
            since_unix_ns: now.saturating_sub(crate::question::SINCE_DEFAULT.as_nanos() as u64),
            until_unix_ns: now,
            limit: LIMIT_DEFAULT,
            cookie: None,
            namespace: None,
        };
        let mut given = Given { sql: None, parameters };
        for (name, value) in pairs(query)? {
            let parameters = &mut given.parameters;
            match name.as_str() {
                "sql" => given.sql = Some(value),
                "since" => parameters.since_unix_ns = moment(&value, now)?,
                "until" => parameters.until_unix_ns = moment(&value, now)?,
                "limit" => parameters.limit = number(&name, &value)?,
                "cookie" => parameters.cookie = Some(number(&name, &value)?),
                "namespace" => parameters.namespace = Some(number(&name, &value)?),
                other => {
                    return Err(format!(
                        "\"{}\" is not a parameter; they are since, until, limit, cookie, namespace and sql",
                        other.escape_debug()
                    ));
                }
            }
        }
        Ok(given)
    }
}

fn number<N: std::str::FromStr>(name: &str, text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("{name}: \"{}\" is not such a number", text.escape_debug()))
}

fn list() -> Json {
    let named = NAMED.iter().map(|named| {
        let parameters: Vec<&str> = named.parameters().collect();
        json!({ "name": named.name, "title": named.title(), "parameters": parameters })
    });
    json!({ "queries": named.collect::<Vec<_>>() })
}

fn refusal(error: &Error) -> Told {
    let status = match error {
        Error::Statement(_) | Error::Refused(_) => 400,
        Error::NoStore(_) | Error::Timeout { .. } => 503,
        _ => 500,
    };
    let source = std::error::Error::source(error);
    let text = match source {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    };
    Told::text(status, &text)
}

/// Whether a query shows individual sockets, or may show anything at all. Where sockets of other namespaces are for known users
/// only, such a query is too.
pub(super) fn shows_sockets(path: &str, query: &str) -> bool {
    const SUMS: [&str; 8] = [
        "/query",
        "/query/completeness",
        "/query/losses",
        "/query/ledger-rates",
        "/query/rtt-heat",
        "/query/closes-by-end",
        "/query/top-flows",
        "/query/flow-drops",
    ];
    // As the page's own reading of it, so that no spelling of a path is refused as one thing and answered as another.
    let path = path.trim_end_matches('/');
    !query.is_empty() && path == "/query" || !SUMS.contains(&path)
}

#[cfg(test)]
mod tests {
    use super::shows_sockets;

    #[test]
    fn no_spelling_of_a_path_hides_that_it_shows_sockets() {
        for path in ["/query", "/query/", "/query//"] {
            assert!(shows_sockets(path, "sql=select+*+from+sockets"), "{path}");
            assert!(!shows_sockets(path, ""), "{path}: the list of questions");
        }
        for path in ["/query/recent-closes", "/query/connection/", "/query//worst-peers"] {
            assert!(shows_sockets(path, ""), "{path}");
        }
        assert!(!shows_sockets("/query/losses", "since=1h"));
    }
}
