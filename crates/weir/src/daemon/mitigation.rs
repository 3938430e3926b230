//! Routes that events start: hands threshold events to the mitigations that answer them, and to the BGP speakers.
//!
//! Each speaker has its own thread ([`Control`]), and only that thread talks to it. Handing on an event never blocks, and holds
//! no lock of the analysis.

mod recent;

pub(crate) use recent::Recent;

use crate::event_text;
use ::flows::{Change as Turn, Event, Measure, Subject};
use anyhow::Context;
use config::{Config, MitigationConfig, SpeakerAddress};
use mitigate::{
    Attack, AuditLog, Change, Control, Entry, Event as Told, Flow, Journal, KeyError, Observer,
    Options, Speaker,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use sys::clock::realtime_ns;

/// All speakers, and the attacks that are under way.
#[derive(Default)]
pub(super) struct Mitigations {
    inner: Mutex<Inner>,
    recent: Recent,
}

#[derive(Default)]
struct Inner {
    speakers: Vec<Speaking>,
    /// Speakers that a reload took out of service and that still withdraw routes.
    ending: Vec<Speaking>,
    /// Speakers that start when those in `ending` are done. Two addresses may belong to the same speaker, and one of the two
    /// would withdraw what the other announces.
    waiting: Vec<Next>,
    /// Attacks under way, by event number, according to the thresholds of mitigations. Each threshold has at most `raised_max`
    /// of them.
    attacks: BTreeMap<u64, Attack>,
    /// Times that a configuration was applied.
    changes: u64,
    /// Whether the daemon is stopping: nothing new starts.
    is_stopping: bool,
}

/// A running speaker.
struct Speaking {
    address: SpeakerAddress,
    wanted: Vec<MitigationConfig>,
    control: Control,
    /// The file that records its routes.
    journal_path: Option<PathBuf>,
    /// Whether it missed something. It is told all attacks under way when its queue has room.
    is_behind: bool,
}

/// A speaker of the next configuration.
pub(super) struct Next {
    address: SpeakerAddress,
    wanted: Vec<MitigationConfig>,
    observer: Observer,
    /// `None`: it is running already, or it is opened when it starts.
    speaker: Option<Box<dyn Speaker>>,
    /// The file to record its routes in, and the open journal unless that file is in use already.
    journal_path: Option<PathBuf>,
    journal: Option<Journal>,
}

impl Mitigations {
    /// The last decisions and answers of speakers.
    pub(super) fn recent(&self) -> Recent {
        self.recent.clone()
    }

    /// Starts what a configuration asks for.
    ///
    /// # Errors
    /// An audit log or a socket cannot be opened, or a thread cannot be started.
    pub(super) fn start(config: &Config) -> anyhow::Result<Arc<Mitigations>> {
        let this = Arc::<Mitigations>::default();
        this.apply(this.prepare(config)?, config, Instant::now())?;
        Ok(this)
    }

    /// Opens everything new that a configuration asks for, and changes nothing.
    ///
    /// # Errors
    /// An audit log, a file of routes or a socket cannot be opened.
    pub(super) fn prepare(&self, config: &Config) -> anyhow::Result<Vec<Next>> {
        let inner = self.lock();
        let mut all: Vec<(SpeakerAddress, Vec<MitigationConfig>)> = Vec::new();
        for one in &config.mitigations {
            match all.iter_mut().find(|(address, _)| *address == one.speaker) {
                Some((_, wanted)) => wanted.push(one.clone()),
                None => all.push((one.speaker.clone(), vec![one.clone()])),
            }
        }

        let open = |(address, wanted): (SpeakerAddress, Vec<MitigationConfig>)| {
            let journal_path = journal_path(&address, &wanted);
            let journal = match &journal_path {
                Some(path) if inner.journal_of(&address) != Some(path) => Some(open_journal(path)?),
                _ => None,
            };
            let open = || address.open().with_context(|| format!("speaker {address}"));
            let speaker = if inner.knows(&address) { None } else { Some(open()?) };
            let observer = observer(&wanted, self.recent())?;
            Ok(Next { address, wanted, observer, speaker, journal_path, journal })
        };
        all.into_iter().map(open).collect()
    }

    /// Applies the next configuration. What is the same continues; what is gone is withdrawn, until the deadline.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub(super) fn apply(
        &self,
        next: Vec<Next>,
        config: &Config,
        deadline: Instant,
    ) -> anyhow::Result<()> {
        let mut inner = self.lock();
        let inner = &mut *inner;
        inner.changes += 1;
        inner.attacks.retain(|_, attack| answers(config, &attack.threshold));
        let mut former = std::mem::take(&mut inner.speakers);
        let mut unbegun = std::mem::take(&mut inner.waiting);

        for mut next in next {
            let is_it = |one: &Speaking| one.address == next.address;
            let known = former.iter().position(is_it).map(|at| former.swap_remove(at));
            // Continue with the one that is still withdrawing: two would undo each other's routes.
            let known = known.or_else(|| {
                let at = inner.ending.iter().position(is_it)?;
                Some(inner.ending.swap_remove(at))
            });
            if let Some(mut one) = known {
                one.change(next, &inner.attacks);
                inner.speakers.push(one);
                continue;
            }
            if let Some(at) = unbegun.iter().position(|one| one.address == next.address) {
                let Next { speaker, journal, .. } = unbegun.swap_remove(at);
                next.speaker = next.speaker.or(speaker);
                next.journal = next.journal.or(journal);
            }
            inner.waiting.push(next);
        }

        for mut one in former {
            let recent = self.recent();
            let observer = Box::new(move |entry: &Entry| note(&recent, entry));
            let attacks = Vec::new();
            let change = Change { policies: Vec::new(), observer, attacks, journal: None };
            one.control.change(change);
            one.control.begin_stop(deadline);
            one.wanted.clear();
            inner.ending.push(one);
        }
        inner.begin_waiting()
    }

    /// Takes a threshold event. Never blocks.
    pub(super) fn take(&self, event: &Event) {
        let mut inner = self.lock();
        if inner.is_stopping || !inner.answers(event) {
            return;
        }

        let told = match event.change {
            Turn::Raised => {
                let Some(attack) = attack_or_log(event) else { return };
                inner.attacks.insert(event.raised_id, attack.clone());
                Told::Raised(attack)
            }
            Turn::Cleared => {
                inner.attacks.remove(&event.raised_id);
                Told::Cleared(id(event))
            }
        };
        for one in inner.speakers.iter_mut().filter(|one| one.answers(event)) {
            one.tell(told.clone());
        }
    }

    /// Times that a configuration was applied. After each, the caller must report what is above thresholds again
    /// ([`set`](Self::set)).
    pub(super) fn changes(&self) -> u64 {
        self.lock().changes
    }

    /// Sets everything that is above thresholds now, which makes up for missed events. Never blocks.
    pub(super) fn set(&self, raised: &[Arc<Event>]) {
        let mut inner = self.lock();
        let inner = &mut *inner;
        if inner.is_stopping {
            return;
        }
        let answered = raised.iter().filter(|event| inner.answers(event));
        inner.attacks =
            answered.filter_map(|event| Some((event.raised_id, attack_or_log(event)?))).collect();
        for one in &mut inner.speakers {
            one.is_behind = true;
            one.catch_up(&inner.attacks);
        }
    }

    /// Retries what a busy thread did not take, and starts speakers that waited for others to end.
    pub(super) fn turn(&self) {
        let mut inner = self.lock();
        let inner = &mut *inner;
        for one in &mut inner.speakers {
            one.catch_up(&inner.attacks);
        }
        for at in (0..inner.ending.len()).rev() {
            if inner.ending[at].control.has_stopped() {
                inner.ending.swap_remove(at).control.stop(Instant::now(), || ());
            }
        }
        if let Err(error) = inner.begin_waiting() {
            tracing::error!("mitigation: {error:#}");
        }
    }

    /// Withdraws everything that is not configured to stay. Nothing new starts. Never blocks.
    pub(super) fn begin_stop(&self, deadline: Instant) {
        let mut inner = self.lock();
        inner.is_stopping = true;
        inner.waiting.clear();
        inner.all().for_each(|one| one.control.begin_stop(deadline));
    }

    /// Whether all speakers have finished stopping.
    pub(super) fn have_stopped(&self) -> bool {
        self.lock().all().all(|one| one.control.has_stopped())
    }

    /// Waits for the end: until the deadline, and for a speaker's last answer. Calls `meanwhile` all the time.
    pub(super) fn finish(&self, deadline: Instant, mut meanwhile: impl FnMut()) {
        let Inner { speakers, ending, .. } = std::mem::take(&mut *self.lock());
        for Speaking { address, control, .. } in speakers.into_iter().chain(ending) {
            if !control.stop(deadline, &mut meanwhile) {
                tracing::error!("mitigation: {address} does not answer: it is left behind");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn all(&self) -> impl Iterator<Item = &Speaking> {
        self.speakers.iter().chain(&self.ending)
    }

    fn knows(&self, address: &SpeakerAddress) -> bool {
        self.all().any(|one| one.address == *address)
            || self.waiting.iter().any(|one| one.address == *address)
    }

    fn journal_of(&self, address: &SpeakerAddress) -> Option<&PathBuf> {
        let at_work = self.all().find(|one| one.address == *address);
        let waiting = || self.waiting.iter().find(|one| one.address == *address);
        match at_work {
            Some(one) => one.journal_path.as_ref(),
            None => waiting()?.journal_path.as_ref(),
        }
    }

    fn answers(&self, event: &Event) -> bool {
        self.speakers.iter().any(|one| one.answers(event))
            || self.waiting.iter().any(|one| do_answer(&one.wanted, event))
    }

    /// Starts the waiting speakers, if none is still ending.
    fn begin_waiting(&mut self) -> anyhow::Result<()> {
        if self.is_stopping || !self.ending.is_empty() {
            return Ok(());
        }
        for next in std::mem::take(&mut self.waiting) {
            self.speakers.push(Speaking::begin(next, &self.attacks)?);
        }
        Ok(())
    }
}

impl Speaking {
    fn begin(mut next: Next, attacks: &BTreeMap<u64, Attack>) -> anyhow::Result<Speaking> {
        let open = || next.address.open().with_context(|| format!("speaker {}", next.address));
        // Open here what a former thread had in use when the reload began; that thread has ended since.
        let speaker = next.speaker.take().map_or_else(open, Ok)?;
        if let (None, Some(path)) = (&next.journal, &next.journal_path) {
            next.journal = Some(open_journal(path)?);
        }
        let (policies, observer) = (Vec::new(), Box::new(|_: &Entry| {}));
        let nobody = Options { policies, speaker, observer, journal: None };
        let mut one = Speaking {
            address: next.address.clone(),
            wanted: Vec::new(),
            control: Control::start(nobody).context("mitigation has no thread")?,
            journal_path: None,
            is_behind: false,
        };
        one.change(next, attacks);
        Ok(one)
    }

    /// Switches to the next configuration.
    fn change(&mut self, next: Next, attacks: &BTreeMap<u64, Attack>) {
        let Next { wanted, observer, journal_path, journal, .. } = next;
        if self.wanted == wanted {
            return;
        }
        let policies = wanted.iter().map(MitigationConfig::policy).collect();
        let attacks = attacks.values().cloned().collect();
        self.control.change(Change { policies, observer, attacks, journal });
        (self.wanted, self.is_behind) = (wanted, false);
        self.journal_path = journal_path.or(self.journal_path.take());
    }

    fn answers(&self, event: &Event) -> bool {
        do_answer(&self.wanted, event)
    }

    fn tell(&mut self, told: Told) {
        if !self.is_behind && self.control.tell(told).is_err() {
            tracing::warn!("mitigation: {} is behind; it is told what goes on then", self.address);
            self.is_behind = true;
        }
    }

    fn catch_up(&mut self, attacks: &BTreeMap<u64, Attack>) {
        if self.is_behind {
            let all = attacks.values().cloned().collect();
            self.is_behind = self.control.tell(Told::GoOn(all)).is_err();
        }
    }
}

/// The file that records a speaker's routes: next to the first audit log of its mitigations.
fn journal_path(address: &SpeakerAddress, wanted: &[MitigationConfig]) -> Option<PathBuf> {
    let audit_log = wanted.iter().find_map(|one| one.audit_log.as_ref())?;
    let address = address.to_string();
    let words: Vec<&str> = address
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect();
    let mut path = audit_log.clone().into_os_string();
    path.push(format!(".{}.routes", words.join("-")));
    Some(path.into())
}

fn open_journal(path: &Path) -> anyhow::Result<Journal> {
    Journal::open(path).with_context(|| format!("cannot use the file of routes {}", path.display()))
}

fn answers(config: &Config, threshold: &str) -> bool {
    config.mitigations.iter().any(|one| one.thresholds.iter().any(|name| name == threshold))
}

fn do_answer(wanted: &[MitigationConfig], event: &Event) -> bool {
    wanted.iter().any(|one| one.thresholds.iter().any(|name| **name == *event.threshold))
}

fn attack_or_log(event: &Event) -> Option<Attack> {
    let log = |error| tracing::error!("mitigation: #{} has no route: {error}", event.raised_id);
    attack(event).map_err(log).ok()
}

/// The event number, as in the log.
fn id(event: &Event) -> String {
    event.raised_id.to_string()
}

/// The attack that an event describes. A value counted in bytes is converted to bits, as thresholds have it.
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
        measured: event_text::figure(event, event.figure.value),
    })
}

/// An observer that writes entries to the log and to the audit logs of the mitigations they concern. What a speaker says
/// concerns all of them.
fn observer(wanted: &[MitigationConfig], recent: Recent) -> anyhow::Result<Observer> {
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
        note(&recent, entry);
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

fn note(recent: &Recent, entry: &Entry) {
    recent.push(entry, realtime_ns());
    log(entry);
}

fn log(entry: &Entry) {
    let line = text::escaped(&entry.to_json().to_string());
    match entry {
        Entry::Failed { .. }
        | Entry::Lost { .. }
        | Entry::Found { .. }
        | Entry::Unnoted { .. }
        | Entry::Left { .. } => {
            tracing::warn!("mitigation: {line}");
        }
        _ => tracing::info!("mitigation: {line}"),
    }
}
