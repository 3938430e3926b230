//! The admin server beyond this machine: a token over TLS, asked by real commands, a real Prometheus, and by those who mean no good.

use crate::prometheus::Prometheus;
use crate::support::WEIR;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;
use testkit::servers::{Certificate, Certificates};
use testkit::{Process, TempDir, need_tool, wait_for};

const TOKEN: &str = "a-token-of-a-test-and-no-other";
const OTHER_TOKEN: &str = "another-token-of-the-same-test";

/// A daemon that answers over TLS at every address of this machine to who has the token.
struct Remote {
    process: Process,
    port: u16,
    dir: TempDir,
    ca: String,
}

impl Remote {
    /// `None` where what makes certificates is not installed.
    #[track_caller]
    fn start(which: Certificate) -> Option<Remote> {
        let dir = TempDir::new();
        let certificates = Certificates::make(dir.path())?;
        fs::write(dir.file("token"), format!("{TOKEN}\n")).unwrap();
        fs::copy(certificates.certificate(which), dir.file("shown.pem")).unwrap();
        fs::copy(certificates.key(which), dir.file("shown.key")).unwrap();

        let config = format!(
            "[admin]\nlisten = '0.0.0.0:0'\ntoken_file = '{}'\ntls_cert = '{}'\ntls_key = '{}'\n\
             [[listener]]\nname = 'in'\nlisten = '127.0.0.1:0'\n[[listener.target]]\nname = 'a'\nto = 'null:'\n",
            dir.text("token"),
            dir.text("shown.pem"),
            dir.text("shown.key"),
        );
        fs::write(dir.file("weir.toml"), config).unwrap();

        let mut command = Command::new(WEIR);
        command.args(["run", "-c"]).arg(dir.file("weir.toml"));
        let mut process = Process::start(command);
        let address = process.hear("ledger and metrics on https://").remove(0);
        let port = address.parse::<SocketAddr>().unwrap().port();
        Some(Remote { process, port, ca: certificates.ca(), dir })
    }

    fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    fn token_file(&self) -> String {
        self.dir.text("token")
    }

    /// Exit code and everything that is said by a command that asks with the token and knows the authority.
    fn ask(&self, args: &[&str]) -> (i32, String) {
        let (url, token) = (self.url(), self.token_file());
        let more = ["--admin", &url, "--token-file", &token, "--ca-file", &self.ca];
        said(Command::new(WEIR).args(args).args(more))
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }
}

fn said(command: &mut Command) -> (i32, String) {
    for name in ["WEIR_ADMIN", "WEIR_TOKEN_FILE", "WEIR_CA_FILE"] {
        if command.get_envs().all(|(set, _)| set != name) {
            command.env_remove(name);
        }
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (output.status.code().unwrap(), text.into_owned())
}

#[test]
fn commands_ask_with_a_token_over_tls() {
    let Some(remote) = Remote::start(Certificate::Valid) else { return };
    let (code, text) = remote.ask(&["ledger"]);
    assert!(code == 0 && text.contains("unaccounted: 0"), "{code}: {text}");
    let (code, text) = remote.ask(&["top", "--once", "--interval", "10ms"]);
    assert!(code == 0 && text.contains("https://127.0.0.1:"), "{code}: {text}");
    let (code, text) = remote.ask(&["ledger", "--through", &remote.url()]);
    assert!(code == 0, "{code}: {text}");

    let (code, text) = remote.ask(&["ui"]);
    assert_eq!((code, text), (0, format!("{}/#token={TOKEN}\n", remote.url())));

    let mut by_environment = Command::new(WEIR);
    by_environment
        .arg("ledger")
        .env("WEIR_ADMIN", format!("https://localhost:{}", remote.port))
        .env("WEIR_TOKEN_FILE", remote.token_file())
        .env("WEIR_CA_FILE", &remote.ca);
    let (code, text) = said(&mut by_environment);
    assert!(code == 0 && text.contains("unaccounted: 0"), "{code}: {text}");

    let (code, text) = remote.ask(&["reload"]);
    assert_eq!((code, text.as_str()), (0, "reloaded: nothing has changed\n"));
    let (code, text) = remote.ask(&["stop"]);
    assert_eq!((code, text.as_str()), (0, "unaccounted: 0\n"));
}

#[test]
fn nobody_is_answered_without_the_token_and_no_token_goes_to_a_stranger() {
    let Some(remote) = Remote::start(Certificate::Valid) else { return };
    let (url, token) = (remote.url(), remote.token_file());
    fs::write(remote.dir.file("other"), OTHER_TOKEN).unwrap();
    fs::write(remote.dir.file("empty"), "\n").unwrap();
    let (other, empty) = (remote.dir.text("other"), remote.dir.text("empty"));
    let ledger = |args: &[&str]| said(Command::new(WEIR).arg("ledger").args(args));
    let check = |args: &[&str], expected_code: i32, expected: &str| {
        let (code, text) = ledger(args);
        assert_eq!(code, expected_code, "{args:?}: {text}");
        assert!(text.contains(expected), "{args:?}: {text}");
        assert!(!text.contains(TOKEN) && !text.contains(OTHER_TOKEN), "{text}");
    };

    check(&["--admin", &url, "--ca-file", &remote.ca], 77, "missing token");
    check(&["--admin", &url, "--ca-file", &remote.ca, "--token-file", &other], 77, "wrong token");
    check(
        &["--admin", &url, "--ca-file", &remote.ca, "--token-file", &empty],
        66,
        "the file is empty",
    );
    check(
        &["--admin", &url, "--ca-file", &remote.ca, "--token-file", "/no/such"],
        66,
        "No such file",
    );
    // The system's authorities did not sign a test's certificate.
    check(&["--admin", &url, "--token-file", &token], 69, "--ca-file FILE");
    check(
        &["--admin", &url, "--token-file", &token, "--ca-file", &other],
        66,
        "there is none of its kind in it",
    );
    let plain = format!("127.0.0.1:{}", remote.port);
    check(&["--admin", &plain], 69, "this address speaks TLS. Fix: write https://");
    let beyond = format!("http://192.0.2.1:{}", remote.port);
    check(&["--admin", &beyond, "--token-file", &token], 64, "is not sent to http://192.0.2.1");
}

#[test]
fn an_expired_certificate_gets_no_token() {
    let Some(remote) = Remote::start(Certificate::Expired) else { return };
    let (code, text) = remote.ask(&["ledger"]);
    assert_eq!(code, 69, "{text}");
    assert!(text.contains("cannot be trusted") && text.contains("renew"), "{text}");
}

#[test]
fn a_reload_reads_token_and_certificate_again_or_keeps_the_former() {
    let Some(remote) = Remote::start(Certificate::Valid) else { return };
    fs::write(remote.dir.file("former"), TOKEN).unwrap();
    let former = remote.dir.text("former");
    let url = remote.url();
    let ledger = |token: &str| {
        let more = ["--admin", &url, "--ca-file", &remote.ca, "--token-file", token];
        said(Command::new(WEIR).arg("ledger").args(more))
    };

    fs::write(remote.dir.file("token"), "short").unwrap();
    remote.process.signal("HUP");
    wait_for("the refusal", || remote.process.said().contains("reload refused").then_some(()));
    assert!(remote.process.said().contains("at least 16 characters, not 5"));
    assert_eq!(ledger(&former).0, 0);

    fs::write(remote.dir.file("token"), OTHER_TOKEN).unwrap();
    remote.process.signal("HUP");
    wait_for("the new token", || (ledger(&remote.token_file()).0 == 0).then_some(()));
    assert!(remote.process.said().contains("[admin]: another token or certificate"));
    let (code, text) = ledger(&former);
    assert!(code == 77 && text.contains("wrong token"), "{text}");

    for end in ["pem", "key"] {
        fs::copy(
            remote.dir.file(&format!("expired.{end}")),
            remote.dir.file(&format!("shown.{end}")),
        )
        .unwrap();
    }
    remote.process.signal("HUP");
    let is_shown = || ledger(&remote.token_file()).1.contains("cannot be trusted").then_some(());
    wait_for("the other certificate", is_shown);
}

#[test]
fn hostile_connections_keep_nobody_out() {
    let Some(remote) = Remote::start(Certificate::Valid) else { return };
    let hello = [22_u8, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3];
    // More than it takes at one time: those that say nothing, those that stop in their first record, and those that speak nonsense in it.
    let mut hostile: Vec<TcpStream> = Vec::new();
    for number in 0..3 * admin::CONNECTIONS_MAX {
        let mut stream = remote.connect();
        let begun: &[u8] = match number % 3 {
            0 => &[],
            1 => &hello,
            _ => &[22, 255, 255, 255, 255, 0, 1, 2, 3],
        };
        // The server may have closed it already.
        let _ = stream.write_all(begun);
        hostile.push(stream);
    }

    let (code, text) = remote.ask(&["ledger"]);
    assert!(code == 0 && text.contains("unaccounted: 0"), "{code}: {text}");
    // Each is closed by the server, none by us: the oldest to make room, the others when their time is over.
    for mut stream in hostile {
        let mut rest = Vec::new();
        let ended = stream.read_to_end(&mut rest);
        let timed_out = ended.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
        assert!(!timed_out, "a connection without a handshake stays open");
    }
}

#[test]
fn prometheus_scrapes_with_the_token_over_tls() {
    if !need_tool("prometheus") {
        return;
    }
    let Some(remote) = Remote::start(Certificate::Valid) else { return };
    let lines = format!(
        "    scheme: https\n    authorization:\n      credentials_file: {}\n    tls_config:\n      ca_file: {}\n",
        remote.token_file(),
        remote.ca,
    );
    let address = SocketAddr::from(([127, 0, 0, 1], remote.port));
    let prometheus = Prometheus::scraping_with(address, &lines);
    prometheus.until("up", |up| up == 1.0);
    prometheus.until("weir_relay_received_datagrams_total", |count| count == 0.0);
}

#[test]
fn a_token_that_could_be_read_on_the_way_is_refused() {
    let dir = TempDir::new();
    fs::write(dir.file("token"), TOKEN).unwrap();
    let write = |listen: &str| {
        let config = format!(
            "[admin]\nlisten = '{listen}'\ntoken_file = '{}'\n[[listener]]\nlisten = '127.0.0.1:0'\n[[listener.target]]\nto = 'null:'\n",
            dir.text("token")
        );
        fs::write(dir.file("weir.toml"), config).unwrap();
    };
    let file = dir.text("weir.toml");
    let refused = "0.0.0.0:9464 is reached from other machines";

    write("0.0.0.0:9464");
    let (code, text) = said(Command::new(WEIR).args(["config", "check", &file]));
    assert!(
        code == 1 && text.contains("weir.toml:3: admin.token_file: ") && text.contains(refused),
        "{text}"
    );
    write("127.0.0.1:9464");
    let (code, text) = said(Command::new(WEIR).args(["config", "check", &file]));
    assert_eq!(code, 0, "{text}");
    // What moves the address after the file was read is held against it too.
    let (code, text) =
        said(Command::new(WEIR).args(["run", "-c", &file, "--admin", "0.0.0.0:9464"]));
    assert!(code == 78 && text.contains(refused), "{code}: {text}");
}
