//! The relay's own figures pushed as StatsD, for sites without Prometheus.
//!
//! Counters are sent as the increase since the last datagram that left (`|c`), gauges as their value (`|g`); histograms are not
//! sent. An unchanged counter is not sent. Increases that could not be sent, or that the network reported as refused, are added
//! to the next push: a StatsD server on the same host that is down for an hour misses no counts. Across a network, StatsD
//! remains fire and forget.

use crate::AdminState;
use crate::metrics::{Family, Kind, Sample, Samples, Value, add_ledger};
use ledger::Snapshot;
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::net::UdpSocket;

/// Most bytes of one datagram: an Ethernet frame less the headers of IPv6, or of IPv4 with options, and UDP.
pub const DATAGRAM_BYTES_MAX: usize = 1_432;
/// Longest prefix and longest label value in a name; the rest is cut, so that every line fits in a datagram.
const PART_BYTES_MAX: usize = 128;

/// Where and how to push.
#[derive(Clone, Debug)]
pub struct Options {
    /// Looks up the addresses of the StatsD server, at the first push, after each failure and at each `resolve_interval`. It may
    /// take long.
    pub resolve: fn(&str) -> io::Result<Vec<SocketAddr>>,
    /// What `resolve` is given: `HOST:PORT`.
    pub to: String,
    /// How long an answer of `resolve` is good. A server whose name has another address by then gives no error: nobody answers UDP.
    pub resolve_interval: Duration,
    /// The prefix of every name.
    pub prefix: String,
    /// Time between pushes.
    pub interval: Duration,
}

/// How long a push waits for an answer about a name that had one before.
const LOOK_UP_LIMIT: Duration = Duration::from_secs(1);

/// Longest time for the last push, which delays the process's exit.
const LAST_PUSH_LIMIT: Duration = Duration::from_secs(1);

/// Counters of the push.
#[derive(Debug, Default)]
pub struct Counts {
    pub(crate) pushes: AtomicU64,
    pub(crate) failures: AtomicU64,
}

/// Pushes every interval, and once more when `shutdown` resolves, for at most a second.
///
/// If `shutdown` interrupts a push, for instance during a lookup that gets no answer, that push is abandoned, and the last push
/// sends what it had not.
pub async fn push(options: Options, state: Arc<AdminState>, shutdown: impl Future<Output = ()>) {
    let interval = options.interval;
    let mut pusher = Pusher::new(options, Arc::clone(&state.statsd));
    let mut shutdown = std::pin::pin!(shutdown);

    loop {
        tokio::select! {
            () = &mut shutdown => break,
            () = tokio::time::sleep(interval) => {}
        }
        let snapshot = state.ledger.check();
        tokio::select! {
            () = &mut shutdown => break,
            () = pusher.push(&snapshot) => {}
        }
    }

    let snapshot = state.ledger.check();
    if tokio::time::timeout(LAST_PUSH_LIMIT, pusher.push(&snapshot)).await.is_err() {
        state.statsd.failures.fetch_add(1, Ordering::Relaxed);
    }
}

struct Pusher {
    options: Options,
    encoder: Encoder,
    counts: Arc<Counts>,
    /// The last good answer about the server's name, empty if there was none.
    addresses: Vec<SocketAddr>,
    /// When to look the name up again.
    resolve_due: Instant,
    /// That of the last push.
    socket: Option<UdpSocket>,
    /// The last datagram that the kernel accepted.
    last: Option<Packet>,
}

impl Pusher {
    fn new(options: Options, counts: Arc<Counts>) -> Pusher {
        Pusher {
            encoder: Encoder::new(&options.prefix),
            options,
            counts,
            addresses: Vec::new(),
            resolve_due: Instant::now(),
            socket: None,
            last: None,
        }
    }

    async fn push(&mut self, snapshot: &Snapshot) {
        if self.try_push(snapshot).await.is_err() {
            self.counts.failures.fetch_add(1, Ordering::Relaxed);
            self.socket = None;
            self.resolve_due = Instant::now();
        }
    }

    async fn try_push(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        if let Some(former) = self.socket.take()
            && former.take_error()?.is_some()
        {
            self.last_was_refused();
        }
        self.look_up().await?;
        // A connected socket keeps the source address that it got. This host may have another one by now.
        let socket = connect(&self.addresses).await?;

        for packet in self.encoder.encode(snapshot) {
            if let Err(error) = socket.send(&packet.bytes).await {
                // The error belongs to the previous datagram; this one was not sent.
                if error.kind() == io::ErrorKind::ConnectionRefused {
                    self.last_was_refused();
                }
                return Err(error);
            }
            self.counts.pushes.fetch_add(1, Ordering::Relaxed);
            self.encoder.sent(&packet);
            self.last = Some(packet);
        }

        self.socket = Some(socket);
        Ok(())
    }

    fn last_was_refused(&mut self) {
        if let Some(packet) = self.last.take() {
            self.counts.failures.fetch_add(1, Ordering::Relaxed);
            self.encoder.take_back(&packet);
        }
    }
}

impl Pusher {
    /// Looks the name up if that is due. While the resolver fails or does not answer, the last good addresses stay.
    async fn look_up(&mut self) -> io::Result<()> {
        if !self.addresses.is_empty() && Instant::now() < self.resolve_due {
            return Ok(());
        }
        let (resolve, to) = (self.options.resolve, self.options.to.clone());
        let answer = tokio::task::spawn_blocking(move || resolve(&to));
        let answer = match self.addresses.is_empty() {
            true => Ok(answer.await),
            false => tokio::time::timeout(LOOK_UP_LIMIT, answer).await,
        };
        self.resolve_due = Instant::now() + self.options.resolve_interval;
        match answer {
            Ok(Ok(Ok(addresses))) => self.addresses = addresses,
            Ok(Ok(Err(error))) if self.addresses.is_empty() => return Err(error),
            _ => {}
        }
        Ok(())
    }
}

/// Connects to the first address to which there is a route.
async fn connect(addresses: &[SocketAddr]) -> io::Result<UdpSocket> {
    let mut last_error = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any).await?;
        match socket.connect(address).await {
            Ok(()) => return Ok(socket),
            Err(error) => last_error = error,
        }
    }
    Err(last_error)
}

/// One datagram, and its increase of each counter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packet {
    /// Lines separated by line feeds.
    pub bytes: Vec<u8>,
    added: Vec<(String, u64)>,
}

/// Encodes the changes between snapshots as datagrams.
#[derive(Debug)]
pub struct Encoder {
    prefix: String,
    /// The value of each counter when it was last sent.
    sent: HashMap<String, u64>,
}

/// One line of a datagram.
struct Line {
    text: String,
    added: Option<(String, u64)>,
}

impl Encoder {
    /// An encoder that has sent nothing yet.
    pub fn new(prefix: &str) -> Encoder {
        let prefix = prefix.trim_end_matches('.');
        let mut safe = String::new();
        for part in prefix.split('.').filter(|part| !part.is_empty()) {
            push_safe(&mut safe, part);
            safe.push('.');
        }
        safe.truncate(PART_BYTES_MAX);
        Encoder { prefix: safe, sent: HashMap::new() }
    }

    /// Datagrams with every gauge, and with the increase of each counter since it was last [`sent`](Encoder::sent).
    pub fn encode(&self, snapshot: &Snapshot) -> Vec<Packet> {
        let mut samples = Samples::new();
        add_ledger(&mut samples, snapshot);

        // Two names may become the same when they are made safe for the wire; their counts are added.
        let mut counters: BTreeMap<String, u64> = BTreeMap::new();
        let mut lines = Vec::new();

        for (family, series) in samples.iter() {
            for sample in series {
                let name = self.name(family, sample);
                match (family.kind, &sample.value) {
                    (Kind::Counter, Value::Whole(count)) => {
                        *counters.entry(name).or_default() += count;
                    }
                    (Kind::Gauge, Value::Whole(value)) => {
                        lines.push(Line { text: format!("{name}:{value}|g"), added: None });
                    }
                    (Kind::Gauge, Value::Number(value)) => {
                        let text = number(&name, *value);
                        lines.push(Line { text, added: None });
                    }
                    // Only counters of the process itself are not whole numbers, and they are not pushed.
                    (Kind::Histogram, _) | (_, Value::Histogram { .. } | Value::Number(_)) => {}
                }
            }
        }

        for (name, count) in counters {
            let added = count.saturating_sub(self.sent.get(&name).copied().unwrap_or(0));
            if added > 0 {
                let text = format!("{name}:{added}|c");
                lines.push(Line { text, added: Some((name, added)) });
            }
        }

        pack(lines)
    }

    /// Records that the datagram was sent, so that its counts are not sent again.
    pub fn sent(&mut self, packet: &Packet) {
        for (key, added) in &packet.added {
            *self.sent.entry(key.clone()).or_default() += added;
        }
    }

    /// Records that the datagram did not arrive, so that its counts are sent again.
    pub fn take_back(&mut self, packet: &Packet) {
        for (key, added) in &packet.added {
            let sent = self.sent.entry(key.clone()).or_default();
            *sent = sent.saturating_sub(*added);
        }
    }

    /// Turns `weir_relay_target_sent_datagrams_total` into `weir.relay.target_sent_datagrams`, followed by the label values.
    fn name(&self, family: &Family, sample: &Sample<'_>) -> String {
        let bare = family.name.strip_prefix("weir_").unwrap_or(family.name);
        let bare = bare.strip_suffix("_total").unwrap_or(bare);
        let mut name = self.prefix.clone();
        name.push_str(&bare.replacen('_', ".", 1));
        // The hops of a listener have no target.
        for value in sample.labels.iter().filter(|value| !value.is_empty()) {
            name.push('.');
            push_safe(&mut name, value);
        }
        name
    }
}

fn number(name: &str, value: f64) -> String {
    // A sign makes a gauge relative, so a negative value is set from 0. Both lines are in one datagram.
    if value < 0.0 { format!("{name}:0|g\n{name}:{value}|g") } else { format!("{name}:{value}|g") }
}

/// Appends `part`, with `_` for every character that the protocol or a server's name tree could misread.
fn push_safe(out: &mut String, part: &str) {
    let safe = |char: char| if char.is_ascii_alphanumeric() || char == '-' { char } else { '_' };
    out.extend(part.chars().map(safe).take(PART_BYTES_MAX));
}

fn pack(lines: Vec<Line>) -> Vec<Packet> {
    let mut packets: Vec<Packet> = Vec::new();
    for line in lines {
        let room = |packet: &Packet| packet.bytes.len() + 1 + line.text.len() <= DATAGRAM_BYTES_MAX;

        match packets.last_mut().filter(|packet| room(packet)) {
            Some(packet) => {
                packet.bytes.push(b'\n');
                packet.bytes.extend_from_slice(line.text.as_bytes());
                packet.added.extend(line.added);
            }
            None => packets.push(Packet {
                bytes: line.text.into_bytes(),
                added: line.added.into_iter().collect(),
            }),
        }
    }
    packets
}

#[cfg(test)]
mod tests;
