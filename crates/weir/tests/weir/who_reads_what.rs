//! One table, for every way to ask a running daemon: who gets what. Made of the program's own lists, so that a table, a named question
//! or a source without an answer fails.

use crate::support::{WEIR, Weir};
use record::{ChunkBuilder, DatagramRecord, SocketRecord};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use store::{Audience, Clearance, NAMED, TABLES};
use testkit::{TempDir, find_tool, free_port, need_root, need_tool};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";
/// In `socket_users`.
const KNOWN_USER: u32 = 65_532;
const UNKNOWN_USER: u32 = 65_533;

/// Who asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Asker {
    /// At the TCP address of a daemon without a token.
    Anyone,
    /// At that of a daemon with one.
    WithToken,
    WithoutToken,
    /// At the unix socket.
    User(u32),
}

impl Asker {
    const ALL: [Asker; 6] = [
        Asker::Anyone,
        Asker::WithToken,
        Asker::WithoutToken,
        Asker::User(0),
        Asker::User(KNOWN_USER),
        Asker::User(UNKNOWN_USER),
    ];

    fn is_known(self) -> bool {
        matches!(self, Asker::WithToken | Asker::User(0 | KNOWN_USER))
    }
}

/// Who gets a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shown {
    ToAnyone,
    /// Here the daemon collects from every namespace, and the store has sockets of others.
    ToKnown,
}

/// Every page that shows sockets, records or history, and who gets it.
fn pages() -> Vec<(String, Shown)> {
    let mut pages = vec![
        // To anyone those of the daemon's own namespace.
        ("/sockets?limit=1".to_owned(), Shown::ToAnyone),
        ("/records?follow&for=50ms".to_owned(), Shown::ToKnown),
        ("/records?follow&for=50ms&from=sockets".to_owned(), Shown::ToKnown),
        ("/records?follow&for=50ms&from=flows".to_owned(), Shown::ToAnyone),
        // As /flows/events shows them.
        ("/records?follow&for=50ms&from=events".to_owned(), Shown::ToAnyone),
        ("/flows".to_owned(), Shown::ToAnyone),
        ("/ledger".to_owned(), Shown::ToAnyone),
        ("/query".to_owned(), Shown::ToAnyone),
    ];
    for named in NAMED {
        let shown = match (named.clearance(), named.name) {
            (Clearance::Sums, _) => Shown::ToAnyone,
            (_, "losses" | "ledger-rates" | "poll-rates" | "top-flows" | "flow-drops") => {
                Shown::ToAnyone
            }
            _ => Shown::ToKnown,
        };
        pages.push((format!("/query/{}?cookie=1", named.name), shown));
    }
    for (table, audience) in TABLES {
        let shown = match audience {
            Audience::Anyone => Shown::ToAnyone,
            Audience::OwnSockets | Audience::Known => Shown::ToKnown,
        };
        pages.push((format!("/query?sql=SELECT+*+FROM+{table}+LIMIT+1"), shown));
    }
    pages
}

fn fill(folder: &Path) {
    let options = store::Options {
        folder: folder.to_owned(),
        keep_age: None,
        keep_bytes: None,
        segment_age: Duration::from_secs(3_600),
        keys_max: 10,
    };
    let mut writer = store::Writer::open(options).unwrap();
    let mut builder = ChunkBuilder::new(1, [0; 16]);
    builder.record(&SocketRecord {
        time_unix_ns: Some(sys::clock::realtime_ns()),
        cookie: Some(1),
        netns_inode: Some(1),
        ..SocketRecord::default()
    });
    let payload = Some(&b"secret of the site"[..]);
    builder.datagram(
        &DatagramRecord { time_unix_ns: Some(1), payload, ..Default::default() },
        0,
        1,
    );
    let chunk = builder.cut(None).unwrap();
    writer.insert(chunk.rows().map(|row| (row.kind, row.bytes)), sys::clock::Now::read()).unwrap();
}

/// A daemon that has all that can be shown.
struct Daemon {
    dir: TempDir,
    weir: Weir,
    grpc: String,
}

impl Daemon {
    fn start(admin: &str) -> Daemon {
        let dir = TempDir::new();
        // The other users come by its socket.
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        fill(&dir.file("history"));
        fs::write(dir.file("token"), TOKEN).unwrap();
        fs::set_permissions(dir.file("token"), Permissions::from_mode(0o600)).unwrap();
        let grpc = format!("127.0.0.1:{}", free_port());
        let grpc_line =
            if cfg!(feature = "grpc") { format!("grpc = \"{grpc}\"\n") } else { String::new() };
        let text = format!(
            "[admin]\nsocket = \"{}\"\nsocket_users = [\"{KNOWN_USER}\"]\n{grpc_line}{}\n\
             [sockets]\nnamespaces = \"all\"\n\
             [[listener]]\nname = \"in\"\nlisten = \"127.0.0.1:0\"\n\
             [flows]\nfrom = [\"in\"]\n\
             [[threshold]]\nname = \"much\"\nflow = \"f\"\nlimit = \"1Gbit/s\"\n[[flow]]\nname = \"f\"\nkeys = [\"dst\"]\n\
             [[sink]]\nname = \"history\"\nfrom = [\"sockets\"]\nto = \"store:{}\"\n",
            dir.text("admin.sock"),
            admin.replace("TOKEN_FILE", &dir.text("token")),
            dir.text("history"),
        );
        fs::write(dir.file("weir.toml"), text).unwrap();
        let weir = Weir::run(&dir.file("weir.toml"));
        Daemon { dir, weir, grpc }
    }

    /// The status and the body of a page.
    fn ask(&self, asker: Asker, page: &str) -> (u16, String) {
        let mut curl = Command::new(find_tool("curl").unwrap());
        curl.args(["--silent", "--max-time", "20", "--write-out", "\n%{http_code}"]);
        let host = match asker {
            Asker::Anyone | Asker::WithoutToken => self.weir.url(),
            Asker::WithToken => {
                curl.args(["--header", &format!("Authorization: Bearer {TOKEN}")]);
                self.weir.url()
            }
            Asker::User(uid) => {
                curl.args(["--unix-socket", &self.dir.text("admin.sock")]).uid(uid);
                "http://localhost".to_owned()
            }
        };
        let output = curl.arg(format!("{host}{page}")).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (body, status) = text.rsplit_once('\n').unwrap();
        (status.parse().unwrap(), body.to_owned())
    }
}

#[test]
fn every_page_is_shown_to_those_whom_it_is_for() {
    if !need_root("collecting from every network namespace, and asking as other users")
        || !need_tool("curl")
    {
        return;
    }
    let open = Daemon::start("");
    let closed = Daemon::start("token_file = \"TOKEN_FILE\"");
    for (page, shown) in pages() {
        for asker in Asker::ALL {
            let daemon = match asker {
                Asker::WithToken | Asker::WithoutToken => &closed,
                _ => &open,
            };
            let (status, body) = daemon.ask(asker, &page);
            let expected = match asker {
                Asker::WithoutToken => 401,
                Asker::User(UNKNOWN_USER) => 403,
                Asker::Anyone if shown == Shown::ToKnown => 403,
                _ => 200,
            };
            assert_eq!(status, expected, "{asker:?} {page}: {body}");
            if asker == Asker::Anyone && status == 403 {
                // Both ways to be known.
                for way in ["admin.token_file", "Fix: curl --unix-socket"] {
                    assert!(body.contains(way), "{page}: {body}");
                }
            }
            if page.starts_with("/sockets") && asker == Asker::Anyone {
                assert!(body.contains("\"namespaces\":1,"), "{body}");
            }
            let is_secret = body.contains(&hex("secret of the site"));
            assert!(!is_secret || asker.is_known(), "{asker:?} {page}: {body}");
        }
    }
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(feature = "grpc")]
#[test]
fn records_over_grpc_are_shown_to_those_whom_they_are_for() {
    if !need_root("collecting from every network namespace") || !need_tool("grpcurl") {
        return;
    }
    const PERMISSION_DENIED: i32 = 7;
    const UNAUTHENTICATED: i32 = 16;
    let open = Daemon::start("");
    let closed = Daemon::start("token_file = \"TOKEN_FILE\"");
    let call = |daemon: &Daemon, token: Option<&str>, request: &str| {
        let mut grpcurl = Command::new(find_tool("grpcurl").unwrap());
        grpcurl.arg("-plaintext");
        if let Some(token) = token {
            grpcurl.args(["-H", &format!("Authorization: Bearer {token}")]);
        }
        // Without the method's description nothing is asked of reflection, which needs the token too.
        let proto = testkit::root().join("proto");
        grpcurl.arg("-import-path").arg(proto).args(["-proto", "weir_grpc.proto"]);
        let output =
            grpcurl.args(["-d", request, &daemon.grpc, "weir.v1.Records/Follow"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code().unwrap(), said)
    };
    for (from, shown) in
        [("sockets", Shown::ToKnown), ("flows", Shown::ToAnyone), ("events", Shown::ToAnyone)]
    {
        let request = format!(r#"{{"from": ["{from}"], "for": "50ms"}}"#);
        let refused = if shown == Shown::ToKnown { 64 + PERMISSION_DENIED } else { 0 };
        let (code, said) = call(&open, None, &request);
        assert_eq!(code, refused, "{from}: {said}");
        assert!(code == 0 || said.contains("Fix: curl --unix-socket"), "{said}");
        let (code, said) = call(&closed, None, &request);
        assert_eq!(code, 64 + UNAUTHENTICATED, "{from}: {said}");
        let (code, said) = call(&closed, Some(TOKEN), &request);
        assert_eq!(code, 0, "{from}: {said}");
    }
}

/// Who may read the files reads all that is in them; nobody else reads anything.
#[test]
fn a_store_without_a_daemon_is_read_by_those_who_may_read_its_files() {
    if !need_root("asking as another user") {
        return;
    }
    let dir = TempDir::new();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    fill(&dir.file("history"));
    // Where any user may run it.
    let program = dir.file("weir");
    fs::copy(WEIR, &program).unwrap();
    let ask = |uid: u32| {
        let mut query = Command::new(&program);
        query.args(["query", "--store"]).arg(dir.file("history"));
        query.args(["--format", "csv", "SELECT payload FROM datagrams"]).uid(uid).gid(uid);
        query.current_dir(dir.path()).output().unwrap()
    };
    let output = ask(0);
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains(&hex("secret of the site")));
    let output = ask(UNKNOWN_USER);
    assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
}
