//! Where the commands of a block run: a network namespace behind which every address is somebody's, a folder with the
//! files that they name, and what stands around them.

use super::WRONG;
use super::compare::{has_all, is_all};
use crate::flows_command::capture;
use crate::support::WEIR;
use load::sflow::{Agent, AgentOptions, TrueFlow};
use socket2::{Domain, SockAddr, Socket, Type};
use std::cell::Cell;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use testkit::{DEADLINE, Netns, Peer, TempDir, root, signal, wait_for};

/// A command that has said nothing for this long has nothing to say before its end.
const QUIET: Duration = Duration::from_secs(1);

/// What Ctrl-C sends.
const SIGINT: i32 = 2;

/// The daemon's file: README's, on loopback, where `old` has a receiver and `new` has none.
const CONFIGURATION: &str = r#"
[[listener]]
name = "syslog"
listen = "udp://127.0.0.1:5514"

[[listener.target]]
name = "old"
to = "udp://127.0.0.1:6001"

[[listener.target]]
name = "new"
to = "udp://127.0.0.1:6002"
rate_limit = 500
"#;

/// What is missing at the end of the capture.
const CUT_BYTES: usize = 2_000;

/// Names that the documents use.
const HOSTS: &str = "127.0.0.1 localhost\n10.0.0.9 graphite.example.net\n";

pub(super) struct Scene {
    netns: Netns,
    /// Takes what is sent to any address, and answers nothing.
    _world: Netns,
    folder: TempDir,
    /// Commands that go on.
    running: Vec<Running>,
    /// What stands around them.
    peers: Vec<Peer>,
    streams: Vec<TcpStream>,
    /// Datagrams that the receiver of `old` has.
    received: Arc<AtomicU64>,
    failures: Vec<String>,
    /// How many commands were begun.
    begun: Cell<usize>,
}

struct Running {
    line: String,
    peer: Peer,
    number: usize,
}

/// A capture of a few datagrams of one agent.
fn some_sflow() -> Vec<u8> {
    let flow = TrueFlow {
        src: [10, 0, 0, 1].into(),
        dst: [198, 51, 100, 1].into(),
        protocol: 17,
        src_port: 53,
        dst_port: 9,
        frame_bytes: 500,
        frames_per_s: 10_000.0,
    };
    let mut agent = Agent::new(AgentOptions::default(), vec![flow], 1);
    let datagrams = (0..10).map(|_| {
        let mut bytes = Vec::new();
        agent.next_datagram(&mut bytes);
        bytes
    });
    capture(&datagrams.collect::<Vec<_>>())
}

impl Scene {
    fn empty() -> Scene {
        let (netns, world) = (Netns::new(), Netns::new());
        netns.connect("out", &world, "in");
        netns.ip("address add 10.99.0.1/24 dev out");
        netns.ip("route add default via 10.99.0.2");
        netns.ip("address add 192.0.2.10/32 dev lo");
        world.ip("address add 10.99.0.2/24 dev in");
        world.ip("route add local default dev lo");
        netns.write_hosts(HOSTS);

        let folder = TempDir::new();
        std::fs::write(folder.file("weir.toml"), CONFIGURATION).unwrap();
        let whole = std::fs::read(root().join("crates/wire/testdata/protocols-6.18.pcap")).unwrap();
        std::fs::write(folder.file("monitor.pcap"), &whole[..whole.len() - CUT_BYTES]).unwrap();
        std::fs::write(folder.file("sflow.pcap"), some_sflow()).unwrap();
        Scene {
            netns,
            _world: world,
            folder,
            running: Vec::new(),
            peers: Vec::new(),
            streams: Vec::new(),
            received: Arc::default(),
            failures: Vec::new(),
            begun: Cell::new(0),
        }
    }

    /// For these commands: with a daemon if one of them asks it.
    pub(super) fn of<'a>(lines: impl Iterator<Item = &'a str>) -> Scene {
        let mut scene = Scene::empty();
        let asks = ["weir ledger", "weir stop", "weir reload", "weir flows --events"];
        if lines.into_iter().any(|line| asks.iter().any(|start| line.starts_with(start))) {
            scene.start_daemon();
        }
        scene
    }

    /// The one that a fence names.
    pub(super) fn named(name: &str, place: &str) -> Scene {
        let mut scene = Scene::empty();
        match name {
            "" => {}
            "relay" => {
                scene.start_daemon();
                scene.send_until_new_has_lost();
            }
            "flows" => scene.play_sflow(),
            "full-socket" => scene.fill_a_socket(),
            "unread-connection" => scene.leave_a_connection_unread(),
            "connection" => scene.connect(),
            "records" => scene.send_records(),
            other => panic!("{place}: there is no scene {other:?}"),
        }
        scene
    }

    fn start_daemon(&mut self) {
        let receiver = self.netns.inside(|| UdpSocket::bind("127.0.0.1:6001").unwrap());
        // The thread ends when nothing comes any more.
        receiver.set_read_timeout(Some(DEADLINE)).unwrap();
        let received = Arc::clone(&self.received);
        std::thread::spawn(move || {
            while receiver.recv(&mut [0; 2_000]).is_ok() {
                received.fetch_add(1, Ordering::Relaxed);
            }
        });
        self.start(&format!("{WEIR} run -c weir.toml"));
        wait_for("the daemon", || self.ask("weir ledger").0.eq(&Some(0)).then_some(()));
    }

    /// Sends more than `new` may have, to a port where nobody listens, until most is lost before it is sent. The receiver
    /// of `old` keeps up.
    fn send_until_new_has_lost(&mut self) {
        let from = self.netns.inside(|| UdpSocket::bind("127.0.0.1:0").unwrap());
        let mut sent = 0;
        let is_there = |printed: &str| {
            printed.matches("  refused").count() == 2
                && printed.contains("rate_limited")
                && printed.contains(" at target of syslog -> new")
                && printed.contains("in flight: 0 ")
        };
        wait_for(
            || self.ask("weir ledger").1,
            || {
                for _ in 0..20 {
                    for _ in 0..100 {
                        from.send_to(&[b'x'; 200], "127.0.0.1:5514").unwrap();
                    }
                    sent += 100;
                    let received = || self.received.load(Ordering::Relaxed);
                    wait_for("the receiver of old", || (received() >= sent).then_some(()));
                }
                is_there(&self.ask("weir ledger").1).then_some(())
            },
        );
    }

    fn play_sflow(&mut self) {
        let agents = "gen sflow --to 127.0.0.1:6343 --agents 2 --flows 4 --loss 20 --duration 10m";
        self.start(&format!("{WEIR} {agents}"));
    }

    /// A relay that does not go on, with more in front of it than its buffer holds.
    fn fill_a_socket(&mut self) {
        let listen = "--listen '127.0.0.1:20514?receive_buffer=208KiB' --to null: --progress off";
        self.start(&format!("{WEIR} relay {listen}"));
        let relay = &self.peers.last().unwrap().0;
        let looks = || self.ask("weir sockets -ul sport = :20514").1;
        wait_for("the relay's socket", || looks().contains(":20514").then_some(()));
        signal(relay, "STOP");
        let from = self.netns.inside(|| UdpSocket::bind("127.0.0.1:0").unwrap());
        wait_for("drops", || {
            from.send_to(&[b'x'; 200], "127.0.0.1:20514").unwrap();
            let has_dropped = self.ask("weir sockets -ul drops '>' 0").1.contains(":20514");
            has_dropped.then_some(())
        });
    }

    /// A connection to port 20444 whose other end does not read.
    fn leave_a_connection_unread(&mut self) {
        let ends = self.netns.inside(|| {
            let listener = TcpListener::bind("[::]:20444").unwrap();
            let mut client = TcpStream::connect("127.0.0.1:20444").unwrap();
            client.write_all(&[0; 5_000]).unwrap();
            [client, listener.accept().unwrap().0]
        });
        self.streams.extend(ends);
    }

    /// A connection from 198.51.100.7 to port 443.
    fn connect(&mut self) {
        self.netns.ip("address add 198.51.100.7/32 dev lo");
        let ends = self.netns.inside(|| {
            let listener = TcpListener::bind("192.0.2.10:443").unwrap();
            let client = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            let address = |ip: [u8; 4], port| SockAddr::from(SocketAddr::from((ip, port)));
            client.bind(&address([198, 51, 100, 7], 0)).unwrap();
            client.connect(&address([192, 0, 2, 10], 443)).unwrap();
            [client.into(), listener.accept().unwrap().0]
        });
        self.streams.extend(ends);
    }

    /// A daemon of a host of this name, whose records go to port 9465 as soon as somebody listens there.
    fn send_records(&mut self) {
        self.connect();
        let file = "[sockets]\ninterval = \"1s\"\nhost = \"web-1\"\nnamespaces = \"own\"\n\n[[sink]]\nname = \"near\"\nfrom = [\"sockets\"]\n\
                    to = \"udp://127.0.0.1:9465\"\n";
        std::fs::write(self.folder.file("records.toml"), file).unwrap();
        let is_awaited = format!("{WEIR} sockets -ul sport = :9465 | grep -q 9465");
        self.start(&format!(
            "until {is_awaited}; do sleep 0.05; done; exec {WEIR} run -c records.toml"
        ));
    }

    fn start(&mut self, line: &str) {
        let mut command = self.command(line);
        self.peers.push(Peer::start(command.stdout(Stdio::null()).stderr(Stdio::null())));
    }

    /// A line for the shell, in the folder and the namespace.
    fn command(&self, line: &str) -> Command {
        let program = Path::new(WEIR).parent().unwrap().display();
        let mut command = self.netns.command("sh");
        // Only a simple command may take the shell's place, so that it gets the signals.
        let is_simple = !["| ", "; ", "&& "].iter().any(|between| line.contains(between));
        let run = if is_simple { "exec " } else { "" };
        let line = line.strip_prefix("sudo ").unwrap_or(line);
        command.args(["-c", &format!("PATH={program}:$PATH; {run}{line}")]);
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        for name in ["COLUMNS", "WEIR_ADMIN", "WEIR_CONFIG"] {
            command.env_remove(name);
        }
        command
    }

    /// Runs it to its end.
    fn ask(&self, line: &str) -> (Option<i32>, String) {
        let output = self.command(line).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    }

    /// Starts it, with what it prints in files.
    fn begin(&self, line: &str) -> (Peer, usize) {
        let number = self.begun.get();
        self.begun.set(number + 1);
        let file = |end: &str| {
            std::fs::File::create(self.folder.file(&format!("{number}.{end}"))).unwrap()
        };
        let mut command = self.command(line);
        (Peer::start(command.stdout(file("out")).stderr(file("err"))), number)
    }

    fn printed(&self, number: usize) -> String {
        let read = |end: &str| {
            std::fs::read(self.folder.file(&format!("{number}.{end}"))).unwrap_or_default()
        };
        String::from_utf8_lossy(&[read("out"), read("err")].concat()).into_owned()
    }

    /// Holds what it prints against what was promised: all of it, or, of a command that goes on, lines that it has printed.
    /// A promised line of `^C` is pressed, and stands for what was printed meanwhile.
    pub(super) fn compare(&mut self, place: &str, line: &str, promised: &[String]) {
        let (mut peer, number) = self.begin(line);
        let words = || {
            let (promised, printed) = (promised.join("\n"), self.printed(number));
            format!("{place}: {line}\n--- promised:\n{promised}\n--- printed:\n{printed}")
        };
        let first = promised.split(|line| line == "^C").next().unwrap_or_default();
        if first.len() < promised.len() {
            wait_for(words, || has_all(first, &self.printed(number)).then_some(()));
            signal(&peer.0, "INT");
            wait_for(words, || peer.0.try_wait().unwrap());
            let all = promised.iter().map(|line| line.replace("^C", "…")).collect::<Vec<_>>();
            assert!(is_all(&all, &self.printed(number)), "{}", words());
            return;
        }
        wait_for(words, || {
            let has_ended = peer.0.try_wait().unwrap().is_some();
            let printed = self.printed(number);
            let holds = match has_ended {
                true => is_all(promised, &printed),
                false => has_all(promised, &printed),
            };
            assert!(holds || !has_ended, "{}", words());
            holds.then_some(())
        });
    }

    /// Runs it until it ends, or says something, or is quiet; what goes on does so until another takes its place.
    pub(super) fn run(&mut self, place: &str, line: &str) {
        let taken = |one: &Running| {
            let name = |line: &str| line.split_whitespace().nth(1).map(str::to_owned);
            name(&one.line) == name(line) && name(line).as_deref() != Some("relay")
        };
        let (ended, running) = std::mem::take(&mut self.running).into_iter().partition(taken);
        self.running = running;
        self.end_all(place, ended);

        let (mut peer, number) = self.begin(line);
        let started = Instant::now();
        let status = wait_for(line, || {
            let status = peer.0.try_wait().unwrap();
            let has_begun = !self.printed(number).is_empty() || started.elapsed() > QUIET;
            (status.is_some() || has_begun).then_some(status)
        });
        let running = Running { line: line.to_owned(), peer, number };
        match status {
            Some(status) => self.judge(place, &running, status),
            None => self.running.push(running),
        }
    }

    /// Ends what still runs. Returns what went wrong.
    pub(super) fn end(mut self, place: &str) -> Vec<String> {
        let running = std::mem::take(&mut self.running);
        self.end_all(place, running);
        self.failures
    }

    fn end_all(&mut self, place: &str, running: Vec<Running>) {
        for mut one in running {
            if one.peer.0.try_wait().unwrap().is_none() {
                signal(&one.peer.0, "INT");
            }
            let status = wait_for(&*one.line, || one.peer.0.try_wait().unwrap());
            self.judge(place, &one, status);
        }
    }

    fn judge(&mut self, place: &str, one: &Running, status: ExitStatus) {
        // Ctrl-C may come between what it prints and its end.
        let is_right = match status.code() {
            Some(code) => !WRONG.contains(&code),
            None => status.signal() == Some(SIGINT),
        };
        if !is_right {
            let (line, printed) = (&one.line, self.printed(one.number));
            self.failures.push(format!("{place}: {line}\n{status}: {printed}"));
        }
    }
}
