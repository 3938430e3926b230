//! Attribution on the running system: cgroups, processes, users, host.

use sockets::attribution::{
    CgroupMount, CgroupOptions, Cgroups, Host, HostOptions, Lookup, ProcessOptions, Processes,
    Users,
};
use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirEntryExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use sys::netlink::{Protocol, Socket};
use sys::process::{CAP_DAC_READ_SEARCH, CAP_SYS_PTRACE};
use testkit::{OwnProgram, skip};
use wire::inet_diag::{self, Request, States};
use wire::netlink::{Messages, NLMSG_DONE};

const ID: &str = "3f4e1b1c9a4d2e7f8091a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f7";

#[test]
fn a_socket_leads_to_its_cgroup_and_its_process() {
    let Some((mount, group)) = need_cgroup("socket") else { return };
    let below = group.child(&format!("docker-{ID}.scope"));
    let mut helper = Helper::start("listen", None);
    fs::write(below.join("cgroup.procs"), helper.pid().to_string()).unwrap();
    helper.go();
    let answer = helper.answer();
    let (port, inode) = answer.split_once(' ').unwrap();
    let inode: u64 = inode.parse().unwrap();
    let id = cgroup_id_of_listener(port.parse().unwrap());

    let path = path_in_hierarchy(&mount, &below);
    for mut cgroups in
        [cgroups(&mount), Cgroups::by_walk(Some(mount.clone()), CgroupOptions::default())]
    {
        let cgroup = cgroups.lookup(id, Instant::now()).expect("the cgroup is there").clone();
        assert_eq!(cgroup.path(), path);
        assert_eq!(cgroup.container_id(), Some(ID));
        assert_eq!(cgroups.counts().misses, 1);
    }

    let all = Processes::scan(&ProcessOptions::default());
    let only = Processes::scan_only(&ProcessOptions::default(), [helper.pid()]);
    for processes in [&all, &only] {
        let owner = processes.owner(inode).expect("the process is there");
        assert_eq!(owner.pid, helper.pid());
        assert_eq!(owner.name, comm(helper.pid()));
        assert_eq!(processes.owner_count(inode), 1);
    }
    assert_eq!(only.summary().processes, 1);
}

#[test]
fn a_cgroup_that_is_gone_stays_known_if_it_was_asked_for_and_unknown_if_not() {
    let Some((mount, group)) = need_cgroup("gone") else { return };
    let (first, second) = (group.child("first"), group.child("second"));
    let (first_id, second_id) = (inode(&first), inode(&second));
    let mut cgroups = cgroups(&mount);
    let now = Instant::now();
    assert!(cgroups.lookup(first_id, now).is_some());
    fs::remove_dir(&first).unwrap();
    fs::remove_dir(&second).unwrap();
    assert_eq!(cgroups.lookup(first_id, now).unwrap().path(), path_in_hierarchy(&mount, &first));
    for _ in 0..10 {
        assert!(cgroups.lookup(second_id, now).is_none());
    }
    // Looked up ten times, searched for once; and once more when the time has come.
    assert_eq!((cgroups.counts().misses, cgroups.counts().unknown), (2, 1));
    assert!(cgroups.lookup(second_id, now + Duration::from_secs(61)).is_none());
    assert_eq!((cgroups.counts().misses, cgroups.counts().unknown), (3, 2));
}

#[test]
fn a_walk_finds_what_handles_find() {
    let Some(mount) = CgroupMount::find().unwrap() else {
        skip("no cgroup v2 hierarchy is mounted", &REQUIRED_BY);
        return;
    };
    let mut ids = BTreeMap::new();
    all_directories(&mount.point, &mut ids);
    let now = Instant::now();
    let mut handles = cgroups(&mount);
    let mut walk = Cgroups::by_walk(Some(mount), CgroupOptions::default());
    let mut compared = 0;
    for (id, directory) in ids {
        let by_walk = walk.lookup(id, now).cloned();
        let by_handle = handles.lookup(id, now).cloned();
        if handles.lookup_by() != Lookup::Handle {
            skip("file handles need CAP_DAC_READ_SEARCH", &REQUIRED_BY);
            return;
        }
        // Other tests create and remove directories meanwhile.
        if directory.exists() && by_walk.is_some() {
            assert_eq!(by_walk, by_handle, "{}", directory.display());
            compared += 1;
        }
    }
    assert!(compared > 0);
    assert_eq!((walk.counts().walks, walk.counts().walks_cut, handles.counts().walks), (1, 0, 0));
}

#[test]
fn walks_are_few_and_bounded() {
    let tree = Tree::new("walks");
    for name in ["a", "a/b", "a/b/c", "d", &format!("d/docker-{ID}.scope")] {
        fs::create_dir(tree.0.join(name)).unwrap();
    }
    let mount = CgroupMount { point: tree.0.clone(), root: "/above".to_owned() };
    let mut cgroups = Cgroups::at(Some(mount.clone()), CgroupOptions::default());
    assert_eq!(cgroups.lookup_by(), Lookup::Walk);
    let start = Instant::now();
    let deep = inode(&tree.0.join("a/b/c"));
    assert_eq!(cgroups.lookup(deep, start).unwrap().path(), "/above/a/b/c");
    assert_eq!(cgroups.lookup(inode(&tree.0), start).unwrap().path(), "/above");
    let container = inode(&tree.0.join("d").join(format!("docker-{ID}.scope")));
    assert_eq!(cgroups.lookup(container, start).unwrap().container_id(), Some(ID));
    assert_eq!((cgroups.counts().walks, cgroups.counts().misses), (1, 1));

    // A directory created since is found by the next walk, which has to wait.
    fs::create_dir(tree.0.join("late")).unwrap();
    let late = inode(&tree.0.join("late"));
    for millis in 0..100 {
        assert!(cgroups.lookup(late, start + Duration::from_millis(millis)).is_none());
    }
    assert_eq!((cgroups.counts().walks, cgroups.counts().unknown), (1, 1));
    assert_eq!(
        cgroups.lookup(late, start + Duration::from_secs(10)).unwrap().path(),
        "/above/late"
    );
    assert_eq!(cgroups.counts().walks, 2);
    // No cgroup has id 0, and it is not searched for.
    assert!(cgroups.lookup(0, start + Duration::from_secs(60)).is_none());
    assert_eq!(cgroups.counts().walks, 2);

    let options = CgroupOptions { max_walk_directories: 2, ..CgroupOptions::default() };
    let mut cut = Cgroups::by_walk(Some(mount.clone()), options);
    assert!(cut.lookup(u64::MAX, start).is_none());
    assert_eq!(cut.counts().walks_cut, 1);
    // A small cache has room for the requested cgroup.
    let options = CgroupOptions { max_cgroups: 1, ..CgroupOptions::default() };
    let mut small = Cgroups::by_walk(Some(mount), options);
    assert_eq!(small.lookup(deep, start).unwrap().path(), "/above/a/b/c");
}

#[test]
fn cgroups_that_are_gone_cost_two_walks_a_minute_however_many_they_are() {
    let tree = Tree::new("gone-many");
    let mount = CgroupMount { point: tree.0.clone(), root: String::new() };
    let mut cgroups = Cgroups::by_walk(Some(mount), CgroupOptions::default());
    let start = Instant::now();
    for second in 0..600 {
        let now = start + Duration::from_secs(second);
        for gone in 1..=50 {
            assert!(cgroups.lookup(u64::MAX - gone, now).is_none());
        }
    }
    assert_eq!(cgroups.counts().walks, 20);
}

#[test]
fn hostile_names_of_cgroups_are_carried_and_say_nothing() {
    let tree = Tree::new("names");
    let names =
        ["\u{1b}[2J", "a\nb.service", "docker-..%2f.scope", "a (deleted)", &"x".repeat(255)];
    for name in names {
        fs::create_dir(tree.0.join(name)).unwrap();
    }
    let mount = CgroupMount { point: tree.0.clone(), root: String::new() };
    let mut cgroups = Cgroups::at(Some(mount), CgroupOptions::default());
    for name in names {
        let cgroup = cgroups.lookup(inode(&tree.0.join(name)), Instant::now()).unwrap();
        assert_eq!(cgroup.path(), format!("/{name}"));
        assert_eq!((cgroup.container_id(), cgroup.pod_uid()), (None, None));
    }
}

#[test]
fn without_a_hierarchy_nothing_is_known() {
    let mut cgroups = Cgroups::at(None, CgroupOptions::default());
    assert_eq!(cgroups.lookup_by(), Lookup::Nothing);
    assert!(cgroups.lookup(1, Instant::now()).is_none());
    assert!(cgroups.mount().is_none());
}

#[test]
fn nobody_sees_cgroups_by_a_walk_and_only_own_processes() {
    if sys::process::effective_uid() != 0 {
        skip("becoming another user needs root", &REQUIRED_BY);
        return;
    }
    let mut helper = Helper::start("look", Some(65_534));
    helper.go();
    let answer = helper.answer();
    assert!(answer.contains("own=true") && !answer.ends_with("denied=0"), "{answer}");
    assert!(!answer.contains("lookup=Handle"), "{answer}");
}

#[test]
fn descriptors_that_are_listed_but_may_not_be_read_are_denied() {
    const NEEDED: u64 = 1 << CAP_DAC_READ_SEARCH | 1 << CAP_SYS_PTRACE;
    if sys::process::effective_capabilities().unwrap_or(0) & NEEDED != NEEDED {
        skip("giving up one of two capabilities needs both", &REQUIRED_BY);
        return;
    }
    let mut helper = Helper::start("look with one capability", None);
    helper.go();
    let answer = helper.answer();
    assert!(answer.contains("own=true") && !answer.ends_with("denied=0"), "{answer}");
}

#[test]
fn processes_that_share_a_socket() {
    let proc = Tree::new("proc");
    for pid in 1..=12 {
        let name = if pid == 1 { "first\n".to_owned() } else { format!("\u{1b}[31m{pid}\n") };
        fake_process(&proc.0, pid, &name, &["socket:[77]", "/dev/null", "socket:[77]", "pipe:[5]"]);
    }
    fake_process(&proc.0, 20, "", &["socket:[78]", "socket:[x]", "socket:[]", "socket:[79"]);
    fs::create_dir(proc.0.join("30")).unwrap();
    fs::create_dir(proc.0.join("self")).unwrap();
    let options = ProcessOptions { proc: proc.0.clone(), ..ProcessOptions::default() };
    let processes = Processes::scan_only(&options, (1..=12).chain([20, 30]));
    let owners: Vec<u32> = processes.owners(77).map(|process| process.pid).collect();
    assert_eq!(owners, (1..=8).collect::<Vec<u32>>());
    assert_eq!(processes.owner_count(77), 12);
    assert_eq!(processes.owner(77).unwrap().name, "first");
    assert_eq!(processes.owners(77).nth(1).unwrap().name, "\u{1b}[31m2");
    assert_eq!(processes.owner(78).unwrap().name, "");
    assert_eq!((processes.owner(5), processes.owner(79), processes.sockets()), (None, None, 2));
    let summary = processes.summary();
    assert_eq!((summary.processes, summary.vanished, summary.denied), (14, 1, 0));
    assert_eq!(Processes::scan(&options).summary(), summary);

    let options = ProcessOptions { max_sockets: 1, max_owners: 2, ..options };
    let processes = Processes::scan_only(&options, [1, 2, 3, 20]);
    assert_eq!((processes.sockets(), processes.summary().sockets_cut), (1, 1));
    assert_eq!((processes.owners(77).count(), processes.owner_count(77)), (2, 3));
}

#[test]
fn users_of_a_file() {
    let tree = Tree::new("passwd");
    let file = tree.0.join("passwd");
    let text = "root:x:0:0:root:/root:/bin/sh\n# comment\ntoor:x:0:0::/:\nalice:x:1000:1000\n\n:x:5:5\nb\u{7}d:x:6:6\n\
                nocolon\nneg:x:-1:1\nbig:x:4294967296:1\nlast:x:4294967295:1";
    fs::write(&file, [text.as_bytes(), b"\nbad\xff:x:9:9\n"].concat()).unwrap();
    let users = Users::read_from(&file).unwrap();
    assert_eq!(
        [0, 1000, u32::MAX].map(|uid| users.name(uid)),
        [Some("root"), Some("alice"), Some("last")]
    );
    assert_eq!([5, 6, 7, 9].map(|uid| users.name(uid)), [None; 4]);
    assert!(Users::read_from(&tree.0.join("none")).is_err());
}

#[test]
fn this_host() {
    let host = Host::read(HostOptions::default());
    assert_eq!(host.boot_id().unwrap().len(), 36);
    assert!(!host.name().unwrap().is_empty());
    let tags = vec![("rack".to_owned(), "b7".to_owned())];
    assert!(host.kernel_release().unwrap().starts_with(|first: char| first.is_ascii_digit()));
    let given = HostOptions { name: Some("given".to_owned()), host_id: Some("7".to_owned()), tags };
    let host = Host::read(given);
    assert_eq!((host.name(), host.host_id()), (Some("given"), Some("7")));
    assert_eq!(host.tags().collect::<Vec<_>>(), [("rack", "b7")]);
}

/// Not a test by itself: what the other process of a test does. It is started with the name of its part in the environment.
#[test]
fn helper_process() {
    let Ok(part) = env::var(PART) else { return };
    let mut line = String::new();
    io::stdin().read_line(&mut line).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let answer = match part.as_str() {
        "listen" => {
            format!("{} {}", listener.local_addr().unwrap().port(), socket_inode(&listener))
        }
        "look with one capability" => {
            sys::process::keep_capabilities(1 << CAP_DAC_READ_SEARCH).unwrap();
            look(&listener)
        }
        _ => look(&listener),
    };
    writeln!(io::stderr(), "{ANSWER}{answer}").unwrap();
    // Until the test ends it.
    io::stdin().read_line(&mut line).unwrap();
}

fn look(listener: &TcpListener) -> String {
    let mut cgroups = Cgroups::open(CgroupOptions::default()).unwrap();
    let root = cgroups.mount().map_or(1, |mount| inode(&mount.point));
    let found = cgroups.lookup(root, Instant::now()).is_some();
    assert!(found || cgroups.mount().is_none());
    let processes = Processes::scan(&ProcessOptions::default());
    let own = processes
        .owner(socket_inode(listener))
        .is_some_and(|owner| owner.pid == std::process::id());
    format!("lookup={:?} own={own} denied={}", cgroups.lookup_by(), processes.summary().denied)
}

const REQUIRED_BY: [&str; 2] = ["REQUIRE_NETNS", "REQUIRE_ALL"];
const PART: &str = "WEIR_ATTRIBUTION_TEST_PART";
const ANSWER: &str = "answer: ";

/// A process that waits for a word, does its part, answers, and is killed when dropped.
struct Helper {
    child: Child,
    answers: BufReader<std::process::ChildStderr>,
    _program: OwnProgram,
}

impl Helper {
    fn start(part: &str, uid: Option<u32>) -> Helper {
        // Another user gets a copy of this program, and may not enter the folder that contains the original.
        let program = OwnProgram::copy(part);
        let mut command = program.command(&["attribution::helper_process"]);
        command.env(PART, part);
        if let Some(uid) = uid {
            command.uid(uid).gid(uid);
        }
        let streams = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = streams.spawn().unwrap();
        let answers = BufReader::new(child.stderr.take().unwrap());
        Helper { child, answers, _program: program }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn go(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    }

    fn answer(&mut self) -> String {
        let mut seen = String::new();
        loop {
            let mut line = String::new();
            assert!(self.answers.read_line(&mut line).unwrap() > 0, "no answer: {seen}");
            if let Some((_, answer)) = line.split_once(ANSWER) {
                return answer.trim_end().to_owned();
            }
            seen.push_str(&line);
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// A cgroup with others in it, removed when dropped.
struct Group(PathBuf);

impl Group {
    fn child(&self, name: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir(&path).unwrap();
        path
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(5);
        // A process leaves its cgroup a moment after its parent learns of its end.
        while fs::exists(&self.0).unwrap_or(false) && Instant::now() < deadline {
            for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
                let _ = fs::remove_dir(entry.path());
            }
            let _ = fs::remove_dir(&self.0);
            std::thread::yield_now();
        }
    }
}

fn need_cgroup(name: &str) -> Option<(CgroupMount, Group)> {
    let Some(mount) = CgroupMount::find().unwrap() else {
        skip("no cgroup v2 hierarchy is mounted", &REQUIRED_BY);
        return None;
    };
    let path = mount.point.join(format!("weir-attribution-{}-{name}", std::process::id()));
    if let Err(error) = fs::create_dir(&path) {
        skip(&format!("no cgroup can be made at {}: {error}", path.display()), &REQUIRED_BY);
        return None;
    }
    Some((mount, Group(path)))
}

fn cgroups(mount: &CgroupMount) -> Cgroups {
    Cgroups::at(Some(mount.clone()), CgroupOptions::default())
}

fn path_in_hierarchy(mount: &CgroupMount, directory: &Path) -> String {
    format!("{}/{}", mount.root, directory.strip_prefix(&mount.point).unwrap().display())
}

/// A directory for one test, removed when dropped.
struct Tree(PathBuf);

impl Tree {
    fn new(name: &str) -> Tree {
        let path = env::temp_dir().join(format!("weir-attribution-{}-{name}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Tree(path)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn fake_process(proc: &Path, pid: u32, comm: &str, links: &[&str]) {
    let process = proc.join(pid.to_string());
    fs::create_dir_all(process.join("fd")).unwrap();
    fs::write(process.join("comm"), comm).unwrap();
    for (number, link) in links.iter().enumerate() {
        symlink(link, process.join("fd").join(number.to_string())).unwrap();
    }
}

fn all_directories(directory: &Path, found: &mut BTreeMap<u64, PathBuf>) {
    found.insert(inode(directory), directory.to_owned());
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            assert_ne!(entry.ino(), 0);
            all_directories(&entry.path(), found);
        }
    }
}

fn cgroup_id_of_listener(port: u16) -> u64 {
    let socket = Socket::open(Protocol::SockDiag).unwrap();
    socket.set_receive_timeout(Duration::from_secs(5)).unwrap();
    let mut request = Vec::new();
    Request { states: States::LISTENING, src_port: port, ..Request::dump(1) }.encode(&mut request);
    socket.send(&request).unwrap();
    let mut buffer = vec![0; 32 << 10];
    let mut id = None;
    loop {
        let received = socket.receive(&mut buffer).unwrap();
        for message in Messages::new(received.bytes) {
            let message = message.unwrap();
            if message.kind == NLMSG_DONE {
                return id.expect("the kernel lists the socket with its cgroup");
            }
            let listener = inet_diag::decode(message.body).unwrap();
            if listener.id.src.port() == port {
                id = listener.cgroup_id;
            }
        }
    }
}

fn socket_inode(listener: &TcpListener) -> u64 {
    let link = fs::read_link(format!("/proc/self/fd/{}", listener.as_raw_fd())).unwrap();
    let link = link.to_str().unwrap();
    link.strip_prefix("socket:[").unwrap().strip_suffix(']').unwrap().parse().unwrap()
}

fn inode(path: &Path) -> u64 {
    sys::cgroup::id_of(path).unwrap()
}

fn comm(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap().trim_end().to_owned()
}
