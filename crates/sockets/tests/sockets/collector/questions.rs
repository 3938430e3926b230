//! Questions to a running collector.

use super::people::{Crowd, Ends, storm};
use super::watch::Watch;
use crate::support::{RARELY, options};
use ledger::Event;
use serde_json::Value;
use sockets::filter::Filter;
use sockets::{
    Access, Answer, Direct, Figure, Found, Group, Hears, Order, QueryError, Questions, Ranked,
    Scope,
};
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use sys::Errno;
use sys::namespace::{Error, Scan};
use sys::netlink::Socket;
use testkit::{Netns, need_root_netns, say, within};

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
        parse(&watch.query(filter, limit, WAIT).unwrap())
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
    assert_eq!(hops[0].event(Event::Queries), 6);
    let began = Instant::now();
    assert_eq!(questions.ask(None, 1, WAIT).map(drop), Err(QueryError::Stopped));
    assert!(began.elapsed() < Duration::from_secs(5));
}

#[test]
fn rankings_are_sorted_grouped_and_share_a_walk() {
    if !need_root_netns() {
        return;
    }
    const ASKERS: u64 = 12;
    let netns = Netns::new();
    let crowd = Crowd::new(&netns, Ends::V4, 50);
    let watch = Watch::start(&netns, options(RARELY, Scope::Own));
    watch.wait_polls(1);
    let questions = watch.collector.questions();
    let rank = |filter: &str, order, limit| {
        let filter = Some(Filter::parse(filter).unwrap());
        let (sort, group) = (Figure::DestinationPort, Some(Group::LocalPort));
        let fields = "cookie,src_port,dst_port".parse().unwrap();
        let wanted = Ranked { filter, sort, order, limit, group, fields };
        parse(&questions.rank(wanted, WAIT).unwrap())
    };
    let port = crowd.port();
    let accepted = format!("state established and sport = :{port}");
    let peers = |answer: &Value| -> Vec<u64> {
        let sockets = answer["sockets"].as_array().unwrap();
        sockets.iter().map(|socket| socket["dst_port"].as_u64().unwrap()).collect()
    };

    let first = rank(&accepted, Order::LargestFirst, 7);
    assert_eq!((first["matched"].as_u64(), peers(&first).len()), (Some(50), 7));
    assert!(peers(&first).is_sorted_by(|left, right| left > right), "{first}");
    assert_eq!(first["groups"][0]["key"], port.to_string());
    assert_eq!(
        (&first["groups"][0]["sockets"], &first["other"]["sockets"]),
        (&50.into(), &0.into())
    );
    let measured = first["rtt_us"].as_array().unwrap().iter();
    assert_eq!(measured.map(|bucket| bucket[1].as_u64().unwrap()).sum::<u64>(), 50);
    let last = rank(&accepted, Order::SmallestFirst, 200);
    assert_eq!(peers(&last)[49], peers(&first)[0]);
    assert_eq!(last["sockets"][0].as_object().unwrap().len(), 3, "{last}");

    // Each asks something else, and all are answered by one walk or two.
    std::thread::scope(|scope| {
        for asker in 0..ASKERS {
            let (rank, port) = (&rank, port);
            scope.spawn(move || {
                let state = if asker % 2 == 0 { "established" } else { "listening" };
                let answer =
                    rank(&format!("state {state} and sport = :{port}"), Order::LargestFirst, 200);
                assert_eq!(answer["matched"].as_u64(), Some(if asker % 2 == 0 { 50 } else { 1 }));
            });
        }
    });
    let (_, hops) = watch.stop();
    let walks = hops[0].event(Event::Queries) - 2;
    assert!(walks < ASKERS, "{walks} walks");
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
                            let answer = questions.ask(None, 100_000, WAIT).and_then(Answer::whole);
                            let answer = match answer {
                                Ok(answer) => parse(&answer),
                                // One question a second is answered: the others wait, or try again.
                                Err(QueryError::Busy | QueryError::Timeout) => continue,
                                Err(error) => return error,
                            };
                            if answer["truncated"] == false {
                                answers.fetch_add(1, Ordering::Relaxed);
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
            let came = within(Duration::from_secs(30), || {
                watch.polls() >= polls + 10 && answers.load(Ordering::Relaxed) >= 2
            });
            let took = began.elapsed();
            say(&format!(
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
            super::law::check_all(&told, &hops);
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
        Watch::start_through(&home, options, move |direct| super::spaces::Slow { direct, each });
    // The first poll takes half a second.
    watch.wait("begin of the poll", |told| !told.seen.is_empty());
    let short = Duration::from_millis(20);
    for _ in 0..5 {
        assert_eq!(watch.query(None, 1, short), Err(QueryError::Timeout));
    }
    watch.wait_polls(1);
    assert!(watch.query(None, 1, WAIT).is_ok());
    assert_eq!(watch.poll_hop().event(Event::Queries), 1);
    watch.stop();
}

/// Asks without reading, until the collector has started to answer.
fn ask_and_wait(questions: &Questions) -> Answer {
    let mut answer = questions.ask(None, 100_000, WAIT).unwrap();
    assert!(answer.next().unwrap().is_ok());
    answer
}

fn whole(first: &[u8], rest: Answer) -> Result<Vec<u8>, QueryError> {
    rest.whole().map(|rest| [first, &rest].concat())
}

#[test]
fn a_slow_reader_delays_no_poll_and_is_told_that_its_answer_is_cut() {
    if !need_root_netns() {
        return;
    }
    let netns = Netns::new();
    // More than may wait for a reader.
    let crowd = Crowd::new(&netns, Ends::V4, 2_000);
    let watch = Watch::start(&netns, options(Duration::from_millis(100), Scope::Own));
    watch.wait_polls(1);
    let questions = watch.collector.questions();
    let mut answer = questions.ask(None, 100_000, WAIT).unwrap();
    let first = answer.next().unwrap().unwrap();
    let (polls, began) = (watch.polls(), Instant::now());
    // More than two seconds.
    watch.wait_polls(polls + 25);
    match whole(&first, answer) {
        Ok(text) => {
            let answer = parse(&text);
            assert_eq!(
                (&answer["truncated"], &answer["truncated_by"]),
                (&true.into(), &"slow_reader".into())
            );
            let shown = answer["shown"].as_u64().unwrap();
            assert!((1..=4_000).contains(&shown), "{shown}");
            assert!(text.len() < 3 << 20, "{} bytes waited", text.len());
        }
        // On a machine that takes nine seconds for that.
        Err(error) => assert!(
            error == QueryError::Broken && began.elapsed() > Duration::from_secs(8),
            "{error:?} after {:?}",
            began.elapsed()
        ),
    }
    // A reader that reads gets all of it.
    let answer = parse(&watch.query(None, 100_000, WAIT).unwrap());
    if answer["truncated"] == false {
        assert_eq!(answer["shown"].as_u64(), Some(2 * crowd.pairs.len() as u64 + 1));
    }
    let (told, hops) = watch.stop();
    super::law::check_all(&told, &hops);
}

#[test]
fn one_question_a_second_is_answered_and_few_wait() {
    if !need_root_netns() {
        return;
    }
    let netns = Netns::new();
    let _crowd = Crowd::new(&netns, Ends::V4, 2_000);
    let watch = Watch::start(&netns, options(RARELY, Scope::Own));
    watch.wait_polls(1);
    let time = || {
        let answer = parse(&watch.query(None, 0, WAIT).unwrap());
        answer["time_unix_ns"].as_u64().unwrap()
    };
    let (one, other) = (time(), time());
    assert!(other - one > 990_000_000, "{} ns apart", other - one);
    // While one reader does not read its answer, the next questions wait; only a few may.
    let questions = watch.collector.questions();
    let _unread = ask_and_wait(&questions);
    let ask = || questions.ask(None, 1, Duration::from_millis(200)).map(drop).unwrap_err();
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..30).map(|_| scope.spawn(ask)).collect();
        let errors: Vec<_> = waiting.into_iter().map(|thread| thread.join().unwrap()).collect();
        let count = |error| errors.iter().filter(|one| **one == error).count();
        assert_eq!(count(QueryError::Timeout), 8, "{errors:?}");
        assert_eq!(count(QueryError::Busy), 22, "{errors:?}");
    });
}

#[test]
fn answers_that_nobody_takes_hold_up_no_other_and_the_oldest_is_taken_back() {
    if !need_root_netns() {
        return;
    }
    let netns = Netns::new();
    let _crowd = Crowd::new(&netns, Ends::V4, 2_000);
    let watch = Watch::start(&netns, options(RARELY, Scope::Own));
    watch.wait_polls(1);
    let questions = watch.collector.questions();
    let asked = Instant::now();
    let mut unread = questions.ask(None, 100_000, WAIT).unwrap();
    let first = unread.next().unwrap().unwrap();
    let next = questions.ask(None, 1, WAIT).and_then(Answer::whole).unwrap();
    assert_eq!(parse(&next)["shown"], 1);
    // The other answer did not have to be discarded for it.
    match whole(&first, unread) {
        Ok(cut) => assert_eq!(parse(&cut)["truncated_by"], "slow_reader"),
        Err(error) => assert!(
            error == QueryError::Broken && asked.elapsed() > Duration::from_secs(9),
            "{error}"
        ),
    }
    // There is room for the current answer and two more.
    let mut unread: Vec<_> = (0..4).map(|_| ask_and_wait(&questions)).collect();
    assert_eq!(unread.remove(0).whole(), Err(QueryError::Broken));
    drop(unread);
    // A reader that has gone makes room at once.
    drop(ask_and_wait(&questions));
    let began = Instant::now();
    questions.ask(None, 1, WAIT).and_then(Answer::whole).unwrap();
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    // An answer in progress at the stop is ended.
    let mut cut = questions.ask(None, 100_000, WAIT).unwrap();
    let first = cut.next().unwrap().unwrap();
    watch.stop();
    let answer = parse(&whole(&first, cut).unwrap());
    assert_eq!(answer["truncated"], true);
}

/// Direct access whose searches for namespaces fail after the first, as through a helper that hangs.
struct Lost {
    direct: Direct,
    searches: Arc<AtomicU64>,
}

impl Access for Lost {
    fn discover(&mut self, scope: &Scope, found: &mut Vec<Found>) -> io::Result<Scan> {
        let scan = self.direct.discover(scope, found)?;
        match self.searches.fetch_add(1, Ordering::Relaxed) {
            0 => Ok(scan),
            _ => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    fn open(&mut self, at: usize) -> Result<Socket, Error> {
        self.direct.open(at)
    }

    fn nsid(&mut self, at: usize) -> Result<i32, Errno> {
        self.direct.nsid(at)
    }

    fn events(&mut self, hears: Hears, buffer_bytes: usize) -> Result<Socket, Errno> {
        self.direct.events(hears, buffer_bytes)
    }
}

#[test]
fn questions_do_not_search_again_and_again_where_a_search_has_failed() {
    if !need_root_netns() {
        return;
    }
    let netns = Netns::new();
    let _crowd = Crowd::new(&netns, Ends::V4, 1);
    let searches = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&searches);
    let watch = Watch::start_through(&netns, options(RARELY, Scope::Own), move |direct| Lost {
        direct,
        searches: counted,
    });
    watch.wait_polls(1);
    let began = Instant::now();
    for _ in 0..3 {
        let answer = parse(&watch.query(None, 10, WAIT).unwrap());
        assert_eq!((&answer["shown"], &answer["namespaces_failed"]), (&3.into(), &1.into()));
    }
    let searches = searches.load(Ordering::Relaxed);
    assert!(searches == 2 || began.elapsed() > Duration::from_secs(9), "{searches} searches");
    watch.stop();
}
