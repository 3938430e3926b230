//! The Redis sink with Redis.

use crate::outage::{Killed, Outage, beside};
use crate::support::{Source, check_law, fields, found, hop, missing, numbered, options};
use ledger::{Event, Reason, Trouble};
use record::{Encoding, FieldSet, PollTotals, Record, decode_record};
use sink::{
    BatchLimits, Connector, Content, DeliveryOptions, Login, ReadBack, RedisOptions, RedisPlace,
    SecretSource, SinkOptions, TlsOptions, redis,
};
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};
use testkit::proxy::Fault;
use testkit::readback::{self, At, Listener};
use testkit::servers::{Certificate, Own, Server, unique};
use testkit::{DEADLINE, TempDir, find_tool, run, wait_for};

pub(crate) fn to(addr: SocketAddr, name: &str) -> RedisOptions {
    RedisOptions {
        host: addr.ip().to_string(),
        port: addr.port(),
        database: 0,
        place: RedisPlace::Stream { name: name.to_owned(), entries_max: None },
        login: Login::default(),
        tls: None,
    }
}

pub(crate) fn records(options: RedisOptions) -> Connector {
    let fields = fields(&["sequence", "cookie", "host"]);
    redis(options, Content::Records(Encoding::Protobuf, fields))
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
        ..options("redis", connector)
    }
}

fn number_of(payload: &[u8]) -> u64 {
    let Ok(Record::Socket(record)) = decode_record(payload) else { panic!("not a record") };
    let number = record.sequence.unwrap();
    assert_eq!(record, numbered(number));
    number
}

fn numbers(server: impl Into<At>, stream: &str) -> Vec<u64> {
    let entries = readback::redis_stream(server, stream);
    entries.iter().map(|entry| number_of(field(&entry.headers, "record"))).collect()
}

pub(crate) fn field<'a>(fields: &'a [(String, Vec<u8>)], name: &str) -> &'a [u8] {
    &fields.iter().find(|(known, _)| known == name).unwrap().1
}

#[test]
fn what_another_client_reads_is_what_was_sent_field_by_field() {
    let count = testkit::rows();
    let Some(server) = Server::Redis.shared() else { return };
    let stream = unique("records");
    let mut source = Source::to_one(sink_options(records(to(server, &stream))));
    source.send_all((0..count).map(numbered));
    source.writer.end_of_poll(&PollTotals { poll: Some(7), ..PollTotals::default() });
    wait_for("all rows to leave", || source.is_empty());
    let hop = source.hop();
    check_law(&hop);
    assert_eq!(hop.delivered.count, count + 1, "{hop:?}");

    let entries = readback::redis_stream(server, &stream);
    let (totals, rows): (Vec<_>, Vec<_>) =
        entries.iter().partition(|entry| field(&entry.headers, "kind") == b"totals");
    let payload = field(&totals[0].headers, "record");
    assert_eq!((totals.len(), record::decode_totals(payload).unwrap().poll), (1, Some(7)));
    assert!(rows.iter().all(|entry| field(&entry.headers, "kind") == b"record"));
    let numbers = rows.iter().map(|entry| number_of(field(&entry.headers, "record")));
    assert!(numbers.eq(0..count));
}

#[test]
fn a_stream_is_bounded_where_that_is_asked_for() {
    let Some(server) = Server::Redis.shared() else { return };
    let stream = unique("bounded");
    let place = RedisPlace::Stream { name: stream.clone(), entries_max: Some(1_000) };
    let mut source =
        Source::to_one(sink_options(records(RedisOptions { place, ..to(server, &stream) })));
    source.send(0..20_000);
    wait_for("all rows to leave", || source.is_empty());
    let kept = numbers(server, &stream);
    assert!((1_000..2_000).contains(&kept.len()), "{}", kept.len());
    assert_eq!(kept.last(), Some(&19_999));
}

#[test]
fn who_listens_to_a_channel_hears_everything_and_what_nobody_hears_is_counted() {
    let Some(server) = Server::Redis.shared() else { return };
    let name = unique("channel");
    let place = RedisPlace::Channel(name.clone());
    let mut source =
        Source::to_one(sink_options(records(RedisOptions { place, ..to(server, &name) })));
    source.send(0..100);
    wait_for("the unheard", || source.is_empty());
    let hop = source.hop();
    check_law(&hop);
    assert_eq!(hop.dropped_for(Reason::Refused).count, 100, "{hop:?}");

    let listener = Listener::redis(server, &name, 5_000);
    source.send(100..5_100);
    let heard = listener.heard();
    assert!(heard.iter().map(|message| number_of(&message.payload)).eq(100..5_100));
    wait_for("the rest", || source.is_empty());
    assert_eq!(source.hop().delivered.count, 5_000);
}

fn away() -> Option<(impl Outage, RedisOptions)> {
    let server = Server::Redis.start()?;
    let options = to(server.addr(), "outage");
    let read = |server: &Own| numbers(server, "outage");
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
fn a_slow_hanging_or_resetting_server_holds_no_other_sink() {
    let Some((server, proxy)) = Server::Redis.start_with_proxy() else { return };
    let mut options = sink_options(records(to(proxy.addr(), "faults")));
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
    let mut numbers = numbers(&server, "faults");
    let all = numbers.len() as u64;
    numbers.sort_unstable();
    numbers.dedup();
    assert!(numbers.iter().copied().eq(0..hop.received.count));
    let repeated = all - numbers.len() as u64;
    assert!(repeated <= hop.event(Event::PossibleDuplicates), "{repeated} {hop:?}");
}

#[test]
fn a_batch_is_found_in_its_stream_and_one_that_was_not_sent_is_not() {
    let Some(server) = Server::Redis.shared() else { return };
    let name = unique("found");
    let channel = RedisPlace::Channel(name.clone());
    let cannot = missing(records(RedisOptions { place: channel, ..to(server, &name) }));
    assert!(matches!(cannot, ReadBack::Cannot(_)), "{cannot:?}");
    // In a stream without entries, and in one with others.
    let nothing = missing(records(to(server, &name)));
    assert!(matches!(nothing, ReadBack::Missing(_)), "{nothing:?}");
    let found = found(records(to(server, &name)));
    assert_eq!(found, ("read back", Ok("the same is there".to_owned())));
    let other = missing(records(to(server, &name)));
    assert!(matches!(&other, ReadBack::Missing(what) if what.contains(&name)), "{other:?}");
}

/// The trouble that the sink reports while a row waits.
pub(crate) fn trouble_of(connector: Connector) -> Trouble {
    let mut source = Source::to_one(sink_options(connector));
    source.send(0..1);
    let trouble = wait_for("the trouble", || source.hop().trouble);
    let meter = source.meters().remove(0);
    assert_eq!(source.stop(Instant::now()).len(), 1);
    check_law(&hop(&meter));
    trouble
}

pub(crate) fn check(connector: Connector, what: &[&str], fix: &str) {
    let trouble = trouble_of(connector);
    for words in what {
        assert!(trouble.what.contains(words), "{words}: {trouble:?}");
    }
    assert!(trouble.fix.contains(fix), "{fix}: {trouble:?}");
    assert!(!format!("{trouble:?}").contains("geheim"), "{trouble:?}");
}

pub(crate) fn login(dir: &TempDir, password: &str) -> Login {
    let path = dir.file(password);
    std::fs::write(&path, password).unwrap();
    let password = Some(SecretSource::File(path));
    Login { user: Some("weir".into()), password, token: None }
}

#[test]
fn what_the_server_refuses_is_named_with_its_cure_and_passes_when_it_is_mended() {
    let Some(server) = Server::Redis.start() else { return };
    let addr = server.addr();
    let cli = |words: &[&str]| {
        let mut command = Command::new(find_tool("redis-cli").unwrap());
        run(command.args(["-p", &addr.port().to_string()]).args(words))
    };
    let address = format!("redis://{addr}/text");

    cli(&["set", "text", "x"]);
    check(records(to(addr, "text")), &[&address, "WRONGTYPE"], "another name");
    cli(&["config", "set", "maxmemory", "1"]);
    let mut source = Source::to_one(sink_options(records(to(addr, "full"))));
    source.send(0..10);
    let trouble = wait_for("the trouble", || source.hop().trouble);
    assert!(trouble.what.contains("OOM") && trouble.fix.contains("maxmemory"), "{trouble:?}");
    cli(&["config", "set", "maxmemory", "0"]);
    wait_for("all rows to leave", || source.is_empty());
    assert_eq!(source.hop().event(Event::PossibleDuplicates), 0);
    assert_eq!(source.stop(Instant::now() + DEADLINE), []);
    assert!(numbers(addr, "full").into_iter().eq(0..10));

    cli(&["replicaof", "127.0.0.1", "1"]);
    check(records(to(addr, "replica")), &["READONLY"], "primary");
    cli(&["replicaof", "no", "one"]);
    cli(&["config", "set", "requirepass", "right"]);
    check(records(to(addr, "closed")), &["NOAUTH"], "password_file");
}

#[test]
fn who_is_not_let_in_says_so_over_tls_and_who_is_delivers() {
    let Some(server) = Server::Redis.start_secured(Certificate::Valid) else { return };
    let dir = TempDir::new();
    let tls = TlsOptions { ca: server.ca().map(Into::into), ..TlsOptions::default() };
    let secured = |login, tls| RedisOptions { login, tls, ..to(server.addr(), "secured") };

    let mut source =
        Source::to_one(sink_options(records(secured(login(&dir, "right"), Some(tls.clone())))));
    source.send(0..1_000);
    wait_for("all rows to leave", || source.is_empty());
    assert!(numbers(&server, "secured").into_iter().eq(0..1_000));

    let address = format!("rediss://{}/secured", server.addr());
    let wrong = secured(login(&dir, "geheim"), Some(tls));
    check(records(wrong), &[&address], "password_file");
    let unknown = secured(login(&dir, "right"), Some(TlsOptions::default()));
    check(records(unknown), &[&address], "tls_ca");
    check(records(to(([127, 0, 0, 1], testkit::free_port()).into(), "x")), &["refused"], "start");

    let Some(expired) = Server::Redis.start_secured(Certificate::Expired) else { return };
    let tls = TlsOptions { ca: expired.ca().map(Into::into), ..TlsOptions::default() };
    let options =
        RedisOptions { login: login(&dir, "right"), tls: Some(tls), ..to(expired.addr(), "x") };
    check(records(options), &["xpired"], "renew");
}

#[test]
fn every_field_is_there_where_all_are_asked_for() {
    let Some(server) = Server::Redis.shared() else { return };
    let stream = unique("all");
    let content = Content::Records(Encoding::Protobuf, FieldSet::ALL);
    let mut source = Source::to_one(sink_options(redis(to(server, &stream), content)));
    source.send(0..10);
    wait_for("all rows to leave", || source.is_empty());
    assert!(numbers(server, &stream).into_iter().eq(0..10));
}
