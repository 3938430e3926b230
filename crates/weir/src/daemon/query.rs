//! `GET /query` and the pages below it: the history in this daemon's store, as JSON.

mod helper;

use self::helper::Refusal;
use crate::question::errand::{Errand, Obstacle};
use crate::question::pages::{Given, Turns, list};
use admin::service::{Asked, Asker, Service, Told};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use store::{Clearance, Limits, NAMED, Named};

/// Time limit of a query, and of the wait for its turn. With the time to take the answer, both stay below the lifetime of a
/// connection ([`admin::CONNECTION_LIFETIME_MAX`]).
const TIME_MAX: Duration = Duration::from_secs(5);
/// Most rows in an answer.
const ROWS_MAX: usize = 10_000;
/// What one answer may have of rows, in the process that makes it.
const LIMITS: Limits = Limits { time: TIME_MAX, rows_max: ROWS_MAX, bytes_max: 8 << 20 };

/// The refusals for unknown users.
pub(super) struct ForKnown {
    /// Who asks about sockets while the store has some of other namespaces.
    pub(super) sockets: String,
    /// Who asks about what was received.
    pub(super) contents: String,
}

struct Pages {
    folder: PathBuf,
    for_known: ForKnown,
    turns: Turns,
}

/// The pages of a store, for the admin server.
pub(super) fn pages(folder: &Path, for_known: ForKnown) -> Service {
    let turns = Turns::new(TIME_MAX);
    let pages = Arc::new(Pages { folder: folder.to_owned(), for_known, turns });
    Arc::new(move |asked| {
        let pages = Arc::clone(&pages);
        Box::pin(async move { pages.told(&asked).await.unwrap_or_else(|refusal| refusal) })
    })
}

impl Pages {
    async fn told(&self, asked: &Asked) -> Result<Told, Told> {
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
                let statement = named.statement(&given.parameters);
                (Some(named), statement.map_err(|error| Told::text(400, &error.to_string()))?)
            }
        };
        let clearance = match asked.asker {
            Asker::Known => Clearance::Everything,
            Asker::Anyone => named.map_or(Clearance::Public, Named::clearance),
        };
        let errand = Errand {
            folder: self.folder.clone(),
            named: named.map(|named| named.name.to_owned()),
            statement,
            clearance,
            limits: LIMITS,
            memory_bytes_max: config::QUESTION_BYTES_MAX,
        };

        let turn = self.turns.turn().await?;
        helper::ask(turn, errand).await.map_err(|refusal| self.refused(refusal))
    }

    fn refused(&self, Refusal { obstacle, text }: Refusal) -> Told {
        match obstacle {
            Obstacle::Statement | Obstacle::Memory => Told::text(400, &text),
            Obstacle::Sockets => Told::text(403, &self.for_known.sockets),
            Obstacle::Contents => Told::text(403, &self.for_known.contents),
            Obstacle::Time | Obstacle::NoStore => Told::text(503, &text),
            Obstacle::Failure => Told::text(500, &text),
        }
    }
}
