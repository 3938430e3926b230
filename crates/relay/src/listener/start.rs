//! Starts a listener: its ring, its meters, its first targets, its receiving thread.

use super::Listener;
use super::place::{Joined, thread_name};
use crate::arrivals::Arrivals;
use crate::inlet::Inlet;
use crate::intake::{Admission, Intake};
use crate::link::LinkInlet;
use crate::meter::ListenerMeter;
use crate::options::Class;
use crate::pump::HOUSEKEEPING_INTERVAL;
use crate::receiver::{Input, Receiver, Shared};
use crate::ring::ring;
use crate::socket::CountedDrops;
use crate::waker::Waker;
use crate::{
    Error, ListenSocket, ListenerOptions, RING_BYTES_MIN, Schedule, SocketOwner, TargetKind,
    TargetOptions,
};
use ledger::{Ledger, Meter, Tally};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use sys::clock::Clock;
use sys::recv::{ReceiveBatch, Stamps};

impl Listener {
    /// Starts the threads. Registers the meters of the listener and its targets with the ledger.
    ///
    /// # Errors
    /// A thread or an eventfd cannot be created, the socket's mode cannot be changed, or two targets share a name.
    pub fn start(
        options: ListenerOptions,
        socket: impl Into<ListenSocket>,
        targets: Vec<(TargetOptions, TargetKind)>,
        ledger: &Arc<Ledger>,
    ) -> Result<Listener, Error> {
        Listener::start_counting_from(options, socket, None, targets, ledger)
    }

    /// As [`start`](Self::start), but counts the kernel's drops at the socket from `dropped_before` on: the count at which an
    /// earlier listener on it, perhaps of another process, had stopped ([`finish_stop`](Self::finish_stop)). `None` counts from
    /// now.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_counting_from(
        options: ListenerOptions,
        socket: impl Into<ListenSocket>,
        dropped_before: Option<u32>,
        targets: Vec<(TargetOptions, TargetKind)>,
        ledger: &Arc<Ledger>,
    ) -> Result<Listener, Error> {
        let socket = socket.into();
        let kernel = dropped_before.unwrap_or_else(|| dropped_so_far(&options, &socket));
        let before = CountedDrops { kernel, behind: 0 };
        Listener::start_counting(options, socket, before, targets, ledger)
    }

    pub(super) fn start_counting(
        options: ListenerOptions,
        socket: ListenSocket,
        before: CountedDrops,
        targets: Vec<(TargetOptions, TargetKind)>,
        ledger: &Arc<Ledger>,
    ) -> Result<Listener, Error> {
        let failed = |call| {
            let name = options.name.clone();
            move |source| Error::Syscall { call, name, source }
        };
        // A blocking receive call returns at least this often, so that the thread sees requests and a stop.
        sys::socket::set_receive_timeout(socket.as_fd(), HOUSEKEEPING_INTERVAL)
            .map_err(failed("setting the receive timeout"))?;

        let socket = Arc::new(socket);
        // Packets of a link that the kernel drops are resent, so no datagram is lost.
        let counted = options.link.is_none().then(|| Arc::clone(&socket));
        let meter = ListenerMeter::new(options.name.clone(), counted, before);
        let meter = Arc::new(meter);

        let bytes = options.ring_bytes.max(RING_BYTES_MIN);
        let writer =
            ring(bytes).map_err(|_| Error::NoMemory { name: options.name.clone(), bytes })?;

        let (requests, inbox) = mpsc::channel();
        let waker = Arc::new(Waker::new().map_err(failed("opening an eventfd"))?);
        let mut listener = Listener {
            ring_capacity: writer.capacity(),
            worker_count_max: worker_count_max(options.schedule, &targets),
            options,
            socket: Arc::clone(&socket),
            ledger: Arc::clone(ledger),
            meter: Arc::clone(&meter),
            targets: Vec::new(),
            leaving: Vec::new(),
            members: Vec::new(),
            waker: Arc::clone(&waker),
            time: Arc::default(),
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
        let link = listener.options.link.clone();
        let inlet = |socket| Inlet {
            socket,
            owner: listener.options.socket_owner,
            arrivals: Arrivals::new(listener.options.gather),
            asks_for_sources: Arc::clone(&listener.asks_for_sources),
            stamps: Stamps::Unwanted,
            batch: ReceiveBatch::default(),
            clock: Clock::default(),
        };
        let input = match link {
            Some(link) => Input::Link(Box::new(LinkInlet::new(socket, link))),
            None => Input::Socket(Box::new(inlet(socket))),
        };
        let admission = Admission::new(&listener.options);
        let intake = Intake { writer, admission, meter: Arc::clone(&meter) };
        let shared = Shared {
            requests: inbox,
            has_requests: Arc::clone(&listener.has_requests),
            stop: Arc::clone(&listener.stop),
            ticks: Arc::clone(&listener.pulses[0]),
            waker,
            time: Arc::clone(&listener.time),
        };
        let receiver = Receiver::new(input, intake, shared);
        listener.begin(receiver, targets)?;

        Ok(listener)
    }

    /// Places the first targets and starts the receiving thread. Only then do the meters enter the ledger: a start that fails
    /// leaves nothing there.
    fn begin(
        &mut self,
        mut receiver: Receiver,
        targets: Vec<(TargetOptions, TargetKind)>,
    ) -> Result<(), Error> {
        self.place_first(targets, &mut receiver.intake)?;
        // Placing has sent requests to the receiving thread. Serve them before it starts, so that it starts with all its targets.
        receiver.serve_requests();

        let name = thread_name("rx", &self.options.name);
        let thread = thread::Builder::new()
            .name(name)
            .spawn({
                let cpus = self.options.cpus.clone();
                move || {
                    // The list was checked before. A failure now, such as a change of the control group, costs only speed.
                    let _ = cpus.bind_this_thread();
                    receiver.run();
                }
            })
            .map_err(self.failed("starting the receiving thread"))?;
        self.threads.push(thread);
        self.is_receiving = true;

        self.ledger.register(Arc::clone(&self.meter) as Arc<dyn Meter>);
        for target in &self.targets {
            self.ledger.register(Arc::clone(&target.meter) as Arc<dyn Meter>);
        }
        Ok(())
    }

    /// Hands the initial targets to their threads.
    fn place_first(
        &mut self,
        targets: Vec<(TargetOptions, TargetKind)>,
        intake: &mut Intake,
    ) -> Result<(), Error> {
        let ListenerOptions { allow_sources, deny_sources, trust_header_from, .. } = &self.options;
        if [allow_sources, deny_sources, trust_header_from].iter().any(|list| !list.is_empty()) {
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
}

/// Start of the kernel's drop count: zero for our own socket; the current value for one that others had before.
fn dropped_so_far(options: &ListenerOptions, socket: &ListenSocket) -> u32 {
    match options.socket_owner {
        SocketOwner::Relay => 0,
        SocketOwner::ServiceManager => {
            sys::socket::mem_info(socket.as_fd()).map_or(0, |info| info.dropped_datagrams)
        }
    }
}

/// Number of threads for the targets that do not block. 0 when the receiving thread serves them.
fn worker_count_max(schedule: Schedule, targets: &[(TargetOptions, TargetKind)]) -> usize {
    let cpus = sys::process::cpu_count();
    let sockets =
        targets.iter().filter(|(_, destination)| destination.class() == Class::Socket).count();
    match schedule {
        Schedule::Inline => 0,
        Schedule::Auto if cpus <= 2 || sockets <= 1 => 0,
        Schedule::Auto | Schedule::Threaded => (cpus - 1).max(1),
    }
}
