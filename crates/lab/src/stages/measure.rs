//! Runs that differ by one stage, and runs that check the model.

mod processes;

use super::model::{simulate, simulate_shared};
use super::{Cause, Costs, Counts, Known, Plan, Queues, Schedule, Setup, Shape, Staged};
use load::Address;
use load::spin::{self, Offer, Receiver, Sizes, Times};
use processes::Times as ThreadTimes;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use sys::clock::{monotonic_ns, thread_cpu_ns};
use sys::cpus::{CpuList, processor_time};

/// Why the stages could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the relay")]
    Relay(#[source] Cause),
    #[error("the lab's sender or receivers")]
    Load(#[from] spin::Error),
    #[error("the processors")]
    Processors(#[source] std::io::Error),
    #[error("there is one processor: relay and load need one each")]
    OneProcessor,
    #[error("ended before all was measured")]
    Stopped,
}

/// More than any sender here can offer.
const FLOOD_PER_SEC: f64 = 1e8;
/// At this rate, every datagram finds the relay asleep.
const ALONE_PER_SEC: f64 = 2_000.0;
/// Longer than any measurement; the load is stopped before.
const LOAD_DURATION: Duration = Duration::from_secs(600);
/// Bytes that the receivers read of each datagram.
const READ_BYTES: usize = 2_048;
/// Longest time between two checks of whether to stop.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The default size of a listener's ring in bytes; the rings of several sockets have the same size in
/// total.
const RING_BYTES: f64 = 8_388_608.0;
/// Datagrams in the sockets. Their number does not change the rate under overload.
const SOCKET_DATAGRAMS: f64 = 50_000.0;

const fn shape(sockets: usize, schedule: Schedule, targets: usize) -> Shape {
    Shape { sockets, schedule, targets }
}

/// The number of sockets when there are several; the cost of one of them hardly depends on it.
const SEVERAL: usize = 4;

/// The shapes that check the model: none of them is used to measure costs.
const CHECKED: [Shape; 4] = [
    shape(1, Schedule::Inline, 3),
    shape(1, Schedule::Threaded, 3),
    shape(2, Schedule::Inline, 1),
    shape(SEVERAL, Schedule::Inline, 3),
];

/// Measures all stages, and then the rates that check the model. `tell` is called with a description of
/// each run.
///
/// # Errors
/// See [`Error`].
pub fn measure(
    plan: &Plan,
    relay: &mut dyn Staged,
    stop: &AtomicBool,
    tell: &dyn Fn(&str),
) -> Result<(Costs, Vec<Known>), Error> {
    let all = CpuList::of_this_thread().map_err(|error| Error::Processors(error.into()))?;
    if all.numbers().len() < 2 {
        return Err(Error::OneProcessor);
    }
    let mut bench = Bench { plan, relay, stop, load: all.in_turn(0), relays: all.in_turn(1) };

    let measured = bench.stages_and_checks(&all, tell);
    bind(&all)?;
    measured
}

/// The setup of the measurements.
struct Bench<'a> {
    plan: &'a Plan,
    relay: &'a mut dyn Staged,
    stop: &'a AtomicBool,
    /// CPUs of the load.
    load: CpuList,
    /// CPUs of the relay.
    relays: CpuList,
}

/// The kind of load.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Offered {
    /// As many datagrams as possible, many in each message.
    Flood,
    /// As many datagrams as possible, each sent separately.
    Singles,
    /// So few datagrams that each arrives alone.
    Alone,
}

/// What happened between two readings of a relay under load.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    counts: Counts,
    times: ThreadTimes,
    elapsed_ns: f64,
    /// Total idle time of the relay's CPUs.
    idle_ns: u64,
    /// Datagrams per second that the load sent.
    offered_per_sec: f64,
    /// Share of the time in which the load's thread had a CPU.
    load_share: f64,
}

impl Window {
    /// Converts a time of the relay's threads to a time per datagram read.
    fn per_read(&self, ns: u64) -> f64 {
        ns as f64 / self.counts.read.max(1) as f64
    }

    /// Nanoseconds of CPU time that the load needed per datagram.
    fn load_ns(&self) -> f64 {
        self.load_share * 1e9 / self.offered_per_sec
    }

    /// The part of these CPUs that other programs left to the relay, and to the load if it shares them.
    fn processors_left(&self, processors: usize, shares_with_load: bool) -> f64 {
        let load = if shares_with_load { self.load_share } else { 0.0 };
        let own = self.times.all_ns() as f64 / self.elapsed_ns + load;
        let idle = self.idle_ns as f64 / self.elapsed_ns;
        let others = processors as f64 - idle - own;
        processors as f64 - others.clamp(0.0, processors as f64)
    }

    /// Copies per second and target.
    fn passed_per_sec(&self, shape: Shape) -> f64 {
        self.counts.sent as f64 * 1e9 / (self.elapsed_ns * shape.targets as f64)
    }
}

impl Bench<'_> {
    fn stages_and_checks(
        &mut self,
        all: &CpuList,
        tell: &dyn Fn(&str),
    ) -> Result<(Costs, Vec<Known>), Error> {
        let rounds: Result<Vec<Costs>, Error> = (1..=self.plan.repetitions)
            .map(|round| {
                tell(&format!("stages, round {round} of {}", self.plan.repetitions));
                self.round()
            })
            .collect();
        let costs = medians(&rounds?);

        let mut known = Vec::new();
        for checked in CHECKED {
            tell("the model, with one processor");
            known.push(self.known(checked, &costs, 1)?);
        }
        // With three or more CPUs, the relay gets two and the load another one; otherwise both share
        // all.
        (self.load, self.relays) = match all.numbers().len() {
            0..=2 => (all.clone(), all.clone()),
            _ => (all.in_turn(0), all.in_turn(1).with(&all.in_turn(2))),
        };
        for checked in CHECKED {
            tell("the model, with two processors");
            known.push(self.known(checked, &costs, 2)?);
        }
        Ok((costs, known))
    }

    /// Measures every stage once.
    fn round(&mut self) -> Result<Costs, Error> {
        let thrown_away = shape(1, Schedule::Inline, 0);
        let alone = self.window(thrown_away, Offered::Alone)?;
        let singles = self.window(thrown_away, Offered::Singles)?;
        let flood = self.window(thrown_away, Offered::Flood)?;
        let several = self.window(shape(SEVERAL, Schedule::Inline, 0), Offered::Flood)?;
        let threaded = self.window(shape(1, Schedule::Threaded, 2), Offered::Flood)?;

        let receive_ns = flood.per_read(flood.times.single_ns);
        let load_send_ns = flood.load_ns();
        // The additional cost of targets, averaged over all copies.
        let (mut sending_ns, mut taking_ns, mut copies) = (0.0, 0.0, 0.0);
        for targets in [1, 2, 4] {
            let one = self.window(shape(1, Schedule::Inline, targets), Offered::Flood)?;
            sending_ns += one.times.single_ns as f64 - one.counts.read as f64 * receive_ns;
            let offered = one.offered_per_sec * one.elapsed_ns / 1e9;
            taking_ns += one.load_share * one.elapsed_ns - offered * load_send_ns;
            copies += one.counts.sent as f64;
        }

        let workers_copies = threaded.counts.sent.max(1) as f64;
        Ok(Costs {
            receive_ns,
            member_ns: several.per_read(several.times.members_ns),
            merge_ns: several.per_read(several.times.single_ns),
            hand_over_ns: (threaded.per_read(threaded.times.single_ns) - receive_ns).max(0.0),
            send_ns: sending_ns / copies.max(1.0),
            worker_send_ns: threaded.times.workers_ns as f64 / workers_copies,
            wake_up_ns: alone.per_read(alone.times.single_ns) - receive_ns,
            deliver_ns: singles.load_ns(),
            load_send_ns,
            load_take_ns: (taking_ns / copies.max(1.0)).max(1.0),
        })
    }

    /// The predicted and the measured rate of one shape on this number of CPUs.
    fn known(&mut self, shape: Shape, costs: &Costs, processors: usize) -> Result<Known, Error> {
        let windows: Result<Vec<Window>, Error> =
            (0..self.plan.repetitions).map(|_| self.window(shape, Offered::Flood)).collect();
        let windows = windows?;
        let passed: Vec<f64> = windows.iter().map(|one| one.passed_per_sec(shape)).collect();
        let offered: Vec<f64> = windows.iter().map(|one| one.offered_per_sec).collect();

        let setup = Setup { shape, processors, queues: 0 };
        let in_ring = RING_BYTES / self.plan.size_bytes as f64;
        let queues = Queues { sockets: SOCKET_DATAGRAMS, members: in_ring, ring: in_ring };
        let shares_with_load = self.load == self.relays;
        let left: Vec<f64> =
            windows.iter().map(|one| one.processors_left(processors, shares_with_load)).collect();
        let processors_left = median(&left);
        let predicted_per_sec = if shares_with_load {
            simulate_shared(setup, costs, queues, processors_left)
        } else {
            simulate(setup, costs, queues, processors_left, median(&offered))
        };

        let lowest = passed.iter().copied().fold(f64::INFINITY, f64::min);
        let highest = passed.iter().copied().fold(0.0, f64::max);
        Ok(Known {
            shape,
            processors,
            shares_with_load,
            processors_left,
            predicted_per_sec,
            measured_per_sec: median(&passed),
            measured_range: (lowest, highest),
        })
    }

    /// Runs a relay under load and reads its counters twice.
    fn window(&mut self, shape: Shape, offered: Offered) -> Result<Window, Error> {
        // The relay inherits the CPUs of the thread that starts it.
        bind(&self.relays)?;
        let any = Address::Udp((Ipv4Addr::LOCALHOST, 0).into());
        let receivers: Result<Vec<Receiver>, _> =
            (0..shape.targets).map(|_| Receiver::open(&any, READ_BYTES)).collect();
        let mut receivers = receivers?;
        let targets: Vec<_> = receivers.iter().map(|one| one.address().clone()).collect();
        let (to, pid) = self.relay.start(shape, &targets).map_err(Error::Relay)?;

        let offer = offer(to, offered, self.plan.size_bytes);
        let is_over = AtomicBool::new(false);
        let load = self.load.clone();
        let window = thread::scope(|scope| {
            let sending = scope.spawn(|| {
                bind(&load)?;
                let run = sys::clock::realtime_ns() as u32;
                let (cpu_ns, at_ns) = (thread_cpu_ns(), monotonic_ns());
                let outcome = spin::run(&offer, run, &mut receivers, &is_over)?;
                let share = (thread_cpu_ns() - cpu_ns) as f64 / (monotonic_ns() - at_ns) as f64;
                Ok::<_, Error>((outcome.sent_per_sec, share))
            });
            let window = self.looks(pid);
            is_over.store(true, Ordering::Relaxed);
            let (offered_per_sec, load_share) = sending.join().unwrap_or(Err(Error::Stopped))?;
            Ok(Window { offered_per_sec, load_share, ..window? })
        });
        self.relay.stop();
        window
    }

    /// Reads the relay's counters when it is warm, and again at the end of the measurement.
    fn looks(&mut self, pid: u32) -> Result<Window, Error> {
        self.pause(self.plan.duration / 4)?;
        let begin = self.look(pid)?;
        self.pause(self.plan.duration)?;
        let end = self.look(pid)?;
        Ok(Window {
            counts: Counts {
                read: end.counts.read.saturating_sub(begin.counts.read),
                sent: end.counts.sent.saturating_sub(begin.counts.sent),
            },
            times: end.times.since(begin.times),
            elapsed_ns: end.elapsed_ns - begin.elapsed_ns,
            idle_ns: end.idle_ns.saturating_sub(begin.idle_ns),
            ..Window::default()
        })
    }

    fn look(&mut self, pid: u32) -> Result<Window, Error> {
        let counts = self.relay.counts().map_err(Error::Relay)?;
        let times = ThreadTimes::of(pid).map_err(|error| Error::Relay(error.into()))?;
        let idle_ns = processor_time(&self.relays).map_err(Error::Processors)?.idle_ns;
        Ok(Window {
            counts,
            times,
            idle_ns,
            elapsed_ns: monotonic_ns() as f64,
            ..Window::default()
        })
    }

    /// Waits for `duration`, or until the user wants to stop.
    fn pause(&self, duration: Duration) -> Result<(), Error> {
        let end_ns = monotonic_ns() + duration.as_nanos() as u64;
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Error::Stopped);
            }
            let left = Duration::from_nanos(end_ns.saturating_sub(monotonic_ns()));
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(LOOK_AGAIN));
        }
    }
}

fn offer(to: Address, offered: Offered, size_bytes: usize) -> Offer {
    // Consecutive datagrams differ in length, so the kernel cannot send them together.
    let sizes = match offered {
        Offered::Singles => Sizes::Varying { min: size_bytes - 1, max: size_bytes + 1 },
        Offered::Flood | Offered::Alone => Sizes::Equal(size_bytes),
    };
    let is_alone = offered == Offered::Alone;
    Offer {
        to,
        flows: 1,
        rate_per_sec: if is_alone { ALONE_PER_SEC } else { FLOOD_PER_SEC },
        duration: LOAD_DURATION,
        sizes,
        burst: if is_alone { 1 } else { sizes.burst() },
        quiet: Duration::ZERO,
        times: Times::Ignore,
    }
}

fn bind(processors: &CpuList) -> Result<(), Error> {
    processors.bind_this_thread().map_err(|error| Error::Processors(error.into()))
}

fn medians(rounds: &[Costs]) -> Costs {
    let of = |field: fn(&Costs) -> f64| median(&rounds.iter().map(field).collect::<Vec<_>>());
    Costs {
        receive_ns: of(|costs| costs.receive_ns),
        member_ns: of(|costs| costs.member_ns),
        merge_ns: of(|costs| costs.merge_ns),
        hand_over_ns: of(|costs| costs.hand_over_ns),
        send_ns: of(|costs| costs.send_ns),
        worker_send_ns: of(|costs| costs.worker_send_ns),
        wake_up_ns: of(|costs| costs.wake_up_ns),
        deliver_ns: of(|costs| costs.deliver_ns),
        load_send_ns: of(|costs| costs.load_send_ns),
        load_take_ns: of(|costs| costs.load_take_ns),
    }
}

/// The middle value; with an even number, the lower of the two in the middle. 0 if there are none.
fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or_default()
}
