//! UDP sinks and their receiver, over real sockets.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use ledger::{Event, Gauge, Meter, Reason};
use record::{Encoding, FieldSet, PollTotals, SocketRecord};
use sink::receive::{Received, Receiver, ReceiverOptions, StreamReport};
use sink::{Destination, Fanout, Framing, Payload, QueueLimits, Sink, SinkOptions, UdpOptions};
use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::netns::Wire;
use support::{Watch, check_law, dropped, hop, wait_for};
use sys::socket::{LocalAddress, SendOptions, local_address, mem_info};

fn udp(remote: SocketAddr) -> Box<dyn Destination> {
    sink::udp(UdpOptions { remote, send: SendOptions::default() })
}

fn fanout_to(remote: SocketAddr) -> Fanout {
    let options = SinkOptions {
        name: "udp".into(),
        queue: QueueLimits::default(),
        destination: udp(remote),
        encoding: Encoding::Protobuf,
        fields: FieldSet::ALL,
    };
    Fanout::open("test", vec![options]).unwrap()
}

fn sink_to(remote: SocketAddr) -> (Sink, Arc<dyn Meter>) {
    let sink = support::open("udp", udp(remote), Framing::default());
    let meter = sink.meter();
    (sink, meter)
}

fn receiver_at(address: &str) -> (Receiver, SocketAddr) {
    let receiver = Receiver::open(&ReceiverOptions::new(address.parse().unwrap())).unwrap();
    let Some(LocalAddress::Inet(address)) = local_address(receiver.socket()) else { panic!() };
    (receiver, address)
}

/// Sends one poll of records whose `sequence` goes on from `next`.
fn send_poll(fanout: &mut Fanout, poll: u64, next: &mut u64, records: u64) {
    let host = "h".repeat(100);
    for _ in 0..records {
        let record = SocketRecord {
            sequence: Some(*next),
            poll: Some(poll),
            host: Some(&host[..(*next % 100) as usize]),
            ..SocketRecord::default()
        };
        fanout.record(&record);
        *next += 1;
    }
    fanout.end_of_poll(&PollTotals { poll: Some(poll), ..PollTotals::default() });
}

/// What a receiver was handed.
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

/// Drops one datagram in five, by chance, before the socket gets it.
///
/// The kernel's classic BPF has a random number to load (`SKF_AD_RANDOM`, include/uapi/linux/filter.h).
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
    let mut fanout = fanout_to(remote);
    let watch = Watch::new(fanout.meters());
    drop_one_in_five(&receiver);
    let (mut taken, mut next) = (Taken::default(), 0);
    for poll in 1..=30 {
        send_poll(&mut fanout, poll, &mut next, 2_000);
        let meter = fanout.meters().remove(0);
        wait_for("the sink", || {
            taken.receive(&mut receiver);
            hop(&meter).in_flight.is_zero().then_some(())
        });
        while taken.receive(&mut receiver) > 0 {}
        if let Some((report, last_poll)) = taken.last
            && last_poll == poll
        {
            // The totals of this poll have arrived: from here on the figure is exact.
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
        send_poll(&mut fanout, 100, &mut next, 0);
        taken.receive(&mut receiver);
        (taken.last.unwrap().1 == 100).then_some(())
    });
    let (report, _) = taken.last.unwrap();
    assert_eq!(report.records_sent, 60_000);
    assert_eq!(report.records_missing(), 60_000 - taken.records.len() as u64);
    assert!(fanout.stop(Instant::now() + support::DEADLINE).is_empty());
    assert!(watch.end() > 0);
}

#[test]
fn what_a_fifth_of_loss_costs_is_known_exactly_after_the_next_totals() {
    loses_a_fifth_and_knows_it("127.0.0.1:0");
}

#[test]
fn the_same_over_ipv6() {
    if UdpSocket::bind("[::1]:0").is_err() {
        return support::skip("this machine has no IPv6", &["REQUIRE_ALL"]);
    }
    loses_a_fifth_and_knows_it("[::1]:0");
}

#[test]
fn what_a_port_of_this_host_refuses_is_counted_one_by_one() {
    let closed = UdpSocket::bind("127.0.0.1:0").unwrap();
    let remote = closed.local_addr().unwrap();
    drop(closed);
    let (sink, meter) = sink_to(remote);
    for records in 1..=100 {
        sink.offer(&Payload::new(b"to nobody", records));
    }
    wait_for("the refusals", || hop(&meter).in_flight.is_zero().then_some(()));
    check_law(&hop(&meter));
    assert_eq!(dropped(&meter, Reason::Refused), 5_050);
    assert_eq!(hop(&meter).gauges[&Gauge::Up], 0);
    let receiver = UdpSocket::bind(remote).unwrap();
    sink.offer(&Payload::new(b"to somebody", 7));
    let mut buffer = [0; 100];
    assert_eq!(receiver.recv(&mut buffer).unwrap(), 11);
    wait_for("the delivery", || (hop(&meter).delivered.count == 7).then_some(()));
    assert_eq!(hop(&meter).gauges[&Gauge::Up], 1);
}

#[test]
fn what_is_too_big_for_any_datagram_is_counted_and_the_rest_arrives() {
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (sink, meter) = sink_to(receiver.local_addr().unwrap());
    for len in [10, 70_000, 20] {
        sink.offer(&Payload::new(&vec![1; len], 3));
    }
    let mut buffer = [0; 100];
    assert_eq!(receiver.recv(&mut buffer).unwrap(), 10);
    assert_eq!(receiver.recv(&mut buffer).unwrap(), 20);
    wait_for("the end", || hop(&meter).in_flight.is_zero().then_some(()));
    assert_eq!(dropped(&meter, Reason::TooBig), 3);
    assert_eq!(hop(&meter).delivered.count, 6);
    check_law(&hop(&meter));
}

#[test]
fn a_record_that_no_datagram_holds_is_counted_and_told() {
    let (mut receiver, remote) = receiver_at("127.0.0.1:0");
    let mut fanout = fanout_to(remote);
    let meter = fanout.meters().remove(0);
    let host = "h".repeat(20_000);
    fanout.record(&SocketRecord { host: Some(&host), ..SocketRecord::default() });
    let mut next = 0;
    send_poll(&mut fanout, 1, &mut next, 10);
    let mut taken = Taken::default();
    wait_for("the totals", || {
        taken.receive(&mut receiver);
        taken.last
    });
    let (report, _) = taken.last.unwrap();
    assert_eq!((report.records_missing(), report.records_too_big), (0, 1));
    assert_eq!(dropped(&meter, Reason::TooBig), 1);
    wait_for("the end", || hop(&meter).in_flight.is_zero().then_some(()));
    check_law(&hop(&meter));
    assert_eq!(hop(&meter).received.count, 12);
}

const RIGHT: &str = "10.9.0.2";

/// A fan-out on the left of a wire to a receiver on its right.
fn across(wire: &Wire) -> (Fanout, Receiver) {
    let (receiver, remote) = wire.inside(&wire.right, || receiver_at(&format!("{RIGHT}:0")));
    (wire.inside(&wire.left, || fanout_to(remote)), receiver)
}

/// Sends a poll, and receives until the sink is empty and nothing comes any more.
fn poll_across(
    (fanout, receiver): (&mut Fanout, &mut Receiver),
    taken: &mut Taken,
    (poll, next, records): (u64, &mut u64, u64),
) {
    send_poll(fanout, poll, next, records);
    let meter = fanout.meters().remove(0);
    wait_for("the sink", || {
        taken.receive(receiver);
        hop(&meter).in_flight.is_zero().then_some(())
    });
    while taken.receive(receiver) > 0 {}
}

#[test]
fn a_fifth_lost_on_a_wire_is_known_exactly_after_the_next_totals() {
    let Some(wire) = Wire::new("loss", 1_500) else { return };
    // The same random filter where the wire ends: to the kernel it is the network's loss.
    wire.tc(&wire.right, "qdisc add dev w clsact");
    let drop_fifth = format!("4,32 0 0 4294963256,53 1 0 {},6 0 0 2,6 0 0 0", u32::MAX / 5);
    let mut filter = vec!["-n", &wire.right];
    filter.extend("filter add dev w ingress prio 1 protocol ip bpf da bytecode".split(' '));
    filter.push(&drop_fifth);
    support::run("tc", &filter);
    let (mut fanout, mut receiver) = across(&wire);
    let (mut taken, mut next, mut exact) = (Taken::default(), 0, 0);
    for poll in 1..=40 {
        poll_across((&mut fanout, &mut receiver), &mut taken, (poll, &mut next, 1_000));
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
    let Some(wire) = Wire::new("mtu", 1_400) else { return };
    let (mut fanout, mut receiver) = across(&wire);
    let meter = fanout.meters().remove(0);
    let (mut taken, mut next) = (Taken::default(), 0);
    poll_across((&mut fanout, &mut receiver), &mut taken, (1, &mut next, 500));
    assert_eq!(hop(&meter).gauges[&Gauge::DatagramLimitBytes], 1_372);
    let fragments = || {
        let text = wire
            .inside(&wire.left, || std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap());
        let mut lines = text.lines().filter(|line| line.starts_with("Ip:"));
        let names = lines.next().unwrap().split(' ');
        let mut values = names.zip(lines.next().unwrap().split(' '));
        values.find(|(name, _)| *name == "FragCreates").unwrap().1.parse::<u64>().unwrap()
    };
    assert_eq!(fragments(), 0);
    for netns in [&wire.left, &wire.right] {
        wire.ip(netns, "link set w mtu 1300");
    }
    // What the sink has not heard of yet is cut into fragments; nothing is once it has.
    poll_across((&mut fanout, &mut receiver), &mut taken, (2, &mut next, 500));
    assert_eq!(hop(&meter).gauges[&Gauge::DatagramLimitBytes], 1_272);
    let before = fragments();
    poll_across((&mut fanout, &mut receiver), &mut taken, (3, &mut next, 500));
    assert_eq!(fragments(), before);
    assert_eq!(taken.records.len() as u64, next);
    // The stream goes on: whoever counts what is missing need not join two.
    let missing: Vec<_> = receiver.streams().map(|stream| stream.records_missing()).collect();
    assert_eq!(missing, [0]);
    check_law(&hop(&meter));
    assert!(hop(&meter).dropped.is_empty());
}

#[test]
fn a_network_that_is_down_costs_what_is_sent_meanwhile_and_comes_back() {
    let Some(wire) = Wire::new("down", 1_500) else { return };
    wire.ip(&wire.left, "link set w down");
    let (mut fanout, mut receiver) = across(&wire);
    let meter = fanout.meters().remove(0);
    let (mut taken, mut next) = (Taken::default(), 0);
    poll_across((&mut fanout, &mut receiver), &mut taken, (1, &mut next, 100));
    assert_eq!(dropped(&meter, Reason::NetworkUnreachable), 101);
    wire.ip(&wire.left, "link set w up");
    let mut poll = 1;
    wait_for("the first totals", || {
        poll += 1;
        poll_across((&mut fanout, &mut receiver), &mut taken, (poll, &mut next, 100));
        taken.last
    });
    let (report, _) = taken.last.unwrap();
    assert_eq!(report.records_missing(), report.records_sent - taken.records.len() as u64);
    let (up, arrived) = (hop(&meter).gauges[&Gauge::Up], taken.records.len());
    assert_eq!(up, 1);
    wire.ip(&wire.left, "link set w down");
    poll_across((&mut fanout, &mut receiver), &mut taken, (poll + 1, &mut next, 100));
    assert_eq!(taken.records.len(), arrived);
    check_law(&hop(&meter));
    assert_eq!(hop(&meter).gauges[&Gauge::Up], 0);
}

#[test]
fn a_neighbour_that_does_not_answer_is_seen_and_holds_nobody() {
    let Some(wire) = Wire::new("dead", 1_500) else { return };
    let mut fanout = wire.inside(&wire.left, || fanout_to("10.9.0.77:9".parse().unwrap()));
    let meter = fanout.meters().remove(0);
    let mut next = 0;
    let mut poll = 0;
    wait_for("the reports", || {
        poll += 1;
        let began = Instant::now();
        send_poll(&mut fanout, poll, &mut next, 100);
        assert!(began.elapsed() < Duration::from_secs(1), "the source was held");
        let seen = hop(&meter);
        check_law(&seen);
        (seen.events.contains_key(&Event::ReturnedDatagrams) && seen.gauges[&Gauge::Up] == 0)
            .then_some(())
    });
    let left = fanout.stop(Instant::now() + Duration::from_millis(100));
    assert!(left.iter().all(|(name, _)| name == "udp"));
    check_law(&hop(&meter));
    assert!(hop(&meter).in_flight.is_zero());
}

#[test]
fn a_port_that_another_host_refuses_is_seen() {
    let Some(wire) = Wire::new("port", 1_500) else { return };
    let mut fanout = wire.inside(&wire.left, || fanout_to(format!("{RIGHT}:9").parse().unwrap()));
    let meter = fanout.meters().remove(0);
    let (mut poll, mut next) = (0, 0);
    wait_for("a report", || {
        poll += 1;
        send_poll(&mut fanout, poll, &mut next, 100);
        let seen = hop(&meter);
        check_law(&seen);
        (seen.events.contains_key(&Event::ReturnedDatagrams) && seen.gauges[&Gauge::Up] == 0)
            .then_some(())
    });
    wait_for("the sink", || hop(&meter).in_flight.is_zero().then_some(()));
    let seen = hop(&meter);
    assert_eq!(seen.received, seen.delivered + seen.dropped_total());
}
