//! Ends a listener: drains it, takes it out of the ledger, or hands its sockets to another one.

use super::Listener;
use super::group::MemberHandle;
use crate::socket::CountedDrops;
use crate::{Error, ListenerOptions, TargetKind, TargetOptions};
use ledger::Meter;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use sys::clock::monotonic_ns;

/// How long after the deadline a thread may take to count what is left before it counts as stuck.
const LAST_MOMENT: Duration = Duration::from_secs(1);

/// How long a listener waits for its successor to start reading before it stops reading itself.
const SUCCESSION_LIMIT: Duration = Duration::from_secs(1);

impl Listener {
    /// Begins to stop. No new datagrams are admitted, unless a service manager holds the socket too, and what has been received
    /// is sent until the deadline. Returns at once. A second call moves the deadline.
    pub fn begin_stop(&self, deadline: Instant) {
        let grace_ns = deadline.saturating_duration_since(Instant::now()).as_nanos() as u64;
        self.stop.deadline_ns.store(monotonic_ns() + grace_ns.max(1), Ordering::Release);
    }

    /// Starts a listener on this one's sockets, including what waits in them, and ends this one as soon as the new one reads.
    /// This one sends what it has read until the deadline. Each drop of the kernel at the socket counts once, for one of the two.
    ///
    /// For a moment both read, and the order between what each reads is not kept.
    ///
    /// # Errors
    /// As [`start`](Self::start). This listener then continues.
    pub fn hand_over(
        &self,
        options: ListenerOptions,
        targets: Vec<(TargetOptions, TargetKind)>,
        deadline: Instant,
    ) -> Result<Listener, Error> {
        let socket = self.socket.try_clone().map_err(self.failed("duplicating the socket"))?;
        let duplicate = |member: &MemberHandle| member.socket.try_clone();
        let more = self.members.iter().skip(1).map(duplicate).collect::<Result<Vec<_>, _>>();
        let more = more.map_err(self.failed("duplicating a socket"))?;

        let meters =
            || std::iter::once(&self.meter).chain(self.members.iter().map(|one| &one.meter.own));
        let dropped_before: Vec<_> = meters().map(|meter| meter.hand_over()).collect();
        // With several sockets, each has its own meter, and the listener's meter holds only what came before.
        let (first, rest) = match &dropped_before[..] {
            [_, first, rest @ ..] => (*first, rest),
            [alone] => (*alone, &[][..]),
            [] => (CountedDrops::default(), &[][..]),
        };

        let next = Listener::start_counting(options, socket, first, targets, &self.ledger);
        let next =
            next.and_then(|next| next.with_sockets(more.into_iter().zip(rest.iter().copied())));
        let next = next.inspect_err(|_| self.take_sockets_back(&dropped_before))?;

        // Both read for a moment, so the socket is never without a reader.
        let give_up = Instant::now() + SUCCESSION_LIMIT;
        while !next.has_begun() && Instant::now() < give_up {
            thread::park_timeout(Duration::from_micros(100));
        }

        // The socket belongs to the next listener: attach no filter and read nothing more from it.
        self.stop.keeps_socket.store(true, Ordering::Release);
        self.begin_stop(deadline);

        Ok(next)
    }

    /// Resumes counting where [`hand_over`](Self::hand_over) stopped for the successor.
    fn take_sockets_back(&self, dropped_before: &[CountedDrops]) {
        let alone = self.members.is_empty().then_some((&self.meter, &self.socket));
        let members = self.members.iter().map(|member| (&member.meter.own, &member.socket));
        let counted = if alone.is_some() { dropped_before } else { &dropped_before[1..] };
        for ((meter, socket), dropped) in alone.into_iter().chain(members).zip(counted) {
            meter.take_back(Arc::clone(socket), *dropped);
        }
    }

    fn has_begun(&self) -> bool {
        self.pulses[0].load(Ordering::Relaxed) > 0
    }

    /// Whether all threads have ended after [`begin_stop`](Self::begin_stop), so that the end need not be waited for.
    pub fn has_ended(&self) -> bool {
        let has_ended = self.threads.iter().all(JoinHandle::is_finished);
        has_ended && self.members.iter().all(|member| member.thread.is_finished())
    }

    /// Waits until everything has left or was counted as dropped: until the deadline of [`begin_stop`](Self::begin_stop) and a
    /// moment longer. The hops stay in the ledger. Returns the final [`counted_drops`](Self::counted_drops).
    pub fn finish_stop(mut self) -> u32 {
        self.join();
        self.counted_drops()
    }

    /// As [`finish_stop`](Self::finish_stop), but folds the hops into the ledger's closed ones. For a reload.
    pub fn finish_removal(mut self) {
        self.join();
        // The rows of its sockets end here: their counts are part of its own.
        self.meter.fold_members();
        for target in &self.targets {
            // The count of offered datagrams ends here: a retired hop never changes.
            target.meter.leave(self.meter.receive.delivered.load());
            self.ledger.retire(&(Arc::clone(&target.meter) as Arc<dyn Meter>));
        }
        self.ledger.retire(&(Arc::clone(&self.meter) as Arc<dyn Meter>));
    }

    pub(super) fn join(&mut self) {
        if self.stop.deadline_ns.load(Ordering::Acquire) == 0 {
            self.begin_stop(Instant::now());
        }
        let deadline_ns = self.stop.deadline_ns.load(Ordering::Acquire);
        // Counted from the deadline, whenever this is called: several stuck threads share one grace period.
        let give_up_ns = deadline_ns.saturating_add(LAST_MOMENT.as_nanos() as u64);
        let give_up_at =
            Instant::now() + Duration::from_nanos(give_up_ns.saturating_sub(monotonic_ns()));

        if !self.is_receiving {
            // The start failed halfway: there is no receiving thread to notify the others.
            self.stop.is_input_closed.store(true, Ordering::Release);
            let workers = self.targets.iter().filter_map(|target| target.worker.as_ref());
            workers.for_each(|worker| worker.waker.call());
        }

        let mut has_stuck = false;
        for thread in self.threads.drain(..) {
            while !thread.is_finished() && Instant::now() < give_up_at {
                thread::park_timeout(Duration::from_millis(1));
            }
            if thread.is_finished() {
                // A thread that panicked has reported it on standard error.
                let _ = thread.join();
            } else {
                has_stuck = true;
            }
        }

        for member in self.members.drain(..) {
            while !member.thread.is_finished() && Instant::now() < give_up_at {
                thread::park_timeout(Duration::from_millis(1));
            }
        }

        if has_stuck {
            // Only the thread of a file can be blocked in a system call, and that of a sink in code that is not ours. The others
            // have counted everything.
            let meters = self.targets.iter().map(|target| &target.meter).chain(&self.leaving);
            meters.for_each(|meter| meter.abandon());
        }

        self.meter.finish_stop();
    }
}
