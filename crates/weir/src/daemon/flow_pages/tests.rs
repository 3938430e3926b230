use super::played::{AGENT, definition, get, play, shared};
use super::*;
use admin::service::{Action, Asker};
use flows::{Threshold, Watched};
use std::collections::HashSet;
use std::time::Instant;

fn played() -> (Arc<Shared>, Service) {
    let shared = shared(vec![definition("pairs", "src,dst"), definition("ports", "dst_port")]);
    play(&shared);
    let service = pages(&shared, Recent::default());
    (shared, service)
}

#[test]
fn the_overview_says_what_is_counted() {
    let (_shared, service) = played();
    let json = get(&service, "/flows").json();
    assert_eq!(json["definitions"][0]["name"], "pairs");
    assert_eq!(json["definitions"][0]["keys"], json!(["src", "dst"]));
    assert_eq!(json["definitions"][0]["flows_kept"], 4);
    assert_eq!(json["agents"], 2);
    let samples = &json["definitions"][1]["samples"];
    assert_eq!(samples["seen"], samples["counted"]);
    assert_eq!(json["datagrams"]["received"], json["datagrams"]["read"]);
    assert_eq!(get(&service, "/flows/mitigations").json(), json!({ "entries": [] }));
}

#[test]
fn the_heaviest_flows_come_first_with_their_intervals() {
    let (_shared, service) = played();
    let json = get(&service, "/flows/top?flow=pairs&n=1").json();
    let flows = json["flows"].as_array().unwrap();
    assert_eq!(flows.len(), 1);
    assert_eq!(flows[0]["key"], json!({ "src": "10.0.0.1", "dst": "192.0.2.7" }));
    let rate = &flows[0]["per_s"];
    let [low, high] = ["low", "high"].map(|end| rate[end].as_f64().unwrap());
    assert!(low < 1e8 && 1e8 < high, "{rate}");
    assert_eq!(get(&service, "/flows/top?flow=pairs").json()["flows"].as_array().unwrap().len(), 2);
}

#[test]
fn agents_and_interfaces_are_listed_in_order() {
    let (_shared, service) = played();
    let agents = get(&service, "/flows/agents").json();
    assert_eq!(agents[0]["address"], "10.0.0.253");
    assert_eq!(agents[1]["samplers"][0]["configured"], 1_000);
    let ports = get(&service, &format!("/flows/interfaces?agent={AGENT}")).json();
    assert_eq!(ports.as_array().unwrap().len(), 1);
    assert_eq!(ports[0]["index"], 3);
    assert!(ports[0]["rates"]["in"]["bits_per_s"].as_f64().unwrap() > 8e8);
    assert_eq!(get(&service, "/flows/agents?agent=192.0.2.99").json(), json!([]));
}

#[test]
fn wrong_questions_are_refused() {
    let (_shared, service) = played();
    for (target, status, why) in [
        ("/flows/top", 400, "flow=NAME"),
        ("/flows/top?flow=none", 404, "lists the names"),
        ("/flows/top?flow=pairs&n=0", 400, "from 1 to 10000"),
        ("/flows?x=1", 400, "not a parameter"),
        ("/flows/top?flow=%1b[31m%zz", 400, "hexadecimal"),
        ("/flows/agents?agent=host", 400, "no address"),
        ("/flows/events?wait=31s", 400, "at most 30s"),
        ("/flows/events?after=-1", 400, "after"),
        ("/flows/nothing", 404, "no such page"),
    ] {
        let answer = get(&service, target);
        assert_eq!(answer.status, status, "{target}: {}", answer.text);
        assert!(answer.text.contains(why), "{target}: {}", answer.text);
    }
}

#[test]
fn who_waits_for_an_event_hears_of_it_at_once() {
    let (shared, service) = played();
    assert_eq!(get(&service, "/flows/events").json()["events"], json!([]));
    shared.with(|analysis| {
        analysis.watch(Watched::Flow("pairs".into()), Threshold::new("flood", 1e6));
    });
    let began = Instant::now();
    let waiting = std::thread::spawn(move || get(&service, "/flows/events?wait=30s").json());
    while !waiting.is_finished() {
        // The first tick only notes the flows, so the event may come later.
        shared.tick();
        play(&shared);
        assert!(began.elapsed() < Duration::from_secs(25), "nobody was told");
    }

    let json = waiting.join().unwrap();
    let event = &json["events"][0];
    assert_eq!((&event["threshold"], &event["change"]), (&json!("flood"), &json!("raised")));
    assert_eq!(event["of"]["flow"], "pairs");
    assert_eq!(json["missed"], 0);
    assert!(event["figure"]["value"].as_f64().unwrap() >= 1e6);
}

#[test]
fn those_who_may_wait_are_few() {
    let (_shared, service) = played();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let asked = || Asked {
            action: Action::Read,
            path: "/flows/events".into(),
            query: "wait=30s".into(),
            body: Vec::new(),
            asker: Asker::Anyone,
        };
        let mut waiting: Vec<_> = (0..WAITERS_MAX).map(|_| service(asked())).collect();
        for one in &mut waiting {
            let soon = tokio::time::timeout(Duration::from_millis(1), one).await;
            assert!(soon.is_err(), "it does not wait");
        }
        assert_eq!(service(asked()).await.status, 429);
        drop(waiting);
        // Clients that leave free their places.
        let soon = tokio::time::timeout(Duration::from_millis(1), service(asked())).await;
        assert!(soon.is_err(), "it does not wait");
    });
}

#[test]
fn metrics_show_what_the_file_asks_for() {
    let (shared, _) = played();
    let exported = Arc::new(Exported::default());
    let all = figures(&shared, &exported);
    assert!(all().series.is_empty());
    assert_eq!(all().definitions.len(), 2);

    exported.set(HashSet::from(["pairs".into()]));
    let all = figures(&shared, &exported);
    let series = all().series;
    assert_eq!(series.len(), 2);
    let labels = [("src", "10.0.0.1"), ("dst", "192.0.2.7")];
    let labels: Vec<_> = labels.map(|(name, value)| (name.into(), value.into())).into();
    assert_eq!(series[0].labels, labels);
    assert!(series[0].low < 1e8 && series[0].high > 1e8);
}

#[test]
fn labels_have_names_that_prometheus_takes() {
    let shared = shared(vec![definition("all", "src/24,src/24,group(dst),src_port")]);
    let names = shared.with(|one| figures::label_names(one.counting("all").unwrap().definition()));
    assert_eq!(names, ["src_24_48", "src_24_48_2", "group_dst", "src_port"]);
}
