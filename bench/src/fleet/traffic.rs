//! The connections of one host: both ends, and their traffic.

use anyhow::Context;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Serves and calls itself until its input ends; for the bench itself.
#[derive(clap::Args)]
pub(crate) struct TrafficArgs {
    /// Number of connections; each is two sockets.
    connections: usize,
    /// Tells hosts apart.
    seed: u64,
}

const SERVICE_PORTS: [u16; 5] = [443, 5432, 6379, 8080, 9092];
/// Requests and responses per second, over all connections. A few connections have most of them.
const EXCHANGES_PER_SEC: u64 = 150;
/// One exchange in this many is the last one of its connection.
const LAST_ONE_IN: u64 = 40;
const REQUEST_BYTES_MAX: u64 = 2_000;
const RESPONSE_BYTES_MAX: u64 = 30_000;

pub(crate) fn traffic(args: &TrafficArgs) -> anyhow::Result<()> {
    let mut random = Random(args.seed);
    let listeners: Vec<TcpListener> = SERVICE_PORTS
        .iter()
        .map(|port| TcpListener::bind((address(&mut random), *port)))
        .collect::<Result<_, _>>()?;
    let mut pairs = Vec::with_capacity(args.connections);
    for number in 0..args.connections {
        pairs.push(Pair::open(&listeners[number % listeners.len()])?);
    }

    let is_over = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&is_over);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        ends.store(true, Ordering::Relaxed);
    });
    std::io::stdout().write_all(b"r")?;
    std::io::stdout().flush()?;

    while !is_over.load(Ordering::Relaxed) {
        // The square of a uniform distribution: the first connections are busy, the last ones almost idle.
        let share = random.below(1 << 16) as f64 / f64::from(1 << 16);
        let at = (share * share * pairs.len() as f64) as usize;
        pairs[at].exchange(&mut random)?;
        if random.below(LAST_ONE_IN) == 0 {
            pairs[at] = Pair::open(&listeners[at % listeners.len()])?;
        }
        std::thread::sleep(Duration::from_micros(1_000_000 / EXCHANGES_PER_SEC));
    }
    Ok(())
}

/// Both ends of a connection.
struct Pair {
    client: TcpStream,
    server: TcpStream,
}

impl Pair {
    fn open(listener: &TcpListener) -> anyhow::Result<Pair> {
        let client = TcpStream::connect(listener.local_addr()?).context("connecting")?;
        Ok(Pair { client, server: listener.accept()?.0 })
    }

    fn exchange(&mut self, random: &mut Random) -> anyhow::Result<()> {
        let (request, response) =
            (random.below(REQUEST_BYTES_MAX), random.below(RESPONSE_BYTES_MAX));
        send(&mut self.client, &mut self.server, request as usize + 1)?;
        send(&mut self.server, &mut self.client, response as usize + 1)
    }
}

/// Sends less than a socket's buffer holds, so that one thread can serve both ends.
fn send(from: &mut TcpStream, to: &mut TcpStream, bytes: usize) -> anyhow::Result<()> {
    let mut buffer = vec![0; bytes];
    from.write_all(&buffer)?;
    to.read_exact(&mut buffer)?;
    Ok(())
}

/// A random address in 10.0.0.0/8, all of which is local here.
fn address(random: &mut Random) -> IpAddr {
    let [_, b, c, d] = (random.below(1 << 24) as u32).to_be_bytes();
    Ipv4Addr::new(10, b, c, d.clamp(1, 254)).into()
}

/// Random numbers that depend only on the seed (`SplitMix64`).
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// A UUID from random numbers.
pub(super) fn uuid(random: &mut Random) -> String {
    let (high, low) = (random.next(), random.next());
    let (a, b, c) = (high >> 32, (high >> 16) & 0xffff, high & 0xfff);
    let (d, e) = ((low >> 48) & 0x3fff | 0x8000, low & 0xffff_ffff_ffff);
    format!("{a:08x}-{b:04x}-4{c:03x}-{d:04x}-{e:012x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_looks_like_one() {
        let id = uuid(&mut Random(7));
        let lens: Vec<usize> = id.split('-').map(str::len).collect();
        assert_eq!((id.len(), lens), (36, vec![8, 4, 4, 4, 12]), "{id}");
        assert_ne!(id, uuid(&mut Random(8)));
    }

    #[test]
    fn a_pair_exchanges() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback");
        let mut pair = Pair::open(&listener).expect("a connection");
        pair.exchange(&mut Random(1)).expect("an exchange");
    }
}
