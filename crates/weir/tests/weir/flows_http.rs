//! Flows over HTTP from a daemon that hears sFlow: the pages of the admin server, what scripts of sFlow-RT ask, and a Prometheus that scrapes.

mod metrics;
mod scripts;

use crate::support::Weir;
use load::sflow::{Agent, AgentOptions, TrueFlow};
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use testkit::{DEADLINE, TempDir, free_port, wait_for};

/// A daemon that analyzes sFlow.
struct Rig {
    weir: Weir,
    rest: SocketAddr,
    /// Its configuration file is here.
    dir: TempDir,
}

/// Two definitions and a threshold, and what follows.
fn file(rest: SocketAddr, listen: SocketAddr, more: &str) -> String {
    format!(
        "[[listener]]\nname = \"sflow\"\nlisten = \"{listen}\"\n\
         [flows]\nfrom = [\"sflow\"]\nrest = \"{rest}\"\nevents_max = 3\n\
         [flows.groups]\ncustomers = [\"198.51.100.64/26\"]\n\
         [[flow]]\nname = \"pairs\"\nkeys = [\"src\", \"dst\"]\nsmoothing = \"1s\"\nmetrics = true\nflows_max = 1000\n\
         [[flow]]\nname = \"quiet\"\nkeys = [\"src\"]\n{more}"
    )
}

const HEAVY: &str = "[[threshold]]\nname = \"heavy\"\nflow = \"pairs\"\nlimit = \"1Gbit/s\"\nclear_after = \"1h\"\n";

impl Rig {
    fn start(more: &str) -> Rig {
        let dir = TempDir::new();
        let free = || SocketAddr::from(([127, 0, 0, 1], free_port()));
        let rest = free();
        fs::write(dir.file("weir.toml"), file(rest, free(), more)).unwrap();
        Rig { weir: Weir::run(&dir.file("weir.toml")), rest, dir }
    }

    fn admin(&self, target: &str) -> (u16, String) {
        ask(self.weir.admin, "GET", target, "localhost", b"")
    }

    fn json(&self, target: &str) -> Value {
        read(self.admin(target))
    }

    fn rest(&self, method: &str, target: &str, body: &str) -> (u16, String) {
        ask(self.rest, method, target, "localhost", body.as_bytes())
    }

    fn rest_json(&self, target: &str) -> Value {
        read(self.rest("GET", target, ""))
    }

    /// The page once it is as wanted.
    fn until(&self, target: &str, is_wanted: impl Fn(&Value) -> bool) -> Value {
        let look = || Some(self.json(target)).filter(&is_wanted);
        wait_for(|| format!("{target}: {}", self.json(target)), look)
    }
}

fn read((status, text): (u16, String)) -> Value {
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// A request of HTTP/1.0, so that no answer comes in chunks; its status and its body.
fn ask(to: SocketAddr, method: &str, target: &str, host: &str, body: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let length = body.len();
    let head =
        format!("{method} {target} HTTP/1.0\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    // One that is refused for its length is not read to its end.
    let _ = stream.write_all(body);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// An agent that sends 2 Gbit/s of traffic as it happens, until it is dropped.
struct Playing {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Playing {
    fn to(address: SocketAddr) -> Playing {
        let is_over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&is_over);
        let flow = |last: u8, frames_per_s| TrueFlow {
            src: Ipv4Addr::new(10, 0, 0, last),
            dst: Ipv4Addr::new(198, 51, 100, 1),
            protocol: 17,
            src_port: 53,
            dst_port: 40_000,
            frame_bytes: 1_000,
            frames_per_s,
        };
        let options = AgentOptions {
            sampling_rate: 100,
            counters_every: Duration::from_millis(200),
            ..AgentOptions::default()
        };
        let mut agent = Agent::new(options, vec![flow(1, 200_000.0), flow(2, 50_000.0)], 3);
        let thread = thread::spawn(move || {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            let (began, mut bytes) = (Instant::now(), Vec::new());
            while !ended.load(Ordering::Relaxed) {
                bytes.clear();
                let at = agent.next_datagram(&mut bytes);
                thread::park_timeout(at.saturating_sub(began.elapsed()));
                // While a daemon is away, it is refused.
                let _ = socket.send_to(&bytes, address);
            }
        });
        Playing { is_over, thread: Some(thread) }
    }
}

impl Drop for Playing {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take().into_iter().for_each(|thread| thread.join().unwrap());
    }
}

#[test]
fn pages_show_what_a_daemon_hears() {
    let rig = Rig::start("");
    let _playing = Playing::to(rig.weir.address());

    let top = rig.until("/flows/top?flow=pairs&n=1", |top| {
        top["flows"][0]["per_s"]["value"].as_f64().is_some_and(|rate| rate > 1e8)
    });
    assert_eq!(top["flows"].as_array().unwrap().len(), 1);
    assert_eq!(top["flows"][0]["key"], json!({ "src": "10.0.0.1", "dst": "198.51.100.1" }));
    // 200,000 frames of 1,000 bytes.
    rig.until("/flows/top?flow=pairs&n=1", |top| {
        let rate = &top["flows"][0]["per_s"];
        let [low, high] = ["low", "high"].map(|end| rate[end].as_f64().unwrap_or(0.0));
        low <= 2e8 && 2e8 <= high && high - low < 1e8
    });

    let flows = rig.json("/flows");
    assert_eq!(flows["definitions"][0]["flows_kept"], 2, "{flows}");
    assert_eq!(flows["agents"], 1);
    let agents = rig.json("/flows/agents");
    assert_eq!(agents[0]["address"], "192.0.2.1");
    assert_eq!(agents[0]["samplers"][0]["configured"], 100);
    rig.until("/flows/interfaces?agent=192.0.2.1", |ports| {
        ports[0]["rates"]["in"]["bits_per_s"].as_f64().is_some_and(|rate| rate > 1e9)
    });
    assert_eq!(rig.json("/flows/interfaces?agent=192.0.2.9"), json!([]));

    for (target, status) in [
        ("/flows/top", 400),
        ("/flows/top?flow=none", 404),
        ("/flows/top?flow=pairs&n=10001", 400),
        ("/flows/events?wait=31s", 400),
        ("/flows/none", 404),
    ] {
        let (told, text) = rig.admin(target);
        assert_eq!(told, status, "{target}: {text}");
    }
    assert_eq!(rig.weir.stop().code, Some(0));
}

#[test]
fn events_end_a_wait_and_those_that_are_gone_are_counted() {
    // Sources above a limit and no more: four raised, of which three are kept.
    let each = |at: usize| HEAVY.replace("heavy", &format!("heavy{at}"));
    let rig = Rig::start(&(0..4).map(each).collect::<String>());
    let (admin, waiting) = (rig.weir.admin, |target: &'static str, admin| {
        thread::spawn(move || read(ask(admin, "GET", target, "localhost", b"")))
    });

    let empty = rig.json("/flows/events?wait=10ms");
    assert_eq!(empty, json!({ "events": [], "missed": 0, "last_event": 0 }));
    let waits = waiting("/flows/events?wait=30s", admin);
    let _playing = Playing::to(rig.weir.address());
    let told = waits.join().unwrap();
    let first = &told["events"][0];
    assert_eq!((&first["change"], &first["of"]["flow"]), (&json!("raised"), &json!("pairs")));

    let all = rig.until("/flows/events", |events| events["last_event"] == 4);
    assert_eq!((&all["missed"], all["events"].as_array().unwrap().len()), (&json!(1), 3));
    let rest = rig.json("/flows/events?after=3");
    assert_eq!((&rest["missed"], rest["events"].as_array().unwrap().len()), (&json!(0), 1));
    let none = rig.json("/flows/events?after=4&wait=10ms");
    assert_eq!((&none["events"], &none["last_event"]), (&json!([]), &json!(4)));

    // A stop ends who waits, and is not held up.
    let waits = thread::spawn(move || {
        ask(admin, "GET", "/flows/events?after=4&wait=30s", "localhost", b"").0
    });
    let in_flight = || rig.json("/flows/events?after=4&wait=10ms")["events"] == json!([]);
    wait_for("the wait", || in_flight().then_some(()));
    assert_eq!(rig.weir.stop().code, Some(0));
    assert!([200, 503].contains(&waits.join().unwrap()));
}

#[test]
fn only_this_machine_is_answered_and_only_where_flows_are() {
    let rig = Rig::start("");
    for (to, target) in [(rig.weir.admin, "/flows"), (rig.rest, "/flow/json")] {
        for (host, status) in [("evil.example", 403), ("localhost", 200), ("127.0.0.1:80", 200)] {
            assert_eq!(ask(to, "GET", target, host, b"").0, status, "{target} {host}");
        }
    }
    assert_eq!(ask(rig.rest, "PUT", "/flow/x/json", "evil.example", b"{}").0, 403);
    assert_eq!(rig.rest("POST", "/flow/x/json", "{}").0, 405);

    let dir = TempDir::new();
    let text = "[[listener]]\nlisten = \"127.0.0.1:0\"\n[[listener.target]]\nto = \"null:\"\n";
    fs::write(dir.file("weir.toml"), text).unwrap();
    let without = Weir::run(&dir.file("weir.toml"));
    for target in ["/flows", "/flows/top?flow=pairs", "/flows/events"] {
        let (status, text) = ask(without.admin, "GET", target, "localhost", b"");
        assert_eq!(status, 404);
        assert!(text.contains("[flows]"), "{text}");
    }
}
