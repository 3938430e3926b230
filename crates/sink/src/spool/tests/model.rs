//! A spool against a simple model, with random disk faults.

use super::fake::{FakeDisk, Fault, Faults, Fired};
use crate::spool::{AppendError, EntryId, OpenError, Options, Read, Spool, Tally};
use std::collections::VecDeque;
use testkit::Random;

/// Seeds of a normal run; `WEIR_SPOOL_SEEDS=100000 cargo test -p sink --lib spool::tests::model` is the long one.
const SEEDS: u64 = 6_000;

/// One appended entry.
#[derive(Clone)]
struct Appended {
    rows: u32,
    row_bytes: u64,
    bytes: Vec<u8>,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// The next sync makes it durable.
    Appended,
    /// It must survive unless a bit is flipped.
    Durable,
    /// A crash, or a kernel that forgot what it could not write, may have lost it before it was durable.
    AtRisk,
}

impl Appended {
    fn is_durable(&self) -> bool {
        self.state == State::Durable
    }
}

/// What must be true of a spool.
#[derive(Default)]
struct Model {
    /// All entries; number n is at index n - 1.
    all: Vec<Appended>,
    /// How many entries were read, and how many acknowledged.
    read: usize,
    acknowledged: usize,
    /// Ids of the entries read since the last crash.
    ids: VecDeque<EntryId>,
    /// Durable entries that were missing, and bit flips, each of which may explain one.
    missing: u64,
    flips: u64,
    duplicates: u64,
    gaps: u64,
    crashes: u64,
}

impl Model {
    /// Changes the state of the entries that were appended and not synced.
    fn pass_on(&mut self, state: State) {
        for entry in self.all.iter_mut().filter(|entry| entry.state == State::Appended) {
            entry.state = state;
        }
    }
}

struct Run {
    random: Random,
    disk: FakeDisk,
    options: Options,
    spool: Option<Spool<FakeDisk>>,
    model: Model,
    /// Whether the disk sometimes lies about syncs, in one of four runs.
    lies: bool,
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut random = Random(seed);
        let disk = FakeDisk::new(random.next());
        let segment_bytes = 9_000 + random.below(30_000);
        let bytes_max = 8 * segment_bytes + random.below(100_000);
        let options = Options { bytes_max, segment_bytes };
        Run {
            random,
            disk,
            options,
            spool: None,
            model: Model::default(),
            lies: seed.is_multiple_of(4),
        }
    }

    fn step(&mut self) {
        let forgotten = self.disk.fired().count(Fault::ForgottenPages);
        self.one_step();
        if self.disk.fired().count(Fault::ForgottenPages) > forgotten {
            self.model.pass_on(State::AtRisk);
        }
    }

    fn one_step(&mut self) {
        if self.spool.is_none() {
            self.open();
            return;
        }
        match self.random.below(100) {
            0..40 => self.append(),
            40..55 => self.sync(),
            55..80 => self.read(),
            80..90 => self.acknowledge(),
            90..93 => self.crash(),
            93..94 => self.close(),
            94..95 => self.flip(),
            _ => self.change_faults(),
        }
    }

    fn change_faults(&mut self) {
        let mut faults = Faults::default();
        match self.random.below(10) {
            0 => faults.no_space = 200,
            1 => faults.io_error = 30,
            2 => faults.failed_sync = 300,
            3 if self.lies => faults.lying_sync = 300,
            4 => faults.room_bytes = Some(self.disk.bytes() + self.random.index(20_000)),
            5 => faults.is_read_only = true,
            6 => faults.is_away = true,
            7 => faults.stops_after = Some(self.random.below(30)),
            _ => {}
        }
        self.disk.set(faults);
    }

    fn open(&mut self) {
        let crashed = self.random.below(4) == 0;
        let opened = Spool::open(self.disk.clone(), self.options);
        if crashed && self.random.below(3) == 0 {
            // In the middle of opening, or just after.
            drop(opened);
            self.disk.crash();
            return;
        }
        let (spool, recovered) = match opened {
            Ok(opened) => opened,
            Err(OpenError::Io(_)) => return,
            Err(error) => panic!("{error}"),
        };

        let figures = spool.figures();
        assert_eq!(recovered.waiting, figures.waiting);
        let model = &mut self.model;
        let end = (figures.oldest - 1 + recovered.waiting.entries) as usize;
        let from = figures.oldest as usize - 1;
        assert!(end <= model.all.len(), "entries are invented: {end} of {}", model.all.len());
        assert!(from <= model.acknowledged, "acknowledged by nobody");

        // Entries missing at the end are not counted by anyone.
        let gone = model.all.drain(end..).filter(|entry| entry.is_durable()).count();
        model.missing += gone as u64;
        model.pass_on(State::AtRisk);
        model.acknowledged = model.acknowledged.min(end);
        model.duplicates += (model.acknowledged - from) as u64;
        model.read = from;
        model.ids.clear();
        self.spool = Some(spool);
        self.check();
    }

    fn append(&mut self) {
        let len = 1 + self.random.number(6_000) as usize;
        let mut bytes = vec![0; len];
        bytes.fill_with(|| self.random.next() as u8);
        let rows = 1 + self.random.below(100) as u32;
        let row_bytes = self.random.below(10_000);

        let number = self.model.all.len() as u64 + 1;
        match self.spool.as_mut().unwrap().append(rows, row_bytes, &bytes) {
            Ok(id) => {
                assert_eq!(id.number(), number);
                self.model.all.push(Appended { rows, row_bytes, bytes, state: State::Appended });
            }
            Err(AppendError::Unfit) => panic!("{len} bytes are unfit"),
            Err(_) => {}
        }
        self.check();
    }

    fn sync(&mut self) {
        if self.spool.as_mut().unwrap().sync().is_ok() {
            self.model.pass_on(State::Durable);
        }
        self.check();
    }

    /// Whether a sync has lied: then nothing is known to be durable.
    fn has_lied(&self) -> bool {
        self.disk.fired().count(Fault::LyingSync) > 0
    }

    fn read(&mut self) {
        let model = &mut self.model;
        match self.spool.as_mut().unwrap().read() {
            Ok(Some(Read::Entry(entry))) => {
                let expected = &model.all[model.read];
                assert_eq!(entry.id.number(), model.read as u64 + 1);
                assert_eq!((entry.rows, entry.row_bytes), (expected.rows, expected.row_bytes));
                assert_eq!(entry.bytes, expected.bytes);
                model.read += 1;
                model.ids.push_back(entry.id);
            }
            Ok(Some(Read::Gap(gap))) => {
                let end = gap.id.number() as usize;
                assert!(end > model.read && end <= model.all.len(), "{gap:?}");
                let gone = &mut model.all[model.read..end];
                assert_eq!(gap.lost, tally(gone));
                // If there is no space, a segment may be removed before the cursor is written. After a crash its
                // acknowledged entries then seem to be lost.
                let has_been_full = self.disk.fired().count(Fault::NoSpace) > 0;
                let done = if has_been_full { model.acknowledged } else { 0 };
                let counted = done.saturating_sub(model.read).min(gone.len());
                // After a crash the same gap appears again.
                for entry in gone[counted..].iter_mut().filter(|entry| entry.is_durable()) {
                    entry.state = State::AtRisk;
                    model.missing += 1;
                }
                model.gaps += 1;
                model.read = end;
                model.ids.push_back(gap.id);
            }
            Ok(None) => assert_eq!(model.read, model.all.len()),
            Err(_) => {}
        }
        self.check();
    }

    fn acknowledge(&mut self) {
        if self.model.ids.is_empty() {
            return;
        }
        let count = 1 + self.random.index(self.model.ids.len());
        let id = self.model.ids.drain(..count).next_back().unwrap();
        self.spool.as_mut().unwrap().acknowledge(id);
        self.model.acknowledged = self.model.acknowledged.max(id.number() as usize);
        self.check();
    }

    fn crash(&mut self) {
        self.spool = None;
        self.disk.crash();
        self.model.crashes += 1;
    }

    fn close(&mut self) {
        let closed = self.spool.take().unwrap().close().is_ok();
        if closed {
            self.model.pass_on(State::Durable);
        }
    }

    fn flip(&mut self) {
        self.model.flips += u64::from(self.disk.flip_bit());
    }

    fn check(&self) {
        let (model, spool) = (&self.model, self.spool.as_ref().unwrap());
        assert!(
            self.has_lied() || model.missing <= model.flips,
            "{} durable entries are missing, and {} bits were flipped",
            model.missing,
            model.flips
        );

        let figures = spool.figures();
        let from = figures.oldest as usize - 1;
        assert_eq!(figures.waiting, tally(&model.all[from..]));
        assert_eq!(figures.unread, tally(&model.all[model.read..]));
        // A rescue writes entries a second time.
        let limit = self.options.bytes_max + self.options.segment_bytes + 20_000;
        assert!(figures.bytes <= limit, "{figures:?}");
    }

    /// After the last fault everything must work with only the ordinary calls.
    fn recover(&mut self) {
        self.disk.set(Faults::default());
        if self.random.below(2) == 0 {
            self.crash();
        }
        while self.spool.is_none() {
            self.open();
        }
        // Everything waiting is soon read, or counted.
        let deadline = 3 * self.model.all.len() + 100;
        for _ in 0..2 {
            let mut calls = 0;
            while self.model.read < self.model.all.len() {
                self.read();
                calls += 1;
                assert!(calls < deadline, "reading does not end");
            }
            let last = self.model.ids.drain(..).next_back();
            let spool = self.spool.as_mut().unwrap();
            last.into_iter().for_each(|id| spool.acknowledge(id));
            self.model.acknowledged = self.model.all.len();

            let missing = self.model.missing;
            for _ in 0..5 {
                let before = self.model.all.len();
                self.append();
                assert_eq!(
                    self.model.all.len(),
                    before + 1,
                    "no room: {:?}",
                    self.spool.as_ref().unwrap().figures()
                );
            }
            self.spool.as_mut().unwrap().sync().unwrap();
            while self.model.read < self.model.all.len() {
                self.read();
            }
            assert_eq!(self.model.missing, missing);
            let last = self.model.ids.drain(..).next_back().unwrap();
            self.spool.as_mut().unwrap().acknowledge(last);
            self.model.acknowledged = self.model.all.len();
        }
        self.spool.take().unwrap().close().unwrap();
        let (spool, recovered) = Spool::open(self.disk.clone(), self.options).unwrap();
        assert_eq!(recovered, Default::default());
        assert_eq!(spool.figures().bytes, 0);
        assert!(self.disk.bytes() <= 2 * 4096, "{} bytes are left", self.disk.bytes());
    }
}

fn tally(entries: &[Appended]) -> Tally {
    Tally {
        entries: entries.len() as u64,
        rows: entries.iter().map(|entry| u64::from(entry.rows)).sum(),
        row_bytes: entries.iter().map(|entry| entry.row_bytes).sum(),
    }
}

fn run(seed: u64) -> Run {
    let mut run = Run::new(seed);
    let steps = 20 + run.random.below(150);
    for _ in 0..steps {
        run.step();
    }
    run.recover();
    run
}

/// Sums over runs.
#[derive(Default, Debug)]
struct Sums {
    fired: Fired,
    entries: u64,
    durable_missing: u64,
    duplicates: u64,
    gaps: u64,
    crashes: u64,
}

impl Sums {
    fn add(&mut self, run: &Run) {
        for (sum, one) in self.fired.0.iter_mut().zip(run.disk.fired().0) {
            *sum += one;
        }
        self.entries += run.model.all.len() as u64;
        self.durable_missing += run.model.missing;
        self.duplicates += run.model.duplicates;
        self.gaps += run.model.gaps;
        self.crashes += run.model.crashes;
    }
}

#[test]
fn whatever_the_disk_does_each_row_is_read_or_counted() {
    let one = std::env::var("WEIR_SPOOL_SEED").ok().map(|seed| seed.parse().unwrap());
    if let Some(seed) = one {
        run(seed);
        return;
    }
    let seeds = std::env::var("WEIR_SPOOL_SEEDS").map_or(SEEDS, |seeds| seeds.parse().unwrap());

    let mut sums = Sums::default();
    for seed in 0..seeds {
        match std::panic::catch_unwind(|| run(seed)) {
            Ok(run) => sums.add(&run),
            Err(_) => panic!("again: WEIR_SPOOL_SEED={seed}"),
        }
    }

    // A fault that never occurs proves nothing.
    for fired in sums.fired.0 {
        assert!(fired * 20 >= seeds, "{sums:?}");
    }
    for happened in [sums.durable_missing, sums.duplicates, sums.gaps, sums.crashes] {
        assert!(happened * 20 >= seeds, "{sums:?}");
    }
    testkit::say(&format!("spool: {seeds} seeds: {sums:?}"));
}
