//! The alerts in `deploy/prometheus`: each fires when it should, uses existing metrics, and says what to do.

use admin::metrics::FAMILIES;
use ledger::{HopKind, Reason};
use std::path::PathBuf;
use std::process::Command;
use testkit::{find_tool, need_tool};

const RULES: &str = "weir.rules.yaml";

fn folder() -> PathBuf {
    testkit::root().join("deploy/prometheus")
}

fn rules() -> String {
    std::fs::read_to_string(folder().join(RULES)).unwrap()
}

/// The files with tests of the alerts.
fn tests() -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let tests: Vec<_> =
        files.filter(|path| path.to_string_lossy().ends_with(".test.yaml")).collect();
    assert!(tests.len() >= 4, "{tests:?}");
    tests
}

/// The values of all lines that begin with this key.
fn values<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    text.lines().filter_map(|line| line.trim().strip_prefix(key)).collect()
}

#[test]
fn the_alerts_fire_when_they_should() {
    if !need_tool("promtool") {
        return;
    }
    let promtool = |check: &str, files: &[PathBuf]| {
        let mut promtool = Command::new(find_tool("promtool").unwrap());
        let output = promtool.args([check, "rules"]).args(files).output().unwrap();
        let said =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{files:?}: {said}");
    };
    promtool("check", &[folder().join(RULES)]);
    promtool("test", &tests());
}

#[test]
fn every_alert_is_tested_and_reads_metrics_that_exist() {
    let rules = rules();
    let tests: String = tests().iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    let alerts = values(&rules, "- alert: ");
    assert!(alerts.len() >= 30, "{alerts:?}");
    for alert in alerts {
        let fires = format!("alertname: {alert}\n        exp_alerts:\n          - exp_labels");
        assert!(tests.contains(&fires), "no test sees {alert} fire");
        let is_quiet = format!("alertname: {alert}, exp_alerts: []");
        assert!(tests.contains(&is_quiet), "no test sees {alert} not fire");
    }

    let words = |text: &str| -> Vec<String> {
        let is_part = |char: char| char.is_ascii_alphanumeric() || char == '_';
        text.split(|char| !is_part(char)).map(str::to_owned).collect()
    };
    for name in words(&rules).iter().chain(&words(&tests)).filter(|w| w.starts_with("weir_")) {
        assert!(FAMILIES.iter().any(|family| family.name == name), "{name} is no metric");
    }
}

#[test]
fn every_alert_says_where_its_runbook_is() {
    let rules = rules();
    let (alerts, runbooks) = (values(&rules, "- alert: "), values(&rules, "runbook: "));
    assert_eq!(alerts.len(), runbooks.len());
    for (alert, runbook) in alerts.iter().zip(runbooks) {
        let (page, anchor) = runbook.split_once('#').unwrap();
        assert_eq!(anchor, alert.to_lowercase());
        let page = std::fs::read_to_string(testkit::root().join(page)).unwrap();
        assert!(page.lines().any(|line| line == format!("### {alert}")), "{alert}");
    }
}

#[test]
fn no_alert_is_about_what_a_setting_asks_for() {
    let rules = rules();
    let mut selectors = 0;
    for (metric, hop) in [
        ("weir_relay_dropped_datagrams_total", HopKind::Receive),
        ("weir_relay_target_dropped_datagrams_total", HopKind::Target),
        ("weir_sockets_dropped_records_total", HopKind::Poll),
        ("weir_sockets_dropped_close_records_total", HopKind::Close),
        ("weir_flows_dropped_datagrams_total", HopKind::Analysis),
        ("weir_sink_dropped_records_total", HopKind::Sink),
    ] {
        let intended = Reason::at(hop).filter(|reason| reason.is_intended()).map(Reason::label);
        let selector = format!("{metric}{{reason!~\"{}\"", intended.collect::<Vec<_>>().join("|"));
        assert!(rules.contains(&selector), "{selector}");
        selectors += rules.matches(&selector).count();
    }
    assert_eq!(rules.matches("{reason!~").count(), selectors, "another selector of reasons");
}
