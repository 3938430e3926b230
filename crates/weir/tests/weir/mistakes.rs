//! Mistakes that people make: each command line or file with its exit code and answer, as text in the repository.
//!
//! In `mistakes/*.txt` a line `$ COMMAND` is given to a shell, after the lines `| TEXT` above it were written to `weir.toml`; what
//! stands below is the answer. `make generated` writes the answers again.

use crate::nobody::Nobody;
use crate::support::WEIR;
use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use testkit::{TempDir, need_root_netns, need_tool, root};

/// What would change an answer if whoever runs the tests has it set.
const VARIABLES: [&str; 8] = [
    "WEIR_CONFIG",
    "WEIR_ADMIN",
    "WEIR_ADMIN_LISTEN",
    "WEIR_TOKEN_FILE",
    "WEIR_CA_FILE",
    "WEIR_LOG_LEVEL",
    "WEIR_LOG_FORMAT",
    "WEIR_DRAIN_GRACE",
];

const FOLDER: &str = "crates/weir/tests/weir/mistakes";
/// Where the program stands in what the table shows.
const SHOWN_PROGRAM: &str = "/usr/bin/weir";

/// The file whose commands run as nobody.
const PRIVILEGE: &str = "privilege.txt";
const AS_NOBODY: &str = "setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs --bounding-set=-all \
                         --inh-caps=-all --ambient-caps=-all --";

/// What the commands of a file run in: a folder with some files, and addresses that others hold.
struct Rig {
    folder: TempDir,
    program: PathBuf,
    udp: UdpSocket,
    tcp: TcpListener,
}

impl Rig {
    fn new(program: &Path) -> Rig {
        let folder = TempDir::new();
        fs::write(folder.file("notes.txt"), "no capture\n").unwrap();
        fs::write(folder.file("latin1.toml"), b"# caf\xe9\n").unwrap();
        fs::write(folder.file("secret.toml"), "").unwrap();
        let mode = |name: &str, mode| {
            fs::set_permissions(folder.file(name), fs::Permissions::from_mode(mode)).unwrap();
        };
        mode("secret.toml", 0);
        for name in ["folder", "locked"] {
            fs::create_dir(folder.file(name)).unwrap();
            mode(name, 0o755);
        }
        mode("", 0o755);
        Rig {
            folder,
            program: program.to_owned(),
            udp: UdpSocket::bind("127.0.0.1:0").unwrap(),
            tcp: TcpListener::bind("127.0.0.1:0").unwrap(),
        }
    }

    /// What names stand for, in commands and in answers.
    fn variables(&self) -> [(&'static str, String); 3] {
        [
            ("UDP_IN_USE", self.udp.local_addr().unwrap().port().to_string()),
            ("TCP_IN_USE", self.tcp.local_addr().unwrap().port().to_string()),
            ("DIR", self.folder.text("").trim_end_matches('/').to_owned()),
        ]
    }

    fn run(&self, line: &str) -> Output {
        let program = self.program.parent().unwrap().display();
        let path = std::env::var("PATH").unwrap();
        // A command that is not refused would run on.
        let mut command = Command::new("timeout");
        command.args(["-k", "1", "60", "sh", "-c", line]).current_dir(self.folder.file(""));
        command.env("PATH", format!("{program}:{path}")).env("HOME", "/root").env("LC_ALL", "C");
        command.env("AS_NOBODY", AS_NOBODY);
        command.env_remove("COLUMNS").envs(self.variables()).stdin(Stdio::null());
        for name in VARIABLES {
            command.env_remove(name);
        }
        command.output().unwrap()
    }

    /// The answer as it stands in the table.
    fn answer(&self, line: &str) -> String {
        let Output { status, stdout, stderr } = self.run(line);
        let mut text = String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned();
        text = text.replace(self.program.to_str().unwrap(), SHOWN_PROGRAM);
        for (name, value) in self.variables() {
            text = text.replace(&value, &format!("${name}"));
        }
        let code = status.code().map_or("signal".to_owned(), |code| code.to_string());
        format!("exit {code}\n{}\n", text.lines().map(without_time).collect::<Vec<_>>().join("\n"))
    }
}

/// A log line without its time.
fn without_time(line: &str) -> &str {
    match line.split_once("Z ") {
        Some((time, rest)) if time.starts_with("20") && time.contains('T') => rest.trim_start(),
        _ => line,
    }
}

/// The files of the table.
fn files() -> Vec<String> {
    let files = fs::read_dir(root().join(FOLDER)).unwrap();
    let mut names: Vec<_> =
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Runs what a file has, and compares it.
fn check(name: &str, program: &Path) {
    let path = format!("{FOLDER}/{name}");
    let text = fs::read_to_string(root().join(&path)).unwrap();
    let rig = Rig::new(program);
    let mut all = String::new();
    let mut file = String::new();

    for line in text.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            if !file.is_empty() {
                fs::write(rig.folder.file("weir.toml"), std::mem::take(&mut file)).unwrap();
            }
            all += &format!("{line}\n{}\n", rig.answer(command));
        } else if let Some(text) = line.strip_prefix('|') {
            file += &format!("{}\n", text.strip_prefix(' ').unwrap_or(text));
            all += &format!("{line}\n");
        } else if line.starts_with("# ") {
            all += &format!("{line}\n\n");
        }
    }
    testkit::generated(&path, &all);
}

#[test]
fn generated_answers_to_mistakes() {
    // They are those that root gets: what is not allowed to others has a file of its own.
    if !need_root_netns() {
        return;
    }
    std::thread::scope(|scope| {
        for name in files().into_iter().filter(|name| name != PRIVILEGE) {
            scope.spawn(move || check(&name, Path::new(WEIR)));
        }
    });
}

#[test]
fn generated_answers_to_a_user_without_privileges() {
    let first = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap();
    if first.trim() != "1024" {
        println!("skipped: every user may listen on ports from {}", first.trim());
        return;
    }
    if let Some(nobody) = Nobody::new() {
        check(PRIVILEGE, &nobody.dir.file("weir"));
    }
}

/// Advice that is a command, followed to the letter.
#[test]
fn a_fix_that_is_a_command_works() {
    let rig = Rig::new(Path::new(WEIR));
    for line in [
        "weir config check",
        "weir config show missing.toml",
        "weir config check latin1.toml",
        "weir sockets --write missing/out.bin",
    ] {
        let said = rig.run(line).stderr;
        let said = String::from_utf8(said).unwrap();
        let fix = said.split_once(". Fix: ").unwrap_or_else(|| panic!("{line}: {said}")).1;
        let fix = fix.split_once(", if ").map_or(fix, |(fix, _)| fix);
        assert!(rig.run(fix).status.success(), "{line}: {fix}");
        let again = line.replace("latin1.toml", "utf8.toml");
        let said = String::from_utf8(rig.run(&again).stderr).unwrap();
        assert!(
            !said.contains("cannot read") && !said.contains("cannot create"),
            "{again}: {said}"
        );
    }
}

#[test]
fn who_holds_a_port_is_found_as_advised() {
    if !need_tool("ss") {
        return;
    }
    let rig = Rig::new(Path::new(WEIR));
    for line in [
        "weir verify --listen 127.0.0.1:$UDP_IN_USE",
        "weir relay --listen 127.0.0.1:0 --to null: --admin 127.0.0.1:$TCP_IN_USE",
    ] {
        let said = String::from_utf8(rig.run(line).stderr).unwrap();
        let ss = said.split_once("found with: ").unwrap_or_else(|| panic!("{said}")).1;
        let found = String::from_utf8(rig.run(ss).stdout).unwrap();
        let pid = format!("pid={},", std::process::id());
        assert!(found.contains(&pid), "{ss}: {found}");
    }
}

/// Every answer that ends with an error says what to do.
#[test]
fn every_answer_has_advice() {
    let mut count = 0;
    for name in files() {
        let text = fs::read_to_string(root().join(FOLDER).join(&name)).unwrap();
        for case in text.split("\n$ ").skip(1) {
            let (command, answer) = case.split_once('\n').unwrap_or((case, ""));
            count += 1;
            // What needs no advice: help for a command that was given nothing, and a check that says no.
            let is_help = answer.contains("\nUsage: ") && !answer.contains("\nweir: ");
            let is_right = answer.starts_with("exit 0\n");
            assert!(is_help || is_right || answer.contains("Fix: "), "{name}: {command}\n{answer}");
            for other in ["tip:", "help:", "See:", "Try:", "For more information"] {
                assert!(!answer.contains(other), "{name}: {command}: {other}");
            }
        }
    }
    assert!(count >= 100, "{count}");
}
