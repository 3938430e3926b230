//! Where rows go in turns, from Weir and from clients of others: what has to be there before, and what is cleaned up after.

use crate::ours::Pace;
use anyhow::Context;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use testkit::readback::{self, make_jetstream, make_kafka_topic};
use testkit::servers::{Server, second_port};

/// A kind of destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    Kafka,
    Nsq,
    Redis,
    Jetstream,
    Clickhouse,
    Http,
    Parquet,
}

/// A destination that is there.
pub(crate) struct Place<'a> {
    pub(crate) kind: Kind,
    /// Of the server; of no meaning for files.
    pub(crate) addr: SocketAddr,
    folder: &'a Path,
}

impl Kind {
    pub(crate) const ALL: [Kind; 7] = [
        Kind::Kafka,
        Kind::Nsq,
        Kind::Redis,
        Kind::Jetstream,
        Kind::Clickhouse,
        Kind::Http,
        Kind::Parquet,
    ];

    /// Starts its server, unless it runs; `None` where it is not installed, which has been said.
    pub(crate) fn place(self, folder: &Path) -> anyhow::Result<Option<Place<'_>>> {
        let addr = match self {
            Kind::Kafka => Server::Kafka.shared(),
            Kind::Nsq => Server::Nsqd.shared(),
            Kind::Redis => Server::Redis.shared(),
            Kind::Jetstream => Server::Nats.shared(),
            Kind::Clickhouse => Server::ClickHouse.shared(),
            Kind::Http => Some(take_posts()?),
            Kind::Parquet => Some(SocketAddr::from(([127, 0, 0, 1], 0))),
        };
        Ok(addr.map(|addr| Place { kind: self, addr, folder }))
    }

    /// Other clients, functions of `clients.py`.
    pub(crate) fn clients(self) -> &'static [&'static str] {
        match self {
            Kind::Kafka => &["confluent_kafka", "kcat"],
            Kind::Nsq => &["bench_writer"],
            Kind::Redis => &["redis_py", "redis_cli"],
            Kind::Jetstream => &["nats_bench", "nats_py"],
            Kind::Clickhouse => &["clickhouse_connect"],
            Kind::Http => &["http_client"],
            Kind::Parquet => &["pyarrow", "pyarrow_same_encodings"],
        }
    }
}

impl Place<'_> {
    /// What clients call the place, once nothing is in it: a topic, a stream, a database, a folder.
    pub(crate) fn make(&self, name: &str) -> String {
        match self.kind {
            Kind::Kafka => make_kafka_topic(self.addr, name, 4),
            Kind::Jetstream => make_jetstream(self.addr, name, &[name]),
            Kind::Parquet => return self.folder.join(name).display().to_string(),
            Kind::Nsq | Kind::Redis | Kind::Clickhouse | Kind::Http => {}
        }
        name.to_owned()
    }

    /// A configuration with the address, for rows that come at a pace, and else the defaults.
    pub(crate) fn config(&self, name: &str, pace: Pace) -> String {
        let addr = self.addr;
        let (to, key) = match self.kind {
            Kind::Kafka => (format!("kafka://{addr}/{name}"), ""),
            Kind::Nsq => (format!("nsq://{addr}/{name}"), ""),
            Kind::Redis => (format!("redis://{addr}/{name}"), ""),
            Kind::Jetstream => (format!("jetstream://{addr}/{name}"), ""),
            Kind::Clickhouse => (format!("clickhouse://{addr}/{name}"), "create_tables = true"),
            Kind::Http => (format!("http://{addr}/{name}"), "format = \"protobuf\""),
            Kind::Parquet => (format!("parquet:{name}"), ""),
        };
        let queue = match pace {
            Pace::Ready | Pace::AsTaken => "queue_size = \"2GiB\"",
            Pace::Flood => "",
        };
        format!("[sockets]\n[[sink]]\nfrom = [\"sockets\"]\nto = \"{to}\"\n{key}\n{queue}\n")
    }

    /// Takes everything away, so that the next one finds a server with as little as this one did.
    pub(crate) fn remove(&self, name: &str) -> anyhow::Result<()> {
        match self.kind {
            Kind::Nsq => post(second_port(self.addr), &format!("/topic/delete?topic={name}"))?,
            Kind::Parquet => fs::remove_dir_all(name).with_context(|| name.to_owned())?,
            Kind::Clickhouse => {
                readback::clickhouse(self.addr, &format!("DROP DATABASE `{name}`"));
            }
            Kind::Redis => {
                let port = self.addr.port().to_string();
                testkit::run(Command::new("redis-cli").args(["-p", &port, "del", name]));
            }
            Kind::Kafka => drop(client("remove_kafka", self.addr, name, &[])?),
            Kind::Jetstream => drop(client("remove_jetstream", self.addr, name, &[])?),
            Kind::Http => {}
        }
        Ok(())
    }
}

/// What a client of `clients.py` says.
pub(crate) fn client(
    what: &str,
    addr: SocketAddr,
    name: &str,
    args: &[&Path],
) -> anyhow::Result<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/sinks/clients.py");
    let python = testkit::find_tool("weir-python").context("no weir-python: make tools")?;
    let output = Command::new(python)
        .arg(script)
        .args([what, &addr.to_string(), name])
        .args(args)
        .stderr(Stdio::inherit())
        .output()?;
    anyhow::ensure!(output.status.success(), "{what}: {}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

/// A server that takes bodies and forgets them.
fn take_posts() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let addr = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || take_posts_of(&stream));
        }
    });
    Ok(addr)
}

fn take_posts_of(stream: &TcpStream) -> Option<()> {
    let mut reader = BufReader::with_capacity(256 << 10, stream);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
            let line = line.trim_end().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
        }

        std::io::copy(&mut reader.by_ref().take(length), &mut std::io::sink()).ok()?;
        (&mut &*stream).write_all(b"HTTP/1.1 204 No Content\r\n\r\n").ok()?;
    }
}

fn post(addr: SocketAddr, path: &str) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(addr)?;
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    anyhow::ensure!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    Ok(())
}
