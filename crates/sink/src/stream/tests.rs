use super::*;
use crate::batch::{Batch, BatchId, Encoded, Part, PartKey};
use crate::options::{BatchLimits, DeliveryOptions, QueueOptions, SinkOptions};
use crate::{ChunkWriter, Fanout, Sink};
use ledger::HopSnapshot;
use record::{Encoding, FieldSet, SocketRecord};
use std::fs;
use std::io::Read;
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use testkit::{DEADLINE, SmallDisk, TempDir, run, skip, wait_for};

const HOST: &str =
    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";

fn line_of(number: u64) -> String {
    format!("{{\"sequence\":{number},\"host\":\"{}\"}}\n", &HOST[..(number % 84) as usize])
}

/// The numbers of all lines; fails on a torn line.
fn numbers_of(text: &str) -> Vec<u64> {
    assert!(text.is_empty() || text.ends_with('\n'), "the last line is torn");
    let number = |line: &str| {
        let rest = line.strip_prefix("{\"sequence\":").and_then(|rest| rest.split_once(','));
        let number = rest.and_then(|(number, _)| number.parse().ok());
        let number = number.unwrap_or_else(|| panic!("torn: {line}"));
        assert_eq!(line_of(number).trim_end(), line, "torn");
        number
    };
    text.lines().map(number).collect()
}

fn lines() -> Content {
    let fields = FieldSet::from_names(["sequence", "host"]).unwrap();
    Content::Records(Encoding::Jsonl, fields)
}

fn options(connector: Connector) -> SinkOptions {
    SinkOptions {
        name: "out".into(),
        origin: "test".into(),
        queue: QueueOptions::default(),
        batch: BatchLimits { rows: 200, bytes: 1 << 20, age: Duration::ZERO },
        delivery: DeliveryOptions::default(),
        spool: None,
        connector,
    }
}

struct Source {
    sink: Sink,
    writer: ChunkWriter,
}

impl Source {
    fn to(options: SinkOptions) -> Source {
        let sink = Sink::open(options).unwrap();
        let fanout = Fanout::default();
        fanout.attach(&sink);
        Source { sink, writer: fanout.writer([7; 16]) }
    }

    fn send(&mut self, numbers: Range<u64>) {
        for number in numbers {
            self.writer.record(&SocketRecord {
                sequence: Some(number),
                time_unix_ns: Some(sys::clock::realtime_ns()),
                host: Some(&HOST[..(number % 84) as usize]),
                ..SocketRecord::default()
            });
        }
        self.writer.flush();
    }

    fn hop(&self) -> HopSnapshot {
        let mut hops = Vec::new();
        self.sink.meter().read(&mut hops);
        hops.remove(0)
    }

    fn wait_until_empty(&self) -> HopSnapshot {
        wait_for("all fates", || self.hop().in_flight.is_zero().then_some(()));
        let hop = self.hop();
        assert_eq!((hop.unaccounted, hop.received), (0, hop.left()), "{hop:?}");
        hop
    }

    fn stop(self) {
        drop(self.writer);
        assert!(self.sink.wait(Instant::now() + DEADLINE).is_zero());
    }
}

fn fate(stream: &mut Stream) -> Fate {
    let part = Part { end: 4, rows: 1, row_bytes: 4, key: PartKey::NONE };
    let encoded = Encoded { bytes: b"1,2\n".to_vec(), parts: vec![part] };
    let (id, token) = (BatchId(1), 0);
    let batch = Batch { id, kind: None, token, encoded, rows: 1, oldest_unix_ns: 0 };
    stream.submit(Attempt { batch: Arc::new(batch), parts: Parts::All }).unwrap();
    let mut done = Vec::new();
    stream.poll(Duration::ZERO, &mut done);
    done.remove(0).fate
}

#[test]
fn a_header_that_could_not_be_written_is_written_with_the_next_attempt() {
    let dir = TempDir::new();
    let path = dir.file("out");
    fs::write(&path, b"").unwrap();
    // A read-only descriptor refuses each write.
    let rest = Arc::new(Mutex::new(b"a,b\n".to_vec()));
    let file = File::open(&path).unwrap();
    let mut stream = Stream::new(file.into(), rest, Durability::Written);
    for _ in 0..2 {
        assert!(matches!(fate(&mut stream), Fate::Failed(_)));
    }
    stream.file = File::options().write(true).open(&path).unwrap();
    assert_eq!(fate(&mut stream), Fate::Acknowledged);
    assert_eq!(fate(&mut stream), Fate::Acknowledged);
    assert_eq!(fs::read(&path).unwrap(), b"a,b\n1,2\n1,2\n");
}

/// A FIFO, open for writing, and its first reader.
fn fifo(path: &Path) -> (File, File) {
    run(Command::new("mkfifo").arg(path));
    let reader = path.to_owned();
    let reader = thread::spawn(move || File::open(reader).unwrap());
    let writer = File::options().write(true).open(path).unwrap();
    (writer, reader.join().unwrap())
}

#[test]
fn a_reader_that_leaves_within_a_row_costs_what_the_ledger_says_and_no_other_row_is_torn() {
    let dir = TempDir::new();
    let path = dir.file("fifo");
    let (writer, mut first) = fifo(&path);
    let mut source =
        Source::to(options(stream(writer.into(), Rest::default(), lines(), Durability::Written)));
    source.send(0..2_000);
    let mut text = vec![0; 30_001];
    first.read_exact(&mut text).unwrap();
    drop(first);
    let before = source.wait_until_empty();
    assert!(before.dropped_for(Reason::WriteError).count > 500, "{before:?}");

    let mut second = File::open(&path).unwrap();
    source.send(2_000..4_000);
    let reader = thread::spawn(move || {
        let mut text = Vec::new();
        second.read_to_end(&mut text).unwrap();
        text
    });
    let hop = source.wait_until_empty();
    source.stop();

    // What was in the pipe when the first reader left is still there for the second.
    text.extend(reader.join().unwrap());
    let numbers = numbers_of(std::str::from_utf8(&text).unwrap());
    let whole = numbers.len() as u64;
    assert!(numbers.is_sorted() && numbers.ends_with(&(2_000..4_000).collect::<Vec<_>>()));
    let uncertain = hop.uncertain.count;
    assert!(uncertain <= 1, "{hop:?}");
    assert!((hop.delivered.count..=hop.delivered.count + uncertain).contains(&whole), "{hop:?}");
}

#[test]
fn a_row_that_a_full_disk_cuts_is_finished_before_another_batch_begins() {
    let Some(disk) = SmallDisk::mount("64k") else {
        skip("mounting a small file system needs root", &["REQUIRE_ALL"]);
        return;
    };
    let path = disk.path().join("out");
    let filler = disk.path().join("filler");
    fs::write(&filler, vec![0; 30_000]).unwrap();
    let file = File::options().append(true).create(true).open(&path).unwrap();
    let mut options = options(stream(file.into(), Rest::default(), lines(), Durability::Written));
    options.delivery.in_flight_max = 4;
    let mut source = Source::to(options);
    source.send(0..800);
    wait_for("the full disk", || source.hop().trouble);
    fs::remove_file(&filler).unwrap();

    let hop = source.wait_until_empty();
    assert_eq!(hop.delivered.count, 800, "{hop:?}");
    assert_eq!(hop.event(ledger::Event::PossibleDuplicates), 0, "{hop:?}");
    let mut numbers = numbers_of(&fs::read_to_string(&path).unwrap());
    numbers.sort_unstable();
    assert_eq!(numbers, (0..800).collect::<Vec<_>>());
    source.stop();
}

#[test]
fn a_batch_that_expires_within_a_row_leaves_the_rest_of_it_to_the_next() {
    let Some(disk) = SmallDisk::mount("64k") else {
        skip("mounting a small file system needs root", &["REQUIRE_ALL"]);
        return;
    };
    let path = disk.path().join("out");
    let filler = disk.path().join("filler");
    fs::write(&filler, vec![0; 30_000]).unwrap();
    let file = File::options().append(true).create(true).open(&path).unwrap();
    let mut options = options(stream(file.into(), Rest::default(), lines(), Durability::Written));
    options.delivery.in_flight_max = 4;
    options.delivery.answer_max = Duration::from_millis(300);
    options.delivery.expire_after = Some(Duration::from_millis(600));
    let mut source = Source::to(options);
    source.send(0..800);
    let expired = || (source.hop().dropped_for(Reason::Expired).count > 0).then_some(());
    wait_for("the expiry", expired);
    let hop = source.wait_until_empty();
    fs::remove_file(&filler).unwrap();
    source.send(800..1_000);
    wait_for("the rows after it", || {
        (source.hop().delivered.count >= hop.delivered.count + 200).then_some(())
    });

    let hop = source.wait_until_empty();
    let numbers = numbers_of(&fs::read_to_string(&path).unwrap());
    let whole = numbers.len() as u64;
    assert!(numbers.ends_with(&(800..1_000).collect::<Vec<_>>()));
    let uncertain = hop.uncertain.count;
    assert!((1..=4).contains(&uncertain), "{hop:?}");
    assert!((hop.delivered.count..=hop.delivered.count + uncertain).contains(&whole), "{hop:?}");
    source.stop();
}
