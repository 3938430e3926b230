//! Changing policies while the thread runs, with a speaker that accepts everything.

use crate::engine::{attack, policy};
use mitigate::{
    Action, Actions, Change, Community, Control, Entry, Event, Journal, Limits, Mode, Nlri, OnStop,
    Options, Policy, Session, SpeakError, Speaker,
};
use std::collections::BTreeMap;
use std::fs;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use testkit::{TempDir, wait_for};

/// The speaker's routes, and everything it was ever told.
#[derive(Clone, Default)]
struct Memory {
    routes: Arc<Mutex<BTreeMap<String, String>>>,
    said: Arc<Mutex<Vec<String>>>,
}

impl Memory {
    fn routes(&self) -> Vec<String> {
        self.routes
            .lock()
            .unwrap()
            .iter()
            .map(|(nlri, actions)| format!("{nlri} {actions}"))
            .collect()
    }

    fn wait_for(&self, routes: &[&str]) {
        wait_for(
            || format!("{routes:?}; there are {:?}", self.routes()),
            || (self.routes() == routes).then_some(()),
        );
    }
}

impl Speaker for Memory {
    fn name(&self) -> String {
        "memory".to_owned()
    }

    fn session(&mut self) -> Result<Session, SpeakError> {
        Ok(Session::Same)
    }

    fn announce(&mut self, nlri: &Nlri, actions: &Actions) -> Result<(), SpeakError> {
        self.said.lock().unwrap().push(format!("announce {nlri}"));
        self.routes.lock().unwrap().insert(nlri.to_string(), actions.to_string());
        Ok(())
    }

    fn withdraw(&mut self, nlri: &Nlri) -> Result<(), SpeakError> {
        self.said.lock().unwrap().push(format!("withdraw {nlri}"));
        self.routes.lock().unwrap().remove(&nlri.to_string());
        Ok(())
    }
}

fn change(control: &Control, policies: Vec<Policy>) {
    let observer = Box::new(|_: &Entry| {});
    control.change(Change {
        policies,
        observer,
        attacks: vec![attack("192.0.2.1")],
        journal: None,
    });
}

#[test]
fn what_is_the_same_goes_on_and_what_is_gone_is_withdrawn() {
    let memory = Memory::default();
    let keeps = Policy { on_stop: OnStop::Keep, ..policy() };
    let (policies, speaker) = (vec![keeps.clone()], Box::new(memory.clone()));
    let control =
        Control::start(Options { policies, speaker, observer: Box::new(|_| {}), journal: None })
            .unwrap();
    control.tell(Event::Raised(attack("192.0.2.1"))).unwrap();
    let route = "192.0.2.1/32 blackhole via 10.9.0.1 65535:666";
    memory.wait_for(&[route]);

    // Another policy that wants the route too is no reason to announce it again.
    let more = Policy { name: "more".to_owned(), ..keeps.clone() };
    change(&control, vec![keeps, more.clone()]);
    change(&control, vec![more.clone()]);

    // Different actions are.
    let Action::Blackhole { next_hop_v4, next_hop_v6, .. } = more.action else { panic!() };
    let communities = vec![Community(64_500, 1)];
    let action = Action::Blackhole { next_hop_v4, next_hop_v6, communities };
    let other = Policy { action, ..more };
    change(&control, vec![other.clone()]);
    memory.wait_for(&["192.0.2.1/32 blackhole via 10.9.0.1 64500:1"]);
    let said = memory.said.lock().unwrap().clone();
    assert_eq!(said, ["announce 192.0.2.1/32", "announce 192.0.2.1/32"]);

    // A dry run leaves nothing announced, not even earlier routes.
    change(&control, vec![Policy { mode: Mode::DryRun, ..other.clone() }]);
    memory.wait_for(&[]);
    change(&control, vec![other]);
    memory.wait_for(&["192.0.2.1/32 blackhole via 10.9.0.1 64500:1"]);

    // Nor does an empty list of policies.
    change(&control, Vec::new());
    memory.wait_for(&[]);
    assert!(control.stop(Instant::now() + Duration::from_secs(5), || ()));
}

fn start(memory: &Memory, policies: Vec<Policy>, journal: Option<Journal>) -> Control {
    let speaker = Box::new(memory.clone());
    Control::start(Options { policies, speaker, observer: Box::new(|_| {}), journal }).unwrap()
}

fn stop(control: Control) {
    assert!(control.stop(Instant::now() + Duration::from_secs(5), || ()));
}

/// A stop that is taken back, as when the configuration names a speaker again: one thread, and no withdrawal of what is
/// wanted again.
#[test]
fn a_stopped_one_goes_on_when_it_is_told_so() {
    let memory = Memory::default();
    let control = start(&memory, Vec::new(), None);
    change(&control, vec![policy()]);
    let route = "192.0.2.1/32 blackhole via 10.9.0.1 65535:666";
    memory.wait_for(&[route]);

    control.begin_stop(Instant::now() + Duration::from_secs(5));
    wait_for("the stop", || control.has_stopped().then_some(()));
    memory.wait_for(&[]);
    change(&control, vec![policy()]);
    assert!(!control.has_stopped(), "what it has done was for the stop before");
    memory.wait_for(&[route]);
    stop(control);
    memory.wait_for(&[]);
}

#[test]
fn what_a_killed_life_left_is_withdrawn_or_taken_over() {
    let folder = TempDir::new();
    let path = folder.path().join("audit.jsonl.memory.routes");
    let (memory, targets) = (Memory::default(), ["192.0.2.1", "192.0.2.2"]);
    {
        // What a killed process leaves in its file and with the speaker.
        let mut journal = Journal::open(&path).unwrap();
        assert!(Journal::open(&path).is_err(), "it is one process's");
        for target in targets {
            let nlri = Nlri::Unicast(target.parse().unwrap());
            journal.announce(&nlri).unwrap();
            memory.routes.lock().unwrap().insert(nlri.to_string(), "?".to_owned());
        }
    }
    // It died while writing a line.
    let mut text = fs::read_to_string(&path).unwrap();
    text.push_str("announce 192.0.");
    fs::write(&path, text).unwrap();

    let limits = Limits { hold: Duration::from_secs(1), ..policy().limits };
    let quick = Policy { limits, ..policy() };
    let control = start(&memory, Vec::new(), None);
    let journal = Some(Journal::open(&path).unwrap());
    let attacks = vec![attack("192.0.2.1")];
    let observer = Box::new(|_: &Entry| {});
    control.change(Change { policies: vec![quick], observer, attacks, journal });
    memory.wait_for(&["192.0.2.1/32 blackhole via 10.9.0.1 65535:666"]);
    let said = memory.said.lock().unwrap().clone();
    assert_eq!(said, ["announce 192.0.2.1/32", "withdraw 192.0.2.2/32"], "one without a gap");

    assert_eq!(fs::read_to_string(&path).unwrap().lines().last(), Some("withdraw 192.0.2.2/32"));
    stop(control);
    memory.wait_for(&[]);
    assert_eq!(Journal::open(&path).unwrap().routes().count(), 0);
    assert_eq!(fs::read_to_string(&path).unwrap(), "");
}

/// A speaker that refuses withdrawals, and one that is slow.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Nature {
    Refuses,
    Waits,
}

struct Bad(Nature, Memory);

impl Speaker for Bad {
    fn name(&self) -> String {
        "bad".to_owned()
    }

    fn session(&mut self) -> Result<Session, SpeakError> {
        let is_first = self.1.said.lock().unwrap().is_empty();
        Ok(if is_first { Session::Same } else { Session::Fresh })
    }

    fn announce(&mut self, nlri: &Nlri, actions: &Actions) -> Result<(), SpeakError> {
        self.1.announce(nlri, actions)
    }

    fn withdraw(&mut self, nlri: &Nlri) -> Result<(), SpeakError> {
        self.1.said.lock().unwrap().push(format!("withdraw {nlri}"));
        match self.0 {
            Nature::Refuses => Err(SpeakError::Refused("no".to_owned())),
            Nature::Waits => {
                thread::park_timeout(Duration::from_millis(300));
                Ok(())
            }
        }
    }
}

#[test]
fn a_route_that_may_be_there_is_not_forgotten_because_its_withdrawal_is_refused() {
    let memory = Memory::default();
    let speaker = Box::new(Bad(Nature::Refuses, memory.clone()));
    let (policies, observer) = (vec![policy()], Box::new(|_: &Entry| {}));
    let control = Control::start(Options { policies, speaker, observer, journal: None }).unwrap();
    control.tell(Event::Raised(attack("192.0.2.1"))).unwrap();
    memory.wait_for(&["192.0.2.1/32 blackhole via 10.9.0.1 65535:666"]);
    change(&control, Vec::new());
    wait_for("another attempt", || (memory.said.lock().unwrap().len() >= 4).then_some(()));
    assert!(control.stop(Instant::now(), || ()));
}

#[test]
fn a_slow_speaker_does_not_hold_a_stop_beyond_its_deadline() {
    let memory = Memory::default();
    let speaker = Box::new(Bad(Nature::Waits, memory.clone()));
    let limits = Limits { routes_max: 50, new_routes_per_minute_max: 50, ..policy().limits };
    let (policies, observer) = (vec![Policy { limits, ..policy() }], Box::new(|_: &Entry| {}));
    let control = Control::start(Options { policies, speaker, observer, journal: None }).unwrap();
    for host in 1..=50 {
        control.tell(Event::Raised(attack(&format!("192.0.2.{host}")))).unwrap();
    }
    wait_for("the routes", || (memory.routes().len() == 50).then_some(()));
    assert!(control.stop(Instant::now(), || ()));
    let withdrawn =
        memory.said.lock().unwrap().iter().filter(|one| one.starts_with("withdraw")).count();
    assert!(withdrawn <= 1, "{withdrawn} of 50 after the deadline");
}

#[test]
fn a_route_that_is_told_is_in_a_file_that_was_just_written_anew() {
    let folder = testkit::TempDir::new();
    let path = folder.file("routes");
    let nlri = |text: &str| text.parse::<Nlri>().unwrap();
    // The file is about to be rewritten with a different number of obsolete lines each time.
    for changes in 495..505 {
        let mut journal = Journal::open(&path).unwrap();
        for _ in 0..changes {
            journal.announce(&nlri("192.0.2.1/32")).unwrap();
            journal.withdraw(&nlri("192.0.2.1/32")).unwrap();
        }
        journal.announce(&nlri("192.0.2.2/32")).unwrap();
        drop(journal);
        let mut next = Journal::open(&path).unwrap();
        assert_eq!(next.routes().collect::<Vec<_>>(), [&nlri("192.0.2.2/32")], "{changes}");
        next.withdraw(&nlri("192.0.2.2/32")).unwrap();
    }
}

#[test]
fn a_line_that_a_full_disk_cut_short_is_left_out_and_another_kind_of_file_alone() {
    let folder = testkit::TempDir::new();
    let path = folder.file("routes");
    let text = "announce 192.0.2.1/32\nannounce 192.0.2withdraw 192.0.2.1/32\nannounce 192.0.2.3/32\nannounce 192";
    std::fs::write(&path, text).unwrap();
    let routes: Vec<_> = Journal::open(&path).unwrap().routes().map(Nlri::to_string).collect();
    assert_eq!(routes, ["192.0.2.1/32", "192.0.2.3/32"]);

    std::fs::write(&path, "[daemon]\nlog_level = \"info\"\n").unwrap();
    assert!(Journal::open(&path).is_err());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "[daemon]\nlog_level = \"info\"\n");
}
