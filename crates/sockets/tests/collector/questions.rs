//! Questions to a running collector.

use crate::people::{Crowd, Ends, storm};
use crate::support::{Netns, RARELY, need_root_netns, options, tell, within};
use crate::watch::Watch;
use serde_json::Value;
use sockets::filter::Filter;
use sockets::{QueryError, Scope};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const WAIT: Duration = Duration::from_secs(20);

fn parse(answer: &[u8]) -> Value {
    let value: Value = serde_json::from_slice(answer).unwrap();
    let shown = value["sockets"].as_array().unwrap().len() as u64;
    assert_eq!(value["shown"].as_u64(), Some(shown));
    assert!(value["matched"].as_u64() >= Some(shown));
    value
}

#[test]
fn an_answer_has_what_passes_up_to_the_limit_and_counts_the_rest() {
    if !need_root_netns() {
        return;
    }
    let (home, netns) = (Netns::new(), Netns::new());
    let crowd = Crowd::new(&netns, Ends::Mapped, 50);
    let scope = Scope::Named(vec![netns.name.clone()]);
    let watch = Watch::start(&home, options(RARELY, scope));
    watch.wait_polls(1);
    let ask = |filter: Option<&str>, limit| {
        let filter = filter.map(|text| Filter::parse(text).unwrap());
        parse(&watch.collector.query(filter, limit, WAIT).unwrap())
    };
    let port = crowd.port();
    let numbers = |answer: &Value| {
        ["matched", "shown", "namespaces", "namespaces_failed", "polls"]
            .map(|name| answer[name].as_u64().unwrap())
    };
    assert_eq!(numbers(&ask(None, 1_000)), [101, 101, 1, 0, 1]);
    assert_eq!(numbers(&ask(None, 7)), [101, 7, 1, 0, 1]);
    assert_eq!(numbers(&ask(None, 0)), [101, 0, 1, 0, 1]);
    let accepted = format!("state established and sport = :{port}");
    assert_eq!(numbers(&ask(Some(&accepted), 1_000)), [50, 50, 1, 0, 1]);
    let own_part = format!("{accepted} and bytes_received > 10");
    assert_eq!(numbers(&ask(Some(&own_part), 1_000)), [0, 0, 1, 0, 1]);
    let answer = ask(Some(&accepted), 1_000);
    for socket in answer["sockets"].as_array().unwrap() {
        assert_eq!(socket["src_port"].as_u64(), Some(port.into()));
        assert_eq!(socket["netns_name"].as_str(), Some(netns.name.as_str()));
        assert!(socket["rtt_us"].is_u64() && socket["cookie"].is_u64(), "{socket}");
    }
    let questions = watch.collector.questions();
    let (told, hops) = watch.stop();
    assert_eq!(told.totals.len(), 1, "a question is no poll");
    assert_eq!(hops[0].events["queries"], 6);
    let began = Instant::now();
    assert_eq!(questions.ask(None, 1, WAIT), Err(QueryError::Stopped));
    assert!(began.elapsed() < Duration::from_secs(5));
}

#[test]
fn questions_from_all_sides_delay_no_poll_and_end_with_the_collector() {
    if !need_root_netns() {
        return;
    }
    let netns = Netns::new();
    let crowd = Crowd::new(&netns, Ends::V4, 300);
    let interval = Duration::from_millis(100);
    let watch = Watch::start(&netns, options(interval, Scope::Own));
    watch.wait_polls(1);
    let questions = watch.collector.questions();
    let answers = AtomicU64::new(0);
    let is_idle = |socket: &&Value| socket["dst_port"].as_u64() == Some(crowd.port().into());
    storm(&netns, 1, |_| {
        std::thread::scope(|scope| {
            let askers: Vec<_> = (0..6)
                .map(|_| {
                    scope.spawn(|| {
                        loop {
                            let answer = match questions.ask(None, 100_000, WAIT) {
                                Ok(answer) => answer,
                                Err(error) => return error,
                            };
                            if answers.fetch_add(1, Ordering::Relaxed).is_multiple_of(50) {
                                let answer = parse(&answer);
                                let all = answer["sockets"].as_array().unwrap();
                                let cookies: BTreeSet<_> = all
                                    .iter()
                                    .filter(is_idle)
                                    .map(|one| one["cookie"].as_u64())
                                    .collect();
                                assert_eq!(cookies.len(), 300);
                            }
                        }
                    })
                })
                .collect();
            let (polls, began) = (watch.polls(), Instant::now());
            let came = within(Duration::from_secs(30), || watch.polls() >= polls + 10);
            let took = began.elapsed();
            tell(&format!(
                "{} polls and {} answers in {took:?}",
                watch.polls() - polls,
                answers.load(Ordering::Relaxed)
            ));
            let began = Instant::now();
            let (told, hops) = watch.stop();
            let took = began.elapsed();
            for asker in askers {
                assert_eq!(asker.join().unwrap(), QueryError::Stopped);
            }
            assert!(came, "polls go on while questions are asked");
            assert!(took < Duration::from_secs(5), "stopped after {took:?}");
            crate::law::check_all(&told, &hops);
        });
    });
}

#[test]
fn a_question_whose_asker_has_gone_costs_nothing() {
    if !need_root_netns() {
        return;
    }
    let home = Netns::new();
    let spaces: Vec<_> = (0..5).map(|_| Netns::new()).collect();
    let _crowds: Vec<_> = spaces.iter().map(|space| Crowd::new(space, Ends::V4, 1)).collect();
    let names = spaces.iter().map(|space| space.name.clone()).collect();
    let each = Duration::from_millis(100);
    let options = options(RARELY, Scope::Named(names));
    let watch =
        Watch::start_through(&home, options, move |direct| crate::spaces::Slow { direct, each });
    // The first poll takes half a second.
    watch.wait("begin of the poll", |told| !told.seen.is_empty());
    let short = Duration::from_millis(20);
    for _ in 0..5 {
        assert_eq!(watch.collector.query(None, 1, short), Err(QueryError::Timeout));
    }
    watch.wait_polls(1);
    assert!(watch.collector.query(None, 1, WAIT).is_ok());
    assert_eq!(watch.poll_hop().events["queries"], 1);
    watch.stop();
}
