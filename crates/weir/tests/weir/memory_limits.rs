//! The memory limits of units, manifests and the chart are those that the program says their configurations need.

use crate::support::WEIR;
use serde_json::Value;
use std::fs;
use std::process::Command;
use testkit::{TempDir, generated, root, run};

#[test]
fn generated_drop_ins_are_what_the_command_prints_for_the_files_of_the_packages() {
    for name in ["weir", "weir-sockets"] {
        let file = root().join(format!("deploy/systemd/{name}.toml"));
        let option = format!("--systemd={name}.service");
        let printed = run(Command::new(WEIR).args(["config", "check", &option]).arg(file));
        generated(&format!("deploy/systemd/{name}.service.d/10-memory.conf"), &printed);

        // The kernel spares the service only where it has a limit.
        let unit = fs::read_to_string(root().join(format!("deploy/systemd/{name}.service")));
        assert!(!unit.unwrap().contains("OOMScoreAdjust"), "{name}");
        let mib = |name| setting(&printed, name).strip_suffix('M').unwrap().parse::<u64>().unwrap();
        assert!(mib("MemoryHigh") < mib("MemoryMax"), "{printed}");
        assert_eq!(setting(&printed, "OOMScoreAdjust"), "-500");
    }
}

fn setting<'a>(unit: &'a str, name: &str) -> &'a str {
    let value = |line: &'a str| line.strip_prefix(name)?.strip_prefix('=');
    unit.lines().find_map(value).unwrap()
}

#[test]
fn a_drop_in_is_for_the_unit_that_is_named() {
    let file = root().join("deploy/systemd/weir.toml");
    let check = |option| run(Command::new(WEIR).args(["config", "check", option]).arg(&file));
    assert!(check("--systemd").contains("/etc/systemd/system/weir.service.d/10-memory.conf"));
    assert!(check("--systemd=a.service").contains("/etc/systemd/system/a.service.d/"));
    assert!(
        check("--systemd").contains(&format!(
            "\nMemoryMax={}M\n",
            needed_mib(&fs::read_to_string(&file).unwrap())
        ))
    );
}

/// The limit that a configuration needs, in MiB.
fn needed_mib(config: &str) -> u64 {
    let dir = TempDir::new();
    fs::write(dir.file("weir.toml"), config).unwrap();
    let checked =
        run(Command::new(WEIR).args(["config", "check", "--json"]).arg(dir.file("weir.toml")));
    let checked: Value = serde_json::from_str(&checked).unwrap();
    checked["memory"]["service"]["max_bytes"].as_u64().unwrap() >> 20
}

/// The lines of a block that begins with `begin`, without their indent.
fn block(text: &str, begin: &str) -> String {
    let (_, rest) = text.split_once(begin).unwrap();
    let lines = rest.lines().take_while(|line| line.is_empty() || line.starts_with("    "));
    lines.map(|line| line.get(4..).unwrap_or_default().to_owned() + "\n").collect()
}

/// The text with this number of MiB in each line that ends with `mark`.
fn with_limit(text: &str, mark: &str, mib: u64) -> String {
    let word = |word: &str| match word.strip_suffix("Mi") {
        Some(number) => {
            let before = number.trim_end_matches(|char: char| char.is_ascii_digit());
            format!("{before}{mib}Mi")
        }
        None => word.to_owned(),
    };
    let line = |line: &str| match line.ends_with(mark) {
        true => line.split(' ').map(word).collect::<Vec<_>>().join(" "),
        false => line.to_owned(),
    };
    text.lines().map(|one| line(one) + "\n").collect()
}

fn check(path: &str, parts: &[(&str, &str)]) {
    let mut text = fs::read_to_string(root().join(path)).unwrap();
    for (begin, mark) in parts {
        assert!(text.lines().any(|line| line.ends_with(mark)), "{path}: {mark}");
        text = with_limit(&text, mark, needed_mib(&block(&text, begin)));
    }
    generated(path, &text);
}

#[test]
fn generated_limits_of_kubernetes_are_those_of_the_configurations() {
    let of_file = [("  weir.toml: |\n", "# by weir.toml")];
    check("deploy/kubernetes/weir.yaml", &of_file);
    check("deploy/kubernetes/weir-sockets.yaml", &of_file);
    let of_chart = [
        ("\nrelay:\n", "  config: |\n", "# by relay.config"),
        ("\ncollector:\n", "  config: |\n", "# by collector.config"),
    ];
    let path = "deploy/helm/weir/values.yaml";
    let mut text = fs::read_to_string(root().join(path)).unwrap();
    for (section, begin, mark) in of_chart {
        let config = block(text.split_once(section).unwrap().1, begin);
        assert!(text.lines().any(|line| line.ends_with(mark)), "{mark}");
        text = with_limit(&text, mark, needed_mib(&config));
    }
    generated(path, &text);
}

#[cfg(feature = "kafka")]
#[test]
fn generated_limits_of_kubernetes_with_kafka_are_those_of_the_configurations() {
    let of_file = [("  weir.toml: |\n", "# by weir.toml")];
    check("deploy/kubernetes/weir-kafka.yaml", &of_file);
    check("deploy/kubernetes/weir-sockets-kafka.yaml", &of_file);
}
