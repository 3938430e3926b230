//! The token of a daemon's run: who finds it, and what it shows.

use crate::support::{WEIR, Weir};
use crate::ui_command::ui;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::Command;
use testkit::{
    Netns, TempDir, need_root, need_root_netns, need_tool, run, signal, try_get, wait_for,
};

/// A daemon that collects from every namespace, whose sockets its address alone does not show.
fn daemon(dir: &TempDir, admin: &str) -> Weir {
    configure(dir, admin);
    Weir::run(&dir.file("weir.toml"))
}

fn configure(dir: &TempDir, admin: &str) {
    let sink = "[[sink]]\nfrom = [\"sockets\"]\nto = \"null:\"\n";
    let sockets = "[sockets]\nnamespaces = \"all\"\nstates = [\"all\"]\n";
    fs::write(dir.file("weir.toml"), format!("[admin]\n{admin}\n{sockets}{sink}")).unwrap();
}

/// Where it leaves its token.
fn file(weir: &Weir) -> PathBuf {
    let namespace = fs::metadata("/proc/self/ns/net").unwrap().ino();
    PathBuf::from(format!("/run/weir/{namespace}-{}.token", weir.admin))
}

fn can_run() -> bool {
    need_root_netns() && need_root("a runtime folder of this system")
}

#[test]
fn commands_of_its_user_find_the_token_and_see_every_namespace() {
    if !can_run() {
        return;
    }
    let (dir, netns) = (TempDir::new(), Netns::new());
    let mut inside = netns.command(WEIR);
    inside.args([
        "relay",
        "--listen",
        "127.0.0.1:5514",
        "--to",
        "null:",
        "--admin",
        "127.0.0.1:9464",
    ]);
    let mut inside = testkit::Process::start(inside);
    inside.hear("ledger and metrics on");
    let weir = daemon(&dir, "");
    let admin = weir.admin.to_string();
    let text = fs::read_to_string(file(&weir)).unwrap();
    assert_eq!(fs::metadata(file(&weir)).unwrap().permissions().mode() & 0o777, 0o600);
    let (code, link, said) = ui(&["--admin", &admin]);
    assert_eq!((code, link), (0, format!("{}/#token={text}\n", weir.url())), "{said}");

    // A stranger sees what every process here can list.
    let page = "/sockets?filter=sport+=+:9464+or+sport+=+:5514&limit=9";
    let stranger = || try_get(weir.admin, page, "*/*").unwrap();
    wait_for(stranger, || stranger().contains("\"namespaces\":1,").then_some(()));
    assert!(!stranger().contains(&netns.name), "{}", stranger());
    let top = || {
        let output =
            Command::new(WEIR).args(["top", "--once", "--admin", &admin]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    wait_for(top, || top().contains(" namespaces").then_some(()));
    assert!(!top().contains("shown to root"), "{}", top());

    let path = file(&weir);
    let said = weir.stop().said;
    assert!(said.contains(&format!("page: weir ui --admin {admin}")), "{said}");
    assert!(!said.contains(&text), "it is in no log");
    assert!(!path.exists(), "the file goes with the daemon");
    inside.signal("TERM");
}

#[test]
fn a_user_of_the_socket_reads_it_and_another_does_not() {
    if !can_run() || !need_tool("setpriv") {
        return;
    }
    let dir = TempDir::new();
    let admin = format!("socket = \"{}\"\nsocket_users = [\"65534\"]", dir.text("admin.sock"));
    let weir = daemon(&dir, &admin);
    let reads = |uid: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", uid, "--clear-groups", "cat"]).arg(file(&weir));
        command.output().unwrap().status.success()
    };
    assert!(reads("65534"));
    assert!(!reads("4321"));

    // The socket itself, by the commands.
    let socket = format!("unix:{}", dir.text("admin.sock"));
    let text = run(Command::new(WEIR).args(["ledger", "--admin", &socket]));
    assert!(text.contains("polled"), "{text}");
    // Nobody is named any more.
    configure(&dir, "");
    signal(weir.process(), "HUP");
    wait_for(|| "a reload".to_owned(), || (!reads("65534")).then_some(()));
    weir.stop();
}

#[test]
fn an_old_token_is_refused_with_its_own_code() {
    if !can_run() {
        return;
    }
    let dir = TempDir::new();
    let weir = daemon(&dir, "");
    fs::write(dir.file("old"), "0123456789abcdef0123456789abcdef").unwrap();
    let admin = weir.admin.to_string();
    let (code, printed, said) = ui(&["--admin", &admin, "--token-file", &dir.text("old")]);
    assert_eq!((code, printed.as_str()), (77, ""), "{said}");
    assert!(said.contains("wrong token"), "{said}");
    weir.stop();
}
