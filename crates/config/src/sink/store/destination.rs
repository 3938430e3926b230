//! The store as a destination: a batch is a transaction, and each row is a part.

use ledger::{Event, Gauge, Ledger, Reason, RejectClass, Trouble};
use record::{Row, RowKind};
use sink::batch::{Attempt, Batch, Encoded, Failure, Fate, Outcome, Part, PartKey, Parts, Sent};
use sink::{BatchEncoder, Connector, Destination, Durability, Form, OwnFigures, Pushed, ReadBack};
use std::error::Error as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use store::{Commits, Error, Inserted, Options, Stepped, Writer};
use sys::clock::Now;

/// Time between two writes of the ledger; also the shortest time by which questions sum its rows up.
const LEDGER_INTERVAL: Duration = Duration::from_secs(10);

/// A store in a folder. It also records the ledger, if there is one.
pub(super) fn connector(
    options: Options,
    durability: Durability,
    ledger: Option<Arc<Ledger>>,
) -> Connector {
    // A batch is a transaction, and usually has the rows of a second: each is synced by itself.
    let commits = match durability {
        Durability::Written => Commits::Written,
        Durability::Synced { .. } => Commits::Synced,
    };
    let destination = move || {
        let folder = options.folder.clone();
        let mut writer = Writer::open(options.clone()).map_err(|error| trouble(&folder, &error))?;
        writer.set_commits(commits);
        Ok(Box::new(Store {
            writer,
            folder,
            ledger: ledger.clone(),
            ledger_interval: LedgerInterval::at(Now::read()),
            done: Vec::new(),
            trouble: None,
        }) as Box<dyn Destination>)
    };
    let form = || Form::Mixed(Box::new(Rows::default()));
    Connector { form: Box::new(form), destination: Box::new(destination) }
}

/// The same store to try it out: a batch is inserted and taken back.
pub(super) fn rehearsal(options: Options) -> Connector {
    let destination = move || {
        let folder = options.folder.clone();
        match Writer::open(options.clone()) {
            Ok(writer) => {
                let store = Rehearsal { writer, folder, done: Vec::new() };
                Ok(Box::new(store) as Box<dyn Destination>)
            }
            Err(error @ Error::Locked(_)) => Err(Trouble {
                fix: "if that is the daemon of this configuration, ask it: weir ledger; otherwise give this sink another folder".to_owned(),
                ..trouble(&folder, &error)
            }),
            Err(error) => Err(trouble(&folder, &error)),
        }
    };
    let form = || Form::Mixed(Box::new(Rows::default()));
    Connector { form: Box::new(form), destination: Box::new(destination) }
}

/// Concatenated rows, each preceded by its kind.
#[derive(Default)]
struct Rows {
    encoded: Encoded,
}

impl BatchEncoder for Rows {
    fn push(&mut self, row: &Row<'_>, key: PartKey) -> Pushed {
        self.encoded.bytes.push(row.kind as u8);
        self.encoded.bytes.extend_from_slice(row.bytes);
        let (end, row_bytes) = (self.encoded.bytes.len(), row.bytes.len() as u64);
        self.encoded.parts.push(Part { end, rows: 1, row_bytes, key });
        Pushed::Taken
    }

    fn bytes(&self) -> usize {
        self.encoded.bytes.len()
    }

    fn finish(&mut self) -> Encoded {
        std::mem::take(&mut self.encoded)
    }
}

fn row_of(part: &[u8]) -> (RowKind, &[u8]) {
    let (kind, message) = part.split_first().unwrap_or((&0, &[]));
    let kind = RowKind::ALL.into_iter().find(|one| *one as u8 == *kind);
    (kind.unwrap_or(RowKind::Record), message)
}

struct Store {
    writer: Writer,
    folder: PathBuf,
    ledger: Option<Arc<Ledger>>,
    ledger_interval: LedgerInterval,
    done: Vec<Outcome>,
    /// The error of the last step other than an insert.
    trouble: Option<Trouble>,
}

/// An interval of the wall clock, counted since 1970. The ledger is written once in each: with a timer of its own, every write would be
/// a little later in its interval than the one before, until an interval had none and looked as if nothing had happened in it.
struct LedgerInterval(u64);

impl LedgerInterval {
    fn at(now: Now) -> LedgerInterval {
        LedgerInterval(now.realtime_ns / LEDGER_INTERVAL.as_nanos() as u64)
    }

    /// Whether another has begun, which is the current one then.
    fn ends(&mut self, now: Now) -> bool {
        let before = std::mem::replace(self, LedgerInterval::at(now));
        before.0 != self.0
    }
}

impl Store {
    fn step(&mut self) -> Result<Stepped, Error> {
        let now = Now::read();
        let stepped = self.writer.step(now)?;
        if self.ledger_interval.ends(now) {
            self.record_ledger()?;
        }
        Ok(stepped)
    }

    fn record_ledger(&mut self) -> Result<(), Error> {
        match &self.ledger {
            Some(ledger) => self.writer.record_ledger(&ledger.snapshot()),
            None => Ok(()),
        }
    }
}

impl Destination for Store {
    fn submit(&mut self, attempt: Attempt) -> Result<(), Attempt> {
        let Attempt { batch, parts } = &attempt;
        let places: Vec<usize> = parts.places(batch.encoded.parts.len()).collect();
        let rows = places.iter().map(|place| row_of(batch.part(*place)));
        let inserted = self.writer.insert(rows, Now::read());
        self.done.extend(outcomes(&self.folder, batch, &places, inserted));
        Ok(())
    }

    fn poll(&mut self, _wait: Duration, done: &mut Vec<Outcome>) {
        done.append(&mut self.done);
        match self.step() {
            // Between two steps that are due nothing is tried, and what was wrong still is.
            Ok(Stepped::NotDue) => {}
            Ok(Stepped::Done) => self.trouble = None,
            Err(error) => self.trouble = Some(trouble(&self.folder, &error)),
        }
    }

    fn figures(&self) -> OwnFigures {
        let figures = self.writer.figures();
        OwnFigures {
            events: vec![
                (Event::FilesRemoved, figures.files_removed),
                (Event::LeftoversRemoved, figures.strays_removed),
            ],
            gauges: vec![(Gauge::FolderBytes, figures.bytes)],
            trouble: self.trouble.clone(),
        }
    }

    fn close(&mut self, _wait: Duration, done: &mut Vec<Outcome>) {
        done.append(&mut self.done);
        // What the hops count after this is missing in the stored ledger.
        let _ = self.record_ledger();
    }
}

/// What became of the rows at these places of a batch.
fn outcomes(
    folder: &Path,
    batch: &Batch,
    places: &[usize],
    inserted: Result<Inserted, Error>,
) -> Vec<Outcome> {
    match inserted {
        Ok(inserted) if inserted.unreadable.is_empty() => {
            vec![Outcome::all(batch.id, Fate::Acknowledged)]
        }
        Ok(inserted) => {
            let (unreadable, read): (Vec<_>, Vec<_>) =
                (0..places.len()).partition(|at| inserted.unreadable.binary_search(at).is_ok());
            let of = |some: Vec<usize>| {
                Parts::Some(some.into_iter().map(|at| places[at] as u32).collect())
            };
            let says = "a row is not one that this version can read".to_owned();
            let rejected = Fate::Rejected { class: RejectClass::Invalid, says };
            vec![
                Outcome { batch: batch.id, parts: of(read), fate: Fate::Acknowledged },
                Outcome { batch: batch.id, parts: of(unreadable), fate: rejected },
            ]
        }
        Err(error) => {
            // The transaction was rolled back, so no row of it is stored.
            let failure = Failure {
                sent: Sent::No,
                reason: Some(Reason::WriteError),
                after: None,
                trouble: trouble(folder, &error),
            };
            vec![Outcome::all(batch.id, Fate::Failed(failure))]
        }
    }
}

/// A store that is tried out.
struct Rehearsal {
    writer: Writer,
    folder: PathBuf,
    done: Vec<Outcome>,
}

impl Destination for Rehearsal {
    fn submit(&mut self, attempt: Attempt) -> Result<(), Attempt> {
        let Attempt { batch, parts } = &attempt;
        let places: Vec<usize> = parts.places(batch.encoded.parts.len()).collect();
        let rows = places.iter().map(|place| row_of(batch.part(*place)));
        let inserted = self.writer.rehearse(rows);
        self.done.extend(outcomes(&self.folder, batch, &places, inserted));
        Ok(())
    }

    fn poll(&mut self, _wait: Duration, done: &mut Vec<Outcome>) {
        done.append(&mut self.done);
    }

    fn read_back(&mut self, _batch: &Batch, _wait: Duration) -> ReadBack {
        ReadBack::Cannot("the record was taken back: a history has no test records")
    }
}

fn trouble(folder: &Path, error: &Error) -> Trouble {
    let what = match error.source() {
        Some(source) => format!("store {}: {error}: {source}", folder.display()),
        None => format!("store {}: {error}", folder.display()),
    };
    let folder = folder.display();
    let fix = match error {
        Error::Newer { .. } => {
            "use the Weir that wrote it, or give this sink another folder".to_owned()
        }
        Error::Foreign(_) | Error::Locked(_) => "give this sink another folder".to_owned(),
        error if error.is_full() => {
            format!("free space on the file system of {folder}, or lower history_size")
        }
        _ => format!("see that {folder} can be written: ls -ld {folder}"),
    };
    Trouble { what, fix }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_interval_has_one_write_of_the_ledger_however_late_it_is_asked_for() {
        let at = |ms: u64| Now { monotonic_ns: 0, realtime_ns: ms * 1_000_000 };
        let mut interval = LedgerInterval::at(at(0));
        let writes: Vec<u64> =
            (0..4_000).map(|turn| turn * 930).filter(|ms| interval.ends(at(*ms))).collect();
        let intervals: Vec<u64> = writes.iter().map(|ms| ms / 10_000).collect();
        assert_eq!(intervals, (1..=371).collect::<Vec<u64>>());
    }
}
