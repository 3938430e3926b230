//! A mitigation that acts, against a sender that lies and a speaker that hangs. The speaker is a socket of the test.

use crate::support::Weir;
use load::sflow::{Agent, AgentOptions, TrueFlow};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use testkit::{TempDir, get, wait_for};

const VICTIM: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);

/// What the speaker does with a command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answers {
    Done,
    Nothing,
}

fn config(dir: &TempDir) -> String {
    format!(
        "[daemon]\ndrain_grace = \"6s\"\n\
         [[listener]]\nname = \"sflow\"\nlisten = \"127.0.0.1:0\"\nallow_sources = [\"127.0.0.0/8\"]\n\
         [flows]\nfrom = [\"sflow\"]\n\
         [[flow]]\nname = \"victims\"\nkeys = [\"dst\"]\nsmoothing = \"1s\"\n\
         [[threshold]]\nname = \"flood\"\nflow = \"victims\"\nlimit = \"200Mbit/s\"\nabove_for = \"100ms\"\n\
         [[mitigation]]\nname = \"edge\"\nthresholds = [\"flood\"]\nspeaker = \"exabgp:{}\"\ndry_run = false\n\
         own_networks = [\"192.0.2.0/24\"]\naction = \"flowspec\"\naudit_log = \"{}\"\n",
        dir.text("exabgp.sock"),
        dir.text("audit.jsonl"),
    )
}

/// A speaker that has heard these commands.
fn speaker(dir: &TempDir, answers: Answers) -> Arc<Mutex<Vec<String>>> {
    let heard = Arc::<Mutex<Vec<String>>>::default();
    let stream =
        wait_for("the speaker's socket", || UnixStream::connect(dir.file("exabgp.sock")).ok());
    let lines = Arc::clone(&heard);
    // Ends with the daemon.
    thread::spawn(move || {
        let mut answer = stream.try_clone().unwrap();
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            lines.lock().unwrap().push(line);
            if answers == Answers::Done && answer.write_all(b"done\n").is_err() {
                return;
            }
        }
    });
    heard
}

/// An agent that sees a flow to the victim, until it is dropped.
struct Played {
    stop: Arc<AtomicBool>,
    /// Datagrams sent.
    sent: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Played {
    fn to(address: SocketAddr, number: u8, bits_per_s: f64) -> Played {
        let mut agent = agent(number, 100, bits_per_s);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (stop, sent) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (has_stopped, count) = (Arc::clone(&stop), Arc::clone(&sent));
        let thread = thread::spawn(move || {
            let (begin, mut bytes) = (Instant::now(), Vec::new());
            while !has_stopped.load(Ordering::Relaxed) {
                let due = agent.next_datagram(&mut bytes);
                thread::park_timeout(due.saturating_sub(begin.elapsed()));
                socket.send_to(&bytes, address).unwrap();
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        Played { stop, sent, thread: Some(thread) }
    }

    /// Waits until it has sent so many more datagrams.
    fn wait_for_more(&self, count: u64) {
        let until = self.sent.load(Ordering::Relaxed) + count;
        wait_for("more datagrams", || (self.sent.load(Ordering::Relaxed) >= until).then_some(()));
    }
}

impl Drop for Played {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

fn agent(number: u8, sampling_rate: u32, bits_per_s: f64) -> Agent {
    let flow = TrueFlow {
        src: Ipv4Addr::new(203, 0, 113, 7),
        dst: VICTIM,
        protocol: 17,
        src_port: 53,
        dst_port: 40_000,
        frame_bytes: 1_000,
        frames_per_s: bits_per_s / 8_000.0,
    };
    let address = Ipv4Addr::new(10, 0, 0, number).into();
    let options = AgentOptions { address, sampling_rate, ..AgentOptions::default() };
    Agent::new(options, vec![flow], number.into())
}

fn announced(heard: &Mutex<Vec<String>>) -> usize {
    heard.lock().unwrap().iter().filter(|line| line.starts_with("announce ")).count()
}

#[test]
fn one_forged_datagram_announces_nothing_and_an_attack_does() {
    let dir = TempDir::new();
    fs::write(dir.file("weir.toml"), config(&dir)).unwrap();
    let weir = Weir::run(&dir.file("weir.toml"));
    let heard = speaker(&dir, Answers::Done);

    // 100 Mbit/s in 25 datagrams a second: half of the limit.
    let usual = Played::to(weir.address(), 1, 100e6);
    usual.wait_for_more(50);
    let mut bytes = Vec::new();
    agent(99, 1 << 30, 1e15).next_datagram(&mut bytes);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.send_to(&bytes, weir.address()).unwrap();
    let implausible = |page: &str| {
        page.lines().any(|line| {
            line.starts_with("weir_flow_samples_total{kind=\"implausible\"}")
                && !line.ends_with(" 0")
        })
    };
    wait_for("the forged datagram", || {
        implausible(&get(weir.admin, "/metrics", "*/*")).then_some(())
    });
    usual.wait_for_more(150);
    assert_eq!(announced(&heard), 0, "{heard:?}");
    let audit = fs::read_to_string(dir.file("audit.jsonl")).unwrap();
    assert!(!audit.contains("\"announce\""), "{audit}");

    let attack = Played::to(weir.address(), 2, 500e6);
    wait_for("the route", || (announced(&heard) > 0).then_some(()));
    drop((attack, usual));
    assert_eq!(weir.stop().code, Some(0));
}

#[test]
fn a_speaker_that_hangs_delays_no_last_ledger() {
    let dir = TempDir::new();
    fs::write(dir.file("weir.toml"), config(&dir)).unwrap();
    let weir = Weir::run(&dir.file("weir.toml"));
    let heard = speaker(&dir, Answers::Nothing);
    let attack = Played::to(weir.address(), 2, 500e6);
    wait_for("the announcement", || (announced(&heard) > 0).then_some(()));
    drop(attack);

    let begun = Instant::now();
    weir.process.signal("TERM");
    wait_for("the last ledger", || weir.process.said().contains("unaccounted: 0").then_some(()));
    let took = begun.elapsed();
    testkit::say(&format!("the last ledger came {took:?} after the signal"));
    // The speaker alone would take the six seconds of drain_grace and up to seven more.
    assert!(took < Duration::from_secs(4), "{took:?}");
    let mut weir = weir;
    let (status, text) = weir.process.finish();
    assert_eq!(status.code(), Some(0), "{}", weir.process.said());
    assert!(text.contains("\"hops\""), "{text}");
    let ended = begun.elapsed();
    assert!(ended < Duration::from_secs(6 + 7 + 5), "{ended:?}");
    // The next start knows of it.
    let found = fs::read_dir(dir.path()).unwrap().flatten();
    let routes =
        found.map(|file| file.path()).find(|path| path.to_string_lossy().ends_with(".routes"));
    let noted = fs::read_to_string(routes.unwrap()).unwrap();
    assert!(noted.contains("announce"), "{noted}");
}
