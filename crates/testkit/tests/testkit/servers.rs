//! Each server accepts a message from an independent client, and still has it after a kill.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use testkit::readback::{self, At, Listener, Message};
use testkit::servers::{Certificate, Own, Server, unique};
use testkit::{DEADLINE, run};

const PAYLOAD: &str = "a\nb\u{e4}";

#[test]
fn kafka_has_its_messages_after_a_kill() {
    let Some(mut own) = started(Server::Kafka) else { return };
    readback::make_kafka_topic(own.addr(), "topic", 3);
    send("send-kafka", own.addr(), "topic");
    kill_and_restart(&mut own);

    let read = only(readback::kafka(own.addr(), "topic"));
    assert_eq!((read.key, read.number), (Some(b"key".to_vec()), 0));
    assert_eq!(read.headers, [("name".to_owned(), b"value".to_vec())]);
    assert_eq!(read.payload, PAYLOAD.as_bytes());
}

#[test]
fn nsqd_has_its_messages_after_a_kill() {
    let Some(mut own) = started(Server::Nsqd) else { return };
    send("send-nsq", own.addr(), "topic");
    kill_and_restart(&mut own);
    assert_eq!(only(readback::nsq(own.addr(), "topic")).payload, PAYLOAD.as_bytes());
}

#[test]
fn jetstream_has_its_messages_after_a_kill() {
    let Some(mut own) = started(Server::Nats) else { return };
    readback::make_jetstream(own.addr(), "stream", &["a.*", "b"]);
    assert_eq!(readback::jetstream(own.addr(), "stream"), []);
    send("send-nats", own.addr(), "a.c");
    kill_and_restart(&mut own);

    let read = only(readback::jetstream(own.addr(), "stream"));
    assert_eq!((read.key, read.number), (Some(b"a.c".to_vec()), 1));
    assert_eq!(read.headers, [("name".to_owned(), b"value".to_vec())]);
    assert_eq!(read.payload, PAYLOAD.as_bytes());
}

#[test]
fn redis_has_its_entries_after_a_kill() {
    let Some(mut own) = started(Server::Redis) else { return };
    send("send-redis", own.addr(), "stream");
    kill_and_restart(&mut own);
    let read = only(readback::redis_stream(own.addr(), "stream"));
    assert_eq!(read.headers, [("name".to_owned(), PAYLOAD.as_bytes().to_vec())]);
}

#[test]
fn s3_has_its_objects_after_a_kill() {
    let Some(mut own) = started(Server::S3) else { return };
    readback::make_bucket(own.addr(), "bucket");
    send("send-s3", own.addr(), "bucket");
    kill_and_restart(&mut own);

    let read = only(readback::bucket(own.addr(), "bucket"));
    assert_eq!(read.key, Some(b"key".to_vec()));
    assert_eq!(read.headers, [("name".to_owned(), b"value".to_vec())]);
    assert_eq!(read.payload, PAYLOAD.as_bytes());
}

#[test]
fn clickhouse_has_its_rows_after_a_kill_and_knows_their_token() {
    let Some(mut own) = started(Server::ClickHouse) else { return };
    let table = "(a UInt64, b String) ENGINE = MergeTree ORDER BY a SETTINGS non_replicated_deduplication_window = 9";
    let rows = "INSERT INTO t SETTINGS insert_deduplication_token = 'one' FORMAT JSONEachRow";
    let insert = format!("{rows} {{\"a\": 18446744073709551615, \"b\": \"\u{e4}\"}}");
    readback::clickhouse(own.addr(), &format!("CREATE TABLE t {table}"));
    readback::clickhouse(own.addr(), &insert);
    kill_and_restart(&mut own);

    readback::clickhouse(own.addr(), &insert);
    let read = readback::clickhouse(own.addr(), "SELECT * FROM t");
    assert_eq!(read, [serde_json::json!({"a": u64::MAX, "b": "\u{e4}"})]);
}

#[test]
fn kafka_tells_its_clients_the_address_of_its_proxy() {
    let Some((own, proxy)) = Server::Kafka.start_with_proxy() else { return };
    readback::make_kafka_topic(proxy.addr(), "topic", 1);
    let before = proxy.sent_bytes();
    // It makes no difference which one the client asks first.
    send("send-kafka", own.addr(), "topic");
    assert!(proxy.sent_bytes() > before + PAYLOAD.len() as u64);
    assert_eq!(only(readback::kafka(own.addr(), "topic")).payload, PAYLOAD.as_bytes());
}

#[test]
fn kafka_wants_tls_and_a_password() {
    let Some(own) = Server::Kafka.start_secured(Certificate::Valid) else { return };
    readback::make_kafka_topic(&own, "topic", 1);
    let sends = |user: &str, mechanism: &str| {
        let at = At { address: format!("{user}@{}", own.addr()), ca: own.ca() };
        let mut client = readback::client("send-kafka", at, "topic");
        client.args([PAYLOAD, mechanism]).output().unwrap().status.success()
    };
    assert!(sends("weir:right", "SCRAM-SHA-512"));
    assert!(sends("weir:right", "PLAIN"));
    assert!(!sends("weir:wrong", "SCRAM-SHA-512"));
    assert!(!sends("weir:wrong", "PLAIN"));
    assert_eq!(readback::kafka(&own, "topic").len(), 2);
}

#[test]
fn nats_wants_tls_and_a_password() {
    let Some(own) = Server::Nats.start_secured(Certificate::Valid) else { return };
    readback::make_jetstream(&own, "stream", &["a"]);
    send("send-nats", &own, "a");
    assert_eq!(only(readback::jetstream(&own, "stream")).payload, PAYLOAD.as_bytes());
    refused(
        &own,
        "send-nats",
        &format!("tls://weir:wrong@{}", own.addr()),
        "Authorization Violation",
    );
}

#[test]
fn redis_wants_tls_and_a_password() {
    let Some(mut own) = Server::Redis.start_secured(Certificate::Valid) else { return };
    send("send-redis", &own, "stream");
    own.restart();
    assert_eq!(readback::redis_stream(&own, "stream").len(), 1);
    refused(
        &own,
        "send-redis",
        &format!("rediss://weir:wrong@{}", own.addr()),
        "invalid username-password pair",
    );
    refused(&own, "send-redis", &format!("rediss://{}", own.addr()), "AuthenticationError");
}

#[test]
fn clickhouse_and_s3_answer_over_tls() {
    let Some(clickhouse) = Server::ClickHouse.start_secured(Certificate::Valid) else { return };
    let Some(s3) = Server::S3.start_secured(Certificate::Valid) else { return };
    assert_eq!(readback::clickhouse(&clickhouse, "SELECT 1 AS a"), [serde_json::json!({"a": 1})]);
    readback::make_bucket(&s3, "bucket");
    send("send-s3", &s3, "bucket");
    assert_eq!(only(readback::bucket(&s3, "bucket")).payload, PAYLOAD.as_bytes());

    let wrong = format!("https://weir:wrong@{}", clickhouse.addr());
    refused(&clickhouse, "query-clickhouse", &wrong, "Code: 516");
}

#[test]
fn an_expired_certificate_is_refused_by_clients() {
    for server in [Server::Nats, Server::Redis] {
        let Some(own) = server.start_secured(Certificate::Expired) else { return };
        let how = if server == Server::Nats { "send-nats" } else { "send-redis" };
        refused(&own, how, &At::from(&own).address, "certificate has expired");
    }
}

/// A client with this URL fails, and says why.
#[track_caller]
fn refused(own: &Own, how: &str, url: &str, why: &str) {
    let at = At { address: url.to_owned(), ca: own.ca() };
    let output = readback::client(how, at, "name").arg(PAYLOAD).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains(why), "{said}");
}

#[test]
fn a_paused_server_answers_when_it_goes_on() {
    let Some(own) = Server::Redis.start() else { return };
    own.pause();
    let mut stream = TcpStream::connect(own.addr()).unwrap();
    stream.write_all(b"PING\r\n").unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    assert_eq!(stream.read(&mut [0; 7]).unwrap_err().kind(), ErrorKind::WouldBlock);

    own.resume();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut answer = [0; 7];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"+PONG\r\n");
}

#[test]
fn listeners_hear_what_no_server_keeps() {
    let Some(nats) = Server::Nats.shared() else { return };
    let Some(redis) = Server::Redis.shared() else { return };
    let name = unique("heard");
    let listener = Listener::nats(nats, &name, 1);
    send("send-nats", nats, &name);
    assert_eq!(only(listener.heard()).payload, PAYLOAD.as_bytes());

    let listener = Listener::redis(redis, &name, 1);
    send("publish-redis", redis, &name);
    assert_eq!(only(listener.heard()).payload, PAYLOAD.as_bytes());
}

/// An instance that is not the shared one.
fn started(server: Server) -> Option<Own> {
    let own = server.start()?;
    assert_eq!(server.shared(), server.shared());
    assert_ne!(server.shared(), Some(own.addr()));
    Some(own)
}

fn kill_and_restart(own: &mut Own) {
    let addr = own.addr();
    own.kill();
    assert!(TcpStream::connect(addr).is_err());
    own.restart();
    assert_eq!(own.addr(), addr);
}

fn send(how: &str, server: impl Into<At>, name: &str) {
    run(readback::client(how, server, name).arg(PAYLOAD));
}

fn only(mut messages: Vec<Message>) -> Message {
    assert_eq!(messages.len(), 1, "{messages:?}");
    messages.remove(0)
}
