//! A process that has dropped what it does not need. Each test runs this program again in a process of its own.

use std::env;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use sys::Errno;
use sys::namespace::{self, Error, Home, OpenNamespace};
use sys::netlink::{Protocol, Socket};
use sys::pass::Channel;
use sys::process::{self, CAP_SYS_ADMIN, capability_set};
use sys::seccomp::{Calls, Otherwise, allow_only};
use testkit::{Netns, need_root_netns};

/// Runs the test `name` alone in a new process, in which [`is_child`] is true.
fn run_child(name: &str, variables: &[(&str, &str)]) -> ExitStatus {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", &format!("confined::{name}"), "--nocapture", "--test-threads=1"])
        .env("WEIR_TEST_CHILD", name)
        .envs(variables.iter().copied())
        // Its test harness would print a result that would be counted twice.
        .stdout(Stdio::null())
        .status()
        .unwrap()
}

fn is_child(name: &str) -> bool {
    env::var("WEIR_TEST_CHILD").is_ok_and(|child| child == name)
}

#[test]
fn a_call_that_is_not_on_the_list_is_refused() {
    const NAME: &str = "a_call_that_is_not_on_the_list_is_refused";
    if !is_child(NAME) {
        assert_eq!(run_child(NAME, &[]).code(), Some(0));
        return;
    }
    let (one, other) = Channel::pair().unwrap();
    allow_only(&[Calls::RUN, Calls::MESSAGES], Otherwise::Refuse).unwrap();
    let error = UdpSocket::bind("127.0.0.1:0").unwrap_err();
    assert_eq!(Errno::from(&error), Errno::PERM);
    assert_eq!(Errno::from(&std::fs::read("/proc/self/stat").unwrap_err()), Errno::PERM);
    assert!(Command::new("true").status().is_err());
    one.send(b"still here", &[other.as_fd()]).unwrap();
    assert_eq!(other.receive(&mut [0; 16], &mut Vec::new()).unwrap().len, 10);
}

#[test]
fn files_may_be_read_and_not_written_and_netlink_sockets_opened_and_no_others() {
    const NAME: &str = "files_may_be_read_and_not_written_and_netlink_sockets_opened_and_no_others";
    if !is_child(NAME) {
        assert_eq!(run_child(NAME, &[]).code(), Some(0));
        return;
    }
    let list = [Calls::RUN, Calls::MESSAGES, Calls::READ_FILES, Calls::OPEN_NETLINK];
    allow_only(&list, Otherwise::Refuse).unwrap();
    assert!(std::fs::read("/proc/self/stat").is_ok() && std::fs::read_dir("/proc").is_ok());
    let null = |options: &mut std::fs::OpenOptions| {
        options.open("/dev/null").map(drop).map_err(|error| Errno::from(&error))
    };
    let options = std::fs::OpenOptions::new;
    assert_eq!(null(options().read(true)), Ok(()));
    assert_eq!(null(options().write(true)), Err(Errno::PERM));
    assert_eq!(null(options().read(true).write(true)), Err(Errno::PERM));
    assert_eq!(null(options().append(true)), Err(Errno::PERM));
    let unnamed = std::env::temp_dir();
    let folder =
        std::os::unix::fs::OpenOptionsExt::custom_flags(options().read(true), libc_tmpfile())
            .open(unnamed);
    assert_eq!(Errno::from(&folder.unwrap_err()), Errno::PERM);
    Socket::open(Protocol::Route).unwrap();
    let error = UdpSocket::bind("127.0.0.1:0").unwrap_err();
    assert_eq!(Errno::from(&error), Errno::PERM);
    assert!(Channel::pair().is_err() && Command::new("true").status().is_err());
}

/// `O_TMPFILE` without `O_DIRECTORY` (include/uapi/asm-generic/fcntl.h).
fn libc_tmpfile() -> i32 {
    0o20_000_000
}

#[test]
fn a_call_that_is_not_on_the_list_ends_the_process() {
    const NAME: &str = "a_call_that_is_not_on_the_list_ends_the_process";
    if !is_child(NAME) {
        assert_eq!(run_child(NAME, &[]).signal(), Some(libc::SIGSYS));
        return;
    }
    allow_only(&[Calls::RUN], Otherwise::Kill).unwrap();
    let _ = UdpSocket::bind("127.0.0.1:0");
}

/// All that a helper needs that opens sockets in namespaces and passes them on.
#[test]
fn one_capability_and_a_short_list_are_enough_to_enter_namespaces() {
    const NAME: &str = "one_capability_and_a_short_list_are_enough_to_enter_namespaces";
    if !need_root_netns() {
        return;
    }
    if !is_child(NAME) {
        let netns = Netns::new();
        let path = netns.path();
        let variables = [("WEIR_TEST_NETNS", path.to_str().unwrap())];
        assert_eq!(run_child(NAME, &variables).code(), Some(0));
        return;
    }
    let path = env::var_os("WEIR_TEST_NETNS").unwrap();
    let keep = capability_set(&[CAP_SYS_ADMIN]);
    assert_eq!(process::keep_capabilities(keep), Ok(keep));
    let (one, other) = Channel::pair().unwrap();
    let home = Home::remember().unwrap();
    let list = [
        Calls::RUN,
        Calls::MESSAGES,
        Calls::OPEN_SOCKETS,
        Calls::OPEN_FILES,
        Calls::ENTER_NAMESPACES,
    ];
    allow_only(&list, Otherwise::Kill).unwrap();
    let there = OpenNamespace::open(path.as_ref()).unwrap();
    let (id, socket) = home
        .enter(&there, || (namespace::own().unwrap(), Socket::open(Protocol::SockDiag).unwrap()))
        .unwrap();
    assert_eq!(id, there.id());
    one.send(b"", &[socket.as_fd()]).unwrap();
    let mut descriptors = Vec::new();
    other.receive(&mut [0], &mut descriptors).unwrap();
    Socket::from_fd(descriptors.pop().unwrap(), Protocol::SockDiag).unwrap();
}

#[test]
fn without_the_capability_it_is_named() {
    if !need_root_netns() {
        return;
    }
    let netns = Netns::new();
    let open = netns.open();
    let error = std::thread::spawn(move || {
        process::keep_capabilities(0).unwrap();
        Home::remember().unwrap().enter(&open, || ()).unwrap_err()
    })
    .join()
    .unwrap();
    assert_eq!(error, Error::NotPermitted { call: "setns", capability: CAP_SYS_ADMIN });
    assert_eq!(error.to_string(), "setns of a network namespace needs CAP_SYS_ADMIN");
}

/// Nothing may go on in the wrong namespace: not even the test harness gets to report the failure.
#[test]
fn a_thread_that_cannot_come_back_ends_the_process() {
    const NAME: &str = "a_thread_that_cannot_come_back_ends_the_process";
    if !need_root_netns() {
        return;
    }
    if !is_child(NAME) {
        let netns = Netns::new();
        let path = netns.path();
        let variables = [("WEIR_TEST_NETNS", path.to_str().unwrap())];
        assert_eq!(run_child(NAME, &variables).signal(), Some(libc::SIGABRT));
        return;
    }
    let there = OpenNamespace::open(env::var_os("WEIR_TEST_NETNS").unwrap().as_ref()).unwrap();
    let give_up = || process::keep_capabilities(0).unwrap();
    let _ = Home::remember().unwrap().enter(&there, give_up);
}

/// In a user namespace of its own, a process may enter the network namespaces that belong to it, but not return to its first
/// one.
#[test]
fn namespaces_are_entered_by_a_thread_where_there_is_no_way_back() {
    const NAME: &str = "namespaces_are_entered_by_a_thread_where_there_is_no_way_back";
    if !need_root_netns() {
        return;
    }
    if !is_child(NAME) {
        let status = Command::new("unshare")
            .args(["--user", "--map-root-user"])
            .arg(env::current_exe().unwrap())
            .args(["--exact", &format!("confined::{NAME}"), "--nocapture", "--test-threads=1"])
            .env("WEIR_TEST_CHILD", NAME)
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert_eq!(status.code(), Some(0));
        return;
    }
    let own = namespace::own().unwrap();
    let mut inner = Command::new("unshare").args(["--net", "sleep", "1000"]).spawn().unwrap();
    let path = format!("/proc/{}/ns/net", inner.id());
    let is_there = || OpenNamespace::open(path.as_ref()).is_ok_and(|there| there.id() != own);
    assert!(testkit::within(std::time::Duration::from_secs(10), is_there));
    let there = OpenNamespace::open(path.as_ref()).unwrap();
    let home = Home::remember().unwrap();
    let seen = home.enter(&there, || namespace::own().unwrap());
    assert_eq!((seen, namespace::own().unwrap()), (Ok(there.id()), own));
    let lost = std::panic::AssertUnwindSafe(|| home.enter(&there, || panic!("on the way")));
    assert!(std::panic::catch_unwind(lost).is_err());
    inner.kill().unwrap();
    inner.wait().unwrap();
}
