//! `logger` to a real rsyslogd, and to a file, through the relay: the same messages, byte for byte, at both ends.

use crate::support::{Weir, generate, hop};
use ledger::HopKind;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use testkit::{Peer, TempDir, find_tool, free_port, need_tool, run, wait_for};

/// An rsyslogd of the test's own, which writes every message as it came, and as it was understood.
struct Rsyslog {
    process: Peer,
    address: String,
    raw: PathBuf,
    parsed: PathBuf,
}

/// How rsyslogd understood a message.
const FIELDS: &str =
    "%pri%|%protocol-version%|%hostname%|%app-name%|%msgid%|%structured-data%|%msg%";

impl Rsyslog {
    fn start(dir: &TempDir) -> Rsyslog {
        let port = free_port();
        let (raw, parsed, config) = (dir.file("raw"), dir.file("parsed"), dir.file("rsyslog.conf"));
        let text = format!(
            r#"
            global(workDirectory="{work}" maxMessageSize="64k")
            module(load="imudp")
            template(name="raw" type="string" string="%rawmsg%\n")
            template(name="parsed" type="string" string="{FIELDS}\n")
            ruleset(name="both") {{
                action(type="omfile" file="{raw}" template="raw")
                action(type="omfile" file="{parsed}" template="parsed")
            }}
            input(type="imudp" address="127.0.0.1" port="{port}" rcvbufSize="4m" ruleset="both")
            "#,
            work = dir.path().display(),
            raw = raw.display(),
            parsed = parsed.display(),
        );
        fs::write(&config, text).unwrap();
        let log = fs::File::create(dir.file("rsyslog.log")).unwrap();
        let mut command = Command::new(find_tool("rsyslogd").unwrap());
        command.args(["-n", "-f"]).arg(&config).arg("-i").arg(dir.file("rsyslog.pid"));
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let process = Peer::start(&mut command);
        wait_for(
            || format!("rsyslogd: {}", fs::read_to_string(dir.file("rsyslog.log")).unwrap()),
            || has_udp_socket(port).then_some(()),
        );
        Rsyslog { process, address: format!("127.0.0.1:{port}"), raw, parsed }
    }

    /// Waits for so many messages; returns them as they came and as they were understood.
    fn finish(mut self, messages: usize) -> (Vec<String>, Vec<String>) {
        let lines = |path: &PathBuf| -> Vec<String> {
            fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
        };
        let counts = || (lines(&self.raw).len(), lines(&self.parsed).len());
        wait_for(
            || format!("{messages} messages, have {:?}", counts()),
            || (counts().0 >= messages && counts().1 >= messages).then_some(()),
        );
        self.process.terminate();
        (lines(&self.raw), lines(&self.parsed))
    }
}

/// Whether somebody holds the port on 127.0.0.1 (proc(5), /proc/net/udp).
fn has_udp_socket(port: u16) -> bool {
    let wanted = format!("0100007F:{port:04X}");
    let table = fs::read_to_string("/proc/net/udp").unwrap();
    table.lines().any(|line| line.split_whitespace().nth(1) == Some(&wanted))
}

fn relay_to(rsyslog: &Rsyslog, copy: &str) -> Weir {
    let file = format!("file:{copy}?name=file");
    let udp = format!("udp://{}?name=rsyslog", rsyslog.address);
    Weir::relay(&["--listen", "127.0.0.1:0", "--to", &udp, "--to", &file])
}

/// Stops the relay; both targets must have got exactly so many.
fn check_ledger(weir: Weir, messages: usize) {
    weir.wait_for_rest(messages as u64);
    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    let count = |kind, target| {
        let hop = hop(&ended.ledger, kind, target);
        assert_eq!(hop.dropped, [], "{}", ended.said);
        hop.delivered.count as usize
    };
    assert_eq!(count(HopKind::Socket, ""), messages);
    assert_eq!(count(HopKind::Target, "rsyslog"), messages);
    assert_eq!(count(HopKind::Egress, "rsyslog"), messages);
    assert_eq!(count(HopKind::Target, "file"), messages);
}

#[test]
fn logger_messages_reach_rsyslog_and_a_file_byte_for_byte() {
    if !need_tool("rsyslogd") || !need_tool("logger") {
        return;
    }
    let dir = TempDir::new();
    let rsyslog = Rsyslog::start(&dir);
    let weir = relay_to(&rsyslog, &dir.text("copy"));
    let port = weir.address().port().to_string();
    let base = ["-n", "127.0.0.1", "-P", &port, "-d", "-t", "tea"];
    for n in 0..20 {
        let mut old = Command::new("logger");
        old.args(base).args(["--rfc3164", "-p", "local3.warning", &format!("old form {n}")]);
        run(&mut old);
        let (id, text) = (format!("MSG{n}"), format!("new form {n}: ünïcode and \"quotes\""));
        let mut new = Command::new("logger");
        new.args(base).args(["--rfc5424", "--msgid", &id, "-p", "user.notice"]);
        new.args(["--sd-id", "flow@32473", "--sd-param", &format!("rtt=\"{n}\"")]);
        run(new.args(["--sd-param", "path=\"a b\"", "--", &text]));
    }
    check_ledger(weir, 40);
    let (raw, parsed) = rsyslog.finish(40);
    let copy = fs::read_to_string(dir.file("copy")).unwrap();
    assert_eq!(copy.lines().collect::<Vec<_>>(), raw);
    assert_eq!(parsed.len(), 40);
    for n in 0..20 {
        // facility 19 and severity 4 are 156; facility 1 and severity 5 are 13.
        let old = parsed[2 * n].split('|').collect::<Vec<_>>();
        assert_eq!((old[0], old[1], old[3]), ("156", "0", "tea"), "{old:?}");
        assert_eq!(old[6].trim_start(), format!("old form {n}"));
        let new = parsed[2 * n + 1].split('|').collect::<Vec<_>>();
        assert_eq!((new[0], new[1], new[3]), ("13", "1", "tea"), "{new:?}");
        assert_eq!(new[4], format!("MSG{n}"));
        assert!(new[5].contains(&format!("[flow@32473 rtt=\"{n}\" path=\"a b\"]")), "{new:?}");
        assert_eq!(new[6], format!("new form {n}: ünïcode and \"quotes\""));
    }
}

#[test]
fn syslog_of_the_generator_reaches_rsyslog_whole_and_parses() {
    if !need_tool("rsyslogd") {
        return;
    }
    for payload in ["syslog", "syslog-3164"] {
        let dir = TempDir::new();
        let rsyslog = Rsyslog::start(&dir);
        let weir = relay_to(&rsyslog, &dir.text("copy"));
        let to = weir.address().to_string();
        let sent = generate(&[
            "--to",
            &to,
            "--payload",
            payload,
            "--size",
            "170..800",
            "--rate",
            "4k",
            "--count",
            "4k",
        ]);
        let messages = sent.all() as usize;
        assert!(messages > 4_000, "heartbeats are messages too");
        check_ledger(weir, messages);
        let (raw, parsed) = rsyslog.finish(messages);
        let copy = fs::read_to_string(dir.file("copy")).unwrap();
        assert_eq!(copy.lines().collect::<Vec<_>>(), raw, "{payload}");
        assert_eq!(parsed.len(), messages);
        for (line, raw) in parsed.iter().zip(&raw) {
            let fields: Vec<_> = line.splitn(7, '|').collect();
            let version = if payload == "syslog" { "1" } else { "0" };
            assert_eq!(fields[1], version, "{line}");
            assert!(raw.starts_with(&format!("<{}>", fields[0])), "{raw}");
            assert!(fields[3].starts_with("weir"), "{line}");
            // A heartbeat has no text: what it says is structured data.
            assert!(raw.ends_with(fields[6]), "{line} {raw}");
            let check_data = if payload == "syslog" { fields[5] } else { fields[6] };
            assert!(check_data.contains("weir1="), "{line}");
        }
    }
}
