//! What a client of the helper gets, and no more: sockets that read, a few of them, from a process that is nobody.

use crate::nobody::NOBODY;
use crate::support::WEIR;
use sockets::helper::Remote;
use sockets::{Access, Hears, Scope};
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use sys::Errno;
use sys::namespace::{Home, OpenNamespace};
use testkit::{Netns, Peer, TempDir, need_root, need_root_netns, need_tool, wait_for};

/// A helper for nobody, with these arguments; waits until it serves.
fn helper(path: &Path, args: &[&str]) -> Peer {
    let mut command = Command::new(WEIR);
    command.args(["namespace-helper", "--allow-user", "65534", "--listen"]).arg(path).args(args);
    let peer = Peer::start(command.stdin(Stdio::null()).stderr(Stdio::null()));
    // An answer: it has given up everything by then, and its file is as it stays.
    let answer = || Remote::connect(path).ok()?.discover(&Scope::All, &mut Vec::new()).ok();
    wait_for(|| format!("a helper at {}", path.display()), answer);
    peer
}

fn status(peer: &Peer, name: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{}/status", peer.0.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.split_whitespace().next().unwrap().to_owned()
}

/// Both ends of a connection on loopback.
struct Connection {
    near: TcpStream,
    far: TcpStream,
}

impl Connection {
    fn new() -> Connection {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        Connection { near, far: listener.accept().unwrap().0 }
    }

    fn inside(netns: &Netns) -> Connection {
        let there = OpenNamespace::open(&Path::new("/run/netns").join(&netns.name)).unwrap();
        Home::remember().unwrap().enter(&there, Connection::new).unwrap()
    }

    /// Ports and cookie, as the script reads them.
    fn described(&self) -> String {
        let port = |addr: std::io::Result<std::net::SocketAddr>| addr.unwrap().port();
        let (sport, dport) = (port(self.near.local_addr()), port(self.near.peer_addr()));
        let cookie = sys::socket::cookie(self.near.as_fd()).unwrap();
        format!("{sport} {dport} {cookie}")
    }

    /// Whether what is written at one end arrives at the other.
    fn is_alive(&self) -> bool {
        let mut byte = [0];
        (&self.near).write_all(b"x").is_ok() && (&self.far).read_exact(&mut byte).is_ok()
    }
}

/// What came of each thing that the script tried with a socket.
fn attempts(
    mut command: Command,
    args: &[&str],
    connection: &Connection,
) -> BTreeMap<String, String> {
    let script =
        testkit::root().join("crates/weir/tests/weir/namespace_helper_bounds/read_only.py");
    command.arg(script).args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut script = Peer::start(&mut command);
    script.0.stdin.take().unwrap().write_all(connection.described().as_bytes()).unwrap();
    let mut text = String::new();
    script.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(script.0.wait().unwrap().success(), "{text}");
    let words = text.lines().filter_map(|line| line.split_once(' '));
    words.map(|(name, word)| (name.to_owned(), word.to_owned())).collect()
}

/// Everything that is more than reading, but for what the protocol does not have at all.
const WRITES: [&str; 6] =
    ["multicast", "unicast", "all_namespaces", "buffer_force", "mark", "destroy"];
/// Requests of `NETLINK_ROUTE`: a socket of another protocol has none of them, whoever asks.
const ROUTES: [&str; 5] = ["newlink", "dellink", "newaddr", "newroute", "newnsid"];

#[test]
fn a_socket_that_is_passed_on_can_do_no_more_than_read() {
    if !need_root_netns() || !need_root("becoming another user") || !need_tool("python3") {
        return;
    }
    let (dir, netns) = (TempDir::new(), Netns::new());
    let path = dir.text("helper.sock");
    let _helper = helper(Path::new(&path), &["--mode", "666"]);
    let nobody = NOBODY.to_string();
    for (what, connection) in
        [("passed", Connection::inside(&netns)), ("events", Connection::new())]
    {
        let came_of =
            attempts(Command::new("python3"), &[what, &path, &netns.name, &nobody], &connection);
        for name in WRITES {
            assert_eq!(came_of[name], "EPERM", "{what} {name}: {came_of:?}");
        }
        for name in ROUTES {
            assert!(["EINVAL", "ENOENT"].contains(&came_of[name].as_str()), "{name}: {came_of:?}");
        }
        assert!(connection.is_alive(), "{what}");
    }
    // Who has the right to can: it is the right that nobody lacks.
    let connection = Connection::inside(&netns);
    let came_of = attempts(netns.command("python3"), &["opened"], &connection);
    for name in ["multicast", "all_namespaces", "buffer_force", "mark"] {
        assert_eq!(came_of[name], "ok", "{name}: {came_of:?}");
    }
    assert_eq!(came_of["unicast"], "ECONNREFUSED", "nobody has that number: {came_of:?}");
    // A kernel may be built without (CONFIG_INET_DIAG_DESTROY).
    assert!(["ok", "EOPNOTSUPP"].contains(&came_of["destroy"].as_str()), "{came_of:?}");
    assert_eq!(connection.is_alive(), came_of["destroy"] != "ok");
}

#[test]
fn a_user_holds_a_few_event_sockets_of_bounded_size() {
    if !need_root_netns() {
        return;
    }
    let dir = TempDir::new();
    let path = dir.file("helper.sock");
    let _helper = helper(&path, &[]);
    let mut remote = Remote::new(&path);
    let mut found = Vec::new();
    remote.discover(&Scope::All, &mut found).unwrap();
    let mut held = Vec::new();
    let refused = loop {
        match remote.events(Hears::All, 1 << 30) {
            Ok(socket) => held.push(socket),
            Err(errno) => break errno,
        }
        // Another connection is no way around it.
        remote = Remote::new(&path);
        remote.discover(&Scope::All, &mut found).unwrap();
        assert!(held.len() < 64, "without end");
    };
    assert_eq!((refused, held.len()), (Errno::USERS, 4));
    for socket in &held {
        let bytes = sys::socket::receive_buffer(socket.as_fd()).unwrap();
        assert!(bytes <= 64 << 20, "{bytes}");
    }
    held.pop();
    remote.events(Hears::All, 1 << 20).unwrap();
}

#[test]
fn it_becomes_another_user_and_keeps_what_it_needs() {
    if !need_root_netns() || !need_root("becoming another user") {
        return;
    }
    let (dir, netns) = (TempDir::new(), Netns::new());
    let path = dir.file("helper.sock");
    let mut helper = helper(&path, &["--user", "61234"]);
    let four = format!("{:016x}", 1_u64 << 11 | 1 << 12 | 1 << 19 | 1 << 21);
    assert_eq!(
        (status(&helper, "Uid:"), status(&helper, "Gid:")),
        ("61234".into(), "61234".into())
    );
    for set in ["CapPrm:", "CapEff:"] {
        assert_eq!(status(&helper, set), four, "{set}");
    }
    for set in ["CapInh:", "CapAmb:"] {
        assert_eq!(status(&helper, set), "0".repeat(16), "{set}");
    }
    let groups = fs::read_to_string(format!("/proc/{}/status", helper.0.id())).unwrap();
    assert!(groups.contains("\nGroups:\t \n"), "{groups}");
    // It does its work: a namespace that no user of its own is in, its id, and events.
    let mut remote = Remote::connect(&path).unwrap();
    let mut found = Vec::new();
    remote.discover(&Scope::All, &mut found).unwrap();
    let at = found.iter().position(|one| one.name.as_deref() == Some(&netns.name)).unwrap();
    remote.open(at).unwrap();
    remote.nsid(at).unwrap();
    remote.events(Hears::All, 1 << 20).unwrap();
    assert!(helper.terminate().success());
    assert!(!path.exists(), "the file was root's, and root's process has removed it");
}

/// Why the helper is not to be root: what a process with its four capabilities may open of another process, by its user.
#[test]
fn with_the_helpers_capabilities_only_root_reads_the_memory_of_others() {
    const KEPT: &str = "-all,+sys_admin,+sys_ptrace,+net_admin,+net_broadcast";
    if !need_root("becoming another user") || !need_tool("setpriv") {
        return;
    }
    let other = Peer::start(Command::new("sleep").arg("1000"));
    let opens = |uid: u32, name: &str| {
        let mut command = Command::new("setpriv");
        command.args([&format!("--reuid={uid}"), &format!("--regid={uid}"), "--clear-groups"]);
        for set in ["inh-caps", "ambient-caps", "bounding-set"] {
            command.arg(format!("--{set}={KEPT}"));
        }
        let path = format!("/proc/{}/{name}", other.0.id());
        command.args(["sh", "-c", "exec 3<\"$0\"", &path]).stderr(Stdio::null());
        command.status().unwrap().success()
    };
    for (name, root, own_user) in
        [("mem", true, false), ("environ", true, false), ("ns/net", true, true)]
    {
        assert_eq!((opens(0, name), opens(61_234, name)), (root, own_user), "{name}");
    }
}

/// Who may connect by the file's mode and group.
fn mode_and_group(args: &[&str]) -> (u32, u32) {
    let dir = TempDir::new();
    let path = dir.file("helper.sock");
    let _helper = helper(&path, args);
    let meta = fs::metadata(&path).unwrap();
    (meta.permissions().mode() & 0o777, meta.gid())
}

#[test]
fn nobody_connects_who_is_not_let() {
    let own = fs::metadata("/proc/self").unwrap().gid();
    assert_eq!(mode_and_group(&[]), (0o660, own));
    assert_eq!(mode_and_group(&["--mode", "600"]), (0o600, own));
    if need_root("giving a file to a group") {
        assert_eq!(mode_and_group(&["--group", "65534"]), (0o660, 65_534));
    }
}

#[test]
fn what_is_put_in_the_place_of_a_socket_is_not_touched() {
    let dir = TempDir::new();
    let file = |name: &str| -> PathBuf {
        fs::write(dir.file(name), "").unwrap();
        fs::set_permissions(dir.file(name), fs::Permissions::from_mode(0o600)).unwrap();
        dir.file(name)
    };
    let secret = file("secret");
    let (link, hard) = (dir.file("link"), dir.file("hard"));
    symlink(&secret, &link).unwrap();
    let socket = dir.file("socket");
    let _listener = sys::socket::listen_unix_stream(&socket).unwrap();
    fs::hard_link(&socket, &hard).unwrap();
    for path in [&secret, &link, &hard, &dir.file("missing")] {
        let result = sys::socket::share_socket_file(path, 0o666, (None, None));
        assert!(result.is_err(), "{}", path.display());
    }
    for path in [&secret, &socket] {
        let mode = fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", path.display());
    }
    fs::remove_file(&hard).unwrap();
    sys::socket::share_socket_file(&socket, 0o640, (None, None)).unwrap();
    assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o640);
}
