//! Grafana's dashboard of a fleet: each panel's question, with what Grafana puts in, has rows in the shape that the panel draws.

use super::rows;
use super::view::{HOSTILE, fill, query};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};
use testkit::root;
use testkit::servers::{Server, unique};

const BOARD: &str = "deploy/grafana/fleet.json";

/// What a viewer chose.
struct Chosen {
    from_ms: u128,
    to_ms: u128,
    /// All of them if empty.
    hosts: Vec<&'static str>,
}

impl Chosen {
    /// The statement that the data source sends for one of a dashboard.
    fn substituted(&self, sql: &str) -> String {
        let value =
            |host: &&str| host.bytes().map(|byte| format!("{byte:02X}")).collect::<String>();
        let values = self.hosts.iter().map(value);
        let hosts = values.map(|value| format!("'{value}'")).collect::<Vec<_>>().join(",");
        let (from, to) = (self.from_ms, self.to_ms);
        let condition = "hex(raw.host) IN (${host:singlequote})";
        let is_all = if hosts.is_empty() { "1=1" } else { condition };
        let text = sql
            .replace(&format!("$__conditionalAll({condition}, $host)"), is_all)
            .replace("${host:singlequote}", &hosts)
            .replace("${cookie}", &rows::COOKIE.to_string())
            .replace("$__fromTime_ms", &format!("fromUnixTimestamp64Milli({from})"))
            .replace("$__toTime_ms", &format!("fromUnixTimestamp64Milli({to})"))
            .replace("$__interval_s", "15");
        assert!(!["$__", "${"].iter().any(|left| text.contains(left)), "{text}");
        text
    }
}

#[test]
fn each_panel_of_a_fleets_dashboard_has_rows_in_its_shape() {
    let Some(server) = Server::ClickHouse.shared() else { return };
    let database = unique("fleet_board");
    fill(server, &database, "");
    let at = format!("clickhouse://{server}/{database}");
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let chosen = |hosts| Chosen {
        from_ms: (now - Duration::from_secs(6 * 3_600)).as_millis(),
        to_ms: now.as_millis(),
        hosts,
    };
    let board = std::fs::read_to_string(root().join(BOARD)).unwrap();
    let board: Value = serde_json::from_str(&board).unwrap();

    let panels = board["panels"].as_array().unwrap().iter();
    for panel in panels.filter(|panel| panel["type"] != "row") {
        let title = panel["title"].as_str().unwrap();
        let sql = panel["targets"][0]["rawSql"].as_str().unwrap();
        let mut counts = Vec::new();
        for hosts in [vec![], vec![rows::HOST], vec![rows::HOST, HOSTILE]] {
            let sql = chosen(hosts).substituted(sql);
            let answer = query(&at, &[&sql, "--max-rows", "100000"]);
            let rows = answer["rows"].as_array().unwrap();
            assert!(!rows.is_empty(), "{title}: {sql}");
            check_shape(panel, &answer, &query(&at, &[&format!("DESCRIBE ({sql})")]));
            counts.push(rows.len());
        }
        println!("{title}: {counts:?} rows of all hosts, of one, and of two");
    }

    let variable = &board["templating"]["list"][1];
    assert_eq!(variable["name"], "host");
    let hosts = query(&at, &[variable["query"].as_str().unwrap()]);
    let hosts = hosts["rows"].as_array().unwrap();
    assert!(hosts.len() == 3 && hosts.iter().any(|row| row[1] == HOSTILE), "{hosts:?}");
}

/// Whether a panel of this type can draw the answer, with a unit for each column that has one.
fn check_shape(panel: &Value, answer: &Value, described: &Value) {
    let title = panel["title"].as_str().unwrap();
    let columns = described["rows"].as_array().unwrap().iter();
    let columns: Vec<(&str, &str)> =
        columns.map(|row| (row[0].as_str().unwrap(), row[1].as_str().unwrap())).collect();
    let inner = |of: &str| {
        of.trim_start_matches("LowCardinality(").trim_start_matches("Nullable(").to_owned()
    };
    let is_number =
        |of: &str| ["Int", "UInt", "Float"].iter().any(|kind| inner(of).starts_with(kind));
    let is_time = |of: &str| inner(of).starts_with("DateTime");
    let rows = answer["rows"].as_array().unwrap();

    match panel["type"].as_str().unwrap() {
        "timeseries" => {
            assert!(columns[0].0 == "time" && is_time(columns[0].1), "{title}: {columns:?}");
            assert!(columns.iter().any(|(_, of)| is_number(of)), "{title}: {columns:?}");
            // Others are labels of a curve.
            let is_known = |of: &str| is_number(of) || inner(of).starts_with("String");
            assert!(columns[1..].iter().all(|(_, of)| is_known(of)), "{title}: {columns:?}");
            // The plugin makes curves of rows that are in order.
            let times: Vec<&str> = rows.iter().map(|row| row[0].as_str().unwrap()).collect();
            assert!(times.is_sorted(), "{title}: {times:?}");
            assert!(times.iter().collect::<BTreeSet<_>>().len() > 5, "{title}: {times:?}");
            let numbers = rows.iter().flat_map(|row| &row.as_array().unwrap()[1..]);
            assert!(numbers.filter_map(Value::as_f64).any(|number| number > 0.0), "{title}");
        }
        "stat" => {
            assert!(
                rows.len() == 1 && columns.iter().all(|(_, of)| is_number(of)),
                "{title}: {columns:?}"
            );
        }
        "table" => {
            let units = answer["columns"].as_array().unwrap();
            for ((name, of), column) in columns.iter().zip(units) {
                // Numbers beyond 2^53 are not exact in a browser, and times in nanoseconds are beyond it.
                assert!(!name.ends_with("_unix_ns") || is_time(of), "{title}: {name} {of}");
                assert!(
                    !["cookie", "run_id"].contains(name) || inner(of).starts_with("String"),
                    "{title}: {name} {of}"
                );
                let unit = match column["unit"].as_str().unwrap_or_default() {
                    "ns" if is_time(of) => continue,
                    "µs" => "µs",
                    "ns" => "ns",
                    "bytes" => "bytes",
                    _ if name.ends_with("_share") => "percentunit",
                    _ => continue,
                };
                let sets = |one: &&Value| {
                    one["matcher"]["options"] == *name && one["properties"][0]["value"] == unit
                };
                let overrides = panel["fieldConfig"]["overrides"].as_array().unwrap();
                assert!(overrides.iter().any(|one| sets(&one)), "{title}: {name} is in {unit}");
            }
            let by = panel["options"]["sortBy"][0]["displayName"].as_str().unwrap();
            assert!(columns.iter().any(|(name, _)| *name == by), "{title}: {by}");
        }
        other => panic!("{title}: {other}"),
    }
}
