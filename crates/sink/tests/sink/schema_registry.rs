//! The Kafka sink with Apicurio Registry, read by Confluent's client.

use crate::kafka::{check_trouble, protobuf, record, sink_options, to, trouble_with};
use crate::support::{Source, found, hop};
use ledger::Event;
use record::{DatagramRecord, PollTotals};
use sink::{KafkaOptions, Login, SchemaRegistry, SecretSource, TlsOptions};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread;
use testkit::readback::{self, make_kafka_topic};
use testkit::servers::{Certificate, SCHEMA_REGISTRY_PATH, Server, unique};
use testkit::{TempDir, free_port, wait_for};

fn url(registry: SocketAddr) -> String {
    format!("http://{registry}{SCHEMA_REGISTRY_PATH}")
}

fn at(url: String) -> Option<SchemaRegistry> {
    Some(SchemaRegistry { url, login: Login::default(), tls: TlsOptions::default() })
}

/// A broker with this topic and the one for its totals.
fn broker_with(topic: &str) -> Option<SocketAddr> {
    let broker = Server::Kafka.shared()?;
    make_kafka_topic(broker, topic, 2);
    make_kafka_topic(broker, &format!("{topic}-polls"), 1);
    Some(broker)
}

#[test]
fn a_client_with_the_registry_decodes_every_value_by_the_schema_that_is_there() {
    const ROWS: u64 = 10_000;
    let topic = unique("registered");
    let Some(registry) = Server::SchemaRegistry.shared() else { return };
    let Some(broker) = broker_with(&topic) else { return };
    let options = KafkaOptions { registry: at(url(registry)), ..to(broker, &topic) };
    let mut source = Source::to_one(sink_options(protobuf(options)));
    (0..ROWS).for_each(|number| source.writer.record(&record(number)));
    let datagram = DatagramRecord { payload: Some(b"<13>x"), ..DatagramRecord::default() };
    source.writer.try_datagram(&datagram, 1, 0).unwrap();
    source.writer.end_of_poll(&PollTotals { poll: Some(7), ..PollTotals::default() });
    wait_for("all rows to leave", || source.is_empty());
    assert_eq!(source.hop().delivered.count, ROWS + 2);

    let rows = readback::registered(&url(registry), broker, &topic);
    let (datagrams, mut rows): (Vec<_>, Vec<_>) =
        rows.into_iter().partition(|row| row["message"] == "DatagramRecord");
    assert_eq!((datagrams.len(), &datagrams[0]["row"]["payload"]), (1, &"PDEzPng=".into()));
    rows.sort_by_key(|row| row["row"]["sequence"].as_str().unwrap().parse::<u64>().unwrap());
    assert_eq!(rows.len() as u64, ROWS);
    for (number, row) in (0..).zip(rows) {
        let expected = record(number);
        assert_eq!(row["message"], "SocketRecord");
        assert_eq!(row["row"]["sequence"], number.to_string());
        assert_eq!(row["row"]["rtt_us"].as_u64(), expected.rtt_us.map(u64::from));
        assert_eq!(row["row"]["bytes_acked"], expected.bytes_acked.unwrap().to_string());
        assert_eq!(row["row"]["host"].as_str(), expected.host);
    }
    let totals = readback::registered(&url(registry), broker, &format!("{topic}-polls"));
    assert_eq!((totals.len(), &totals[0]["message"]), (1, &"PollTotals".into()));
    assert_eq!(totals[0]["row"]["poll"], "7");
}

#[test]
fn a_batch_is_found_with_the_number_of_its_schema() {
    let topic = unique("registered");
    let Some(registry) = Server::SchemaRegistry.shared() else { return };
    let Some(broker) = broker_with(&topic) else { return };
    let options = KafkaOptions { registry: at(url(registry)), ..to(broker, &topic) };
    let found = found(protobuf(options));
    assert_eq!(found, ("read back", Ok("the same is there".to_owned())));
}

#[test]
fn rows_wait_for_a_registry_that_is_away() {
    let topic = unique("registered");
    let Some(broker) = broker_with(&topic) else { return };
    let Some(mut registry) = Server::SchemaRegistry.start() else { return };
    registry.kill();
    let options = KafkaOptions { registry: at(url(registry.addr())), ..to(broker, &topic) };
    let mut source = Source::to_one(sink_options(protobuf(options)));
    source.send(0..100);
    let meter = source.meters().remove(0);
    let trouble = wait_for("the sink to say what is wrong", || hop(&meter).trouble);
    check_trouble(&trouble, &["schema registry", &url(registry.addr()), "refused"], "curl");

    registry.restart();
    wait_for("all rows to leave", || source.is_empty());
    let now = source.hop();
    assert_eq!((now.delivered.count, now.event(Event::PossibleDuplicates)), (100, 0), "{now:?}");
    assert_eq!(readback::registered(&url(registry.addr()), broker, &topic).len(), 100);

    // A sink that knows the schema's id no longer asks the registry.
    registry.kill();
    source.send(100..200);
    wait_for("all rows to leave", || source.is_empty());
    assert_eq!(source.hop().delivered.count, 200);
}

#[test]
fn a_registry_that_does_not_take_the_schema_is_named_with_its_cure() {
    let topic = unique("incompatible");
    let Some(registry) = Server::SchemaRegistry.shared() else { return };
    let Some(broker) = broker_with(&topic) else { return };
    let other = "syntax = \"proto3\"; package weir.v1; message SocketRecord { string cookie = 3; }";
    readback::make_subject(&url(registry), &format!("{topic}-value"), other);
    let with = |registry| KafkaOptions { registry, ..to(broker, &topic) };
    let trouble = trouble_with(with(at(url(registry))));
    let what = [&format!("{topic}-value")[..], "409", &url(registry)];
    check_trouble(&trouble, &what, "compatib");
    assert_eq!(readback::kafka(broker, &topic), []);

    let trouble = trouble_with(with(at(format!("http://{registry}/elsewhere"))));
    check_trouble(&trouble, &["404"], "/subjects");
    let trouble = trouble_with(with(at(format!("http://127.0.0.1:{}", free_port()))));
    check_trouble(&trouble, &["refused"], "curl");
}

#[test]
fn a_registry_over_tls_is_believed_if_its_authority_is_known() {
    let topic = unique("registered");
    let Some(broker) = broker_with(&topic) else { return };
    let Some(registry) = Server::SchemaRegistry.start_secured(Certificate::Valid) else { return };
    let url = format!("https://{}{SCHEMA_REGISTRY_PATH}", registry.addr());
    let trouble = trouble_with(KafkaOptions { registry: at(url.clone()), ..to(broker, &topic) });
    check_trouble(&trouble, &[&url, "UnknownIssuer"], "schema_registry_ca");

    let tls = TlsOptions { ca: registry.ca().map(Into::into), ..TlsOptions::default() };
    let secured = Some(SchemaRegistry { url, login: Login::default(), tls });
    let options = KafkaOptions { registry: secured, ..to(broker, &topic) };
    let mut source = Source::to_one(sink_options(protobuf(options)));
    source.send(0..10);
    wait_for("all rows to leave", || source.is_empty());
    assert_eq!(source.hop().delivered.count, 10);
}

/// Apicurio needs an identity provider for users: this server is none, and only records the
/// request.
#[test]
fn a_user_is_named_to_the_registry_and_the_password_to_nobody_else() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let asked = thread::spawn(move || {
        let mut stream = BufReader::new(listener.accept().unwrap().0);
        let mut head = Vec::new();
        while head.last().is_none_or(|line: &String| line != "\r\n") {
            let mut line = String::new();
            stream.read_line(&mut line).unwrap();
            head.push(line);
        }
        stream
            .get_mut()
            .write_all(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n")
            .unwrap();
        head.concat()
    });

    let folder = TempDir::new();
    fs::write(folder.file("password"), "geheim").unwrap();
    let password = Some(SecretSource::File(folder.file("password")));
    let login = Login { user: Some("weir".into()), password, token: None };
    let registry = Some(SchemaRegistry { url, login, tls: TlsOptions::default() });
    let nobody = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let trouble = trouble_with(KafkaOptions { registry, ..to(nobody, "records") });
    check_trouble(&trouble, &["records-value", "401"], "schema_registry_password_file");
    let head = asked.join().unwrap();
    assert!(head.starts_with("POST /subjects/records-value/versions HTTP/1.1"), "{head}");
    assert!(head.contains("authorization: Basic d2VpcjpnZWhlaW0="), "{head}");
}
