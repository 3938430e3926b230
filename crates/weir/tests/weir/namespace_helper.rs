//! The helper as a process, with clients that have no privilege, and clients that mean it harm.

use crate::nobody::NOBODY;
use crate::support::WEIR;
use sockets::helper::Remote;
use sockets::{Access, Found, Hears, Scope};
use std::cell::RefCell;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};
use sys::Errno;
use sys::namespace::{Home, OpenNamespace};
use sys::netlink::{DUMP_BUFFER_BYTES, Socket};
use sys::pass::Channel;
use sys::process::keep_capabilities;
use testkit::{
    DEADLINE, Netns, Peer, TempDir, find_tool, need_root, need_root_netns, need_tool, run, signal,
    wait_for,
};

/// A running helper.
pub(crate) struct Helper {
    peer: Peer,
    pub(crate) path: PathBuf,
    said: mpsc::Receiver<String>,
    banner: String,
}

impl Helper {
    /// For the user nobody.
    pub(crate) fn start(dir: &TempDir) -> Helper {
        Helper::run(Command::new(WEIR), &dir.file("helper.sock"))
    }

    /// By a command that starts `weir`. Waits until it serves.
    fn run(mut weir: Command, path: &Path) -> Helper {
        weir.args(["namespace-helper", "--allow-user", "65534", "--mode", "666", "--listen"]);
        weir.arg(path);
        let mut peer = Peer::start(weir.stdin(Stdio::null()).stderr(Stdio::piped()));
        let reader = BufReader::new(peer.0.stderr.take().unwrap());
        let (lines, said) = mpsc::channel();
        thread::spawn(move || {
            reader.lines().map_while(Result::ok).for_each(|line| drop(lines.send(line)));
        });
        let mut banner = String::new();
        while !banner.contains("namespace helper at ") {
            banner += &(said.recv_timeout(DEADLINE).unwrap_or_else(|_| panic!("{banner}")) + "\n");
        }
        Helper { peer, path: path.to_owned(), said, banner }
    }

    fn status(&self, name: &str) -> String {
        let status = fs::read_to_string(format!("/proc/{}/status", self.peer.0.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name}: {status}")).trim().to_owned()
    }

    fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.peer.0.id())).unwrap().count()
    }

    /// Asks it to end; returns what it said since the start.
    pub(crate) fn stop(mut self) -> String {
        let status = self.peer.terminate();
        let said = self.said.iter().fold(self.banner.clone(), |all, line| all + &line + "\n");
        assert!(status.success(), "{status}: {said}");
        assert!(!self.path.exists(), "it leaves no file behind");
        said
    }
}

/// Both ends of a connection in a namespace, and its port.
fn connect_in(netns: &Netns) -> (TcpStream, TcpStream, u16) {
    let there = OpenNamespace::open(&Path::new("/run/netns").join(&netns.name)).unwrap();
    let connect = || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0, listener.local_addr().unwrap().port())
    };
    Home::remember().unwrap().enter(&there, connect).unwrap()
}

/// `weir sockets` as a user without any capability, from a copy that it may read.
fn sockets_as(uid: u32, dir: &TempDir, path: &Path) -> Output {
    let copy = dir.file("weir");
    if !copy.exists() {
        run(Command::new("cp").arg(WEIR).arg(&copy));
    }
    let mut command = Command::new(find_tool("setpriv").unwrap());
    command.args([&format!("--reuid={uid}"), "--regid=65534", "--clear-groups", "--no-new-privs"]);
    command.args(["--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all", "--"]);
    command.arg(copy).args(["sockets", "--all-namespaces", "--format", "jsonl", "--helper"]);
    command.arg(path).output().unwrap()
}

/// Runs `f` on a thread that has no capability.
fn without_capabilities<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    let run = || {
        assert_eq!(keep_capabilities(0), Ok(0));
        f()
    };
    thread::scope(|scope| scope.spawn(run).join().unwrap())
}

/// The place of a namespace among those that were found.
fn place(found: &[Found], netns: &Netns) -> usize {
    let is_it = |one: &Found| one.name.as_deref() == Some(&netns.name);
    found.iter().position(is_it).unwrap_or_else(|| panic!("no {} in {found:?}", netns.name))
}

fn can_use_other_users() -> bool {
    need_root_netns() && need_root("becoming another user") && need_tool("setpriv")
}

#[test]
fn nobody_sees_the_sockets_of_every_namespace() {
    if !can_use_other_users() {
        return;
    }
    let (dir, one, other) = (TempDir::new(), Netns::new(), Netns::new());
    let connections = [(&one, connect_in(&one)), (&other, connect_in(&other))];
    let helper = Helper::start(&dir);
    assert!(helper.banner.contains(", for root, "), "{}", helper.banner);
    assert!(helper.banner.contains("(65534); holds CAP_"), "{}", helper.banner);
    let output = sockets_as(NOBODY, &dir, &helper.path);
    let (text, said) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{said}");
    for (netns, (_, _, port)) in &connections {
        let name = format!("\"netns_name\":\"{}\"", netns.name);
        let port = format!("\"src_port\":{port},");
        let is_there = text.lines().any(|line| line.contains(&name) && line.contains(&port));
        assert!(is_there, "{name} {port}: {text} {said}");
    }
    let refused = sockets_as(4_321, &dir, &helper.path);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("refuses this user"), "{said}");
    let text = String::from_utf8_lossy(&refused.stdout);
    assert!(!text.contains(&one.name), "{text}");
    let said = helper.stop();
    assert_eq!(said.matches("refused user 4321").count(), 1, "{said}");
}

#[test]
fn closes_of_every_namespace_are_heard_without_a_capability() {
    if !need_root_netns() {
        return;
    }
    let (dir, one, other) = (TempDir::new(), Netns::new(), Netns::new());
    let connections = [(&one, connect_in(&one)), (&other, connect_in(&other))];
    let helper = Helper::start(&dir);
    let (events, nsids) = without_capabilities(|| {
        let mut remote = Remote::connect(&helper.path).unwrap();
        let mut found = Vec::new();
        remote.discover(&Scope::All, &mut found).unwrap();
        let nsids = [&one, &other].map(|netns| remote.nsid(place(&found, netns)).unwrap());
        (remote.events(Hears::All, 1 << 20).unwrap(), nsids)
    });
    assert!(helper.stop().contains("CAP_NET_BROADCAST"));
    // The socket outlives who opened it.
    for (_, (near, far, _)) in connections {
        // Closing with something unread is a reset: no remnant delays the event.
        (&near).write_all(b"unread").unwrap();
        far.peek(&mut [0]).unwrap();
        drop((far, near));
    }
    without_capabilities(|| {
        // In any order: the kernel tells of closes from a queue that several processors work on.
        let missing = RefCell::new(nsids.to_vec());
        wait_for(
            || format!("closes in namespaces {:?}", missing.borrow()),
            || hears_all(&events, &mut missing.borrow_mut()),
        );
    });
}

/// Whether the events so far name every namespace that was missing. Events of others, which other tests cause, are passed over.
fn hears_all(events: &Socket, missing: &mut Vec<i32>) -> Option<()> {
    let mut buffer = vec![0; DUMP_BUFFER_BYTES];
    while !missing.is_empty() {
        match events.receive(&mut buffer) {
            Ok(received) => missing.retain(|nsid| received.nsid != Some(*nsid)),
            Err(Errno::INTR | Errno::NOBUFS) => {}
            Err(_) => return None,
        }
    }
    Some(())
}

#[test]
fn a_helper_that_is_killed_and_started_again_is_found_again() {
    if !need_root_netns() {
        return;
    }
    let (dir, netns) = (TempDir::new(), Netns::new());
    let helper = Helper::start(&dir);
    let path = helper.path.clone();
    let mut remote = Remote::new(&path);
    let mut found = Vec::new();
    remote.discover(&Scope::All, &mut found).unwrap();
    let inside = place(&found, &netns);
    remote.open(inside).unwrap();
    signal(&helper.peer.0, "KILL");
    drop(helper);
    assert!(remote.open(inside).is_err());
    remote.open(0).unwrap();
    assert!(remote.discover(&Scope::All, &mut found).is_err());
    assert_eq!(found.len(), 1, "the own namespace: {found:?}");
    remote.open(0).unwrap();
    // The other process removes the file, also after SIGKILL.
    wait_for(|| format!("{} is gone", path.display()), || (!path.exists()).then_some(()));
    let helper = Helper::start(&dir);
    remote.discover(&Scope::All, &mut found).unwrap();
    remote.open(place(&found, &netns)).unwrap();
    helper.stop();
}

#[test]
fn nothing_keeps_a_namespace_that_was_deleted() {
    if !need_root_netns() {
        return;
    }
    let (dir, kept, deleted) = (TempDir::new(), Netns::new(), Netns::new());
    kept.connect("here", &deleted, "there");
    let helper = Helper::start(&dir);
    let mut remote = Remote::new(&helper.path);
    let mut found = Vec::new();
    for _ in 0..3 {
        remote.discover(&Scope::All, &mut found).unwrap();
        let at = place(&found, &deleted);
        remote.nsid(at).unwrap();
        drop(remote.open(at).unwrap());
        remote.discover_mounted(&Scope::All, &mut found).unwrap();
        let at = place(&found, &deleted);
        assert_eq!(remote.tcp_counts(at).unwrap().opened, 0);
    }
    let _events = remote.events(Hears::All, 1 << 20).unwrap();
    let descriptors = helper.descriptors();
    drop(deleted);
    assert_gone_soon(&kept, "here");
    assert!(helper.descriptors() <= descriptors);
    helper.stop();
}

/// Waits for an interface to go, as it does with the namespace that its other end is in.
#[track_caller]
fn assert_gone_soon(netns: &Netns, interface: &str) {
    let began = Instant::now();
    let mut link = Command::new("ip");
    link.args(["-n", &netns.name, "link", "show", interface]);
    wait_for(
        || format!("{interface} is gone"),
        || (!link.output().unwrap().status.success()).then_some(()),
    );
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}

/// Sends one message as a client of its own, and waits until the helper has closed the connection.
#[track_caller]
fn check_turned_away(helper: &Helper, message: &[u8], descriptors: &[std::os::fd::BorrowedFd<'_>]) {
    let client = Channel::connect_within(&helper.path, DEADLINE).unwrap();
    client.send(message, descriptors).unwrap();
    let end = client.receive(&mut [0; 64], &mut Vec::new());
    assert!(
        matches!(end, Ok(message) if message.len == 0) || end == Err(Errno::CONNRESET),
        "{end:?}"
    );
}

#[test]
fn hostile_clients_gain_nothing_and_stop_nobody() {
    if !need_root_netns() {
        return;
    }
    let dir = TempDir::new();
    let helper = Helper::start(&dir);
    let mut remote = Remote::new(&helper.path);
    let mut found = Vec::new();
    remote.discover(&Scope::All, &mut found).unwrap();
    let before = helper.descriptors();
    let file = File::open("/dev/null").unwrap();
    let cut = [&[3][..], &[3, 0, 0, 0], &[7], &[7, 0, 0, 0]];
    let long = [&[1, 0][..], &[6, 0], &[8, 0], &[3, 0, 0, 0, 0, 0]];
    for message in [&b"garbage"[..], &[0], &[9]].iter().chain(&cut).chain(&long) {
        check_turned_away(&helper, message, &[]);
    }
    check_turned_away(&helper, &vec![1; 100_000], &[]);
    check_turned_away(&helper, &[1], &[file.as_fd(); 64]);
    check_turned_away(&helper, b"", &[file.as_fd()]);
    // Places that were never found, ids of them, and a buffer of 4 GiB.
    let client = Channel::connect_within(&helper.path, DEADLINE).unwrap();
    for kind in [2, 3, 4, 5, 7] {
        let request = [&[kind][..], &u32::MAX.to_ne_bytes()].concat();
        client.send(&request, &[]).unwrap();
        let answer = client.receive(&mut [0; 64], &mut Vec::new()).unwrap();
        assert!(answer.len > 0, "request {kind}");
    }
    // One that asks and never reads.
    let deaf = Channel::connect_within(&helper.path, DEADLINE).unwrap();
    deaf.set_timeout(Some(Duration::from_millis(1))).unwrap();
    let asked = (0..100_000).take_while(|_| deaf.send(&[1], &[]).is_ok()).count();
    assert!(asked < 100_000, "it is closed some day");
    let crowd: Vec<_> =
        (0..1_000).map(|_| Channel::connect_within(&helper.path, DEADLINE).unwrap()).collect();
    remote.discover(&Scope::All, &mut found).unwrap();
    remote.open(0).unwrap();
    assert!(helper.descriptors() < before + 40, "{}", helper.descriptors());
    drop((crowd, deaf, client));
    wait_for(
        || format!("{} descriptors", helper.descriptors()),
        || {
            remote.discover(&Scope::All, &mut found).unwrap();
            (helper.descriptors() <= before).then_some(())
        },
    );
    let kib: u64 = helper.status("VmHWM:").split(' ').next().unwrap().parse().unwrap();
    assert!(kib < 32 * 1_024, "{kib} KiB");
    assert_eq!(helper.status("Threads:"), "1");
    helper.stop();
}

#[test]
fn it_keeps_four_capabilities_and_no_way_to_more() {
    if !need_root_netns() {
        return;
    }
    let dir = TempDir::new();
    let helper = Helper::start(&dir);
    // CAP_NET_BROADCAST, CAP_NET_ADMIN, CAP_SYS_PTRACE, CAP_SYS_ADMIN.
    let four = format!("{:016x}", 1_u64 << 11 | 1 << 12 | 1 << 19 | 1 << 21);
    for set in ["CapPrm:", "CapEff:", "CapBnd:"] {
        assert_eq!(helper.status(set), four, "{set}");
    }
    for set in ["CapInh:", "CapAmb:"] {
        assert_eq!(helper.status(set), "0".repeat(16), "{set}");
    }
    assert_eq!(helper.status("NoNewPrivs:"), "1");
    assert_eq!(helper.status("Seccomp:"), "2", "a filter");
    helper.stop();
}

/// What a client without any capability can do through a helper.
struct Can {
    sees_nobodys_process: bool,
    opens: bool,
    hears: bool,
    has_id: bool,
}

impl Can {
    fn with(helper: &Helper, netns: &Netns, process: u32) -> Can {
        let path = &helper.path;
        without_capabilities(|| {
            let mut remote = Remote::connect(path).unwrap();
            let mut found = Vec::new();
            remote.discover(&Scope::All, &mut found).unwrap();
            let at = place(&found, netns);
            Can {
                sees_nobodys_process: found.iter().any(|one| one.process == Some(process)),
                opens: remote.open(at).is_ok(),
                hears: remote.events(Hears::All, 1 << 20).is_ok(),
                has_id: remote.nsid(at).is_ok(),
            }
        })
    }
}

/// A process of the user nobody in a namespace that no file stands for.
fn nobodys_process() -> Peer {
    let mut command = Command::new("unshare");
    command.args(["--net", "setpriv", "--reuid=65534", "--clear-groups", "sleep", "1000"]);
    let process = Peer::start(&mut command);
    let comm = || fs::read_to_string(format!("/proc/{}/comm", process.0.id())).unwrap();
    wait_for(|| "it sleeps".to_owned(), || (comm() == "sleep\n").then_some(()));
    process
}

#[test]
fn without_a_capability_one_function_is_lost_and_named() {
    if !can_use_other_users() {
        return;
    }
    let dir = TempDir::new();
    let nobodys = nobodys_process();
    for capability in ["sys_admin", "sys_ptrace", "net_admin", "net_broadcast", "kill"] {
        let netns = Netns::new();
        let mut setpriv = Command::new(find_tool("setpriv").unwrap());
        setpriv.arg(format!("--bounding-set=-{capability}")).arg(WEIR);
        let helper = Helper::run(setpriv, &dir.file(&format!("{capability}.sock")));
        let can = Can::with(&helper, &netns, nobodys.0.id());
        let said = helper.stop();
        let name = format!("without CAP_{} ", capability.to_uppercase());
        assert_eq!(said.matches("without CAP_").count(), usize::from(capability != "kill"));
        assert_eq!(said.matches(&name).count(), usize::from(capability != "kill"), "{said}");
        assert_eq!(can.opens, capability != "sys_admin", "{capability}");
        assert_eq!(can.sees_nobodys_process, capability != "sys_ptrace", "{capability}");
        assert_eq!(can.has_id, capability != "net_admin", "{capability}");
        assert_eq!(can.hears, capability != "net_broadcast", "{capability}");
    }
}

/// As systemd runs it: a user that owns nothing, four ambient capabilities, a mount namespace that follows the host's, and a
/// `/proc` that hides other users' processes.
#[test]
fn a_user_of_its_own_in_a_mount_namespace_of_its_own_is_enough() {
    const KEPT: &str = "-all,+sys_admin,+sys_ptrace,+net_admin,+net_broadcast";
    if !can_use_other_users() {
        return;
    }
    let (dir, kept, deleted) = (TempDir::new(), Netns::new(), Netns::new());
    run(Command::new("cp").arg(WEIR).arg(dir.file("weir")));
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    kept.connect("here", &deleted, "there");
    let nobodys = nobodys_process();
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "slave", "sh", "-c"]);
    command.arg("mount -t proc -o hidepid=invisible proc /proc && exec \"$@\"").arg("sh");
    command.arg(find_tool("setpriv").unwrap());
    command.args(["--reuid=61234", "--regid=61234", "--clear-groups", "--no-new-privs"]);
    for set in ["inh-caps", "ambient-caps", "bounding-set"] {
        command.arg(format!("--{set}={KEPT}"));
    }
    command.arg(dir.file("weir"));
    let helper = Helper::run(command, &dir.file("helper.sock"));
    assert_eq!(helper.status("Uid:").split_whitespace().next(), Some("61234"));
    let can = Can::with(&helper, &deleted, nobodys.0.id());
    assert!(can.sees_nobodys_process && can.opens && can.hears && can.has_id);
    drop(deleted);
    assert_gone_soon(&kept, "here");
    assert!(!helper.stop().contains("without CAP_"));
}

#[test]
fn a_file_left_behind_is_replaced_and_a_live_helper_is_not() {
    let dir = TempDir::new();
    let path = dir.file("helper.sock");
    drop(sys::pass::Listener::bind(&path).unwrap());
    let helper = Helper::run(Command::new(WEIR), &path);
    let again = |path: &Path| {
        let output = Command::new(WEIR).args(["namespace-helper", "--listen"]).arg(path).output();
        let output = output.unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = again(&path);
    assert!(code == Some(69) && said.contains("another program listens there"), "{said}");
    helper.stop();
    fs::write(&path, "not a socket").unwrap();
    let (code, said) = again(&path);
    assert!(code == Some(69) && said.contains("the file is not a socket"), "{said}");
    assert_eq!(fs::read(&path).unwrap(), b"not a socket");
    let (code, said) = again(&dir.file("missing/helper.sock"));
    assert!(code == Some(69) && said.contains("mkdir -p"), "{said}");
    let output = Command::new(WEIR).arg("namespace-helper").output().unwrap();
    assert_eq!(output.status.code(), Some(64), "{output:?}");
}

#[test]
fn a_service_managers_socket_is_taken_over_and_left_alone() {
    if !need_tool("systemd-socket-activate") {
        return;
    }
    let dir = TempDir::new();
    let path = dir.file("helper.sock");
    let mut command = Command::new(find_tool("systemd-socket-activate").unwrap());
    command.args(["--seqpacket", "--listen"]).arg(&path).arg(WEIR).arg("namespace-helper");
    let mut manager = Peer::start(command.stdin(Stdio::null()).stderr(Stdio::null()));
    let connect = || Remote::connect(&path).ok();
    let mut remote = wait_for(|| "it listens".to_owned(), connect);
    let mut found = Vec::new();
    remote.discover(&Scope::All, &mut found).unwrap();
    remote.open(0).unwrap();
    // It has become the helper.
    assert!(manager.terminate().success());
    assert!(path.exists(), "the file is the manager's");
}
