//! Netlink sockets on the running kernel: dumps, events, and losses.

use std::io::Read;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use sys::Errno;
use sys::namespace::{Home, Nsids, Target};
use sys::netlink::{DUMP_BUFFER_BYTES, EventBatch, Protocol, Socket};
use sys::socket::{FilterInstruction, attach_filter, mem_info, set_receive_buffer};
use testkit::{Netns, need_root_netns};

/// `SKNLGRP_INET_TCP_DESTROY` (linux/sock_diag.h).
const TCP_DESTROY: u32 = 1;
const NLMSG_DONE: u16 = 3;
const SOCK_DIAG_BY_FAMILY: u16 = 20;

/// A dump of the listening IPv4 TCP sockets: `struct nlmsghdr`, `struct inet_diag_req_v2`.
fn listening_request() -> Vec<u8> {
    let mut request = Vec::new();
    request.extend_from_slice(&72_u32.to_ne_bytes());
    request.extend_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request.extend_from_slice(&0x301_u16.to_ne_bytes()); // NLM_F_REQUEST | NLM_F_DUMP
    request.extend_from_slice(&7_u32.to_ne_bytes()); // sequence number
    request.extend_from_slice(&[0; 4]);
    request.extend_from_slice(&[2, 6, 0, 0]); // AF_INET, IPPROTO_TCP
    request.extend_from_slice(&(1_u32 << 10).to_ne_bytes()); // LISTEN
    request.extend_from_slice(&[0; 48]); // any address
    request
}

fn kind(bytes: &[u8]) -> u16 {
    u16::from_ne_bytes(bytes[4..6].try_into().unwrap())
}

/// Source port of a `struct inet_diag_msg` after its header.
fn source_port(bytes: &[u8]) -> u16 {
    u16::from_be_bytes(bytes[20..22].try_into().unwrap())
}

#[test]
fn a_dump_ends_with_done_and_then_nothing_is_left() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let socket = Socket::open(Protocol::SockDiag).unwrap();
    socket.send(&listening_request()).unwrap();
    let mut buffer = vec![0; DUMP_BUFFER_BYTES];
    let mut has_listener = false;
    loop {
        let received = socket.receive(&mut buffer).unwrap();
        assert!(received.is_whole_and_from_the_kernel(), "{received:?}");
        assert_eq!((received.group, received.nsid), (0, None));
        if kind(received.bytes) == NLMSG_DONE {
            break;
        }
        let mut rest = received.bytes;
        while !rest.is_empty() {
            has_listener |= source_port(rest) == port;
            rest = &rest[u32::from_ne_bytes(rest[..4].try_into().unwrap()) as usize..];
        }
    }
    assert!(has_listener);
    assert_eq!(socket.receive(&mut buffer), Err(Errno::AGAIN));
}

#[test]
fn a_datagram_larger_than_the_buffer_says_so() {
    let _listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = Socket::open(Protocol::SockDiag).unwrap();
    socket.send(&listening_request()).unwrap();
    let mut buffer = [0; 40];
    let received = socket.receive(&mut buffer).unwrap();
    assert!(received.truncated && !received.is_whole_and_from_the_kernel());
    assert_eq!(received.bytes.len(), 40);
}

#[test]
fn a_blocking_socket_waits_no_longer_than_its_timeout() {
    let socket = Socket::open(Protocol::SockDiag).unwrap();
    socket.set_receive_timeout(Duration::from_millis(20)).unwrap();
    let before = Instant::now();
    assert_eq!(socket.receive(&mut [0; 8]), Err(Errno::AGAIN));
    assert!(before.elapsed() >= Duration::from_millis(15));
}

#[test]
fn groups_that_do_not_exist_cannot_be_joined() {
    let socket = Socket::open(Protocol::SockDiag).unwrap();
    assert_eq!(socket.join_group(1_000), Err(Errno::INVAL));
    assert_eq!(socket.join_group(TCP_DESTROY), Ok(()));
}

/// A listener inside a namespace, and connections to it that close at once. Each has two sockets, so two events.
struct Traffic {
    listener: TcpListener,
}

impl Traffic {
    fn new() -> Traffic {
        Traffic { listener: TcpListener::bind("127.0.0.1:0").unwrap() }
    }

    /// The calling thread must be in the listener's namespace. Returns with both ends destroyed.
    fn open_and_close(&self) {
        let mut client = TcpStream::connect(self.listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = self.listener.accept().unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        server.read_to_end(&mut Vec::new()).unwrap();
        drop(server);
        client.read_to_end(&mut Vec::new()).unwrap();
    }
}

/// Reads until the events received and those the kernel dropped add up to `count`, or ten seconds have passed. The kernel sends
/// events from a work queue, some time after the close (net/core/sock_diag.c, sock_diag_broadcast_destroy). Returns the ids and
/// the number of overruns.
fn take(count: usize, socket: &Socket) -> (Vec<Option<i32>>, u32) {
    let (mut nsids, mut overruns) = (Vec::new(), 0);
    let mut batch = EventBatch::new(16, 1_024);
    testkit::within(Duration::from_secs(10), || {
        take_queued(socket, &mut batch, &mut nsids, &mut overruns);
        nsids.len() + mem_info(socket.as_fd()).unwrap().dropped_datagrams as usize >= count
    });
    take_queued(socket, &mut batch, &mut nsids, &mut overruns);
    (nsids, overruns)
}

fn take_queued(
    socket: &Socket,
    batch: &mut EventBatch,
    nsids: &mut Vec<Option<i32>>,
    overruns: &mut u32,
) {
    loop {
        match batch.receive(socket) {
            Ok(_) => {
                for event in batch.datagrams() {
                    assert!(event.is_whole_and_from_the_kernel(), "{event:?}");
                    assert_eq!(event.group, TCP_DESTROY);
                    assert_eq!(kind(event.bytes), SOCK_DIAG_BY_FAMILY);
                    nsids.push(event.nsid);
                }
            }
            Err(Errno::NOBUFS) => *overruns += 1,
            Err(errno) => {
                assert_eq!(errno, Errno::AGAIN);
                return;
            }
        }
    }
}

fn listen_in(netns: &Netns) -> Socket {
    Home::remember()
        .unwrap()
        .enter(&netns.open(), || {
            let socket = Socket::open(Protocol::SockDiag).unwrap();
            socket.join_group(TCP_DESTROY).unwrap();
            // On a busy machine all events of a test wait in it; the default has room for 175.
            set_receive_buffer(socket.as_fd(), 1 << 20).unwrap();
            socket
        })
        .unwrap()
}

fn close_in(netns: &Netns, connections: usize) {
    let work = || {
        let traffic = Traffic::new();
        (0..connections).for_each(|_| traffic.open_and_close());
    };
    Home::remember().unwrap().enter(&netns.open(), work).unwrap();
}

#[test]
fn what_closes_in_one_namespace_is_heard_there_and_nowhere_else() {
    if !need_root_netns() {
        return;
    }
    let (here, there) = (Netns::new(), Netns::new());
    let socket = listen_in(&here);
    close_in(&there, 3);
    close_in(&here, 20);
    // The twenty pairs and the listener itself.
    assert_eq!(take(41, &socket), (vec![None; 41], 0));
}

#[test]
fn one_socket_hears_every_namespace_that_has_an_id() {
    if !need_root_netns() {
        return;
    }
    let (here, first, second, silent) = (Netns::new(), Netns::new(), Netns::new(), Netns::new());
    let home = Home::remember().unwrap();
    let (socket, mut nsids) = home
        .enter(&here.open(), || {
            let socket = Socket::open(Protocol::SockDiag).unwrap();
            socket.listen_all_namespaces().unwrap();
            socket.join_group(TCP_DESTROY).unwrap();
            (socket, Nsids::open().unwrap())
        })
        .unwrap();
    let first_id = nsids.assign(Target::Open(first.open().as_fd())).unwrap();
    let second_id = nsids.assign(Target::Open(second.open().as_fd())).unwrap();
    assert_ne!(first_id, second_id);
    for netns in [&here, &first, &second, &silent] {
        close_in(netns, 1);
    }
    // The reader needs no capability: those of the process that opened the socket count.
    let events = std::thread::spawn(move || {
        sys::process::keep_capabilities(0).unwrap();
        take(9, &socket)
    });
    let (mut ids, overruns) = events.join().unwrap();
    ids.sort_unstable();
    let mut expected = [[None; 3], [Some(first_id); 3], [Some(second_id); 3]].concat();
    expected.sort_unstable();
    assert_eq!((ids, overruns), (expected, 0));
}

#[test]
fn what_is_delivered_and_what_is_counted_as_lost_is_everything() {
    if !need_root_netns() {
        return;
    }
    let netns = Netns::new();
    let socket = listen_in(&netns);
    set_receive_buffer(socket.as_fd(), 16 * 1_024).unwrap();
    close_in(&netns, 100);
    let lost = || mem_info(socket.as_fd()).unwrap().dropped_datagrams as usize;
    // Nothing is read before the buffer is full.
    assert!(testkit::within(Duration::from_secs(10), || lost() > 0));
    let (events, overruns) = take(201, &socket);
    assert_eq!(events.len() + lost(), 201);
    assert!(overruns > 0 && !events.is_empty());
}

#[test]
fn after_a_loss_what_fits_is_kept_where_that_was_asked_for() {
    if !need_root_netns() {
        return;
    }
    let netns = Netns::new();
    let (socket, witness) = (listen_in(&netns), listen_in(&netns));
    socket.lose_only_what_does_not_fit().unwrap();
    set_receive_buffer(socket.as_fd(), 16 * 1_024).unwrap();
    close_in(&netns, 100);
    let lost = || mem_info(socket.as_fd()).unwrap().dropped_datagrams as usize;
    let mut buffer = [0; 1_024];
    // One loop in the kernel serves both sockets: by the time one has received an event, it is queued or lost at the other.
    assert_eq!(take(201, &witness).0.len(), 201);
    let before = lost();
    assert!(before > 0);
    for _ in 0..4 {
        socket.receive(&mut buffer).unwrap();
    }
    // The queue is not empty, and there is room for a pair and its listener.
    close_in(&netns, 1);
    let (events, overruns) = take(204 - 4, &socket);
    assert_eq!((events.len() + 4 + lost(), overruns, lost()), (204, 0, before));
}

#[test]
fn a_filter_keeps_events_out() {
    if !need_root_netns() {
        return;
    }
    let netns = Netns::new();
    let socket = listen_in(&netns);
    let port_is_zero = [
        FilterInstruction { code: 0x28, jt: 0, jf: 0, k: 20 }, // half word at 20: the source port
        FilterInstruction { code: 0x15, jt: 0, jf: 1, k: 0 },  // is it 0?
        FilterInstruction { code: 0x06, jt: 0, jf: 0, k: u32::MAX },
        FilterInstruction { code: 0x06, jt: 0, jf: 0, k: 0 },
    ];
    attach_filter(socket.as_fd(), &port_is_zero).unwrap();
    let witness = listen_in(&netns);
    close_in(&netns, 5);
    assert_eq!(take(11, &witness), (vec![None; 11], 0));
    assert_eq!(take(0, &socket), (vec![], 0));
    assert_eq!(mem_info(socket.as_fd()).unwrap().dropped_datagrams, 0);
}
