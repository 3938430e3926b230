//! The thread that holds engines and a speaker together: what is wanted, what the speaker accepted, and the difference.

use crate::{
    Actions, Attack, Decision, Engine, Entry, Mode, Nlri, OnStop, Policy, Session, SpeakError,
    Speaker, Verdict,
};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Time between two looks at the clock and at the speaker.
const TICK: Duration = Duration::from_millis(100);
/// Most events that wait for the thread.
const EVENTS_MAX: usize = 4_096;
/// The first pause after a failure, which doubles with each up to the longest.
const RETRY_MIN: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(2);

/// What the thread is told of attacks.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    Raised(Attack),
    /// The attack of this id is over.
    Cleared(String),
}

/// The thread is behind: the event was not taken.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("mitigation is behind by {EVENTS_MAX} events")]
pub struct Full;

/// Hears every entry of the audit log.
pub type Observer = Box<dyn FnMut(&Entry) + Send>;

/// What takes the place of policies while the thread runs.
pub struct Change {
    /// One that is there already goes on with its routes. The routes of one that is not here are withdrawn, on stop kept or not.
    pub policies: Vec<Policy>,
    pub observer: Observer,
    /// Attacks that go on: policies that begin answer them.
    pub attacks: Vec<Attack>,
}

/// What the thread is started with.
pub struct Options {
    /// Of two that announce the same route the first one's actions hold.
    pub policies: Vec<Policy>,
    pub speaker: Box<dyn Speaker>,
    pub observer: Observer,
}

/// The running thread.
pub struct Control {
    sender: SyncSender<Message>,
    thread: JoinHandle<()>,
}

enum Message {
    Event(Event),
    Change(Change),
    /// Withdraw what is to be withdrawn until then, and end.
    Stop(Instant),
}

impl Control {
    /// Starts it.
    ///
    /// # Errors
    /// The system has no thread for it.
    pub fn start(options: Options) -> io::Result<Control> {
        let (sender, messages) = mpsc::sync_channel(EVENTS_MAX);
        let mut state = State::new(options);
        let thread = thread::Builder::new().name("mitigation".to_owned());
        let thread = thread.spawn(move || state.run(&messages))?;
        Ok(Control { sender, thread })
    }

    /// Says that an attack began or ended. Does not wait.
    ///
    /// # Errors
    /// Too many events wait already.
    pub fn tell(&self, event: Event) -> Result<(), Full> {
        self.sender.try_send(Message::Event(event)).map_err(|_| Full)
    }

    /// Goes on with other policies.
    pub fn change(&self, change: Change) {
        // Fails only if the thread has ended.
        let _ = self.sender.send(Message::Change(change));
    }

    /// Has it withdraw what the policies do not keep until then, and end. Said again, an earlier deadline holds.
    pub fn begin_stop(&self, deadline: Instant) {
        // Fails only if the thread has ended.
        let _ = self.sender.send(Message::Stop(deadline));
    }

    /// Whether the thread has ended.
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Stops it and waits for its end: at most until then, and the speaker's timeout beyond.
    pub fn stop(self, deadline: Instant) {
        self.begin_stop(deadline);
        let _ = self.thread.join();
    }
}

struct State {
    engines: Vec<Engine>,
    speaker: Box<dyn Speaker>,
    observer: Observer,
    /// What the speaker has, or may have.
    told: BTreeMap<Nlri, Told>,
    /// What it did not accept.
    retries: BTreeMap<Nlri, Backoff>,
    connecting: Backoff,
    is_lost: bool,
}

/// Whether the speaker has a route for sure, as of this session.
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
    fn new(Options { policies, speaker, observer }: Options) -> State {
        State {
            engines: policies.into_iter().map(Engine::new).collect(),
            speaker,
            observer,
            told: BTreeMap::new(),
            retries: BTreeMap::new(),
            connecting: Backoff::none(),
            is_lost: false,
        }
    }

    fn run(&mut self, messages: &Receiver<Message>) {
        loop {
            let first = match messages.recv_timeout(TICK) {
                Ok(message) => Some(message),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return self.end(Instant::now(), messages),
            };
            // Those that came together are answered together.
            for message in first.into_iter().chain(messages.try_iter()) {
                match message {
                    Message::Event(event) => self.hear(&event, Instant::now()),
                    Message::Change(change) => self.change(change, Instant::now()),
                    Message::Stop(deadline) => return self.end(deadline, messages),
                }
            }

            self.each_engine(|engine| engine.tick(Instant::now()));
            self.reconcile();
        }
    }

    fn hear(&mut self, event: &Event, now: Instant) {
        match event {
            Event::Raised(attack) => {
                self.each_engine(|engine| engine.raise(attack.clone(), now).into_iter().collect());
            }
            Event::Cleared(id) => self.engines.iter_mut().for_each(|engine| engine.clear(id, now)),
        }
    }

    fn each_engine(&mut self, mut decide: impl FnMut(&mut Engine) -> Vec<Decision>) {
        for engine in &mut self.engines {
            for decision in decide(engine) {
                (self.observer)(&Entry::decided(engine.policy(), decision));
            }
        }
    }

    fn change(&mut self, Change { policies, observer, attacks }: Change, now: Instant) {
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
                continue;
            }
            let mut engine = Engine::new(policy);
            for attack in &attacks {
                let decision = engine.raise(attack.clone(), now);
                self.observe(engine.policy(), decision);
            }
            self.engines.push(engine);
        }

        // What another policy wants now may be announced with other actions.
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

    fn end(&mut self, mut deadline: Instant, messages: &Receiver<Message>) {
        self.each_engine(Engine::stop);
        self.retries.clear();
        self.connecting = Backoff::none();
        loop {
            self.reconcile();
            let wanted = self.wanted();
            let is_done = self.told.keys().all(|nlri| wanted.contains_key(nlri));
            if is_done || Instant::now() >= deadline {
                break;
            }
            match messages.recv_timeout(TICK) {
                Ok(Message::Stop(other)) => deadline = deadline.min(other),
                Err(RecvTimeoutError::Disconnected) => thread::park_timeout(TICK),
                _ => {}
            }
        }

        let wanted = self.wanted();
        let told: BTreeSet<_> = self.told.keys().cloned().collect();
        let (kept, stuck): (Vec<_>, Vec<_>) =
            told.into_iter().partition(|nlri| wanted.contains_key(nlri));
        let keep = self.engines.iter().any(|engine| engine.policy().on_stop == OnStop::Keep);
        if keep && !kept.is_empty() {
            let reason = "on_stop is keep".to_owned();
            (self.observer)(&Entry::Left { routes: kept, reason });
        }
        if !stuck.is_empty() {
            let reason = "the speaker did not take the withdrawal in time".to_owned();
            (self.observer)(&Entry::Left { routes: stuck, reason });
        }
    }

    fn wanted(&self) -> BTreeMap<Nlri, Actions> {
        // Backwards, so that the first policy's actions are the ones that stay.
        let all = self.engines.iter().rev().flat_map(Engine::wanted);
        all.map(|(nlri, actions)| (nlri.clone(), actions.clone())).collect()
    }

    /// Sends the difference between what is wanted and what the speaker has.
    fn reconcile(&mut self) {
        let wanted = self.wanted();
        self.retries.retain(|nlri, _| wanted.contains_key(nlri) || self.told.contains_key(nlri));
        let is_dry = self.engines.iter().all(|engine| engine.policy().mode == Mode::DryRun);
        // Without an attack too: that there is no speaker is known before it is needed. What was announced before everything
        // became a dry run is withdrawn all the same.
        if (is_dry && self.told.is_empty()) || !self.connect() {
            return;
        }

        // First what frees room: the speaker never has more than the limits say.
        let surplus: Vec<_> =
            self.told.keys().filter(|nlri| !wanted.contains_key(*nlri)).cloned().collect();
        for nlri in surplus {
            if !self.send(Verdict::Withdraw, &nlri, None) {
                return;
            }
        }

        let room = self.engines.iter().map(|engine| engine.policy().limits.routes_max).sum();
        for (nlri, actions) in &wanted {
            let told = self.told.get(nlri);
            let is_new = told.is_none();
            if told == Some(&Told::Accepted) || (is_new && self.told.len() >= room) {
                continue;
            }
            if !self.send(Verdict::Announce, nlri, Some(actions)) {
                return;
            }
        }
    }

    /// Whether the speaker is there.
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

    /// Tells the speaker one thing. Returns whether it is still there.
    fn send(&mut self, verdict: Verdict, nlri: &Nlri, actions: Option<&Actions>) -> bool {
        if self.retries.get(nlri).is_some_and(|retry| Instant::now() < retry.due) {
            return true;
        }

        let begun = Instant::now();
        // Until there is an answer nobody knows whether it has the route.
        let before = self.told.insert(nlri.clone(), Told::Unsure);
        let result = match actions {
            Some(actions) => self.speaker.announce(nlri, actions),
            None => self.speaker.withdraw(nlri),
        };

        match result {
            Ok(()) => {
                match verdict {
                    Verdict::Announce => self.told.insert(nlri.clone(), Told::Accepted),
                    _ => self.told.remove(nlri),
                };
                self.retries.remove(nlri);
                let took_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
                (self.observer)(&Entry::Accepted { verdict, nlri: nlri.clone(), took_us });
                true
            }
            Err(SpeakError::Refused(error)) => {
                // A speaker that began anew does not have what it is told to withdraw.
                let is_unknown = verdict == Verdict::Withdraw && before == Some(Told::Unsure);
                match before {
                    Some(before) if !is_unknown => self.told.insert(nlri.clone(), before),
                    _ => self.told.remove(nlri),
                };
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

    fn lose(&mut self, error: &SpeakError) {
        self.connecting.fail();
        // Once: it is tried again until it is there.
        if !self.is_lost {
            self.is_lost = true;
            let (speaker, error) = (self.speaker.name(), error.to_string());
            (self.observer)(&Entry::Lost { speaker, error });
        }
    }
}
