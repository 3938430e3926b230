//! Records through all kinds of sinks at once.

use crate::support::{Watch, check_law, hop};
use ledger::{Event, HopSnapshot, Reason};
use record::{Delimited, Encoding, FieldSet, PollTotals, Record, SocketRecord, decode_record};
use sink::receive::{Receiver, ReceiverOptions};
use sink::{Destination, Error, Fanout, QueueLimits, SinkOptions, UdpOptions};
use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use sys::socket::{LocalAddress, SendOptions, local_address};
use testkit::{DEADLINE, TempDir, wait_for};

fn options(name: &str, destination: Box<dyn Destination>, encoding: Encoding) -> SinkOptions {
    SinkOptions {
        name: name.into(),
        queue: QueueLimits::default(),
        destination,
        encoding,
        fields: FieldSet::from_names(["identity", "state", "rtt_us"]).unwrap(),
    }
}

fn send(fanout: &mut Fanout, polls: u64, per_poll: u64) {
    for poll in 1..=polls {
        for number in 0..per_poll {
            fanout.record(&SocketRecord {
                poll: Some(poll),
                sequence: Some((poll - 1) * per_poll + number),
                cookie: Some(1_000_000 + number),
                host: Some("host-of-some-length.example.com"),
                rtt_us: Some(number as u32),
                ..SocketRecord::default()
            });
        }
        fanout.end_of_poll(&PollTotals { poll: Some(poll), ..PollTotals::default() });
    }
}

fn hops(fanout: &Fanout) -> Vec<HopSnapshot> {
    fanout.meters().iter().map(hop).collect()
}

#[test]
fn every_sink_gets_everything_in_its_own_form_and_the_law_holds_meanwhile() {
    let dir = TempDir::new();
    let file = |name: &str| {
        let mut options = crate::support::file_options(&dir.file(name));
        options.rotate_bytes = Some(400_000);
        sink::file(options)
    };
    let mut receiver =
        Receiver::open(&ReceiverOptions::new("127.0.0.1:0".parse().unwrap())).unwrap();
    let Some(LocalAddress::Inet(remote)) = local_address(receiver.socket()) else { panic!() };
    let udp = sink::udp(UdpOptions { remote, send: SendOptions::default() });
    let mut sinks = vec![
        options("null", sink::null(), Encoding::Protobuf),
        options("udp", udp, Encoding::Protobuf),
        options("twin", file("twin"), Encoding::Protobuf),
    ];
    for encoding in Encoding::ALL {
        sinks.push(options(encoding.name(), file(encoding.name()), *encoding));
    }
    let mut fanout = Fanout::open("test", sinks).unwrap();
    let watch = Watch::new(fanout.meters());
    send(&mut fanout, 20, 1_000);
    wait_for("all sinks", || {
        let _ = receiver.receive(Duration::ZERO, |_| {});
        hops(&fanout).iter().all(|hop| hop.in_flight.is_zero()).then_some(())
    });
    for hop in hops(&fanout) {
        check_law(&hop);
        let name = hop.target.as_deref().unwrap();
        let has_totals = !matches!(name, "csv" | "tsv");
        assert_eq!(hop.delivered.count, 20_000 + 20 * u64::from(has_totals), "{hop:?}");
        assert!(hop.dropped.is_empty(), "{hop:?}");
    }
    while receiver.receive(Duration::from_millis(50), |_| {}).unwrap() > 0 {}
    let report = receiver.streams().next().unwrap();
    assert_eq!((report.records_received, report.records_missing()), (20_000, 0));
    assert!(fanout.stop(Instant::now() + DEADLINE).is_empty());
    assert!(watch.end() > 0);
    check_files(&dir);
}

fn check_files(dir: &TempDir) {
    let all = |name: &str| crate::support::rotated(&dir.file(name));
    let bytes = crate::support::rotated_bytes(&dir.file("protobuf"));
    assert!(bytes.len() > 2, "{}", bytes.len());
    assert_eq!(bytes, crate::support::rotated_bytes(&dir.file("twin")));
    let mut next = 0;
    let mut polls = 0;
    // Each file can be read alone.
    for file in bytes {
        for message in Delimited::new(&file) {
            match decode_record(message.unwrap()).unwrap() {
                Record::Socket(record) => {
                    assert_eq!(record.sequence, Some(next));
                    next += 1;
                }
                Record::Totals(_) => polls += 1,
                Record::Datagram(_) => unreachable!("nobody received any"),
            }
        }
    }
    assert_eq!((next, polls), (20_000, 20));
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
    // Every payload is an array of its own, so that no file ends inside one.
    let json = all("json");
    assert!(json.iter().all(|file| file.starts_with('[') && file.ends_with("]\n")));
    assert_eq!(json.concat().matches("\"record_kind\":\"totals\"").count(), 20);
}

#[test]
fn a_record_between_polls_leaves_with_a_flush() {
    let dir = TempDir::new();
    let path = dir.file("records");
    let file = sink::file(crate::support::file_options(&path));
    let mut fanout = Fanout::open("test", vec![options("file", file, Encoding::Jsonl)]).unwrap();
    fanout.record(&SocketRecord { sequence: Some(7), ..SocketRecord::default() });
    assert_eq!(hops(&fanout)[0].received.count, 0);
    fanout.flush();
    fanout.flush();
    wait_for("the record", || (hops(&fanout)[0].delivered.count == 1).then_some(()));
    assert_eq!(fs::read_to_string(&path).unwrap(), "{\"sequence\":7}\n");
    assert_eq!(hops(&fanout)[0].event(Event::Payloads), 1);
}

#[test]
fn a_stop_sends_what_waits_and_says_what_did_not_leave() {
    let dir = TempDir::new();
    let path = dir.file("good");
    let good = sink::file(crate::support::file_options(&path));
    let bad = sink::file(crate::support::file_options(&dir.file("no/such/folder")));
    let sinks = vec![options("good", good, Encoding::Jsonl), options("bad", bad, Encoding::Jsonl)];
    let mut fanout = Fanout::open("test", sinks).unwrap();
    let meters = fanout.meters();
    for sequence in 0..100 {
        fanout.record(&SocketRecord { sequence: Some(sequence), ..SocketRecord::default() });
    }
    let left = fanout.stop(Instant::now() + Duration::from_millis(400));
    assert_eq!(left.len(), 1);
    assert_eq!((left[0].0.as_str(), left[0].1.count), ("bad", 100));
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 100);
    let bad = hop(&meters[1]);
    assert_eq!(bad.dropped_for(Reason::WriteError).count, 100, "{bad:?}");
    meters.iter().for_each(|meter| check_law(&hop(meter)));
}

#[test]
fn what_cannot_work_is_an_error() {
    let remote: SocketAddr = "127.0.0.1:9".parse().unwrap();
    let udp = sink::udp(UdpOptions { remote, send: SendOptions::default() });
    let error = Fanout::open("test", vec![options("u", udp, Encoding::Csv)]).err().unwrap();
    assert_eq!(error.to_string(), "sink u sends datagrams, which are protobuf and not csv");
    let two = [(); 2].map(|()| options("n", sink::null(), Encoding::Csv)).into();
    assert!(matches!(Fanout::open("test", two), Err(Error::SameName { .. })));
}
