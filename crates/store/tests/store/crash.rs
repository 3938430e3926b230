//! A process that is killed in the middle of what it does to a store loses nothing that it reported as stored, and leaves no row
//! twice. Each phase has its kills: they count only if the process was in that phase.

mod child;

use crate::support::{SECOND_NS, START_NS, number, open, options};
use child::{CONNECTIONS, FIRST, FOLDER, PHASE};
use rusqlite::{Connection, OpenFlags};
use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use testkit::readback::ParquetCounter;
use testkit::{OwnProgram, Random, TempDir, need_python_module, say, wait_for};

/// Number of times that a process is killed in each phase; by hand, 200.
fn kills() -> u64 {
    std::env::var("WEIR_TEST_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(6)
}

#[test]
fn killed_while_it_inserts() {
    killed("insert");
}

#[test]
fn killed_while_it_seals() {
    killed("seal");
}

/// Between the naming of the file and the end of the transaction that drops the segment's table.
#[test]
fn killed_while_it_drops_a_sealed_segment() {
    killed("drop");
}

#[test]
fn killed_while_it_removes_what_is_old() {
    killed("remove");
}

#[test]
fn killed_while_it_gives_space_back() {
    killed("shrink");
}

#[test]
fn killed_while_it_upgrades_an_older_store() {
    killed("upgrade");
}

#[track_caller]
fn killed(phase: &str) {
    let mut run = Run {
        dir: TempDir::new(),
        next: 0,
        needed: 0,
        counter: has_readers().then(ParquetCounter::start),
        counted: HashSet::new(),
    };
    let program = OwnProgram::copy(&format!("store-{phase}"));
    let mut random = Random(16);
    let (mut hits, mut tries) = (0, 0);
    while hits < kills() {
        tries += 1;
        assert!(tries <= 50 * kills(), "{hits} of {tries} kills were in the phase {phase}");
        let mut victim = Victim::start(&program, &run, phase);
        victim.wait_for_a_moment(&run, phase, &mut random);
        let (is_hit, told) = victim.kill();
        hits += u64::from(is_hit);
        run.check(told);
    }
    run.finish();
    let files = run.counted.len();
    say(&format!(
        "{hits} kills in the phase {phase}, of {tries}: {} polls, {files} files counted by other readers",
        run.next
    ));
}

fn has_readers() -> bool {
    need_python_module("pyarrow") && need_python_module("duckdb")
}

/// What a process said before it was killed.
#[derive(Clone, Copy, Default)]
struct Told {
    /// Polls below it are stored.
    stored: u64,
    /// Polls below it may have been removed for their age.
    needed: u64,
}

/// A process that is killed.
struct Victim {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    told: Told,
    /// Since when it is in its phase.
    began: Option<Instant>,
    /// How long it was in its phase the last time.
    took: Duration,
}

impl Victim {
    fn start(program: &OwnProgram, run: &Run, phase: &str) -> Victim {
        let mut command: Command = program.command(&["crash::child::works_until_it_is_killed"]);
        command.env(FOLDER, run.dir.path()).env(FIRST, run.next.to_string()).env(PHASE, phase);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let told = Told { stored: run.next, needed: run.needed };
        Victim { child, lines, told, began: None, took: Duration::ZERO }
    }

    /// Reads a line of its own, not of the test harness. Returns whether there was one.
    fn hear(&mut self) -> bool {
        let mut own = self.lines.by_ref().map_while(Result::ok);
        let said = own.find_map(|line| Some(line.split_once('@')?.1.to_owned()));
        let Some(said) = said else { return false };
        let number = |text: &str| text.parse().unwrap();
        match said.split_once(' ').unwrap_or((&said, "")) {
            ("begin", _) => self.began = Some(Instant::now()),
            ("end", _) => self.took = self.began.take().map_or(self.took, |began| began.elapsed()),
            ("stored", polls) => self.told.stored = number(polls),
            ("needed", polls) => self.told.needed = number(polls),
            other => panic!("{other:?}"),
        }
        true
    }

    /// Waits for a random moment of its phase, which it has been through before.
    fn wait_for_a_moment(&mut self, run: &Run, phase: &str, random: &mut Random) {
        for _ in 0..2 + random.below(6) {
            self.began = None;
            while self.began.is_none() {
                assert!(self.hear(), "{phase}: it ended by itself");
            }
        }
        let mut longest = self.took;
        if phase == "drop" {
            let files = || whole_files(run.dir.path());
            let named = named(run.dir.path()).len();
            wait_for("the file of a segment", || (files() > named).then_some(()));
            longest /= 4;
        }
        let until =
            Instant::now() + Duration::from_nanos(random.below(1 + longest.as_nanos() as u64));
        while Instant::now() < until {
            std::thread::yield_now();
        }
    }

    /// Kills it. Returns whether that was in its phase, and what it said.
    fn kill(mut self) -> (bool, Told) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        while self.hear() {}
        (self.began.is_some(), self.told)
    }
}

/// A store whose processes are killed one after the other.
struct Run {
    dir: TempDir,
    /// The number of the next poll.
    next: u64,
    /// Polls from here on must be there.
    needed: u64,
    counter: Option<ParquetCounter>,
    /// Files that other readers have counted. A file does not change.
    counted: HashSet<String>,
}

impl Run {
    /// Checks the store as the killed process left it.
    fn check(&mut self, told: Told) {
        let folder = self.dir.path();
        let polls = number(folder, "SELECT ifnull(max(poll) + 1, 0) FROM sockets") as u64;
        let first = number(folder, "SELECT ifnull(min(poll), 0) FROM sockets") as u64;
        // What was committed and not yet told may be there.
        assert!(polls >= told.stored, "{polls} polls are there, and {} were told", told.stored);
        assert!(first <= told.needed, "poll {first} is the first, and not {}", told.needed);
        (self.next, self.needed) = (polls, told.needed);

        let rows = ((polls - first) * CONNECTIONS) as i64;
        for statement in [
            "SELECT count(*) FROM sockets",
            "SELECT count(DISTINCT sequence) FROM sockets",
            "SELECT ifnull(sum(rows), 0) FROM segments",
        ] {
            assert_eq!(number(folder, statement), rows, "{statement}");
        }
        let until = START_NS + polls * SECOND_NS;
        let later = format!("SELECT count(*) FROM sockets WHERE time_unix_ns >= {until}");
        assert_eq!(number(folder, &later), 0);
        check_sums(folder, first, polls);

        let connection = read_only(folder);
        let verdict: String =
            connection.pragma_query_value(None, "integrity_check", |row| row.get(0)).unwrap();
        assert_eq!(verdict, "ok");
        self.count_files();
    }

    /// Every file has as many rows for other readers as the database says.
    fn count_files(&mut self) {
        let Some(counter) = &mut self.counter else { return };
        for (name, rows) in named(self.dir.path()) {
            if self.counted.insert(name.clone()) {
                let counts = counter.rows(&self.dir.file("raw").join(&name));
                assert_eq!(counts, [rows, rows], "{name}");
            }
        }
    }

    /// The next process takes the store as it is, removes what the others left, and can seal all of it.
    fn finish(&mut self) {
        let mut writer = open(&options(self.dir.path())).unwrap();
        writer.seal_all().unwrap();
        self.check(Told { stored: self.next, needed: self.needed });
        let files = fs::read_dir(self.dir.file("raw")).unwrap().count();
        assert_eq!(files, named(self.dir.path()).len());
        assert_eq!(number(self.dir.path(), "SELECT count(*) FROM segments WHERE file IS NULL"), 0);
    }
}

/// The sums of each minute are those of its polls, and no minute with rows lacks its sum.
fn check_sums(folder: &Path, first: u64, polls: u64) {
    let sums = "SELECT ifnull(sum(records), 0) FROM sockets_minute WHERE dimension = 'all'";
    for minute in first / 60..polls.div_ceil(60) {
        let time = START_NS + minute * 60 * SECOND_NS;
        let expected = ((polls - minute * 60).min(60) * CONNECTIONS) as i64;
        let sum = number(folder, &format!("{sums} AND time_unix_ns = {time}"));
        assert_eq!(sum, expected, "minute {minute}");
    }
}

/// A connection that changes nothing: the next process must find what the killed one left.
fn read_only(folder: &Path) -> Connection {
    let path = folder.join("history.sqlite");
    Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap()
}

/// The files that the database names, and their rows.
fn named(folder: &Path) -> Vec<(String, u64)> {
    let connection = read_only(folder);
    let mut statement =
        connection.prepare("SELECT file, rows FROM segments WHERE file IS NOT NULL").unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)? as u64)));
    rows.unwrap().map(Result::unwrap).collect()
}

/// Number of files with their final name.
fn whole_files(folder: &Path) -> usize {
    let names = fs::read_dir(folder.join("raw")).unwrap();
    names
        .filter(|name| !name.as_ref().unwrap().file_name().to_string_lossy().starts_with('.'))
        .count()
}
