//! The dashboard of a fleet: the named questions, asked of ClickHouse.

use super::FLEET;
use super::dashboard::{Frame, Placed, SCREEN_WIDTH};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use store::{ClickHouse, Column, NAMED, Named, Parameters};

const TITLE: &str = "Weir: a fleet";
const SOURCE: &str = "grafana-clickhouse-datasource";

/// What stands in a statement in the place of what Grafana puts there. No two are part of each other, and no time is a whole minute,
/// so that a time and the minute that it lies in differ.
const DATABASE: &str = "DATABASE";
const HOST: &str = "HOST";
const COOKIE: u64 = 7_777_777_777_777;
const SINCE_NS: u64 = 1_111_111_111_000_000_000;
/// So much later that a span is five minutes, and that sums are by the minute.
const UNTIL_NS: u64 = SINCE_NS + 5 * 3_600_000_000_000;
const SPAN_NS: u64 = 300_000_000_000;
const MINUTE_NS: u64 = 60_000_000_000;

/// One question.
struct Panel {
    title: &'static str,
    description: &'static str,
    unit: &'static str,
    shape: Shape,
    /// The named question.
    name: &'static str,
    limit: u32,
    /// What is shown of its rows, and what follows the question.
    select: &'static str,
    tail: &'static str,
    /// Columns with a unit that their question's head does not list.
    more: &'static [&'static str],
}

enum Shape {
    /// Figures of the chosen time.
    Figures,
    /// Curves over time; the width.
    Lines(u32),
    /// Rows, sorted by this column.
    Table(&'static str),
}

const TIME: &str = "fromUnixTimestamp64Nano(toInt64(bucket_unix_ns)) AS time";

const COMPLETE: &[Panel] = &[
    Panel {
        title: "Is anything missing?",
        description: "In the chosen time, up to a minute before its end: hosts whose polls ClickHouse has, numbered records that it does not have, and what the polls themselves could not see.",
        unit: "none",
        shape: Shape::Figures,
        name: "completeness",
        limit: 1_000_000,
        select: "uniqExact(host) AS hosts, count() AS runs, sum(made) AS records, sum(missing) AS missing, sum(lost_sockets) AS `lost sockets`, \
                 sum(lost_closes) AS `lost closes`, sum(unobserved_closes) AS `unobserved closes`, sum(failed_namespaces) AS `failed namespaces`",
        tail: "",
        more: &[],
    },
    Panel {
        title: "Whose records are complete?",
        description: "Each run of a collector, the one with the most missing records first. Records that wait in queues or in Kafka count as missing.",
        unit: "none",
        shape: Shape::Table("missing"),
        name: "completeness",
        limit: 200,
        select: "* REPLACE (fromUnixTimestamp64Nano(toInt64(last_unix_ns)) AS last_unix_ns, toString(run_id) AS run_id)",
        tail: "",
        more: &[],
    },
    Panel {
        title: "How many records are made?",
        description: "Records per second that polls and closes made, of all chosen hosts.",
        unit: "cps",
        shape: Shape::Lines(8),
        name: "poll-rates",
        limit: 0,
        select: "made * 1e9 / width_ns AS records",
        tail: "ORDER BY time",
        more: &[],
    },
    Panel {
        title: "What do polls lose?",
        description: "Sockets and closes per second of which no record could be made, and connections that ended without an event.",
        unit: "cps",
        shape: Shape::Lines(8),
        name: "poll-rates",
        limit: 0,
        select: "lost_sockets * 1e9 / width_ns AS `lost sockets`, lost_closes * 1e9 / width_ns AS `lost closes`, \
                 unobserved_closes * 1e9 / width_ns AS `unobserved closes`",
        tail: "ORDER BY time",
        more: &[],
    },
    Panel {
        title: "How many hosts report?",
        description: "Hosts with at least one poll in each interval.",
        unit: "none",
        shape: Shape::Lines(8),
        name: "poll-rates",
        limit: 0,
        select: "reporting AS hosts",
        tail: "ORDER BY time",
        more: &[],
    },
];

const SLOW: &[Panel] = &[
    Panel {
        title: "Since when are round-trip times as they are?",
        description: "Below these times were half, 90% and 99% of the round-trip times of all sockets. Each is the end of a band, of which there are two for each doubling.",
        unit: "µs",
        shape: Shape::Lines(12),
        name: "rtt-heat",
        limit: 0,
        select: "quantileExactWeighted(0.5)(high_us, samples) AS half, quantileExactWeighted(0.9)(high_us, samples) AS `90%`, \
                 quantileExactWeighted(0.99)(high_us, samples) AS `99%`",
        tail: "GROUP BY time ORDER BY time",
        more: &[],
    },
    Panel {
        title: "How do connections end?",
        description: "Connections per second by the way in which they ended; docs/records.md explains each.",
        unit: "cps",
        shape: Shape::Lines(12),
        name: "closes-by-end",
        limit: 0,
        select: "ifNull(close_reason, 'unknown') AS end, closed * 1e9 / width_ns AS closed",
        tail: "ORDER BY time, end",
        more: &[],
    },
    worst("Which peers are slowest?", "worst-peers", "network of the peer"),
    worst("Which services are slowest?", "worst-services", "port of the service"),
    worst("Which units and containers are slowest?", "worst-units", "unit, container or pod"),
    Panel {
        title: "Which processes send most again?",
        description: "By process, unit and peer. Processes are known where `processes = true` stands under [sockets].",
        shape: Shape::Table("retransmitted_bytes"),
        ..worst("", "worst-retransmits", "")
    },
    Panel {
        title: "Whose connections ended how?",
        description: "By process and unit. Processes are known where `processes = true` stands under [sockets].",
        shape: Shape::Table("closed"),
        ..worst("", "closes-by-process", "")
    },
    Panel {
        title: "Which connections ended last?",
        description: "And how. A cookie leads to that connection's life, below.",
        unit: "none",
        shape: Shape::Table("time_unix_ns"),
        name: "recent-closes",
        limit: 100,
        select: "* REPLACE (fromUnixTimestamp64Nano(toInt64(time_unix_ns)) AS time_unix_ns, toString(cookie) AS cookie)",
        tail: "",
        more: &["seen_ns", "rtt_us", "min_rtt_us", "bytes_sent", "bytes_received", "bytes_retrans"],
    },
];

const fn worst(title: &'static str, name: &'static str, description: &'static str) -> Panel {
    Panel {
        title,
        description,
        unit: "none",
        shape: Shape::Table("rtt_p99_us"),
        name,
        limit: 50,
        select: "*",
        tail: "",
        more: &[],
    }
}

const FLOWS: &[Panel] = &[
    Panel {
        title: "Which flows carry most?",
        description: "Estimates in the chosen time, with the bounds of their intervals added up, by definition and collector.",
        unit: "none",
        shape: Shape::Table("total_bytes"),
        name: "top-flows",
        limit: 50,
        select: "*",
        tail: "",
        more: &[],
    },
    Panel {
        title: "What does the network drop?",
        description: "Frames that switches and hosts said they dropped, where and why.",
        unit: "none",
        shape: Shape::Table("total_frames"),
        name: "flow-drops",
        limit: 50,
        select: "* REPLACE (fromUnixTimestamp64Nano(toInt64(first_unix_ns)) AS first_unix_ns, \
                 fromUnixTimestamp64Nano(toInt64(last_unix_ns)) AS last_unix_ns)",
        tail: "",
        more: &[],
    },
];

const CONNECTION: &[Panel] = &[
    Panel {
        title: "How long are its round-trip times?",
        description: "Of the connection whose cookie is chosen at the top: smoothed, their variation, and the shortest.",
        unit: "µs",
        shape: Shape::Lines(12),
        name: "connection",
        limit: 10_000,
        select: "host, rtt_us AS smoothed, rttvar_us AS variation, min_rtt_us AS shortest",
        tail: "ORDER BY time",
        more: &[],
    },
    Panel {
        title: "What does it send and send again?",
        description: "Bytes since the record before.",
        unit: "bytes",
        shape: Shape::Lines(12),
        name: "connection",
        limit: 10_000,
        select: "host, bytes_sent_delta AS sent, bytes_received_delta AS received, bytes_retrans_delta AS `sent again`",
        tail: "ORDER BY time",
        more: &[],
    },
];

const ROWS: &[(&str, &[Panel])] = &[
    ("Records and polls", COMPLETE),
    ("Connections", SLOW),
    ("Flows", FLOWS),
    ("One connection", CONNECTION),
];

/// What Grafana imports.
pub(super) fn json() -> String {
    let frame = Frame {
        file: FLEET,
        title: TITLE,
        description: "Whose records are complete, what is slowest, how connections end, and what flows carry: the named questions of `weir query`, asked of ClickHouse.",
    };
    let rows = ROWS.iter().map(|(title, panels)| -> Placed {
        (title, panels.iter().map(|panel| (panel.size(), panel.json())).collect())
    });
    frame.json(variables(), rows.collect())
}

fn variables() -> Vec<Value> {
    let hosts = "SELECT DISTINCT hex(host), host FROM polls WHERE time >= now() - INTERVAL 1 DAY ORDER BY host";
    vec![
        json!({
            "name": "DS_CLICKHOUSE", "label": "ClickHouse", "type": "datasource", "query": SOURCE,
            "current": {}, "hide": 0, "refresh": 1,
        }),
        json!({
            "name": "host", "type": "query", "datasource": source(), "query": hosts, "definition": hosts, "refresh": 2,
            "includeAll": true, "multi": true, "current": { "text": "All", "value": "$__all" },
        }),
        json!({
            "name": "cookie", "label": "connection", "type": "textbox", "query": "0",
            "description": "The cookie of one connection, as the table of closes has it.",
            "current": { "text": "0", "value": "0" },
        }),
    ]
}

fn source() -> Value {
    json!({ "type": SOURCE, "uid": "${DS_CLICKHOUSE}" })
}

impl Panel {
    fn size(&self) -> (u32, u32) {
        match self.shape {
            Shape::Figures => (SCREEN_WIDTH, 4),
            Shape::Lines(width) => (width, 8),
            Shape::Table(_) => (SCREEN_WIDTH, 9),
        }
    }

    fn json(&self) -> Value {
        let (plugin, kind, format) = match self.shape {
            Shape::Figures => ("stat", "table", 1),
            Shape::Lines(_) => ("timeseries", "timeseries", 0),
            Shape::Table(_) => ("table", "table", 1),
        };
        let mut panel = json!({
            "type": plugin,
            "title": self.title,
            "description": self.about(),
            "datasource": source(),
            "targets": [{
                "refId": "A", "datasource": source(), "editorType": "sql", "queryType": kind, "format": format, "rawSql": self.sql(),
            }],
            "fieldConfig": { "defaults": { "unit": self.unit, "min": 0 }, "overrides": self.overrides() },
        });
        match self.shape {
            Shape::Figures => {
                panel["options"] = json!({
                    "colorMode": "value", "graphMode": "none",
                    "reduceOptions": { "calcs": ["lastNotNull"], "fields": "", "values": false },
                });
            }
            Shape::Lines(_) => {
                // Sums have a row for each minute.
                panel["interval"] = "1m".into();
                panel["options"] = json!({
                    "legend": { "displayMode": "list", "placement": "bottom", "showLegend": true },
                    "tooltip": { "mode": "multi", "sort": "desc" },
                });
            }
            Shape::Table(by) => {
                panel["options"] =
                    json!({ "showHeader": true, "sortBy": [{ "displayName": by, "desc": true }] });
            }
        }
        panel
    }

    fn about(&self) -> String {
        match self.description.ends_with('.') {
            true => self.description.to_owned(),
            false => format!(
                "By {}, the longest 99th percentile of round-trip times first, each with its host; and what held connections up.",
                self.description
            ),
        }
    }

    fn named(&self) -> &'static Named {
        Named::find(self.name).unwrap()
    }

    /// The question in ClickHouse's dialect, with what Grafana puts in.
    fn sql(&self) -> String {
        let tables = ClickHouse {
            database: DATABASE.into(),
            table_prefix: String::new(),
            host: Some(HOST.into()),
        };
        let parameters = Parameters {
            since_unix_ns: SINCE_NS,
            until_unix_ns: UNTIL_NS,
            limit: self.limit,
            cookie: Some(COOKIE),
            namespace: None,
        };
        let question = self.named().statement_for(&tables, &parameters).unwrap();
        let time = match self.shape {
            Shape::Lines(_) if self.name == "connection" => {
                "fromUnixTimestamp64Nano(toInt64(time_unix_ns)) AS time, "
            }
            Shape::Lines(_) => &format!("{TIME}, "),
            _ => "",
        };
        let text = format!("SELECT {time}{} FROM (\n{question}\n) {}", self.select, self.tail);

        // Records that are on their way for longer than a minute count as missing.
        let on_their_way_ms = if self.name == "completeness" { 60_000 } else { 0 };
        let since = "(toUnixTimestamp64Milli($__fromTime_ms) * 1000000)";
        let until = match on_their_way_ms {
            0 => "(toUnixTimestamp64Milli($__toTime_ms) * 1000000)".to_owned(),
            ms => format!("((toUnixTimestamp64Milli($__toTime_ms) - {ms}) * 1000000)"),
        };
        let minute_of = |time: &str| format!("(intDiv({time}, {MINUTE_NS}) * {MINUTE_NS})");
        let first = SINCE_NS / MINUTE_NS * MINUTE_NS;
        let end = UNTIL_NS.div_ceil(MINUTE_NS) * MINUTE_NS;
        let text = [
            (SINCE_NS.to_string(), since.to_owned()),
            (UNTIL_NS.to_string(), until.clone()),
            (first.to_string(), minute_of(since)),
            (end.to_string(), minute_of(&format!("({until} + {})", MINUTE_NS - 1))),
            (SPAN_NS.to_string(), "(greatest($__interval_s, 60) * 1000000000)".to_owned()),
            (COOKIE.to_string(), "${cookie}".to_owned()),
            // The database is the data source's.
            (format!("`{DATABASE}`."), String::new()),
            (
                format!("raw.host = '{HOST}'"),
                "$__conditionalAll(hex(raw.host) IN (${host:singlequote}), $host)".to_owned(),
            ),
        ]
        .iter()
        .fold(text, |text, (placeholder, value)| text.replace(placeholder, value));
        for left in [DATABASE, &format!("'{HOST}'"), "1111", "1129"] {
            assert!(!text.contains(left), "{left} in {text}");
        }
        text.trim_end().to_owned()
    }

    /// The unit of each column that has one, and where a cell leads.
    fn overrides(&self) -> Vec<Value> {
        if let Shape::Figures = self.shape {
            let red = json!({ "mode": "absolute", "steps": [{ "color": "green", "value": null }, { "color": "red", "value": 1 }] });
            return vec![json!({
                "matcher": { "id": "byRegexp", "options": "/missing|lost|unobserved|failed/" },
                "properties": [{ "id": "thresholds", "value": red }],
            })];
        }
        let Shape::Table(_) = self.shape else { return Vec::new() };

        let columns =
            self.named().columns().chain(self.more.iter().map(|name| Column::named(name)));
        let units = columns.filter_map(|column| {
            let unit = grafana_unit(&column.unit)?;
            Some(property(&column.name, "unit", unit.into()))
        });
        let url = format!(
            "/d/weir-{FLEET}?${{__url_time_range}}&${{DS_CLICKHOUSE:queryparam}}&var-cookie=${{__value.raw}}"
        );
        let link = json!([{ "title": "This connection", "url": url }]);
        units.chain([property("cookie", "links", link)]).collect()
    }
}

fn property(column: &str, id: &str, value: Value) -> Value {
    json!({
        "matcher": { "id": "byName", "options": column },
        "properties": [{ "id": id, "value": value }],
    })
}

/// Grafana's name of a unit; counts are shown with all their digits.
fn grafana_unit(unit: &str) -> Option<&'static str> {
    match unit {
        "µs" => Some("µs"),
        "ns" => Some("ns"),
        "bytes" => Some("bytes"),
        unit if unit.starts_with("of ") => Some("percentunit"),
        _ => None,
    }
}

#[test]
fn each_question_to_a_fleet_is_on_its_dashboard() {
    let asked: BTreeSet<&str> =
        ROWS.iter().flat_map(|(_, panels)| panels.iter().map(|panel| panel.name)).collect();
    let named = NAMED.iter().filter(|named| !named.is_of_one_machine());
    assert_eq!(asked, named.map(|named| named.name).collect());
}
