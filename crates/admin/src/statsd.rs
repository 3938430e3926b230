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
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::UdpSocket;

/// Most bytes of one datagram: an Ethernet frame less the headers of IPv6, or of IPv4 with options, and UDP.
pub const DATAGRAM_BYTES_MAX: usize = 1_432;
/// Longest prefix and longest label value in a name; the rest is cut, so that every line fits in a datagram.
const PART_BYTES_MAX: usize = 128;

/// Where and how to push.
#[derive(Clone, Debug)]
pub struct Options {
    /// `HOST:PORT`. A name is resolved at the first push and after each failure.
    pub to: String,
    /// The prefix of every name.
    pub prefix: String,
    /// Time between pushes.
    pub interval: Duration,
}

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
    to: String,
    encoder: Encoder,
    counts: Arc<Counts>,
    socket: Option<UdpSocket>,
    /// The last datagram that the kernel accepted.
    last: Option<Packet>,
}

impl Pusher {
    fn new(options: Options, counts: Arc<Counts>) -> Pusher {
        let encoder = Encoder::new(&options.prefix);
        Pusher { to: options.to, encoder, counts, socket: None, last: None }
    }

    async fn push(&mut self, snapshot: &Snapshot) {
        if self.try_push(snapshot).await.is_err() {
            self.counts.failures.fetch_add(1, Ordering::Relaxed);
            self.socket = None;
        }
    }

    async fn try_push(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        let socket = match self.socket.take() {
            Some(socket) => socket,
            None => connect(&self.to).await?,
        };

        if socket.take_error()?.is_some() {
            self.last_was_refused();
        }

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

async fn connect(to: &str) -> io::Result<UdpSocket> {
    let mut last_error = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in tokio::net::lookup_host(to).await? {
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
mod tests {
    use super::*;
    use ledger::{Amount, Gauge, HopBuilder, HopKind, Reason};

    fn amount(count: u64) -> Amount {
        Amount { count, bytes: count * 10 }
    }

    fn snapshot(listener: &str, sent: u64, dropped: u64) -> Snapshot {
        let hop = HopBuilder::new(HopKind::Target, listener, Some("old"), amount(0))
            .gauge(Gauge::Up, 1)
            .delivered(amount(sent))
            .dropped(Reason::QueueFull, amount(dropped))
            .finish(amount(sent + dropped));
        Snapshot { hops: vec![hop], ..Snapshot::default() }
    }

    fn lines(packets: &[Packet]) -> Vec<String> {
        let text = |packet: &Packet| String::from_utf8(packet.bytes.clone()).unwrap();
        packets
            .iter()
            .flat_map(|p| text(p).lines().map(str::to_owned).collect::<Vec<_>>())
            .collect()
    }

    fn counters(packets: &[Packet]) -> Vec<String> {
        lines(packets).into_iter().filter(|line| line.contains("|c")).collect()
    }

    #[test]
    fn counters_are_differences_and_only_what_moved() {
        let mut encoder = Encoder::new("weir");
        let packets = encoder.encode(&snapshot("syslog", 5, 0));
        assert_eq!(
            counters(&packets),
            [
                "weir.relay.target_offered_datagrams.syslog.old:5|c",
                "weir.relay.target_sent_bytes.syslog.old:50|c",
                "weir.relay.target_sent_datagrams.syslog.old:5|c",
            ]
        );
        assert!(lines(&packets).contains(&"weir.relay.target_up.syslog.old:1|g".to_owned()));
        packets.iter().for_each(|packet| encoder.sent(packet));
        assert!(counters(&encoder.encode(&snapshot("syslog", 5, 0))).is_empty());
        let packets = encoder.encode(&snapshot("syslog", 5, 2));
        assert_eq!(
            counters(&packets),
            [
                "weir.relay.target_dropped_datagrams.syslog.old.queue_full:2|c",
                "weir.relay.target_offered_datagrams.syslog.old:2|c",
                "weir.relay.target_unsent_datagrams.syslog.old:2|c",
            ]
        );
    }

    #[test]
    fn what_a_store_refused_or_never_answered_goes_out() {
        let sink = ledger::SinkCounters::default();
        sink.reject(ledger::RejectClass::Schema, amount(2));
        sink.uncertain(amount(3));
        let hop = HopBuilder::new(HopKind::Sink, "sockets", Some("s"), amount(0));
        let hops = vec![hop.left_sink(&sink).finish(amount(5))];
        let snapshot = Snapshot { hops, ..Snapshot::default() };
        assert_eq!(
            counters(&Encoder::new("weir").encode(&snapshot)),
            [
                "weir.sink.offered_records.sockets.s:5|c",
                "weir.sink.rejected_records.sockets.s.schema:2|c",
                "weir.sink.uncertain_records.sockets.s:3|c",
            ]
        );
    }

    #[test]
    fn what_was_not_sent_is_in_the_next_push() {
        let mut encoder = Encoder::new("weir");
        encoder.encode(&snapshot("l", 5, 0));
        let packets = encoder.encode(&snapshot("l", 7, 0));
        assert!(counters(&packets).contains(&"weir.relay.target_sent_datagrams.l.old:7|c".into()));
        packets.iter().for_each(|packet| encoder.sent(packet));
        packets.iter().for_each(|packet| encoder.take_back(packet));
        assert_eq!(encoder.encode(&snapshot("l", 7, 0)), packets);
    }

    #[test]
    fn names_cannot_break_the_protocol() {
        let encoder = Encoder::new("my site.weir.");
        let hostile = "a.b:1|c\n#@é";
        let expected = "my_site.weir.relay.target_sent_datagrams.a_b_1_c____.old:5|c";
        assert!(counters(&encoder.encode(&snapshot(hostile, 5, 0))).contains(&expected.into()));
    }

    #[test]
    fn names_that_become_equal_are_added_up() {
        let encoder = Encoder::new("weir");
        let mut both = snapshot("a.b", 5, 0);
        both.hops.extend(snapshot("a_b", 6, 0).hops);
        let expected = "weir.relay.target_sent_datagrams.a_b.old:11|c";
        assert!(counters(&encoder.encode(&both)).contains(&expected.into()));
    }

    #[test]
    fn a_negative_gauge_is_not_taken_as_a_difference() {
        let broken = HopBuilder::new(HopKind::Receive, "l", None, amount(0))
            .delivered(amount(3))
            .finish(amount(1));
        let snapshot = Snapshot { hops: vec![broken], ..Snapshot::default() };
        let lines = lines(&Encoder::new("weir").encode(&snapshot));
        let at =
            lines.iter().position(|line| line == "weir.ledger.residual.receive.l:0|g").unwrap();
        assert_eq!(lines[at + 1], "weir.ledger.residual.receive.l:-2|g");
    }

    #[test]
    fn datagrams_fit_into_a_frame_and_hold_every_line_once() {
        let long = "x".repeat(500);
        let mut many = Snapshot::default();
        for at in 0..100 {
            many.hops.extend(snapshot(&format!("{at}{long}"), 5, 1).hops);
        }
        let packets = Encoder::new(&long).encode(&many);
        assert!(packets.iter().all(|packet| packet.bytes.len() <= DATAGRAM_BYTES_MAX));
        assert_eq!(counters(&packets).len(), 100 * 5);
    }

    #[test]
    fn counts_survive_a_server_that_is_down() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let server = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        drop(server);
        let counts = Arc::new(Counts::default());
        let options = Options {
            to: address.to_string(),
            prefix: "weir".into(),
            interval: Duration::from_secs(1),
        };
        let mut pusher = Pusher::new(options, Arc::clone(&counts));
        runtime.block_on(async {
            for sent in 1..=4 {
                pusher.push(&snapshot("l", sent, 0)).await;
            }
        });
        assert!(counts.failures.load(Ordering::Relaxed) > 0);
        let server = std::net::UdpSocket::bind(address).unwrap();
        server.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        runtime.block_on(pusher.push(&snapshot("l", 5, 0)));
        let mut buf = [0; 2048];
        let len = server.recv(&mut buf).unwrap();
        let text = std::str::from_utf8(&buf[..len]).unwrap();
        assert!(text.contains("weir.relay.target_sent_datagrams.l.old:5|c"), "{text}");
    }

    struct Idle;

    impl ledger::Meter for Idle {
        fn read(&self, hops: &mut Vec<ledger::HopSnapshot>) {
            hops.extend(snapshot("l", 5, 0).hops);
        }
    }

    #[test]
    fn the_last_push_is_at_the_shutdown() {
        let server = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        server.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let options = Options {
            to: server.local_addr().unwrap().to_string(),
            prefix: "site".into(),
            interval: Duration::from_secs(3600),
        };
        let ledger = Arc::new(ledger::Ledger::new("1".into()));
        let health = Arc::new(crate::Health::new(Duration::from_secs(5)));
        let state = Arc::new(AdminState::new(ledger, health, [127, 0, 0, 1].into()));
        state.ledger.register(Arc::new(Idle));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(push(options, Arc::clone(&state), async {}));
        let mut buf = [0; 2048];
        let len = server.recv(&mut buf).unwrap();
        let text = std::str::from_utf8(&buf[..len]).unwrap();
        assert!(text.contains("site.relay.target_sent_datagrams.l.old:5|c"), "{text}");
        assert!(!text.contains("http"), "only the relay's own figures: {text}");
        assert_eq!(state.statsd.pushes.load(Ordering::Relaxed), 1);
    }
}
