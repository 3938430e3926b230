//! Network namespaces of the running kernel: found, entered, left, and never kept alive.

use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use sys::Errno;
use sys::namespace::{self, Discovery, Error, Home, Namespace, Nsids, OpenNamespace, Target};
use sys::netlink::{Protocol, Socket};
use sys::process::CAP_SYS_PTRACE;
use sys::socket::namespace_cookie;
use testkit::{Netns, need_root_netns, run, within};

fn open_inside(home: &Home, namespace: &Namespace<'_>) -> Socket {
    let namespace = namespace.open().unwrap();
    home.enter(&namespace, || Socket::open(Protocol::SockDiag)).unwrap().unwrap()
}

#[test]
fn mounted_namespaces_are_found_once_with_their_name() {
    if !need_root_netns() {
        return;
    }
    let (first, second) = (Netns::new(), Netns::new());
    let mut discovery = Discovery::default();
    let scan = discovery.scan().unwrap();
    assert!(scan.mounts >= 2 && scan.processes >= 1, "{scan:?}");
    for netns in [&first, &second] {
        let found: Vec<Namespace> =
            discovery.namespaces().filter(|found| found.id == netns.id()).collect();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].name(), Some(netns.name.as_bytes()));
        assert_eq!(found[0].process, None);
    }
    assert_eq!(discovery.namespaces().next().unwrap().id, namespace::own().unwrap());
}

#[test]
fn a_namespace_without_a_file_is_found_by_its_process() {
    if !need_root_netns() {
        return;
    }
    let sleeper = Sleeper::new(&["--net"]);
    let mut discovery = Discovery::default();
    discovery.scan().unwrap();
    let found = discovery.namespaces().find(|found| found.process == Some(sleeper.0.id())).unwrap();
    assert_ne!(found.id, namespace::own().unwrap());
    assert_eq!(found.path, None);
    assert_eq!(found.open().unwrap().id(), found.id);
}

#[test]
fn without_privilege_the_rest_is_found_and_what_is_missing_is_counted() {
    if !need_root_netns() {
        return;
    }
    let (netns, sleeper) = (Netns::new(), Sleeper::new(&["--net"]));
    let hidden = Namespace {
        id: OpenNamespace::open(Path::new(&format!("/proc/{}/ns/net", sleeper.0.id())))
            .unwrap()
            .id(),
        path: None,
        process: Some(sleeper.0.id()),
    };
    // A separate thread drops the capabilities; the namespace is removed by one that still has
    // them.
    let visit = || {
        sys::process::keep_capabilities(0).unwrap();
        let mut discovery = Discovery::default();
        let scan = discovery.scan().unwrap();
        assert!(scan.unreadable_processes > 0, "{scan:?}");
        let ids: Vec<_> = discovery.namespaces().map(|found| found.id).collect();
        assert!(ids[0] == namespace::own().unwrap() && ids.contains(&netns.id()));
        assert!(!ids.contains(&hidden.id));
        let error = hidden.open().unwrap_err();
        assert_eq!(error, Error::NotPermitted { call: "open", capability: CAP_SYS_PTRACE });
        let open = netns.open();
        let assigned = Nsids::open().unwrap().assign(Target::Open(open.as_fd()));
        assert_eq!(assigned, Err(Errno::PERM));
    };
    std::thread::scope(|scope| scope.spawn(visit).join().unwrap());
}

#[test]
fn a_process_that_moves_late_is_noticed_within_eight_scans() {
    if !need_root_netns() {
        return;
    }
    let shell = Command::new("sh")
        .args(["-c", "read line; exec unshare --net sleep 1000"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut shell = Sleeper(shell);
    let (own, process) = (namespace::own().unwrap(), shell.0.id());
    let mut discovery = Discovery::default();
    for _ in 0..10 {
        discovery.scan().unwrap();
        assert!(!discovery.namespaces().any(|found| found.process == Some(process)));
    }
    shell.0.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let path = format!("/proc/{process}/ns/net");
    let open = || OpenNamespace::open(Path::new(&path)).unwrap();
    assert!(within(Duration::from_secs(10), || open().id() != own));
    let found = (0..8).any(|_| {
        discovery.scan().unwrap();
        discovery.namespaces().any(|found| found.process == Some(process))
    });
    assert!(found);
    discovery.forget_processes();
    discovery.scan().unwrap();
    assert!(discovery.namespaces().any(|found| found.id == open().id()));
}

#[test]
fn a_hundred_polls_leave_no_descriptor_behind() {
    if !need_root_netns() {
        return;
    }
    let namespaces: Vec<Netns> = (0..5).map(|_| Netns::new()).collect();
    let links: Vec<PathBuf> = namespaces
        .iter()
        .map(|netns| PathBuf::from(format!("net:[{}]", netns.id().inode)))
        .collect();
    let home = Home::remember().unwrap();
    let mut discovery = Discovery::default();
    let mut sockets = 0;
    for _ in 0..100 {
        discovery.scan().unwrap();
        for found in discovery.namespaces() {
            if namespaces.iter().any(|netns| Some(netns.name.as_bytes()) == found.name()) {
                open_inside(&home, &found);
                sockets += 1;
            }
        }
    }
    assert_eq!(sockets, 500);
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap();
    let kept = descriptors
        .filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok())
        .filter(|link| links.contains(link));
    assert_eq!(kept.count(), 0);
}

#[test]
fn a_stale_path_or_process_is_gone_and_never_another_namespace() {
    if !need_root_netns() {
        return;
    }
    let netns = Netns::new();
    let own = namespace::own().unwrap();
    let path = netns.path();
    let open = |path: Option<&Path>, process| {
        Namespace { id: netns.id(), path, process }.open().map(|open| open.id())
    };
    assert_eq!(open(Some(&path), None), Ok(netns.id()));
    // This process is in another namespace, like a process that was given the id of a dead one.
    assert_eq!(open(None, Some(std::process::id())), Err(Error::Gone));
    assert_eq!(open(Some(Path::new("/proc/self/ns/net")), None), Err(Error::Gone));
    assert_eq!(open(Some(Path::new("/nowhere")), Some(std::process::id())), Err(Error::Gone));
    assert_eq!(open(None, None), Err(Error::Gone));
    let elsewhere = Namespace { id: own, path: Some(&path), process: Some(std::process::id()) };
    assert_eq!(elsewhere.open().unwrap().id(), own);
}

#[test]
fn a_visit_ends_where_it_began() {
    if !need_root_netns() {
        return;
    }
    let netns = Netns::new();
    let own = namespace::own().unwrap();
    let home = Home::remember().unwrap();
    assert_eq!(home.enter(&netns.open(), || namespace::own().unwrap()), Ok(netns.id()));
    assert_eq!(namespace::own().unwrap(), own);
    let visit = || home.enter(&netns.open(), || panic!("on the way"));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(visit)).is_err());
    assert_eq!(namespace::own().unwrap(), own);
}

#[test]
fn what_is_not_a_network_namespace_is_not_entered() {
    if !need_root_netns() {
        return;
    }
    let home = Home::remember().unwrap();
    for path in ["/proc/self/ns/uts", "/proc/self/status"] {
        let file = OpenNamespace::open(Path::new(path)).unwrap();
        assert_eq!(home.enter(&file, || unreachable!("in {path}")), Err::<(), _>(Error::Gone));
    }
}

/// A namespace's device vanishes with it, and so does its other end, which this test can see.
#[test]
fn a_visited_namespace_is_freed_as_soon_as_it_is_deleted() {
    if !need_root_netns() {
        return;
    }
    let netns = Netns::new();
    let ours = format!("w{}", std::process::id());
    netns.ip(&format!(
        "link add name {ours} type veth peer name {ours} netns {}",
        std::process::id()
    ));
    let ours = Path::new("/sys/class/net").join(&ours);
    assert!(ours.exists());
    let home = Home::remember().unwrap();
    let mut discovery = Discovery::default();
    discovery.scan().unwrap();
    let found = discovery.namespaces().find(|found| found.id == netns.id()).unwrap();
    let socket = open_inside(&home, &found);
    let mut nsids = Nsids::open().unwrap();
    nsids.assign(Target::Open(netns.open().as_fd())).unwrap();
    run(Command::new("ip").args(["netns", "del", &netns.name]));
    // The socket keeps it alive.
    assert!(!within(Duration::from_millis(200), || !ours.exists()));
    drop(socket);
    assert!(within(Duration::from_secs(1), || !ours.exists()));
}

#[test]
fn an_id_is_assigned_once_and_known_afterwards() {
    if !need_root_netns() {
        return;
    }
    let netns = Netns::new();
    let open = netns.open();
    let target = Target::Open(open.as_fd());
    let mut nsids = Nsids::open().unwrap();
    assert_eq!(nsids.lookup(target), Ok(None));
    let id = nsids.assign(target).unwrap();
    assert_eq!(nsids.assign(target), Ok(id));
    assert_eq!(nsids.lookup(target), Ok(Some(id)));
    // Ids belong to the observer: seen from inside, no namespace has one.
    let inside = Home::remember().unwrap().enter(&open, || Nsids::open().unwrap().lookup(target));
    assert_eq!(inside, Ok(Ok(None)));
    assert!(nsids.lookup(Target::Process(u32::MAX >> 1)).is_err());
}

/// Tests what the documentation of [`Nsids`] says about ids whose namespace is gone.
#[test]
fn an_id_is_announced_when_it_ends_and_not_given_again() {
    const RTNLGRP_NSID: u32 = 28;
    const RTM_DELNSID: u16 = 89;
    if !need_root_netns() {
        return;
    }
    let (observer, first, second) = (Netns::new(), Netns::new(), Netns::new());
    let home = Home::remember().unwrap();
    let (mut nsids, announcements) = home
        .enter(&observer.open(), || {
            let announcements = Socket::open(Protocol::Route).unwrap();
            announcements.join_group(RTNLGRP_NSID).unwrap();
            (Nsids::open().unwrap(), announcements)
        })
        .unwrap();
    let id = nsids.assign(Target::Open(first.open().as_fd())).unwrap();
    drop(first);
    let mut buffer = [0; 4_096];
    let has_ended = within(Duration::from_secs(10), || {
        announcements.receive(&mut buffer).is_ok_and(|announced| {
            assert!(announced.is_whole_and_from_the_kernel() && announced.group == RTNLGRP_NSID);
            u16::from_ne_bytes([announced.bytes[4], announced.bytes[5]]) == RTM_DELNSID
        })
    });
    assert!(has_ended);
    assert_eq!(nsids.assign(Target::Open(second.open().as_fd())), Ok(id + 1));
}

#[test]
fn an_id_that_is_taken_is_left_alone() {
    if !need_root_netns() {
        return;
    }
    let (observer, first, second, third) = (Netns::new(), Netns::new(), Netns::new(), Netns::new());
    let mut nsids =
        Home::remember().unwrap().enter(&observer.open(), || Nsids::open().unwrap()).unwrap();
    let id = nsids.assign(Target::Open(first.open().as_fd())).unwrap();
    observer.ip(&format!("netns set {} {}", second.name, id + 1));
    assert_eq!(nsids.assign(Target::Open(third.open().as_fd())), Ok(id + 2));
    assert_eq!(nsids.assign(Target::Open(second.open().as_fd())), Ok(id + 1));
}

#[test]
fn a_namespace_has_a_number_of_its_own_beside_its_inode() {
    if !need_root_netns() {
        return;
    }
    let netns = Netns::new();
    let home = Home::remember().unwrap();
    let here = Socket::open(Protocol::SockDiag).unwrap();
    let there = || {
        let opened = home.enter(&netns.open(), || Socket::open(Protocol::SockDiag).unwrap());
        namespace_cookie(opened.unwrap().as_fd()).unwrap()
    };
    assert_eq!(there(), there());
    assert_ne!(there(), namespace_cookie(here.as_fd()).unwrap());
}

/// A process of `unshare(1)` that stays in its namespaces until the test is over.
struct Sleeper(Child);

impl Sleeper {
    fn new(namespaces: &[&str]) -> Sleeper {
        let child = Command::new("unshare")
            .args(namespaces)
            .args(["sleep", "1000"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let own = namespace::own().unwrap();
        let path = format!("/proc/{}/ns/net", child.id());
        let sleeper = Sleeper(child);
        let has_left = || OpenNamespace::open(Path::new(&path)).is_ok_and(|ns| ns.id() != own);
        assert!(within(Duration::from_secs(10), has_left));
        sleeper
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_socket_opened_elsewhere_answers_for_elsewhere() {
    if !need_root_netns() {
        return;
    }
    let netns = Netns::new();
    let home = Home::remember().unwrap();
    let socket = home.enter(&netns.open(), || Socket::open(Protocol::SockDiag)).unwrap().unwrap();
    assert_eq!(socket.port_id(), Ok(0));
    socket.join_group(1).unwrap();
    assert_ne!(socket.port_id(), Ok(0));
}
