//! The NATS sink with nats-server, with and without `JetStream`.

use crate::outage::{Killed, Outage, beside};
use crate::support::{Source, check_law, fields, found, hop, missing, numbered, options};
use ledger::{Event, RejectClass, Trouble};
use record::{Encoding, Record, SocketRecord, decode_record};
use sink::{
    BatchLimits, Connector, Content, DeliveryOptions, Login, NatsOptions, NatsService, ReadBack,
    SecretSource, SinkOptions, TlsOptions, nats,
};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use testkit::proxy::Fault;
use testkit::readback::{self, Listener, Message, make_jetstream};
use testkit::servers::{Certificate, Own, Server, unique};
use testkit::{DEADLINE, Peer, TempDir, find_tool, wait_for};

pub(crate) fn to(addr: SocketAddr, subject: &str, service: NatsService) -> NatsOptions {
    NatsOptions {
        servers: vec![addr.to_string()],
        subject: subject.into(),
        service,
        login: Login::default(),
        credentials: None,
        nkey: None,
        tls: None,
    }
}

pub(crate) fn records(options: NatsOptions) -> Connector {
    nats(options, Content::Records(Encoding::Protobuf, fields(&["sequence", "cookie", "host"])))
}

/// Sink options as the configuration sets them.
pub(crate) fn sink_options(connector: Connector) -> SinkOptions {
    SinkOptions {
        batch: BatchLimits { rows: 1_000, bytes: 256 << 10, age: Duration::ZERO },
        delivery: DeliveryOptions {
            in_flight_max: 4,
            retry_max: Duration::from_millis(500),
            ..DeliveryOptions::default()
        },
        ..options("nats", connector)
    }
}

fn number_of(message: &Message) -> u64 {
    let Ok(Record::Socket(record)) = decode_record(&message.payload) else {
        panic!("not a record: {message:?}")
    };
    let number = record.sequence.unwrap();
    assert_eq!(record, numbered(number));
    number
}

#[test]
fn a_stream_has_what_was_sent_field_by_field() {
    let count = testkit::rows();
    let Some(server) = Server::Nats.shared() else { return };
    let name = unique("records");
    make_jetstream(server, &name, &[&name]);
    let options = to(server, &name, NatsService::JetStream);
    let mut source = Source::to_one(sink_options(records(options)));
    source.send_all((0..count).map(numbered));
    wait_for("all rows to leave", || source.is_empty());
    let hop = source.hop();
    check_law(&hop);
    assert_eq!(hop.delivered.count, count, "{hop:?}");

    let messages = readback::jetstream(server, &name);
    let mut numbers: Vec<_> = messages.iter().map(number_of).collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..count));
    let kind = ("weir-kind".to_owned(), b"record".to_vec());
    assert!(messages.iter().all(|message| message.headers.contains(&kind)));
}

#[test]
fn who_subscribes_hears_what_was_sent_field_by_field() {
    // The listener is too slow for more than this, and the server keeps nothing for it.
    let count = testkit::rows().min(100_000);
    let Some(server) = Server::Nats.shared() else { return };
    let subject = unique("core");
    let listener = Listener::nats(server, &subject, count as usize);
    let options = to(server, &subject, NatsService::Core);
    let mut source = Source::to_one(sink_options(records(options)));
    source.send_all((0..count).map(numbered));
    let mut numbers: Vec<_> = listener.heard().iter().map(number_of).collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..count));
    wait_for("all rows to leave", || source.is_empty());
    assert_eq!(source.hop().delivered.count, count);
}

fn away() -> Option<(impl Outage, NatsOptions)> {
    let server = Server::Nats.start()?;
    make_jetstream(&server, "outage", &["outage"]);
    let options = to(server.addr(), "outage", NatsService::JetStream);
    let read = |server: &Own| readback::jetstream(server, "outage").iter().map(number_of).collect();
    Some((Killed { server, read, rows_per_sec: 20_000 }, options))
}

#[test]
fn an_outage_without_a_spool_loses_what_it_says() {
    let Some((away, options)) = away() else { return };
    crate::outage::without_spool(away, || sink_options(records(options)));
}

#[test]
fn an_outage_with_a_spool_loses_nothing() {
    let Some((away, options)) = away() else { return };
    crate::outage::with_spool(away, || sink_options(records(options)));
}

#[test]
fn a_slow_hanging_or_resetting_server_holds_no_other_sink_and_a_stream_has_each_row_once() {
    let Some((server, proxy)) = Server::Nats.start_with_proxy() else { return };
    make_jetstream(&server, "faults", &["faults"]);
    let connector = records(to(proxy.addr(), "faults", NatsService::JetStream));
    let mut options = sink_options(connector);
    options.delivery.answer_max = Duration::from_secs(2);
    let hop = beside(
        options,
        &proxy,
        &[
            Fault::Slow { bytes_per_sec: 200_000 },
            Fault::Hang,
            Fault::ResetAfter { sent_bytes: 30_000 },
            Fault::CloseAfter { answered_bytes: 1_000 },
            Fault::Refuse,
        ],
    );
    let messages = readback::jetstream(&server, "faults");
    let mut numbers: Vec<_> = messages.iter().map(number_of).collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..hop.received.count));
}

#[test]
fn faults_of_a_server_that_acknowledges_nothing_lose_nothing_that_was_acknowledged() {
    let Some((server, proxy)) = Server::Nats.start_with_proxy() else { return };
    make_jetstream(&server, "core", &["core"]);
    let mut options = sink_options(records(to(proxy.addr(), "core", NatsService::Core)));
    options.delivery.answer_max = Duration::from_secs(2);
    let hop = beside(
        options,
        &proxy,
        &[
            // The server speaks first: if it hangs from the beginning, nothing is sent to it.
            Fault::Slow { bytes_per_sec: 200_000 },
            Fault::Hang,
            Fault::ResetAfter { sent_bytes: 30_000 },
            Fault::CloseAfter { answered_bytes: 100 },
            Fault::Refuse,
        ],
    );
    let messages = readback::jetstream(&server, "core");
    let mut numbers: Vec<_> = messages.iter().map(number_of).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert!(numbers.iter().copied().eq(0..hop.received.count));
    let repeated = (messages.len() - numbers.len()) as u64;
    assert!(repeated <= hop.event(Event::PossibleDuplicates), "{repeated} {hop:?}");
}

#[test]
fn a_batch_is_found_in_its_stream_and_one_that_was_not_sent_is_not() {
    let Some(server) = Server::Nats.shared() else { return };
    let name = unique("found");
    make_jetstream(server, &name, &[&name]);
    let to = |service| records(to(server, &name, service));
    let cannot = missing(to(NatsService::Core));
    assert!(matches!(cannot, ReadBack::Cannot(_)), "{cannot:?}");
    // In a stream without messages, and in one with others.
    let nothing = missing(to(NatsService::JetStream));
    assert!(matches!(nothing, ReadBack::Missing(_)), "{nothing:?}");
    let found = found(to(NatsService::JetStream));
    assert_eq!(found, ("read back", Ok("the same is there".to_owned())));
    let other = missing(to(NatsService::JetStream));
    assert!(matches!(&other, ReadBack::Missing(what) if what.contains("stream")), "{other:?}");
}

/// The trouble that the sink reports while a row waits.
fn trouble_of(connector: Connector) -> Trouble {
    let mut source = Source::to_one(sink_options(connector));
    source.send(0..1);
    let trouble = wait_for("the trouble", || source.hop().trouble);
    let meter = source.meters().remove(0);
    assert_eq!(source.stop(Instant::now()).len(), 1);
    check_law(&hop(&meter));
    trouble
}

fn check(connector: Connector, what: &[&str], fix: &str) {
    let trouble = trouble_of(connector);
    for words in what {
        assert!(trouble.what.contains(words), "{words}: {trouble:?}");
    }
    assert!(trouble.fix.contains(fix), "{fix}: {trouble:?}");
    assert!(!format!("{trouble:?}").contains("geheim"), "{trouble:?}");
}

#[test]
fn what_the_server_refuses_is_named_with_its_cure() {
    let Some(server) = Server::Nats.shared() else { return };
    let subject = unique("nobody");
    let address = format!("jetstream://{server}/{subject}");
    let nobody = to(server, &subject, NatsService::JetStream);
    check(records(nobody), &[&address, "no stream"], "nats stream add");
    let port = testkit::free_port();
    let away = to(([127, 0, 0, 1], port).into(), "x", NatsService::Core);
    check(records(away), &[&format!("127.0.0.1:{port}"), "refused"], "start the server");
    let mut named = to(server, "x", NatsService::Core);
    named.servers = vec!["no-such-host.invalid:4222".into()];
    check(records(named), &["no-such-host.invalid"], "getent hosts");
}

#[test]
fn a_subject_that_is_not_allowed_is_named_and_nothing_counts_as_delivered() {
    if Server::Nats.shared().is_none() {
        return;
    }
    let (dir, port) = (TempDir::new(), testkit::free_port());
    let config = dir.file("nats.conf");
    let text = r#"authorization { users: [ { user: weir, password: right,
        permissions: { publish: ["_INBOX.>"], subscribe: ["_INBOX.>"] } } ] }"#;
    std::fs::write(&config, text).unwrap();
    let mut command = Command::new(find_tool("nats-server").unwrap());
    command.args(["--addr", "127.0.0.1", "--port", &port.to_string(), "--config"]).arg(config);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let _server = Peer::start(&mut command);

    let password = dir.file("password");
    std::fs::write(&password, "right").unwrap();
    let login = Login {
        user: Some("weir".into()),
        password: Some(SecretSource::File(password)),
        token: None,
    };
    let addr = ([127, 0, 0, 1], port).into();
    let options = NatsOptions { login, ..to(addr, "forbidden", NatsService::Core) };
    let mut source = Source::to_one(sink_options(records(options)));
    let meter = source.meters().remove(0);
    source.send(0..10_000);
    wait_for("the refusal", || {
        let trouble = hop(&meter).trouble?;
        let is_it = trouble.what.contains("Permissions Violation");
        is_it.then(|| assert!(trouble.fix.contains("allow the user"), "{trouble:?}"))
    });
    source.stop(Instant::now() + Duration::from_secs(1));
    let hop = hop(&meter);
    check_law(&hop);
    assert_eq!(hop.delivered.count, 0, "{hop:?}");
}

#[test]
fn what_is_above_max_payload_is_rejected_and_holds_nothing() {
    let Some(server) = Server::Nats.shared() else { return };
    let name = unique("large");
    make_jetstream(server, &name, &[&name]);
    for service in [NatsService::Core, NatsService::JetStream] {
        let mut source = Source::to_one(sink_options(records(to(server, &name, service))));
        let long = "x".repeat(1 << 20);
        source.writer.record(&SocketRecord { host: Some(&long), ..SocketRecord::default() });
        source.send(0..10);
        wait_for("all rows to leave", || source.is_empty());
        let hop = source.hop();
        check_law(&hop);
        assert_eq!(hop.rejected_with(RejectClass::TooLarge).count, 1, "{hop:?}");
        assert_eq!(hop.delivered.count, 10, "{hop:?}");
        assert_eq!(source.stop(Instant::now() + DEADLINE), []);
    }
}

#[test]
fn who_is_not_let_in_says_so_over_tls_and_who_is_delivers() {
    let Some(server) = Server::Nats.start_secured(Certificate::Valid) else { return };
    make_jetstream(&server, "secured", &["secured"]);
    let dir = TempDir::new();
    let login = |password: &str| {
        let path = dir.file(password);
        std::fs::write(&path, password).unwrap();
        let password = Some(SecretSource::File(path));
        Login { user: Some("weir".into()), password, token: None }
    };
    let tls = || Some(TlsOptions { ca: server.ca().map(Into::into), ..TlsOptions::default() });
    let secured = |login, tls| NatsOptions {
        login,
        tls,
        ..to(server.addr(), "secured", NatsService::JetStream)
    };

    let mut source = Source::to_one(sink_options(records(secured(login("right"), tls()))));
    source.send(0..1_000);
    wait_for("all rows to leave", || source.is_empty());
    let messages = readback::jetstream(&server, "secured");
    assert!(messages.iter().map(number_of).eq(0..1_000));

    check(records(secured(login("geheim"), tls())), &["secured"], "correct user");
    check(records(secured(Login::default(), tls())), &["secured"], "correct user");
    let unknown = secured(login("right"), Some(TlsOptions::default()));
    check(records(unknown), &["certificate"], "tls_ca");

    let Some(expired) = Server::Nats.start_secured(Certificate::Expired) else { return };
    let tls = TlsOptions { ca: expired.ca().map(Into::into), ..TlsOptions::default() };
    let options = NatsOptions {
        login: login("right"),
        tls: Some(tls),
        ..to(expired.addr(), "x", NatsService::Core)
    };
    check(records(options), &["xpired"], "renew");
}
