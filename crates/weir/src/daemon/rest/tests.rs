//! What published scripts send, and what they read from the answers.

use super::super::flow_pages::played::{AGENT, Answer, ask, definition, get, play, shared};
use super::*;
use ::flows::{Author, Groups, Threshold, Watched};
use std::time::Duration;

struct Played {
    shared: Arc<Shared>,
    site: Arc<Site>,
    service: Service,
}

/// An API on an analysis with one definition from the file, before any traffic.
fn begin() -> Played {
    let shared = shared(vec![definition("of_file", "src,dst")]);
    let site = Site::new(&shared, 5);
    let service = site.service();
    Played { shared, site, service }
}

impl Played {
    fn put(&self, target: &str, body: &str) -> Answer {
        ask(&self.service, Action::Put, target, body)
    }

    fn get(&self, target: &str) -> Answer {
        get(&self.service, target)
    }

    fn delete(&self, target: &str) -> Answer {
        ask(&self.service, Action::Delete, target, "")
    }
}

/// blog.sflow.com 2012/09 and 2013/03 ("Software defined networking", "DDoS"), as many projects copied it: groups, a flow, a
/// threshold, the long poll, `topKeys` of the event's metric.
#[test]
fn the_script_that_waits_for_a_large_flow() {
    let one = begin();
    let groups = r#"{"external":["0.0.0.0/0"],"internal":["192.0.2.0/24"]}"#;
    assert_eq!(one.put("/group/json", groups).status, 200);
    let flow = r#"{"keys":"ipsource,ipdestination","value":"frames",
        "filter":"sourcegroup=external&destinationgroup=internal"}"#;
    assert_eq!(one.put("/flow/incoming/json", flow).text, "");
    let threshold = r#"{"metric":"incoming","value":1000}"#;
    assert_eq!(one.put("/threshold/incoming/json", threshold).status, 200);

    let service = Arc::clone(&one.service);
    let url = "/events/json?maxEvents=10&timeout=60&eventID=-1";
    let waiting = std::thread::spawn(move || get(&service, url).json());
    let began = Instant::now();
    while !waiting.is_finished() {
        one.shared.tick();
        play(&one.shared);
        assert!(began.elapsed() < Duration::from_secs(50), "nobody was told");
    }
    let events = waiting.join().unwrap();
    let event = &events[0];
    assert!(event["eventID"].is_u64() && event["timestamp"].is_u64());
    assert_eq!(event["metric"], "incoming");
    assert_eq!(event["thresholdID"], "incoming");
    assert_eq!(event["threshold"], 1000.0);
    assert!(event["value"].as_f64().unwrap() >= 1000.0);

    // '/metric/' + e['agent'] + '/' + e['dataSource'] + '.' + e['metric'] + '/json'
    let text = |name: &str| event[name].as_str().unwrap();
    let target =
        format!("/metric/{}/{}.{}/json", text("agent"), text("dataSource"), text("metric"));
    let metric = one.get(&target).json();
    assert_eq!(metric[0]["topKeys"][0]["key"], "10.0.0.1,192.0.2.7", "{target}: {metric}");
    assert!(metric[0]["topKeys"][0]["value"].as_f64().unwrap() > 50_000.0);
    assert!(metric[0]["metricValue"].is_f64());

    // The next poll asks for later events: there are none, and it answers at once.
    let last = event["eventID"].as_u64().unwrap();
    let events = one.get(&format!("/events/json?eventID={last}&thresholdID=other")).json();
    assert_eq!(events, json!([]));
}

/// Mininet dashboards: `requests.put(.../flow/mn_flow/json)`, then `/activeflows/ALL/mn_flow/json?minValue=100`, with key, value, agent,
/// dataSource and flowN.
#[test]
fn the_dashboard_that_shows_active_flows() {
    let one = begin();
    let flow = r#"{"keys":"ipsource,ipdestination","value":"bytes","log":true}"#;
    assert_eq!(one.put("/flow/mn_flow/json", flow).status, 200);
    play(&one.shared);

    let flows = one.get("/activeflows/ALL/mn_flow/json?minValue=100").json();
    let [first, second] = flows.as_array().unwrap().as_slice() else { panic!("{flows}") };
    assert_eq!(first["key"], "10.0.0.1,192.0.2.7");
    assert!((first["value"].as_f64().unwrap() / 1e8 - 1.0).abs() < 0.3, "{first}");
    assert_eq!(second["key"], "10.0.0.1,192.0.2.8");
    assert_eq!(first["flowN"], 2);
    assert!(["3", "4"].contains(&first["dataSource"].as_str().unwrap()), "{first}");

    let count = |target: &str| one.get(target).json().as_array().unwrap().len();
    assert_eq!(count("/activeflows/ALL/mn_flow/json?maxFlows=1"), 1);
    assert_eq!(count("/activeflows/ALL/mn_flow/json?minValue=1e12"), 0);
    let of_one = one.get(&format!("/activeflows/{AGENT}/mn_flow/json")).json();
    assert_eq!(
        (&of_one[0]["agent"], &of_one[0]["dataSource"]),
        (&json!("10.0.0.254"), &json!("3"))
    );
    let sum = one.get("/activeflows/ALL/mn_flow/json?aggMode=sum").json();
    assert!((sum[0]["value"].as_f64().unwrap() / 2e8 - 1.0).abs() < 0.3, "{sum}");
    assert_eq!(one.get("/activeflows/ALL/none/json").status, 404);

    assert_eq!(one.get("/flow/mn_flow/json").json()["keys"], "ipsource,ipdestination");
    assert_eq!(one.get("/flow/json").json().as_object().unwrap().len(), 2);
    assert_eq!(one.delete("/flow/mn_flow/json").status, 200);
    assert_eq!(one.get("/flow/mn_flow/json").status, 404);
}

/// `/dump/ALL/ifinoctets/json` (traffic emulation, weather maps), `/metric/ALL/sum:ifinoctets/json`, `/agents/json`.
#[test]
fn counters_and_agents() {
    let one = begin();
    play(&one.shared);
    let dump = one.get("/dump/ALL/ifinoctets/json").json();
    assert_eq!(dump.as_array().unwrap().len(), 2);
    for value in dump.as_array().unwrap() {
        assert_eq!(value["metricName"], "ifinoctets");
        assert!(value["agent"].is_string() && value["dataSource"].is_string());
        // Octets, not bits: 110 MB/s.
        assert!((value["metricValue"].as_f64().unwrap() / 1.1e8 - 1.0).abs() < 0.2, "{value}");
    }
    let sum = one.get("/metric/ALL/sum:ifinoctets,max:ifspeed,3.ifindex,none/json").json();
    assert_eq!(sum.as_array().unwrap().len(), 3, "{sum}");
    assert_eq!((&sum[0]["metricName"], &sum[0]["metricN"]), (&json!("sum:ifinoctets"), &json!(2)));
    assert_eq!(sum[1]["metricValue"], 1e10);
    assert_eq!(sum[2]["agent"], "10.0.0.254");

    let agents = one.get("/agents/json").json();
    let agent = &agents["10.0.0.254"];
    for field in [
        "sFlowDatagramsReceived",
        "sFlowDatagramsLost",
        "sFlowFlowSamples",
        "sFlowCounterSamples",
        "firstSeen",
        "lastSeen",
        "uptime",
        "sFlowFlowDatasources",
        "sFlowCounterDatasources",
    ] {
        assert!(agent[field].is_u64(), "{field} in {agent}");
    }
    assert_eq!(one.get("/agents/json?agent=10.0.0.253").json().as_object().unwrap().len(), 1);
    assert!(one.get("/metrics/json").json()["ifinoctets"].is_u64());
    assert_eq!(one.get("/version").text, env!("CARGO_PKG_VERSION"));
    assert!(one.get("/flowkeys/json").json()["ipsource"].is_u64());
    assert_eq!(one.get("/analyzer/json").json()["sFlowAgents"], 2);
}

/// Scrape configs of sflow-rt/prometheus (README and export.js): params metric, key, label, value, scale, aggMode, maxFlows, minValue.
#[test]
fn prometheus_scrapes_flows_that_it_defines() {
    let one = begin();
    let target = "/app/prometheus/scripts/export.js/flows/ALL/txt?metric=sflow_flows_bps&key=ipsource,ipdestination&label=src,dst\
                  &value=bytes&scale=8&aggMode=sum&minValue=1000&maxFlows=100";
    // A script has taken the name that would be used first.
    assert_eq!(one.put("/flow/prometheus_0/json", r#"{"keys":"macsource"}"#).status, 200);
    assert_eq!(one.get(target).text, "");
    assert_eq!(one.delete("/flow/prometheus_0/json").status, 200);
    play(&one.shared);
    // A list is made at most twice a second.
    let text = testkit::wait_for("a new list", || {
        Some(one.get(target).text).filter(|text| !text.is_empty())
    });
    let first = text.lines().next().unwrap();
    let value = first.strip_prefix(r#"sflow_flows_bps{src="10.0.0.1",dst="192.0.2.7"} "#);
    let value: f64 = value.unwrap_or_else(|| panic!("{text}")).parse().unwrap();
    assert!((value / 1.6e9 - 1.0).abs() < 0.3, "{value}");
    assert_eq!(one.site.made().flows.len(), 1);

    one.site.forget_unscraped(Instant::now() + Duration::from_secs(301));
    assert!(one.site.made().flows.is_empty());
    let text = one.get("/prometheus/metrics/ALL/ifinoctets,ifoutoctets/txt").text;
    assert_eq!(text.lines().count(), 4, "{text}");
    assert!(text.contains("sflow_ifinoctets{agent=\"10.0.0.254\",datasource=\"3\"} "), "{text}");
}

#[test]
fn what_the_file_defines_stays() {
    let one = begin();
    let flow = r#"{"keys":"ipsource"}"#;
    assert_eq!(one.put("/flow/of_file/json", flow).status, 409);
    assert_eq!(one.delete("/flow/of_file/json").status, 409);
    one.shared.with(|analysis| {
        analysis.watch(Watched::Flow("of_file".into()), Threshold::new("limit", 1.0));
    });
    let threshold = r#"{"metric":"of_file","value":1}"#;
    assert_eq!(one.put("/threshold/limit/json", threshold).status, 409);
    assert_eq!(one.delete("/threshold/limit/json").status, 409);
    assert_eq!(one.put("/threshold/own/json", threshold).status, 200);

    assert_eq!(one.put("/flow/own/json", flow).status, 200);
    one.site.forget();
    assert_eq!(one.get("/flow/own/json").status, 404);
    assert_eq!(one.shared.with(|analysis| analysis.engine().counting().len()), 1);
    assert_eq!(one.shared.with(|analysis| analysis.thresholds().count()), 1);
}

#[test]
fn what_scripts_define_is_bounded() {
    let one = begin();
    let flow = r#"{"keys":"ipsource","n":"1000","t":0,"activeTimeout":1e9}"#;
    for at in 0..5 {
        assert_eq!(one.put(&format!("/flow/f{at}/json"), flow).status, 200);
    }
    assert_eq!(one.put("/flow/f5/json", flow).status, 409);
    // Putting the same definition again adds no flow.
    assert_eq!(one.put("/flow/f4/json", flow).status, 200);
    one.shared.with(|analysis| {
        let definition = analysis.counting("f4").unwrap().definition();
        assert_eq!(definition.top, 20);
        assert_eq!(definition.smoothing, Duration::from_millis(200));
        assert_eq!(definition.active_timeout, Duration::from_secs(3_600));
    });
}

#[test]
fn hostile_bodies_are_refused() {
    let one = begin();
    let deep = "[".repeat(60_000);
    for (target, body, why) in [
        ("/flow/x/json", "", "no JSON"),
        ("/flow/x/json", "[1]", "an object"),
        ("/flow/x/json", deep.as_str(), "no JSON"),
        ("/flow/x/json", "{}", "keys is missing"),
        ("/flow/x/json", r#"{"keys":5}"#, "expected text"),
        ("/flow/x/json", r#"{"keys":"ipsource","value":"x"}"#, "expected bytes"),
        ("/flow/x/json", r#"{"keys":"ipsource","n":"many"}"#, "expected a number"),
        ("/flow/x/json", r#"{"keys":"ipsource","filter":"ipsource=b or 1"}"#, "not a value"),
        (
            "/flow/x/json",
            r#"{"keys":"group:ipsource:x","filter":"group:ipsource:x=y"}"#,
            "no group",
        ),
        ("/flow/x%1b%5b31m/json", r#"{"keys":"ipsource"}"#, "a name has"),
        ("/flow/%/json", "{}", "hexadecimal"),
        ("/threshold/x/json", r#"{"metric":"none","value":1}"#, "no flow has"),
        ("/threshold/x/json", r#"{"metric":"of_file"}"#, "value is missing"),
        ("/threshold/x/json", r#"{"metric":"of_file","value":-1}"#, "above 0"),
        ("/group/x/json", r#"{"a":["10.0.0.0/33"]}"#, "not a network"),
        ("/group/x/json", r#"{"a b":[]}"#, "a name has"),
    ] {
        let answer = one.put(target, body);
        assert_eq!(answer.status, 400, "{target} {body:.80}: {}", answer.text);
        assert!(answer.text.contains(why), "{target} {body:.80}: {}", answer.text);
        assert!(!answer.text.trim_end().contains(char::is_control), "{:?}", answer.text);
    }
    for target in [
        "/metric/x/ifinoctets/json",
        "/dump/ALL/,/json",
        "/activeflows/ALL/of_file/json?maxFlows=x",
    ] {
        assert_eq!(one.get(target).status, 400, "{target}");
    }
    for target in ["/", "/topology/json", "/flow", "/activeflows/ALL/of_file/html"] {
        assert_eq!(one.get(target).status, 404, "{target}");
    }
    assert_eq!(one.put("/agents/json", "{}").status, 405);
}

#[test]
fn a_group_that_is_in_use_cannot_be_removed() {
    let one = begin();
    let groups = r#"{"internal":["192.0.2.0/24"]}"#;
    assert_eq!(one.put("/group/ddos/json", groups).status, 200);
    let flow =
        r#"{"keys":"group:ipdestination:ddos","filter":"group:ipdestination:ddos=internal"}"#;
    assert_eq!(one.put("/flow/inside/json", flow).status, 200);
    play(&one.shared);
    assert_eq!(one.get("/activeflows/ALL/inside/json").json()[0]["key"], "internal");
    assert_eq!(one.delete("/group/ddos/json").status, 400);
    assert_eq!(one.delete("/flow/inside/json").status, 200);
    assert_eq!(one.delete("/group/ddos/json").status, 200);
    assert_eq!(one.get("/group/ddos/json").status, 404);
}

/// A script takes an address out of the group that a threshold of the file watches. The file's group still has it.
#[test]
fn a_group_of_a_script_moves_no_threshold_of_the_file() {
    let one = begin();
    let mut groups = Groups::default();
    groups.add("customers", ::flows::Network::parse("192.0.2.0/24").unwrap());
    one.shared.with(|analysis| {
        for author in [Author::File, Author::Script] {
            analysis.set_groups(groups.clone(), author);
        }
        let filter = ::flows::Filter::parse("group(dst) = customers", &groups).unwrap();
        let threshold = Threshold { filter: Some(filter), ..Threshold::new("flood", 1e6) };
        analysis.watch(Watched::Flow("of_file".into()), threshold);
    });
    let taken = r#"{"other":["192.0.2.7/32"],"more":["10.0.0.0/8"]}"#;
    assert_eq!(one.put("/group/x/json", taken).status, 200);
    let foreign = r#"{"customers":["203.0.113.0/24"]}"#;
    assert_eq!(one.put("/group/y/json", foreign).status, 400);

    testkit::wait_for("the event", || {
        one.shared.tick();
        play(&one.shared);
        let raised = one.shared.with(|analysis| analysis.raised().count());
        (raised == 2).then_some(())
    });
}

#[test]
fn groups_of_scripts_are_their_own() {
    let one = begin();
    let network = |text: &str| ::flows::Network::parse(text).unwrap();
    let mut groups = Groups::default();
    groups.add("inside", network("192.0.2.0/24"));
    one.shared.with(|analysis| {
        for author in [Author::File, Author::Script] {
            analysis.set_groups(groups.clone(), author);
        }
        analysis.define(definition("grouped", "group(dst)"), Author::File);
    });
    play(&one.shared);

    for (body, why) in [
        (r#"{"mine":["192.0.2.0/24"]}"#, "192.0.2.0/24 is in a group of the"),
        (r#"{"mine":["198.51.100.0/24","192.0.2.9/24"]}"#, "192.0.2.0/24 is in a group of the"),
        (r#"{"inside":["203.0.113.0/24"]}"#, "group \"inside\" is defined by the"),
    ] {
        let answer = one.put("/group/x/json", body);
        assert_eq!(answer.status, 400, "{}", answer.text);
        assert!(answer.text.contains(why), "{}", answer.text);
    }
    assert_eq!(one.put("/group/x/json", r#"{"mine":["192.0.2.7/32"]}"#).status, 200);
    let script = r#"{"keys":"group:ipdestination:test"}"#;
    assert_eq!(one.put("/flow/theirs/json", script).status, 200);
    play(&one.shared);
    let shown = |name: &str| {
        let flows = one.get(&format!("/activeflows/ALL/{name}/json")).json();
        let keys = flows.as_array().unwrap().iter().map(|flow| flow["key"].clone());
        keys.collect::<Vec<_>>()
    };
    // 192.0.2.7 has left the file's group for the script's flow, and for nothing else.
    testkit::wait_for("the script's flow", || {
        (shown("theirs") == ["mine", "inside"]).then_some(())
    });
    assert_eq!(shown("grouped"), ["inside"]);

    // Another collection sorts first, so that numbers of scripts' groups change.
    assert_eq!(one.put("/group/a/json", r#"{"other":["203.0.113.0/24"]}"#).status, 200);
    testkit::wait_for("a new list", || shown("theirs").is_empty().then_some(()));
    assert_eq!(shown("grouped"), ["inside"]);
    one.site.forget();
    let group = one.shared.with(|analysis| {
        let groups = analysis.engine().groups_of(Author::Script);
        groups
            .group_of("192.0.2.7".parse().unwrap())
            .and_then(|at| groups.name(at))
            .map(str::to_owned)
    });
    assert_eq!(group.as_deref(), Some("inside"), "what a script defined is gone");
}
