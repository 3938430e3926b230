//! `GET /query` and the pages below it, of a fleet: the same as a daemon's, answered by ClickHouse.

use super::Fleet;
use crate::question::pages::{Given, Turns, list};
use crate::question::{as_json, with_units};
use admin::service::{Asked, Service, Told};
use sink::{AskError, AskErrorKind};
use std::sync::Arc;
use std::time::Duration;
use store::{ClickHouse, Limits, NAMED, Named, expand_for};

/// Longest time that the server may take for an answer. With the wait, and what the server may take to say that it is late, it
/// stays below the lifetime of a connection ([`admin::CONNECTION_LIFETIME_MAX`]).
pub(crate) const TIME_MAX: Duration = Duration::from_secs(6);
const WAIT_MAX: Duration = Duration::from_secs(3);
/// What one answer may take of this process, the same as of a daemon.
const LIMITS: Limits = Limits { time: TIME_MAX, rows_max: 10_000, bytes_max: 8 << 20 };

/// The pages of a fleet. A question without a host is about the one that the fleet was opened with.
pub(crate) fn pages(fleet: Fleet) -> Service {
    let fleet = Arc::new(fleet);
    let turns = Arc::new(Turns::new(WAIT_MAX));
    Arc::new(move |asked| {
        let (fleet, turns) = (Arc::clone(&fleet), Arc::clone(&turns));
        Box::pin(async move { turns.take(move || told(&fleet, &asked)).await })
    })
}

fn told(fleet: &Fleet, asked: &Asked) -> Result<Told, Told> {
    let now = sys::clock::realtime_ns();
    let given = Given::read(&asked.query, now).map_err(|why| Told::text(400, &why))?;
    let of_fleet = |named: &&Named| !named.is_of_one_machine();
    let host = given.host.or_else(|| fleet.tables.host.clone());
    let tables = ClickHouse { host, ..fleet.tables.clone() };

    let name = asked.path.strip_prefix("/query").unwrap_or_default().trim_matches('/');
    let (named, statement) = match (name, &given.sql) {
        ("", None) => return Ok(Told::json(format!("{}\n", list(NAMED.iter().filter(of_fleet))))),
        ("", Some(sql)) => (None, expand_for(&tables, sql, &given.parameters)),
        (_, Some(_)) => return Err(Told::text(400, "a question has a name or is SQL, not both")),
        (name, None) => {
            let unknown =
                || Told::text(404, "no question to a fleet has this name; /query lists them");
            let named = NAMED.iter().filter(of_fleet).find(|named| named.name == name);
            let named = named.ok_or_else(unknown)?;
            let statement = named.statement_for(&tables, &given.parameters);
            (Some(named), statement.map_err(|error| Told::text(400, &error.to_string()))?)
        }
    };
    let answer = fleet.ask(&statement, LIMITS).map_err(|error| refusal(&error))?;
    Ok(Told::json(format!("{}\n", as_json(&with_units(answer, named)))))
}

fn refusal(error: &AskError) -> Told {
    let status = match error.kind {
        AskErrorKind::Unreachable | AskErrorKind::Late => 503,
        AskErrorKind::Denied => 403,
        AskErrorKind::Statement => 400,
    };
    Told::text(status, &error.to_string())
}
