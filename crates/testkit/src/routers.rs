//! A BGP speaker and a router (bird), each in a separate network namespace, peered.

use crate::folder::TempDir;
use crate::need::{find_tool, need_root_netns, need_tool};
use crate::netns::Netns;
use crate::process::Process;
use crate::wait::wait_for;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// A speaker's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BgpProgram {
    GoBgp3,
    GoBgp4,
    ExaBgp,
}

impl BgpProgram {
    fn tool(self) -> &'static str {
        match self {
            BgpProgram::GoBgp3 => "gobgpd",
            BgpProgram::GoBgp4 => "gobgpd4",
            BgpProgram::ExaBgp => "exabgp",
        }
    }
}

/// The two. GoBGP's gRPC is at 127.0.0.1:50051 in `ours`.
pub struct Routers {
    program: BgpProgram,
    folder: TempDir,
    /// The speaker's namespace, with 10.9.0.1 and 2001:db8:9::1.
    pub ours: Netns,
    routers: Netns,
    /// The shell command that ExaBGP starts.
    bridge: String,
    router: Option<Process>,
    speaker: Option<Process>,
}

impl Routers {
    /// Starts both. `bridge` is the command that ExaBGP starts, with SOCKET in place of the socket's
    /// path. `None`, with a message, if this machine lacks something.
    pub fn start(program: BgpProgram, bridge: &str) -> Option<Routers> {
        let tools = ["bird", "birdcl", program.tool()];
        if !need_root_netns() || !tools.iter().all(|tool| need_tool(tool)) {
            return None;
        }

        let (ours, routers) = (Netns::new(), Netns::new());
        ours.connect("up", &routers, "down");
        for (netns, link, host) in [(&ours, "up", 1), (&routers, "down", 2)] {
            netns.ip(&format!("addr add 10.9.0.{host}/24 dev {link}"));
            netns.ip(&format!("addr add 2001:db8:9::{host}/64 dev {link} nodad"));
        }

        let (folder, bridge) = (TempDir::new(), bridge.to_owned());
        let mut all =
            Routers { program, folder, ours, routers, bridge, router: None, speaker: None };
        all.start_router();
        all.start_speaker();
        Some(all)
    }

    pub fn start_router(&mut self) {
        let config = self.folder.file("bird.conf");
        fs::write(&config, BIRD).unwrap();
        let mut command = self.routers.command(&tool("bird"));
        command.arg("-f").arg("-c").arg(config).arg("-s").arg(self.folder.file("bird.ctl"));
        self.router = Some(Process::start(command));
    }

    pub fn stop_router(&mut self) {
        self.router = None;
    }

    pub fn start_speaker(&mut self) {
        let program = tool(self.program.tool());
        let (text, name) = match self.program {
            BgpProgram::ExaBgp => {
                // In a script, because ExaBGP treats a comma as a space.
                let bridge = self.folder.file("bridge");
                let line = self.bridge.replace("SOCKET", &self.socket());
                fs::write(&bridge, format!("#!/bin/sh\nexec {line}\n")).unwrap();
                fs::set_permissions(&bridge, Permissions::from_mode(0o755)).unwrap();
                (EXABGP.replace("BRIDGE", &bridge.display().to_string()), "exabgp.conf")
            }
            _ => (GOBGP.to_owned(), "gobgp.toml"),
        };
        let config = self.folder.file(name);
        fs::write(&config, text).unwrap();

        let mut command = self.ours.command("env");
        match self.program {
            BgpProgram::ExaBgp => {
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

    pub fn stop_speaker(&mut self) {
        self.speaker = None;
    }

    /// The socket path passed to ExaBGP's program.
    pub fn socket(&self) -> String {
        self.folder.file("weir.sock").display().to_string()
    }

    /// Waits until speaker and router see each other.
    pub fn wait_for_session(&self) {
        wait_for(
            || self.bird("show protocols all weir"),
            || self.bird("show protocols").contains("Established").then_some(()),
        );
    }

    /// Output of a command to the router.
    pub fn bird(&self, command: &str) -> String {
        let socket = self.folder.file("bird.ctl");
        let mut asking = Command::new(tool("birdcl"));
        let output = asking.arg("-s").arg(socket).args(command.split(' ')).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// All routes that the router has from the speaker.
    pub fn routes(&self) -> String {
        ["master4", "master6", "flowtab4", "flowtab6"]
            .map(|table| self.bird(&format!("show route all table {table} protocol weir")))
            .concat()
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
