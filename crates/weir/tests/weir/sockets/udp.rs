//! UDP sockets: those of `ss`, with drops that are known.

use super::follow::Lines;
use super::rig::{output, records, said, sockets, sockets_in, text};
use super::ss;
use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use sys::socket::mem_info;
use testkit::{Netns, need_root_netns, need_tool, receiver, wait_for};

/// Sends until the kernel has dropped some, and returns how many were sent. On loopback each is queued or dropped when `send` returns.
fn overfill(receiver: &UdpSocket) -> u64 {
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    sender.connect(receiver.local_addr().unwrap()).unwrap();
    let mut sent = 0;
    while mem_info(receiver.as_fd()).unwrap().dropped_datagrams < 7 {
        sender.send(&[7; 1_000]).unwrap();
        sent += 1;
        assert!(sent < 1_000_000, "nothing is dropped");
    }
    sent
}

#[test]
fn drops_queue_and_buffer_are_those_that_the_kernel_tells_the_socket_itself() {
    let (receiver, address) = receiver();
    let sent = overfill(&receiver);
    let memory = mem_info(receiver.as_fd()).unwrap();
    let filter = format!("src {address}");

    let rows = records(sockets(&["-ulp", "--format", "jsonl", &filter]));
    assert_eq!(rows.len(), 1, "{rows:?}");
    let row = &rows[0];
    assert_eq!((row["protocol"].as_u64(), row["state"].as_str()), (Some(17), Some("close")));
    assert_eq!(row["drops"].as_u64(), Some(memory.dropped_datagrams.into()));
    assert_eq!(row["rcvbuf_bytes"].as_u64(), Some(memory.receive_buffer_bytes.into()));
    assert_eq!(row["rmem_alloc_bytes"].as_u64(), Some(memory.receive_queued_bytes.into()));
    assert_eq!(row["process_id"].as_u64(), Some(std::process::id().into()));

    // What was sent is queued or dropped, and nothing else.
    receiver.set_nonblocking(true).unwrap();
    let queued = std::iter::from_fn(|| receiver.recv(&mut [0; 2_000]).ok()).count() as u64;
    assert_eq!(queued + u64::from(memory.dropped_datagrams), sent);

    let table = text(sockets(&["-ulp", &filter]));
    let (title, line) = table.split_once('\n').unwrap();
    assert!(title.contains("DROPS") && title.contains("RCVBUF"), "{table}");
    assert!(
        line.starts_with("UNCONN") && line.contains(&memory.dropped_datagrams.to_string()),
        "{table}"
    );
    assert!(line.contains(&format!("({})", std::process::id())), "{table}");

    let found = |filter: &str| records(sockets(&["-ua", "--format", "jsonl", filter])).len();
    assert_eq!(found(&format!("{filter} and drops = {}", memory.dropped_datagrams)), 1);
    assert_eq!(found(&format!("{filter} and ( drops = 0 or recv_q > 0 )")), 0);
    assert_eq!(found(&format!("{filter} and drops > 0")), 1);
}

#[test]
fn the_sockets_are_those_of_ss_with_its_figures() {
    if !need_root_netns() || !need_tool("ss") {
        return;
    }
    let netns = Netns::new();
    let held = netns.inside(|| {
        let any = |address: &str| UdpSocket::bind(address).unwrap();
        let full = any("127.0.0.1:7001");
        overfill(&full);
        let (one, other) = (any("127.0.0.1:7002"), any("[::1]:7003"));
        one.connect("127.0.0.1:7001").unwrap();
        one.send(b"more").unwrap();
        other.connect("[::1]:9").unwrap();
        [full, one, other, any("[::]:7004"), any("0.0.0.0:7005")]
    });

    for (flags, count) in [("-u", 2), ("-ul", 3), ("-ua", 5), ("-ua4", 3), ("-uan6", 2)] {
        let mut command = netns.command("ss");
        command.args([flags, "-umneHO"]);
        let theirs = ss::parse(command);
        let ours = records(sockets_in(&netns, &[flags, "--format", "jsonl"]));
        let ours: BTreeMap<u64, _> =
            ours.iter().map(|row| (row["cookie"].as_u64().unwrap(), row)).collect();
        assert!(
            ours.len() == count && ours.keys().eq(theirs.keys()),
            "{flags}: {ours:?}\n{theirs:?}"
        );
        for (cookie, theirs) in theirs {
            for (name, field) in [
                ("recv_q", "receive_queue"),
                ("send_q", "send_queue"),
                ("ino", "inode"),
                ("skmem.r", "rmem_alloc_bytes"),
                ("skmem.rb", "rcvbuf_bytes"),
                ("skmem.d", "drops"),
            ] {
                // Of sockets in one state alone ss leaves out the column of states, and others stand in its place.
                if flags == "-u" && !name.starts_with("skmem") {
                    continue;
                }
                assert_eq!(ours[&cookie][field].to_string(), theirs[name], "{flags} {name}");
            }
        }
    }

    // The kernel's part of a filter and ours say the same of them.
    for (filter, count) in [
        ("sport >= :7001 and sport <= :7003", 3),
        ("dst 127.0.0.1:7001", 1),
        ("drops > 0", 1),
        ("drops = 0 and family inet6", 2),
        ("state established", 2),
        ("src 127.0.0.0/8 or src [::1]", 3),
    ] {
        let rows = records(sockets_in(&netns, &["-ua", "--format", "jsonl", filter]));
        assert_eq!(rows.len(), count, "{filter}");
    }
    drop(held);
}

#[test]
fn both_protocols_one_after_the_other() {
    let (_receiver, address) = receiver();
    let filter = format!("src {address}");
    let shown = text(sockets(&["-tuan", &filter]));
    let tables: Vec<&str> = shown.split("\n\n").collect();
    assert!(
        tables.len() == 2 && tables[0].contains("CWND") && tables[1].contains("DROPS"),
        "{shown}"
    );
    assert_eq!(tables[1].lines().count(), 2, "{shown}");
    let rows = records(sockets(&["-tuan", "--format", "jsonl", &filter]));
    assert!(rows.iter().any(|row| row["protocol"] == 17), "{rows:?}");
}

#[test]
fn what_udp_sockets_have_not_is_refused() {
    for (args, says) in [
        (&["-u", "rtt > 1ms"][..], "UDP sockets have no such figure"),
        (&["-u", "cc = bbr"], "UDP sockets have no congestion control"),
        (&["-tu", "--watch", "1s"], "--watch looks at one protocol"),
        (&["-u", "--closed"], "--closed"),
    ] {
        let output = output(sockets(args));
        assert_eq!(output.status.code(), Some(64), "{args:?}: {}", said(&output));
        assert!(said(&output).contains(says), "{args:?}: {}", said(&output));
    }
}

#[test]
fn a_watched_socket_shows_how_many_it_drops_per_second() {
    let (receiver, address) = receiver();
    let filter = format!("src {address}");
    let watch = Lines::of(&["-ul", &filter, "--watch", "200ms", "--columns", "drops,drops/s"]);
    let row = || loop {
        if watch.next().contains("DROPS/S") {
            break watch.next().split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        }
    };
    assert_eq!(row(), ["0", "-"]);
    overfill(&receiver);
    let dropped = u64::from(mem_info(receiver.as_fd()).unwrap().dropped_datagrams);
    // The drops fall between two polls or are divided among a few: some poll has a rate, and the last one all drops.
    let is_rate = |cell: &str| cell.strip_suffix("/s").is_some();
    wait_for("a rate of drops", || is_rate(&row()[1]).then_some(()));
    wait_for("all drops", || (row()[0].parse() == Ok(dropped)).then_some(()));
}
