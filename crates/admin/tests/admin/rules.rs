//! The alerts of `deploy/prometheus`: each fires when it should, on metrics that exist.

use admin::metrics::FAMILIES;
use ledger::{HopKind, Reason};
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::{find_tool, need_tool};

const RULES: &str = "weir.rules.yaml";
const TESTS: &str = "weir.rules.test.yaml";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/prometheus")
}

fn text(name: &str) -> String {
    std::fs::read_to_string(folder().join(name)).unwrap()
}

#[test]
fn the_alerts_fire_when_they_should() {
    if !need_tool("promtool") {
        return;
    }
    for args in [["check", "rules", RULES], ["test", "rules", TESTS]] {
        let promtool = find_tool("promtool").unwrap();
        let output = Command::new(promtool).args(args).current_dir(folder()).output().unwrap();
        let said =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {said}");
    }
}

#[test]
fn every_alert_is_tested_and_reads_metrics_that_exist() {
    let (rules, tests) = (text(RULES), text(TESTS));
    let alerts: Vec<_> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(!alerts.is_empty());
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
fn no_alert_is_about_what_a_setting_asks_for() {
    let intended: Vec<_> = Reason::at(HopKind::Sink)
        .filter(|reason| reason.is_intended())
        .map(Reason::label)
        .collect();
    let selector = format!("weir_sink_dropped_records_total{{reason!~\"{}\"}}", intended.join("|"));
    assert!(text(RULES).contains(&selector), "{selector}");
}
