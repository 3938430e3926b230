//! The page in a real Chromium, with a live daemon under load: what it shows is what the daemon says.
//!
//! The scripts in `view/` drive the browser through playwright-core. They say on standard error what they wait for; the test does
//! that to the daemon, and the script sees it in the page.

use crate::support::{Generator, Place, Verifier, WEIR, Weir};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use testkit::{Process, TempDir, find_tool, need_tool};

/// One browser at a time: each takes a processor.
static BROWSER: Mutex<()> = Mutex::new(());

/// Waits for the browser, if there is one.
fn browser() -> Option<MutexGuard<'static, ()>> {
    let tools = ["chromium", "weir-node"];
    tools.into_iter().all(need_tool).then(|| BROWSER.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Starts a script with a question, which it gets as its argument.
fn drive(script: &str, question: &Value) -> Process {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/weir/view");
    let mut command = Command::new(find_tool("weir-node").unwrap());
    command.arg(folder.join(script)).arg(question.to_string());
    command.env("CHROMIUM", find_tool("chromium").unwrap());
    Process::start(command)
}

/// Runs a script to its end. Its answer is JSON.
fn answer(mut script: Process) -> Value {
    let (status, text) = script.finish();
    assert!(status.success(), "{text}{}", script.said());
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Where pictures are left for people to look at.
fn pictures() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("view");
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// A daemon that relays, collects sockets and analyzes sFlow, with load at each.
struct Rig {
    weir: Weir,
    _senders: [Generator; 1],
    _agents: Process,
    _receiver: Verifier,
    _dir: TempDir,
}

impl Rig {
    fn start() -> Rig {
        let dir = TempDir::new();
        let receiver = Verifier::start(&Place::Here, &["127.0.0.1:0"], &[]);
        let to = receiver.listens[0].clone();
        let file = dir.file("weir.toml");
        fs::write(&file, configuration(&dir, &to)).unwrap();
        let weir = Weir::run(&file);
        let senders = [Generator::start(
            &Place::Here,
            &weir.addresses[0],
            &["--rate", "500", "--duration", "0s"],
        )];
        let mut agents = Command::new(WEIR);
        agents.args(["gen", "sflow", "--duration", "10m", "--to", &weir.addresses[1]]);
        let agents = Process::start(agents);
        Rig { weir, _senders: senders, _agents: agents, _receiver: receiver, _dir: dir }
    }

    /// What every script is told.
    fn question(&self) -> Value {
        json!({ "url": self.weir.url(), "pictures": pictures() })
    }
}

/// A target that takes all, one at which nobody listens, a file; sinks that are well and one that is down.
fn configuration(dir: &TempDir, receiver: &str) -> String {
    let at = |name: &str| dir.file(name).display().to_string();
    format!(
        "[[listener]]\nname = \"syslog\"\nlisten = \"127.0.0.1:0\"\n\
         [[listener.target]]\nname = \"old\"\nto = \"{receiver}\"\n\
         [[listener.target]]\nname = \"dead\"\nto = \"127.0.0.1:9\"\n\
         [[listener.target]]\nname = \"archive\"\nto = \"file:{}\"\nformat = \"lines\"\n\
         [[listener]]\nname = \"sflow\"\nlisten = \"127.0.0.1:0\"\n\
         [sockets]\ninterval = \"1s\"\njitter = \"0s\"\nnamespaces = \"own\"\n\
         [flows]\nfrom = [\"sflow\"]\n\
         [[flow]]\nname = \"pairs\"\nkeys = [\"src\", \"dst\"]\nsmoothing = \"1s\"\n\
         [[flow]]\nname = \"drops\"\nkeys = [\"src\", \"dst\"]\ntraffic = \"dropped\"\nvalue = \"frames\"\n\
         [[threshold]]\nname = \"heavy\"\nflow = \"pairs\"\nlimit = \"1Mbit/s\"\n\
         [[sink]]\nname = \"records\"\nfrom = [\"sockets\"]\nto = \"file:{}\"\n\
         [[sink]]\nname = \"down\"\nfrom = [\"sockets\"]\nto = \"tcp://127.0.0.1:9\"\nspool = \"{}\"\n",
        at("syslog.log"),
        at("sockets.jsonl"),
        at("spool"),
    )
}

#[test]
fn the_overview_shows_every_count_of_the_ledger_digit_by_digit() {
    let Some(_browser) = browser() else { return };
    let rig = Rig::start();
    let seen = answer(drive("overview.cjs", &rig.question()));
    assert_eq!(seen["compared"], 5, "{seen}");
}

#[test]
fn the_modules_have_the_types_that_they_say() {
    if !need_tool("weir-tsc") {
        return;
    }
    let project = testkit::root().join("ui/jsconfig.json");
    testkit::run(Command::new(find_tool("weir-tsc").unwrap()).arg("--project").arg(project));
}
