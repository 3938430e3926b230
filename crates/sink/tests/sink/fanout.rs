//! Records through all kinds of sinks at once.

use crate::support::{Source, Watch, check_law, fields, file_options, hop, options};
use ledger::{HopSnapshot, Reason};
use record::{Delimited, Encoding, FieldSet, PollTotals, Record, SocketRecord, decode_record};
use sink::receive::{Receiver, ReceiverOptions};
use sink::{ChunkWriter, Connector, Content, Fanout, HostChanges, Sink, SinkOptions, UdpOptions};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use sys::socket::{LocalAddress, SendOptions, local_address};
use testkit::{DEADLINE, TempDir, wait_for};

fn chosen() -> FieldSet {
    fields(&["identity", "state", "rtt_us"])
}

fn open(name: &str, connector: Connector) -> Sink {
    Sink::open(options(name, connector)).unwrap()
}

fn file(path: &Path, encoding: Encoding) -> Connector {
    sink::file(file_options(path), Content::Records(encoding, FieldSet::ALL))
}

fn send(writer: &mut ChunkWriter, polls: u64, per_poll: u64) {
    for poll in 1..=polls {
        for number in 0..per_poll {
            writer.record(&SocketRecord {
                poll: Some(poll),
                sequence: Some((poll - 1) * per_poll + number),
                cookie: Some(1_000_000 + number),
                host: Some("host-of-some-length.example.com"),
                rtt_us: Some(number as u32),
                ..SocketRecord::default()
            });
        }
        writer.end_of_poll(&PollTotals { poll: Some(poll), ..PollTotals::default() });
    }
}

fn hops(source: &Source) -> Vec<HopSnapshot> {
    source.meters().iter().map(hop).collect()
}

#[test]
fn every_sink_gets_everything_in_its_own_form_and_the_law_holds_meanwhile() {
    let dir = TempDir::new();
    let rotated = |name: &str, encoding| {
        let mut options = file_options(&dir.file(name));
        options.rotate_bytes = Some(400_000);
        sink::file(options, Content::Records(encoding, chosen()))
    };
    let mut receiver =
        Receiver::open(&ReceiverOptions::new("127.0.0.1:0".parse().unwrap())).unwrap();
    let Some(LocalAddress::Inet(remote)) = local_address(receiver.socket()) else { panic!() };
    let udp = sink::udp(
        UdpOptions {
            remote: remote.into(),
            send: SendOptions::default(),
            host: HostChanges::default(),
        },
        chosen(),
    );

    let mut sinks = vec![
        open("null", sink::null(Content::Records(Encoding::Protobuf, chosen()))),
        open("udp", udp),
        open("twin", rotated("twin", Encoding::Protobuf)),
    ];
    for encoding in Encoding::ALL {
        sinks.push(open(encoding.name(), rotated(encoding.name(), *encoding)));
    }
    let mut source = Source::to(sinks);
    let watch = Watch::new(source.meters());
    send(&mut source.writer, 20, 1_000);
    wait_for("all sinks", || {
        let _ = receiver.receive(Duration::ZERO, |_| {});
        source.is_empty()
    });

    for hop in hops(&source) {
        check_law(&hop);
        let is_table = matches!(hop.target.as_deref(), Some("csv" | "tsv"));
        assert_eq!(hop.received.count, 20_020, "{hop:?}");
        let left_out = if is_table { 20 } else { 0 };
        assert_eq!(hop.delivered.count, 20_020 - left_out, "{hop:?}");
        assert_eq!(hop.dropped_for(Reason::NotInFormat).count, left_out, "{hop:?}");
    }

    while receiver.receive(Duration::from_millis(50), |_| {}).unwrap() > 0 {}
    let report = receiver.streams().next().unwrap();
    assert_eq!((report.records_received, report.records_missing()), (20_000, 0));
    assert_eq!(source.stop(Instant::now() + DEADLINE), []);
    assert!(watch.end() > 0);
    check_files(&dir);
}

fn check_files(dir: &TempDir) {
    let all = |name: &str| crate::support::rotated(&dir.file(name));
    let bytes = crate::support::rotated_bytes(&dir.file("protobuf"));
    assert!(bytes.len() > 2, "{}", bytes.len());
    let twin = crate::support::rotated_bytes(&dir.file("twin"));
    assert_eq!(bytes.concat(), twin.concat());
    check_protobuf(&bytes);

    let csv = all("csv");
    let header = csv[0].lines().next().unwrap();
    assert!(header.contains("rtt_us"), "{header}");
    let lines: Vec<_> = csv
        .iter()
        .flat_map(|file| {
            let (first, rest) = file.split_once('\n').unwrap();
            assert_eq!(first, header);
            rest.lines()
        })
        .collect();
    assert_eq!(lines.len(), 20_000);
    assert_eq!(all("jsonl").concat().lines().count(), 20_020);

    // Every batch is a separate array, so no file ends inside one.
    let json = all("json");
    assert!(json.iter().all(|file| file.starts_with('[') && file.ends_with("]\n")));
    assert_eq!(json.concat().matches("\"record_kind\":\"totals\"").count(), 20);
}

/// Each file can be read alone, and together they hold everything, in order.
fn check_protobuf(files: &[Vec<u8>]) {
    let mut next = 0;
    let mut polls = 0;
    for file in files {
        for message in Delimited::new(file) {
            match decode_record(message.unwrap()).unwrap() {
                Record::Socket(record) => {
                    assert_eq!(record.sequence, Some(next));
                    next += 1;
                }
                Record::Totals(_) => polls += 1,
                _ => unreachable!("there is no other source"),
            }
        }
    }
    assert_eq!((next, polls), (20_000, 20));
}

#[test]
fn a_record_between_polls_leaves_with_a_flush() {
    let dir = TempDir::new();
    let path = dir.file("records");
    let mut source = Source::to_one(options("file", file(&path, Encoding::Jsonl)));
    source.writer.record(&SocketRecord { sequence: Some(7), ..SocketRecord::default() });
    assert_eq!(source.hop().received.count, 0);
    source.writer.flush();
    source.writer.flush();
    wait_for("the record", || (source.hop().delivered.count == 1).then_some(()));
    assert_eq!(fs::read_to_string(&path).unwrap(), "{\"sequence\":7}\n");
    assert_eq!(source.hop().received.count, 1);
}

#[test]
fn rows_that_come_while_no_sink_is_attached_are_nobodys() {
    let fanout = Fanout::default();
    let mut writer = fanout.writer([0; 16]);
    let record = SocketRecord { sequence: Some(7), ..SocketRecord::default() };
    (0..1_000).for_each(|_| writer.record(&record));
    writer.end_of_poll(&PollTotals::default());

    let null = sink::null(Content::Records(Encoding::Protobuf, FieldSet::ALL));
    let sink = Sink::open(options("null", null)).unwrap();
    (0..10).for_each(|_| writer.record(&record));
    fanout.attach(&sink);
    (0..20).for_each(|_| writer.record(&record));
    writer.flush();
    // A chunk that was begun with a sink is completed without one.
    writer.record(&record);
    fanout.detach(&sink);
    (0..5).for_each(|_| writer.record(&record));
    writer.flush();

    let meter = sink.meter();
    wait_for("the rows", || (hop(&meter).delivered.count == 20).then_some(()));
    assert!(sink.wait(Instant::now() + DEADLINE).is_zero());
    assert_eq!(hop(&meter).received.count, 20);
}

#[test]
fn a_stop_sends_what_waits_and_says_what_did_not_leave() {
    let dir = TempDir::new();
    let path = dir.file("good");
    let good = open("good", file(&path, Encoding::Jsonl));
    let bad = open("bad", file(&dir.file("no/such/folder"), Encoding::Jsonl));
    let mut source = Source::to(vec![good, bad]);
    let meters = source.meters();
    source.send(0..100);
    wait_for("a failure", || {
        hop(&meters[1]).events.contains_key(&ledger::Event::Errors).then_some(())
    });
    let left = source.stop(Instant::now() + Duration::from_millis(400));
    assert_eq!(left.len(), 1);
    assert_eq!((left[0].0.as_str(), left[0].1.count), ("bad", 100));
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 100);
    let bad = hop(&meters[1]);
    assert_eq!(bad.dropped_for(Reason::WriteError).count, 100, "{bad:?}");
    meters.iter().for_each(|meter| check_law(&hop(meter)));
}

#[test]
fn sinks_come_and_go_while_the_source_runs_and_each_chunk_goes_to_one_of_two() {
    let fanout = Fanout::default();
    let null = |name: String| {
        Sink::open(SinkOptions {
            name,
            ..options("", sink::null(Content::Records(Encoding::Protobuf, FieldSet::ALL)))
        })
    };
    let mut sinks = vec![null("0".into()).unwrap()];
    let stays = null("stays".into()).unwrap();
    fanout.attach(&sinks[0]);
    fanout.attach(&stays);
    let meters = [stays.meter(), sinks[0].meter()];
    let watch = Watch::new(meters);

    let mut writer = fanout.writer([1; 16]);
    let changes = Arc::<AtomicU64>::default();
    let seen = Arc::clone(&changes);
    // Run until enough sinks have come and gone, however slow this thread is relative to the other.
    let source = std::thread::spawn(move || {
        let mut polls = 0;
        while polls < 300 || seen.load(Ordering::Acquire) < 20 {
            send(&mut writer, 10, 200);
            polls += 10;
        }
        polls
    });
    while !source.is_finished() {
        let next = null(sinks.len().to_string()).unwrap();
        watch.add(next.meter());
        fanout.replace(sinks.last().unwrap(), &next);
        // The deadline is far off, and nobody waits for it: the old sink drains while the next one
        // has the stream.
        sinks.last().unwrap().close(Instant::now() + DEADLINE);
        sinks.push(next);
        changes.fetch_add(1, Ordering::Release);
    }
    let polls = source.join().unwrap();
    fanout.detach(&stays);

    wait_for("the sink that stays", || hop(&stays.meter()).in_flight.is_zero().then_some(()));
    let all = hop(&stays.meter()).delivered;
    assert_eq!(all.count, polls * 201);
    let meters: Vec<_> = sinks.iter().map(Sink::meter).collect();
    sinks.into_iter().for_each(|sink| assert!(sink.wait(Instant::now() + DEADLINE).is_zero()));
    let by_turns = meters.iter().map(|meter| hop(meter).delivered).sum();
    assert_eq!(all, by_turns);
    assert!(meters.len() > 20, "{}", meters.len());
    assert!(watch.end() > 0);
}

#[test]
fn rows_that_no_sink_takes_have_a_name() {
    // One that could not be started.
    let absent = Sink::absent("out".into(), "in".into()).unwrap();
    let fanout = Fanout::default();
    fanout.attach(&absent);
    let mut writer = fanout.writer([1; 16]);
    writer.record(&SocketRecord::default());
    writer.flush();
    writer.try_datagram(&record::DatagramRecord::new(), 1, 0).unwrap();
    writer.try_flush().unwrap();
    let of_absent = hop(&absent.meter());
    check_law(&of_absent);
    assert_eq!((of_absent.received.count, of_absent.dropped_for(Reason::NoSink).count), (2, 2));

    // None is left when a chunk is cut, or there never was one.
    let meter = fanout.meter("in");
    let none: Vec<HopSnapshot> = read(&meter);
    assert_eq!(none, []);
    writer.record(&SocketRecord::default());
    fanout.detach(&absent);
    writer.flush();
    writer.try_datagram(&record::DatagramRecord::new(), 1, 0).unwrap();
    drop(writer);
    let of_nobody = read(&meter).remove(0);
    assert_eq!((of_nobody.received.count, of_nobody.unaccounted), (2, 0));
    assert_eq!(of_nobody.dropped_for(Reason::NoSink).count, 2);
    assert!(absent.wait(Instant::now()).is_zero());
}

fn read(meter: &Arc<dyn ledger::Meter>) -> Vec<HopSnapshot> {
    let mut hops = Vec::new();
    meter.read(&mut hops);
    hops
}
