//! More than a page has room for: targets, sockets, and the drops of agents.

use super::{Held, Rig, answer, browser, drive};
use crate::support::{Generator, Place, free_udp_address};
use load::sflow::{Packet, TrueFlow};
use serde_json::json;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use wire::sflow::flow::SampledHeader;
use wire::sflow::{DataSource, Datagram, DropReason, DroppedPacket, FlowRecord, Records, Writer};

/// More than are drawn as bands.
const TARGETS: usize = 10;

#[test]
fn more_than_eight_targets_are_a_table_with_every_count_of_the_ledger() {
    let Some(_browser) = browser() else { return };
    let listen = free_udp_address().to_string();
    let rig = Rig::with(|_| {
        let mut text = format!("[[listener]]\nname = \"many\"\nlisten = \"{listen}\"\n");
        for at in 0..TARGETS {
            let to = if at % 2 == 0 { "null:" } else { "127.0.0.1:9" };
            let _ = writeln!(text, "[[listener.target]]\nname = \"t{at}\"\nto = \"{to}\"");
        }
        text
    });
    let _load = Generator::start(&Place::Here, &listen, &["--rate", "200", "--duration", "0s"]);
    let seen = answer(drive("targets.cjs", &rig.question()));
    assert_eq!(seen["rows"], TARGETS + 1, "{seen}");
}

/// Most nodes of a page, in a window of 1280 × 900.
const NODES_MAX: u64 = 1_500;

#[test]
fn no_page_has_many_nodes_whatever_there_is_to_show() {
    let Some(_browser) = browser() else { return };
    let (rig, _held) = (Rig::start(), Held::of(150));
    let seen = answer(drive("nodes.cjs", &rig.question()));
    let most = seen.as_object().unwrap();
    assert_eq!(most.len(), 6, "{seen}");
    assert!(most.values().all(|nodes| nodes.as_u64() <= Some(NODES_MAX)), "{seen}");
}

#[test]
fn a_long_table_has_elements_for_the_rows_in_sight_and_the_keyboard_reaches_the_last_one() {
    let Some(_browser) = browser() else { return };
    let (rig, held) = (Rig::start(), Held::of(150));
    let mut question = rig.question();
    question["held"] = json!({ "port": held.port, "count": 150 });
    let seen = answer(drive("long.cjs", &question));
    assert!(seen["nodes"].as_u64() <= Some(NODES_MAX), "{seen}");
}

#[test]
fn frames_that_agents_drop_have_their_panel() {
    let Some(_browser) = browser() else { return };
    let rig = Rig::start();
    let _agent = Dropping::start(rig.weir.addresses[1].parse().unwrap());
    assert_eq!(answer(drive("drops.cjs", &rig.question()))["rows"], 1);
}

/// An agent that reports a dropped frame ten times a second, until it goes out of scope.
struct Dropping {
    is_over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Dropping {
    fn start(to: SocketAddr) -> Dropping {
        let is_over = Arc::new(AtomicBool::new(false));
        let is_told = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            for sequence in 1.. {
                if is_told.load(Ordering::Relaxed) {
                    return;
                }
                socket.send_to(&dropped_frame(sequence), to).unwrap();
                thread::park_timeout(Duration::from_millis(100));
            }
        });
        Dropping { is_over, thread: Some(thread) }
    }
}

impl Drop for Dropping {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// A datagram of the agent 192.0.2.77, which dropped a frame from 10.0.0.7 to 10.1.0.7.
fn dropped_frame(sequence: u32) -> Vec<u8> {
    let flow = TrueFlow {
        src: Ipv4Addr::new(10, 0, 0, 7),
        dst: Ipv4Addr::new(10, 1, 0, 7),
        protocol: 17,
        src_port: 53,
        dst_port: 4_000,
        frame_bytes: 200,
        frames_per_s: 10.0,
    };
    let header = Packet::from(&flow).header();
    let header = SampledHeader {
        protocol: 1,
        frame_length_bytes: flow.frame_bytes,
        stripped_bytes: 4,
        header: &header,
    };
    let sample = DroppedPacket {
        sequence,
        source: DataSource::interface(1),
        drops: 0,
        input_if_index: 1,
        output_if_index: 2,
        reason: DropReason::from_name("acl").unwrap(),
        raw_records: Records::EMPTY,
    };

    let mut bytes = Vec::new();
    let address = std::net::IpAddr::from(Ipv4Addr::new(192, 0, 2, 77)).into();
    let datagram = Datagram::new(address, 0, sequence, sequence.wrapping_mul(100));
    Writer::begin(&mut bytes, &datagram).dropped(&sample, &[FlowRecord::SampledHeader(header)]);
    bytes
}
