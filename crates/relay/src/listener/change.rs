//! Changes to the targets of a running listener.
//!
//! A data thread notices a change between two batches; an idle one looks every tenth of a second only. So all
//! changes are asked for first, of several listeners if need be, and their answers are waited for afterwards: a
//! hundred changes take as long as one.

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

/// How long all changes of file targets together are waited for.
const FILE_ANSWERS_WAIT: Duration = Duration::from_millis(500);
/// How long data threads may take to answer before what was asked of them counts as failed.
const ANSWERS_WAIT: Duration = Duration::from_secs(5);
/// Time between two signs of life while waiting.
const LIFE_INTERVAL: Duration = Duration::from_millis(50);

/// One change to the targets of a listener.
#[derive(Debug)]
pub enum TargetChange {
    /// A target that begins with the next datagram.
    Add(TargetOptions, TargetKind),
    /// Other options and another destination for the target of that name. It goes on where it is: every datagram is dealt
    /// with once, by the old options or the new.
    ///
    /// Where one kind takes another's place, of file, sink and socket, the old one has the grace period for what the ring held for
    /// it when the new one joined. What it had already taken of what came after goes to both.
    Change(TargetOptions, TargetKind),
    /// Another destination, from the next datagram on, under the same options. The new socket is open before the old one is
    /// closed. Neither may be a file or a sink.
    Redirect(String, TargetKind),
    /// The target sends what the ring holds for it now, for the grace period, and counts the rest as `target_removed`.
    Remove(String),
}

/// Changes that were asked for and whose answers are still to come.
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

/// Until when answers are waited for.
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
    /// Asks for these changes and returns at once; [`finish_changes`](Self::finish_changes) waits for them. A removed target
    /// has up to `grace` for what the ring holds for it.
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
                // A link ends as it began: with the same other end and key.
                if target.class != destination.class() || target.class == Class::Link {
                    return self.begin_join(options, destination);
                }
                let gate = Some(Gate::new(&options, monotonic_ns()));
                // No datagram without a source may pass the new gate: where none was asked for before, the receive
                // call that the thread is in brings the last of them.
                let by_way =
                    if is_first_to_ask { Self::command_after_receive } else { Self::command };
                self.begin_replace(target, Change { destination, gate }, by_way)
            }
            TargetChange::Redirect(name, destination) => {
                let target = self.target(&name)?;
                if target.class != Class::Socket || destination.class() != Class::Socket {
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
        command(self, target, Command::Replace { target: name.clone(), change, done })?;
        Ok(Step::Replace { target: name, class: target.class, answer })
    }

    /// Waits until the changes are in force, for at most a few seconds, and calls `keep_alive` several times a second while
    /// it does. The results are in the order of the changes.
    ///
    /// A file target may wait for its disk: its change counts as done, and comes into force when the disk lets it go.
    ///
    /// # Errors
    /// There is no target of that name, or one already; the listener has stopped; a thread cannot be started, or does not
    /// answer.
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

    /// Gives a target its place in the ring; an older one of the same name and another kind ends where this one begins.
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

        // The older one has left the list, or it would count as a second target of this name.
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
