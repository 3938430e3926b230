//! A router (bird) and a BGP speaker, each in a network namespace of its own, peered.

use mitigate::speaker::{ExaBgp, GoBgp};
use mitigate::{Control, Entry, Options, Policy, Speaker};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::{Arc, Mutex};
use testkit::{Netns, Process, TempDir, find_tool, need_root_netns, need_tool, wait_for};

/// A speaker's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    GoBgp3,
    GoBgp4,
    ExaBgp,
}

impl Program {
    fn tool(self) -> &'static str {
        match self {
            Program::GoBgp3 => "gobgpd",
            Program::GoBgp4 => "gobgpd4",
            Program::ExaBgp => "exabgp",
        }
    }
}

pub(crate) struct Rig {
    program: Program,
    folder: TempDir,
    ours: Netns,
    routers: Netns,
    router: Option<Process>,
    speaker: Option<Process>,
    pub(crate) entries: Arc<Mutex<Vec<Entry>>>,
}

/// `None`: this machine lacks something, which is said.
pub(crate) fn rig(program: Program) -> Option<Rig> {
    let tools = ["bird", "birdcl", "socat", program.tool()];
    if !need_root_netns() || !tools.iter().all(|tool| need_tool(tool)) {
        return None;
    }

    let (ours, routers) = (Netns::new(), Netns::new());
    ours.connect("up", &routers, "down");
    for (netns, link, host) in [(&ours, "up", 1), (&routers, "down", 2)] {
        netns.ip(&format!("addr add 10.9.0.{host}/24 dev {link}"));
        netns.ip(&format!("addr add 2001:db8:9::{host}/64 dev {link} nodad"));
    }

    let (folder, entries) = (TempDir::new(), Arc::default());
    let mut rig = Rig { program, folder, ours, routers, router: None, speaker: None, entries };
    rig.start_router();
    rig.start_speaker();
    Some(rig)
}

impl Rig {
    pub(crate) fn start_router(&mut self) {
        let config = self.folder.file("bird.conf");
        fs::write(&config, BIRD).unwrap();
        let mut command = self.routers.command(&tool("bird"));
        command.arg("-f").arg("-c").arg(config).arg("-s").arg(self.folder.file("bird.ctl"));
        self.router = Some(Process::start(command));
    }

    pub(crate) fn stop_router(&mut self) {
        self.router = None;
    }

    pub(crate) fn start_speaker(&mut self) {
        let program = tool(self.program.tool());
        let (text, name) = match self.program {
            Program::ExaBgp => {
                // In a script: ExaBGP takes a comma for a space.
                let bridge = self.folder.file("bridge");
                let (socat, socket) = (tool("socat"), self.socket());
                let line = format!("exec {socat} STDIO UNIX-CONNECT:{socket},forever,interval=0.2");
                fs::write(&bridge, format!("#!/bin/sh\n{line}\n")).unwrap();
                fs::set_permissions(&bridge, Permissions::from_mode(0o755)).unwrap();
                (EXABGP.replace("BRIDGE", &bridge.display().to_string()), "exabgp.conf")
            }
            _ => (GOBGP.to_owned(), "gobgp.toml"),
        };
        let config = self.folder.file(name);
        fs::write(&config, text).unwrap();

        let mut command = self.ours.command("env");
        match self.program {
            Program::ExaBgp => {
                command.args(["exabgp.daemon.user=root", "exabgp.api.cli=false"]);
                command.arg(program).arg(config);
            }
            _ => {
                command.arg(program).arg("-f").arg(config).args(["--pprof-disable", "-l", "warn"]);
                command.args(["--api-hosts", "127.0.0.1:50051"]);
            }
        }
        self.speaker = Some(Process::start(command));
    }

    pub(crate) fn stop_speaker(&mut self) {
        self.speaker = None;
    }

    fn socket(&self) -> String {
        self.folder.file("weir.sock").display().to_string()
    }

    /// A control thread, and waits until speaker and router see each other.
    pub(crate) fn control(&self, policy: Policy) -> Control {
        let control = self.control_at_once(policy);
        self.wait_for_session();
        control
    }

    fn control_at_once(&self, policy: Policy) -> Control {
        let entries = Arc::clone(&self.entries);
        let observer = Box::new(move |entry: &Entry| entries.lock().unwrap().push(entry.clone()));
        let speaker = || -> Box<dyn Speaker> {
            match self.program {
                Program::ExaBgp => Box::new(ExaBgp::listen(self.socket().as_ref()).unwrap()),
                _ => Box::new(GoBgp::new("127.0.0.1:50051").unwrap()),
            }
        };
        // Threads that it starts stay in the namespace.
        self.ours.inside(|| {
            let (policies, speaker) = (vec![policy], speaker());
            Control::start(Options { policies, speaker, observer }).unwrap()
        })
    }

    pub(crate) fn wait_for_session(&self) {
        let is_connected = |entry: &Entry| matches!(entry, Entry::Connected { .. });
        wait_for("the speaker's interface", || {
            self.entries.lock().unwrap().iter().any(is_connected).then_some(())
        });
        wait_for(
            || self.bird("show protocols all weir"),
            || self.bird("show protocols").contains("Established").then_some(()),
        );
    }

    /// What the router says.
    pub(crate) fn bird(&self, command: &str) -> String {
        let socket = self.folder.file("bird.ctl");
        let mut asking = Command::new(tool("birdcl"));
        let output = asking.arg("-s").arg(socket).args(command.split(' ')).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// All that the router has from the speaker.
    pub(crate) fn routes(&self) -> String {
        ["master4", "master6", "flowtab4", "flowtab6"]
            .map(|table| self.bird(&format!("show route all table {table} protocol weir")))
            .concat()
    }

    pub(crate) fn log(&self) -> String {
        self.entries.lock().unwrap().iter().map(|entry| format!("{}\n", entry.to_json())).collect()
    }
}

fn tool(name: &str) -> String {
    find_tool(name).unwrap().display().to_string()
}

const BIRD: &str = "
router id 10.9.0.2;
log stderr all;
flow4 table flowtab4;
flow6 table flowtab6;
protocol device { scan time 1; }
protocol direct { ipv4; ipv6; }
protocol bgp weir {
    local 10.9.0.2 as 65002;
    neighbor 10.9.0.1 as 65001;
    connect delay time 1;
    connect retry time 1;
    error wait time 1, 1;
    ipv4 { import all; export none; gateway recursive; };
    ipv6 { import all; export none; gateway recursive; };
    flow4 { table flowtab4; import all; export none; };
    flow6 { table flowtab6; import all; export none; };
}
";

const GOBGP: &str = r#"
[global.config]
  as = 65001
  router-id = "10.9.0.1"
[[neighbors]]
  [neighbors.config]
    neighbor-address = "10.9.0.2"
    peer-as = 65002
  [neighbors.timers.config]
    connect-retry = 1
    idle-hold-time-after-reset = 1
  [[neighbors.afi-safis]]
    [neighbors.afi-safis.config]
      afi-safi-name = "ipv4-unicast"
  [[neighbors.afi-safis]]
    [neighbors.afi-safis.config]
      afi-safi-name = "ipv6-unicast"
  [[neighbors.afi-safis]]
    [neighbors.afi-safis.config]
      afi-safi-name = "ipv4-flowspec"
  [[neighbors.afi-safis]]
    [neighbors.afi-safis.config]
      afi-safi-name = "ipv6-flowspec"
"#;

const EXABGP: &str = "
process weir {
    run BRIDGE;
    encoder text;
}
neighbor 10.9.0.2 {
    router-id 10.9.0.1;
    local-address 10.9.0.1;
    local-as 65001;
    peer-as 65002;
    family {
        ipv4 unicast;
        ipv6 unicast;
        ipv4 flow;
        ipv6 flow;
    }
    api { processes [ weir ]; }
}
";
