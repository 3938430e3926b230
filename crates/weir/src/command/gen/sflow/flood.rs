//! `weir gen sflow --rate`: as many datagrams as a collector can take, or more.

use super::{Args, connect};
use ::load::sflow::Flood;
use ::text::grouped;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use sys::send::{Message, SEGMENTS_MAX, send_messages};
use sys::signal::stop_flag;

/// Bytes of datagrams sent as one message: the most that an IPv4 packet can hold, without its headers.
const RUN_BYTES: usize = 65_507;

/// Datagrams that were sent, and those that the system refused.
struct Sent {
    datagrams: u64,
    failed: u64,
    passed: Duration,
}

/// Sends until the end, and returns the summary.
pub(super) fn send(args: &Args, rate: u32, to: SocketAddr) -> anyhow::Result<String> {
    let socket = connect(to)?;
    let stop = stop_flag()?;
    let mut flood = Flood::new(args.agents, args.flows.into());
    let end = (args.duration > Duration::ZERO).then_some(args.duration);
    let sent = flood_socket(&socket, &mut flood, rate, end, stop);

    let per_s = sent.datagrams as f64 / sent.passed.as_secs_f64().max(1e-9);
    let refused = match sent.failed {
        0 => String::new(),
        failed => format!(", {} refused by the system", grouped(failed)),
    };
    Ok(format!(
        "sent {} datagrams{refused}\n{} of {} bytes a second\n",
        grouped(sent.datagrams),
        grouped(per_s as u64),
        flood.datagram_bytes(),
    ))
}

fn flood_socket(
    socket: &UdpSocket,
    flood: &mut Flood,
    rate: u32,
    end: Option<Duration>,
    stop: &AtomicBool,
) -> Sent {
    let size = flood.datagram_bytes();
    let run = size * (RUN_BYTES / size).min(SEGMENTS_MAX);
    let start = Instant::now();
    let mut sent = Sent { datagrams: 0, failed: 0, passed: Duration::ZERO };
    loop {
        for bytes in flood.bytes().chunks(run) {
            // Each datagram is due at a fixed time, so that a late one does not delay the next.
            let offered = (sent.datagrams + sent.failed) as f64;
            let due = if rate == 0 { 0.0 } else { offered / f64::from(rate) };
            let early = Duration::from_secs_f64(due).checked_sub(start.elapsed());
            if let Some(early) = early.filter(|early| !early.is_zero()) {
                sys::poll::pause(early);
            }
            sent.passed = start.elapsed();
            if stop.load(Ordering::Relaxed) || end.is_some_and(|end| sent.passed >= end) {
                return sent;
            }

            let message = Message::run(bytes, size as u16);
            let datagrams = u64::from(message.datagrams);
            match send_messages(socket.as_fd(), &[message]) {
                Ok(_) => sent.datagrams += datagrams,
                Err(_) => sent.failed += datagrams,
            }
        }
        flood.go_on();
    }
}
