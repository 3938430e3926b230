//! A process that is killed while it inserts, seals and drops segments loses nothing that it reported as stored.

use crate::support::{SECOND_NS, START_NS, insert_poll, number, options};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use store::{Options, Writer};
use testkit::{OwnProgram, Random, TempDir};

const FOLDER: &str = "WEIR_STORE_CRASH_FOLDER";
const FIRST: &str = "WEIR_STORE_CRASH_FIRST";
const CONNECTIONS: u64 = 200;

/// Number of times that a process is killed; by hand, 200.
fn kills() -> u64 {
    std::env::var("WEIR_TEST_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(12)
}

/// The process that is killed: it inserts, seals all the time, and prints the polls that are stored. Does nothing without a
/// folder.
#[test]
fn writes_until_it_is_killed() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let first: u64 = std::env::var(FIRST).unwrap().parse().unwrap();
    let segment_age = Duration::from_millis(20);
    let options = Options { segment_age, ..options(folder.as_ref()) };
    let mut writer = Writer::open(options).unwrap();
    for poll in first.. {
        insert_poll(&mut writer, poll, CONNECTIONS);
        println!("poll {poll}");
        if poll % 3 == 0 {
            writer.seal_all().unwrap();
            println!("sealed {poll}");
        }
    }
}

fn start(program: &OwnProgram, dir: &TempDir, first: u64) -> Child {
    let mut command: Command = program.command(&["crash::writes_until_it_is_killed"]);
    command.env(FOLDER, dir.path()).env(FIRST, first.to_string());
    command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn nothing_that_was_told_is_lost_and_no_row_is_there_twice() {
    let (dir, program) = (TempDir::new(), OwnProgram::copy("store-crash"));
    let mut random = Random(16);
    let mut next = 0;
    for _ in 0..kills() {
        let mut child = start(&program, &dir, next);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // At a random point between lines of inserting and sealing.
        let mut told = next;
        for _ in 0..3 + random.below(8) {
            let line = lines.by_ref().map(Result::unwrap);
            let Some(line) =
                line.into_iter().find(|line| line.contains("poll ") || line.contains("sealed "))
            else {
                break;
            };
            if let Some(poll) =
                line.rsplit("poll ").next().and_then(|text| text.parse::<u64>().ok())
            {
                told = told.max(poll + 1);
            }
        }
        // A line is printed at the end of a transaction; the signal should arrive anywhere in the next ones.
        let until = Instant::now() + Duration::from_micros(random.below(20_000));
        while Instant::now() < until {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();

        // Polls that were committed and not yet printed may be there.
        let polls = number(dir.path(), "SELECT count(DISTINCT poll) FROM sockets") as u64;
        assert!(polls >= told, "{polls} polls are there, and {told} were told");
        check(&dir, polls);
        next = polls;
    }
    assert!(next > 0);

    let mut writer = Writer::open(options(dir.path())).unwrap();
    writer.seal_all().unwrap();
    check(&dir, next);
    let named = number(dir.path(), "SELECT count(*) FROM segments");
    assert_eq!(fs::read_dir(dir.file("raw")).unwrap().count() as i64, named);
}

fn check(dir: &TempDir, polls: u64) {
    let rows = (polls * CONNECTIONS) as i64;
    assert_eq!(number(dir.path(), "SELECT count(*) FROM sockets"), rows);
    assert_eq!(number(dir.path(), "SELECT count(DISTINCT sequence) FROM sockets"), rows);
    assert_eq!(number(dir.path(), "SELECT ifnull(sum(rows), 0) FROM segments"), rows);
    let sums = "SELECT ifnull(sum(records), 0) FROM sockets_minute WHERE dimension = 'all'";
    assert_eq!(number(dir.path(), sums), rows);
    let until = START_NS + polls * SECOND_NS;
    let statement = format!("SELECT count(*) FROM sockets WHERE time_unix_ns >= {until}");
    assert_eq!(number(dir.path(), &statement), 0);
    let connection = rusqlite::Connection::open(dir.file("history.sqlite")).unwrap();
    let verdict: String =
        connection.pragma_query_value(None, "integrity_check", |row| row.get(0)).unwrap();
    assert_eq!(verdict, "ok");
}
