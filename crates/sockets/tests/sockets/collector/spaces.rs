//! Namespaces that come and go, that are selected, and that do not work.

use super::law::check_all;
use super::people::{Crowd, Ends};
use super::watch::{Told, Watch};
use crate::support::{RARELY, options};
use ledger::{Event, NamespaceError};
use sockets::{Access, Ask, Direct, Found, Hears, Scope, Transport, Visitor, Walker};
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;
use sys::Errno;
use sys::namespace::{Error, Scan};
use sys::netlink::{Protocol, Socket};
use testkit::{Netns, need_root_netns, say};
use wire::DecodeError;
use wire::inet_diag::request::IPPROTO_TCP;
use wire::inet_diag::{Extensions, Kind, Request, SocketMessage, States};

const OFTEN: Duration = Duration::from_millis(100);

/// Sockets of a poll in each namespace with one of these names.
fn per_namespace(told: &Told, poll: u64, spaces: &[Netns]) -> BTreeMap<String, usize> {
    let mut counts: BTreeMap<_, _> = spaces.iter().map(|space| (space.name.clone(), 0)).collect();
    for seen in told.polled().filter(|seen| seen.poll == poll) {
        if let Some(count) = seen.netns.as_ref().and_then(|name| counts.get_mut(name)) {
            *count += 1;
        }
    }
    counts
}

#[test]
fn namespaces_are_found_when_they_come_and_forgotten_when_they_go() {
    if !need_root_netns() {
        return;
    }
    let home = Netns::new();
    let mut spaces: Vec<_> = (0..30).map(|_| Netns::new()).collect();
    let mut crowds: Vec<_> = spaces.iter().map(|space| Crowd::new(space, Ends::V6, 1)).collect();
    let watch = Watch::start(&home, options(OFTEN, Scope::All));
    let check = |poll: u64, spaces: &[Netns], each: usize| {
        let told = watch.told.lock().unwrap();
        for (name, count) in per_namespace(&told, poll, spaces) {
            assert_eq!(count, each, "{name} in poll {poll}");
        }
    };
    watch.wait_polls(1);
    check(1, &spaces, 3);
    let inode = |name: &str| {
        let told = watch.told.lock().unwrap();
        let of = told.polled().filter(|seen| seen.netns.as_deref() == Some(name));
        of.last().unwrap().fields()["netns_inode"].as_u64().unwrap()
    };
    for space in &spaces {
        assert_eq!(inode(&space.name), space.id().inode);
    }
    let gone: Vec<_> = spaces.drain(..10).collect();
    // Their connections end in order, and only the collector is left to hear them.
    drop(crowds.drain(..10).collect::<Vec<_>>());
    let names: Vec<_> = gone.iter().map(|space| space.name.clone()).collect();
    watch.wait("closes of those that go", |told| {
        // Others on this machine have namespaces too, which may be too young to have a name here.
        let is_of = |name: &Option<String>| name.as_ref().is_some_and(|name| names.contains(name));
        told.closed().filter(|seen| is_of(&seen.netns)).count() >= 20
    });
    let paths: Vec<_> = gone.iter().map(Netns::path).collect();
    drop(gone);
    assert!(paths.iter().all(|path| !path.exists()));
    let poll = watch.next_poll();
    check(poll, &spaces, 3);
    {
        let told = watch.told.lock().unwrap();
        let is_gone =
            |name: &Option<String>| name.as_ref().is_some_and(|name| names.contains(name));
        assert!(!told.polled().any(|seen| seen.poll == poll && is_gone(&seen.netns)));
    }
    spaces.extend((0..5).map(|_| Netns::new()));
    crowds.extend(spaces[20..].iter().map(|space| Crowd::new(space, Ends::V4, 1)));
    let poll = watch.next_poll();
    check(poll, &spaces, 3);
    let (told, hops) = watch.stop();
    check_all(&told, &hops);
}

#[test]
fn only_those_with_a_chosen_name_are_visited() {
    if !need_root_netns() {
        return;
    }
    let (home, mut spaces) = (Netns::new(), Vec::new());
    spaces.extend((0..3).map(|_| Netns::new()));
    let crowds: Vec<_> = spaces.iter().map(|space| Crowd::new(space, Ends::V4, 1)).collect();
    let mut names: Vec<_> = spaces[..2].iter().map(|space| space.name.clone()).collect();
    names.push("no such\x1b[1m name".to_owned());
    let watch = Watch::start(&home, options(OFTEN, Scope::Named(names.clone())));
    watch.wait_polls(2);
    drop(crowds);
    watch.wait("closes", |told| told.sum("closes_observed") >= 6);
    let (told, hops) = watch.stop();
    check_all(&told, &hops);
    let counts = per_namespace(&told, 1, &spaces);
    assert_eq!(counts.values().copied().collect::<Vec<_>>().iter().sum::<usize>(), 6);
    assert_eq!(counts[&spaces[2].name], 0);
    assert_eq!(told.totals[0]["namespaces_visited"], 2);
    assert!(told.closed().all(|seen| names.contains(seen.netns.as_ref().unwrap())));
    assert_eq!(told.closed().count(), 4);
    assert!(told.sum("closes_never_connected") >= 2, "listeners");
    assert_eq!(told.sum("closes_filtered"), 0, "there is no filter");
    let problems = told.problems_of("no_such_namespace");
    assert!(problems.len() == 1 && problems[0].contains("no such\\u{1b}[1m name"), "{problems:?}");
}

/// What is wrong with a namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wrong {
    Permission,
    Gone,
    Open,
    /// The socket is not one of the protocol.
    Foreign,
    /// The socket already has an answer in progress.
    Busy,
}

/// Direct access that fails in some namespaces.
struct Failing {
    direct: Direct,
    wrong: BTreeMap<String, Wrong>,
    found: Vec<Option<Wrong>>,
}

impl Access for Failing {
    fn discover(&mut self, scope: &Scope, found: &mut Vec<Found>) -> io::Result<Scan> {
        let scan = self.direct.discover(scope, found);
        let wrong = |found: &Found| self.wrong.get(found.name.as_ref()?).copied();
        self.found = found.iter().map(wrong).collect();
        scan
    }

    fn open(&mut self, at: usize) -> Result<Socket, Error> {
        let socket = self.direct.open(at)?;
        let failed = |errno| Error::Syscall { call: "socket", errno };
        match self.found[at] {
            None => Ok(socket),
            Some(Wrong::Permission) => {
                let capability = sys::process::CAP_SYS_ADMIN;
                Err(Error::NotPermitted { call: "setns", capability })
            }
            Some(Wrong::Gone) => Err(Error::Gone),
            Some(Wrong::Open) => Err(failed(Errno(23))),
            Some(Wrong::Foreign) => {
                let (end, _) = std::os::unix::net::UnixDatagram::pair().unwrap();
                Socket::from_fd(end.into(), Protocol::SockDiag).map_err(failed)
            }
            Some(Wrong::Busy) => {
                ask_before(&socket).map_err(failed)?;
                Ok(socket)
            }
        }
    }

    fn nsid(&mut self, at: usize) -> Result<i32, Errno> {
        self.direct.nsid(at)
    }

    fn events(&mut self, hears: Hears, buffer_bytes: usize) -> Result<Socket, Errno> {
        self.direct.events(hears, buffer_bytes)
    }
}

/// Requests a listing, so that the kernel refuses the next one until this one is read.
fn ask_before(socket: &Socket) -> Result<(), Errno> {
    let mut request = Vec::new();
    Request {
        kind: Kind::Both,
        protocol: IPPROTO_TCP,
        states: States::ALL,
        extensions: Extensions::NONE,
        src_port: 0,
        dst_port: 0,
        bytecode: &[],
        sequence: 4_000_000_000,
    }
    .encode(&mut request);
    socket.send(&request)
}

/// Visits nothing.
struct Nothing;

impl Visitor for Nothing {
    fn socket(&mut self, _: &SocketMessage<'_>, _: &[u8]) {}
    fn malformed(&mut self, _: DecodeError) {}
}

#[test]
fn a_walk_that_fails_says_what_it_took() {
    let socket = Socket::open(Protocol::SockDiag).unwrap();
    ask_before(&socket).unwrap();
    let mut walker = Walker::default();
    let ask = Ask {
        transport: Transport::Tcp,
        states: States::ALL,
        extensions: Extensions::NONE,
        bytecode: &[],
    };
    let error = walker.walk(&socket, &ask, &mut Nothing).unwrap_err();
    assert_eq!(error.cause(), NamespaceError::Refused);
    let walked = walker.last();
    assert!(walked.dumps == 1 && walked.datagrams >= 1 && walked.bytes >= 20, "{walked:?}");
    let socket = Socket::open(Protocol::SockDiag).unwrap();
    let walked = walker.walk(&socket, &ask, &mut Nothing);
    assert_eq!(walked, Ok(walker.last()));
}

#[test]
fn one_that_does_not_work_is_counted_told_once_and_stops_no_other() {
    if !need_root_netns() {
        return;
    }
    use Wrong::{Busy, Foreign, Gone, Open, Permission};
    let ways = [Permission, Permission, Gone, Open, Foreign, Busy];
    let home = Netns::new();
    let broken: Vec<_> = ways.iter().map(|_| Netns::new()).collect();
    let sound: Vec<_> = (0..3).map(|_| Netns::new()).collect();
    let crowds: Vec<_> =
        broken.iter().chain(&sound).map(|space| Crowd::new(space, Ends::V4, 2)).collect();
    let names: Vec<_> = broken.iter().chain(&sound).map(|space| space.name.clone()).collect();
    let wrong: BTreeMap<_, _> = names.iter().cloned().zip(ways).collect();
    let watch = Watch::start_through(&home, options(OFTEN, Scope::Named(names)), move |direct| {
        Failing { direct, wrong, found: Vec::new() }
    });
    watch.wait_polls(3);
    let (told, hops) = watch.stop();
    drop(crowds);
    check_all(&told, &hops);
    let polls = told.totals.len() as u64;
    for poll in 1..=polls {
        let counts = per_namespace(&told, poll, &sound);
        assert!(counts.values().all(|&count| count == 5), "poll {poll}: {counts:?}");
        let totals = &told.totals[poll as usize - 1];
        assert_eq!(totals["namespaces_vanished"], 1, "{totals:?}");
        assert_eq!(totals["namespaces_failed"], 5, "{totals:?} {:?}", told.problems);
        assert_eq!(totals["namespaces_visited"], 3, "{totals:?}");
    }
    let events = &hops[0].events;
    say(&format!("{events:?}\n{:#?}", told.problems));
    for (cause, per_poll) in [
        (NamespaceError::Permission, 2),
        (NamespaceError::Gone, 1),
        (NamespaceError::Open, 2),
        (NamespaceError::Refused, 1),
    ] {
        assert_eq!(events[&Event::NamespaceErrors(cause)], per_poll * polls, "{cause:?}");
    }
    let errors = events.iter().filter(|(event, _)| matches!(event, Event::NamespaceErrors(_)));
    assert_eq!(errors.map(|(_, count)| count).sum::<u64>(), 6 * polls);
    assert_eq!(told.problems_of("permission").len(), 1);
    assert!(told.problems_of("permission")[0].contains("CAP_SYS_ADMIN"));
    assert_eq!(told.problems_of("open").len(), 1);
    assert_eq!(told.problems_of("refused").len(), 1);
    assert_eq!(told.problems_of("gone").len(), 0);
}

#[test]
fn without_capabilities_the_own_namespace_is_read_and_the_others_are_named_as_missing() {
    if !need_root_netns() {
        return;
    }
    let (home, other) = (Netns::new(), Netns::new());
    let crowds = [&home, &other].map(|space| Crowd::new(space, Ends::V4, 2));
    let told = {
        // Capabilities belong to a thread.
        let access = || {
            sys::process::keep_capabilities(0).unwrap();
            Box::new(Direct::new()) as Box<dyn Access>
        };
        let watch = Watch::start_with(&home, options(OFTEN, Scope::All), Box::new(access));
        watch.wait_polls(2);
        let own = crowds[0].cookies(0);
        drop(crowds);
        watch.wait("closes", |told| told.closed().any(|seen| seen.cookie == own[0]));
        let (told, hops) = watch.stop();
        check_all(&told, &hops);
        assert!(hops[0].event(Event::NamespaceErrors(NamespaceError::Permission)) > 0);
        told
    };
    let visited = told.polled().filter(|seen| seen.poll == 1).count();
    assert_eq!((visited, told.totals[0]["namespaces_visited"]), (5, 1));
    say(&format!("{:#?}", told.problems));
    assert!(told.problems_of("permission")[0].contains("CAP_SYS"));
    assert!(told.problems_of("events_of_others")[0].contains("CAP_NET_BROADCAST"));
    let causes: std::collections::BTreeSet<_> =
        told.problems.iter().map(|problem| problem.cause).collect();
    assert_eq!(causes.len(), told.problems.len(), "each once");
}

/// Direct access that is slow.
pub(crate) struct Slow {
    pub(crate) direct: Direct,
    pub(crate) each: Duration,
}

impl Access for Slow {
    fn discover(&mut self, scope: &Scope, found: &mut Vec<Found>) -> io::Result<Scan> {
        self.direct.discover(scope, found)
    }

    fn open(&mut self, at: usize) -> Result<Socket, Error> {
        let until = std::time::Instant::now() + self.each;
        testkit::within(self.each, || std::time::Instant::now() >= until);
        self.direct.open(at)
    }

    fn nsid(&mut self, at: usize) -> Result<i32, Errno> {
        self.direct.nsid(at)
    }

    fn events(&mut self, hears: Hears, buffer_bytes: usize) -> Result<Socket, Errno> {
        self.direct.events(hears, buffer_bytes)
    }
}

#[test]
fn a_stop_ends_a_poll_of_many_namespaces_and_what_it_saw_is_told() {
    if !need_root_netns() {
        return;
    }
    let home = Netns::new();
    let spaces: Vec<_> = (0..40).map(|_| Netns::new()).collect();
    let crowds: Vec<_> = spaces.iter().map(|space| Crowd::new(space, Ends::V4, 1)).collect();
    let names = spaces.iter().map(|space| space.name.clone()).collect();
    let each = Duration::from_millis(100);
    let watch = Watch::start_through(&home, options(RARELY, Scope::Named(names)), move |direct| {
        Slow { direct, each }
    });
    watch.wait("second namespace", |told| told.polled().count() >= 6);
    let mut beats = vec![watch.collector.heartbeat()];
    watch.wait("fourth namespace", |told| told.polled().count() >= 12);
    beats.push(watch.collector.heartbeat());
    assert!(beats[0] < beats[1], "it beats during a poll");
    drop(crowds);
    let began = std::time::Instant::now();
    let (told, hops) = watch.stop();
    let took = began.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}");
    check_all(&told, &hops);
    let visited = told.totals[0]["namespaces_visited"];
    assert!((3..30).contains(&visited), "{visited}");
    assert_eq!(told.sum("closes_unobserved"), 0);
    // The kernel reports closes a moment later, and never those in namespaces that it has no id for.
    let closed = told.closed().filter(|seen| seen.netns.is_some()).count() as u64;
    assert!(closed <= visited * 2, "{closed}");
}
