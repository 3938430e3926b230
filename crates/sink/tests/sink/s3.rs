//! Buckets, with a real server, and what is there as its own clients read it.

use crate::parquet::{START_UNIX_NS, hop};
use crate::rows;
use ledger::HopSnapshot;
use record::{Encoder, Encoding, FieldSet, Frame, SocketRecord};
use sink::{
    BatchLimits, DeliveryOptions, Fanout, Login, QueueOptions, S3Options, SecretSource, Sink,
    SinkOptions, TlsOptions,
};
use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use testkit::servers::{Server, unique};
use testkit::{Random, TempDir, readback, wait_for};

/// A bucket of a server, and the file with the secret of its key.
struct Store {
    server: SocketAddr,
    bucket: String,
    folder: TempDir,
}

impl Store {
    fn new(server: SocketAddr) -> Store {
        let (bucket, folder) = (unique("records"), TempDir::new());
        readback::make_bucket(server, &bucket);
        fs::write(folder.file("secret"), "weir\n").unwrap();
        Store { server, bucket, folder }
    }

    fn options(&self) -> S3Options {
        S3Options {
            bucket: self.bucket.clone(),
            prefix: "weir/eu".to_owned(),
            endpoint: Some(format!("http://{}", self.server)),
            region: Some("us-east-1".to_owned()),
            login: Login {
                user: Some("weir".to_owned()),
                password: Some(SecretSource::File(self.folder.file("secret"))),
                token: None,
            },
            tls: TlsOptions::default(),
            host: "web-1".to_owned(),
        }
    }
}

/// An object for each of these many rows.
fn open(options: S3Options, rows: usize) -> Sink {
    Sink::open(SinkOptions {
        name: "s3".into(),
        origin: "sockets".into(),
        queue: QueueOptions { bytes_max: 1 << 30, ..QueueOptions::default() },
        batch: BatchLimits { rows, bytes: 64 << 20, age: Duration::from_secs(60) },
        delivery: DeliveryOptions {
            in_flight_max: 2,
            retry_max: Duration::from_millis(200),
            ..DeliveryOptions::default()
        },
        spool: None,
        connector: sink::s3(options, FieldSet::ALL),
    })
    .unwrap()
}

/// Hands records to a sink, and returns them as JSON lines.
fn write(sink: &Sink, count: u64) -> Vec<u8> {
    let fanout = Fanout::default();
    fanout.attach(sink);
    let mut writer = fanout.writer([7; 16]);
    let mut encoder = Encoder::new(Encoding::Jsonl, &FieldSet::ALL).framed(Frame::OneKind);
    let (mut random, mut lines) = (Random(31), Vec::new());
    for sequence in 0..count {
        let record = SocketRecord {
            sequence: Some(sequence),
            time_unix_ns: Some(START_UNIX_NS + sequence * 1_000_000),
            ..rows::realistic(&mut random)
        };
        writer.record(&record);
        encoder.encode(&record, &mut lines);
    }
    lines
}

fn end(sink: Sink) -> HopSnapshot {
    let meter = sink.meter();
    let left = sink.wait(Instant::now() + testkit::DEADLINE);
    assert!(left.is_zero(), "{left:?}");
    hop(&*meter)
}

/// Saves the objects of a bucket as files, and compares them with the lines.
fn compare(store: &Store, lines: &[u8], objects: usize) {
    let found = readback::bucket(store.server, &store.bucket);
    assert_eq!(found.len(), objects);
    for object in found {
        let name = String::from_utf8(object.key.unwrap()).unwrap();
        let below = name.strip_prefix("weir/eu/").expect("the prefix stands before the name");
        let path = store.folder.file("records").join(below);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, object.payload).unwrap();
    }
    fs::write(store.folder.file("sockets.jsonl"), lines).unwrap();
    crate::parquet::compare(store.folder.path());
}

#[test]
fn a_sink_s_records_are_all_in_its_bucket() {
    let Some(server) = Server::S3.shared() else { return };
    let store = Store::new(server);
    let sink = open(store.options(), 5_000);
    let lines = write(&sink, 20_000);
    let hop = end(sink);
    assert_eq!((hop.delivered.count, hop.dropped_total().count), (20_000, 0), "{hop:?}");
    compare(&store, &lines, 4);
}

#[test]
fn a_server_that_was_killed_has_every_record_once() {
    let Some(mut server) = Server::S3.start() else { return };
    let store = Store::new(server.addr());
    let sink = open(store.options(), 500);
    let first = write(&sink, 2_000);
    wait_for("the first objects", || (hop(&*sink.meter()).delivered.count == 2_000).then_some(()));

    server.kill();
    let second = write(&sink, 2_000);
    let trouble = wait_for("the trouble", || hop(&*sink.meter()).trouble);
    let at = format!("s3://{} at http://{}: ", store.bucket, store.server);
    assert!(trouble.what.starts_with(&at), "{trouble:?}");
    assert_eq!(trouble.fix, format!("see that it answers: curl -sI http://{}", store.server));
    server.restart();

    let hop = end(sink);
    assert_eq!((hop.delivered.count, hop.dropped_total().count), (4_000, 0), "{hop:?}");
    // Both writers made the same records with ids of their own, so that there are two objects of each time.
    assert_eq!(first, second);
    assert_eq!(readback::bucket(store.server, &store.bucket).len(), 8);
}

#[test]
fn what_is_wrong_is_named_with_cause_and_cure() {
    let Some(server) = Server::S3.shared() else { return };
    let store = Store::new(server);
    let trouble_of = |options: S3Options| {
        let sink = open(options, 10);
        write(&sink, 10);
        let trouble = wait_for("the trouble", || hop(&*sink.meter()).trouble);
        let _ = sink.wait(Instant::now());
        trouble
    };

    let missing = S3Options { bucket: "no-such-bucket".to_owned(), ..store.options() };
    let trouble = trouble_of(missing);
    assert!(trouble.what.contains("NoSuchBucket"), "{trouble:?}");
    assert_eq!(trouble.fix, "make the bucket no-such-bucket, or correct the sink's address");

    let login = Login { user: Some("somebody".to_owned()), ..store.options().login };
    let trouble = trouble_of(S3Options { login, ..store.options() });
    assert!(trouble.what.contains("InvalidAccessKeyId"), "{trouble:?}");
    assert!(
        trouble.fix.starts_with("give the sink a key that may put objects into"),
        "{trouble:?}"
    );

    fs::remove_file(store.folder.file("secret")).unwrap();
    let trouble = trouble_of(store.options());
    assert!(trouble.what.contains("the secret in") && trouble.fix.contains("ls -l"), "{trouble:?}");
}
