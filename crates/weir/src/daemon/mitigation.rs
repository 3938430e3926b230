//! Routes that events start: what thresholds say goes to the mitigations that answer them, and to the BGP speakers.
//!
//! Each speaker has a thread of its own ([`Control`]), which alone talks to it. Whoever hands events on waits for nobody, and holds
//! no lock of the analysis meanwhile.

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

/// All speakers, with the attacks that go on.
#[derive(Default)]
pub(super) struct Mitigations(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    speakers: Vec<Speaking>,
    /// Speakers that a reload took out of service: they still withdraw.
    ending: Vec<Speaking>,
    /// Speakers that begin when those have ended. Two addresses may be one speaker, of which one would withdraw what the other announces.
    waiting: Vec<Next>,
    /// Attacks that thresholds of mitigations say go on, by their number. Each threshold has at most `raised_max` of them.
    attacks: BTreeMap<u64, Attack>,
    /// How often the configuration was applied.
    changes: u64,
    /// Whether the daemon stops: nothing is started any more.
    is_stopping: bool,
}

/// A speaker at work.
struct Speaking {
    address: SpeakerAddress,
    wanted: Vec<MitigationConfig>,
    control: Control,
    /// Where its routes are noted.
    journal_path: Option<PathBuf>,
    /// Whether it was not told everything. It is told what goes on when it has room.
    is_behind: bool,
}

/// A speaker of the next configuration.
pub(super) struct Next {
    address: SpeakerAddress,
    wanted: Vec<MitigationConfig>,
    observer: Observer,
    /// `None`: it is at work already, or it is opened when it begins.
    speaker: Option<Box<dyn Speaker>>,
    /// Where its routes are to be noted, and the file unless it is in use already.
    journal_path: Option<PathBuf>,
    journal: Option<Journal>,
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
            let observer = observer(&wanted)?;
            Ok(Next { address, wanted, observer, speaker, journal_path, journal })
        };
        all.into_iter().map(open).collect()
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
        let inner = &mut *inner;
        inner.changes += 1;
        inner.attacks.retain(|_, attack| answers(config, &attack.threshold));
        let mut former = std::mem::take(&mut inner.speakers);
        let mut unbegun = std::mem::take(&mut inner.waiting);

        for mut next in next {
            let is_it = |one: &Speaking| one.address == next.address;
            let known = former.iter().position(is_it).map(|at| former.swap_remove(at));
            // One that still withdraws is the one that goes on: two would undo what the other does.
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
            let (observer, attacks) = (Box::new(log), Vec::new());
            let change = Change { policies: Vec::new(), observer, attacks, journal: None };
            one.control.change(change);
            one.control.begin_stop(deadline);
            one.wanted.clear();
            inner.ending.push(one);
        }
        inner.begin_waiting()
    }

    /// Takes an event of a threshold. Waits for nobody.
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

    /// How often the configuration was applied: then what goes on is to be told anew ([`set`](Self::set)).
    pub(super) fn changes(&self) -> u64 {
        self.lock().changes
    }

    /// These are all that is above thresholds now: what was missed is made up for. Waits for nobody.
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

    /// Hands on what a thread was too busy for, and begins what waited for others to end.
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

    /// Has everything withdrawn that is not to be kept; nothing is started any more. Waits for nobody.
    pub(super) fn begin_stop(&self, deadline: Instant) {
        let mut inner = self.lock();
        inner.is_stopping = true;
        inner.waiting.clear();
        inner.all().for_each(|one| one.control.begin_stop(deadline));
    }

    /// Whether everything is done that a stop takes.
    pub(super) fn have_stopped(&self) -> bool {
        self.lock().all().all(|one| one.control.has_stopped())
    }

    /// Waits for the end: until the deadline, and for the last answer of a speaker. `meanwhile` is called all the time.
    pub(super) fn finish(&self, deadline: Instant, mut meanwhile: impl FnMut()) {
        let Inner { speakers, ending, .. } = std::mem::take(&mut *self.lock());
        for Speaking { address, control, .. } in speakers.into_iter().chain(ending) {
            if !control.stop(deadline, &mut meanwhile) {
                tracing::error!("mitigation: {address} does not answer: it is left behind");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Begins what waits for others to end, if they have.
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
        // What a former thread had is opened here, if that has ended since the reload began.
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

    /// Goes on as the next configuration has it.
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

/// Where the routes of a speaker are noted: next to the first audit log of its mitigations.
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
