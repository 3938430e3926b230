//! Questions over HTTP, to a daemon's store or to a fleet: their parameters, and whose turn it is.

use super::{LIMIT_DEFAULT, SINCE_DEFAULT, moment};
use crate::daemon::on_a_thread;
use admin::service::{Told, pairs};
use serde_json::{Value as Json, json};
use std::sync::Arc;
use std::time::Duration;
use store::{Named, Parameters};
use text::units::parse_count;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Queries that may wait for their turn.
const WAITING_MAX: usize = 32;

/// Lets few questions run at a time.
pub(crate) struct Turns {
    turns: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
    wait_max: Duration,
}

impl Turns {
    /// Questions wait for at most `wait_max`.
    pub(crate) fn new(wait_max: Duration) -> Turns {
        Turns {
            turns: Arc::new(Semaphore::new(config::QUESTIONS_MAX)),
            waiting: Arc::new(Semaphore::new(WAITING_MAX)),
            wait_max,
        }
    }

    /// Waits for this question's turn, which lasts until the permit is dropped.
    pub(crate) async fn turn(&self) -> Result<OwnedSemaphorePermit, Told> {
        let Ok(_waiting) = Arc::clone(&self.waiting).try_acquire_owned() else {
            return Err(Told::text(429, "too many questions wait"));
        };
        let turn = timeout(self.wait_max, Arc::clone(&self.turns).acquire_owned()).await;
        turn.ok().and_then(Result::ok).ok_or_else(|| {
            Told::text(503, "other questions take all the time that there is. Fix: ask again")
        })
    }

    /// Answers on a thread that may block, when it is this question's turn.
    pub(crate) async fn take(
        &self,
        answer: impl FnOnce() -> Result<Told, Told> + Send + 'static,
    ) -> Told {
        let turn = match self.turn().await {
            Ok(turn) => turn,
            Err(refusal) => return refusal,
        };
        on_a_thread(move || {
            // The thread holds the permit: if the client leaves, no other query starts before this one has ended.
            let _turn = turn;
            answer()
        })
        .await
    }
}

/// The parameters of a request.
pub(crate) struct Given {
    pub(crate) sql: Option<String>,
    /// Of a fleet, the host; else all of them.
    pub(crate) host: Option<String>,
    pub(crate) parameters: Parameters,
}

impl Given {
    /// Reads what follows the question mark.
    ///
    /// # Errors
    /// It is not understood; the message says what is.
    pub(crate) fn read(query: &str, now: u64) -> Result<Given, String> {
        let parameters = Parameters {
            since_unix_ns: now.saturating_sub(SINCE_DEFAULT.as_nanos() as u64),
            until_unix_ns: now,
            limit: LIMIT_DEFAULT,
            cookie: None,
            namespace: None,
        };
        let mut given = Given { sql: None, host: None, parameters };
        for (name, value) in pairs(query)? {
            let parameters = &mut given.parameters;
            match name.as_str() {
                "host" => given.host = Some(value),
                "sql" => given.sql = Some(value),
                "since" => parameters.since_unix_ns = moment(&value, now)?,
                "until" => parameters.until_unix_ns = moment(&value, now)?,
                "limit" => parameters.limit = number(&name, &value)?,
                "cookie" => parameters.cookie = Some(number(&name, &value)?),
                "namespace" => parameters.namespace = Some(number(&name, &value)?),
                other => {
                    return Err(format!(
                        "\"{}\" is not a parameter; they are since, until, limit, cookie, namespace, sql and, of a fleet, host",
                        other.escape_debug()
                    ));
                }
            }
        }
        Ok(given)
    }
}

fn number<N: TryFrom<u64>>(name: &str, text: &str) -> Result<N, String> {
    parse_count(text).map_err(|error| format!("{name}: \"{}\": {error}", text.escape_debug()))
}

/// The answer of `GET /query`.
pub(crate) fn list<'n>(all: impl Iterator<Item = &'n Named>) -> Json {
    let named = all.map(|named| {
        let parameters: Vec<&str> = named.parameters().collect();
        json!({ "name": named.name, "title": named.title(), "parameters": parameters })
    });
    json!({ "queries": named.collect::<Vec<_>>() })
}
