//! The NSQ sink against nsqd.

use crate::support::{Source, Watch, hop, numbered, options};
use ledger::{Event, HopSnapshot, Reason, RejectClass, Trouble};
use record::{Encoding, FieldSet, PollTotals, Record, SocketRecord, decode_record, decode_totals};
use sink::{
    BatchLimits, Connector, Content, DeliveryOptions, NsqOptions, QueueOptions, SecretSource, Sink,
    SinkOptions, SpoolOptions, SpoolSync, nsq,
};
use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testkit::proxy::Fault;
use testkit::readback::{self, Message};
use testkit::servers::{Server, unique};
use testkit::{TempDir, wait_for};

fn to(nsqd: SocketAddr, topic: &str) -> NsqOptions {
    NsqOptions {
        hosts: vec![(nsqd.ip().to_string(), nsqd.port())],
        topic: topic.into(),
        totals_topic: format!("{topic}-polls"),
        auth: None,
    }
}

fn protobuf(options: NsqOptions) -> Connector {
    nsq(options, Content::Records(Encoding::Protobuf, FieldSet::ALL))
}

/// A sink as the configuration makes it.
fn sink_options(connector: Connector) -> SinkOptions {
    SinkOptions {
        batch: BatchLimits { rows: 10_000, bytes: 256 << 10, age: Duration::ZERO },
        delivery: DeliveryOptions { in_flight_max: 8, ..DeliveryOptions::default() },
        queue: QueueOptions { bytes_max: 256 << 20, ..QueueOptions::default() },
        ..options("nsq", connector)
    }
}

fn record(number: u64) -> SocketRecord<'static> {
    SocketRecord { rtt_us: Some(number as u32), ..numbered(number) }
}

fn number_of(message: &Message) -> u64 {
    let Ok(Record::Socket(record)) = decode_record(&message.payload) else {
        panic!("not a record: {message:?}")
    };
    record.sequence.unwrap()
}

#[test]
fn what_another_client_reads_is_what_was_sent_field_by_field() {
    let count = testkit::rows();
    let Some(nsqd) = Server::Nsqd.shared() else { return };
    let topic = unique("records");
    let mut source = Source::to_one(sink_options(protobuf(to(nsqd, &topic))));
    source.send_all((0..count).map(record));
    source.writer.end_of_poll(&PollTotals { poll: Some(7), ..PollTotals::default() });
    wait_for("all rows to leave", || source.is_empty());
    let hop = source.hop();
    assert_eq!((hop.delivered.count, hop.delivered), (count + 1, hop.received));

    let messages = readback::nsq(nsqd, &topic);
    assert_eq!(messages.len() as u64, count);
    let mut seen = HashSet::new();
    for message in &messages {
        let number = number_of(message);
        assert!(seen.insert(number), "{number} is there twice");
        assert_eq!(decode_record(&message.payload), Ok(Record::Socket(record(number))));
    }
    let totals = readback::nsq(nsqd, &format!("{topic}-polls"));
    assert_eq!(totals.len(), 1);
    assert_eq!(decode_totals(&totals[0].payload).unwrap().poll, Some(7));
}

/// Sends 5,000 records a second until told to stop, and returns how many: nsqd syncs every message here.
fn send_steadily(source: &mut Source, stop: &AtomicBool) -> u64 {
    const TICK: Duration = Duration::from_millis(10);
    let (mut sent, mut at) = (0, Instant::now());
    while !stop.load(Ordering::Relaxed) {
        source.send(sent..sent + 50);
        sent += 50;
        at += TICK;
        wait_for("the next tick", || (Instant::now() >= at).then_some(()));
    }
    sent
}

/// nsqd is killed for 10 s. Returns what the sink says at the end, what was sent, and the numbers of the records in the topic.
fn outage(adapt: impl FnOnce(&mut SinkOptions)) -> Option<(HopSnapshot, u64, Vec<u64>)> {
    const OUTAGE: Duration = Duration::from_secs(10);
    let mut nsqd = Server::Nsqd.start()?;
    let mut options = sink_options(protobuf(to(nsqd.addr(), "records")));
    adapt(&mut options);
    let mut source = Source::to_one(options);
    let watch = Watch::new(source.meters());
    let stop = AtomicBool::new(false);

    let meter = source.meters().remove(0);
    let (sent, restarted) = thread::scope(|scope| {
        let sender = scope.spawn(|| send_steadily(&mut source, &stop));
        wait_for("the first answers", || (hop(&meter).delivered.count > 5_000).then_some(()));
        nsqd.kill();
        let ends = Instant::now() + OUTAGE;
        wait_for("the sink to say so", || hop(&meter).trouble);
        wait_for("the end of the outage", || (Instant::now() >= ends).then_some(()));
        nsqd.restart();
        let restarted = Instant::now();
        let delivered = hop(&meter).delivered.count;
        wait_for("records to be delivered again", || {
            (hop(&meter).delivered.count > delivered).then_some(())
        });
        stop.store(true, Ordering::Relaxed);
        (sender.join().unwrap(), restarted)
    });

    wait_for("all rows to leave", || source.is_empty());
    assert!(restarted.elapsed() < 2 * OUTAGE, "drained only after {:?}", restarted.elapsed());
    assert!(watch.end() > 0);
    let hop = source.hop();
    assert_eq!((hop.received.count, hop.trouble.as_ref()), (sent, None));
    let messages = readback::nsq(&nsqd, "records");
    Some((hop, sent, messages.iter().map(number_of).collect()))
}

/// What is there is what was acknowledged, and of what was acknowledged late some may be there twice.
fn check_what_is_there(hop: &HopSnapshot, numbers: &[u64]) {
    let unique: HashSet<_> = numbers.iter().copied().collect();
    let twice = (numbers.len() - unique.len()) as u64;
    assert!(twice <= hop.event(Event::PossibleDuplicates), "{twice} are there twice: {hop:?}");
    assert_eq!(unique.len() as u64, hop.delivered.count);
}

#[test]
fn a_killed_nsqd_costs_what_the_queue_could_not_hold() {
    let small = QueueOptions { bytes_max: 1 << 20, ..QueueOptions::default() };
    let Some((hop, sent, numbers)) = outage(|options| options.queue = small) else { return };
    let dropped = hop.dropped_total();
    assert!(dropped.count > 0, "the outage was too short to test anything");
    assert_eq!(hop.delivered.count + dropped.count, sent, "{hop:?}");
    check_what_is_there(&hop, &numbers);
}

#[test]
fn a_killed_nsqd_costs_nothing_with_a_spool() {
    let folder = TempDir::new();
    let spool = SpoolOptions {
        folder: folder.path().join("spool"),
        bytes_max: 1 << 30,
        sync: SpoolSync::Every(Duration::from_millis(100)),
    };
    let ended = outage(|options| options.spool = Some(spool));
    let Some((hop, sent, numbers)) = ended else { return };
    assert_eq!((hop.delivered.count, hop.dropped_total().count), (sent, 0), "{hop:?}");
    check_what_is_there(&hop, &numbers);
}

#[test]
fn a_slow_hanging_or_resetting_nsqd_holds_no_other_sink() {
    const COUNT: u64 = 10_000;
    let Some((nsqd, proxy)) = Server::Nsqd.start_with_proxy() else { return };
    let to_nsq = Sink::open(sink_options(protobuf(to(proxy.addr(), "records")))).unwrap();
    let content = Content::Records(Encoding::Jsonl, FieldSet::ALL);
    let neighbor = Sink::open(options("neighbor", sink::null(content))).unwrap();
    let (of_nsq, of_neighbor) = (to_nsq.meter(), neighbor.meter());
    let mut source = Source::to(vec![to_nsq, neighbor]);
    let watch = Watch::new(source.meters());

    let mut sent = 0;
    for fault in [
        Fault::Slow { bytes_per_sec: 50_000 },
        Fault::Hang,
        Fault::ResetAfter { sent_bytes: 100_000 },
        Fault::CloseAfter { answered_bytes: 11 },
        Fault::Refuse,
    ] {
        // It is connected when the fault comes.
        source.send(sent..sent + 1);
        wait_for("nsqd to answer", || hop(&of_nsq).in_flight.is_zero().then_some(()));
        proxy.set(fault);
        source.send(sent + 1..sent + COUNT);
        sent += COUNT;
        let at = Instant::now();
        wait_for("the neighbor", || (hop(&of_neighbor).delivered.count == sent).then_some(()));
        assert!(at.elapsed() < Duration::from_secs(2), "{fault:?} holds the neighbor");
        wait_for("the fault", || (proxy.fired() > 0).then_some(()));
        assert!(hop(&of_nsq).in_flight.count > 0, "{fault:?} has no effect");
        proxy.set(Fault::None);
        wait_for("it to recover", || hop(&of_nsq).in_flight.is_zero().then_some(()));
    }

    assert!(watch.end() > 0);
    let hop = hop(&of_nsq);
    assert_eq!((hop.delivered.count, hop.delivered), (sent, hop.received));
    assert!(hop.event(Event::PossibleDuplicates) > 0, "answers were lost: {hop:?}");
    let numbers: Vec<_> = readback::nsq(&nsqd, "records").iter().map(number_of).collect();
    check_what_is_there(&hop, &numbers);
}

fn trouble_with(options: NsqOptions) -> Trouble {
    let mut source = Source::to_one(sink_options(protobuf(options)));
    source.send(0..1);
    let meter = source.meters().remove(0);
    let trouble = wait_for("the sink to say what is wrong", || hop(&meter).trouble);
    assert_eq!((hop(&meter).delivered.count, hop(&meter).in_flight.count), (0, 1));
    source.stop(Instant::now());
    trouble
}

#[track_caller]
fn check_trouble(trouble: &Trouble, what: &[&str], fix: &str) {
    for word in what {
        assert!(trouble.what.contains(word), "{word} is missing: {trouble:?}");
    }
    assert!(trouble.fix.contains(fix), "{fix} is missing: {trouble:?}");
    assert!(!format!("{trouble:?}").contains("geheim"), "a secret is shown: {trouble:?}");
}

#[test]
fn what_is_wrong_is_named_with_its_cure() {
    let closed = SocketAddr::from(([127, 0, 0, 1], testkit::free_port()));
    let trouble = trouble_with(to(closed, "records"));
    check_trouble(&trouble, &[&format!("nsq://{closed}/records"), "refused"], "nobody listens");

    let wrong =
        NsqOptions { hosts: vec![("no.such.host.invalid".into(), 4150)], ..to(closed, "t") };
    check_trouble(&trouble_with(wrong), &["no.such.host.invalid"], "getent hosts");

    let Some(nsqd) = Server::Nsqd.shared() else { return };
    let trouble = trouble_with(to(nsqd, "not/a/topic"));
    check_trouble(&trouble, &["E_BAD_TOPIC", &nsqd.to_string()], "correct `to`");

    // This nsqd has no authentication server, and says so to who insists: the secret stays where it is.
    let folder = TempDir::new();
    std::fs::write(folder.path().join("token"), "geheim").unwrap();
    let auth = Some(SecretSource::File(folder.file("token")));
    let mut source =
        Source::to_one(sink_options(protobuf(NsqOptions { auth, ..to(nsqd, &unique("secret")) })));
    source.send(0..1);
    wait_for("the row to leave", || source.is_empty());

    // Something else listens there.
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = other.local_addr().unwrap();
    let answering = thread::spawn(move || {
        use std::io::Write;
        other.accept().unwrap().0.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    });
    check_trouble(&trouble_with(to(addr, "t")), &["not nsqd", &addr.to_string()], "nsqd");
    answering.join().unwrap();
}

#[test]
fn another_host_takes_over() {
    let Some(nsqd) = Server::Nsqd.shared() else { return };
    let topic = unique("failover");
    let options = to(nsqd, &topic);
    let closed = ("127.0.0.1".to_owned(), testkit::free_port());
    let hosts = vec![closed, options.hosts[0].clone()];
    let mut source = Source::to_one(sink_options(protobuf(NsqOptions { hosts, ..options })));
    source.send(0..100);
    wait_for("all rows to leave", || source.is_empty());
    assert_eq!(readback::nsq(nsqd, &topic).len(), 100);
    assert_eq!(source.hop().event(Event::PossibleDuplicates), 0, "nothing was sent to the first");
}

#[test]
fn a_message_that_is_too_large_costs_no_other() {
    let Some(nsqd) = Server::Nsqd.shared() else { return };
    let topic = unique("large");
    let mut source = Source::to_one(sink_options(protobuf(to(nsqd, &topic))));
    // nsqd takes a mebibyte (--max-msg-size).
    let long = "x".repeat(1_100_000);
    for number in 0..100 {
        let host = if number == 50 { Some(&long[..]) } else { None };
        source.writer.record(&SocketRecord { host, ..record(number) });
    }
    source.writer.flush();
    wait_for("all rows to leave", || source.is_empty());
    let hop = source.hop();
    assert_eq!(hop.rejected_with(RejectClass::TooLarge).count, 1);
    assert_eq!((hop.delivered.count, hop.dropped_for(Reason::QueueFull).count), (99, 0));
    assert_eq!(hop.event(Event::PossibleDuplicates), 0, "nsqd said no before it took anything");
    let numbers: HashSet<_> = readback::nsq(nsqd, &topic).iter().map(number_of).collect();
    assert_eq!(numbers, (0..100).filter(|number| *number != 50).collect());
}
