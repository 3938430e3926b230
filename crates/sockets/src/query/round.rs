//! One walk through the namespaces, a datagram of the kernel's at a time.

use super::{Reach, SEARCH_PAUSE};
use crate::access::{Access, Found};
use crate::engine::Engine;
use crate::namespaces::{Admission, Known};
use crate::runner::Runner;
use crate::walk::{Ask, Progress, Steps, Transport, Visitor, Walker};
use std::os::fd::AsFd;
use std::time::Instant;
use sys::namespace::Identity;
use sys::netlink::Socket;
use sys::socket::namespace_cookie;
use wire::DecodeError;
use wire::inet_diag::{Extensions, SocketMessage, States};

/// What is asked of the kernel, and how far its answers are read.
pub(super) struct Round {
    states: States,
    /// Empty: every socket in these states.
    bytecode: Vec<u8>,
    walker: Walker,
    /// Namespaces that are still to be walked, the next one last.
    left: Vec<Identity>,
    walk: Option<Walk>,
    /// Namespaces that could not be read, and a search for them that failed.
    pub(super) failed: u64,
}

/// The namespace that is being walked.
struct Walk {
    socket: Socket,
    steps: Steps,
    place: u32,
    known: Option<Known>,
}

/// Whether there is more to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    GoesOn,
    Over,
}

/// A socket that the kernel listed, and what is known of it.
pub(super) struct Listed<'a, 'h> {
    pub(super) engine: &'a mut Engine<'h>,
    pub(super) place: u32,
    pub(super) known: Option<&'a Known>,
    pub(super) message: &'a SocketMessage<'a>,
}

impl Round {
    pub(super) fn begin(
        runner: &mut Runner<'_>,
        states: States,
        bytecode: Vec<u8>,
        reach: Reach,
    ) -> Round {
        let Runner { engine, access, found, options, answers, .. } = runner;
        answers.began = Some(Instant::now());
        engine.counts.queries.add(1);
        engine.refresh_served();

        if answers.search_failed.is_none_or(|at| at.elapsed() >= SEARCH_PAUSE) {
            // Anew, so that namespaces that were made since the last poll are in the answer.
            let result = access.discover(&options.scope, found);
            answers.search_failed = result.is_err().then(Instant::now);
        }

        // One that is not known is none.
        let own = sys::namespace::own().ok();
        let ids = found.iter().rev().map(|found| found.id);
        let left = ids.filter(|id| reach == Reach::All || own == Some(*id)).collect();
        Round {
            states,
            bytecode,
            walker: Walker::default(),
            left,
            walk: None,
            failed: u64::from(answers.search_failed.is_some()),
        }
    }

    /// Namespaces that are still to be walked.
    pub(super) fn left(&self) -> usize {
        self.left.len()
    }

    /// Reads one datagram, or opens the next namespace.
    pub(super) fn step(
        &mut self,
        runner: &mut Runner<'_>,
        take: impl FnMut(Listed<'_, '_>),
    ) -> Step {
        let Runner { engine, access, found, .. } = runner;
        let Some(walk) = &mut self.walk else {
            let Some(id) = self.left.pop() else { return Step::Over };
            self.walk = self.open(engine, &mut **access, found, id);
            return Step::GoesOn;
        };

        let (place, known) = (walk.place, walk.known.as_ref());
        let mut visit = Visit { engine, place, known, take };
        let ask = ask(self.states, &self.bytecode);
        match self.walker.step(&mut walk.steps, &walk.socket, &ask, &mut visit) {
            Ok(Progress::GoesOn) => {}
            // Its socket is closed with it, and no longer keeps the namespace alive.
            Ok(Progress::Done) => self.walk = None,
            Err(_) => {
                // The polls meet the same namespace, and report what went wrong.
                self.failed += 1;
                self.walk = None;
            }
        }
        Step::GoesOn
    }

    /// Lets go of the kernel.
    pub(super) fn end(&mut self) {
        self.walk = None;
        self.left.clear();
    }

    /// Begins with a namespace. `found` is what the access found last, which may be later than this answer's beginning.
    fn open(
        &mut self,
        engine: &mut Engine<'_>,
        access: &mut dyn Access,
        found: &[Found],
        id: Identity,
    ) -> Option<Walk> {
        let mut walk = || {
            let at = found.iter().position(|found| found.id == id)?;
            let socket = access.open(at).ok()?;
            let (Admission::Known(place) | Admission::New(place)) = engine.admit(found.get(at)?)
            else {
                return None;
            };

            // The inode may be another namespace's since it was found: the cookie shows it.
            let cookie = namespace_cookie(socket.as_fd()).ok();
            let place = engine.namespaces.recognize(place, cookie);
            let known = engine.namespaces.get(place).cloned();
            let steps = self.walker.begin(&socket, &ask(self.states, &self.bytecode)).ok()?;
            Some(Walk { socket, steps, place, known })
        };

        let walk = walk();
        self.failed += u64::from(walk.is_none());
        walk
    }
}

fn ask(states: States, bytecode: &[u8]) -> Ask<'_> {
    Ask { transport: Transport::Tcp, states, extensions: Extensions::ALL, bytecode }
}

/// Takes the sockets of one datagram.
struct Visit<'a, 'h, F> {
    engine: &'a mut Engine<'h>,
    place: u32,
    known: Option<&'a Known>,
    take: F,
}

impl<F: FnMut(Listed<'_, '_>)> Visitor for Visit<'_, '_, F> {
    fn socket(&mut self, message: &SocketMessage<'_>, _raw: &[u8]) {
        let Visit { engine, place, known, take } = self;
        take(Listed { engine, place: *place, known: *known, message });
    }

    fn malformed(&mut self, _error: DecodeError) {
        // Counted by the polls, which meet the same sockets.
    }
}
