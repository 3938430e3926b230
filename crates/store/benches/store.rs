//! Inserts an hour of 10,000 sockets that all change at every poll of 10 s into a store, and reports CPU time of the process,
//! bytes, memory, the times of transactions, and those of named queries. `cargo bench -p store --bench store`, with
//! `-- 60` for 60 polls instead of 360; without `--bench` it is a minute of 100 sockets. The store stays in the build folder.

#![expect(clippy::print_stdout, reason = "a bench prints what it finds")]

#[path = "../../record/tests/record/support.rs"]
mod support;

use record::{ChunkBuilder, RowKind, SocketRecord};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use store::{Limits, NAMED, Options, Parameters, Reader, Stepped, Writer};
use sys::clock::{Now, process_cpu_ns};

const START_NS: u64 = 1_795_626_000_000_000_000;
const SECOND_NS: u64 = 1_000_000_000;
const POLL_SECONDS: u64 = 10;
/// Five minutes.
const POLLS_SEALED: u64 = 30;

fn main() {
    // As the daemon does.
    sys::memory::return_large_blocks();
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let (sockets, polls, paced_polls) = if is_bench { (10_000, 360, 60) } else { (100, 6, 2) };
    let polls = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(polls);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-store");
    let _ = std::fs::remove_dir_all(&folder);

    let mut random = testkit::Random(1);
    let connections: Vec<_> = (0..sockets).map(|_| support::realistic(&mut random)).collect();
    drop(a_poll(&connections, 0, &mut random));
    let own_bytes = sys::process::peak_resident_bytes().unwrap_or_default();
    let mut polling = Polling { connections, random };

    let mut writer =
        Writer::open(options(&folder)).expect("the folder of the build can be written");
    insert_at_once(&mut writer, &mut polling, polls);
    writer.seal_all().expect("the disk has room");
    let files: u64 = sizes(&folder.join("raw")).sum();
    writer.step(Now::read()).expect("the disk has room");
    let database = writer.figures().bytes - files;
    println!("{:.1} bytes a raw row sealed", files as f64 / (sockets * polls) as f64);
    println!("{:.2} MB of SQLite for {polls} polls", database as f64 / 1e6);
    let resident_bytes = sys::process::peak_resident_bytes().unwrap_or_default();
    println!(
        "{} MiB resident at most, {} MiB above the {} MiB of the bench's own records",
        resident_bytes >> 20,
        resident_bytes.saturating_sub(own_bytes) >> 20,
        own_bytes >> 20,
    );

    insert_paced(&mut writer, &mut polling, polls..polls + paced_polls);
    writer.seal_all().expect("the disk has room");
    ask_all(&folder, polls);
}

fn options(folder: &Path) -> Options {
    Options {
        folder: folder.to_owned(),
        keep_age: None,
        keep_bytes: None,
        segment_age: Duration::from_secs(3_600),
        keys_max: 1_000,
    }
}

struct Polling {
    connections: Vec<SocketRecord<'static>>,
    random: testkit::Random,
}

/// Inserts one poll after another, and reports what a row costs.
fn insert_at_once(writer: &mut Writer, polling: &mut Polling, polls: u64) {
    let (mut inserting_ns, mut making_ns) = (0, 0);
    let mut transactions = Vec::new();
    let began_ns = process_cpu_ns();
    for poll in 0..polls {
        let before_ns = process_cpu_ns();
        let chunk = a_poll(&polling.connections, poll, &mut polling.random);
        let made_ns = process_cpu_ns();
        making_ns += made_ns - before_ns;
        transactions.push(insert(writer, &chunk));
        inserting_ns += process_cpu_ns() - made_ns;
        if poll % POLLS_SEALED == POLLS_SEALED - 1 {
            writer.seal_all().expect("the disk has room");
        }
    }
    writer.seal_all().expect("the disk has room");
    let all_ns = process_cpu_ns() - began_ns - making_ns;

    let rows = polling.connections.len() as u64 * polls;
    let per_row = |ns: u64| ns as f64 / rows as f64;
    println!("inserting: {:.0} ns of CPU a row", per_row(inserting_ns));
    println!(
        "all, with sealing: {:.0} ns of CPU a row, {:.2} % of a core at 1,000 rows/s",
        per_row(all_ns),
        per_row(all_ns) / 1e4
    );
    print_times("a poll's transaction", transactions);
}

/// Inserts a poll each second, ten times as often as a collector does, while segments are sealed in the background.
fn insert_paced(writer: &mut Writer, polling: &mut Polling, polls: std::ops::Range<u64>) {
    let (mut transactions, mut steps) = (Vec::new(), Vec::new());
    for poll in polls {
        let next = Instant::now() + Duration::from_secs(1);
        transactions.push(insert(writer, &a_poll(&polling.connections, poll, &mut polling.random)));
        while Instant::now() < next {
            let began = Instant::now();
            if writer.step(Now::read()).expect("the disk has room") == Stepped::Done {
                steps.push(began.elapsed());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    print_times("one poll a second: its transaction", transactions);
    print_times("one poll a second: a step of other work", steps);
}

fn insert(writer: &mut Writer, chunk: &record::Chunk) -> Duration {
    let began = Instant::now();
    let rows = chunk.rows().map(|row| (row.kind, row.bytes)).collect::<Vec<(RowKind, &[u8])>>();
    writer.insert(rows.into_iter(), Now::read()).expect("the disk has room");
    began.elapsed()
}

fn print_times(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    println!("{what}: median {:?}, p99 {:?}, longest {:?}", at(50), at(99), at(100));
}

/// The result of a poll: times and counters increase, round-trip times vary.
fn a_poll(
    connections: &[SocketRecord<'static>],
    poll: u64,
    random: &mut testkit::Random,
) -> record::Chunk {
    let mut builder = ChunkBuilder::new(1, [0; 16]);
    for (at, connection) in connections.iter().enumerate() {
        let bytes = connection.bytes_sent.unwrap_or_default() + poll * 10_000;
        builder.record(&SocketRecord {
            time_unix_ns: Some(START_NS + poll * POLL_SECONDS * SECOND_NS + at as u64 * 2_000),
            cookie: Some(1_000_000 + at as u64),
            poll: Some(poll),
            sequence: Some(poll * connections.len() as u64 + at as u64),
            bytes_sent: Some(bytes),
            bytes_acked: Some(bytes),
            bytes_sent_delta: Some(10_000),
            rtt_us: connection
                .rtt_us
                .map(|rtt| rtt / 2 + random.below(u64::from(rtt / 2) + 1) as u32),
            ..*connection
        });
    }
    builder.cut(None).expect("it has rows")
}

fn sizes(folder: &Path) -> impl Iterator<Item = u64> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.metadata().ok())
        .filter(|about| about.is_file())
        .map(|about| about.len())
}

/// The time from nothing to the answer of a question to the sums, with no page of the database in memory. `None` if the system
/// cannot be asked to forget them.
fn ask_cold(folder: &Path, parameters: &Parameters) -> Option<Duration> {
    let mut forget = Command::new("dd");
    forget.arg(format!("if={}", folder.join("history.sqlite").display()));
    forget
        .args(["iflag=nocache", "count=0", "status=none"])
        .status()
        .ok()?
        .success()
        .then_some(())?;
    let began = Instant::now();
    let reader = Reader::open(folder).expect("it was written");
    let statement = NAMED.iter().find(|named| named.name == "worst-peers")?.statement(parameters);
    let statement = statement.expect("it has its parameters");
    reader.ask(&statement, Limits::default()).expect("it is answered");
    Some(began.elapsed())
}

fn ask_all(folder: &Path, polls: u64) {
    let parameters = Parameters {
        since_unix_ns: START_NS,
        until_unix_ns: START_NS + polls * POLL_SECONDS * SECOND_NS,
        limit: 100,
        cookie: Some(1_000_007),
        namespace: None,
    };
    let limits = Limits { time: Duration::from_secs(60), ..Limits::default() };
    let group = "SELECT systemd_unit, count(*), avg(rtt_us) FROM sockets GROUP BY systemd_unit";
    let named = NAMED
        .iter()
        .map(|named| (named.name, named.statement(&parameters).expect("it has its parameters")));
    if let Some(took) = ask_cold(folder, &parameters) {
        println!("worst-peers with a cold cache, opening included: {took:?}");
    }
    for (name, statement) in named.chain([("group all raw rows by unit", group.to_owned())]) {
        let reader = Reader::open(folder).expect("it was written");
        let mut times =
            (0..5).map(|_| reader.ask(&statement, limits).expect("it is answered").elapsed);
        let first = times.next().unwrap_or_default();
        let mut rest: Vec<_> = times.collect();
        rest.sort_unstable();
        println!("{name}: first {first:?}, median {:?}", rest[rest.len() / 2]);
    }
}
