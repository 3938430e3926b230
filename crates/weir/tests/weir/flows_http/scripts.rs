//! Scripts of sFlow-RT against a daemon.

use super::{HEAVY, Playing, Rig, file};
use serde_json::{Value, json};
use std::fs;
use std::process::Command;
use testkit::{need_tool, signal, wait_for};

fn run_script(rig: &Rig, more: &[&str]) -> Value {
    let script = testkit::root().join("crates/weir/tests/weir/flows_http/ddos.py");
    let rest = format!("http://{}", rig.rest);
    let output = Command::new("python3").arg(script).arg(rest).args(more).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_published_script_hears_of_a_flood() {
    if !need_tool("python3") {
        return;
    }
    let rig = Rig::start("");
    let _playing = Playing::to(rig.weir.address());
    let told = run_script(&rig, &[]);
    assert_eq!(told["key"], "10.0.0.1,198.51.100.1", "{told}");
    for target in ["/flow/incoming/json", "/threshold/incoming/json", "/group/default/json"] {
        assert_eq!(rig.rest("GET", target, "").0, 404, "{target}");
    }
    assert_eq!(rig.weir.stop().code, Some(0));
}

#[test]
fn a_reload_forgets_what_scripts_defined_and_nothing_of_the_file() {
    if !need_tool("python3") {
        return;
    }
    let rig = Rig::start("");
    let _playing = Playing::to(rig.weir.address());
    run_script(&rig, &["keep"]);
    assert_eq!(rig.rest_json("/flow/json").as_object().unwrap().len(), 3);

    let text =
        file(rig.rest, rig.weir.address(), HEAVY).replace("events_max = 3", "events_max = 4");
    fs::write(rig.dir.file("weir.toml"), text).unwrap();
    signal(rig.weir.process(), "HUP");
    wait_for("the second life", || {
        (rig.rest("GET", "/flow/incoming/json", "").0 == 404).then_some(())
    });
    for target in ["/threshold/incoming/json", "/group/default/json"] {
        assert_eq!(rig.rest("GET", target, "").0, 404, "{target}");
    }
    assert_eq!(rig.rest_json("/threshold/json"), json!({}));
    // A flow of the file has its figures, and a script may begin anew.
    rig.until("/flows/top?flow=pairs", |top| top["flows"].as_array().unwrap().len() == 2);
    assert_eq!(run_script(&rig, &[])["key"], "10.0.0.1,198.51.100.1");
    assert_eq!(rig.weir.stop().code, Some(0));
}

#[test]
fn scripts_change_nothing_of_the_file() {
    let rig = Rig::start(HEAVY);
    let flow = r#"{"keys":"ipsource"}"#;
    for (method, target, body, status) in [
        ("PUT", "/flow/pairs/json", flow, 409),
        ("DELETE", "/flow/pairs/json", "", 409),
        ("PUT", "/threshold/heavy/json", r#"{"metric":"pairs","value":1}"#, 409),
        ("DELETE", "/threshold/heavy/json", "", 409),
        ("PUT", "/group/mine/json", r#"{"mine":["198.51.100.64/26"]}"#, 400),
        ("PUT", "/flow/own/json", flow, 200),
        ("DELETE", "/flow/own/json", "", 200),
    ] {
        let (told, text) = rig.rest(method, target, body);
        assert_eq!(told, status, "{method} {target}: {text}");
    }
    let [pairs, quiet] =
        ["pairs", "quiet"].map(|name| rig.rest_json(&format!("/flow/{name}/json")));
    assert_eq!((&pairs["keys"], &quiet["keys"]), (&json!("src,dst"), &json!("src")));
}

#[test]
fn hostile_requests_are_refused_and_the_next_is_answered() {
    let rig = Rig::start("");
    let long = format!("{{\"keys\":\"{}\"}}", "x".repeat(100_000));
    let deep = "[".repeat(60_000);
    let brackets = format!("{{\"keys\":\"{}\"}}", "[".repeat(50_000));
    for (body, status) in [
        ("", 400),
        ("\u{0}\u{1}", 400),
        ("nul", 400),
        (deep.as_str(), 400),
        (brackets.as_str(), 400),
        (long.as_str(), 413),
        (r#"{"keys":"\u001b[31m"}"#, 400),
        (r#"{"keys":"ipsource","n":1e999}"#, 400),
    ] {
        for target in ["/flow/x/json", "/threshold/x/json"] {
            let (told, text) = rig.rest("PUT", target, body);
            assert_eq!(told, status, "{target} {body:.40}: {text}");
            assert!(!text.trim_end().contains(char::is_control), "{text:?}");
        }
    }
    for target in ["/flow/%1b%5b31m/json", "/flow/..%2f..%2fetc/json", "/flow/%ff/json", "/%zz"] {
        let (told, text) = rig.rest("PUT", target, r#"{"keys":"ipsource"}"#);
        assert!((400..=405).contains(&told), "{target}: {told} {text}");
    }
    // No flow of a script is left behind.
    assert_eq!(rig.rest_json("/flow/json").as_object().unwrap().len(), 2);
    assert_eq!(rig.weir.stop().code, Some(0));
}
