//! One of several sockets of a listener, with a thread that reads it into a ring of its own.

use crate::inlet::{FullRing, Inlet, ROOM_PAUSE, Read};
use crate::intake::Intake;
use crate::pump::{HOUSEKEEPING_INTERVAL, Targets};
use crate::sync::fence;
use crate::thread_time::ThreadTime;
use crate::waker::Waker;
use crate::worker::StopState;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use sys::poll::{Interest, PollSet};
use sys::recv::Wait;

/// How long a socket that is to leave its group must be silent. Anything that was on its way to it when the others took over has
/// arrived by then, even where the kernel could not be asked to finish it.
const SILENCE: Duration = Duration::from_millis(20);

/// Whether a member's thread holds datagrams.
///
/// A number that grows at each change. It is odd while the thread may hold datagrams that are neither in the socket nor in the
/// ring: from before the receive call until they are shown. The merging thread reads it, checks the ring and the socket, and
/// reads it again. The same even number twice means that nothing was in between.
#[derive(Default)]
pub(crate) struct Turns(AtomicU64);

impl Turns {
    fn begin(&self) {
        let turn = self.0.load(Ordering::Relaxed);
        if turn & 1 == 0 {
            self.0.store(turn + 1, Ordering::Relaxed);
            // Visible before any effect of the receive call that follows.
            fence(Ordering::SeqCst);
        }
    }

    fn end(&self) {
        let turn = self.0.load(Ordering::Relaxed);
        // Ordered after the datagrams were shown: a thread that sees this number sees them too.
        self.0.store(turn + (turn & 1), Ordering::Release);
    }

    /// The current number; odd while the thread may hold datagrams.
    pub(crate) fn load(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// The number again, ordered after everything read since.
    pub(crate) fn load_again(&self) -> u64 {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed)
    }
}

/// State that a member shares with the merging thread and with the control thread.
#[derive(Default)]
pub(crate) struct MemberState {
    pub(crate) turns: Turns,
    pub(crate) stop: StopState,
    /// Whether nothing is sent to its socket any more. The member ends when the socket is silent, and loses nothing.
    pub(crate) is_leaving: AtomicBool,
    /// Whether it has found its socket empty: what was queued when it started is in its ring.
    pub(crate) has_caught_up: AtomicBool,
    pub(crate) time: ThreadTime,
}

impl MemberState {
    /// Whether this member delivers nothing more than what its ring holds.
    pub(crate) fn is_closed(&self) -> bool {
        self.stop.is_input_closed.load(Ordering::Acquire)
    }
}

/// When dropped, marks the member as closed. This covers every way in which its thread can end.
pub(crate) struct Closing {
    pub(crate) state: Arc<MemberState>,
    /// Wakes the merging thread.
    pub(crate) waker: Arc<Waker>,
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.state.stop.is_input_closed.store(true, Ordering::Release);
        self.waker.call();
    }
}

/// What a member's thread works with.
pub(crate) struct Member {
    pub(crate) inlet: Box<Inlet>,
    pub(crate) intake: Intake,
    pub(crate) state: Arc<MemberState>,
    /// Wakes the merging thread.
    pub(crate) waker: Arc<Waker>,
    pub(crate) ticks: Arc<AtomicU64>,
}

impl Member {
    /// Reads until told to stop, and returns its socket.
    pub(crate) fn run(mut self) -> Box<Inlet> {
        let mut set = PollSet::default();
        let mut nobody = Targets::default();
        let mut law_check_due_ns = 0;
        let mut silence = HOUSEKEEPING_INTERVAL;
        sys::poll::set_timer_slack(Duration::ZERO);

        loop {
            self.ticks.fetch_add(1, Ordering::Relaxed);
            let is_stopping = self.state.stop.deadline_ns.load(Ordering::Acquire) != 0;
            let is_leaving = self.state.is_leaving.load(Ordering::Acquire);
            if is_stopping && (!is_leaving || self.state.stop.is_late()) {
                break;
            }
            if is_leaving {
                silence = SILENCE;
            }

            if !self.inlet.has_room(&mut self.intake) {
                // The merging thread is behind. The kernel's queue holds more than this ring, and counts what it drops.
                self.state.turns.end();
                sys::poll::pause(ROOM_PAUSE);
                continue;
            }

            self.state.turns.begin();
            let (read, now) = self.inlet.receive(&mut self.intake, &mut nobody, Wait::No);
            if read != Read::Full {
                self.state.turns.end();
            }
            if read == Read::Nothing {
                self.state.has_caught_up.store(true, Ordering::Release);
            }
            // The merging thread may be waiting for the end of a turn as well as for a datagram.
            self.waker.wake();

            if now.monotonic_ns >= law_check_due_ns {
                law_check_due_ns = now.monotonic_ns + HOUSEKEEPING_INTERVAL.as_nanos() as u64;
                self.intake.meter.check_law(&self.intake.writer);
                self.state.time.note();
            }

            if read == Read::Full {
                continue;
            }
            set.clear();
            set.add(self.inlet.socket.as_fd(), Interest::Readable);
            let is_silent = set.wait(silence) == Ok(0);
            if is_leaving && is_silent {
                break;
            }
        }

        self.finish(&mut nobody);
        self.inlet
    }

    fn finish(&mut self, nobody: &mut Targets) {
        self.state.turns.begin();
        let (waker, ticks) = (Arc::clone(&self.waker), Arc::clone(&self.ticks));
        let waits = FullRing::IsWaitedFor;
        self.inlet.finish(&mut self.intake, nobody, &self.state.stop, waits, &mut || {
            ticks.fetch_add(1, Ordering::Relaxed);
            waker.wake();
        });
        self.intake.meter.check_law(&self.intake.writer);

        self.state.turns.end();
    }
}
