//! Whatever the umask: no file of Weir's that holds what it received, what it decided or what it knows can be read or written by
//! every user.

use crate::support::{WEIR, Weir};
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::{TempDir, free_port, sender, wait_for};

/// Users who are neither the file's owner nor of its group.
const OTHERS: u32 = 0o007;
/// Everybody but the owner.
const NOT_OWNER: u32 = 0o077;

/// `weir` with these arguments, under a umask that takes no permission away.
fn without_umask(args: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "umask 0; exec \"$@\"", "sh", WEIR]).args(args);
    command
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
}

/// Everything below a folder, with the folders, but for unix sockets, whose clients are looked at when they connect.
fn below(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path.clone());
                all.push(path);
            } else if path.is_file() {
                all.push(path);
            }
        }
    }
    all
}

fn configure(dir: &TempDir) -> PathBuf {
    let key = dir.file("hop.key");
    let printed = Command::new(WEIR).args(["hop", "key", "web-1"]).output().unwrap();
    fs::write(&key, printed.stdout).unwrap();
    fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    let text = |name: &str| dir.text(name);
    let config = format!(
        "[sockets]\ninterval = \"100ms\"\nnamespaces = \"own\"\n\
         [[listener]]\nname = \"in\"\nlisten = \"127.0.0.1:0\"\n\
         [[listener.target]]\nname = \"file\"\nto = \"file:{file}\"\n\
         [[listener.target]]\nname = \"far\"\nto = \"weir://127.0.0.1:{port}\"\nkey = \"{key}\"\nstate = \"{sender_state}\"\n\
         [[listener]]\nname = \"near\"\nlisten = \"weir://127.0.0.1:0\"\nkeys = \"{key}\"\nstate = \"{receiver_state}\"\n\
         [[listener.target]]\nname = \"nowhere\"\nto = \"null:\"\n\
         [[listener]]\nname = \"agents\"\nlisten = \"127.0.0.1:0\"\nallow_sources = [\"127.0.0.1/32\"]\n\
         [flows]\nfrom = [\"agents\"]\n\
         [[flow]]\nname = \"to\"\nkeys = [\"dst\"]\n\
         [[threshold]]\nname = \"flood\"\nflow = \"to\"\nlimit = \"1Gbit/s\"\nabove_for = \"1s\"\n\
         [[mitigation]]\nname = \"edge\"\nthresholds = [\"flood\"]\nspeaker = \"exabgp:{speaker}\"\ndry_run = false\n\
         own_networks = [\"192.0.2.0/24\"]\naction = \"blackhole\"\nnext_hops = [\"192.0.2.254\"]\naudit_log = \"{audit}\"\n\
         [[sink]]\nname = \"history\"\nfrom = [\"sockets\", \"in\"]\nto = \"store:{store}\"\nbatch_age = \"50ms\"\nseal_after = \"1s\"\n\
         [[sink]]\nname = \"lines\"\nfrom = [\"sockets\"]\nto = \"file:{lines}\"\nbatch_age = \"50ms\"\n\
         [[sink]]\nname = \"spooled\"\nfrom = [\"in\"]\nto = \"tcp://127.0.0.1:{closed}\"\nspool = \"{spool}\"\n",
        file = text("copy.log"),
        port = free_port(),
        key = text("hop.key"),
        sender_state = text("sender.state"),
        receiver_state = text("receiver.state"),
        speaker = text("exabgp.sock"),
        audit = text("mitigation.jsonl"),
        store = text("history"),
        lines = text("lines.jsonl"),
        closed = free_port(),
        spool = text("spool"),
    );
    let path = dir.file("weir.toml");
    fs::write(&path, config).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    path
}

#[test]
fn no_file_that_a_daemon_makes_is_for_everybody_whatever_the_umask() {
    let dir = TempDir::new();
    let path = configure(&dir);
    let weir = Weir::start(without_umask(&["run", "-c", path.to_str().unwrap()]));
    let agent = sender(weir.addresses[0].parse().unwrap());
    let made = [
        "copy.log",
        "sender.state",
        "receiver.state",
        "mitigation.jsonl",
        "history/history.sqlite",
        "history/history.sqlite-wal",
        "history/history.sqlite-shm",
        "history/lock",
        "history/raw",
        "lines.jsonl",
        "spool",
    ];
    wait_for("every file", || {
        agent.send(b"<13>secret").unwrap();
        let is_sealed = || fs::read_dir(dir.file("history/raw")).unwrap().count() > 0;
        let is_spooled = || fs::read_dir(dir.file("spool")).unwrap().count() > 0;
        let is_there = made.iter().all(|name| dir.file(name).exists());
        (is_there && is_sealed() && is_spooled()).then_some(())
    });
    let journal =
        below(dir.path()).into_iter().find(|path| path.extension() == Some("routes".as_ref()));
    let own =
        ["sender.state", "receiver.state", "mitigation.jsonl", "spool"].map(|name| dir.file(name));
    for path in own.iter().chain(&journal.clone()) {
        assert_eq!(mode(path) & NOT_OWNER, 0, "{path:?} has {:o}", mode(path));
    }
    assert!(journal.is_some(), "no journal");
    for path in below(dir.path()) {
        assert_eq!(mode(&path) & OTHERS, 0, "{path:?} has {:o}", mode(&path));
    }
    weir.stop();
}

#[test]
fn a_key_that_is_written_to_a_file_is_its_owners_alone() {
    let dir = TempDir::new();
    let write = |redirection: &str| {
        let script = format!("umask 0; exec \"$1\" hop key web-1 {redirection} \"$2\"");
        let mut command = Command::new("sh");
        command.args(["-c", &script, "sh", WEIR]).arg(dir.file("keys"));
        assert!(command.status().unwrap().success());
        (mode(&dir.file("keys")), fs::read_to_string(dir.file("keys")).unwrap().lines().count())
    };
    assert_eq!(write(">"), (0o600, 1));
    assert_eq!(write(">>"), (0o600, 2));
    // The file of a daemon of another user, which reads it by its group.
    fs::set_permissions(dir.file("keys"), Permissions::from_mode(0o646)).unwrap();
    assert_eq!(write(">>"), (0o640, 3));
}

#[test]
fn a_key_file_that_others_can_read_is_a_warning_with_the_command() {
    let dir = TempDir::new();
    let path = configure(&dir);
    let check = || {
        let output = Command::new(WEIR).args(["config", "check"]).arg(&path).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let fix = format!("chmod o= {}", dir.text("hop.key"));
    let folded = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(!folded(check()).contains(&fix));
    fs::set_permissions(dir.file("hop.key"), Permissions::from_mode(0o644)).unwrap();
    let said = folded(check());
    assert!(said.contains(&fix), "{said}");
    std::io::stderr().write_all(said.as_bytes()).unwrap();
}
