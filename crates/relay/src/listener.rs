//! The handle of a running listener.

mod change;
mod stop;

pub use change::{ChangesUnderWay, TargetChange};

use crate::arrivals::Arrivals;
use crate::file::{BUFFERED_DATAGRAMS_MAX, FileTarget};
use crate::gate::Gate;
use crate::intake::{Admission, Intake};
use crate::meter::{ListenerMeter, TargetMeter};
use crate::outlet::SocketOutlet;
use crate::pump::{Command, HOUSEKEEPING_INTERVAL, Pump, Targets};
use crate::receiver::{Receiver, Request};
use crate::ring::{Reader, ring};
use crate::target::Target;
use crate::waker::Waker;
use crate::worker::{Lifetime, StopState, Worker};
use crate::{
    Destination, Error, FileFormat, ListenerOptions, RING_BYTES_MIN, Schedule, SocketOwner,
    TargetOptions,
};
use ledger::{Amount, Ledger, Meter, Tally};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use sys::clock::{Clock, monotonic_ns};

/// A running listener: one receiving thread, its ring, its targets.
///
/// Dropping it without [`finish_stop`](Self::finish_stop) stops it without a grace period.
pub struct Listener {
    options: ListenerOptions,
    socket: Arc<OwnedFd>,
    ledger: Arc<Ledger>,
    meter: Arc<ListenerMeter>,
    ring_capacity: u64,
    targets: Vec<TargetHandle>,
    /// Targets that were removed and may still be sending what the ring held for them.
    leaving: Vec<Arc<TargetMeter>>,
    requests: mpsc::Sender<Request>,
    has_requests: Arc<AtomicBool>,
    /// Set before a target that looks at sources is added, and never taken back.
    asks_for_sources: Arc<AtomicBool>,
    stop: Arc<StopState>,
    threads: Vec<JoinHandle<()>>,
    /// The receiving thread was started.
    is_receiving: bool,
    /// Threads for targets that do not block; none in the inline schedule.
    workers: Vec<WorkerHandle>,
    worker_count_max: usize,
    pulse: Mutex<Pulse>,
    pulses: Vec<Arc<AtomicU64>>,
}

struct TargetHandle {
    name: String,
    meter: Arc<TargetMeter>,
    is_file: bool,
    /// Where its thread takes commands; `None`: the receiving thread owns it.
    worker: Option<WorkerHandle>,
}

#[derive(Clone)]
struct WorkerHandle {
    commands: mpsc::Sender<Command>,
    waker: Arc<Waker>,
}

/// What was last seen of each loop's counter.
#[derive(Default)]
struct Pulse {
    seen: Vec<u64>,
    beats: u64,
}

impl Listener {
    /// Starts the threads. The meters of the listener and its targets are registered with the ledger.
    ///
    /// # Errors
    /// When a thread or an eventfd cannot be made, the socket's mode cannot be changed, or two targets share a name.
    pub fn start(
        options: ListenerOptions,
        socket: OwnedFd,
        targets: Vec<(TargetOptions, Destination)>,
        ledger: &Arc<Ledger>,
    ) -> Result<Listener, Error> {
        Listener::start_counting_from(options, socket, None, targets, ledger)
    }

    /// As [`start`](Self::start); the kernel's drops at the socket count from `dropped_before` on: what an earlier listener on
    /// it, perhaps of another process, had counted ([`finish_stop`](Self::finish_stop)). `None`: from now.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_counting_from(
        options: ListenerOptions,
        socket: OwnedFd,
        dropped_before: Option<u32>,
        targets: Vec<(TargetOptions, Destination)>,
        ledger: &Arc<Ledger>,
    ) -> Result<Listener, Error> {
        let failed = |call| {
            let name = options.name.clone();
            move |source| Error::Syscall { call, name, source }
        };
        sys::socket::set_receive_timeout(socket.as_fd(), HOUSEKEEPING_INTERVAL)
            .map_err(failed("setting the receive timeout"))?;
        let socket = Arc::new(socket);
        let dropped_before = dropped_before.unwrap_or_else(|| dropped_so_far(&options, &socket));
        let meter =
            ListenerMeter::new(options.name.clone(), Some(Arc::clone(&socket)), dropped_before);
        let meter = Arc::new(meter);
        let bytes = options.ring_bytes.max(RING_BYTES_MIN);
        let writer =
            ring(bytes).map_err(|_| Error::NoMemory { name: options.name.clone(), bytes })?;
        let (requests, inbox) = mpsc::channel();
        let mut listener = Listener {
            ring_capacity: writer.capacity(),
            worker_count_max: worker_count_max(options.schedule, &targets),
            options,
            socket: Arc::clone(&socket),
            ledger: Arc::clone(ledger),
            meter: Arc::clone(&meter),
            targets: Vec::new(),
            leaving: Vec::new(),
            requests,
            has_requests: Arc::default(),
            asks_for_sources: Arc::default(),
            stop: Arc::default(),
            threads: Vec::new(),
            is_receiving: false,
            workers: Vec::new(),
            pulse: Mutex::default(),
            pulses: vec![Arc::default()],
        };
        let mut receiver = Receiver {
            socket,
            socket_owner: listener.options.socket_owner,
            intake: Intake {
                writer,
                admission: Admission::new(&listener.options),
                meter: Arc::clone(&meter),
            },
            arrivals: Arrivals::new(listener.options.gather),
            asks_for_sources: Arc::clone(&listener.asks_for_sources),
            targets: Targets::default(),
            wakers: Vec::new(),
            requests: inbox,
            has_requests: Arc::clone(&listener.has_requests),
            stop: Arc::clone(&listener.stop),
            ticks: Arc::clone(&listener.pulses[0]),
            clock: Clock::default(),
        };
        listener.place_first(targets, &mut receiver.intake)?;
        receiver.serve_requests();
        let name = thread_name("rx", &listener.options.name);
        let thread = thread::Builder::new()
            .name(name)
            .spawn(move || receiver.run())
            .map_err(listener.failed("starting the receiving thread"))?;
        listener.threads.push(thread);
        listener.is_receiving = true;
        ledger.register(meter);
        for target in &listener.targets {
            ledger.register(Arc::clone(&target.meter) as Arc<dyn Meter>);
        }
        Ok(listener)
    }

    fn failed(&self, call: &'static str) -> impl FnOnce(io::Error) -> Error {
        let name = self.options.name.clone();
        move |source| Error::Syscall { call, name, source }
    }

    /// The listener's name.
    pub fn name(&self) -> &str {
        &self.options.name
    }

    /// What it was started with.
    pub fn options(&self) -> &ListenerOptions {
        &self.options
    }

    /// Its socket, to ask for address and buffers.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The kernel's count of drops at the socket when the ledger last looked. It wraps.
    pub fn counted_drops(&self) -> u32 {
        self.meter.counted_drops()
    }

    /// The names of its targets.
    pub fn target_names(&self) -> Vec<String> {
        self.targets.iter().map(|target| target.name.clone()).collect()
    }

    /// The schedule that was chosen: inline or threaded.
    pub fn schedule(&self) -> Schedule {
        if self.worker_count_max == 0 { Schedule::Inline } else { Schedule::Threaded }
    }

    /// Gives the targets that a listener starts with to their threads.
    fn place_first(
        &mut self,
        targets: Vec<(TargetOptions, Destination)>,
        intake: &mut Intake,
    ) -> Result<(), Error> {
        let ListenerOptions { allow_sources, deny_sources, .. } = &self.options;
        if !allow_sources.is_empty() || !deny_sources.is_empty() {
            self.asks_for_sources.store(true, Ordering::Release);
        }
        for (options, destination) in targets {
            self.note_what_it_asks(&options, &destination);
            let lost = Arc::<Tally>::default();
            let joined = intake.writer.appended();
            let reader = intake.writer.reader(Arc::clone(&lost));
            self.place(options, destination, Joined { reader, amount: joined, lost })?;
        }
        Ok(())
    }

    /// Has sources recorded from the next receive call on, if this target looks at them. To be called before the target
    /// joins or changes. Returns whether nobody looked at them before.
    fn note_what_it_asks(&self, options: &TargetOptions, destination: &Destination) -> bool {
        let is_capture =
            matches!(destination, Destination::File(file) if file.format == FileFormat::Pcap);
        let asks = is_capture || Gate::asks_for_sources(options);
        asks && !self.asks_for_sources.swap(true, Ordering::AcqRel)
    }

    /// Gives a target to the thread that will own it.
    fn place(
        &mut self,
        options: TargetOptions,
        destination: Destination,
        joined: Joined,
    ) -> Result<(), Error> {
        if self.targets.iter().any(|target| target.name == options.name) {
            return Err(self.duplicate(options.name));
        }
        let is_file = matches!(destination, Destination::File(_));
        let buffered_max = if is_file { BUFFERED_DATAGRAMS_MAX } else { 0 };
        let meter = Arc::new(TargetMeter::new(
            options.name.clone(),
            Arc::clone(&self.meter),
            joined.amount,
            self.ring_capacity + buffered_max,
            joined.lost,
        ));
        meter.follow(&destination);
        let gate = Gate::new(&options, monotonic_ns());
        let pump = make_pump(destination, self.socket.as_fd(), joined.reader, gate, &meter);
        let worker = if is_file {
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
            handle.waker.wake();
            Some(handle)
        };
        self.targets.push(TargetHandle { name: options.name, meter, is_file, worker });
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
            .spawn(move || worker.run())
            .map_err(self.failed("starting a sending thread"))?;
        self.threads.push(thread);
        if lifetime == Lifetime::Listener {
            // A file's thread may wait for its disk for as long as the disk likes: that is no stuck loop.
            self.pulses.push(ticks);
        }
        self.request(Request::Wake(Arc::clone(&waker)))?;
        Ok(WorkerHandle { commands, waker })
    }

    fn request(&self, request: Request) -> Result<(), Error> {
        self.requests.send(request).map_err(|_| self.stopped())?;
        self.has_requests.store(true, Ordering::Release);
        Ok(())
    }

    fn stopped(&self) -> Error {
        Error::Stopped { listener: self.options.name.clone() }
    }

    fn duplicate(&self, target: String) -> Error {
        Error::DuplicateTarget { listener: self.options.name.clone(), target }
    }

    fn command(&self, target: &TargetHandle, command: Command) -> Result<(), Error> {
        match &target.worker {
            None => self.request(Request::Targets(command)),
            Some(worker) => {
                worker.commands.send(command).map_err(|_| self.stopped())?;
                worker.waker.wake();
                Ok(())
            }
        }
    }

    /// As [`command`](Self::command), but not before the receiving thread has made the receive call that it is in.
    fn command_after_receive(&self, target: &TargetHandle, command: Command) -> Result<(), Error> {
        match &target.worker {
            None => self.command(target, command),
            Some(WorkerHandle { commands, waker }) => {
                let (to, waker) = (commands.clone(), Arc::clone(waker));
                self.request(Request::Forward { to, waker, command })
            }
        }
    }

    fn target(&self, name: &str) -> Result<&TargetHandle, Error> {
        self.position(name).map(|at| &self.targets[at])
    }

    /// Removes a target: it sends what the ring holds for it now, for up to `grace`, and counts the rest as
    /// `target_removed`. Returns at once.
    ///
    /// # Errors
    /// When there is no such target or the listener has stopped.
    pub fn remove_target(&mut self, name: &str, grace: Duration) -> Result<(), Error> {
        let at = self.position(name)?;
        let target = self.targets.remove(at);
        self.begin_removal(&target, None, grace)
    }

    fn position(&self, name: &str) -> Result<usize, Error> {
        let at = self.targets.iter().position(|target| target.name == name);
        at.ok_or_else(|| Error::UnknownTarget {
            listener: self.options.name.clone(),
            target: name.to_owned(),
        })
    }

    /// Lets a target send what comes before `end`, by default what the ring holds now, and closes its account then.
    fn begin_removal(
        &mut self,
        target: &TargetHandle,
        end: Option<u64>,
        grace: Duration,
    ) -> Result<(), Error> {
        let (done, is_done) = mpsc::channel();
        let deadline_ns = monotonic_ns() + grace.as_nanos() as u64;
        let name = target.name.clone();
        self.command(target, Command::Remove { target: name, end, deadline_ns, done })?;
        let meter: Arc<dyn Meter> = Arc::clone(&target.meter) as _;
        let ledger = Arc::clone(&self.ledger);
        let thread = thread::Builder::new()
            .name(thread_name("rm", &target.name))
            .spawn(move || {
                // Without an answer the thread has ended, and the counts are final too.
                let _ = is_done.recv();
                ledger.retire(&meter);
            })
            .map_err(self.failed("starting a thread"))?;
        self.threads.push(thread);
        self.threads.retain(|thread| !thread.is_finished());
        self.leaving.retain(|meter| Arc::strong_count(meter) > 1);
        self.leaving.push(Arc::clone(&target.meter));
        Ok(())
    }

    /// A number that grows from one call to the next while every data loop turns; each turns at least five times a
    /// second, with or without traffic.
    pub fn heartbeat(&self) -> u64 {
        let mut pulse = self.pulse.lock().unwrap_or_else(PoisonError::into_inner);
        let now: Vec<_> = self.pulses.iter().map(|ticks| ticks.load(Ordering::Relaxed)).collect();
        let is_beating = now.len() != pulse.seen.len()
            || now.iter().zip(&pulse.seen).all(|(now, seen)| now != seen);
        if is_beating {
            pulse.beats += 1;
            pulse.seen = now;
        }
        pulse.beats
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.join();
    }
}

/// Where the count of the kernel's drops begins: at the opening of a socket of our own, and now for one that others had
/// before.
fn dropped_so_far(options: &ListenerOptions, socket: &OwnedFd) -> u32 {
    match options.socket_owner {
        SocketOwner::Relay => 0,
        SocketOwner::ServiceManager => {
            sys::socket::mem_info(socket.as_fd()).map_or(0, |info| info.dropped_datagrams)
        }
    }
}

struct Joined {
    reader: Reader,
    amount: Amount,
    lost: Arc<Tally>,
}

fn make_pump(
    destination: Destination,
    listener: BorrowedFd<'_>,
    reader: Reader,
    gate: Gate,
    meter: &Arc<TargetMeter>,
) -> Box<dyn Pump> {
    let meter = Arc::clone(meter);
    match destination {
        Destination::File(options) => {
            let local = sys::socket::local_address(listener);
            Box::new(FileTarget::new(options, local, reader, gate, meter))
        }
        destination => {
            let outlet = SocketOutlet::new(destination).unwrap_or(SocketOutlet::Unresolved);
            let mut target = Target::new(outlet, reader, gate, meter);
            target.keep_house(monotonic_ns(), sys::clock::realtime_ns());
            Box::new(target)
        }
    }
}

/// Threads for the targets that do not block; 0: the receiving thread serves them.
fn worker_count_max(schedule: Schedule, targets: &[(TargetOptions, Destination)]) -> usize {
    let cpus = sys::process::cpu_count();
    let sockets = targets
        .iter()
        .filter(|(_, destination)| !matches!(destination, Destination::File(_)))
        .count();
    match schedule {
        Schedule::Inline => 0,
        Schedule::Auto if cpus <= 2 || sockets <= 1 => 0,
        Schedule::Auto | Schedule::Threaded => (cpus - 1).max(1),
    }
}

/// The kernel keeps 15 bytes of a thread's name.
fn thread_name(role: &str, name: &str) -> String {
    let mut name = format!("{role}-{}", name.replace('\0', ""));
    while name.len() > 15 {
        name.pop();
    }
    name
}

#[cfg(all(test, not(loom)))]
mod tests;
