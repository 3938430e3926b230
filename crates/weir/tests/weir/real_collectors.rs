//! Collectors that know their clients by address, behind a relay that keeps it: rsyslog, syslog-ng and goflow2.

use crate::preserve_source::Rig;
use crate::support::hop;
use ledger::HopKind;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use testkit::{Peer, TempDir, find_tool, need_tool, wait_for};

const PORT: u16 = 5140;

/// A collector in its namespace, which writes lines.
struct Collector {
    process: Peer,
    out: PathBuf,
    log: PathBuf,
}

impl Collector {
    fn start(rig: &Rig, dir: &TempDir, tool: &str, arguments: &[&str]) -> Collector {
        let log = dir.file("log");
        let said = fs::File::create(&log).unwrap();
        let mut command = rig.collector.command(find_tool(tool).unwrap().to_str().unwrap());
        command.args(arguments);
        command.stdin(Stdio::null()).stdout(said.try_clone().unwrap()).stderr(said);
        let collector = Collector { process: Peer::start(&mut command), out: dir.file("out"), log };
        let is_listening = || {
            let wanted = format!(":{PORT:04X}");
            let tables = ["udp", "udp6"].map(|table| format!("/proc/thread-self/net/{table}"));
            let read = || tables.map(|table| fs::read_to_string(table).unwrap()).concat();
            let table = rig.collector.inside(read);
            table
                .lines()
                .filter_map(|line| line.split_whitespace().nth(1))
                .any(|at| at.ends_with(&wanted))
        };
        wait_for(
            || format!("{tool}: {}", fs::read_to_string(&collector.log).unwrap()),
            || is_listening().then_some(()),
        );
        collector
    }

    /// Waits for this many lines and returns them in order.
    fn finish(mut self, count: usize) -> Vec<String> {
        let lines = || -> Vec<String> {
            let text = fs::read_to_string(&self.out).unwrap_or_default();
            text.lines().map(str::to_owned).collect()
        };
        let mut lines = wait_for(
            || {
                format!(
                    "{count} lines, have {:?}: {}",
                    lines(),
                    fs::read_to_string(&self.log).unwrap()
                )
            },
            || Some(lines()).filter(|lines| lines.len() >= count),
        );
        self.process.terminate();
        lines.sort_unstable();
        lines
    }
}

/// Senders of both families, and a message of a usual length and one of 9,000 bytes of each; the collector writes sender, `|` and length.
fn check_syslog(tool: &str, configure: impl Fn(&TempDir) -> Vec<String>) {
    if !need_tool(tool) {
        return;
    }
    let Some(rig) = Rig::new() else { return };
    let dir = TempDir::new();
    let arguments = configure(&dir);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let collector = Collector::start(&rig, &dir, tool, &arguments);

    let mut wanted = Vec::new();
    for (listen, to, senders) in [
        ("10.77.0.1:0?name=in", "10.78.0.2", ["10.1.0.1", "10.1.7.9"]),
        ("[fd77::1]:0?name=in", "[fd78::2]", ["fd01::1", "fd01::2"]),
    ] {
        for kept in ["address", "address+port"] {
            let target = format!("{to}:{PORT}?name=kept&preserve_source={kept}");
            let weir = rig.relay(listen, &[target]);
            for ip in senders {
                let socket = rig.sender(ip.parse().unwrap(), &weir);
                for bytes in [100, 9_000] {
                    let message = format!("<13>1 - h a - - - {}", "x".repeat(bytes));
                    socket.send(message.as_bytes()).unwrap();
                    wanted.push(format!("{ip}|{bytes}"));
                }
            }
            weir.wait_for_rest(4);
            let ended = weir.stop();
            assert_eq!(hop(&ended.ledger, HopKind::Target, "kept").delivered.count, 4);
        }
    }

    let said = collector.finish(wanted.len());
    let mut said: Vec<String> = said
        .iter()
        .map(|line| {
            let (ip, text) = line.split_once('|').unwrap();
            format!("{ip}|{}", text.trim().len())
        })
        .collect();
    said.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(said, wanted);
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn rsyslog_sees_the_senders() {
    check_syslog("rsyslogd", |dir| {
        let (config, out) = (dir.file("rsyslog.conf"), dir.file("out"));
        let text = format!(
            r#"
            global(workDirectory="{work}" maxMessageSize="64k" net.enableDNS="off")
            module(load="imudp")
            template(name="line" type="string" string="%fromhost-ip%|%msg%\n")
            ruleset(name="all") {{ action(type="omfile" file="{out}" template="line") }}
            input(type="imudp" address="10.78.0.2" port="{PORT}" ruleset="all")
            input(type="imudp" address="fd78::2" port="{PORT}" ruleset="all")
            "#,
            work = shown(dir.path()),
            out = shown(&out),
        );
        fs::write(&config, text).unwrap();
        let pid = shown(&dir.file("pid"));
        ["-n", "-f", &shown(&config), "-i", &pid].map(str::to_owned).to_vec()
    });
}

#[test]
fn syslog_ng_sees_the_senders() {
    check_syslog("syslog-ng", |dir| {
        let (config, out) = (dir.file("syslog-ng.conf"), dir.file("out"));
        let source = |ip: &str, version| {
            format!("syslog(ip(\"{ip}\") port({PORT}) ip-protocol({version}) transport(\"udp\"));")
        };
        let text = format!(
            "@version: 3.35\noptions {{ use-dns(no); log-msg-size(65536); stats-freq(0); }};\n\
             source s {{ {} {} }};\n\
             destination d {{ file(\"{}\" template(\"${{SOURCEIP}}|${{MESSAGE}}\\n\")); }};\n\
             log {{ source(s); destination(d); }};\n",
            source("10.78.0.2", 4),
            source("fd78::2", 6),
            shown(&out),
        );
        fs::write(&config, text).unwrap();
        let own = ["persist", "pid", "control"].map(|name| shown(&dir.file(name)));
        let [persist, pid, control] = own.each_ref().map(String::as_str);
        let config = shown(&config);
        ["-F", "--no-caps", "-f", &config, "-R", persist, "-p", pid, "-c", control]
            .map(str::to_owned)
            .to_vec()
    });
}

/// A NetFlow datagram of version 5 with one empty flow: nothing in it says who exports.
fn netflow() -> Vec<u8> {
    let mut datagram = vec![0; 24 + 48];
    datagram[..4].copy_from_slice(&[0, 5, 0, 1]);
    datagram
}

#[test]
fn goflow2_sees_the_exporters() {
    if !need_tool("goflow2") {
        return;
    }
    let Some(rig) = Rig::new() else { return };
    let dir = TempDir::new();
    let (out, listen) = (shown(&dir.file("out")), format!("netflow://10.78.0.2:{PORT}"));
    let arguments =
        ["-produce", "sample", "-addr", "", "-transport.file", &out, "-listen", &listen];
    let collector = Collector::start(&rig, &dir, "goflow2", &arguments);

    let target = format!("10.78.0.2:{PORT}?name=kept&preserve_source=address+port");
    let weir = rig.relay("10.77.0.1:0?name=in", &[target]);
    let exporters = [1, 2, 3].map(|last| Ipv4Addr::new(10, 1, 0, last));
    for ip in exporters {
        let socket: UdpSocket = rig.sender(IpAddr::from(ip), &weir);
        socket.send(&netflow()).unwrap();
    }

    let said = collector.finish(3);
    for ip in exporters {
        let wanted = format!("\"sampler_address\":\"{ip}\"");
        assert_eq!(said.iter().filter(|line| line.contains(&wanted)).count(), 1, "{said:?}");
    }
    assert_eq!(weir.stop().code, Some(0));
}
