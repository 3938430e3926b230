//! Policies that change while the thread runs, against a speaker that takes everything.

use crate::engine::{attack, policy};
use mitigate::{
    Action, Actions, Change, Community, Control, Entry, Event, Mode, Nlri, OnStop, Options, Policy,
    Session, SpeakError, Speaker,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use testkit::wait_for;

/// What a speaker has, and all that it was ever told.
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
    control.change(Change { policies, observer, attacks: vec![attack("192.0.2.1")] });
}

#[test]
fn what_is_the_same_goes_on_and_what_is_gone_is_withdrawn() {
    let memory = Memory::default();
    let keeps = Policy { on_stop: OnStop::Keep, ..policy() };
    let (policies, speaker) = (vec![keeps.clone()], Box::new(memory.clone()));
    let control =
        Control::start(Options { policies, speaker, observer: Box::new(|_| {}) }).unwrap();
    control.tell(Event::Raised(attack("192.0.2.1"))).unwrap();
    let route = "192.0.2.1/32 blackhole via 10.9.0.1 65535:666";
    memory.wait_for(&[route]);

    // Another one that wants it too is no reason to say it again.
    let more = Policy { name: "more".to_owned(), ..keeps.clone() };
    change(&control, vec![keeps, more.clone()]);
    change(&control, vec![more.clone()]);

    // Other actions are.
    let Action::Blackhole { next_hop_v4, next_hop_v6, .. } = more.action else { panic!() };
    let communities = vec![Community(64_500, 1)];
    let action = Action::Blackhole { next_hop_v4, next_hop_v6, communities };
    let other = Policy { action, ..more };
    change(&control, vec![other.clone()]);
    memory.wait_for(&["192.0.2.1/32 blackhole via 10.9.0.1 64500:1"]);
    let said = memory.said.lock().unwrap().clone();
    assert_eq!(said, ["announce 192.0.2.1/32", "announce 192.0.2.1/32"]);

    // A dry run has nothing announced, not even what was.
    change(&control, vec![Policy { mode: Mode::DryRun, ..other.clone() }]);
    memory.wait_for(&[]);
    change(&control, vec![other]);
    memory.wait_for(&["192.0.2.1/32 blackhole via 10.9.0.1 64500:1"]);

    // Nor does nothing at all.
    change(&control, Vec::new());
    memory.wait_for(&[]);
    control.stop(Instant::now() + Duration::from_secs(5));
}
