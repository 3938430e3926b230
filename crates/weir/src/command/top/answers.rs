//! What the daemon answers for the pages.

use super::lines::Stretch;
use serde::Deserialize;
use serde_json::Value as Json;
use std::collections::HashMap;
use std::net::IpAddr;

/// The answer for one page, or the sentence that says why there is none.
pub(super) type Told<T> = Result<T, String>;

/// `GET /sockets?sort=…`.
#[derive(Deserialize, Default)]
pub(super) struct Sockets {
    pub(super) time_unix_ns: String,
    pub(super) namespaces: u64,
    pub(super) namespaces_failed: u64,
    pub(super) truncated: bool,
    pub(super) matched: u64,
    pub(super) sockets: Vec<Socket>,
    /// Sockets by the lower bound of their round-trip time.
    pub(super) rtt_us: Vec<(u64, u64)>,
    #[serde(default)]
    pub(super) groups: Vec<Group>,
    #[serde(default)]
    pub(super) other: Group,
}

#[derive(Deserialize, Default, Clone)]
pub(super) struct Socket {
    pub(super) cookie: Option<u64>,
    pub(super) state: Option<Json>,
    pub(super) src_address: Option<IpAddr>,
    pub(super) src_port: Option<u16>,
    pub(super) dst_address: Option<IpAddr>,
    pub(super) dst_port: Option<u16>,
    pub(super) rtt_us: Option<u64>,
    pub(super) rttvar_us: Option<u64>,
    pub(super) min_rtt_us: Option<u64>,
    pub(super) snd_cwnd_segments: Option<u64>,
    pub(super) total_retrans_segments: Option<u64>,
    pub(super) bytes_sent: Option<u64>,
    pub(super) bytes_received: Option<u64>,
    pub(super) bytes_retrans: Option<u64>,
    pub(super) send_queue: Option<u64>,
    pub(super) receive_queue: Option<u64>,
    pub(super) busy_time_us: Option<u64>,
    pub(super) rwnd_limited_us: Option<u64>,
    pub(super) sndbuf_limited_us: Option<u64>,
    pub(super) delivery_rate_app_limited: Option<bool>,
    pub(super) delivery_rate_bytes_per_sec: Option<u64>,
    pub(super) systemd_unit: Option<String>,
    pub(super) container_id: Option<String>,
    pub(super) netns_name: Option<String>,
}

/// Sockets that have something in common.
#[derive(Deserialize, Default)]
pub(super) struct Group {
    #[serde(default)]
    pub(super) key: String,
    pub(super) sockets: u64,
    pub(super) bytes_sent: String,
    pub(super) bytes_received: String,
    pub(super) bytes_retrans: String,
    pub(super) rtt_us_max: u64,
}

/// The sFlow analysis.
#[derive(Default)]
pub(super) struct Flows {
    pub(super) agents: Vec<Agent>,
    pub(super) tops: Vec<Top>,
    /// The heaviest of the last hour, where they are asked for.
    pub(super) hour: Option<Told<Vec<HourFlow>>>,
}

/// An sFlow agent.
#[derive(Deserialize)]
pub(super) struct Agent {
    pub(super) address: String,
    pub(super) sub_agent: u32,
    pub(super) datagrams: u64,
    /// Datagrams lost on the way.
    pub(super) lost: u64,
    pub(super) resets: u64,
    pub(super) samplers: Vec<Sampler>,
}

#[derive(Deserialize)]
pub(super) struct Sampler {
    agent_dropped: u64,
}

impl Agent {
    /// Samples that the agent dropped before sending.
    pub(super) fn dropped_there(&self) -> u64 {
        self.samplers.iter().map(|sampler| sampler.agent_dropped).sum()
    }
}

/// The heaviest flows of a definition.
#[derive(Deserialize)]
pub(super) struct Top {
    pub(super) definition: Definition,
    pub(super) flows: Vec<Flow>,
}

#[derive(Deserialize)]
pub(super) struct Definition {
    pub(super) name: String,
    pub(super) keys: Vec<String>,
    /// What it adds up: bytes, frames or samples.
    pub(super) value: String,
    /// `sampled` or `dropped`.
    pub(super) of: String,
    pub(super) samples: Samples,
}

#[derive(Deserialize)]
pub(super) struct Samples {
    pub(super) counted: u64,
}

#[derive(Deserialize)]
pub(super) struct Flow {
    pub(super) key: serde_json::Map<String, Json>,
    pub(super) per_s: Estimate,
    pub(super) samples: u64,
}

#[derive(Deserialize)]
pub(super) struct Estimate {
    pub(super) value: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// What a flow carried in the last hour.
pub(super) struct HourFlow {
    pub(super) definition: String,
    pub(super) key: String,
    pub(super) bytes: u64,
    pub(super) low: u64,
    pub(super) high: u64,
    pub(super) samples: u64,
}

/// A connection that has ended.
pub(super) struct Close {
    pub(super) time_unix_ns: u64,
    /// How it ended, as the ledger counts it.
    pub(super) end: String,
    pub(super) local: String,
    pub(super) peer: String,
    pub(super) seen_us: Option<u64>,
    pub(super) rtt_us: Option<u64>,
    pub(super) retransmitted: Option<u64>,
    pub(super) bytes_sent: Option<u64>,
    pub(super) bytes_received: Option<u64>,
    pub(super) whose: String,
}

/// A row of the history, with the names of its columns.
struct Row<'a> {
    names: &'a HashMap<&'a str, usize>,
    values: &'a [Json],
}

impl Row<'_> {
    fn value(&self, name: &str) -> &Json {
        const NULL: &Json = &Json::Null;
        self.names.get(name).and_then(|&at| self.values.get(at)).unwrap_or(NULL)
    }

    /// Numbers beyond 2^53 are texts.
    fn number(&self, name: &str) -> Option<u64> {
        match self.value(name) {
            Json::String(text) => text.parse().ok(),
            value => value.as_u64().or_else(|| value.as_f64().map(|number| number as u64)),
        }
    }

    fn text(&self, name: &str) -> String {
        match self.value(name) {
            Json::String(text) => text.clone(),
            Json::Null => String::new(),
            value => value.to_string(),
        }
    }

    fn stretch(&self, value: f64) -> Stretch {
        let begin_ms = self.number("bucket_unix_ns").unwrap_or(0) / 1_000_000;
        let width_ms = (self.number("width_ns").unwrap_or(0) / 1_000_000).max(1);
        Stretch { begin_ms, end_ms: begin_ms + width_ms, value }
    }
}

/// Reads an answer of `GET /query/NAME`, row by row.
fn rows<T>(answer: &str, mut read: impl FnMut(&Row<'_>) -> T) -> serde_json::Result<Vec<T>> {
    #[derive(Deserialize)]
    struct Named {
        name: String,
    }
    #[derive(Deserialize)]
    struct Answer {
        columns: Vec<Named>,
        rows: Vec<Vec<Json>>,
    }

    let answer: Answer = serde_json::from_str(answer)?;
    let names = answer.columns.iter().enumerate().map(|(at, column)| (&*column.name, at)).collect();
    let row = |values: &Vec<Json>| read(&Row { names: &names, values });
    Ok(answer.rows.iter().map(row).collect())
}

pub(super) fn closes(answer: &str) -> serde_json::Result<Vec<Close>> {
    rows(answer, |row| {
        let endpoint = |address: &str, port: &str| {
            let port = row.number(port).and_then(|port| port.try_into().ok());
            endpoint(&row.text(address), port)
        };
        let whose = ["systemd_unit", "process_name", "netns_name"].map(|name| row.text(name));
        Close {
            time_unix_ns: row.number("time_unix_ns").unwrap_or(0),
            end: row.text("close_reason"),
            local: endpoint("src_address", "src_port"),
            peer: endpoint("dst_address", "dst_port"),
            seen_us: row.number("seen_ns").filter(|&ns| ns > 0).map(|ns| ns / 1_000),
            rtt_us: row.number("rtt_us").filter(|&us| us > 0),
            retransmitted: row.number("total_retrans_segments"),
            bytes_sent: row.number("bytes_sent"),
            bytes_received: row.number("bytes_received"),
            whose: whose.into_iter().find(|name| !name.is_empty()).unwrap_or_default(),
        }
    })
}

pub(super) fn hour(answer: &str) -> serde_json::Result<Vec<HourFlow>> {
    rows(answer, |row| HourFlow {
        definition: row.text("definition"),
        key: row.text("key"),
        bytes: row.number("total_bytes").unwrap_or(0),
        low: row.number("total_bytes_low").unwrap_or(0),
        high: row.number("total_bytes_high").unwrap_or(0),
        samples: row.number("total_samples").unwrap_or(0),
    })
}

/// A hop in the ledger: its kind, origin and target.
pub(super) type Place = (String, String, String);

/// What the daemon's history says of the time before the start.
#[derive(Default)]
pub(super) struct Past {
    /// What left each hop, per second.
    pub(super) delivered: HashMap<Place, Vec<Stretch>>,
    pub(super) arrived: Vec<Stretch>,
    pub(super) lost: Vec<Stretch>,
}

/// Reads `ledger-rates`, whose newest rows come first: where it ends at its limit, it is the oldest that are missing.
pub(super) fn past(answer: &str) -> serde_json::Result<Past> {
    let mut past = Past::default();
    rows(answer, |row| {
        let amount = row.number("amount").unwrap_or(0) as f64;
        let stretch = row.stretch(amount);
        let stretch = row.stretch(amount * 1e3 / (stretch.end_ms - stretch.begin_ms) as f64);
        let place = (row.text("hop"), row.text("origin"), row.text("target"));
        match &*row.text("way") {
            "delivered" => past.delivered.entry(place).or_default().push(stretch),
            "received" if place.0 == "socket" => add(&mut past.arrived, stretch),
            "dropped" | "rejected" | "uncertain" => add(&mut past.lost, stretch),
            _ => {}
        }
    })?;
    for line in past.delivered.values_mut().chain([&mut past.arrived, &mut past.lost]) {
        line.reverse();
    }
    Ok(past)
}

/// Adds to the figure of the same time, which came just before.
fn add(all: &mut Vec<Stretch>, stretch: Stretch) {
    match all.last_mut().filter(|last| last.begin_ms == stretch.begin_ms) {
        Some(last) => last.value += stretch.value,
        None => all.push(stretch),
    }
}

/// Reads `rtt-heat`: the median and the 99th percentile over time.
pub(super) fn round_trips(answer: &str) -> serde_json::Result<[Vec<Stretch>; 2]> {
    let mut columns: Vec<(Stretch, Vec<(u64, u64)>)> = Vec::new();
    rows(answer, |row| {
        let stretch = row.stretch(0.0);
        let band = (row.number("low_us").unwrap_or(0), row.number("samples").unwrap_or(0));
        match columns.last_mut().filter(|(last, _)| last.begin_ms == stretch.begin_ms) {
            Some((_, bands)) => bands.push(band),
            None => columns.push((stretch, vec![band])),
        }
    })?;
    let line = |share| {
        let value = |(stretch, bands): &(Stretch, Vec<_>)| {
            let value = quantile(bands, share)?;
            Some(Stretch { value: value as f64, ..*stretch })
        };
        columns.iter().filter_map(value).collect()
    };
    Ok([line(0.5), line(0.99)])
}

/// The lower bound of the band that has this share of all below or in it; `None` if all are empty.
pub(super) fn quantile(bands: &[(u64, u64)], share: f64) -> Option<u64> {
    let all: u64 = bands.iter().map(|(_, count)| count).sum();
    let wanted = (all as f64 * share).ceil() as u64;
    let mut below = 0;
    let reaches = |(_, count): &&(u64, u64)| {
        below += count;
        below >= wanted && all > 0
    };
    bands.iter().find(reaches).map(|(low, _)| *low)
}

/// An address with its port, as `weir sockets` writes it.
pub(super) fn endpoint(address: &str, port: Option<u16>) -> String {
    let port = port.filter(|&port| port != 0).map_or("*".to_owned(), |port| port.to_string());
    match address.contains(':') {
        true => format!("[{address}]:{port}"),
        false => format!("{address}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_becomes_rates() {
        let answer = r#"{"columns":[{"name":"bucket_unix_ns"},{"name":"width_ns"},{"name":"hop"},{"name":"origin"},{"name":"target"},{"name":"way"},{"name":"amount"}],
            "rows":[["1795627010000000000",10000000000,"socket","in","","received",10],
                    ["1795627000000000000",10000000000,"socket","in","","received",500],
                    ["1795627000000000000",10000000000,"socket","other","","received",500],
                    ["1795627000000000000",10000000000,"target","in","old","dropped",20],
                    ["1795627000000000000",10000000000,"egress","in","old","delivered",480]]}"#;
        let past = past(answer).unwrap();
        let begin_ms = 1_795_627_000_000;
        let stretch = |value| [Stretch { begin_ms, end_ms: begin_ms + 10_000, value }];
        let later = Stretch { begin_ms: begin_ms + 10_000, end_ms: begin_ms + 20_000, value: 1.0 };
        assert_eq!(past.arrived, [stretch(100.0)[0], later], "oldest first");
        assert_eq!(past.lost, stretch(2.0));
        let place = ("egress".to_owned(), "in".to_owned(), "old".to_owned());
        assert_eq!(past.delivered[&place], stretch(48.0));
    }

    #[test]
    fn quantiles_are_the_lower_bounds_of_their_bands() {
        let bands = [(64, 98), (96, 1), (1024, 1)];
        assert_eq!(
            [0.5, 0.99, 1.0].map(|share| quantile(&bands, share)),
            [Some(64), Some(96), Some(1024)]
        );
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn endpoints() {
        assert_eq!(endpoint("192.0.2.1", Some(443)), "192.0.2.1:443");
        assert_eq!(endpoint("2001:db8::1", None), "[2001:db8::1]:*");
    }
}
