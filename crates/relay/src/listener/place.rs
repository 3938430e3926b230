//! Assigns targets to threads, and starts the sending threads.

use super::{Listener, TargetHandle, WorkerHandle};
use crate::file::{BUFFERED_DATAGRAMS_MAX, FileTarget};
use crate::gate::Gate;
use crate::link::LinkTarget;
use crate::meter::TargetMeter;
use crate::options::Class;
use crate::outlet::SocketOutlet;
use crate::pump::{Command, Pump, Targets};
use crate::receiver::Request;
use crate::ring::Reader;
use crate::rows::RowsTarget;
use crate::target::Target;
use crate::waker::Waker;
use crate::worker::{Lifetime, Worker};
use crate::{Error, TargetKind, TargetOptions};
use ledger::{Amount, Tally};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use sys::clock::monotonic_ns;
use sys::cpus::CpuList;

/// A target's place in the ring.
pub(super) struct Joined {
    pub(super) reader: Reader,
    /// What had entered the ring when the reader joined.
    pub(super) amount: Amount,
    pub(super) lost: Arc<Tally>,
}

impl Listener {
    /// Makes the next receive call record sources if this target needs them. Call it before the target joins or changes. Returns
    /// whether this is the first to need them.
    pub(super) fn note_what_it_asks(
        &self,
        options: &TargetOptions,
        destination: &TargetKind,
    ) -> bool {
        let asks = destination.asks_for_sources() || Gate::asks_for_sources(options);
        asks && !self.asks_for_sources.swap(true, Ordering::AcqRel)
    }

    /// Gives a target to the thread that will own it.
    pub(super) fn place(
        &mut self,
        options: TargetOptions,
        mut destination: TargetKind,
        joined: Joined,
    ) -> Result<(), Error> {
        if self.targets.iter().any(|target| target.name == options.name) {
            return Err(self.duplicate(options.name));
        }

        let class = destination.class();
        let buffered_max = match &destination {
            TargetKind::File(_) => BUFFERED_DATAGRAMS_MAX,
            // Datagrams that the ring took back and whose outcome the other end has not reported yet.
            TargetKind::Link { options, .. } => options.sender.window.into(),
            _ => 0,
        };
        let meter = Arc::new(TargetMeter::new(
            options.name.clone(),
            Arc::clone(&self.meter),
            joined.amount,
            self.ring_capacity + buffered_max,
            Arc::clone(&joined.lost),
        ));
        destination.note_listener(self.socket.as_fd());
        meter.follow(&destination);

        let gate = Gate::new(&options, monotonic_ns());
        let pump = make_pump(destination, self.socket.as_fd(), joined, gate, &meter);

        // A disk may block its thread, and a sink's code may be slow or panic, so each of those has its own. The others are
        // assigned to the workers in turn.
        let worker = if class != Class::Socket {
            let handle = self.start_worker(&options.name, Lifetime::Targets, pump)?;
            Some(handle)
        } else if self.worker_count_max == 0 {
            self.request(Request::Targets(Command::Add(pump)))?;
            None
        } else if self.workers.len() < self.worker_count_max {
            let name = self.workers.len().to_string();
            let handle = self.start_worker(&name, Lifetime::Listener, pump)?;
            self.workers.push(handle.clone());
            Some(handle)
        } else {
            let handle = self.workers[self.targets.len() % self.workers.len()].clone();
            handle.commands.send(Command::Add(pump)).map_err(|_| self.stopped())?;
            handle.waker.call();
            Some(handle)
        };

        self.targets.push(TargetHandle { name: options.name, meter, class, worker });
        Ok(())
    }

    fn start_worker(
        &mut self,
        name: &str,
        lifetime: Lifetime,
        first: Box<dyn Pump>,
    ) -> Result<WorkerHandle, Error> {
        let waker = Arc::new(Waker::new().map_err(self.failed("opening an eventfd"))?);
        let (commands, inbox) = mpsc::channel();
        let ticks = Arc::<AtomicU64>::default();
        let mut worker = Worker {
            targets: Targets::default(),
            commands: inbox,
            waker: Arc::clone(&waker),
            stop: Arc::clone(&self.stop),
            ticks: Arc::clone(&ticks),
            lifetime,
        };
        worker.targets.add(first);

        let thread = thread::Builder::new()
            .name(thread_name("tx", name))
            .spawn({
                // A disk or a sink's code may hog its thread, so that thread does not share the processors of those that receive.
                let cpus = match lifetime {
                    Lifetime::Listener => self.options.cpus.clone(),
                    Lifetime::Targets => CpuList::default(),
                };
                move || {
                    let _ = cpus.bind_this_thread();
                    worker.run();
                }
            })
            .map_err(self.failed("starting a sending thread"))?;
        self.threads.push(thread);
        if lifetime == Lifetime::Listener {
            // The thread of a file may be blocked by its disk, and a sink's code is not ours. Neither is a stuck loop.
            self.pulses.push(ticks);
        }

        self.request(Request::Wake(Arc::clone(&waker)))?;
        Ok(WorkerHandle { commands, waker })
    }
}

fn make_pump(
    destination: TargetKind,
    listener: BorrowedFd<'_>,
    Joined { reader, amount, .. }: Joined,
    gate: Gate,
    meter: &Arc<TargetMeter>,
) -> Box<dyn Pump> {
    let meter = Arc::clone(meter);
    match destination {
        TargetKind::File(options) => {
            let local = sys::socket::local_address(listener);
            Box::new(FileTarget::new(options, local, reader, gate, meter))
        }
        TargetKind::Rows(receiver) => Box::new(RowsTarget::new(receiver, reader, gate, meter)),
        TargetKind::Link { socket, options } => {
            meter.begin_link();
            Box::new(LinkTarget::new(socket, *options, reader, gate, meter, amount))
        }
        destination => {
            let outlet = SocketOutlet::new(destination).unwrap_or(SocketOutlet::Unresolved);
            let mut target = Target::new(outlet, reader, gate, meter);
            target.keep_house(monotonic_ns());
            Box::new(target)
        }
    }
}

/// The kernel keeps 15 bytes of a thread's name.
pub(super) fn thread_name(role: &str, name: &str) -> String {
    let mut name = format!("{role}-{}", name.replace('\0', ""));
    while name.len() > 15 {
        name.pop();
    }
    name
}
