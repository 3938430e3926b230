//! What streams and unix datagrams report when something is wrong, and how to fix it.

use crate::streams::options_of;
use crate::support::{Source, check_law, hop, line_of, number_and_filling};
use ledger::{Reason, Trouble};
use record::{DatagramRecord, Encoding};
use sink::{Connector, Content, StreamFraming, TcpOptions, tcp, unix, unixgram};
use std::fs;
use std::net::TcpListener;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use testkit::{DEADLINE, Peer, TempDir, find_tool, free_port, need_tool, wait_for};

fn lines() -> Content {
    Content::Records(Encoding::Jsonl, number_and_filling())
}

fn to(host: &str, port: u16) -> TcpOptions {
    TcpOptions { host: host.into(), port, framing: StreamFraming::Newline }
}

/// The trouble that the sink reports while a row waits.
fn trouble_of(connector: Connector) -> Trouble {
    let mut source = Source::to_one(options_of(connector));
    source.send(0..1);
    let trouble = wait_for("the trouble", || source.hop().trouble);
    let left = source.stop(Instant::now());
    assert_eq!(left.len(), 1);
    trouble
}

fn check(connector: Connector, what: &[&str], fix: &str) {
    let trouble = trouble_of(connector);
    for words in what {
        assert!(trouble.what.contains(words), "{words}: {trouble:?}");
    }
    assert!(trouble.fix.contains(fix), "{fix}: {trouble:?}");
}

#[test]
fn what_cannot_be_reached_is_named_with_its_cure() {
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
    check(tcp(to("127.0.0.1", port), lines()), &[&address, "refused"], "start the receiver");
    check(
        tcp(to("no-such-host.invalid", 514), lines()),
        &["tcp://no-such-host.invalid:514", "does not resolve"],
        "getent hosts no-such-host.invalid",
    );

    let dir = TempDir::new();
    let path = dir.file("socket");
    let shown = path.to_str().unwrap().to_owned();
    let both =
        || [unix(path.clone(), StreamFraming::Newline, lines()), unixgram(path.clone(), lines())];
    for connector in both() {
        check(connector, &[&shown, "No such file"], "start the receiver");
    }
    // A socket file without a listener.
    drop(UnixListener::bind(&path).unwrap());
    for connector in both() {
        check(connector, &[&shown, "refused"], "nobody listens");
    }
    fs::remove_file(&path).unwrap();
    let _datagrams = UnixDatagram::bind(&path).unwrap();
    let [stream, _] = both();
    check(stream, &[&shown, "wrong type"], "unixgram:");
}

#[test]
fn a_receiver_that_closes_at_once_is_named_and_costs_nothing_that_it_did_not_take() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut source = Source::to_one(options_of(tcp(to("localhost", port), lines())));
    source.send(0..10);
    let (stream, _) = listener.accept().unwrap();
    drop(stream);
    drop(listener);
    let meter = source.meters().remove(0);
    let refused = || hop(&meter).trouble.filter(|trouble| trouble.what.contains("refused"));
    source.send(10..20);
    wait_for("the trouble", || {
        source.send(20..21);
        refused()
    });
    source.stop(Instant::now());
    check_law(&hop(&meter));
}

#[test]
fn what_waits_in_a_send_buffer_is_not_acknowledged() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // Accepted sockets inherit it. It is small, so the rest stays on the sender's side.
    socket2::SockRef::from(&listener).set_recv_buffer_size(4_096).unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut source = Source::to_one(options_of(tcp(to("127.0.0.1", port), lines())));
    source.send(0..1);
    let (_stream, _) = listener.accept().unwrap();
    wait_for("the first row", || source.is_empty());
    source.send(1..1_000);
    let is_more = || source.hop().delivered.count > 500;
    assert!(!testkit::within(Duration::from_secs(1), is_more), "{:?}", source.hop());
    source.stop(Instant::now());
}

#[test]
fn datagrams_to_a_unix_socket_arrive_one_a_row_and_wait_for_room() {
    let dir = TempDir::new();
    let path = dir.file("socket");
    let mut options = options_of(unixgram(path.clone(), lines()));
    // Batches that failed together are retried in any order.
    options.delivery.in_flight_max = 1;
    let mut source = Source::to_one(options);
    source.send(0..1_000);
    wait_for("the trouble", || source.hop().trouble);

    let receiver = UnixDatagram::bind(&path).unwrap();
    receiver.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut buffer = vec![0; 1 << 16];
    for number in 0..1_000 {
        let len = receiver.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..len], line_of(number).trim_end().as_bytes());
    }
    wait_for("the last one's fate", || source.is_empty());
    assert_eq!(source.hop().trouble, None);
    assert_eq!(source.hop().delivered.count, 1_000);

    // A row too long for any datagram is counted, and holds up nothing.
    let long = "x".repeat(1 << 20);
    let record = record::SocketRecord { host: Some(&long), ..record::SocketRecord::default() };
    source.writer.record(&record);
    source.send(0..1);
    let len = receiver.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..len], line_of(0).trim_end().as_bytes());
    wait_for("the count", || (source.hop().dropped_for(Reason::TooBig).count == 1).then_some(()));
    assert_eq!(source.stop(Instant::now() + DEADLINE), []);
}

/// An rsyslogd that writes each message received over TCP as a line, preceded by its length.
fn rsyslog(dir: &TempDir, raw: &Path, port: u16) -> Peer {
    let config = dir.file("rsyslog.conf");
    let text = format!(
        r#"
        global(workDirectory="{work}" maxMessageSize="64k")
        module(load="imtcp")
        template(name="raw" type="string" string="%rawmsg%\n")
        ruleset(name="raw") {{ action(type="omfile" file="{raw}" template="raw") }}
        input(type="imtcp" address="127.0.0.1" port="{port}" ruleset="raw" supportOctetCountedFraming="on")
        "#,
        work = dir.path().display(),
        raw = raw.display(),
    );
    fs::write(&config, text).unwrap();
    let log = fs::File::create(dir.file("rsyslog.log")).unwrap();
    let mut command = Command::new(find_tool("rsyslogd").unwrap());
    command.args(["-n", "-f"]).arg(&config).arg("-i").arg(dir.file("rsyslog.pid"));
    command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    Peer::start(&mut command)
}

#[test]
fn syslog_that_was_received_as_datagrams_reaches_rsyslog_over_tcp() {
    if !need_tool("rsyslogd") {
        return;
    }
    const MESSAGES: u64 = 20_000;
    let (dir, port) = (TempDir::new(), free_port());
    let raw = dir.file("raw");
    let mut process = rsyslog(&dir, &raw, port);
    let options = TcpOptions { framing: StreamFraming::OctetCounted, ..to("localhost", port) };
    let mut options = options_of(tcp(options, Content::Payloads));
    // rsyslogd may not listen yet, and batches that failed together are retried in any order.
    options.delivery.in_flight_max = 1;
    let mut source = Source::to_one(options);

    let text =
        |number| format!("<34>1 2026-11-22T20:00:00Z host app - ID{number} - message {number}");
    for number in 0..MESSAGES {
        let payload = text(number);
        let record = DatagramRecord { payload: Some(payload.as_bytes()), ..DatagramRecord::new() };
        source.writer.try_datagram(&record, number, 0).unwrap();
    }
    source.writer.try_flush().unwrap();

    wait_for("rsyslog", || {
        let raw = fs::read_to_string(&raw).unwrap_or_default();
        (raw.lines().count() as u64 >= MESSAGES).then_some(())
    });
    process.terminate();
    let raw = fs::read_to_string(&raw).unwrap();
    assert!(raw.lines().eq((0..MESSAGES).map(text)));
    assert_eq!(source.stop(Instant::now() + Duration::from_secs(5)), []);
}

#[cfg(feature = "tls")]
mod tls {
    use super::{check, lines, to};
    use crate::outage::beside;
    use crate::streams::{Receiver, carried, options_of};
    use crate::support::{Source, numbers_of};
    use sink::{TlsIdentity, TlsOptions, TlsVerify, tls};
    use std::collections::BTreeSet;
    use testkit::proxy::{Fault, Proxy};
    use testkit::servers::{Certificate, Certificates};
    use testkit::{TempDir, wait_for};

    fn trusting(certificates: &Certificates) -> TlsOptions {
        TlsOptions { ca: Some(certificates.ca().into()), ..TlsOptions::default() }
    }

    #[test]
    fn every_row_arrives_over_tls() {
        let dir = TempDir::new();
        let Some(certificates) = Certificates::make(dir.path()) else { return };
        let (receiver, port) = Receiver::tcp(Some(certificates.certificate(Certificate::Valid)));
        let connector = tls(to("localhost", port), trusting(&certificates), lines());
        let text = String::from_utf8(carried(connector, receiver)).unwrap();
        assert!(numbers_of(&text).into_iter().eq(0..testkit::rows()));
    }

    #[test]
    fn a_row_that_is_shorter_than_the_handshake_is_acknowledged() {
        let dir = TempDir::new();
        let Some(certificates) = Certificates::make(dir.path()) else { return };
        let (_receiver, port) = Receiver::tcp(Some(certificates.certificate(Certificate::Valid)));
        let connector = tls(to("localhost", port), trusting(&certificates), lines());
        let mut source = Source::to_one(options_of(connector));
        source.send(0..1);
        wait_for("the row to leave", || source.hop().in_flight.is_zero().then_some(()));
        assert_eq!(source.hop().delivered.count, 1);
    }

    #[test]
    fn faults_under_tls_hold_no_other_sink() {
        let dir = TempDir::new();
        let Some(certificates) = Certificates::make(dir.path()) else { return };
        let (mut receiver, port) =
            Receiver::tcp(Some(certificates.certificate(Certificate::Valid)));
        let proxy = Proxy::start(([127, 0, 0, 1], port).into());
        let options = to("127.0.0.1", proxy.addr().port());
        let options = options_of(tls(options, trusting(&certificates), lines()));
        let hop = beside(
            options,
            &proxy,
            &[Fault::Hang, Fault::ResetAfter { sent_bytes: 30_000 }, Fault::Refuse],
        );
        receiver.stop();
        let numbers = receiver.lines();
        let distinct: BTreeSet<_> = numbers.iter().collect();
        let repeated = (numbers.len() - distinct.len()) as u64;
        assert!(repeated <= hop.event(ledger::Event::PossibleDuplicates), "{repeated} {hop:?}");
    }

    #[test]
    fn a_server_that_is_not_who_it_says_is_named_with_its_cure() {
        let dir = TempDir::new();
        let Some(certificates) = Certificates::make(dir.path()) else { return };
        let (_valid, port) = Receiver::tcp(Some(certificates.certificate(Certificate::Valid)));
        let (_expired, old) = Receiver::tcp(Some(certificates.certificate(Certificate::Expired)));
        let (_plain, plain) = Receiver::tcp(None);
        let known = || trusting(&certificates);

        let address = format!("tls://localhost:{old}");
        check(tls(to("localhost", old), known(), lines()), &[&address, "expired"], "renew");
        let own = tls(to("localhost", port), TlsOptions::default(), lines());
        check(own, &["UnknownIssuer"], "tls_ca");
        let name = tls(to("127.0.0.2", plain), known(), lines());
        check(name, &["refused"], "start the receiver");

        let missing = TlsOptions { ca: Some("/no/such/ca.pem".into()), ..TlsOptions::default() };
        check(tls(to("localhost", port), missing, lines()), &["/no/such/ca.pem"], "ls -l");
        let key = certificates.key(Certificate::Valid);
        let no_ca = TlsOptions { ca: Some(key.clone().into()), ..TlsOptions::default() };
        check(tls(to("localhost", port), no_ca, lines()), &[&key, "none of its kind"], "PEM");
        let other = TlsIdentity {
            certificate: certificates.certificate(Certificate::Valid).into(),
            key: certificates.key(Certificate::Expired).into(),
        };
        let other = TlsOptions { identity: Some(other), ..known() };
        check(tls(to("localhost", port), other, lines()), &["does not fit"], "tls_key");
    }

    #[test]
    fn whoever_answers_is_believed_where_that_is_asked_for() {
        let dir = TempDir::new();
        let Some(certificates) = Certificates::make(dir.path()) else { return };
        let (receiver, port) = Receiver::tcp(Some(certificates.certificate(Certificate::Expired)));
        let anybody = TlsOptions { verify: TlsVerify::Off, ..TlsOptions::default() };
        carried(tls(to("localhost", port), anybody, lines()), receiver);
    }
}
