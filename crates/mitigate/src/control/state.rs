//! The thread's state and logic.

use super::{Change, Event, Message, Observer, Options, Shared};
use crate::{
    Actions, Decision, Engine, Entry, Journal, Mode, Nlri, OnStop, Policy, Session, SpeakError,
    Speaker, Verdict,
};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Interval between checks of the clock and the speaker.
const TICK: Duration = Duration::from_millis(100);
/// The first pause after a failure; it doubles with each failure up to the longest.
const RETRY_MIN: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(2);

pub(super) struct State {
    engines: Vec<Engine>,
    speaker: Box<dyn Speaker>,
    observer: Observer,
    /// What the speaker has, or may have.
    told: BTreeMap<Nlri, Told>,
    /// What it did not accept.
    retries: BTreeMap<Nlri, Backoff>,
    connecting: Backoff,
    is_lost: bool,
    journal: Option<Journal>,
    /// Routes in `told` that come from an earlier process. They stay until `found_until` if no attack wants them before.
    found: BTreeSet<Nlri>,
    found_until: Instant,
    /// The deadline, if it is stopping.
    stopping: Option<Instant>,
    /// Whether it has stopped.
    is_done: bool,
    /// The number of the last change or stop.
    order: u64,
    shared: Arc<Shared>,
}

/// Whether a pass tried everything there is to do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    Whole,
    /// It took too long: handle other messages first.
    Part,
}

/// Whether the speaker certainly has a route in this session.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    Accepted,
    Unsure,
}

#[derive(Clone, Copy)]
struct Backoff {
    failures: u32,
    due: Instant,
}

impl Backoff {
    fn none() -> Backoff {
        Backoff { failures: 0, due: Instant::now() }
    }

    fn fail(&mut self) {
        let pause = RETRY_MIN.saturating_mul(1 << self.failures.min(10)).min(RETRY_MAX);
        *self = Backoff { failures: self.failures + 1, due: Instant::now() + pause };
    }
}

impl State {
    pub(super) fn new(options: Options, shared: Arc<Shared>) -> State {
        let Options { policies, speaker, observer, journal } = options;
        let mut this = State {
            engines: policies.into_iter().map(Engine::new).collect(),
            speaker,
            observer,
            told: BTreeMap::new(),
            retries: BTreeMap::new(),
            connecting: Backoff::none(),
            is_lost: false,
            journal: None,
            found: BTreeSet::new(),
            found_until: Instant::now(),
            stopping: None,
            is_done: false,
            order: 0,
            shared,
        };
        this.take_journal(journal);
        this
    }

    /// Runs until nobody can send it messages any more.
    pub(super) fn run(&mut self, messages: &Receiver<Message>) {
        let mut pass = Pass::Whole;
        loop {
            let turn = catch_unwind(AssertUnwindSafe(|| self.turn(messages, pass)));
            pass = match turn {
                Ok(Some(pass)) => pass,
                Ok(None) => return,
                // The panic has been printed to standard error. What the speaker may have is still known.
                Err(_) => {
                    self.connecting.fail();
                    Pass::Whole
                }
            };
        }
    }

    /// Handles the waiting messages and their consequences. `None` when it is over.
    fn turn(&mut self, messages: &Receiver<Message>, before: Pass) -> Option<Pass> {
        let wait = if before == Pass::Whole { TICK } else { Duration::ZERO };
        let first = match messages.recv_timeout(wait) {
            Ok(message) => Some(message),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return None,
        };
        // Messages that arrived together are handled together.
        for message in first.into_iter().chain(messages.try_iter()) {
            match message {
                Message::Event(event) => {
                    self.shared.waiting.fetch_sub(1, Ordering::Relaxed);
                    self.hear(&event, Instant::now());
                }
                Message::Change(order, change) => {
                    self.order = order;
                    self.change(change, Instant::now());
                }
                Message::Stop(order, deadline) => {
                    self.order = order;
                    self.begin_stop(deadline);
                }
            }
        }

        if self.stopping.is_none() {
            self.each_engine(|engine| engine.tick(Instant::now()));
        }
        let mut pass = Pass::Whole;
        if !self.is_done {
            pass = self.reconcile();
            self.is_done = self.stopping.is_some_and(|deadline| self.has_ended(deadline));
        }
        if self.is_done {
            self.shared.done.store(self.order, Ordering::Release);
        }
        Some(pass)
    }

    /// Adopts the routes in a file, and records routes there from now on.
    fn take_journal(&mut self, journal: Option<Journal>) {
        let Some(mut journal) = journal else { return };
        let found: Vec<Nlri> =
            journal.routes().filter(|nlri| !self.told.contains_key(*nlri)).cloned().collect();
        for nlri in self.told.keys() {
            let noted = journal.announce(nlri);
            note(&mut self.observer, nlri, noted);
        }

        self.journal = Some(journal);
        self.told.extend(found.iter().map(|nlri| (nlri.clone(), Told::Unsure)));
        self.found.extend(found.iter().cloned());
        self.found_until = Instant::now() + self.longest_hold();
        if !found.is_empty() {
            (self.observer)(&Entry::Found { routes: found });
        }
    }

    /// How long found routes wait for an attack that wants them: the longest minimum life of a route.
    fn longest_hold(&self) -> Duration {
        let holds = self.engines.iter().map(|engine| engine.policy().limits.hold);
        holds.max().unwrap_or_default()
    }

    fn hear(&mut self, event: &Event, now: Instant) {
        if self.stopping.is_some() {
            return;
        }
        match event {
            Event::Raised(attack) => {
                self.each_engine(|engine| engine.raise(attack.clone(), now).into_iter().collect());
            }
            Event::Cleared(id) => self.engines.iter_mut().for_each(|engine| engine.clear(id, now)),
            Event::GoOn(attacks) => self.each_engine(|engine| engine.set(attacks, now)),
        }
    }

    fn each_engine(&mut self, mut decide: impl FnMut(&mut Engine) -> Vec<Decision>) {
        for engine in &mut self.engines {
            for decision in decide(engine) {
                (self.observer)(&Entry::decided(engine.policy(), decision));
            }
        }
    }

    fn change(&mut self, change: Change, now: Instant) {
        let Change { policies, observer, attacks, journal } = change;
        (self.stopping, self.is_done) = (None, false);
        let before = self.wanted();
        let former = std::mem::take(&mut self.engines).into_iter();
        let (mut same, gone): (Vec<_>, Vec<_>) =
            former.partition(|engine| policies.contains(engine.policy()));
        self.observer = observer;

        for mut engine in gone {
            let decisions = engine.withdraw_all("the configuration has it no longer");
            self.observe(engine.policy(), decisions);
        }
        for policy in policies {
            if let Some(at) = same.iter().position(|engine| *engine.policy() == policy) {
                self.engines.push(same.swap_remove(at));
            } else {
                self.engines.push(Engine::new(policy));
            }
        }
        self.each_engine(|engine| engine.set(&attacks, now));
        self.take_journal(journal);

        // Another policy may now announce the route with different actions.
        for (nlri, actions) in self.wanted() {
            if before.get(&nlri).is_some_and(|former| *former != actions)
                && let Some(told) = self.told.get_mut(&nlri)
            {
                *told = Told::Unsure;
            }
        }
    }

    fn observe(&mut self, policy: &Policy, decisions: impl IntoIterator<Item = Decision>) {
        for decision in decisions {
            (self.observer)(&Entry::decided(policy, decision));
        }
    }

    fn begin_stop(&mut self, deadline: Instant) {
        if let Some(former) = self.stopping {
            self.stopping = Some(former.min(deadline));
            return;
        }
        self.stopping = Some(deadline);
        self.each_engine(Engine::stop);
        if !self.keeps() {
            self.found.clear();
        }
        self.retries.clear();
        self.connecting = Backoff::none();
    }

    /// Whether a policy keeps its routes when Weir stops.
    fn keeps(&self) -> bool {
        self.engines.iter().any(|engine| engine.policy().on_stop == OnStop::Keep)
    }

    /// Whether everything is withdrawn, or time is up. If so, reports what is left.
    fn has_ended(&mut self, deadline: Instant) -> bool {
        let wanted = self.wanted();
        let stays = |nlri: &Nlri| wanted.contains_key(nlri) || self.found.contains(nlri);
        let (kept, stuck): (Vec<_>, Vec<_>) = self.told.keys().cloned().partition(stays);
        if !stuck.is_empty() && Instant::now() < deadline {
            return false;
        }

        if self.keeps() && !kept.is_empty() {
            let reason = "on_stop is keep".to_owned();
            (self.observer)(&Entry::Left { routes: kept, reason });
        }
        if !stuck.is_empty() {
            let reason = "the speaker did not take the withdrawal in time".to_owned();
            (self.observer)(&Entry::Left { routes: stuck, reason });
        }
        true
    }

    fn wanted(&self) -> BTreeMap<Nlri, Actions> {
        // In reverse order, so that the first policy's actions win.
        let all = self.engines.iter().rev().flat_map(Engine::wanted);
        all.map(|(nlri, actions)| (nlri.clone(), actions.clone())).collect()
    }

    /// Sends the difference between what is wanted and what the speaker has.
    fn reconcile(&mut self) -> Pass {
        let begun = Instant::now();
        let wanted = self.wanted();
        self.retries.retain(|nlri, _| wanted.contains_key(nlri) || self.told.contains_key(nlri));
        self.found.retain(|nlri| self.told.contains_key(nlri) && !wanted.contains_key(nlri));
        if self.stopping.is_none() && begun >= self.found_until {
            self.found.clear();
        }

        let is_dry = self.engines.iter().all(|engine| engine.policy().mode == Mode::DryRun);
        // Connects even without an attack, so that a missing speaker is noticed before it is needed. What was announced
        // before everything became a dry run must be withdrawn all the same.
        if (is_dry && self.told.is_empty()) || !self.connect() {
            return Pass::Whole;
        }

        // Withdrawals first, so that the speaker never has more routes than the limits allow.
        let is_surplus = |nlri: &&Nlri| !wanted.contains_key(*nlri) && !self.found.contains(*nlri);
        let surplus: Vec<_> = self.told.keys().filter(is_surplus).cloned().collect();
        for nlri in surplus {
            if self.is_over_time(begun) {
                return Pass::Part;
            }
            if !self.send(Verdict::Withdraw, &nlri, None) {
                return Pass::Whole;
            }
        }

        let room = self.engines.iter().map(|engine| engine.policy().limits.routes_max).sum();
        for (nlri, actions) in &wanted {
            let told = self.told.get(nlri);
            let is_new = told.is_none();
            if told == Some(&Told::Accepted) || (is_new && self.told.len() >= room) {
                continue;
            }
            if self.is_over_time(begun) {
                return Pass::Part;
            }
            if !self.send(Verdict::Announce, nlri, Some(actions)) {
                return Pass::Whole;
            }
        }
        Pass::Whole
    }

    /// Whether messages, including a stop, have waited long enough for the pass that began then.
    fn is_over_time(&self, begun: Instant) -> bool {
        let now = Instant::now();
        now >= begun + TICK || self.stopping.is_some_and(|deadline| now >= deadline)
    }

    /// Whether the speaker is connected.
    fn connect(&mut self) -> bool {
        if Instant::now() < self.connecting.due {
            return false;
        }
        match self.speaker.session() {
            Ok(Session::Same) => true,
            Ok(Session::Fresh) => {
                // It may have forgotten everything, or nothing.
                self.told.values_mut().for_each(|told| *told = Told::Unsure);
                self.retries.clear();
                self.connecting = Backoff::none();
                self.is_lost = false;
                let speaker = self.speaker.name();
                (self.observer)(&Entry::Connected { speaker });
                true
            }
            Err(error) => {
                self.lose(&error);
                false
            }
        }
    }

    /// Sends the speaker one command. Returns whether it is still there.
    fn send(&mut self, verdict: Verdict, nlri: &Nlri, actions: Option<&Actions>) -> bool {
        if self.retries.get(nlri).is_some_and(|retry| Instant::now() < retry.due) {
            return true;
        }

        let begun = Instant::now();
        if let (Verdict::Announce, Some(journal)) = (verdict, &mut self.journal) {
            let noted = journal.announce(nlri);
            note(&mut self.observer, nlri, noted);
        }
        // Until it answers, it is unknown whether it has the route.
        let before = self.told.insert(nlri.clone(), Told::Unsure);
        let result = match actions {
            Some(actions) => self.speaker.announce(nlri, actions),
            None => self.speaker.withdraw(nlri),
        };

        match result {
            Ok(()) => {
                match verdict {
                    Verdict::Announce => drop(self.told.insert(nlri.clone(), Told::Accepted)),
                    _ => self.forget(nlri),
                }
                self.retries.remove(nlri);
                let took_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
                (self.observer)(&Entry::Accepted { verdict, nlri: nlri.clone(), took_us });
                true
            }
            Err(SpeakError::Refused(error)) => {
                // It keeps what it had before. A route that it may have stays until it accepts the withdrawal.
                match before {
                    Some(before) => drop(self.told.insert(nlri.clone(), before)),
                    None => self.forget(nlri),
                }
                self.retries.entry(nlri.clone()).or_insert_with(Backoff::none).fail();
                (self.observer)(&Entry::Failed { verdict, nlri: nlri.clone(), error });
                true
            }
            Err(error) => {
                self.lose(&error);
                false
            }
        }
    }

    /// Notes that the speaker no longer has the route.
    fn forget(&mut self, nlri: &Nlri) {
        self.told.remove(nlri);
        if let Some(journal) = &mut self.journal {
            let noted = journal.withdraw(nlri);
            note(&mut self.observer, nlri, noted);
        }
    }

    fn lose(&mut self, error: &SpeakError) {
        self.connecting.fail();
        // Reported once, although reconnecting is tried repeatedly.
        if !self.is_lost {
            self.is_lost = true;
            let (speaker, error) = (self.speaker.name(), error.to_string());
            (self.observer)(&Entry::Lost { speaker, error });
        }
    }
}

fn note(observer: &mut Observer, nlri: &Nlri, noted: io::Result<()>) {
    if let Err(error) = noted {
        observer(&Entry::Unnoted { nlri: nlri.clone(), error: error.to_string() });
    }
}
