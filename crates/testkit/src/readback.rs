//! Reads the contents of a server or file through an independent client, and prepares servers with such a client.
//!
//! The clients are in `crates/testkit/readers`, run by the test tools' Python; before using one, a test must have asked for its
//! server, or for the package with [`need_python_module`](crate::need_python_module).

use crate::process::{Peer, Process, run};
use crate::{find_tool, root};
use serde_json::Value;
use std::io::{BufRead, BufReader, Lines, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};

/// How a client reaches its server: the address of a shared one, or an [`Own`](crate::servers::Own).
pub struct At {
    /// An address, or a URL with user and password.
    pub address: String,
    /// The file with the CA certificate, if the server requires TLS.
    pub ca: Option<String>,
}

impl From<SocketAddr> for At {
    fn from(addr: SocketAddr) -> At {
        At { address: addr.to_string(), ca: None }
    }
}

/// One message, as returned by its server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The bytes that were sent.
    pub payload: Vec<u8>,
    /// Kafka's key, NATS's subject, Redis's channel or entry id, S3's object name.
    pub key: Option<Vec<u8>>,
    /// Kafka's and NATS's headers, the fields of a Redis entry, S3's metadata.
    pub headers: Vec<(String, Vec<u8>)>,
    /// Kafka's offset, `JetStream`'s sequence number; 0 elsewhere.
    pub number: u64,
    /// Kafka's partition; 0 elsewhere.
    pub partition: u32,
}

/// Creates a topic; the shared broker creates none by itself.
#[track_caller]
pub fn make_kafka_topic(broker: impl Into<At>, topic: &str, partitions: u32) {
    run(client("make-kafka", broker, topic).arg(partitions.to_string()));
}

/// Creates a `JetStream` stream for these subjects.
#[track_caller]
pub fn make_jetstream(server: impl Into<At>, stream: &str, subjects: &[&str]) {
    run(client("make-jetstream", server, stream).arg(subjects.join(",")));
}

/// Creates a bucket. S3 requires at least three characters.
#[track_caller]
pub fn make_bucket(server: impl Into<At>, bucket: &str) {
    run(&mut client("make-s3", server, bucket));
}

/// Every message of a topic, each partition in order.
#[track_caller]
pub fn kafka(broker: impl Into<At>, topic: &str) -> Vec<Message> {
    read("read-kafka", broker, topic)
}

/// Every value of a topic that begins with a schema id, decoded by Confluent's client with the schema in the registry: `message`
/// is the name of the message, `row` its fields. 64-bit integers are strings.
#[track_caller]
pub fn registered(registry: &str, broker: SocketAddr, topic: &str) -> Vec<Value> {
    lines(&run(reader("registry.py").args(["read", registry, topic, &broker.to_string()])))
}

/// Registers a protobuf schema with which later ones of this subject must be compatible.
#[track_caller]
pub fn make_subject(registry: &str, subject: &str, schema: &str) {
    run(reader("registry.py").args(["make", registry, subject, schema]));
}

/// Every message of a topic that no other channel has taken. Removes them from the topic.
#[track_caller]
pub fn nsq(nsqd: impl Into<At>, topic: &str) -> Vec<Message> {
    read("read-nsq", nsqd, topic)
}

/// Every message of a stream, in order.
#[track_caller]
pub fn jetstream(server: impl Into<At>, stream: &str) -> Vec<Message> {
    read("read-jetstream", server, stream)
}

/// Every entry of a stream, in order.
#[track_caller]
pub fn redis_stream(server: impl Into<At>, stream: &str) -> Vec<Message> {
    read("read-redis", server, stream)
}

/// Every object of a bucket, ordered by name.
#[track_caller]
pub fn bucket(server: impl Into<At>, bucket: &str) -> Vec<Message> {
    read("read-s3", server, bucket)
}

/// The objects of a bucket with an unfinished multipart upload.
#[track_caller]
pub fn bucket_uploads(server: impl Into<At>, bucket: &str) -> Vec<String> {
    let names = run(&mut client("uploads-s3", server, bucket));
    names.lines().map(str::to_owned).collect()
}

/// The rows that `ClickHouse` returns for a query, decoded by itself. 64-bit integers are numbers.
#[track_caller]
pub fn clickhouse(server: impl Into<At>, query: &str) -> Vec<Value> {
    lines(&run(&mut client("query-clickhouse", server, query)))
}

/// The rows of Parquet files, read by pyarrow; bytes are in base64.
#[track_caller]
pub fn parquet_by_arrow(files: &[PathBuf]) -> Vec<Value> {
    lines(&run(reader("parquet.py").arg("arrow").args(files)))
}

/// The rows of Parquet files, read by `DuckDB`; bytes are in base64.
#[track_caller]
pub fn parquet_by_duckdb(files: &[PathBuf]) -> Vec<Value> {
    lines(&run(reader("parquet.py").arg("duckdb").args(files)))
}

/// Counts the rows of Parquet files by reading them, in a process that ends with this value.
pub struct ParquetCounter(Answering);

impl ParquetCounter {
    /// Starts it. It has pyarrow and `DuckDB`, which the test must have asked for.
    #[track_caller]
    pub fn start() -> ParquetCounter {
        ParquetCounter(Answering::start(reader("parquet.py").arg("count")))
    }

    /// The rows of a file as pyarrow and as `DuckDB` read it.
    #[track_caller]
    pub fn rows(&mut self, file: &Path) -> [u64; 2] {
        let answer = self.0.ask(&file.display().to_string());
        let (by_arrow, by_duckdb) = answer.split_once(' ').unwrap();
        [by_arrow, by_duckdb].map(|count| count.parse().unwrap())
    }
}

/// `DuckDB` with the rows of Parquet files as the view `sockets`, whose times and truth values are numbers.
pub struct DuckDb(Answering);

impl DuckDb {
    /// Starts it with these columns of these files.
    #[track_caller]
    pub fn start(columns: &[&str], files: &[PathBuf]) -> DuckDb {
        DuckDb(Answering::start(reader("parquet.py").arg("ask").arg(columns.join(",")).args(files)))
    }

    /// The rows of the answer to a statement.
    #[track_caller]
    pub fn ask(&mut self, statement: &str) -> Vec<Vec<Value>> {
        let answer = self.0.ask(&Value::from(statement).to_string());
        serde_json::from_str(&answer).unwrap()
    }
}

/// A process that answers each line with a line, and ends with this value.
struct Answering {
    peer: Peer,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Answering {
    #[track_caller]
    fn start(command: &mut Command) -> Answering {
        let mut peer = Peer::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let answers = BufReader::new(peer.0.stdout.take().unwrap()).lines();
        Answering { peer, answers }
    }

    #[track_caller]
    fn ask(&mut self, line: &str) -> String {
        writeln!(self.peer.0.stdin.as_mut().unwrap(), "{line}").unwrap();
        self.answers.next().unwrap_or_else(|| panic!("no answer to {line}")).unwrap()
    }
}

/// A client that receives messages which no server stores. It listens from its start on.
pub struct Listener(Process);

impl Listener {
    /// Waits for the next `count` messages of a NATS subject.
    #[track_caller]
    pub fn nats(server: impl Into<At>, subject: &str, count: usize) -> Listener {
        Listener::start(client("listen-nats", server, subject), count)
    }

    /// Waits for the next `count` messages of a Redis channel.
    #[track_caller]
    pub fn redis(server: impl Into<At>, channel: &str, count: usize) -> Listener {
        Listener::start(client("listen-redis", server, channel), count)
    }

    #[track_caller]
    fn start(mut command: Command, count: usize) -> Listener {
        command.arg(count.to_string());
        let mut process = Process::start(command);
        process.hear("ready");
        Listener(process)
    }

    /// Waits until all have been received.
    #[track_caller]
    pub fn heard(mut self) -> Vec<Message> {
        let (status, output) = self.0.finish();
        assert!(status.success(), "{}", self.0.said());
        messages(&output)
    }
}

/// The command of `crates/testkit/readers/client.py`, for operations without a function here.
pub fn client(what: &str, server: impl Into<At>, name: &str) -> Command {
    let At { address, ca } = server.into();
    let mut command = reader("client.py");
    command.args([what, &address, name]);
    if let Some(ca) = ca {
        // The CA files trusted by OpenSSL and by boto3.
        command.env("SSL_CERT_FILE", &ca).env("AWS_CA_BUNDLE", ca);
    }
    command
}

fn reader(script: &str) -> Command {
    let python = find_tool("weir-python").expect("asked for before");
    let mut command = Command::new(python);
    command.arg(root().join("crates/testkit/readers").join(script));
    command
}

#[track_caller]
fn read(what: &str, server: impl Into<At>, name: &str) -> Vec<Message> {
    messages(&run(&mut client(what, server, name)))
}

#[track_caller]
fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[track_caller]
fn messages(text: &str) -> Vec<Message> {
    lines(text).iter().map(message).collect()
}

#[track_caller]
fn message(line: &Value) -> Message {
    let header = |pair: &Value| (pair[0].as_str().unwrap().to_owned(), bytes(&pair[1]));
    let key = &line["key"];
    Message {
        payload: bytes(&line["payload"]),
        key: (!key.is_null()).then(|| bytes(key)),
        headers: line["headers"].as_array().unwrap().iter().map(header).collect(),
        number: line["number"].as_u64().unwrap(),
        partition: line["partition"].as_u64().unwrap().try_into().unwrap(),
    }
}

/// Decodes a reader's base64.
#[track_caller]
fn bytes(text: &Value) -> Vec<u8> {
    let text = text.as_str().unwrap().trim_end_matches('=');
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    let (mut bits, mut bit_count) = (0_u32, 0);
    for character in text.bytes() {
        bits = bits << 6 | sextet(character);
        bit_count += 6;
        if bit_count >= 8 {
            bit_count -= 8;
            bytes.push((bits >> bit_count) as u8);
        }
    }
    bytes
}

#[track_caller]
fn sextet(character: u8) -> u32 {
    let value = match character {
        b'A'..=b'Z' => character - b'A',
        b'a'..=b'z' => character - b'a' + 26,
        b'0'..=b'9' => character - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => panic!("{character} is not base64"),
    };
    value.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_every_length() {
        let decoded = |text: &str| bytes(&Value::from(text));
        assert_eq!(decoded(""), b"");
        assert_eq!(decoded("AA=="), [0]);
        assert_eq!(decoded("/+8="), [0xff, 0xef]);
        assert_eq!(decoded("eiAw"), b"z 0");
        assert_eq!(decoded("//79/A=="), [0xff, 0xfe, 0xfd, 0xfc]);
    }
}
