//! Changes to the targets of a running listener.
//!
//! A data thread notices a change between two batches; an idle one checks only every tenth of a second. So all changes, even of
//! several listeners, are requested first, and their answers are awaited afterwards: a hundred changes take as long as one.

use super::place::Joined;
use super::{Listener, TargetHandle};
use crate::gate::Gate;
use crate::options::Class;
use crate::pump::{Change, Command, Replaced};
use crate::receiver::Request;
use crate::ring::Reader;
use crate::{Error, TargetKind, TargetOptions};
use ledger::{Amount, Meter, Tally};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use sys::clock::monotonic_ns;

/// How long to wait for the changes of all file targets together.
const FILE_ANSWERS_WAIT: Duration = Duration::from_millis(500);
/// How long data threads may take to answer before a change counts as failed.
const ANSWERS_WAIT: Duration = Duration::from_secs(5);
/// Time between two calls of `keep_alive` while waiting.
const LIFE_INTERVAL: Duration = Duration::from_millis(50);

/// One change to the targets of a listener.
#[derive(Debug)]
pub enum TargetChange {
    /// Add a target that starts with the next datagram.
    Add(TargetOptions, TargetKind),
    /// Give the target of that name other options and another destination. It keeps its place in the ring, so every datagram is
    /// handled once, by the old options or the new.
    ///
    /// If the kind changes (file, sink or socket), the old target has the grace period for what the ring held for it when the new
    /// one joined. Later datagrams that it had already taken go to both.
    Change(TargetOptions, TargetKind),
    /// Send to another destination from the next datagram on, with the same options. The new socket is open before the old one is
    /// closed. Neither may be a file or a sink. A link takes the socket alone, and continues.
    Redirect(String, TargetKind),
    /// Remove a target. It sends what the ring holds for it now, for the grace period, and counts the rest as `target_removed`.
    Remove(String),
}

/// Changes that were requested and not answered yet.
#[must_use = "a target that is added joins only when the answers are waited for"]
pub struct ChangesUnderWay {
    steps: Vec<Step>,
    grace: Duration,
}

enum Step {
    Done(Result<(), Error>),
    Join {
        options: TargetOptions,
        destination: TargetKind,
        lost: Arc<Tally>,
        answer: Receiver<(Reader, Amount)>,
    },
    Replace {
        target: String,
        class: Class,
        answer: Receiver<Replaced>,
    },
}

/// Deadlines for the answers.
struct Patience<'a> {
    all: Instant,
    files: Instant,
    keep_alive: &'a mut dyn FnMut(),
}

impl Patience<'_> {
    fn wait<T>(&mut self, answer: &Receiver<T>, until: Instant) -> Result<T, RecvTimeoutError> {
        loop {
            let rest = until.saturating_duration_since(Instant::now());
            match answer.recv_timeout(rest.min(LIFE_INTERVAL)) {
                Err(RecvTimeoutError::Timeout) if !rest.is_zero() => (self.keep_alive)(),
                answer => return answer,
            }
        }
    }
}

impl Listener {
    /// Requests these changes and returns at once; [`finish_changes`](Self::finish_changes) waits for them. A removed target has
    /// up to `grace` for what the ring holds for it.
    pub fn begin_changes(
        &mut self,
        changes: Vec<TargetChange>,
        grace: Duration,
    ) -> ChangesUnderWay {
        let begin = |change| self.begin_change(change, grace);
        let steps = changes.into_iter().map(begin);
        let steps = steps.map(|step| step.unwrap_or_else(|error| Step::Done(Err(error))));
        ChangesUnderWay { steps: steps.collect(), grace }
    }

    fn begin_change(&mut self, change: TargetChange, grace: Duration) -> Result<Step, Error> {
        let is_first_to_ask = match &change {
            TargetChange::Add(options, to) | TargetChange::Change(options, to) => {
                self.note_what_it_asks(options, to)
            }
            TargetChange::Redirect(..) | TargetChange::Remove(_) => false,
        };

        match change {
            TargetChange::Add(options, _) if self.position(&options.name).is_ok() => {
                Err(self.duplicate(options.name))
            }
            TargetChange::Add(options, destination) => self.begin_join(options, destination),
            TargetChange::Change(options, destination) => {
                let target = self.target(&options.name)?;
                // A link keeps its other end and its key for its whole life.
                if target.class != destination.class() || target.class == Class::Link {
                    return self.begin_join(options, destination);
                }
                let gate = Some(Gate::new(&options, monotonic_ns()));
                // No datagram without a source may pass the new gate. If sources were not requested before, the receive call that
                // the thread is in returns the last of those.
                let by_way =
                    if is_first_to_ask { Self::command_after_receive } else { Self::command };
                self.begin_replace(target, Change { destination, gate }, by_way)
            }
            TargetChange::Redirect(name, destination) => {
                let target = self.target(&name)?;
                let has_socket = matches!(target.class, Class::Socket | Class::Link);
                if !has_socket || destination.class() != target.class {
                    return Err(self.not_replaceable(&name));
                }
                self.begin_replace(target, Change { destination, gate: None }, Self::command)
            }
            TargetChange::Remove(name) => Ok(Step::Done(self.remove_target(&name, grace))),
        }
    }

    fn begin_join(&self, options: TargetOptions, destination: TargetKind) -> Result<Step, Error> {
        let lost = Arc::<Tally>::default();
        let (reply, answer) = mpsc::channel();
        self.request(Request::Join { lost: Arc::clone(&lost), reply })?;
        Ok(Step::Join { options, destination, lost, answer })
    }

    fn begin_replace(
        &self,
        target: &TargetHandle,
        mut change: Change,
        command: fn(&Self, &TargetHandle, Command) -> Result<(), Error>,
    ) -> Result<Step, Error> {
        let (done, answer) = mpsc::channel();
        let name = target.name.clone();
        change.destination.note_listener(self.socket());
        target.meter.follow(&change.destination);
        let change = Box::new(change);
        command(self, target, Command::Replace { target: name.clone(), change, done })?;
        Ok(Step::Replace { target: name, class: target.class, answer })
    }

    /// Waits until the changes are in force, for at most a few seconds, and meanwhile calls `keep_alive` several times a second.
    /// The results are in the order of the changes.
    ///
    /// A file target may be blocked by its disk. Its change counts as done, and takes effect when the disk responds.
    ///
    /// # Errors
    /// There is no target with that name, or there already is one; the listener has stopped; or a thread cannot be started or
    /// does not answer.
    pub fn finish_changes(
        &mut self,
        changes: ChangesUnderWay,
        keep_alive: &mut dyn FnMut(),
    ) -> Vec<Result<(), Error>> {
        let now = Instant::now();
        let mut patience =
            Patience { all: now + ANSWERS_WAIT, files: now + FILE_ANSWERS_WAIT, keep_alive };
        let grace = changes.grace;
        let finish = |step| self.finish_step(step, grace, &mut patience);
        changes.steps.into_iter().map(finish).collect()
    }

    fn finish_step(
        &mut self,
        step: Step,
        grace: Duration,
        patience: &mut Patience<'_>,
    ) -> Result<(), Error> {
        match step {
            Step::Done(result) => result,
            Step::Join { options, destination, lost, answer } => {
                let answer = patience.wait(&answer, patience.all);
                let (reader, amount) = answer.map_err(|error| self.unanswered(error))?;
                self.take_in(options, destination, Joined { reader, amount, lost }, grace)
            }
            Step::Replace { target, class: Class::File, answer } => {
                match patience.wait(&answer, patience.files) {
                    Ok(Replaced::No) => Err(self.not_replaceable(&target)),
                    Ok(Replaced::Yes) | Err(_) => Ok(()),
                }
            }
            Step::Replace { target, class: _, answer } => {
                match patience.wait(&answer, patience.all) {
                    Ok(Replaced::Yes) => Ok(()),
                    Ok(Replaced::No) => Err(self.not_replaceable(&target)),
                    Err(error) => Err(self.unanswered(error)),
                }
            }
        }
    }

    /// Gives a target its place in the ring. An older one with the same name but another kind ends where this one starts.
    fn take_in(
        &mut self,
        options: TargetOptions,
        destination: TargetKind,
        joined: Joined,
        grace: Duration,
    ) -> Result<(), Error> {
        let end = joined.amount.count;
        let class = destination.class();

        let older = self.position(&options.name).ok();
        let is_other = |at: &usize| self.targets[*at].class != class || class == Class::Link;
        let older = older.filter(is_other);
        let older = older.map(|at| (at, self.targets.remove(at)));

        // The older one must leave the list first, or it would count as a second target with this name.
        let placed = self.place(options, destination, joined);
        if let Err(error) = placed {
            if let Some((at, older)) = older {
                self.targets.insert(at, older);
            }
            return Err(error);
        }

        if let Some(target) = self.targets.last() {
            self.ledger.register(Arc::clone(&target.meter) as Arc<dyn Meter>);
        }
        older.map_or(Ok(()), |(_, older)| self.begin_removal(&older, Some(end), grace))
    }

    fn not_replaceable(&self, target: &str) -> Error {
        Error::NotReplaceable { listener: self.options.name.clone(), target: target.to_owned() }
    }

    fn unanswered(&self, error: RecvTimeoutError) -> Error {
        match error {
            RecvTimeoutError::Timeout => Error::Unanswered { listener: self.options.name.clone() },
            RecvTimeoutError::Disconnected => self.stopped(),
        }
    }
}
