//! Namespaces that come and go between two polls: what closes in them is reported, or counted as unheard. `WEIR_NEWCOMERS` is the
//! number of short-lived ones, by default 100.

use crate::support::{Keep, RARELY, Run, options};
use ledger::{Event, NamespaceError};
use socket2::SockRef;
use sockets::helper::{Allowed, Remote, serve};
use sockets::{Access, Direct, Found, Hears, MakeAccess, Options, Scope};
use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use sys::Errno;
use sys::namespace::{Error, Home, Nsids, OpenNamespace, Scan, Target};
use sys::netlink::Socket;
use sys::pass::Listener;
use sys::poll::EventFd;
use testkit::{Netns, need_root_netns, run as run_command, say, wait_for, within};

const PATIENCE: Duration = Duration::from_secs(30);
const CONNECTIONS: usize = 20;
/// How long a short-lived namespace exists.
const LIFE: Duration = Duration::from_millis(300);
/// Number of namespaces that exist at the same time.
const AT_ONCE: usize = 8;

/// Connections over loopback, both ends.
fn connect(connections: usize) -> Vec<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let pairs = (0..connections).map(|_| {
        let client = TcpStream::connect(address).unwrap();
        (client, listener.accept().unwrap().0)
    });
    pairs.collect()
}

/// Creates a namespace as `ip netns` does, opens connections in it at once, and removes it.
fn live_shortly(name: &str) {
    run_command(Command::new("ip").args(["netns", "add", name]));
    let born = Instant::now();
    run_command(Command::new("ip").args(["-n", name, "link", "set", "lo", "up"]));
    let path = std::path::Path::new("/run/netns").join(name);
    let namespace = OpenNamespace::open(&path).unwrap();
    Home::remember().unwrap().enter(&namespace, || drop(connect(CONNECTIONS))).unwrap();
    drop(namespace);
    std::thread::sleep(LIFE.saturating_sub(born.elapsed()));
    // Busy for a moment while another test's process copies the mounts.
    within(PATIENCE, || {
        let _ = Command::new("ip").args(["netns", "del", name]).output();
        !path.exists()
    });
}

/// Creates and removes `count` namespaces, some at the same time, and compares the collector's counts with what happened.
fn check_short_lives(kind: &str, count: usize, access: impl FnOnce(&Netns) -> MakeAccess) {
    let home = Netns::new();
    let names: Vec<String> = (0..count)
        .map(|number| format!("weir-new-{kind}-{}-{number}", std::process::id()))
        .collect();
    // Other namespaces on this machine do not interfere.
    let options = options(RARELY, Scope::Named(names.clone()));
    let run = Run::start_with(&home, options, Keep::default(), access(&home));
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                    live_shortly(name);
                }
            });
        }
    });
    let wanted = (count * CONNECTIONS * 2) as u64;
    let is_all_told = || {
        let hop = run.close_hop();
        hop.delivered.count + hop.event(Event::Unheard) >= wanted
    };
    let came = within(PATIENCE, is_all_told);
    let hop = run.close_hop();
    let told = run.stop();
    let closes = told.closes().count() as u64;
    say(&format!(
        "{kind}: {count} namespaces of {LIFE:?} with {CONNECTIONS} connections, {wanted} closes: {closes} records, {} unheard; {} \
         namespaces seen, {} polls",
        told.unheard, told.namespaces_new, told.polls
    ));
    assert!(came, "{hop:?}");
    assert_eq!(closes + told.unheard, wanted, "{:?}", told.problems);
    // Most are heard from the beginning; on a busy machine, fewer. With only one search per second it would be almost none.
    assert!(closes >= wanted / 10, "{closes} of {wanted}");
    // No namespace was taken for another: each has no more closes than it had connections.
    for name in &names {
        let of = told.closes().filter(|row| row.netns_name.as_ref() == Some(name)).count();
        assert!(of <= CONNECTIONS * 2, "{name}: {of}");
    }
    let nameless = told.closes().filter(|row| row.netns_name.is_none()).count();
    assert_eq!(nameless, 0, "each is of a namespace that is known");
}

#[test]
fn every_close_in_a_namespace_of_a_third_of_a_second_is_told_or_counted_as_unheard() {
    if !need_root_netns() {
        return;
    }
    let count = std::env::var("WEIR_NEWCOMERS").ok().and_then(|text| text.parse().ok());
    check_short_lives("direct", count.unwrap_or(100), |_| Box::new(|| Box::new(Direct::new())));
}

#[test]
fn through_the_helper_it_is_the_same() {
    if !need_root_netns() {
        return;
    }
    let path = std::env::temp_dir().join(format!("weir-new-{}.sock", std::process::id()));
    let stop = Arc::new(EventFd::new().unwrap());
    let listener = Listener::bind(&path).unwrap();
    let stops = Arc::clone(&stop);
    let mut helper = None;
    check_short_lives("helper", 40, |home| {
        // In the collector's own namespace, because ids are valid there.
        let serving = move || serve(&listener, &Allowed::default(), stops.as_fd(), |_| {}).unwrap();
        helper = Some(home.inside(|| std::thread::spawn(serving)));
        let path = path.clone();
        Box::new(move || Box::new(Remote::new(&path)))
    });
    stop.wake();
    helper.unwrap().join().unwrap();
    std::fs::remove_file(path).unwrap();
}

/// A process in a namespace that only the process leads to.
struct Container {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// Cookies of connections that closed before it reported them.
    early: BTreeSet<u64>,
    /// Cookies of the connections that it holds.
    held: BTreeSet<u64>,
}

const IS_CONTAINER: &str = "WEIR_IS_CONTAINER";

impl Container {
    fn start() -> Container {
        let script = "ip link set lo up && exec \"$0\" --exact new_namespaces::inside_a_container --nocapture";
        let mut process = Command::new("unshare")
            .args(["--net", "sh", "-c", script])
            .arg(std::env::current_exe().unwrap())
            .env(IS_CONTAINER, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = process.stdin.take();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut cookies = |what: &str| {
            let mut line = String::new();
            while !line.starts_with(what) {
                line.clear();
                assert!(output.read_line(&mut line).unwrap() > 0, "it ended");
            }
            line.split_whitespace().skip(1).map(|word| word.parse().unwrap()).collect()
        };
        let (early, held) = (cookies("early"), cookies("held"));
        Container { process, input, output, early, held }
    }

    /// Whether its closes are heard by a collector in this namespace.
    fn is_heard(&self, home: &Netns) -> bool {
        let id = || Nsids::open().unwrap().lookup(Target::Process(self.process.id()));
        home.inside(id).unwrap().is_some()
    }

    fn end(&mut self) {
        drop(self.input.take());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        assert!(self.process.wait().unwrap().success(), "{rest}");
    }
}

/// Not a test, but what a [`Container`] does.
#[test]
fn inside_a_container() {
    if std::env::var_os(IS_CONTAINER).is_none() {
        return;
    }
    let say = |what: &str, pairs: &[(TcpStream, TcpStream)]| {
        let cookie = |end| SockRef::from(end).cookie().unwrap().to_string();
        let cookies = pairs.iter().flat_map(|(client, server)| [cookie(client), cookie(server)]);
        let line = format!("\n{what} {}\n", cookies.collect::<Vec<_>>().join(" "));
        std::io::stdout().write_all(line.as_bytes()).unwrap();
    };
    let early = connect(5);
    say("early", &early);
    drop(early);
    let held = connect(CONNECTIONS);
    say("held", &held);
    std::io::stdout().flush().unwrap();
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

#[test]
fn every_close_in_a_container_is_told_once_it_was_found() {
    if !need_root_netns() {
        return;
    }
    let home = Netns::new();
    let run = Run::start(&home, options(RARELY, Scope::All), Keep::default());
    let mut containers: Vec<_> = (0..5).map(|_| Container::start()).collect();
    let began = Instant::now();
    let found = within(PATIENCE, || containers.iter().all(|one| one.is_heard(&home)));
    let took = began.elapsed();
    assert!(found, "not one after the other within {PATIENCE:?}");
    let held: BTreeSet<u64> = containers.iter().flat_map(|one| one.held.clone()).collect();
    let early: BTreeSet<u64> = containers.iter().flat_map(|one| one.early.clone()).collect();
    // Others come and go on this machine with their own connections, so there may be more.
    let are_counted = || {
        let unheard = run.close_hop().event(Event::Unheard);
        let told = run.keep.told.lock().unwrap();
        let closed: BTreeSet<u64> = told.closes().map(|row| row.cookie).collect();
        unheard >= early.difference(&closed).count() as u64
    };
    assert!(within(PATIENCE, are_counted), "what closed before is not counted");
    containers.iter_mut().for_each(Container::end);
    run.wait("close of each", |told| {
        let closed: BTreeSet<u64> = told.closes().map(|row| row.cookie).collect();
        held.is_subset(&closed)
    });
    let told = run.stop();
    let closed: BTreeSet<u64> = told.closes().map(|row| row.cookie).collect();
    let early_told = early.intersection(&closed).count();
    say(&format!(
        "5 containers found within {took:?}: {} closes of {} after that, {early_told} of {} before; {} unheard",
        held.intersection(&closed).count(),
        held.len(),
        early.len(),
        told.unheard
    ));
}

#[test]
fn more_namespaces_than_are_allowed_are_left_out_and_counted_until_there_is_room() {
    if !need_root_netns() {
        return;
    }
    let home = Netns::new();
    let mut spaces: Vec<_> = (0..5).map(|_| Netns::new()).collect();
    let names = spaces.iter().map(|space| space.name.clone()).collect();
    let options =
        Options { namespaces_max: 3, ..options(Duration::from_millis(100), Scope::Named(names)) };
    let run = Run::start(&home, options, Keep::default());
    let is_full =
        |told: &crate::support::Told| (told.namespaces_visited, told.namespaces_left_out) == (3, 2);
    run.wait("poll of three", is_full);
    let heard = |space: &Netns| {
        let id = || Nsids::open().unwrap().lookup(Target::Open(space.open().as_fd()));
        home.inside(id).unwrap().is_some()
    };
    let are_heard: Vec<bool> = spaces.iter().map(heard).collect();
    assert_eq!(are_heard.iter().filter(|is_heard| **is_heard).count(), 3);
    // One that has a place leaves it, for another at once.
    drop(spaces.remove(are_heard.iter().position(|is_heard| *is_heard).unwrap()));
    run.wait("poll of three again", |told| {
        (told.namespaces_visited, told.namespaces_left_out) == (3, 1)
    });
    // The one that takes the place is heard a moment after its first visit.
    let are_heard = || spaces.iter().filter(|space| heard(space)).count() == 3;
    wait_for("three that are heard", || are_heard().then_some(()));
    let told = run.stop();
    let problems: Vec<_> =
        told.problems.iter().filter(|text| text.contains("namespaces_max")).collect();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(
        problems[0].contains("5 network namespaces") && problems[0].contains("= 8"),
        "{problems:?}"
    );
}

/// Direct access whose searches between polls can be blocked by the test.
struct HeldUp {
    direct: Direct,
    is_held: Arc<AtomicBool>,
    is_waiting: Arc<AtomicBool>,
}

impl Access for HeldUp {
    fn discover(&mut self, scope: &Scope, found: &mut Vec<Found>) -> io::Result<Scan> {
        let is_free = || {
            let is_held = self.is_held.load(Ordering::SeqCst);
            self.is_waiting.store(is_held, Ordering::SeqCst);
            !is_held
        };
        assert!(within(PATIENCE, is_free), "held up for good");
        self.direct.discover(scope, found)
    }

    fn open(&mut self, at: usize) -> Result<Socket, Error> {
        self.direct.open(at)
    }

    fn nsid(&mut self, at: usize) -> Result<i32, Errno> {
        self.direct.nsid(at)
    }

    fn second(&self) -> Option<Box<dyn Access>> {
        let (is_held, is_waiting) = (Arc::clone(&self.is_held), Arc::clone(&self.is_waiting));
        Some(Box::new(HeldUp { direct: Direct::new(), is_held, is_waiting }))
    }

    fn events(&mut self, hears: Hears, buffer_bytes: usize) -> Result<Socket, Errno> {
        self.direct.events(hears, buffer_bytes)
    }
}

#[test]
fn a_namespace_that_came_and_went_between_two_looks_is_counted_as_vanished() {
    if !need_root_netns() {
        return;
    }
    let home = Netns::new();
    let name = |number: usize| format!("weir-gone-{}-{number}", std::process::id());
    let [is_held, is_waiting] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let held_up = HeldUp {
        direct: Direct::new(),
        is_held: Arc::clone(&is_held),
        is_waiting: Arc::clone(&is_waiting),
    };
    let access = move || Box::new(held_up) as Box<dyn Access>;
    let options = options(RARELY, Scope::Named((0..4).map(name).collect()));
    let run = Run::start_with(&home, options, Keep::default(), Box::new(access));
    let count = |event| {
        let mut hops = Vec::new();
        run.collector.meter().read(&mut hops);
        hops.iter().map(|hop| hop.event(event)).sum::<u64>()
    };
    let ip = |verb: &str, number| {
        run_command(Command::new("ip").args(["netns", verb, &name(number)]));
    };
    // One that is found is not missed.
    ip("add", 3);
    assert!(within(PATIENCE, || count(Event::NamespacesNew) == 1), "it is not found");
    is_held.store(true, Ordering::SeqCst);
    assert!(within(PATIENCE, || is_waiting.load(Ordering::SeqCst)), "no look");
    for number in 0..3 {
        ip("add", number);
        ip("del", number);
    }
    ip("del", 3);
    is_held.store(false, Ordering::SeqCst);
    let vanished = || count(Event::NamespaceErrors(NamespaceError::Gone));
    assert!(within(PATIENCE, || vanished() == 3), "{}", vanished());
    assert_eq!(run.stop().namespaces_new, 1);
}

#[test]
fn the_own_namespace_may_have_an_id_of_itself() {
    if !need_root_netns() {
        return;
    }
    let home = Netns::new();
    let own = home.open();
    home.inside(|| Nsids::open().unwrap().assign(Target::Open(own.as_fd())).unwrap());
    drop(own);
    let run = Run::start(&home, options(RARELY, Scope::All), Keep::default());
    let pairs = home.inside(|| connect(5));
    let ends = pairs.iter().flat_map(|(client, server)| [client, server]);
    let cookies: BTreeSet<u64> = ends.map(|end| SockRef::from(end).cookie().unwrap()).collect();
    drop(pairs);
    let is_ours = |row: &&crate::support::Row| cookies.contains(&row.cookie);
    run.wait("closes", |told| told.closes().filter(is_ours).count() == 10);
    let told = run.stop();
    let names: BTreeSet<_> = told.closes().filter(is_ours).map(|row| &row.netns_name).collect();
    assert_eq!(names, [&Some(home.name.clone())].into());
}
