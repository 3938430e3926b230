//! Routes that events start: an attack is played to the daemon's listener, and a real router has the route and loses it.

use load::sflow::{Agent, AgentOptions, TrueFlow};
use serde_json::Value;
use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use testkit::{BgpProgram, Process, Routers, TempDir, say, wait_for};

const WEIR: &str = env!("CARGO_BIN_EXE_weir");
const LISTEN: &str = "127.0.0.1:6343";

/// How soon after the event the router has to have the route.
const ROUTE_LIMIT: Duration = Duration::from_secs(2);

const VICTIM: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const ALLOWED: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 53);
const FOREIGN: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);

const BLACKHOLE: &str = "action = \"blackhole\"\nnext_hops = [\"10.9.0.1\"]";
const FLOWSPEC: &str = "action = \"flowspec\"\nrate_limit = \"8Mbit/s\"";

/// A daemon and the routers around it.
struct Scene {
    dir: TempDir,
    routers: Routers,
    speaker: String,
    weir: Process,
}

/// Whether routes leave.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaves {
    Nothing,
    Routes,
}

fn write(dir: &TempDir, speaker: &str, action: &str, leaves: Leaves) {
    let (audit, events) = (dir.text("audit.jsonl"), dir.text("events.jsonl"));
    let dry_run = leaves == Leaves::Nothing;
    let text = format!(
        "[[listener]]\nname = \"sflow\"\nlisten = \"{LISTEN}\"\nallow_sources = [\"127.0.0.0/8\"]\n\
         [flows]\nfrom = [\"sflow\"]\n\
         [[flow]]\nname = \"victims\"\nkeys = [\"dst\", \"protocol\"]\nsmoothing = \"500ms\"\n\
         [[threshold]]\nname = \"flood\"\nflow = \"victims\"\nlimit = \"200Mbit/s\"\nclear_after = \"0s\"\nabove_for = \"200ms\"\n\
         [[sink]]\nname = \"hook\"\nfrom = [\"events\"]\nbody = \"payload\"\nformat = \"jsonl\"\nto = \"file:{events}\"\n\
         [[mitigation]]\nname = \"edge\"\nthresholds = [\"flood\"]\nspeaker = \"{speaker}\"\ndry_run = {dry_run}\n\
         own_networks = [\"192.0.2.0/24\"]\nallow = [\"{ALLOWED}\"]\nhold = \"0s\"\nwithdraw_after = \"0s\"\n\
         audit_log = \"{audit}\"\n{action}\n",
    );
    fs::write(dir.file("weir.toml"), text).unwrap();
}

fn scene(program: BgpProgram, action: &str, leaves: Leaves) -> Option<Scene> {
    let routers = Routers::start(program, &format!("{WEIR} mitigate bridge SOCKET"))?;
    let speaker = match program {
        BgpProgram::ExaBgp => format!("exabgp:{}", routers.socket()),
        _ => "gobgp://127.0.0.1:50051".to_owned(),
    };

    let dir = TempDir::new();
    write(&dir, &speaker, action, leaves);
    let scene = Scene { weir: weir(&routers, &dir), dir, routers, speaker };
    scene.routers.wait_for_session();
    Some(scene)
}

fn weir(routers: &Routers, dir: &TempDir) -> Process {
    let mut command = routers.ours.command(WEIR);
    command.args(["run", "--admin", "127.0.0.1:0", "-c"]).arg(dir.file("weir.toml"));
    Process::start(command)
}

impl Scene {
    fn start_weir(&mut self) {
        self.weir = weir(&self.routers, &self.dir);
    }

    fn lines(&self, file: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.dir.file(file)).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    fn wait_for_audit(&self, what: &str, is: impl Fn(&Value) -> bool) {
        wait_for(
            || format!("{what}: {:?}\n{}", self.lines("audit.jsonl"), self.weir.said()),
            || self.lines("audit.jsonl").iter().any(&is).then_some(()),
        );
    }

    /// Waits until the router has all of these texts.
    fn wait_for_route(&self, texts: &[&str]) {
        wait_for(
            || format!("{texts:?}: {}\n{}", self.routers.routes(), self.weir.said()),
            || {
                let routes = self.routers.routes();
                texts.iter().all(|text| routes.contains(text)).then_some(())
            },
        );
    }

    fn wait_for_no_route(&self) {
        let of_victim = VICTIM.to_string();
        wait_for(
            || format!("no route: {}\n{}", self.routers.routes(), self.weir.said()),
            || (!self.routers.routes().contains(&of_victim)).then_some(()),
        );
    }

    /// How long ago the last event was that raised the threshold for the victim.
    fn since_event(&self) -> Duration {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        wait_for("the event", || {
            let events = self.lines("events.jsonl");
            let victim = VICTIM.to_string();
            let is = |event: &&Value| {
                event["change"] == "raised" && event["of"]["key"]["dst"] == *victim
            };
            let last = events.iter().rfind(is)?;
            let at_ns: u64 = last["time_unix_ns"].as_str()?.parse().ok()?;
            Some(now.saturating_sub(Duration::from_nanos(at_ns)))
        })
    }

    fn reload(&self, action: &str, leaves: Leaves) {
        write(&self.dir, &self.speaker, action, leaves);
        self.weir.signal("HUP");
    }
}

/// An attack on all three addresses, 1 Gbit/s each, until it is dropped.
struct Played {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Played {
    fn to(scene: &Scene) -> Played {
        let flow = |dst| TrueFlow {
            src: Ipv4Addr::new(203, 0, 113, 7),
            dst,
            protocol: 17,
            src_port: 53,
            dst_port: 40_000,
            frame_bytes: 1_000,
            frames_per_s: 125_000.0,
        };
        let flows = [VICTIM, ALLOWED, FOREIGN].map(flow).to_vec();
        let mut agent = Agent::new(AgentOptions::default(), flows, 1);
        let socket = scene.routers.ours.inside(|| UdpSocket::bind("127.0.0.1:0").unwrap());

        let stop = Arc::new(AtomicBool::new(false));
        let has_stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let (begin, mut bytes) = (Instant::now(), Vec::new());
            while !has_stopped.load(Ordering::Relaxed) {
                let due = agent.next_datagram(&mut bytes);
                thread::park_timeout(due.saturating_sub(begin.elapsed()));
                // Before the daemon listens it is refused.
                let _ = socket.send_to(&bytes, LISTEN);
            }
        });
        Played { stop, thread: Some(thread) }
    }
}

impl Drop for Played {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

fn an_attack_is_answered(program: BgpProgram, action: &str, texts: &[&str]) {
    let Some(mut scene) = scene(program, action, Leaves::Routes) else { return };
    scene.wait_for_audit("the speaker", |entry| entry["event"] == "connected");

    // The route is there while the traffic is, twice: the end of an attack is not the end of it all.
    for _ in 0..2 {
        let played = Played::to(&scene);
        scene.wait_for_route(texts);
        let took = scene.since_event();
        say(&format!("{program:?}: the router has the route {took:?} after the event"));
        assert!(took <= ROUTE_LIMIT, "{took:?}");

        for (target, reason) in [(ALLOWED, "allow-list"), (FOREIGN, "own_networks")] {
            let target = format!("{target}/32");
            scene.wait_for_audit("a refusal", |entry| {
                entry["event"] == "refuse"
                    && entry["target"] == *target
                    && entry["reason"].as_str().unwrap().contains(reason)
            });
            assert!(!scene.routers.routes().contains(&target));
        }
        drop(played);
        scene.wait_for_no_route();
    }

    // Nothing is left when it stops.
    let _played = Played::to(&scene);
    scene.wait_for_route(texts);
    scene.weir.signal("TERM");
    let (status, _) = scene.weir.finish();
    assert_eq!(status.code(), Some(0), "{}", scene.weir.said());
    scene.wait_for_no_route();
}

#[test]
fn gobgp_blackholes_the_target_of_an_attack() {
    an_attack_is_answered(BgpProgram::GoBgp3, BLACKHOLE, &["192.0.2.1/32", "(65535,666)"]);
}

#[test]
fn exabgp_limits_an_attack() {
    let texts = ["192.0.2.1/32", "proto 17", "generic, 0x80060000"];
    an_attack_is_answered(BgpProgram::ExaBgp, FLOWSPEC, &texts);
}

/// A daemon that is killed leaves its route, and the next one finds it.
fn a_killed_daemon_leaves_nothing_for_good(program: BgpProgram) {
    let Some(mut scene) = scene(program, BLACKHOLE, Leaves::Routes) else { return };
    let played = Played::to(&scene);
    scene.wait_for_route(&["192.0.2.1/32"]);
    scene.weir.signal("KILL");
    scene.weir.finish();
    drop(played);
    assert!(scene.routers.routes().contains("192.0.2.1/32"), "{}", scene.routers.routes());

    scene.start_weir();
    scene.wait_for_audit("the find", |entry| {
        entry["event"] == "found" && entry["routes"][0] == "192.0.2.1/32"
    });
    scene.wait_for_no_route();
}

#[test]
fn gobgp_loses_the_route_of_a_killed_daemon() {
    a_killed_daemon_leaves_nothing_for_good(BgpProgram::GoBgp4);
}

#[test]
fn exabgp_loses_the_route_of_a_killed_daemon() {
    a_killed_daemon_leaves_nothing_for_good(BgpProgram::ExaBgp);
}

#[test]
fn an_audit_log_that_cannot_be_written_is_refused_at_the_start() {
    let dir = TempDir::new();
    let speaker = format!("exabgp:{}", dir.text("exabgp.sock"));
    write(&dir, &speaker, FLOWSPEC, Leaves::Nothing);
    fs::create_dir(dir.file("audit.jsonl")).unwrap();
    let mut command = Command::new(WEIR);
    command.args(["run", "--admin", "127.0.0.1:0", "-c"]).arg(dir.file("weir.toml"));
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(74), "{said}");
    assert!(said.contains("cannot append to the audit log"), "{said}");
}

#[test]
fn a_dry_run_announces_nothing_until_a_reload_ends_it() {
    let Some(mut scene) = scene(BgpProgram::GoBgp3, BLACKHOLE, Leaves::Nothing) else { return };
    let _played = Played::to(&scene);
    scene.wait_for_audit("the decision", |entry| {
        entry["event"] == "announce" && entry["dry_run"] == true && entry["route"] == "192.0.2.1/32"
    });
    assert!(!scene.routers.routes().contains("192.0.2."), "{}", scene.routers.routes());
    let audit = scene.lines("audit.jsonl");
    assert!(audit.iter().all(|entry| entry["event"] != "connected"), "{audit:?}");

    // The attack goes on, and needs no other event.
    scene.reload(BLACKHOLE, Leaves::Routes);
    scene.wait_for_route(&["192.0.2.1/32"]);
    let other = format!("{BLACKHOLE}\ncommunities = [\"64500:1\"]");
    scene.reload(&other, Leaves::Routes);
    scene.wait_for_route(&["192.0.2.1/32", "(64500,1)"]);
    scene.reload(&other, Leaves::Nothing);
    scene.wait_for_no_route();

    // Nor is anything left of a mitigation that the file has no longer.
    scene.reload(&other, Leaves::Routes);
    scene.wait_for_route(&["192.0.2.1/32"]);
    let file = scene.dir.file("weir.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.split("[[mitigation]]").next().unwrap()).unwrap();
    scene.weir.signal("HUP");
    scene.wait_for_no_route();

    scene.weir.signal("TERM");
    assert_eq!(scene.weir.finish().0.code(), Some(0), "{}", scene.weir.said());
}
