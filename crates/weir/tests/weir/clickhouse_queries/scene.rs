//! Two hosts with a collector each, and connections between them that are known for something.

use crate::support::{Ended, Namespace, Weir};
use record::{DatagramRecord, Encoder, Encoding, FieldSet};
use serde_json::Value;
use socket2::{Domain, SockRef, Socket, Type};
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use testkit::{Peer, TempDir, skip, wait_for, within};
use wire::syslog::{Arrival, parse};

/// The client's address, and the server's three.
pub(super) const NEAR: &str = "10.99.0.1";
pub(super) const FAR: &str = "10.99.0.2";
/// Loses everything for a while.
pub(super) const LOSSY: &str = "10.99.0.3";
/// At the end of a slow way.
pub(super) const LATE: &str = "10.99.0.4";

/// Connections of each kind.
pub(super) const SHORT: u64 = 12;
pub(super) const RESETS: u64 = 5;
pub(super) const REFUSED: u64 = 3;

pub(super) const BULK_BYTES: u64 = 5_000_000;
/// Less than the first receive window: it is not full, however late the server reads.
const LOSSY_BYTES: usize = 60_000;

/// Messages of each kind.
pub(super) const ERRORS: u64 = 20;
pub(super) const NOTES: u64 = 10;
const ERROR: &str = "<131>1 2026-11-22T12:00:00Z db1 postgres 77 - - deadlock detected";
pub(super) const NOTE: &str = "<134>1 2026-11-22T12:00:00Z web1 nginx 78 - - reloaded";

/// Whose container the lossy connection is.
pub(super) const CONTAINER: &str =
    "3f4e1b1c9a4d2e7f8091a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f7";

/// What has happened, and what is known of it without a collector.
pub(super) struct Scene {
    dir: TempDir,
    pub(super) bulk: Connection,
    pub(super) stuck: Connection,
    /// What lay in the stuck connection's send queue at the end.
    pub(super) stuck_queue_bytes: u64,
    pub(super) late: Connection,
    /// Connections to the late address.
    pub(super) late_tries: u64,
    pub(super) lossy: Counters,
    pub(super) short_port: u16,
    pub(super) reset_port: u16,
    pub(super) full_port: u16,
}

impl Scene {
    /// Plays it, or says why that cannot be done here.
    pub(super) fn play() -> Option<Scene> {
        let cgroup = Cgroup::new()?;
        let hosts = Hosts::new();

        let bulk = hosts.bulk();
        let (stuck, stuck_queue_bytes) = hosts.stuck();
        let (late, late_tries) = hosts.late();
        let (lossy, _client, _server) = hosts.lossy(&cgroup);
        let short_port = hosts.short();
        let reset_port = hosts.reset();
        hosts.refused();
        let (full_port, _full) = hosts.full();

        // The connections are still there when the collectors stop: a close adds a byte for the FIN.
        let dir = hosts.stop();
        fs::write(dir.file("datagrams.pb"), datagrams()).unwrap();

        Some(Scene {
            dir,
            bulk,
            stuck,
            stuck_queue_bytes,
            late,
            late_tries,
            lossy,
            short_port,
            reset_port,
            full_port,
        })
    }

    /// The collectors' files, and that of the datagrams.
    pub(super) fn files(&self) -> [PathBuf; 3] {
        ["near.pb", "far.pb", "datagrams.pb"].map(|name| self.dir.file(name))
    }
}

/// Both ends of a connection, and the port of its service.
pub(super) struct Connection {
    near: TcpStream,
    far: TcpStream,
    pub(super) port: u16,
}

/// What ss(8) says of a connection.
pub(super) struct Counters {
    pub(super) bytes_sent: u64,
    pub(super) bytes_retrans: u64,
}

struct Hosts {
    dir: TempDir,
    near: Namespace,
    far: Namespace,
    collectors: [Weir; 2],
}

impl Hosts {
    fn new() -> Hosts {
        let (dir, near, far) = (TempDir::new(), Namespace::new(), Namespace::new());
        near.connect(&far);
        far.ip(&format!("address add {LOSSY}/24 dev far"));
        far.ip(&format!("address add {LATE}/24 dev far"));

        let collectors = [("near", &near), ("far", &far)].map(|(host, namespace)| {
            let text = format!(
                "[sockets]\ninterval = \"250ms\"\njitter = \"0s\"\nlisten_every = 1\nstates = [\"connected\", \"listening\"]\nhost = \"{host}\"\nhost_id = \"{host}-id\"\n\
                 namespaces = [\"{}\"]\n\
                 [[sink]]\nfrom = [\"sockets\"]\nname = \"store\"\nto = \"file:{}\"\nformat = \"protobuf\"\n\
                 [[sink]]\nfrom = [\"sockets\"]\nname = \"test\"\nto = \"file:{}\"\n",
                namespace.name,
                dir.text(&format!("{host}.pb")),
                dir.text(&format!("{host}.jsonl"))
            );
            let config = dir.file(&format!("{host}.toml"));
            fs::write(&config, text).unwrap();
            Weir::run(&config)
        });
        Hosts { dir, near, far, collectors }
    }

    /// Stops the collectors; what they wrote stays.
    fn stop(self) -> TempDir {
        for collector in self.collectors {
            let Ended { code, said, .. } = collector.stop();
            assert_eq!(code, Some(0), "{said}");
        }
        self.dir
    }

    /// What a collector has written.
    fn records(&self, host: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.dir.file(&format!("{host}.jsonl"))).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Waits until both collectors have this many records like that.
    fn wait_for(&self, what: &str, count: u64, is_wanted: impl Fn(&Value) -> bool) {
        for host in ["near", "far"] {
            self.wait_for_host(host, what, count, &is_wanted);
        }
    }

    fn wait_for_host(&self, host: &str, what: &str, count: u64, is_it: impl Fn(&Value) -> bool) {
        let found = || self.records(host).iter().filter(|record| is_it(record)).count() as u64;
        let words = || format!("{what}: {} of {count} on {host}", found());
        wait_for(words, || (found() >= count).then_some(()));
    }

    fn listen(&self, address: &str) -> TcpListener {
        self.far.inside(|| TcpListener::bind((address, 0)).unwrap())
    }

    /// Connects, and waits until the polls have seen both ends.
    fn open(&self, listener: &TcpListener, options: impl FnOnce(&Socket)) -> Connection {
        let address = listener.local_addr().unwrap();
        let near = self.near.inside(|| Socket::new(Domain::IPV4, Type::STREAM, None).unwrap());
        options(&near);
        near.connect(&address.into()).unwrap();

        let far = listener.accept().unwrap().0;
        let near: TcpStream = near.into();
        let client = near.local_addr().unwrap().port();
        self.wait_for("the connection", 1, |record| {
            is_about(record, client) && record["state"] == "established"
        });
        Connection { near, far, port: address.port() }
    }

    /// Moves many bytes in one direction, with another congestion control than the others have.
    fn bulk(&self) -> Connection {
        let listener = self.listen(FAR);
        let mut connection =
            self.open(&listener, |socket| socket.set_tcp_congestion(b"reno").unwrap());
        let (near, far) = (&mut connection.near, &mut connection.far);

        thread::scope(|scope| {
            scope.spawn(|| near.write_all(&vec![7; BULK_BYTES as usize]).unwrap());
            far.read_exact(&mut vec![0; BULK_BYTES as usize]).unwrap();
        });

        let port = connection.port;
        self.wait_for("all bytes", 1, |record| {
            let moved = if record["dst_port"] == port { "bytes_acked" } else { "bytes_received" };
            is_about(record, port) && record[moved].as_u64() >= Some(BULK_BYTES)
        });
        connection
    }

    /// A peer that does not read, while more and more is to be sent.
    fn stuck(&self) -> (Connection, u64) {
        let listener = self.listen(FAR);
        SockRef::from(&listener).set_recv_buffer_size(4_096).unwrap();
        let mut connection =
            self.open(&listener, |socket| socket.set_send_buffer_size(200_000).unwrap());
        let (mut last, port) = (0, connection.port);
        for _ in 0..6 {
            connection.near.write_all(&[7; 10_000]).unwrap();
            let queue = |record: &Value| {
                if record["dst_port"] == port { record["send_queue"].as_u64() } else { None }
            };
            self.wait_for_host("near", "a longer queue", 1, |record| queue(record) > Some(last));
            last = self.records("near").iter().filter_map(queue).max().unwrap();
        }
        (connection, last)
    }

    /// A connection that its send buffer limits, and how many were tried.
    ///
    /// Time counts as limited if the last of a queue is sent while a write waits (`tcp_cwnd_validate` of net/ipv4/tcp_output.c), and
    /// not if a write finds the buffer full. Which of them it is settles early: of connections with bbr, 5 of 38 had none of it
    /// for 20 s and longer.
    fn late(&self) -> (Connection, u64) {
        let listener = self.listen(LATE);
        let found = (1..=10).find_map(|tries| Some((self.limited(&listener)?, tries)));
        found.expect("a connection that its send buffer limits")
    }

    /// A send buffer of two segments, and a way that takes 12 ms for each.
    fn limited(&self, listener: &TcpListener) -> Option<Connection> {
        let mut connection = self.open(listener, |socket| socket.set_send_buffer_size(1).unwrap());
        self.near.tc("qdisc add dev out root tbf rate 1mbit burst 3000 latency 1s");

        let (near, far) = (&mut connection.near, &mut connection.far);
        let is_over = AtomicBool::new(false);
        let is_limited = thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    near.write_all(&[7; 1_000]).unwrap();
                }
                near.shutdown(Shutdown::Write).unwrap();
            });
            scope.spawn(|| far.read_to_end(&mut Vec::new()).unwrap());
            // No longer, for it is to be a seventh of the time or more.
            let is_limited = within(Duration::from_secs(6), || {
                let limited_ms = self.ss(LATE).figure("sndbuf_limited:", 'm');
                limited_ms >= Some(1_000)
            });
            is_over.store(true, Ordering::Relaxed);
            is_limited
        });

        self.near.tc("qdisc del dev out root");
        if !is_limited {
            return None;
        }
        self.wait_for_host("near", "a late answer", 1, |record| {
            record["dst_address"] == LATE && record["sndbuf_limited_us"].as_u64() >= Some(1_000_000)
        });
        Some(connection)
    }

    /// A client in a container whose segments get lost for a while.
    fn lossy(&self, cgroup: &Cgroup) -> (Counters, Peer, TcpStream) {
        let listener = self.listen(LOSSY);
        let port = listener.local_addr().unwrap().port();
        let mut command = self.near.command("sh");
        command.args(["-c", &format!("read go; exec socat -u STDIN TCP:{LOSSY}:{port}")]);
        let mut client = Peer::start(command.stdin(Stdio::piped()));
        cgroup.take(&client);

        let mut stdin = client.0.stdin.take().unwrap();
        stdin.write_all(b"\n").unwrap();
        let mut server = listener.accept().unwrap().0;
        self.wait_for("the lossy connection", 1, |record| {
            is_about(record, port) && record["state"] == "established"
        });

        // Nobody has this hardware address.
        self.near
            .ip(&format!("neigh replace {LOSSY} lladdr 02:00:00:00:00:77 dev out nud permanent"));
        stdin.write_all(&[7; LOSSY_BYTES / 2]).unwrap();
        wait_for("three retransmissions", || {
            let text = self.ss(LOSSY).0;
            let (_, total) = text.split_once(" retrans:")?.1.split_once('/')?;
            let total: u64 = total.split(' ').next()?.parse().ok()?;
            (total >= 3).then_some(())
        });

        let link = self.far.ip("-o link show dev far");
        let hardware = link.split("link/ether ").nth(1).unwrap().split(' ').next().unwrap();
        self.near.ip(&format!("neigh replace {LOSSY} lladdr {hardware} dev out nud permanent"));
        stdin.write_all(&[7; LOSSY_BYTES / 2]).unwrap();
        server.read_exact(&mut [0; LOSSY_BYTES]).unwrap();

        let counters = wait_for("all acknowledged", || {
            let ss = self.ss(LOSSY);
            let acked = ss.figure("bytes_acked:", ' ')?;
            let [bytes_sent, bytes_retrans] =
                ["bytes_sent:", "bytes_retrans:"].map(|name| ss.figure(name, ' '));
            let counters = Counters { bytes_sent: bytes_sent?, bytes_retrans: bytes_retrans? };
            (acked > LOSSY_BYTES as u64).then_some(counters)
        });
        self.wait_for_host("near", "the last counters", 1, |record| {
            is_about(record, port) && record["bytes_acked"].as_u64() > Some(LOSSY_BYTES as u64)
        });
        client.0.stdin = Some(stdin);
        (counters, client, server)
    }

    /// Connections for one question and one answer each.
    fn short(&self) -> u16 {
        let listener = self.listen(FAR);
        let address = listener.local_addr().unwrap();
        for _ in 0..SHORT {
            let mut near = self.near.inside(|| TcpStream::connect(address).unwrap());
            let mut far = listener.accept().unwrap().0;
            near.write_all(&[7; 100]).unwrap();
            far.read_exact(&mut [0; 100]).unwrap();
            far.write_all(&[7; 1_000]).unwrap();
            near.read_exact(&mut [0; 1_000]).unwrap();
            drop(near);
            assert_eq!(far.read(&mut [0; 1]).unwrap(), 0);
        }
        self.wait_for("the closes", SHORT, |record| {
            is_about(record, address.port()) && record["record_kind"] == "close"
        });
        address.port()
    }

    /// Connections that their clients reset.
    fn reset(&self) -> u16 {
        let listener = self.listen(FAR);
        let open: Vec<_> = (0..RESETS).map(|_| self.open(&listener, |_| {})).collect();
        for connection in &open {
            SockRef::from(&connection.near).set_linger(Some(Duration::ZERO)).unwrap();
        }
        drop(open);
        let port = listener.local_addr().unwrap().port();
        self.wait_for("the resets", RESETS, |record| {
            is_about(record, port) && record["record_kind"] == "close"
        });
        port
    }

    /// Connections to a port at which nobody listens.
    fn refused(&self) {
        let listener = self.listen(FAR);
        let address = listener.local_addr().unwrap();
        drop(listener);
        for _ in 0..REFUSED {
            self.near.inside(|| TcpStream::connect(address).unwrap_err());
        }
        self.wait_for_host("near", "the refusals", REFUSED, |record| {
            record["close_reason"] == "refused"
        });
    }

    /// A listener that does not accept, and more clients than it has room for.
    fn full(&self) -> (u16, Vec<Socket>) {
        let new = || Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let listener = self.far.inside(new);
        let any: SocketAddr = format!("{FAR}:0").parse().unwrap();
        listener.bind(&any.into()).unwrap();
        listener.listen(1).unwrap();

        let address = listener.local_addr().unwrap();
        let mut sockets = vec![listener];
        for _ in 0..4 {
            let client = self.near.inside(new);
            client.set_nonblocking(true).unwrap();
            let _ = client.connect(&address);
            sockets.push(client);
        }

        let port = address.as_socket().unwrap().port();
        self.wait_for_host("far", "a full queue", 1, |record| {
            record["src_port"] == port
                && record["receive_queue"] == 2
                && record["drops"].as_u64() > Some(0)
        });
        (port, sockets)
    }

    /// What ss(8) says of the client's connections to an address.
    fn ss(&self, peer: &str) -> Ss {
        let mut command = self.near.command("ss");
        Ss(testkit::run(command.args(["-tinHO", "dst", peer])))
    }
}

struct Ss(String);

impl Ss {
    /// The number behind a name, up to this character or a space.
    fn figure(&self, name: &str, end: char) -> Option<u64> {
        let rest = self.0.split_once(&format!(" {name}"))?.1;
        rest.split([end, ' ', '\n']).next()?.parse().ok()
    }
}

fn is_about(record: &Value, port: u16) -> bool {
    record["src_port"] == port || record["dst_port"] == port
}

/// Syslog of two senders, as rows.
fn datagrams() -> Vec<u8> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let mut encoder = Encoder::new(Encoding::Protobuf, &FieldSet::ALL);
    let mut out = Vec::new();
    for (sender, count, payload) in [(1, ERRORS, ERROR), (2, NOTES, NOTE)] {
        for number in 0..count {
            let unix_ns = now - number * 1_000_000;
            let mut datagram = DatagramRecord {
                time_unix_ns: Some(unix_ns),
                sequence: Some(number),
                run_id: Some(sender),
                host: Some("far"),
                listener: Some("syslog"),
                source_address: Some(Ipv4Addr::new(192, 0, 2, sender as u8).into()),
                payload: Some(payload.as_bytes()),
                ..DatagramRecord::new()
            };
            let arrival = Arrival::utc(unix_ns);
            datagram.fill_syslog(&parse(payload.as_bytes(), arrival));
            encoder.datagram(&datagram, &mut out);
        }
    }
    out
}

/// A cgroup whose name is that of a container's.
struct Cgroup(PathBuf);

impl Cgroup {
    fn new() -> Option<Cgroup> {
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"));
        let Some(mount) = mount.and_then(|line| line.split(' ').nth(1)) else {
            skip("no cgroup v2 hierarchy is mounted", &["REQUIRE_ALL"]);
            return None;
        };
        let path = PathBuf::from(mount).join(format!("weir-queries-{}", std::process::id()));
        let path = path.join(format!("docker-{CONTAINER}.scope"));
        if let Err(error) = fs::create_dir_all(&path) {
            skip(&format!("{}: {error}", path.display()), &["REQUIRE_ALL"]);
            return None;
        }
        Some(Cgroup(path))
    }

    fn take(&self, process: &Peer) {
        fs::write(self.0.join("cgroup.procs"), process.0.id().to_string()).unwrap();
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Processes that have just ended may be in it for a moment.
        within(Duration::from_secs(2), || fs::remove_dir(&self.0).is_ok());
        let _ = fs::remove_dir(self.0.parent().unwrap());
    }
}
