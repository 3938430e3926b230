//! `weir config` and `weir doctor` from outside: exit codes, what goes to which stream, JSON.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use testkit::TempDir;

/// A folder of our own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("weir-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("the folder for temporary files can be written");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn weir(folder: &Path, args: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(args)
        .current_dir(folder)
        .env_remove("WEIR_LOG_LEVEL")
        .env_remove("WEIR_CONFIG")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("weir starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    // A command that does not read its input may be gone already.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    child.wait_with_output().expect("weir ends")
}

/// Exit code, standard output, standard error.
fn run(folder: &Folder, args: &[&str], input: &str) -> (i32, String, String) {
    let output = weir(&folder.0, args, input);
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (output.status.code().expect("an exit code"), text(output.stdout), text(output.stderr))
}

const RIGHT: &str = "[[listener]]\nlisten='127.0.0.1:5514'\nreceive_buffer='64KiB'\n[[listener.target]]\nto='null:'\n";

#[test]
fn the_example_passes_check() {
    let folder = Folder::new("example");
    let (code, example, _) = run(&folder, &["config", "example"], "");
    assert_eq!(code, 0);
    let (code, out, err) = run(&folder, &["config", "check", "-"], &example);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(
        out.starts_with("standard input: correct; 1 listener and 2 targets\nmemory: at most "),
        "{out}"
    );
    fs::write(folder.0.join("weir.toml"), example).unwrap();
    assert_eq!(run(&folder, &["config", "check"], "").0, 0, "weir.toml is the default");
}

#[test]
fn a_wrong_file_fails_with_all_its_mistakes() {
    let folder = Folder::new("wrong");
    let wrong = format!("{RIGHT}ttl=5\nrate=3\n");
    let (code, out, err) = run(&folder, &["config", "check", "-"], &wrong);
    assert_eq!((code, out.as_str()), (1, ""));
    assert_eq!(
        err,
        "weir: 2 mistakes in standard input:\n\
         standard input:6: listener.target.ttl: it is for UDP targets only and this one is null:. Fix: remove the key\n\
         standard input:7: listener.target.rate: unknown key in [[listener.target]]. Fix: did you mean rate_limit?\n"
    );
    let (code, out, err) = run(&folder, &["config", "check", "-", "--json"], &wrong);
    assert_eq!((code, err.as_str()), (1, ""));
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["errors"][1]["line"], 7);
    assert_eq!(run(&folder, &["config", "show", "-"], &wrong).0, 78);
    fs::write(folder.0.join("wrong.toml"), &wrong).unwrap();
    assert_eq!(run(&folder, &["doctor", "-c", "wrong.toml"], "").0, 78);
}

#[test]
fn a_file_that_is_not_there() {
    let folder = Folder::new("missing");
    let (code, _, err) = run(&folder, &["config", "check", "nowhere.toml"], "");
    assert_eq!(code, 66);
    assert_eq!(
        err,
        "weir: cannot read nowhere.toml: No such file or directory (os error 2). Fix: weir config example > nowhere.toml\n"
    );
}

#[test]
fn show_says_where_values_come_from() {
    let folder = Folder::new("show");
    fs::write(folder.0.join("weir.toml"), RIGHT).unwrap();
    let (code, out, _) = run(&folder, &["config", "show"], "");
    assert_eq!(code, 0);
    let origin = |value: &str| {
        let line =
            out.lines().find(|line| line.starts_with(value)).unwrap_or_else(|| panic!("{out}"));
        line.split_once(" # ").map(|(_, origin)| origin)
    };
    assert_eq!(origin("listen = \"udp://127.0.0.1:5514\""), Some("weir.toml:2"));
    assert_eq!(origin("ring_size = \"8MiB\""), Some("default"));
    assert!(!out.contains("rotate_size"), "keys without a meaning are left out: {out}");
    assert_eq!(run(&folder, &["config", "check", "-"], &out).0, 0, "what is shown is a file");
}

#[test]
fn the_environment_is_looked_at_when_asked() {
    let folder = Folder::new("environment");
    let check = |text: &str| run(&folder, &["config", "check", "-", "--environment"], text);
    let (code, out, err) = check(RIGHT);
    assert_eq!(code, 0, "{out}{err}");
    let missing = RIGHT.replace("null:", "file:no/where/x.log");
    let (code, out, _) = check(&missing);
    assert_eq!(code, 1);
    assert!(
        out.contains("ERROR    target file:no/where/x.log: cannot write no/where/x.log"),
        "{out}"
    );
    assert!(out.contains("Fix: mkdir -p no/where\n"), "{out}");
    assert_eq!(run(&folder, &["config", "check", "-"], &missing).0, 0, "not unless asked");
    // The daemon starts without these, and waits for them.
    let waits = "the listener waits until it is there";
    let drops = "the target drops everything as unreachable until it is there";
    let listener = |text: &str| RIGHT.replace("127.0.0.1:5514'", text);
    let target = |more: &str| RIGHT.replace("'null:'", &format!("'127.0.0.1:9'\n{more}"));
    let no_interface = "there is no interface nothere0";
    for (text, found, why) in [
        (listener("192.0.2.1:5514'"), "192.0.2.1 is not an address", waits),
        (listener("239.0.0.1:5514'\nmulticast_interface='nothere0'"), no_interface, waits),
        (listener("127.0.0.1:5514'\ninterface='nothere0'"), no_interface, waits),
        (target("source_address='192.0.2.1'"), "source_address 192.0.2.1 is not an address", drops),
        (target("interface='nothere0'"), no_interface, drops),
    ] {
        let (code, out, err) = check(&text);
        assert_eq!(code, 0, "{text}{out}{err}");
        assert!(out.contains(found) && out.contains(why), "{out}");
    }
    let (code, out, _) = check(&listener("192.0.2.1:5514'\nfreebind=true"));
    assert_eq!(code, 0, "{out}");
    assert!(!out.contains("192.0.2.1 is not"), "{out}");
    // An address of one link never works without its interface.
    let (code, out, _) = check(&listener("[fe80::1]:5514'"));
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("fe80::1 cannot be used"), "{out}");
    let admin = "[admin]\nsocket = 'no/where/admin.sock'\nsocket_users = ['no such user']\n";
    let (code, out, _) = check(&format!("{admin}{RIGHT}"));
    assert_eq!(code, 1);
    assert!(out.contains("admin socket: cannot make no/where/admin.sock"), "{out}");
    assert!(out.contains("admin socket: there is no user \"no such user\""), "{out}");
    for path in ["file:here.log", "file:folder/here.log"] {
        let (code, out, _) = check(&RIGHT.replace("null:", path));
        assert_eq!(code, 0, "{out}");
    }
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 0, "nothing was left behind");
}

#[test]
fn doctor_speaks_json() {
    let folder = Folder::new("doctor");
    fs::write(folder.0.join("weir.toml"), RIGHT).unwrap();
    for args in [&["doctor", "--json"][..], &["doctor", "--json", "-c", "weir.toml"]] {
        let (code, out, err) = run(&folder, args, "");
        assert_eq!(err, "");
        let json: serde_json::Value = serde_json::from_str(&out).unwrap();
        let findings = json["findings"].as_array().unwrap();
        let loses = findings.iter().any(|f| f["severity"] == "warning" || f["severity"] == "error");
        assert_eq!(code, i32::from(loses));
        assert!(findings.iter().any(|f| f["what"].as_str().unwrap().starts_with("receive buffer")));
    }
}

#[test]
fn what_is_no_text_is_told_from_what_cannot_be_read() {
    let folder = Folder::new("unreadable");
    fs::create_dir_all(folder.0.join("sub")).expect("a folder");
    fs::write(folder.0.join("latin1"), b"# caf\xe9\n").expect("a file");
    for (file, cure) in [("sub", "ends in .toml"), ("latin1", "iconv")] {
        for (args, expected) in [
            (&["run", "-c"][..], 78),
            (&["config", "check"], 1),
            (&["config", "show"], 78),
            (&["doctor", "-c"], 78),
        ] {
            let args = [args, &[file]].concat();
            let (code, _, said) = run(&folder, &args, "");
            assert_eq!(code, expected, "{args:?}: {said}");
            assert!(said.contains(cure), "{args:?}: {said}");
            assert!(!said.contains("config example"), "{args:?}: {said}");
        }
    }
    let (_, _, said) = run(&folder, &["run", "-c", "nowhere.toml"], "");
    assert_eq!(said.matches("config example").count(), 1, "{said}");
}

#[test]
fn show_as_json_has_values_and_origins() {
    let folder = Folder::new("show-json");
    let (code, out, _) = run(&folder, &["config", "show", "--json", "-"], RIGHT);
    assert_eq!(code, 0);
    let shown: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    let listener = &shown["listener"][0];
    assert_eq!(listener["receive_buffer"]["value"], "64KiB");
    assert_eq!(listener["receive_buffer"]["origin"], "standard input:3");
    assert_eq!(listener["target"][0]["to"]["value"], "null:");
    assert_eq!(shown["daemon"]["drain_grace"]["origin"], "default");
    assert!(shown["metrics"]["statsd"].is_null());
}

#[test]
fn no_command_repeats_a_secret_that_stands_in_an_address() {
    let dir = TempDir::new();
    let path = dir.file("weir.toml");
    for to in ["udp://weir:geheim@10.0.0.1:6350", "kafka://weir:geheim@h/t", "geheim@h:1"] {
        let text = format!(
            "[sockets]\n[[sink]]\nname = \"x\"\nfrom = [\"sockets\"]\nto = \"{to}\"\npassword_env = \"gehe im\"\n"
        );
        std::fs::write(&path, text).unwrap();
        let file = path.to_str().unwrap();
        for args in [
            &["config", "check", file][..],
            &["config", "check", "--json", file],
            &["config", "show", file],
            &["run", "-c", file],
            &["sink", "check", "-c", file],
        ] {
            let output =
                std::process::Command::new(crate::support::WEIR).args(args).output().unwrap();
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8_lossy(&said);
            assert!(!output.status.success(), "{args:?}");
            assert!(!said.contains("geheim") && !said.contains("gehe im"), "{args:?}: {said}");
        }
    }
}

#[test]
fn every_command_takes_its_file_by_the_same_option_and_variable() {
    let folder = Folder::new("option");
    fs::write(folder.0.join("right.toml"), RIGHT).unwrap();
    for args in [
        &["config", "check", "-c", "right.toml"][..],
        &["config", "check", "right.toml"],
        &["config", "show", "-c", "right.toml"],
        &["config", "show", "--config", "-"],
    ] {
        let (code, out, err) = run(&folder, args, RIGHT);
        assert_eq!(code, 0, "{args:?} {err}");
        assert!(out.contains("correct") || out.contains("127.0.0.1:5514"), "{args:?} {out}");
    }
    assert_eq!(run(&folder, &["config", "check", "-c", "right.toml", "right.toml"], "").0, 64);

    let by_variable = |args: &[&str], file: &str| {
        let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
        let output = weir.args(args).current_dir(&folder.0).env("WEIR_CONFIG", file).output();
        output.unwrap().status.code()
    };
    assert_eq!(by_variable(&["config", "check"], "right.toml"), Some(0));
    assert_eq!(by_variable(&["config", "check", "right.toml"], "none.toml"), Some(0));
    assert_eq!(by_variable(&["doctor"], "none.toml"), Some(66));
    assert_eq!(by_variable(&["sink", "check"], "none.toml"), Some(66));
}

#[test]
fn the_same_file_ends_every_command_with_the_same_code_but_check() {
    let folder = Folder::new("codes");
    fs::write(folder.0.join("wrong.toml"), "[daemon]\nlog_level='loud'\n").unwrap();
    let commands = [
        &["run", "-c"][..],
        &["doctor", "-c"],
        &["sink", "check", "-c"],
        &["config", "show", "-c"],
        &["config", "check", "-c"],
    ];
    let codes =
        |file: &str| commands.map(|command| run(&folder, &[command, &[file]].concat(), "").0);
    assert_eq!(codes("wrong.toml"), [78, 78, 78, 78, 1]);
    assert_eq!(codes("none.toml"), [66; 5]);
}

#[test]
fn a_daemon_reads_its_configuration_from_standard_input() {
    let folder = Folder::new("stdin");
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    let (code, _, err) =
        run(&folder, &["run", "-c", "-"], &RIGHT.replace("127.0.0.1:5514", &listen));
    assert_eq!(code, 69, "{err}");
    assert!(err.contains(&listen) && err.contains("Fix: stop it, or use another address"), "{err}");
}

#[test]
fn a_folder_is_checked_and_shown_with_the_place_of_each_value() {
    let dir = TempDir::new();
    fs::write(dir.file("10-in.toml"), RIGHT).unwrap();
    fs::write(dir.file("20-daemon.toml"), "[daemon]\nlog_level = '${LEVEL:-warn}'\n").unwrap();
    let run = |args: &[&str]| {
        let output = weir(dir.path(), args, "");
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    };

    for args in [&["config", "check", "."][..], &["config", "check", "-c", "."]] {
        let (code, out, err) = run(args);
        assert!(code == 0 && out.starts_with(".: correct; 1 listener and 1 target"), "{out}{err}");
    }
    let (code, out, _) = run(&["config", "show", "."]);
    assert_eq!(code, 0);
    let line = out.lines().find(|line| line.starts_with("log_level = \"${LEVEL:-warn}\"")).unwrap();
    assert!(line.ends_with("# ./20-daemon.toml:2, default of LEVEL"), "{out}");
    assert!(out.contains("# ./10-in.toml:2\n"), "{out}");

    fs::write(dir.file("30-more.toml"), "[daemon]\nlog_level = 'info'\ndrain_grace = '${GRACE}'\n")
        .unwrap();
    let (code, _, err) = run(&["config", "check", "."]);
    assert_eq!(code, 1);
    assert!(err.contains("2 mistakes in .:\n./30-more.toml:2: daemon.log_level: it is set at ./20-daemon.toml:2 already"), "{err}");
    assert!(err.contains("./30-more.toml:3: daemon.drain_grace: the variable GRACE"), "{err}");
}

#[test]
fn every_file_that_a_key_names_is_read_as_a_daemon_reads_it() {
    let folder = Folder::new("inputs");
    for (name, text) in
        [("short", "short"), ("empty", ""), ("key", "no key of a link"), ("db", "no database")]
    {
        fs::write(folder.0.join(name), text).unwrap();
    }
    let config = "[admin]\ntoken_file='short'\n\
        [[listener]]\nname='link'\nlisten='weir://127.0.0.1:5516'\nkeys='missing'\n\
        [[listener.target]]\nname='far'\nto='weir://127.0.0.1:5515'\nkey='key'\n\
        [[listener]]\nname='s'\nlisten='127.0.0.1:6343'\n\
        [flows]\nfrom=['s']\nmmdb=['db', 'empty']\n[[flow]]\nname='f'\nkeys=['asn(src)']\n";
    let (code, out, err) = run(&folder, &["config", "check", "-"], config);
    // The file may be for another host.
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert!(!out.contains(": correct"), "{out}");
    assert!(out.contains("5 files that it names cannot be used here"), "{out}");
    let (code, out, _) = run(&folder, &["config", "check", "--environment", "-"], config);
    assert_eq!(code, 1, "{out}");
    for place in ["admin.token_file", "listener[0].keys", "listener[0].target[0].key", "flows.mmdb"]
    {
        assert!(out.contains(&format!("ERROR    {place}: ")), "{place}: {out}");
    }
}
