//! Every format is read by a program that is not ours.

use super::rig::{connect, sockets, text};
use std::fs;
use std::process::Command;
use testkit::{TempDir, find_tool, need_python_module, run};

#[test]
fn every_format_is_read_by_others_with_the_same_values() {
    if !["google.protobuf", "grpc_tools", "msgpack"].iter().all(|module| need_python_module(module))
    {
        return;
    }
    let folder = TempDir::new();
    let connection = connect("[::1]:0");
    let filter = connection.filter();
    for format in ["json", "jsonl", "csv", "tsv", "protobuf", "prototext", "protojson", "msgpack"] {
        let output = sockets(&[&filter, "--format", format]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{format}");
        fs::write(folder.file(format), output.stdout).unwrap();
    }
    let script = testkit::root().join("crates/weir/tests/weir/sockets/read_formats.py");
    let proto = testkit::root().join("proto");
    let mut python = Command::new(find_tool("weir-python").unwrap());
    python.arg(script).arg(folder.path()).arg(proto);
    let near = connection.near_address().port().to_string();
    let far = connection.far_address().port().to_string();
    let said = run(python.args([near, far]));
    assert!(said.contains("8 formats agree"), "{said}");
}

#[test]
fn columns_choose_fields_and_json_is_an_array_even_when_it_is_empty() {
    let connection = connect("127.0.0.1:0");
    let only = format!("src {}", connection.near_address());
    let line = text(sockets(&[&only, "--format", "jsonl", "--columns", "peer,rtt_us"]));
    let object: serde_json::Value = serde_json::from_str(&line).unwrap();
    let names: Vec<_> = object.as_object().unwrap().keys().collect();
    assert_eq!(names, ["dst_address", "dst_port", "rtt_us"]);
    assert_eq!(text(sockets(&["--json", "src 127.0.0.1:1 and dst 127.0.0.1:1"])).trim(), "[]");
    let csv = text(sockets(&[&only, "--format", "csv", "--columns", "local"]));
    assert_eq!(
        csv,
        format!("src_address,src_port\n127.0.0.1,{}\n", connection.near_address().port())
    );
    let port = connection.near_address().port();
    for (format, tab) in [("csv", ","), ("tsv", "\t")] {
        let said = text(sockets(&[&only, "--format", format, "--columns", "state,local,family"]));
        let names = ["state", "src_address", "src_port", "family"].join(tab);
        let port = port.to_string();
        let row = ["established", "127.0.0.1", port.as_str(), "inet"].join(tab);
        assert_eq!(said, format!("{names}\n{row}\n"), "columns come in the order of --columns");
    }
}

#[test]
fn records_say_whose_they_are() {
    let connection = connect("127.0.0.1:0");
    let only = format!("src {}", connection.near_address());
    let line = text(sockets(&[&only, "--format", "jsonl", "--processes"]));
    let object: serde_json::Value = serde_json::from_str(&line).unwrap();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let inode = fs::read_link("/proc/self/ns/net").unwrap();
    assert_eq!(object["boot_id"], boot.trim());
    assert_eq!(object["host"], host.trim());
    assert!(object["run_id"].as_u64() > Some(0) && object["kernel_release"].is_string());
    assert_eq!(object["schema_version"], 1);
    assert_eq!(inode.to_str().unwrap(), format!("net:[{}]", object["netns_inode"]));
    assert_eq!(object["process_id"], std::process::id());
    assert!(object["time_unix_ns"].as_u64().unwrap() > 1_600_000_000_000_000_000);
    assert!(object["tcp_info_len_bytes"].as_u64().unwrap() >= 104);
}
