//! Sums of records by minute and hour: overall, by unit, by peer network, by service, and by the combination of the three.

use crate::sketch::Sketch;
use record::{CloseReason, ConnectionRole, RecordKind, SocketRecord, SocketState};
use rusqlite::{Connection, Statement, params};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

pub(crate) const MINUTE_NS: i64 = 60_000_000_000;
pub(crate) const HOUR_NS: i64 = 3_600_000_000_000;

/// Spans whose keys are kept in memory, for each table: the current one, and those that rows of a late batch may belong to.
const SPANS_KEPT: usize = 4;

/// The name that replaces all keys beyond a span's limit.
const OTHER: &str = "other";

/// The grouping of a sum.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Dimension {
    All,
    Unit,
    Peer,
    Service,
    Path,
}

impl Dimension {
    const ALL: [Dimension; 5] =
        [Dimension::All, Dimension::Unit, Dimension::Peer, Dimension::Service, Dimension::Path];

    fn name(self) -> &'static str {
        match self {
            Dimension::All => "all",
            Dimension::Unit => "unit",
            Dimension::Peer => "peer",
            Dimension::Service => "service",
            Dimension::Path => "path",
        }
    }

    /// The part of a key that this dimension uses.
    fn of(self, path: &Key) -> Key {
        match self {
            Dimension::All => Key::default(),
            Dimension::Unit => Key { unit: path.unit.clone(), ..Key::default() },
            Dimension::Peer => Key { peer: path.peer.clone(), ..Key::default() },
            Dimension::Service => Key { service: path.service, ..Key::default() },
            Dimension::Path => path.clone(),
        }
    }

    /// The key that replaces all keys beyond the limit.
    fn other(self) -> Key {
        let other = Key { unit: OTHER.into(), service: 0, peer: OTHER.into() };
        self.of(&other)
    }
}

/// The key of a sum.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
struct Key {
    /// The systemd unit, otherwise the container, pod or cgroup; empty if none is known.
    unit: Box<str>,
    /// The port of the side that accepted; 0 if unknown, and for keys beyond the limit.
    service: u16,
    /// The peer's network: /24 for IPv4, /48 for IPv6.
    peer: Box<str>,
}

#[derive(Default)]
struct Sums {
    /// In the order of the table.
    numbers: [u64; 12],
    rtt: Sketch,
    rttvar: Sketch,
}

/// The sums of one batch.
#[derive(Default)]
pub(crate) struct Rollup {
    /// Keyed by minute and path.
    sums: HashMap<(i64, Key), Sums>,
}

impl Rollup {
    /// Adds a record.
    pub(crate) fn add(&mut self, record: &SocketRecord<'_>, time_unix_ns: i64) {
        if record.state == Some(SocketState::LISTEN) {
            return;
        }
        let minute = time_unix_ns.div_euclid(MINUTE_NS) * MINUTE_NS;
        self.sums.entry((minute, path_of(record))).or_default().add(record);
    }

    /// Adds the sums to the rows of the tables.
    pub(crate) fn write(
        &self,
        connection: &Connection,
        admitted: &mut Admitted,
    ) -> rusqlite::Result<()> {
        for (table, span_ns) in [("sockets_minute", MINUTE_NS), ("sockets_hour", HOUR_NS)] {
            let mut upsert = connection.prepare_cached(&upsert(table))?;
            for dimension in Dimension::ALL {
                let mut rows: BTreeMap<(i64, Key), Sums> = BTreeMap::new();
                for ((minute, path), sums) in &self.sums {
                    let span = minute.div_euclid(span_ns) * span_ns;
                    rows.entry((span, dimension.of(path))).or_default().merge(sums);
                }
                for ((span, key), sums) in admitted.bound((table, dimension), rows) {
                    sums.write(&mut upsert, (dimension, span, &key))?;
                }
            }
        }
        Ok(())
    }
}

impl Sums {
    fn add(&mut self, record: &SocketRecord<'_>) {
        let is_close = record.record_kind == Some(RecordKind::CLOSE);
        let is_abort = is_close
            && !matches!(
                record.close_reason,
                None | Some(CloseReason::OUR_CLOSE | CloseReason::PEER_CLOSE)
            );
        let has_no_window =
            record.state == Some(SocketState::ESTABLISHED) && record.snd_wnd_bytes == Some(0);
        let added = [
            1,
            record.bytes_sent_delta.unwrap_or_default(),
            record.bytes_received_delta.unwrap_or_default(),
            record.bytes_retrans_delta.unwrap_or_default(),
            record.segs_out_delta.unwrap_or_default().into(),
            record.total_retrans_segments_delta.unwrap_or_default().into(),
            record.busy_time_us_delta.unwrap_or_default(),
            record.rwnd_limited_us_delta.unwrap_or_default(),
            record.sndbuf_limited_us_delta.unwrap_or_default(),
            has_no_window.into(),
            is_close.into(),
            is_abort.into(),
        ];
        self.add_numbers(&added);

        // The value is 0 until the connection has a sample.
        if let Some(rtt_us) = record.rtt_us.filter(|rtt_us| *rtt_us > 0) {
            self.rtt.add(rtt_us.into());
            self.rttvar.add(record.rttvar_us.unwrap_or_default().into());
        }
    }

    fn add_numbers(&mut self, added: &[u64; 12]) {
        self.numbers.iter_mut().zip(added).for_each(|(sum, one)| *sum = sum.saturating_add(*one));
    }

    fn merge(&mut self, other: &Sums) {
        self.add_numbers(&other.numbers);
        self.rtt.merge(&other.rtt);
        self.rttvar.merge(&other.rttvar);
    }

    fn write(
        &self,
        upsert: &mut Statement<'_>,
        (dimension, span, key): (Dimension, i64, &Key),
    ) -> rusqlite::Result<()> {
        let number = |at: usize| i64::try_from(self.numbers[at]).unwrap_or(i64::MAX);
        upsert.execute(params![
            dimension.name(),
            span,
            key.unit,
            key.service,
            key.peer,
            number(0),
            number(1),
            number(2),
            number(3),
            number(4),
            number(5),
            number(6),
            number(7),
            number(8),
            number(9),
            number(10),
            number(11),
            self.rtt.to_blob(),
            self.rttvar.to_blob(),
        ])?;
        Ok(())
    }
}

/// Inserts a row, or adds to the row with the same key.
fn upsert(table: &str) -> String {
    format!(
            "INSERT INTO {table} VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)
             ON CONFLICT DO UPDATE SET records = records + excluded.records, bytes_sent = bytes_sent + excluded.bytes_sent,
             bytes_received = bytes_received + excluded.bytes_received, bytes_retrans = bytes_retrans + excluded.bytes_retrans,
             segs_out = segs_out + excluded.segs_out, retrans_segments = retrans_segments + excluded.retrans_segments,
             busy_time_us = busy_time_us + excluded.busy_time_us, rwnd_limited_us = rwnd_limited_us + excluded.rwnd_limited_us,
             sndbuf_limited_us = sndbuf_limited_us + excluded.sndbuf_limited_us, zero_windows = zero_windows + excluded.zero_windows,
             closes = closes + excluded.closes, aborts = aborts + excluded.aborts,
             rtt = sketch_add(rtt, excluded.rtt), rttvar = sketch_add(rttvar, excluded.rttvar)"
        )
}

fn path_of(record: &SocketRecord<'_>) -> Key {
    let unit =
        record.systemd_unit.or(record.container_id).or(record.pod_uid).or(record.cgroup_path);
    let (src, dst) = (record.src_port.unwrap_or_default(), record.dst_port.unwrap_or_default());
    let service = match record.role {
        Some(ConnectionRole::ACCEPTOR) => src,
        Some(ConnectionRole::OPENER) => dst,
        // The served port is nearly always the lower one.
        _ => src.min(dst),
    };
    let peer = record.dst_address.map(network_of).unwrap_or_default();
    Key { unit: unit.unwrap_or_default().into(), service, peer: peer.into() }
}

/// The network of an address, as text.
fn network_of(address: IpAddr) -> String {
    // An IPv6 socket may have an IPv4 peer.
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            let [a, b, c, _] = v4.octets();
            format!("{a}.{b}.{c}.0/24")
        }
        IpAddr::V6(v6) => {
            let [a, b, c, ..] = v6.segments();
            format!("{}/48", std::net::Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0))
        }
    }
}

/// The keys that have rows of their own, up to a limit, so that strangers cannot create rows without end.
pub(crate) struct Admitted {
    /// Most keys of a dimension in one span of a table.
    keys_max: usize,
    spans: BTreeMap<(&'static str, Dimension, i64), HashSet<Key>>,
}

impl Admitted {
    pub(crate) fn new(keys_max: usize) -> Admitted {
        Admitted { keys_max, spans: BTreeMap::new() }
    }

    /// Merges the keys beyond the limit into one; keys with the most records are admitted first.
    fn bound(
        &mut self,
        (table, dimension): (&'static str, Dimension),
        rows: BTreeMap<(i64, Key), Sums>,
    ) -> BTreeMap<(i64, Key), Sums> {
        let mut rows: Vec<_> = rows.into_iter().collect();
        rows.sort_by_key(|(_, sums)| std::cmp::Reverse(sums.numbers[0]));

        let mut bounded: BTreeMap<(i64, Key), Sums> = BTreeMap::new();
        for ((span, key), sums) in rows {
            let keys = self.spans.entry((table, dimension, span)).or_default();
            let is_known = keys.contains(&key);
            let key = match is_known || keys.len() < self.keys_max {
                true => key,
                false => dimension.other(),
            };
            if !is_known && key != dimension.other() {
                keys.insert(key.clone());
            }
            bounded.entry((span, key)).or_default().merge(&sums);
        }

        self.forget((table, dimension));
        bounded
    }

    fn forget(&mut self, (table, dimension): (&'static str, Dimension)) {
        let range = (table, dimension, i64::MIN)..=(table, dimension, i64::MAX);
        while self.spans.range(range.clone()).count() > SPANS_KEPT {
            let Some(oldest) = self.spans.range(range.clone()).next().map(|one| *one.0) else {
                return;
            };
            self.spans.remove(&oldest);
        }
    }
}
