//! The page in a real Chromium, with a live daemon under load: what it shows is what the daemon says.
//!
//! The scripts in `view/` drive the browser through playwright-core. They say on standard error what they wait for; the test does
//! that to the daemon, and the script sees it in the page.

mod crowd;
#[cfg(feature = "store")]
mod past;

use crate::support::{Generator, Place, Verifier, WEIR, Weir};
use crate::ui_command::{ui, with_token};
use serde_json::{Value, json};
use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use testkit::{
    Netns, Process, TempDir, find_tool, free_port, need_root_netns, need_tool, wait_for_up_to,
};

/// Longest time that a script may take on a busy machine; alone, the longest takes a minute and a half.
const SCRIPT_MAX: Duration = Duration::from_secs(300);

/// One browser at a time: each takes a processor.
static BROWSER: Mutex<()> = Mutex::new(());

/// Waits for the browser, if there is one.
pub(crate) fn browser() -> Option<MutexGuard<'static, ()>> {
    let tools = ["chromium", "weir-node"];
    tools.into_iter().all(need_tool).then(|| BROWSER.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Starts a script with a question, which it gets as its argument.
pub(crate) fn drive(script: &str, question: &Value) -> Process {
    let folder = testkit::root().join("crates/weir/tests/weir/view");
    let mut command = Command::new(find_tool("weir-node").unwrap());
    command.arg(folder.join(script)).arg(question.to_string());
    command.env("CHROMIUM", find_tool("chromium").unwrap());
    Process::start(command)
}

/// Runs a script to its end. Its answer is JSON. It visits many pages, and each of its steps has a deadline of its own.
pub(crate) fn answer(mut script: Process) -> Value {
    wait_for_up_to(SCRIPT_MAX, "the end of a script", || (!script.is_running()).then_some(()));
    let (status, text) = script.finish();
    assert!(status.success(), "{text}{}", script.said());
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Where pictures are left for people to look at.
pub(crate) fn pictures() -> PathBuf {
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
        Rig::with(|_| String::new())
    }

    /// As [`start`](Self::start), with more in its configuration.
    fn with(more: impl Fn(&TempDir) -> String) -> Rig {
        Rig::of("own", more)
    }

    /// As [`with`](Self::with), with sockets of these namespaces.
    fn of(namespaces: &str, more: impl Fn(&TempDir) -> String) -> Rig {
        let dir = TempDir::new();
        let receiver = Verifier::start(&Place::Here, &["127.0.0.1:0"], &[]);
        let to = receiver.listens[0].clone();
        let file = dir.file("weir.toml");
        let text = configuration(&dir, &to).replace("\"own\"", &format!("\"{namespaces}\""));
        fs::write(&file, text + &more(&dir)).unwrap();
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

/// Connections to a port of this test's own, which nobody else uses.
struct Held {
    port: u16,
    _ends: Vec<(TcpStream, TcpStream)>,
}

impl Held {
    const COUNT: usize = 7;

    fn new() -> Held {
        Held::of(Held::COUNT)
    }

    fn of(count: usize) -> Held {
        let listener = testkit::listen(([127, 0, 0, 1], 0).into());
        let to = listener.local_addr().unwrap();
        let pair = |_| (TcpStream::connect(to).unwrap(), listener.accept().unwrap().0);
        Held { port: to.port(), _ends: (0..count).map(pair).collect() }
    }
}

#[test]
fn the_overview_shows_every_count_of_the_ledger_digit_by_digit() {
    let Some(_browser) = browser() else { return };
    let rig = Rig::start();
    let seen = answer(drive("overview.cjs", &rig.question()));
    assert_eq!(seen["compared"], 5, "{seen}");
}

#[test]
fn every_page_shows_what_the_daemon_and_the_kernel_say_and_its_address_restores_it() {
    let Some(_browser) = browser() else { return };
    if !need_tool("ss") {
        return;
    }
    let (rig, held) = (Rig::start(), Held::new());
    let mut question = rig.question();
    question["held"] = json!({ "port": held.port, "count": Held::COUNT });
    let seen = answer(drive("pages.cjs", &question));
    assert_eq!(seen["sockets"], Held::COUNT, "{seen}");
}

#[test]
fn everybody_can_use_every_page_by_keyboard_on_a_telephone_and_on_paper() {
    let Some(_browser) = browser() else { return };
    let rig = Rig::start();
    let seen = answer(drive("manners.cjs", &rig.question()));
    assert!(seen["rules"].as_u64() > Some(100), "{seen}");
}

#[test]
fn hostile_names_are_text_everywhere() {
    let Some(_browser) = browser() else { return };
    let rig = Rig::start();
    assert_eq!(answer(drive("hostile.cjs", &rig.question()))["shown"], 6);
}

#[test]
fn a_store_by_its_contract_fills_the_past() {
    let Some(_browser) = browser() else { return };
    let rig = Rig::start();
    let seen = answer(drive("history.cjs", &rig.question()));
    assert_eq!(seen["visits"].as_array().map(Vec::len), Some(6), "{seen}");
}

#[test]
fn a_restart_is_said_and_survived() {
    let Some(_browser) = browser() else { return };
    let dir = TempDir::new();
    let file = dir.file("weir.toml");
    fs::write(&file, configuration(&dir, "127.0.0.1:9")).unwrap();
    let admin = format!("127.0.0.1:{}", free_port());
    let start = || {
        let mut weir = Place::Here.weir();
        weir.args(["run", "--admin", &admin, "-c"]).arg(&file);
        let mut weir = Process::start(weir);
        weir.hear("ledger and metrics on http://");
        weir
    };

    let mut weir = start();
    let mut script = drive("restart.cjs", &json!({ "url": format!("http://{admin}") }));
    script.hear("kill it");
    weir.signal("KILL");
    weir.finish();
    script.hear("start it");
    let _weir = start();
    answer(script);
}

#[test]
fn seven_tabs_are_live_and_a_hidden_one_asks_nothing() {
    let Some(_browser) = browser() else { return };
    let rig = Rig::start();
    assert_eq!(answer(drive("tabs.cjs", &rig.question()))["tabs"], 7);
}

#[test]
fn another_site_gets_no_figure() {
    let Some(_browser) = browser() else { return };
    let rig = Rig::start();
    assert_eq!(answer(drive("strangers.cjs", &rig.question()))["refused"], 11);
}

#[test]
fn a_token_comes_by_a_link_or_is_typed_and_goes_with_every_question() {
    let Some(_browser) = browser() else { return };
    let rig = Rig::start();
    assert!(answer(drive("token.cjs", &rig.question()))["asked"].as_u64() > Some(1));
}

#[test]
fn a_link_of_weir_ui_opens_the_page() {
    let Some(_browser) = browser() else { return };
    let dir = TempDir::new();
    let weir = with_token(&dir);
    let admin = weir.admin.to_string();
    let (code, link, said) = ui(&["--admin", &admin, "--token-file", &dir.text("token")]);
    assert_eq!(code, 0, "{said}");
    let question = json!({ "url": weir.url(), "path": link.trim_end().strip_prefix(&weir.url()) });
    assert_eq!(answer(drive("link.cjs", &question))["level"], "live");
}

#[test]
fn a_link_of_a_run_shows_every_page_and_strangers_are_told_once_what_is_missing() {
    let Some(_browser) = browser() else { return };
    if !need_root_netns() {
        return;
    }
    let _other = Netns::new();
    let rig = Rig::of("all", |_| String::new());
    let (code, link, said) = ui(&["--admin", &rig.weir.admin.to_string()]);
    assert_eq!(code, 0, "{said}");
    let mut question = rig.question();
    question["path"] = json!(link.trim_end().strip_prefix(&rig.weir.url()));
    let seen = answer(drive("known.cjs", &question));
    assert_eq!(seen["seen"].as_object().map(|all| all.len()), Some(6), "{seen}");
}

#[test]
fn the_first_page_is_small() {
    let Some(_browser) = browser() else { return };
    let rig = Rig::start();
    let seen = answer(drive("size.cjs", &rig.question()));
    assert!(seen["compressed"].as_u64() < Some(42_000), "{seen}");
}

#[test]
fn the_modules_have_the_types_that_they_say() {
    if !need_tool("weir-tsc") {
        return;
    }
    let project = testkit::root().join("ui/jsconfig.json");
    testkit::run(Command::new(find_tool("weir-tsc").unwrap()).arg("--project").arg(project));
}
