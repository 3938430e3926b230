//! The NSQ sink with nsqd.

use crate::outage::{Killed, Outage, beside};
use crate::support::{Source, found, hop, missing, numbered, options};
use ledger::{Event, Reason, RejectClass, Trouble};
use record::{Encoding, FieldSet, PollTotals, Record, SocketRecord, decode_record, decode_totals};
use sink::{
    BatchLimits, Connector, Content, DeliveryOptions, NsqOptions, QueueOptions, ReadBack,
    SecretSource, SinkOptions, nsq,
};
use std::collections::{BTreeSet, HashSet};
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};
use testkit::proxy::Fault;
use testkit::readback::{self, Message};
use testkit::servers::{Own, Server, unique};
use testkit::{TempDir, wait_for};

pub(crate) fn to(nsqd: SocketAddr, topic: &str) -> NsqOptions {
    NsqOptions {
        hosts: vec![(nsqd.ip().to_string(), nsqd.port())],
        topic: topic.into(),
        totals_topic: format!("{topic}-polls"),
        auth: None,
        tls: None,
    }
}

pub(crate) fn protobuf(options: NsqOptions) -> Connector {
    nsq(options, Content::Records(Encoding::Protobuf, FieldSet::ALL))
}

/// Sink options as the configuration sets them.
pub(crate) fn sink_options(connector: Connector) -> SinkOptions {
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

fn away() -> Option<(impl Outage, NsqOptions)> {
    let server = Server::Nsqd.start()?;
    let options = to(server.addr(), "records");
    let read = |server: &Own| readback::nsq(server, "records").iter().map(number_of).collect();
    // It syncs every message.
    Some((Killed { server, read, rows_per_sec: 5_000 }, options))
}

#[test]
fn a_killed_nsqd_costs_what_the_queue_could_not_hold() {
    let Some((away, options)) = away() else { return };
    crate::outage::without_spool(away, || SinkOptions {
        // Rows in flight are kept, and must not be most of what is sent meanwhile.
        batch: BatchLimits { rows: 1_000, bytes: 256 << 10, age: Duration::ZERO },
        ..sink_options(protobuf(options))
    });
}

#[test]
fn a_killed_nsqd_costs_nothing_with_a_spool() {
    let Some((away, options)) = away() else { return };
    crate::outage::with_spool(away, || sink_options(protobuf(options)));
}

#[test]
fn a_slow_hanging_or_resetting_nsqd_holds_no_other_sink() {
    let Some((nsqd, proxy)) = Server::Nsqd.start_with_proxy() else { return };
    let hop = beside(
        sink_options(protobuf(to(proxy.addr(), "records"))),
        &proxy,
        &[
            Fault::Slow { bytes_per_sec: 50_000 },
            Fault::Hang,
            Fault::ResetAfter { sent_bytes: 100_000 },
            Fault::CloseAfter { answered_bytes: 11 },
            Fault::Refuse,
        ],
    );
    let twice = hop.event(Event::PossibleDuplicates);
    assert!(twice > 0, "answers were lost: {hop:?}");
    let numbers: Vec<_> = readback::nsq(&nsqd, "records").iter().map(number_of).collect();
    let distinct: BTreeSet<_> = numbers.iter().copied().collect();
    assert!((numbers.len() - distinct.len()) as u64 <= twice, "{hop:?}");
    assert!(distinct.into_iter().eq(0..hop.received.count));
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

    // This nsqd has no authentication server, and says so; the client must then keep the secret to
    // itself.
    let folder = TempDir::new();
    std::fs::write(folder.path().join("token"), "geheim").unwrap();
    let auth = Some(SecretSource::File(folder.file("token")));
    let mut source =
        Source::to_one(sink_options(protobuf(NsqOptions { auth, ..to(nsqd, &unique("secret")) })));
    source.send(0..1);
    wait_for("the row to leave", || source.is_empty());

    // Another protocol on that port.
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
    // nsqd accepts up to a mebibyte (--max-msg-size).
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

#[test]
fn nothing_is_read_back_because_that_would_take_it_away() {
    let Some(nsqd) = Server::Nsqd.shared() else { return };
    let topic = unique("found");
    let (what, says) = found(protobuf(to(nsqd, &topic)));
    assert_eq!(what, "read back");
    assert!(says.unwrap().contains("takes its messages away"));
    assert_eq!(readback::nsq(nsqd, &topic).len(), 10, "they are all still there");
    assert!(matches!(missing(protobuf(to(nsqd, &topic))), ReadBack::Cannot(_)));
}

#[cfg(feature = "tls")]
mod secured {
    use super::*;
    use sink::{TlsIdentity, TlsOptions};
    use std::process::{Command, Stdio};
    use testkit::proxy::Proxy;
    use testkit::servers::{Certificate, Certificates};
    use testkit::{Peer, find_tool, free_port};

    fn trusting(ca: Option<String>) -> Option<TlsOptions> {
        Some(TlsOptions { ca: ca.map(Into::into), ..TlsOptions::default() })
    }

    #[test]
    fn every_row_arrives_over_tls() {
        const COUNT: u64 = 100_000;
        let Some(nsqd) = Server::Nsqd.start_secured(Certificate::Valid) else { return };
        let options = NsqOptions { tls: trusting(nsqd.ca()), ..to(nsqd.addr(), "records") };
        let mut source = Source::to_one(sink_options(protobuf(options)));
        source.send(0..COUNT);
        wait_for("all rows to leave", || source.is_empty());
        let hop = source.hop();
        assert_eq!((hop.delivered.count, hop.event(Event::PossibleDuplicates)), (COUNT, 0));
        let messages = readback::nsq(&nsqd, "records");
        let numbers: BTreeSet<_> = messages.iter().map(number_of).collect();
        assert_eq!(messages.len(), numbers.len());
        assert!(numbers.into_iter().eq(0..COUNT));
    }

    #[test]
    fn faults_under_tls_hold_no_other_sink() {
        let Some(nsqd) = Server::Nsqd.start_secured(Certificate::Valid) else { return };
        let proxy = Proxy::start(nsqd.addr());
        let options = NsqOptions { tls: trusting(nsqd.ca()), ..to(proxy.addr(), "records") };
        let hop = beside(
            sink_options(protobuf(options)),
            &proxy,
            &[
                Fault::Slow { bytes_per_sec: 50_000 },
                Fault::Hang,
                Fault::ResetAfter { sent_bytes: 100_000 },
                Fault::Refuse,
            ],
        );
        let numbers: Vec<_> = readback::nsq(&nsqd, "records").iter().map(number_of).collect();
        let distinct: BTreeSet<_> = numbers.iter().copied().collect();
        let twice = (numbers.len() - distinct.len()) as u64;
        assert!(twice <= hop.event(Event::PossibleDuplicates), "{twice} {hop:?}");
        assert!(distinct.into_iter().eq(0..hop.received.count));
    }

    #[test]
    fn a_server_that_is_not_who_it_says_is_named_with_its_cure() {
        let Some(nsqd) = Server::Nsqd.start_secured(Certificate::Valid) else { return };
        let (addr, shown) = (nsqd.addr(), format!("nsqs://{}/t", nsqd.addr()));
        let unknown = NsqOptions { tls: trusting(None), ..to(addr, "t") };
        check_trouble(&trouble_with(unknown), &[&shown, "UnknownIssuer"], "tls_ca");
        check_trouble(&trouble_with(to(addr, "t")), &["TLS required"], "nsqs://");

        let missing = NsqOptions { tls: trusting(Some("/no/such.pem".into())), ..to(addr, "t") };
        check_trouble(&trouble_with(missing), &["/no/such.pem"], "ls -l");
        let Some(plain) = Server::Nsqd.shared() else { return };
        let without = NsqOptions { tls: trusting(nsqd.ca()), ..to(plain, "t") };
        check_trouble(&trouble_with(without), &["has no TLS"], "--tls-cert");

        let Some(expired) = Server::Nsqd.start_secured(Certificate::Expired) else { return };
        let options = NsqOptions { tls: trusting(expired.ca()), ..to(expired.addr(), "t") };
        check_trouble(&trouble_with(options), &["xpired"], "renew");
    }

    #[test]
    fn an_nsqd_that_wants_a_certificate_takes_ours_and_names_its_lack() {
        if Server::Nsqd.shared().is_none() {
            return;
        }
        let folder = TempDir::new();
        let Some(certificates) = Certificates::make(folder.path()) else { return };
        let (certificate, key) =
            (certificates.certificate(Certificate::Valid), certificates.key(Certificate::Valid));
        let addr = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let mut command = Command::new(find_tool("nsqd").unwrap());
        command.args([format!("--tcp-address={addr}"), format!("--tls-cert={certificate}")]);
        command.args([
            format!("--tls-key={key}"),
            format!("--tls-root-ca-file={}", certificates.ca()),
        ]);
        command.args(["--tls-client-auth-policy=require-verify", "--https-address="]);
        command.arg(format!("--http-address=127.0.0.1:{}", free_port()));
        command.arg("--data-path").arg(folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let _nsqd = Peer::start(&mut command);

        let identity = TlsIdentity { certificate: certificate.into(), key: key.into() };
        let tls = TlsOptions {
            ca: Some(certificates.ca().into()),
            identity: Some(identity),
            ..TlsOptions::default()
        };
        let options = NsqOptions { tls: Some(tls), ..to(addr, "t") };
        let mut source = Source::to_one(sink_options(protobuf(options)));
        source.send(0..100);
        wait_for("all rows to leave", || source.is_empty());
        assert_eq!(source.hop().delivered.count, 100);

        let nobody = NsqOptions { tls: trusting(Some(certificates.ca())), ..to(addr, "t") };
        check_trouble(&trouble_with(nobody), &["ertificate"], "tls_cert");
    }
}
