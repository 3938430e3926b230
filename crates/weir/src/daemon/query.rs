//! `GET /query` and the pages below it: the history in this daemon's store, as JSON.

use crate::question::pages::{Given, Turns, list};
use crate::question::{as_json, with_units};
use admin::service::{Asked, Asker, Service, Told};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use store::{Error, Limits, NAMED, Named, Reader};

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
}

/// The pages of a store, for the admin server. `only_for_known` is the refusal for unknown users who ask about sockets while
/// the store has some of other namespaces.
pub(super) fn pages(folder: &Path, only_for_known: String) -> Service {
    let pages =
        Arc::new(Pages { folder: folder.to_owned(), only_for_known, readers: Mutex::default() });
    let turns = Arc::new(Turns::new(TIME_MAX));
    Arc::new(move |asked| {
        let (pages, turns) = (Arc::clone(&pages), Arc::clone(&turns));
        Box::pin(async move { turns.take(move || pages.told(&asked)).await })
    })
}

impl Pages {
    fn told(&self, asked: &Asked) -> Result<Told, Told> {
        let now = sys::clock::realtime_ns();
        let given = Given::read(&asked.query, now).map_err(|why| Told::text(400, &why))?;
        if given.host.is_some() {
            return Err(Told::text(400, "\"host\" is for a fleet: this history is of one host"));
        }
        let name = asked.path.strip_prefix("/query").unwrap_or_default().trim_matches('/');
        let (named, statement) = match (name, &given.sql) {
            ("", None) => return Ok(Told::json(format!("{}\n", list(NAMED.iter())))),
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
    const SUMS: [&str; 9] = [
        "/query",
        "/query/completeness",
        "/query/poll-rates",
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
