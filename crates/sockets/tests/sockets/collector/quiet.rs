//! Namespaces that are read without a walk: everything that a walk would list is still reported.

use super::people::{Crowd, Ends, cookie, ss};
use super::watch::{Cookies, Seen, Watch};
use crate::support::options;
use ledger::Event;
use serde_json::Value;
use socket2::{Domain, SockRef, Socket, Type};
use sockets::helper::{Allowed, Remote, serve};
use sockets::{Access, Direct, Found, Hears, Options, Scope, TcpCounts};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;
use sys::Errno;
use sys::namespace::{Error, Scan};
use testkit::{Netns, need_root_netns, within};
use wire::inet_diag::States;

/// An access whose polls start when the test says so.
struct Steps {
    access: Box<dyn Access>,
    go: Receiver<()>,
}

impl Access for Steps {
    fn discover(&mut self, scope: &Scope, found: &mut Vec<Found>) -> io::Result<Scan> {
        // On an error the test is over, and polls go on by themselves until the collector is stopped.
        let _ = self.go.recv_timeout(Duration::from_secs(60));
        self.access.discover(scope, found)
    }

    fn open(&mut self, at: usize) -> Result<sys::netlink::Socket, Error> {
        self.access.open(at)
    }

    fn tcp_counts(&mut self, at: usize) -> Result<TcpCounts, Error> {
        self.access.tcp_counts(at)
    }

    fn nsid(&mut self, at: usize) -> Result<i32, Errno> {
        self.access.nsid(at)
    }

    fn events(&mut self, hears: Hears, buffer_bytes: usize) -> Result<sys::netlink::Socket, Errno> {
        self.access.events(hears, buffer_bytes)
    }
}

/// A collector of some namespaces that polls step by step.
struct Stepped {
    watch: Watch,
    go: Sender<()>,
}

impl Stepped {
    fn start(home: &Netns, spaces: &[Netns], listen_every: u32) -> Stepped {
        Stepped::start_through(home, spaces, listen_every, || Box::new(Direct::new()))
    }

    fn start_through(
        home: &Netns,
        spaces: &[Netns],
        listen_every: u32,
        access: impl FnOnce() -> Box<dyn Access> + Send + 'static,
    ) -> Stepped {
        let (go, receiver) = mpsc::channel();
        let names = spaces.iter().map(|space| space.name.clone()).collect();
        let options = Options {
            states: States::CONNECTED | States::LISTENING,
            listen_every: listen_every.try_into().unwrap(),
            // A poll that took ten times the interval would put off the rest.
            ..options(Duration::from_millis(100), Scope::Named(names))
        };
        let steps = || Box::new(Steps { access: access(), go: receiver }) as Box<dyn Access>;
        Stepped { watch: Watch::start_with(home, options, Box::new(steps)), go }
    }

    /// Polls once. Returns how many namespaces were found quiet.
    fn step(&self) -> u64 {
        // An event at 0 is left out.
        let quiet = || self.watch.poll_hop().event(Event::QuietNamespaces);
        let (before, polls) = (quiet(), self.watch.polls());
        self.go.send(()).unwrap();
        self.watch.wait_polls(polls + 1);
        quiet() - before
    }

    /// Polls until all `count` namespaces are quiet. On a busy machine, the time of a reading decides which poll that is.
    fn steps_until_quiet(&self, count: usize) {
        let came = within(Duration::from_secs(30), || self.step() == count as u64);
        assert!(came, "they do not become quiet");
    }

    /// What the last poll reported about a namespace.
    fn told(&self, space: &Netns) -> BTreeMap<u64, Seen> {
        let told = self.watch.told.lock().unwrap();
        let poll = told.totals.len() as u64;
        let of = told.polled().filter(|seen| seen.poll == poll);
        let of = of.filter(|seen| seen.netns.as_ref() == Some(&space.name));
        of.map(|seen| (seen.cookie, seen.clone())).collect()
    }

    fn stop(self) {
        drop(self.go);
        let (told, hops) = self.watch.stop();
        super::law::check_all(&told, &hops);
        assert_eq!(told.sum("sockets_dropped_duplicate"), 0);
    }
}

/// A socket with an unanswered handshake, in a namespace with [`void`].
fn connecting(space: &Netns) -> Socket {
    connect(space, "10.83.0.9:9".parse().unwrap())
}

fn connect(space: &Netns, to: SocketAddr) -> Socket {
    let socket = space.inside(|| Socket::new(Domain::IPV4, Type::STREAM, None).unwrap());
    socket.set_nonblocking(true).unwrap();
    assert!(socket.connect(&to.into()).is_err(), "it is under way");
    socket
}

/// Adds a device that swallows what is sent: nobody at its other end has the address.
fn void(space: &Netns) {
    space.ip("link add name d0 type veth peer name d1");
    space.ip("link set d0 up");
    space.ip("link set d1 up");
    space.ip("addr add 10.83.0.1/24 dev d0");
    space.ip("neigh add 10.83.0.9 lladdr 02:00:00:00:00:99 dev d0 nud permanent");
}

fn listen(space: &Netns) -> TcpListener {
    space.inside(|| TcpListener::bind("127.0.0.1:0").unwrap())
}

/// A record without the fields that change with the clock, and without its number.
fn lasting(seen: &Seen) -> Value {
    let mut fields = seen.fields();
    let names = ["poll", "sequence", "time_unix_ns", "timer_expires_ms", "timer"];
    let clocks = ["last_data_sent_ms", "last_data_recv_ms", "last_ack_recv_ms"];
    for name in names.iter().chain(&clocks) {
        fields.as_object_mut().unwrap().remove(*name);
    }
    // Since the previous record, which the first one does not have.
    fields
        .as_object_mut()
        .unwrap()
        .retain(|name, _| !name.ends_with("_delta") && name != "since_ns");
    fields
}

#[test]
fn records_of_a_quiet_namespace_are_those_of_a_walk() {
    if !need_root_netns() {
        return;
    }
    let home = Netns::new();
    let spaces: Vec<_> = (0..5).map(|_| Netns::new()).collect();
    void(&spaces[3]);
    let mut crowds = [
        Crowd::new(&spaces[0], Ends::V4, 3),
        Crowd::new(&spaces[1], Ends::V6, 1),
        Crowd::new(&spaces[2], Ends::Mapped, 2),
    ];
    let others = (connecting(&spaces[3]), listen(&spaces[3]));
    for (client, _) in crowds.iter_mut().flat_map(|crowd| &mut crowd.pairs) {
        client.write_all(b"hello").unwrap();
    }
    let stepped = Stepped::start(&home, &spaces, 1);
    stepped.step();
    let all = || spaces.iter().map(|space| stepped.told(space)).collect::<Vec<_>>();
    let walked = all();
    let counts: Vec<_> = walked.iter().map(BTreeMap::len).collect();
    assert_eq!(counts, [7, 3, 5, 2, 0]);
    drop(others.0);
    stepped.steps_until_quiet(spaces.len());
    for (at, (walked, quiet)) in walked.iter().zip(all()).enumerate().take(3) {
        assert!(walked.keys().eq(quiet.keys()), "namespace {at}");
        for (cookie, seen) in &quiet {
            assert_eq!(lasting(seen), lasting(&walked[cookie]), "namespace {at}");
        }
    }
    // Changes that need no segment.
    let (_, server) = &mut crowds[0].pairs[0];
    server.read_exact(&mut [0; 5]).unwrap();
    SockRef::from(&*server).set_recv_buffer_size(70_000).unwrap();
    stepped.steps_until_quiet(spaces.len());
    let seen = stepped.told(&spaces[0])[&cookie(&crowds[0].pairs[0].1)].fields();
    assert_eq!(
        (seen["receive_queue"].as_u64(), seen["rcvbuf_bytes"].as_u64()),
        (Some(0), Some(140_000))
    );
    stepped.stop();
}

#[test]
fn through_the_helper_a_namespace_is_quiet_too() {
    if !need_root_netns() {
        return;
    }
    let (home, spaces) = (Netns::new(), [Netns::new()]);
    let _crowd = Crowd::new(&spaces[0], Ends::V4, 1);
    let path = std::env::temp_dir().join(format!("weir-quiet-{}.sock", std::process::id()));
    let listener = sys::pass::Listener::bind(&path).unwrap();
    let stop = Arc::new(sys::poll::EventFd::new().unwrap());
    let stops = Arc::clone(&stop);
    let serving = move || serve(&listener, &Allowed::default(), stops.as_fd(), |_| {}).unwrap();
    let helper = home.inside(|| thread::spawn(serving));
    let remote = Remote::new(&path);
    let stepped = Stepped::start_through(&home, &spaces, 1, move || Box::new(remote));
    stepped.steps_until_quiet(1);
    stepped.stop();
    stop.wake();
    helper.join().unwrap();
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn connections_of_a_namespace_are_counted_by_both_their_ends() {
    if !need_root_netns() {
        return;
    }
    let space = Netns::new();
    let opened = || space.inside(|| TcpCounts::read().unwrap().opened);
    assert_eq!(opened(), 0);
    let _crowd = Crowd::new(&space, Ends::V4, 7);
    assert_eq!(opened(), 14);
}

#[test]
fn listeners_of_a_quiet_namespace_are_told_when_they_are_asked_for() {
    if !need_root_netns() {
        return;
    }
    let (home, spaces) = (Netns::new(), [Netns::new()]);
    let crowd = Crowd::new(&spaces[0], Ends::V4, 1);
    let listener = SockRef::from(&crowd.listener).cookie().unwrap();
    let stepped = Stepped::start(&home, &spaces, 3);
    stepped.steps_until_quiet(1);
    for _ in 0..6 {
        assert_eq!(stepped.step(), 1);
        let has = stepped.told(&spaces[0]).contains_key(&listener);
        assert_eq!(has, stepped.watch.polls() % 3 == 1);
        assert_eq!(stepped.told(&spaces[0]).len(), 2 + usize::from(has));
    }
    stepped.stop();
}

/// Changes a namespace between two polls. Returns what has to stay alive.
type Change = fn(&Netns, &mut Content) -> Vec<Box<dyn Send>>;

/// Creates the initial content of a namespace.
type Make = fn(&Netns) -> Content;

struct Content {
    crowd: Option<Crowd>,
    listener: Option<TcpListener>,
}

fn empty(_: &Netns) -> Content {
    Content { crowd: None, listener: None }
}

fn listener(space: &Netns) -> Content {
    Content { listener: Some(listen(space)), ..empty(space) }
}

fn crowd(space: &Netns) -> Content {
    Content { crowd: Some(Crowd::new(space, Ends::Mapped, 2)), ..empty(space) }
}

const CHANGES: [(&str, Make, Change); 12] = [
    ("nothing in nothing", empty, |_, _| Vec::new()),
    ("nothing with connections", crowd, |_, _| Vec::new()),
    ("the first listener", empty, |space, _| vec![Box::new(listen(space))]),
    ("another listener", listener, |space, _| vec![Box::new(listen(space))]),
    ("a listener instead of another", listener, |space, content| {
        content.listener = None;
        vec![Box::new(listen(space))]
    }),
    ("a connect instead of a listener", listener, |space, content| {
        content.listener = None;
        vec![Box::new(connecting(space))]
    }),
    ("the first connect", empty, |space, _| vec![Box::new(connecting(space))]),
    ("a connection", crowd, |_, content| {
        let crowd = content.crowd.as_ref().unwrap();
        let to = crowd.pairs[0].0.peer_addr().unwrap();
        vec![Box::new(TcpStream::connect(to).unwrap())]
    }),
    ("a close", crowd, |_, content| {
        drop(content.crowd.as_mut().unwrap().pairs.pop().unwrap().0);
        Vec::new()
    }),
    ("a connection in order", crowd, |_, content| {
        drop(content.crowd.as_mut().unwrap().pairs.pop());
        Vec::new()
    }),
    ("a reset", crowd, |_, content| {
        let (client, server) = content.crowd.as_mut().unwrap().pairs.pop().unwrap();
        SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
        drop(client);
        vec![Box::new(server)]
    }),
    ("a listener less", crowd, |_, content| {
        let Crowd { pairs, listener } = content.crowd.take().unwrap();
        drop(listener);
        vec![Box::new(pairs)]
    }),
];

#[test]
fn whatever_happens_in_a_quiet_namespace_a_poll_lists_what_ss_does() {
    if !need_root_netns() {
        return;
    }
    let home = Netns::new();
    let spaces: Vec<_> = CHANGES.iter().map(|_| Netns::new()).collect();
    spaces.iter().for_each(void);
    let mut contents: Vec<_> =
        CHANGES.iter().zip(&spaces).map(|((_, content, _), space)| content(space)).collect();
    let stepped = Stepped::start(&home, &spaces, 1);
    stepped.steps_until_quiet(spaces.len());
    let mut kept = Vec::new();
    for ((_, _, change), (space, content)) in CHANGES.iter().zip(spaces.iter().zip(&mut contents)) {
        kept.push(space.inside(|| change(space, content)));
    }
    stepped.step();
    for ((what, ..), space) in CHANGES.iter().zip(&spaces) {
        let theirs: Cookies = ss(space).into_keys().collect();
        let ours: Cookies = stepped.told(space).into_keys().collect();
        assert_eq!(ours, theirs, "{what}");
    }
    stepped.stop();
    drop(kept);
}

/// Nothing of it counts as in use: its listener was there only between two polls.
#[test]
fn a_handshake_without_a_listener_is_told() {
    if !need_root_netns() {
        return;
    }
    let (home, here, spaces) = (Netns::new(), Netns::new(), [Netns::new()]);
    let there = &spaces[0];
    here.connect("va", there, "vb");
    here.ip("addr add 10.84.0.1/24 dev va");
    there.ip("addr add 10.84.0.2/24 dev vb");
    // Answers to the client's SYN are lost.
    there.ip("neigh add 10.84.0.1 lladdr 02:00:00:00:00:77 dev vb nud permanent");
    let stepped = Stepped::start(&home, &spaces, 1);
    stepped.steps_until_quiet(1);
    let handshake = || {
        let listener = there.inside(|| TcpListener::bind("10.84.0.2:0").unwrap());
        let client = connect(&here, listener.local_addr().unwrap());
        let came = within(Duration::from_secs(10), || ss(there).len() == 2);
        assert!(came, "no handshake under way");
        drop(listener);
        client
    };
    // The kernel drops the handshake within a second of the listener's end, which may be before the poll.
    let told = within(Duration::from_secs(30), || {
        let client = handshake();
        let before: Cookies = ss(there).into_keys().collect();
        stepped.step();
        let after: Cookies = ss(there).into_keys().collect();
        drop(client);
        let ours: Cookies = stepped.told(there).into_keys().collect();
        let is_clear = before == after && before.len() == 1;
        assert!(!is_clear || ours == before, "{ours:?} instead of {before:?}");
        // Quiet again before the next attempt.
        let _ = within(Duration::from_secs(10), || ss(there).is_empty());
        if !is_clear {
            stepped.steps_until_quiet(1);
        }
        is_clear
    });
    assert!(told, "no handshake outlived its listener for the time of a poll");
    stepped.stop();
}
