//! Buckets on a real server, read by its own clients.

#[cfg(feature = "http")]
mod side_requests;

use crate::outage::{Outage, beside, with_spool, without_spool};
use crate::parquet::{START_UNIX_NS, hop};
use crate::support::{Source, number_and_filling, numbered, options};
use crate::{rows, sflow};
use ledger::{HopSnapshot, Trouble};
use record::{ChunkBuilder, Encoder, Encoding, FieldSet, Frame, RowKind, SocketRecord};
use sink::batch::{Attempt, Batch, BatchId, Encoded, Part, PartKey, Parts};
use sink::{
    BatchLimits, DeliveryOptions, Fanout, Login, NumberEncoding, QueueOptions, ReadBack, S3Options,
    SecretSource, Sink, SinkOptions, TlsOptions,
};
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use testkit::proxy::Fault;
use testkit::readback::{self, At};
use testkit::servers::{Certificate, Own, Server, unique};
use testkit::{DEADLINE, Random, TempDir, wait_for};

/// A bucket of a server, and the file with the secret of its key.
struct Store {
    server: SocketAddr,
    bucket: String,
    folder: TempDir,
}

impl Store {
    fn new(server: SocketAddr) -> Store {
        Store::of(server, server)
    }

    /// Creates the bucket through one address, for use through the other.
    fn of(at: impl Into<At>, server: SocketAddr) -> Store {
        let store = Store::without_bucket(server);
        readback::make_bucket(at, &store.bucket);
        store
    }

    fn without_bucket(server: SocketAddr) -> Store {
        let folder = TempDir::new();
        fs::write(folder.file("secret"), "geheim\n").unwrap();
        Store { server, bucket: unique("records"), folder }
    }

    /// The same over TLS, verified by this authority or by the system's.
    fn secured(&self, ca: Option<String>) -> S3Options {
        let endpoint = Some(format!("https://{}", self.server));
        let tls = TlsOptions { ca: ca.map(Into::into), ..TlsOptions::default() };
        S3Options { endpoint, tls, ..self.options() }
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

/// An object for every `rows` rows.
fn sink_options(options: S3Options, rows: usize) -> SinkOptions {
    SinkOptions {
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
        connector: sink::s3(options, FieldSet::ALL, NumberEncoding::default()),
    }
}

fn open(options: S3Options, rows: usize) -> Sink {
    Sink::open(sink_options(options, rows)).unwrap()
}

/// Sends records to a sink, and returns them as JSON lines.
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

/// Compares the objects of a bucket with the lines.
fn compare(store: &Store, lines: &[u8], objects: usize) {
    assert_eq!(save(store), objects);
    fs::write(store.folder.file("sockets.jsonl"), lines).unwrap();
    crate::parquet::compare(store.folder.path());
}

/// Saves the objects of a bucket as files, and returns how many there are.
fn save(store: &Store) -> usize {
    let found = readback::bucket(store.server, &store.bucket);
    let count = found.len();
    for object in found {
        let name = String::from_utf8(object.key.unwrap()).unwrap();
        let below = name.strip_prefix("weir/eu/").expect("the prefix stands before the name");
        let path = store.folder.file("records").join(below);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, object.payload).unwrap();
    }
    count
}

#[test]
fn a_sink_s_100_000_records_are_all_in_its_bucket() {
    let Some(server) = Server::S3.shared() else { return };
    let store = Store::new(server);
    // The first object is longer than a part, the second fits in one request.
    let sink = open(store.options(), 90_000);
    let lines = write(&sink, 100_000);
    let hop = end(sink);
    assert_eq!((hop.delivered.count, hop.dropped_total().count), (100_000, 0), "{hop:?}");
    compare(&store, &lines, 2);
    assert_eq!(readback::bucket_uploads(server, &store.bucket), [""; 0]);
}

#[test]
fn rows_of_sflow_are_all_in_its_bucket() {
    let Some(server) = Server::S3.shared() else { return };
    let store = Store::new(server);
    let rows = sflow::rows(testkit::rows());
    let mut source = Source::to(vec![open(store.options(), 90_000)]);
    sflow::write(&mut source, &rows);
    let sink = source.sinks.remove(0);
    drop(source);
    assert_eq!(end(sink).delivered.count, rows.len() as u64);

    for kind in [RowKind::Flow, RowKind::Counters, RowKind::FlowTotals] {
        let lines = sflow::lines_of(&rows, kind);
        fs::write(store.folder.file(&format!("{}.jsonl", kind.table())), lines).unwrap();
    }
    // At least one for each kind.
    assert!(save(&store) >= 3);
    crate::parquet::compare(store.folder.path());
}

/// Sends rows for an object of some 24 MiB, in three parts.
fn write_large(sink: &Sink) {
    let fanout = Fanout::default();
    fanout.attach(sink);
    let (mut writer, mut random) = (fanout.writer([7; 16]), Random(8));
    for sequence in 0..LARGE_ROWS {
        let tail: Vec<u8> = (0..8_000).flat_map(|_| random.next().to_le_bytes()).collect();
        writer.record(&SocketRecord {
            sequence: Some(sequence),
            tcp_info_tail: Some(&tail),
            ..SocketRecord::default()
        });
    }
}

const LARGE_ROWS: u64 = 400;

#[test]
fn an_upload_that_fails_or_hangs_leaves_no_parts_behind() {
    let Some((server, proxy)) = Server::S3.start_with_proxy() else { return };
    let store = Store::of(&server, proxy.addr());
    let delivery = DeliveryOptions {
        retry_max: Duration::from_millis(100),
        answer_max: Duration::from_secs(3),
        ..DeliveryOptions::default()
    };
    let uploads = || readback::bucket_uploads(&server, &store.bucket);

    // Each part is cut off, and so is each attempt.
    proxy.set(Fault::ResetAfter { sent_bytes: 5 << 20 });
    let sink =
        Sink::open(SinkOptions { delivery, ..sink_options(store.options(), 1_000) }).unwrap();
    write_large(&sink);
    let meter = sink.meter();
    sink.close(Instant::now() + 2 * DEADLINE);
    wait_for("attempts to fail", || (proxy.fired() > 4).then_some(()));

    // Then it hangs in the middle of one, until the sink abandons it.
    proxy.set(Fault::Slow { bytes_per_sec: 1 << 20 });
    wait_for("an upload to begin", || (!uploads().is_empty()).then_some(()));
    proxy.set(Fault::Hang);
    let says = |trouble: &Trouble| trouble.what.contains("answers nothing");
    wait_for("it to be given up", || hop(&*meter).trouble.filter(says));
    assert!(!uploads().is_empty(), "nothing is there to be removed");

    proxy.set(Fault::None);
    let hop = end(sink);
    assert_eq!(hop.delivered.count, LARGE_ROWS, "{hop:?}");
    assert_eq!(uploads(), [""; 0]);
    let objects = readback::bucket(&server, &store.bucket);
    let path = store.folder.file("large.parquet");
    fs::write(&path, &objects[0].payload).unwrap();
    let rows = readback::parquet_by_arrow(&[path]);
    let sequences = rows.iter().map(|row| row["sequence"].as_u64().unwrap());
    assert_eq!(objects.len(), 1);
    assert!(sequences.eq(0..LARGE_ROWS));
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
    // Both writers made the same records with their own ids, so there are two objects for each time.
    assert_eq!(first, second);
    assert_eq!(readback::bucket(store.server, &store.bucket).len(), 8);
}

/// A server that is killed, and the bucket whose row numbers are read.
struct Away(Own, String);

impl Outage for Away {
    fn stop(&mut self) {
        self.0.kill();
    }

    fn start(&mut self) {
        self.0.restart();
    }

    fn numbers(&mut self) -> Vec<u64> {
        numbers(&self.0, &self.1)
    }
}

fn numbers(server: &Own, bucket: &str) -> Vec<u64> {
    let folder = TempDir::new();
    let save = |(at, object): (usize, readback::Message)| {
        let path = folder.file(&format!("{at}.parquet"));
        fs::write(&path, object.payload).unwrap();
        path
    };
    let objects = readback::bucket(server, bucket).into_iter().enumerate();
    let files: Vec<PathBuf> = objects.map(save).collect();
    let rows = readback::parquet_by_arrow(&files);
    let number = |row: &serde_json::Value| {
        let number = row["sequence"].as_u64().unwrap();
        assert_eq!(row["host"].as_str(), numbered(number).host);
        number
    };
    rows.iter().map(number).collect()
}

/// Objects of at most 2,000 rows of [`numbered`].
fn numbered_options(store: &Store) -> SinkOptions {
    SinkOptions {
        batch: BatchLimits { rows: 2_000, bytes: 8 << 20, age: Duration::from_millis(50) },
        delivery: DeliveryOptions {
            in_flight_max: 2,
            retry_max: Duration::from_millis(500),
            ..DeliveryOptions::default()
        },
        ..options("s3", sink::s3(store.options(), number_and_filling(), NumberEncoding::default()))
    }
}

#[test]
fn an_outage_without_a_spool_loses_what_it_says() {
    let Some(server) = Server::S3.start() else { return };
    let store = Store::new(server.addr());
    without_spool(Away(server, store.bucket.clone()), || numbered_options(&store));
}

#[test]
fn an_outage_with_a_spool_loses_nothing_and_repeats_nothing() {
    let Some(server) = Server::S3.start() else { return };
    let store = Store::new(server.addr());
    with_spool(Away(server, store.bucket.clone()), || numbered_options(&store));
}

#[test]
fn a_slow_hanging_or_resetting_server_holds_no_other_sink() {
    let Some((server, proxy)) = Server::S3.start_with_proxy() else { return };
    let store = Store::of(&server, proxy.addr());
    let mut options = numbered_options(&store);
    options.batch.rows = 500;
    options.delivery.answer_max = Duration::from_secs(2);
    let hop = beside(
        options,
        &proxy,
        &[
            Fault::Slow { bytes_per_sec: 4_000 },
            Fault::Hang,
            Fault::ResetAfter { sent_bytes: 1_000 },
            Fault::CloseAfter { answered_bytes: 100 },
            Fault::Refuse,
        ],
    );
    let mut numbers = numbers(&server, &store.bucket);
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..hop.received.count), "something is missing, or there twice");
}

#[test]
fn a_batch_is_found_where_it_was_put_and_nothing_else_is_taken_for_it() {
    let Some(server) = Server::S3.shared() else { return };
    let store = Store::new(server);
    let connector = || sink::s3(store.options(), FieldSet::ALL, NumberEncoding::default());
    let mut builder = ChunkBuilder::new(1, [7; 16]);
    (0..10).for_each(|number| builder.record(&numbered(number)));
    let steps = sink::check(connector(), builder.cut(None).unwrap(), DEADLINE);
    let last = steps.last().map(|step| (step.what, step.result.clone()));
    assert_eq!(last, Some(("read back", Ok("the same is there".to_owned()))), "{steps:?}");

    let mut destination = (connector().destination)().unwrap();
    let batch = |bytes: &[u8]| Batch {
        id: BatchId(1),
        kind: Some(RowKind::Record),
        token: 1,
        encoded: Encoded {
            bytes: bytes.to_vec(),
            parts: vec![Part { end: bytes.len(), rows: 1, row_bytes: 1, key: PartKey::NONE }],
        },
        rows: 1,
        oldest_unix_ns: START_UNIX_NS,
    };
    let mut read_back = |wanted: &[u8]| match destination.read_back(&batch(wanted), DEADLINE) {
        ReadBack::Missing(why) => why,
        other => panic!("{other:?}"),
    };
    assert!(read_back(b"one").contains("NoSuchKey"));

    let attempt = Attempt { batch: Arc::new(batch(b"another")), parts: Parts::All };
    destination.submit(attempt).unwrap();
    let mut done = Vec::new();
    wait_for("the object", || {
        destination.poll(Duration::from_millis(20), &mut done);
        done.pop()
    });
    let mut read_back = |wanted: &[u8]| destination.read_back(&batch(wanted), DEADLINE);
    assert_eq!(read_back(b"another"), ReadBack::Found);
    let other = read_back(b"one");
    assert!(matches!(&other, ReadBack::Missing(why) if why.contains("other bytes")), "{other:?}");
}

/// The trouble that the sink reports while rows wait. Checks that neither it nor the options' debug output contains a
/// secret.
fn trouble_of(options: S3Options) -> Trouble {
    assert!(!format!("{options:?}").contains("geheim"), "{options:?}");
    let sink = open(options, 10);
    write(&sink, 10);
    let trouble = wait_for("the trouble", || hop(&*sink.meter()).trouble);
    let _ = sink.wait(Instant::now());
    assert!(!format!("{trouble:?}").contains("geheim"), "{trouble:?}");
    trouble
}

#[track_caller]
fn check(options: S3Options, what: &str, fix: &str) {
    let place = format!("s3://{} at {}", options.bucket, options.endpoint.as_ref().unwrap());
    let trouble = trouble_of(options);
    assert!(trouble.what.starts_with(&place) && trouble.what.contains(what), "{trouble:?}");
    assert!(trouble.fix.contains(fix), "{trouble:?}");
}

#[test]
fn what_is_wrong_is_named_with_cause_and_cure() {
    let Some(server) = Server::S3.shared() else { return };
    let store = Store::new(server);
    let of_bucket = |bucket: &str| S3Options { bucket: bucket.to_owned(), ..store.options() };
    check(of_bucket("no-such-bucket"), "NoSuchBucket", "make the bucket no-such-bucket");
    check(of_bucket("denied-to-all"), "AccessDenied", "s3:PutObject");

    let token = Some(SecretSource::File(store.folder.file("secret")));
    let of_user = |user: &str| {
        let login = store.options().login;
        let login = Login { user: Some(user.to_owned()), token: token.clone(), ..login };
        S3Options { login, ..store.options() }
    };
    check(of_user("somebody"), "InvalidAccessKeyId", "correct user");
    check(of_user("SignatureDoesNotMatch"), "SignatureDoesNotMatch", "password_file");
    check(of_user("InvalidToken"), "InvalidToken", "token_file");
    check(of_user("RequestTimeTooSkewed"), "RequestTimeTooSkewed", "clock");
    check(of_user("AuthorizationHeaderMalformed"), "AuthorizationHeaderMalformed", "region");

    let at = |endpoint: String| S3Options { endpoint: Some(endpoint), ..store.options() };
    let free = format!("127.0.0.1:{}", testkit::free_port());
    check(at(format!("http://{free}")), "refused", &format!("curl -sI http://{free}"));
    check(at(format!("https://{server}")), "", "see that the server speaks TLS on this port");

    fs::remove_file(store.folder.file("secret")).unwrap();
    let trouble = trouble_of(store.options());
    assert!(trouble.what.contains("the secret in") && trouble.fix.contains("ls -l"), "{trouble:?}");
}

#[test]
fn a_key_that_is_mended_in_its_file_is_used() {
    let Some(server) = Server::S3.shared() else { return };
    let store = Store::new(server);
    let secret = store.folder.file("secret");
    fs::rename(&secret, store.folder.file("away")).unwrap();
    let sink = open(store.options(), 10);
    write(&sink, 10);
    wait_for("the trouble", || hop(&*sink.meter()).trouble);
    fs::rename(store.folder.file("away"), &secret).unwrap();
    assert_eq!(end(sink).delivered.count, 10);
}

#[test]
fn only_a_server_with_a_sound_certificate_is_given_anything() {
    let Some(server) = Server::S3.start_secured(Certificate::Valid) else { return };
    let store = Store::of(&server, server.addr());
    let sink = open(store.secured(server.ca()), 10);
    write(&sink, 10);
    assert_eq!(end(sink).delivered.count, 10);
    assert_eq!(readback::bucket(&server, &store.bucket).len(), 1);
    check(store.secured(None), "UnknownIssuer", "tls_ca");

    let Some(expired) = Server::S3.start_secured(Certificate::Expired) else { return };
    let store = Store::without_bucket(expired.addr());
    check(store.secured(expired.ca()), "xpired", "renew the server's certificate");
}
