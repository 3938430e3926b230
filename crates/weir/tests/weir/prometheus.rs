//! A Prometheus that scrapes a daemon.

use serde_json::Value;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use testkit::{Process, TempDir, find_tool, free_port, try_get, wait_for};

pub(crate) struct Prometheus {
    _process: Process,
    address: SocketAddr,
    _dir: TempDir,
}

impl Prometheus {
    /// One that scrapes an address every second.
    pub(crate) fn scraping(target: SocketAddr) -> Prometheus {
        Prometheus::start(&[target], "1s", None)
    }

    /// One that scrapes addresses and evaluates rules at this interval.
    pub(crate) fn with_rules(targets: &[SocketAddr], interval: &str, rules: &Path) -> Prometheus {
        Prometheus::start(targets, interval, Some(rules))
    }

    /// One that scrapes an address every second, with these lines in its scrape configuration.
    #[cfg(feature = "tls")]
    pub(crate) fn scraping_with(target: SocketAddr, lines: &str) -> Prometheus {
        Prometheus::start_with(&[target], "1s", None, lines)
    }

    fn start(targets: &[SocketAddr], interval: &str, rules: Option<&Path>) -> Prometheus {
        Prometheus::start_with(targets, interval, rules, "")
    }

    fn start_with(
        targets: &[SocketAddr],
        interval: &str,
        rules: Option<&Path>,
        lines: &str,
    ) -> Prometheus {
        let dir = TempDir::new();
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let targets: Vec<String> = targets.iter().map(SocketAddr::to_string).collect();
        let mut config = format!(
            "global:\n  scrape_interval: {interval}\n  scrape_timeout: {interval}\n  evaluation_interval: {interval}\n\
             scrape_configs:\n  - job_name: weir\n    static_configs:\n      - targets: {targets:?}\n{lines}"
        );
        if let Some(rules) = rules {
            config += &format!("rule_files: ['{}']\n", rules.display());
        }
        fs::write(dir.file("prometheus.yml"), config).unwrap();

        let mut command = Command::new(find_tool("prometheus").unwrap());
        command
            .arg(format!("--config.file={}", dir.text("prometheus.yml")))
            .arg(format!("--storage.tsdb.path={}", dir.text("data")))
            .arg(format!("--web.listen-address={address}"));
        Prometheus { _process: Process::start(command), address, _dir: dir }
    }

    /// The values that a query has now, each with its labels. None before it can answer, which is later than it listens.
    pub(crate) fn query(&self, query: &str) -> Vec<Value> {
        let answer = self.try_query(query).unwrap_or_default();
        answer["result"].as_array().cloned().unwrap_or_default()
    }

    /// The same, or why there is no answer.
    pub(crate) fn try_query(&self, query: &str) -> Result<Value, String> {
        let letters = query.bytes().map(|byte| format!("%{byte:02x}"));
        self.ask(&format!("/api/v1/query?query={}", letters.collect::<String>()))
    }

    /// The data of a page of its API.
    pub(crate) fn ask(&self, path: &str) -> Result<Value, String> {
        let text = try_get(self.address, path, "application/json")?;
        let answer: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        Ok(answer["data"].clone())
    }

    pub(crate) fn until(&self, query: &str, is_wanted: impl Fn(f64) -> bool) -> Value {
        let value = |one: &Value| one["value"][1].as_str().and_then(|text| text.parse().ok());
        wait_for(
            || format!("{query}: {:?}", self.try_query(query)),
            || self.query(query).into_iter().find(|one| value(one).is_some_and(&is_wanted)),
        )
    }
}
