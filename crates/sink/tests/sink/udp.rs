//! UDP sinks and their receiver, over real sockets.

use crate::support::{Source, Watch, check_law, dropped, hop, options};
use crate::wire::Wire;
use ledger::{Event, Gauge, Reason};
use record::{FieldSet, PollTotals, SocketRecord};
use sink::receive::{Received, Receiver, ReceiverOptions, StreamReport};
use sink::{HostChanges, UdpOptions};
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};
use sys::socket::{LocalAddress, SendOptions, local_address, mem_info};
use testkit::{DEADLINE, free_port, run, skip, wait_for};

fn source_to(remote: SocketAddr) -> Source {
    let udp = UdpOptions {
        remote: remote.into(),
        send: SendOptions::default(),
        host: HostChanges::default(),
    };
    Source::to_one(options("udp", sink::udp(udp, FieldSet::ALL)))
}

fn receiver_at(address: &str) -> (Receiver, SocketAddr) {
    let receiver = Receiver::open(&ReceiverOptions::new(address.parse().unwrap())).unwrap();
    let Some(LocalAddress::Inet(address)) = local_address(receiver.socket()) else { panic!() };
    (receiver, address)
}

/// Sends one poll of records whose `sequence` continues at `next`.
fn send_poll(source: &mut Source, poll: u64, next: &mut u64, records: u64) {
    let host = "h".repeat(100);
    for _ in 0..records {
        let record = SocketRecord {
            sequence: Some(*next),
            poll: Some(poll),
            host: Some(&host[..(*next % 100) as usize]),
            ..SocketRecord::default()
        };
        source.writer.record(&record);
        *next += 1;
    }
    source.writer.end_of_poll(&PollTotals { poll: Some(poll), ..PollTotals::default() });
}

/// What a receiver passed on.
#[derive(Default)]
struct Taken {
    records: BTreeSet<u64>,
    last: Option<(StreamReport, u64)>,
}

impl Taken {
    fn receive(&mut self, receiver: &mut Receiver) -> usize {
        let take = |received: Received<'_>| match received {
            Received::Record(record) => assert!(self.records.insert(record.sequence.unwrap())),
            Received::Totals(report, totals) => self.last = Some((*report, totals.poll.unwrap())),
        };
        receiver.receive(Duration::from_millis(20), take).unwrap()
    }
}

/// Drops one datagram in five at random, before it reaches the socket.
///
/// Classic BPF can load a random number (`SKF_AD_RANDOM`, include/uapi/linux/filter.h).
fn drop_one_in_five(receiver: &Receiver) {
    let step = |code, jt, k| socket2::SockFilter::new(code, jt, 0, k);
    let program = [
        step(0x20, 0, 0xffff_f000 + 56),
        step(0x35, 1, u32::MAX / 5),
        step(0x06, 0, 0),
        step(0x06, 0, u32::MAX),
    ];
    socket2::SockRef::from(&receiver.socket()).attach_filter(&program).unwrap();
}

fn loses_a_fifth_and_knows_it(address: &str) {
    let (mut receiver, remote) = receiver_at(address);
    let mut source = source_to(remote);
    let watch = Watch::new(source.meters());
    drop_one_in_five(&receiver);
    let (mut taken, mut next) = (Taken::default(), 0);
    for poll in 1..=30 {
        send_poll(&mut source, poll, &mut next, 2_000);
        let meter = source.meters().remove(0);
        wait_for("the sink", || {
            taken.receive(&mut receiver);
            hop(&meter).in_flight.is_zero().then_some(())
        });
        while taken.receive(&mut receiver) > 0 {}
        if let Some((report, last_poll)) = taken.last
            && last_poll == poll
        {
            // The totals of this poll have arrived, so the figure is exact.
            assert_eq!(report.records_sent, next);
            assert_eq!(report.records_missing(), next - taken.records.len() as u64);
            let kernel = mem_info(receiver.socket()).unwrap().dropped_datagrams;
            assert_eq!(report.datagrams_missing(), u64::from(kernel));
        }
    }
    let (report, _) = taken.last.unwrap();
    let lost = report.records_missing() as f64 / report.records_sent as f64;
    assert!((0.1..0.3).contains(&lost), "{lost}");
    assert!(receiver.counts().dropped_by_kernel > 0);
    // One more poll whose totals arrive settles everything.
    wait_for("totals", || {
        send_poll(&mut source, 100, &mut next, 0);
        taken.receive(&mut receiver);
        (taken.last.unwrap().1 == 100).then_some(())
    });
    let (report, _) = taken.last.unwrap();
    assert_eq!(report.records_sent, 60_000);
    assert_eq!(report.records_missing(), 60_000 - taken.records.len() as u64);
    assert_eq!(source.stop(Instant::now() + DEADLINE), []);
    assert!(watch.end() > 0);
}

#[test]
fn what_a_fifth_of_loss_costs_is_known_exactly_after_the_next_totals() {
    loses_a_fifth_and_knows_it("127.0.0.1:0");
}

#[test]
fn the_same_over_ipv6() {
    if UdpSocket::bind("[::1]:0").is_err() {
        skip("this machine has no IPv6", &["REQUIRE_ALL"]);
        return;
    }
    loses_a_fifth_and_knows_it("[::1]:0");
}

#[test]
fn what_a_port_of_this_host_refuses_is_counted_one_by_one() {
    let remote = (Ipv4Addr::LOCALHOST, free_port()).into();
    let mut source = source_to(remote);
    let meter = source.meters().remove(0);
    let mut next = 0;
    for poll in 1..=100 {
        send_poll(&mut source, poll, &mut next, poll);
    }
    wait_for("the refusals", || hop(&meter).in_flight.is_zero().then_some(()));
    check_law(&hop(&meter));
    assert_eq!(dropped(&meter, Reason::Refused), 5_050 + 100);
    wait_for("the gauge", || (hop(&meter).gauges[&Gauge::Up] == 0).then_some(()));

    let receiver = UdpSocket::bind(remote).unwrap();
    send_poll(&mut source, 101, &mut next, 6);
    let mut buffer = [0; 2_000];
    assert!(receiver.recv(&mut buffer).unwrap() > 0);
    wait_for("the delivery", || (hop(&meter).delivered.count == 7).then_some(()));
    wait_for("the gauge", || (hop(&meter).gauges[&Gauge::Up] == 1).then_some(()));
}

#[test]
fn a_record_that_no_datagram_holds_is_counted_and_told() {
    let (mut receiver, remote) = receiver_at("127.0.0.1:0");
    let mut source = source_to(remote);
    let meter = source.meters().remove(0);
    let host = "h".repeat(20_000);
    source.writer.record(&SocketRecord { host: Some(&host), ..SocketRecord::default() });
    let mut next = 0;
    send_poll(&mut source, 1, &mut next, 10);
    let mut taken = Taken::default();
    wait_for("the totals", || {
        taken.receive(&mut receiver);
        taken.last
    });
    let (report, _) = taken.last.unwrap();
    assert_eq!((report.records_missing(), report.records_too_big), (0, 1));
    wait_for("the end", || hop(&meter).in_flight.is_zero().then_some(()));
    assert_eq!(dropped(&meter, Reason::TooBig), 1);
    check_law(&hop(&meter));
    assert_eq!(hop(&meter).received.count, 12);
}

const RIGHT: &str = "10.9.0.2";

/// A source on the left of a wire, to a receiver on its right.
fn across(wire: &Wire) -> (Source, Receiver) {
    let (receiver, remote) = wire.right.inside(|| receiver_at(&format!("{RIGHT}:0")));
    (wire.left.inside(|| source_to(remote)), receiver)
}

/// Sends a poll, and receives until the sink is empty and nothing arrives any more.
fn poll_across(
    (source, receiver): (&mut Source, &mut Receiver),
    taken: &mut Taken,
    (poll, next, records): (u64, &mut u64, u64),
) {
    send_poll(source, poll, next, records);
    let meter = source.meters().remove(0);
    wait_for("the sink", || {
        taken.receive(receiver);
        hop(&meter).in_flight.is_zero().then_some(())
    });
    while taken.receive(receiver) > 0 {}
}

#[test]
fn a_fifth_lost_on_a_wire_is_known_exactly_after_the_next_totals() {
    let Some(wire) = Wire::new(1_500) else { return };
    // The same random filter at the end of the wire: the kernel sees it as loss in the network.
    wire.right.tc("qdisc add dev w clsact");
    let drop_fifth = format!("4,32 0 0 4294963256,53 1 0 {},6 0 0 2,6 0 0 0", u32::MAX / 5);
    let mut filter = Command::new("tc");
    filter.args(["-n", &wire.right.name]);
    filter.args("filter add dev w ingress prio 1 protocol ip bpf da bytecode".split(' '));
    run(filter.arg(&drop_fifth));
    let (mut source, mut receiver) = across(&wire);
    let (mut taken, mut next, mut exact) = (Taken::default(), 0, 0);
    for poll in 1..=40 {
        poll_across((&mut source, &mut receiver), &mut taken, (poll, &mut next, 1_000));
        let Some((report, _)) = taken.last.filter(|(_, last)| *last == poll) else { continue };
        assert_eq!(report.records_sent, next);
        assert_eq!(report.records_missing(), next - taken.records.len() as u64);
        exact += 1;
    }
    assert!((20..40).contains(&exact), "{exact} of 40 totals arrived");
    let received = taken.records.len() as f64 / 40_000.0;
    assert!((0.7..0.9).contains(&received), "{received}");
    assert_eq!(receiver.counts().dropped_by_kernel, 0);
}

#[test]
fn datagrams_keep_to_the_path() {
    let Some(wire) = Wire::new(1_400) else { return };
    let (mut source, mut receiver) = across(&wire);
    let meter = source.meters().remove(0);
    let (mut taken, mut next) = (Taken::default(), 0);
    poll_across((&mut source, &mut receiver), &mut taken, (1, &mut next, 500));
    let limit = |bytes| (hop(&meter).gauge(Gauge::DatagramLimitBytes) == Some(bytes)).then_some(());
    wait_for("the path's limit", || limit(1_372));
    let fragments = || {
        let text =
            wire.left.inside(|| std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap());
        let mut lines = text.lines().filter(|line| line.starts_with("Ip:"));
        let names = lines.next().unwrap().split(' ');
        let mut values = names.zip(lines.next().unwrap().split(' '));
        values.find(|(name, _)| *name == "FragCreates").unwrap().1.parse::<u64>().unwrap()
    };
    assert_eq!(fragments(), 0);
    for netns in [&wire.left, &wire.right] {
        netns.ip("link set w mtu 1300");
    }
    // Datagrams are fragmented until the sink learns of the path MTU, and not afterwards.
    poll_across((&mut source, &mut receiver), &mut taken, (2, &mut next, 500));
    wait_for("the path's limit", || limit(1_272));
    let before = fragments();
    poll_across((&mut source, &mut receiver), &mut taken, (3, &mut next, 500));
    assert_eq!(fragments(), before);
    assert_eq!(taken.records.len() as u64, next);
    // The stream continues: a reader that counts missing records need not join two streams.
    let missing: Vec<_> = receiver.streams().map(|stream| stream.records_missing()).collect();
    assert_eq!(missing, [0]);
    check_law(&hop(&meter));
    assert!(hop(&meter).dropped.is_empty());
}

#[test]
fn a_network_that_is_down_costs_what_is_sent_meanwhile_and_comes_back() {
    let Some(wire) = Wire::new(1_500) else { return };
    wire.left.ip("link set w down");
    let (mut source, mut receiver) = across(&wire);
    let meter = source.meters().remove(0);
    let (mut taken, mut next) = (Taken::default(), 0);
    poll_across((&mut source, &mut receiver), &mut taken, (1, &mut next, 100));
    assert_eq!(dropped(&meter, Reason::NetworkUnreachable), 101);
    wire.left.ip("link set w up");
    let mut poll = 1;
    wait_for("the first totals", || {
        poll += 1;
        poll_across((&mut source, &mut receiver), &mut taken, (poll, &mut next, 100));
        taken.last
    });
    let (report, _) = taken.last.unwrap();
    assert_eq!(report.records_missing(), report.records_sent - taken.records.len() as u64);
    let arrived = taken.records.len();
    let up = |value| (hop(&meter).gauges[&Gauge::Up] == value).then_some(());
    wait_for("the gauge", || up(1));
    wire.left.ip("link set w down");
    poll_across((&mut source, &mut receiver), &mut taken, (poll + 1, &mut next, 100));
    assert_eq!(taken.records.len(), arrived);
    check_law(&hop(&meter));
    wait_for("the gauge", || up(0));
}

#[test]
fn a_neighbour_that_does_not_answer_is_seen_and_holds_nobody() {
    let Some(wire) = Wire::new(1_500) else { return };
    let mut source = wire.left.inside(|| source_to("10.9.0.77:9".parse().unwrap()));
    let meter = source.meters().remove(0);
    let mut next = 0;
    let mut poll = 0;
    wait_for("the reports", || {
        poll += 1;
        let began = Instant::now();
        send_poll(&mut source, poll, &mut next, 100);
        assert!(began.elapsed() < Duration::from_secs(1), "the source was held");
        let seen = hop(&meter);
        check_law(&seen);
        (seen.events.contains_key(&Event::ReturnedDatagrams) && seen.gauges[&Gauge::Up] == 0)
            .then_some(())
    });
    let left = source.stop(Instant::now() + Duration::from_millis(100));
    assert!(left.iter().all(|(name, _)| name == "udp"));
    check_law(&hop(&meter));
    assert!(hop(&meter).in_flight.is_zero());
}

#[test]
fn a_port_that_another_host_refuses_is_seen() {
    let Some(wire) = Wire::new(1_500) else { return };
    let mut source = wire.left.inside(|| source_to(format!("{RIGHT}:9").parse().unwrap()));
    let meter = source.meters().remove(0);
    let (mut poll, mut next) = (0, 0);
    wait_for("a report", || {
        poll += 1;
        send_poll(&mut source, poll, &mut next, 100);
        let seen = hop(&meter);
        check_law(&seen);
        (seen.events.contains_key(&Event::ReturnedDatagrams) && seen.gauges[&Gauge::Up] == 0)
            .then_some(())
    });
    wait_for("the sink", || hop(&meter).in_flight.is_zero().then_some(()));
    let seen = hop(&meter);
    assert_eq!(seen.received, seen.delivered + seen.dropped_total());
}
