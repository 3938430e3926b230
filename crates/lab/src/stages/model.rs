//! Predicts rates from costs: arithmetic for the lossless rate, and a queue model for the rate under overload.
//!
//! A pipeline is a series of threads, each of which needs a certain time per datagram. It is lossless up to the rate at which its
//! slowest thread, or all CPUs, are always busy: `min(1 / max(thread), processors / sum(threads))`. At higher rates, threads
//! share CPUs and spend time on datagrams that are lost later; [`simulate`] models the queues for this case.
//!
//! Assumptions of the model: costs do not depend on the number of CPUs (no contention for memory or caches, no lower clock rate
//! when all are busy), batches are full, the scheduler shares CPUs evenly between threads that have work, and one flow
//! corresponds to one queue of the network card, whose soft interrupt runs on one CPU.

use super::{Costs, Schedule, Shape};
use serde::Serialize;

/// A relay and its machine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Setup {
    pub shape: Shape,
    pub processors: usize,
    /// Queues of the network card for the datagrams: 1 for one flow. 0 if the load pays for delivery, as on loopback.
    pub queues: usize,
}

/// Parallel threads with the same task.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stage {
    name: &'static str,
    threads: usize,
    /// Total cost of one datagram of the whole stream for these threads.
    cost_ns: f64,
    /// Cost of a datagram for the busiest of these threads.
    busiest_ns: f64,
    input: Input,
}

/// Where datagrams wait for a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Input {
    /// In sockets or in a network card: datagrams that arrive when they are full are lost.
    Kernel,
    /// In the rings of several sockets: a thread that fills a ring waits for space.
    Members,
    /// In the listener's ring: a target that falls behind loses the oldest datagrams.
    Ring,
}

/// The highest rate without loss.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Predicted {
    #[serde(flatten)]
    pub setup: Setup,
    pub rate_per_sec: f64,
    /// The bottleneck: a stage, or `processors`.
    pub limit: &'static str,
}

/// Predictions for a different machine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Extrapolated {
    /// The relay alone, as if delivery to its sockets had no cost: the maximum for its threads.
    pub relay: Predicted,
    /// With one queue that delivers each datagram separately, at the cost of loopback. A network card whose driver does not
    /// combine datagrams costs about as much; one whose driver does costs less.
    pub behind_one_queue: Predicted,
}

/// The stages of a relay, in the order of the path.
pub(super) fn stages(setup: Setup, costs: &Costs) -> Vec<Stage> {
    let Shape { sockets, schedule, targets } = setup.shape;
    let even = |name, threads: usize, cost_ns: f64, input| Stage {
        name,
        threads,
        cost_ns,
        busiest_ns: cost_ns / threads as f64,
        input,
    };
    let mut stages = Vec::new();

    if setup.queues > 0 {
        stages.push(even("the kernel's delivery", setup.queues, costs.deliver_ns, Input::Kernel));
    }
    if sockets > 1 {
        stages.push(even("the sockets' threads", sockets, costs.member_ns, Input::Kernel));
    }

    let (single, single_ns, input) = if sockets > 1 {
        ("the merging thread", costs.merge_ns, Input::Members)
    } else {
        ("the receiving thread", costs.receive_ns, Input::Kernel)
    };
    match schedule {
        Schedule::Inline => {
            let cost_ns = single_ns + targets as f64 * costs.send_ns;
            stages.push(even(single, 1, cost_ns, input));
        }
        Schedule::Threaded => {
            stages.push(even(single, 1, single_ns + costs.hand_over_ns, input));
            let workers = targets.min(setup.processors.saturating_sub(1)).max(1);
            let most_targets = targets.div_ceil(workers);
            stages.push(Stage {
                name: "a sending thread",
                threads: workers,
                cost_ns: targets as f64 * costs.worker_send_ns,
                busiest_ns: most_targets as f64 * costs.worker_send_ns,
                input: Input::Ring,
            });
        }
    }
    stages
}

/// The highest rate without loss.
pub fn predict(setup: Setup, costs: &Costs) -> Predicted {
    let stages = stages(setup, costs);
    let sum_ns: f64 = stages.iter().map(|stage| stage.cost_ns).sum();
    let all_ns = sum_ns / setup.processors as f64;

    let (limit, ns) = stages
        .iter()
        .map(|stage| (stage.name, stage.busiest_ns))
        .fold(("processors", all_ns), |most, one| if one.1 > most.1 { one } else { most });
    Predicted { setup, rate_per_sec: 1e9 / ns, limit }
}

/// Numbers of CPUs in the predictions.
const PROCESSORS: [usize; 5] = [1, 2, 4, 16, 64];
/// Numbers of targets in the predictions.
const TARGETS: [usize; 3] = [1, 4, 16];
/// Numbers of sockets to try.
const SOCKETS: [usize; 4] = [1, 2, 4, 8];

/// For each number of CPUs and targets, the best configuration of the relay for one flow.
pub(super) fn for_larger_machines(costs: &Costs) -> Vec<Extrapolated> {
    let mut all = Vec::new();
    for processors in PROCESSORS {
        for targets in TARGETS {
            let relay = best(processors, targets, costs);
            let behind_one_queue = predict(Setup { queues: 1, ..relay.setup }, costs);
            all.push(Extrapolated { relay, behind_one_queue });
        }
    }
    all
}

/// More threads are chosen only if they gain at least this factor.
const WORTH_IT: f64 = 1.02;

fn best(processors: usize, targets: usize, costs: &Costs) -> Predicted {
    let of = |sockets, schedule| {
        let shape = Shape { sockets, schedule, targets };
        predict(Setup { shape, processors, queues: 0 }, costs)
    };
    let mut best = of(1, Schedule::Inline);
    for sockets in SOCKETS.into_iter().filter(|&sockets| sockets <= processors) {
        for schedule in [Schedule::Inline, Schedule::Threaded] {
            let one = of(sockets, schedule);
            if one.rate_per_sec > best.rate_per_sec * WORTH_IT {
                best = one;
            }
        }
    }
    best
}

/// Capacity of the queues, in datagrams.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Queues {
    /// All sockets together.
    pub sockets: f64,
    /// How far the threads of several sockets may be ahead of the merging thread.
    pub members: f64,
    /// The listener's ring: a target that falls behind further loses its oldest datagrams.
    pub ring: f64,
}

/// Length of one step.
const STEP_NS: f64 = 100_000.0;
/// Number of steps in a simulation: two seconds, of which only the second one counts.
const STEPS: usize = 20_000;

/// A load without a separate CPU: one thread that never sleeps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SharedLoad {
    pub(super) send_ns: f64,
    /// The cost of one copy of each datagram at every target.
    pub(super) take_ns: f64,
}

/// The rate in datagrams per second that passes when `offered_per_sec` are sent and `processors` CPUs are available, possibly not
/// a whole number because of other programs. Simulates the queues for two seconds: in each step, CPUs are shared evenly between
/// the threads that have work and space, and no thread gets more than one.
pub fn simulate(
    setup: Setup,
    costs: &Costs,
    queues: Queues,
    processors: f64,
    offered_per_sec: f64,
) -> f64 {
    run(setup, costs, queues, processors, Source::Elsewhere(offered_per_sec))
}

/// The same with the load on the same CPUs, which sends as much as its share of time allows.
pub(super) fn simulate_shared(setup: Setup, costs: &Costs, queues: Queues, processors: f64) -> f64 {
    let targets = setup.shape.targets as f64;
    let load = SharedLoad { send_ns: costs.load_send_ns, take_ns: costs.load_take_ns * targets };
    run(setup, costs, queues, processors, Source::Shared(load))
}

#[derive(Clone, Copy)]
enum Source {
    Elsewhere(f64),
    Shared(SharedLoad),
}

fn run(setup: Setup, costs: &Costs, queues: Queues, processors: f64, source: Source) -> f64 {
    let stages = stages(setup, costs);
    let mut flow =
        Flow { waiting: vec![0.0; stages.len()], stages, queues, processors, source, untaken: 0.0 };

    let passed: Vec<f64> = (0..STEPS).map(|_| flow.step()).collect();
    let counted = &passed[STEPS / 2..];
    counted.iter().sum::<f64>() / (counted.len() as f64 * STEP_NS / 1e9)
}

/// A running simulation.
struct Flow {
    stages: Vec<Stage>,
    /// Datagrams waiting in front of each stage.
    waiting: Vec<f64>,
    queues: Queues,
    processors: f64,
    source: Source,
    /// Datagrams that the load's receivers have not read yet.
    untaken: f64,
}

impl Flow {
    /// Advances by [`STEP_NS`]. Returns how many datagrams have passed the last stage.
    fn step(&mut self) -> f64 {
        let mut busy_ns: Vec<f64> = (0..self.stages.len()).map(|at| self.wanted_ns(at)).collect();
        let load_ns = self.share(&mut busy_ns);

        // In reverse order, so that the output of a stage reaches the next one only in the following step.
        let last = self.stages.len() - 1;
        let mut passed = 0.0;
        for at in (0..=last).rev() {
            let done = (busy_ns[at] / self.stages[at].busiest_ns).min(self.waiting[at]);
            self.waiting[at] -= done;
            if at == last {
                passed = done;
            } else {
                self.bring(at + 1, done);
            }
        }

        self.untaken += passed;
        let arriving = self.arriving(load_ns);
        self.bring(0, arriving);
        passed
    }

    /// Time that the busiest thread of a stage could use in a step.
    fn wanted_ns(&self, at: usize) -> f64 {
        let next = self.stages.get(at + 1).filter(|next| next.input == Input::Members);
        let room = next.map_or(f64::INFINITY, |_| self.queues.members - self.waiting[at + 1]);
        let datagrams = self.waiting[at].min(room.max(0.0));
        (datagrams * self.stages[at].busiest_ns).min(STEP_NS)
    }

    /// Reduces the requested times to an even share of the CPUs for each thread. Returns the time of the load.
    fn share(&self, busy_ns: &mut [f64]) -> f64 {
        let is_shared = matches!(self.source, Source::Shared(_));
        let threads: usize = self.stages.iter().map(|stage| stage.threads).sum();
        let mut open = threads + usize::from(is_shared);
        let mut left_ns = self.processors * STEP_NS;

        // The smallest request first: the others share what it leaves.
        let mut order: Vec<usize> = (0..busy_ns.len()).collect();
        order.sort_by(|&a, &b| busy_ns[a].total_cmp(&busy_ns[b]));
        for at in order {
            busy_ns[at] = busy_ns[at].min(left_ns / open as f64);
            left_ns -= busy_ns[at] * self.stages[at].threads as f64;
            open -= self.stages[at].threads;
        }
        if is_shared { left_ns.min(STEP_NS) } else { 0.0 }
    }

    /// Datagrams that arrive in a step, if the load has this much time.
    fn arriving(&mut self, load_ns: f64) -> f64 {
        match self.source {
            Source::Elsewhere(per_sec) => per_sec * STEP_NS / 1e9,
            Source::Shared(load) => {
                let take_ns = (self.untaken * load.take_ns).min(load_ns);
                self.untaken -= take_ns / load.take_ns;
                (load_ns - take_ns) / load.send_ns
            }
        }
    }

    /// Adds datagrams to the queue of a stage, up to its capacity.
    fn bring(&mut self, at: usize, datagrams: f64) {
        let room = match self.stages[at].input {
            Input::Kernel => self.queues.sockets,
            Input::Members => self.queues.members,
            Input::Ring => self.queues.ring,
        };
        self.waiting[at] = (self.waiting[at] + datagrams).min(room);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: Costs = Costs {
        receive_ns: 500.0,
        member_ns: 600.0,
        merge_ns: 200.0,
        hand_over_ns: 50.0,
        send_ns: 1_000.0,
        worker_send_ns: 1_100.0,
        wake_up_ns: 5_000.0,
        deliver_ns: 700.0,
        load_send_ns: 300.0,
        load_take_ns: 400.0,
    };
    const QUEUES: Queues = Queues { sockets: 10_000.0, members: 5_000.0, ring: 5_000.0 };

    fn setup(sockets: usize, schedule: Schedule, targets: usize, processors: usize) -> Setup {
        Setup { shape: Shape { sockets, schedule, targets }, processors, queues: 0 }
    }

    #[track_caller]
    fn check(setup: Setup, ns: f64, limit: &str) {
        let predicted = predict(setup, &COSTS);
        assert_eq!((predicted.rate_per_sec.round(), predicted.limit), ((1e9 / ns).round(), limit));
    }

    #[test]
    fn the_slowest_thread_or_all_processors_are_the_limit() {
        use Schedule::{Inline, Threaded};
        check(setup(1, Inline, 2, 1), 2_500.0, "processors");
        check(setup(1, Inline, 2, 2), 2_500.0, "the receiving thread");
        check(setup(1, Threaded, 2, 64), 1_100.0, "a sending thread");
        check(setup(1, Threaded, 4, 3), 2_200.0, "a sending thread");
        check(setup(1, Threaded, 2, 2), 2_200.0, "a sending thread");
        check(setup(4, Threaded, 1, 64), 1_100.0, "a sending thread");
        check(setup(4, Inline, 0, 64), 200.0, "the merging thread");
        check(setup(2, Inline, 0, 64), 300.0, "the sockets' threads");
        check(setup(4, Inline, 0, 2), 400.0, "processors");
        let behind_a_card = Setup { queues: 1, ..setup(4, Inline, 0, 64) };
        check(behind_a_card, 700.0, "the kernel's delivery");
    }

    #[test]
    fn below_the_predicted_rate_the_queues_lose_nothing_and_beyond_it_they_do() {
        for setup in [
            setup(1, Schedule::Inline, 2, 1),
            setup(1, Schedule::Threaded, 3, 2),
            setup(4, Schedule::Inline, 1, 2),
            setup(4, Schedule::Threaded, 3, 16),
        ] {
            let rate = predict(setup, &COSTS).rate_per_sec;
            let processors = setup.processors as f64;
            let below = simulate(setup, &COSTS, QUEUES, processors, rate * 0.98);
            assert!((below / (rate * 0.98) - 1.0).abs() < 0.001, "{setup:?}: {below} of {rate}");
            let beyond = simulate(setup, &COSTS, QUEUES, processors, rate * 1.5);
            assert!(beyond < rate * 1.01, "{setup:?}: {beyond} of {rate}");
        }
    }

    #[test]
    fn under_overload_on_one_processor_a_share_of_it_is_wasted() {
        // The receiving thread takes half of the CPU, and receives more than two workers can send.
        let threaded = setup(1, Schedule::Threaded, 1, 1);
        let passed = simulate(threaded, &COSTS, QUEUES, 1.0, 1e7);
        assert!((passed - 0.5e9 / 1_100.0).abs() < 5_000.0, "{passed}");
        assert!(passed < predict(threaded, &COSTS).rate_per_sec);
    }

    #[test]
    fn what_others_take_of_the_processors_is_missing() {
        let passed = simulate(setup(1, Schedule::Inline, 1, 1), &COSTS, QUEUES, 0.75, 1e7);
        assert!((passed - 0.75e9 / 1_500.0).abs() < 5_000.0, "{passed}");
    }

    #[test]
    fn a_load_on_the_same_processors_takes_its_share() {
        let passed = simulate_shared(setup(1, Schedule::Inline, 1, 1), &COSTS, QUEUES, 1.0);
        assert!((passed - 0.5e9 / 1_500.0).abs() < 5_000.0, "{passed}");
        let alone = simulate_shared(setup(1, Schedule::Inline, 1, 2), &COSTS, QUEUES, 2.0);
        assert!((alone - 1e9 / 1_500.0).abs() < 5_000.0, "{alone}");
    }

    #[test]
    fn more_processors_never_predict_less() {
        let all = for_larger_machines(&COSTS);
        assert_eq!(all.len(), PROCESSORS.len() * TARGETS.len());
        for targets in TARGETS {
            let relays = all.iter().map(|one| one.relay);
            let of = relays.filter(|one| one.setup.shape.targets == targets);
            let rates: Vec<f64> = of.map(|one| one.rate_per_sec).collect();
            // Threads that gain too little are not added, so a rate may be slightly below the previous one.
            assert!(rates.windows(2).all(|pair| pair[1] * WORTH_IT >= pair[0]), "{rates:?}");
        }
        let most = all.last().unwrap();
        assert_eq!(most.relay.limit, "a sending thread");
        assert!(most.behind_one_queue.rate_per_sec <= most.relay.rate_per_sec);
    }
}
