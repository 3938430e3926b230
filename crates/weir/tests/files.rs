//! File targets: what is in the files is what was sent, and the ledger has the rest.

#![expect(clippy::unwrap_used, reason = "a test's helpers may panic as the test does")]

mod support;

use ledger::{Event, Gauge, HopKind, HopSnapshot, Reason, SendError};
use std::fs;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};
use support::process::{Ended, TempDir, WEIR, Weir, free_port, hop, run, sender};
use support::{find_tool, need_root, need_root_netns, need_tool};

/// Datagrams of all lengths, with line feeds, zero bytes and none at all.
fn payload(number: usize) -> Vec<u8> {
    let len = [0, 1, 2, 63, 200, 1_401, 9_000, 65_507][number % 8];
    (0..len).map(|at| (at * 31 + number) as u8).collect()
}

fn target(ended: &Ended) -> &HopSnapshot {
    let is_target = |hop: &&HopSnapshot| hop.hop == HopKind::Target;
    ended.ledger.hops.iter().find(is_target).unwrap()
}

/// Sends these through a relay with one file target, one at a time, and returns how it ended.
fn relay_to_file(target: &str, payloads: &[Vec<u8>]) -> Ended {
    let weir = Weir::relay(&["--listen", "127.0.0.1:0", "--to", target]);
    let client = sender(weir.address());
    for (count, payload) in payloads.iter().enumerate() {
        client.send(payload).unwrap();
        // Few enough at once for a small receive buffer.
        if count % 8 == 7 {
            weir.wait_for_rest(count as u64 + 1);
        }
    }
    weir.wait_for_rest(payloads.len() as u64);
    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    ended
}

#[test]
fn lines_have_one_line_feed_each() {
    let dir = TempDir::new();
    let texts = ["plain", "with its own end\n", "", "\n", "two\nlines", "null\0byte", "ünïcode"];
    let payloads: Vec<_> = texts.iter().map(|text| text.as_bytes().to_vec()).collect();
    let ended = relay_to_file(&format!("file:{}", dir.text("copy")), &payloads);
    let expected = "plain\nwith its own end\n\n\ntwo\nlines\nnull\0byte\nünïcode\n";
    assert_eq!(fs::read_to_string(dir.file("copy")).unwrap(), expected);
    assert_eq!(target(&ended).delivered.count, 7);
}

#[test]
fn length_prefixed_keeps_every_byte_and_boundary() {
    let dir = TempDir::new();
    let payloads: Vec<_> = (0..200).map(payload).collect();
    let ended =
        relay_to_file(&format!("file:{}?format=length-prefixed", dir.text("copy")), &payloads);
    assert!(read_length_prefixed(&dir.file("copy")) == payloads);
    let bytes: usize = payloads.iter().map(Vec::len).sum();
    let delivered = target(&ended).delivered;
    assert_eq!((delivered.count, delivered.bytes), (200, bytes as u64));
}

#[test]
fn a_restart_appends() {
    let dir = TempDir::new();
    for format in ["length-prefixed", "pcap"] {
        let to = format!("file:{}?format={format}", dir.text(format));
        relay_to_file(&to, &[payload(3)]);
        relay_to_file(&to, &[payload(4)]);
    }
    assert_eq!(read_length_prefixed(&dir.file("length-prefixed")), [payload(3), payload(4)]);
    let packets = read_pcap(&dir.file("pcap"));
    let got: Vec<_> = packets.into_iter().map(|packet| packet.payload).collect();
    assert_eq!(got, [payload(3), payload(4)]);
}

fn read_length_prefixed(path: &Path) -> Vec<Vec<u8>> {
    let file = fs::read(path).unwrap();
    let mut rest = &file[..];
    let mut records = Vec::new();
    while let Some((len, after)) = rest.split_first_chunk::<4>() {
        let (record, after) = after.split_at(u32::from_be_bytes(*len) as usize);
        records.push(record.to_vec());
        rest = after;
    }
    assert!(rest.is_empty(), "a torn length");
    records
}

/// A packet of a capture, taken apart by the documents alone.
#[derive(PartialEq, Eq, Debug)]
struct Packet {
    time_ns: u64,
    src: SocketAddr,
    dst: SocketAddr,
    payload: Vec<u8>,
}

/// Reads a capture file (draft-ietf-opsawg-pcap) of raw IP packets with UDP, and checks every length and checksum.
fn read_pcap(path: &Path) -> Vec<Packet> {
    let file = fs::read(path).unwrap();
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    assert_eq!((word(0), word(4)), (0xa1b2_3c4d, 0x0004_0002), "nanoseconds, version 2.4");
    assert_eq!(word(20), 101, "LINKTYPE_RAW");
    let mut at = 24;
    let mut packets = Vec::new();
    while at < file.len() {
        let time_ns = u64::from(word(at)) * 1_000_000_000 + u64::from(word(at + 4));
        let (captured, len) = (word(at + 8) as usize, word(at + 12) as usize);
        assert!(captured == len && captured as u32 <= word(16), "{captured} of {len}");
        packets.push(read_ip(time_ns, &file[at + 16..at + 16 + captured]));
        at += 16 + captured;
    }
    packets
}

fn short(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn read_ip(time_ns: u64, ip: &[u8]) -> Packet {
    let (src, dst, udp): (IpAddr, IpAddr, &[u8]) = match ip[0] >> 4 {
        4 => {
            assert_eq!((ip[0], short(ip, 2) as usize, ip[9]), (0x45, ip.len(), 17));
            assert_eq!(ones_sum(&[&ip[..20]]), 0xffff, "RFC 791: the header's checksum");
            let octets = |at: usize| IpAddr::from(<[u8; 4]>::try_from(&ip[at..at + 4]).unwrap());
            (octets(12), octets(16), &ip[20..])
        }
        6 => {
            assert_eq!((short(ip, 4) as usize, ip[6]), (ip.len() - 40, 17));
            let octets = |at: usize| IpAddr::from(<[u8; 16]>::try_from(&ip[at..at + 16]).unwrap());
            (octets(8), octets(24), &ip[40..])
        }
        version => panic!("IP version {version}"),
    };
    assert_eq!(short(udp, 4) as usize, udp.len());
    assert_ne!(short(udp, 6), 0, "RFC 768: 0 says that there is no checksum");
    let addresses = if src.is_ipv4() { &ip[12..20] } else { &ip[8..40] };
    let pseudo = [0, 17, udp[4], udp[5]];
    assert_eq!(ones_sum(&[addresses, &pseudo, udp]), 0xffff, "RFC 768: UDP's checksum");
    Packet {
        time_ns,
        src: SocketAddr::new(src, short(udp, 0)),
        dst: SocketAddr::new(dst, short(udp, 2)),
        payload: udp[8..].to_vec(),
    }
}

/// The ones' complement sum of RFC 1071; parts of even length but the last.
fn ones_sum(parts: &[&[u8]]) -> u16 {
    let mut sum: u64 = 0;
    for pair in parts.iter().flat_map(|part| part.chunks(2)) {
        sum += u64::from(pair[0]) * 256 + pair.get(1).map_or(0, |&low| u64::from(low));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

#[test]
fn a_capture_has_times_addresses_payloads_and_right_checksums() {
    for (listen, from) in [("127.0.0.1:0", "127.0.0.7:0"), ("[::1]:0", "[::1]:0")] {
        let dir = TempDir::new();
        let to = format!("file:{}?format=pcap", dir.text("copy.pcap"));
        let weir = Weir::relay(&["--listen", listen, "--to", &to]);
        let clients = [UdpSocket::bind(from).unwrap(), UdpSocket::bind(from).unwrap()];
        let begin_ns = now_ns();
        for n in 0..80 {
            clients[n % 2].send_to(&payload(n), weir.address()).unwrap();
            if n % 8 == 7 {
                weir.wait_for_rest(n as u64 + 1);
            }
        }
        weir.wait_for_rest(80);
        let end_ns = now_ns();
        let dst = weir.address();
        assert_eq!(target(&weir.stop()).delivered.count, 80);
        let packets = read_pcap(&dir.file("copy.pcap"));
        assert_eq!(packets.len(), 80);
        for (n, packet) in packets.iter().enumerate() {
            assert_eq!((packet.src, packet.dst), (clients[n % 2].local_addr().unwrap(), dst));
            assert!(packet.payload == payload(n), "payload {n}");
            assert!((begin_ns..=end_ns).contains(&packet.time_ns), "{}", packet.time_ns);
        }
    }
}

#[test]
fn tcpdump_reads_a_capture_and_finds_every_checksum_right() {
    // Run by root, tcpdump becomes another user, which root without capabilities cannot.
    let is_root = sys::process::effective_uid() == 0;
    if !need_tool("tcpdump") || is_root && !need_root("tcpdump started by root") {
        return;
    }
    let dir = TempDir::new();
    let to = format!("file:{}?format=pcap", dir.text("copy.pcap"));
    let payloads: Vec<_> = (0..80).map(payload).collect();
    relay_to_file(&to, &payloads);
    let mut tcpdump = Command::new(find_tool("tcpdump").unwrap());
    let text = run(tcpdump.args(["-n", "-vv", "-r"]).arg(dir.file("copy.pcap")));
    assert_eq!(text.matches("[udp sum ok]").count(), 80, "{text}");
    assert!(!text.contains("bad") && !text.contains("truncated"), "{text}");
}

#[test]
fn a_capture_of_a_unix_listener_has_unspecified_addresses() {
    let dir = TempDir::new();
    let (inlet, copy) = (dir.text("in.sock"), dir.text("copy.pcap"));
    let to = format!("file:{copy}?format=pcap");
    let weir = Weir::relay(&["--listen", &format!("unix:{inlet}"), "--to", &to]);
    UnixDatagram::unbound().unwrap().send_to(b"local", &inlet).unwrap();
    weir.wait_for_rest(1);
    assert_eq!(weir.stop().code, Some(0));
    let packets = read_pcap(Path::new(&copy));
    let nowhere = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
    assert_eq!((packets[0].src, packets[0].dst), (nowhere, nowhere));
    assert_eq!(packets[0].payload, b"local");
}

/// The file and those that were set aside, the oldest first.
fn rotated(path: &Path, keep: u32) -> Vec<PathBuf> {
    let numbered = |n: u32| PathBuf::from(format!("{}.{n}", path.display()));
    assert!(!numbered(keep + 1).exists(), "more than {keep} are kept");
    let aside = (1..=keep).rev().map(numbered).filter(|path| path.exists());
    aside.chain([path.to_owned()]).collect()
}

#[test]
fn all_rotated_files_together_are_what_was_delivered() {
    const LIMIT_BYTES: u64 = 64 << 10;
    for format in ["lines", "length-prefixed", "pcap"] {
        let dir = TempDir::new();
        let path = dir.file("copy");
        let to =
            format!("file:{}?format={format}&rotate_size=64KiB&rotate_keep=999", path.display());
        // Text without line feeds, numbered: 400 times up to 3,000 bytes.
        let payloads: Vec<_> =
            (0..400).map(|n| format!("{n:05}{}", "x".repeat(n * 7)).into_bytes()).collect();
        let ended = relay_to_file(&to, &payloads);
        assert_eq!(target(&ended).delivered.count, 400);
        let files = rotated(&path, 999);
        let read = |path: &PathBuf| match format {
            "lines" => fs::read(path)
                .unwrap()
                .split_inclusive(|&b| b == b'\n')
                .map(|line| line[..line.len() - 1].to_vec())
                .collect(),
            "length-prefixed" => read_length_prefixed(path),
            _ => read_pcap(path).into_iter().map(|packet| packet.payload).collect(),
        };
        let got: Vec<Vec<u8>> = files.iter().flat_map(read).collect();
        assert!(got == payloads, "{format}: {} of 400", got.len());
        for (n, file) in files.iter().enumerate() {
            let len = fs::metadata(file).unwrap().len();
            assert!(len <= LIMIT_BYTES, "{format}: {} has {len} bytes", file.display());
            // A file is set aside when the next datagram has no room in it, and not much earlier.
            assert!(
                n + 1 == files.len() || len + 3_100 > LIMIT_BYTES,
                "{n} of {format}: {len} bytes"
            );
        }
    }
}

#[test]
fn only_the_newest_files_are_kept() {
    let dir = TempDir::new();
    let path = dir.file("copy");
    let to = format!("file:{}?rotate_size=64KiB&rotate_keep=3", path.display());
    let payloads: Vec<_> =
        (0..60).map(|n| format!("{n:05}{}", "x".repeat(19_990)).into_bytes()).collect();
    let ended = relay_to_file(&to, &payloads);
    assert_eq!(target(&ended).delivered.count, 60, "what rotation deletes was delivered before");
    let files = rotated(&path, 3);
    assert_eq!(files.len(), 4);
    let text: String = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let numbers: Vec<usize> = text.lines().map(|line| line[..5].parse().unwrap()).collect();
    // Three of 20,000 bytes fit into 64 KiB; 60 fill twenty files.
    assert_eq!(numbers, (48..60).collect::<Vec<_>>());
}

/// As logrotate does it: by another name, or gone.
#[test]
fn a_file_that_is_moved_or_removed_is_begun_anew() {
    let dir = TempDir::new();
    let to = format!("file:{}?name=copy&format=length-prefixed", dir.text("copy"));
    let weir = Weir::relay(&["--listen", "127.0.0.1:0", "--to", &to]);
    let client = sender(weir.address());
    let send = |text: &str, count: u64| {
        client.send(text.as_bytes()).unwrap();
        weir.wait_for_rest(count);
    };
    send("one", 1);
    fs::rename(dir.file("copy"), dir.file("copy.old")).unwrap();
    send("two", 2);
    fs::remove_file(dir.file("copy")).unwrap();
    send("three", 3);
    let ended = weir.stop();
    assert_eq!(ended.code, Some(0));
    assert_eq!(hop(&ended.ledger, HopKind::Target, "copy").delivered.count, 3);
    assert_eq!(read_length_prefixed(&dir.file("copy.old")), [b"one"]);
    assert_eq!(read_length_prefixed(&dir.file("copy")), [b"three"]);
}

/// A datagram that is larger than a whole file has a file of its own.
#[test]
fn a_datagram_larger_than_the_limit_is_kept_whole() {
    let dir = TempDir::new();
    let path = dir.file("copy");
    let to = format!("file:{}?rotate_size=64KiB&rotate_keep=9&format=pcap", path.display());
    let payloads = [payload(3), payload(7), payload(7), payload(3), payload(3)];
    relay_to_file(&to, &payloads);
    let files = rotated(&path, 9);
    let counts: Vec<_> = files.iter().map(|file| read_pcap(file).len()).collect();
    // 65,507 bytes and their headers are more than 64 KiB.
    assert_eq!(counts, [1, 1, 1, 2]);
}

#[test]
fn a_full_disk_is_counted_to_the_last_datagram_and_harms_nobody_else() {
    let weir = Weir::relay(&[
        "--listen",
        "127.0.0.1:0",
        "--to",
        "file:/dev/full?name=full",
        "--to",
        "null:?name=null",
    ]);
    let client = sender(weir.address());
    for n in 1..=2_000_u64 {
        client.send(&n.to_be_bytes()).unwrap();
        if n % 200 == 0 {
            weir.wait_for_rest(n);
        }
    }
    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    let full = hop(&ended.ledger, HopKind::Target, "full");
    assert_eq!((full.delivered.count, full.dropped_for(Reason::WriteError).count), (0, 2_000));
    assert!(full.events.contains_key(&Event::SendErrors(SendError::NoSpc)), "{:?}", full.events);
    assert_eq!(full.gauges.get(&Gauge::Up), Some(&0));
    assert_eq!(hop(&ended.ledger, HopKind::Target, "null").delivered.count, 2_000);
}

/// A disk of one mebibyte, in a mount namespace of the relay's own.
#[test]
fn a_disk_that_fills_and_is_freed_is_written_again() {
    if !need_root_netns() {
        return;
    }
    let dir = TempDir::new();
    let disk = dir.file("disk");
    fs::create_dir(&disk).unwrap();
    let port = free_port();
    let mut command = Command::new("unshare");
    let script = "mount -t tmpfs -o size=1m tmpfs \"$0\" && exec \"$@\"";
    command.args(["--mount", "sh", "-c", script]).arg(&disk).arg(WEIR);
    command.args(["relay", "--progress", "off", "--listen", &format!("127.0.0.1:{port}")]);
    let disk_name = disk.display();
    command.args(["--to", &format!("file:{disk_name}/copy?name=disk&format=length-prefixed")]);
    command
        .args(["--to", &format!("file:{}?name=other&format=length-prefixed", dir.text("other"))]);
    let weir = Weir::start(command);
    let inside = PathBuf::from(format!("/proc/{}/root{disk_name}", weir.pid()));
    let client = sender(weir.address());
    let mut sent = 0;
    let mut send = |weir: &Weir, count: u64| {
        for _ in 0..count {
            client.send(&[7; 8_000]).unwrap();
            sent += 1;
        }
        weir.wait_for_rest(sent)
    };
    let lost = |ledger: &ledger::Snapshot| {
        hop(ledger, HopKind::Target, "disk").dropped_for(Reason::WriteError).count
    };
    // 300 of 8,004 bytes are more than twice what fits.
    let mut ledger = send(&weir, 0);
    for _ in 0..15 {
        ledger = send(&weir, 20);
    }
    let written = hop(&ledger, HopKind::Target, "disk").delivered.count;
    assert!(lost(&ledger) > 150 && written > 64, "{}", ledger::waterfall(&ledger));
    let kept = read_length_prefixed(&inside.join("copy"));
    assert_eq!(kept.len() as u64, written, "no torn record, nothing uncounted");
    // Space is back: somebody moves the file away, and a new one is begun.
    fs::remove_file(inside.join("copy")).unwrap();
    let freed = support::process::wait_for(
        || "the file is written again".to_owned(),
        || {
            let ledger = send(&weir, 1);
            (hop(&ledger, HopKind::Target, "disk").delivered.count > written).then_some(ledger)
        },
    );
    let lost_before = lost(&freed);
    send(&weir, 20);
    let again = read_length_prefixed(&inside.join("copy")).len() as u64;
    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    let out = hop(&ended.ledger, HopKind::Target, "disk");
    assert_eq!(lost(&ended.ledger), lost_before, "{}", ended.said);
    assert_eq!(out.delivered.count, written + again);
    assert_eq!(out.delivered.count + lost_before, sent);
    let other = hop(&ended.ledger, HopKind::Target, "other").delivered.count;
    assert_eq!((other, read_length_prefixed(&dir.file("other")).len() as u64), (sent, sent));
}
