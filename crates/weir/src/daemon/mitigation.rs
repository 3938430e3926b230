//! Routes that events start: what thresholds say goes to the mitigations that answer them, and to the BGP speakers.
//!
//! Each speaker has a thread of its own ([`Control`]), which alone talks to it. Whoever hands events on waits for nobody, and holds
//! no lock of the analysis meanwhile.

use ::flows::{Change as Turn, Event, Measure, Subject};
use anyhow::Context;
use config::{Config, MitigationConfig, SpeakerAddress};
use mitigate::{
    Attack, AuditLog, Change, Control, Entry, Event as Told, Flow, KeyError, Observer, Options,
    Policy, Speaker,
};
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use sys::clock::realtime_ns;

/// Most events that wait here for a thread that is behind.
const LATE_MAX: usize = 10_000;

/// All speakers, with the attacks that go on.
#[derive(Default)]
pub(super) struct Mitigations(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    speakers: Vec<Speaking>,
    /// Of speakers that a reload took out of service: they still withdraw.
    ending: Vec<Control>,
    /// Attacks that thresholds of mitigations say go on, by their number. Each threshold has at most `raised_max` of them.
    attacks: BTreeMap<u64, Attack>,
    /// Whether the daemon stops: nothing is started any more.
    is_stopping: bool,
}

/// A speaker at work.
struct Speaking {
    address: SpeakerAddress,
    wanted: Vec<MitigationConfig>,
    control: Control,
    late: VecDeque<Told>,
}

/// A speaker of the next configuration.
pub(super) struct Next {
    address: SpeakerAddress,
    wanted: Vec<MitigationConfig>,
    observer: Observer,
    /// `None`: it is at work already.
    speaker: Option<Box<dyn Speaker>>,
}

impl Mitigations {
    /// Starts what a configuration asks for.
    ///
    /// # Errors
    /// An audit log or a socket cannot be opened, or the system has no thread.
    pub(super) fn start(config: &Config) -> anyhow::Result<Arc<Mitigations>> {
        let this = Arc::<Mitigations>::default();
        this.apply(this.prepare(config)?, config, Instant::now())?;
        Ok(this)
    }

    /// Opens everything that a configuration asks for and is not there, and changes nothing.
    ///
    /// # Errors
    /// An audit log or a socket cannot be opened.
    pub(super) fn prepare(&self, config: &Config) -> anyhow::Result<Vec<Next>> {
        let inner = self.lock();
        let mut all: Vec<Next> = Vec::new();
        for one in &config.mitigations {
            if let Some(next) = all.iter_mut().find(|next| next.address == one.speaker) {
                next.wanted.push(one.clone());
                continue;
            }
            let is_there = inner.speakers.iter().any(|known| known.address == one.speaker);
            let open = || one.speaker.open().with_context(|| format!("speaker {}", one.speaker));
            all.push(Next {
                address: one.speaker.clone(),
                wanted: vec![one.clone()],
                observer: Box::new(|_| {}),
                speaker: if is_there { None } else { Some(open()?) },
            });
        }
        for next in &mut all {
            next.observer = observer(&next.wanted)?;
        }
        Ok(all)
    }

    /// Makes it so. What is the same goes on; what is gone is withdrawn until the deadline.
    ///
    /// # Errors
    /// The system has no thread for one of them.
    pub(super) fn apply(
        &self,
        next: Vec<Next>,
        config: &Config,
        deadline: Instant,
    ) -> anyhow::Result<()> {
        let mut inner = self.lock();
        let mut result = Ok(());
        let mut former = std::mem::take(&mut inner.speakers);
        inner.attacks.retain(|_, attack| answers(config, &attack.threshold));
        let attacks: Vec<Attack> = inner.attacks.values().cloned().collect();

        for Next { address, wanted, observer, speaker } in next {
            let policies = wanted.iter().map(MitigationConfig::policy).collect();
            let known = former.iter().position(|one| one.address == address);
            if let Some(mut one) = known.map(|at| former.swap_remove(at)) {
                if one.wanted != wanted {
                    one.control.change(Change { policies, observer, attacks: attacks.clone() });
                    one.wanted = wanted;
                }
                inner.speakers.push(one);
            } else if let Some(speaker) = speaker {
                match begin((policies, observer), speaker, &attacks) {
                    Ok(control) => {
                        let late = VecDeque::new();
                        inner.speakers.push(Speaking { address, wanted, control, late });
                    }
                    Err(error) => result = Err(error),
                }
            }
        }

        for Speaking { control, .. } in former {
            let observer = Box::new(log);
            control.change(Change { policies: Vec::new(), observer, attacks: Vec::new() });
            control.begin_stop(deadline);
            inner.ending.push(control);
        }
        result
    }

    /// Takes an event of a threshold. Waits for nobody.
    pub(super) fn take(&self, event: &Event) {
        let mut inner = self.lock();
        let answers = |one: &Speaking| one.wanted.iter().any(|one| does_answer(one, event));
        if inner.is_stopping || !inner.speakers.iter().any(answers) {
            return;
        }

        let told = match event.change {
            Turn::Raised => match attack(event) {
                Ok(attack) => {
                    inner.attacks.insert(event.raised_id, attack.clone());
                    Told::Raised(attack)
                }
                Err(error) => {
                    tracing::error!("mitigation: #{} has no route: {error}", event.raised_id);
                    return;
                }
            },
            Turn::Cleared => {
                inner.attacks.remove(&event.raised_id);
                Told::Cleared(id(event))
            }
        };
        for one in inner.speakers.iter_mut().filter(|one| answers(one)) {
            one.tell(told.clone());
        }
    }

    /// Hands on what a thread was too busy for.
    pub(super) fn turn(&self) {
        let mut inner = self.lock();
        inner.speakers.iter_mut().for_each(Speaking::catch_up);
        inner.ending.retain(|control| !control.has_ended());
    }

    /// Has everything withdrawn that is not to be kept; nothing is started any more. Waits for nobody.
    pub(super) fn begin_stop(&self, deadline: Instant) {
        let mut inner = self.lock();
        inner.is_stopping = true;
        let speakers = inner.speakers.iter().map(|one| &one.control);
        speakers.chain(&inner.ending).for_each(|control| control.begin_stop(deadline));
    }

    /// Waits for the end: until the deadline, and for the last answer of a speaker.
    pub(super) fn finish(&self, deadline: Instant) {
        let Inner { speakers, ending, .. } = std::mem::take(&mut *self.lock());
        let speakers = speakers.into_iter().map(|one| one.control);
        speakers.chain(ending).for_each(|control| control.stop(deadline));
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Speaking {
    fn tell(&mut self, told: Told) {
        if self.late.len() >= LATE_MAX {
            tracing::error!(
                "mitigation: {} is behind by {LATE_MAX} events; one is not answered",
                self.address
            );
            return;
        }
        self.late.push_back(told);
        self.catch_up();
    }

    fn catch_up(&mut self) {
        while let Some(told) = self.late.front() {
            if self.control.tell(told.clone()).is_err() {
                return;
            }
            self.late.pop_front();
        }
    }
}

fn begin(
    (policies, observer): (Vec<Policy>, Observer),
    speaker: Box<dyn Speaker>,
    attacks: &[Attack],
) -> anyhow::Result<Control> {
    let nobody = Options { policies: Vec::new(), speaker, observer: Box::new(|_| {}) };
    let control = Control::start(nobody).context("mitigation has no thread")?;
    control.change(Change { policies, observer, attacks: attacks.to_vec() });
    Ok(control)
}

fn answers(config: &Config, threshold: &str) -> bool {
    config.mitigations.iter().any(|one| one.thresholds.iter().any(|name| name == threshold))
}

fn does_answer(one: &MitigationConfig, event: &Event) -> bool {
    one.thresholds.iter().any(|name| **name == *event.threshold)
}

/// The number by which the log has it too.
fn id(event: &Event) -> String {
    event.raised_id.to_string()
}

/// What an event says of an attack; its value in bits where bytes are counted, as thresholds have it.
fn attack(event: &Event) -> Result<Attack, KeyError> {
    let Subject::Flow { measure, shown, .. } = &event.subject else {
        return Err(KeyError::NoTarget);
    };
    let keys = shown.iter().map(|(word, value)| (word.as_str(), value.as_str()));
    let scale = if *measure == Measure::Bytes { 8.0 } else { 1.0 };
    Ok(Attack {
        id: id(event),
        threshold: event.threshold.to_string(),
        flow: Flow::of_keys(keys)?,
        value: (event.figure.value * scale).round(),
    })
}

/// Writes entries to the log, and to the audit logs of the mitigations that they are about. What a speaker says is about all of them.
fn observer(wanted: &[MitigationConfig]) -> anyhow::Result<Observer> {
    let mut files: BTreeMap<PathBuf, (AuditLog, Vec<String>)> = BTreeMap::new();
    for MitigationConfig { name, audit_log, .. } in wanted {
        let Some(path) = audit_log else { continue };
        if let Some((_, names)) = files.get_mut(path) {
            names.push(name.clone());
            continue;
        }
        let file = AuditLog::open(path)
            .with_context(|| format!("cannot append to the audit log {}", path.display()))?;
        files.insert(path.clone(), (file, vec![name.clone()]));
    }

    Ok(Box::new(move |entry| {
        log(entry);
        for (path, (file, names)) in &mut files {
            let is_theirs = match entry {
                Entry::Decided { mitigation, .. } => names.contains(mitigation),
                _ => true,
            };
            if is_theirs && let Err(error) = file.append(entry, realtime_ns()) {
                tracing::error!("audit log {}: {error}", path.display());
            }
        }
    }))
}

fn log(entry: &Entry) {
    let line = text::escaped(&entry.to_json().to_string());
    match entry {
        Entry::Failed { .. } | Entry::Lost { .. } | Entry::Left { .. } => {
            tracing::warn!("mitigation: {line}");
        }
        _ => tracing::info!("mitigation: {line}"),
    }
}
