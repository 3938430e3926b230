use super::flow::{Flow, Halt};
use super::schedule::{Schedule, Slot};
use super::{Error, Options, Pacing, Progress, Segmentation};
use crate::check::{self, Kind};
use crate::latency::Latencies;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use sys::send;

/// Most bytes to mark before sending: more would only wait in our own memory.
const BATCH_BYTES_MAX: usize = 256 * 1_024;

/// Most slots to take from the schedule at once.
const ROUND_MAX: usize = 1_024;

/// How long a paced run may continue after its end to send late slots.
const END_GRACE: Duration = Duration::from_millis(50);

/// Longest sleep before checking [`Halt`] again.
const NAP_MAX: Duration = Duration::from_millis(20);

const END_HEARTBEATS: u32 = 5;
const END_HEARTBEAT_GAP: Duration = Duration::from_millis(50);
/// Time limit for all end heartbeats; normally they take four gaps.
const END_MAX: Duration = Duration::from_secs(1);

/// One sending thread's sockets, buffer and counts.
pub(super) struct Sender {
    idx: usize,
    pub(super) options: Options,
    pub(super) run: u64,
    pub(super) flows: Vec<Flow>,
    /// Datagrams with their filler in place, `stride` bytes apart.
    buffer: Vec<u8>,
    stride: usize,
    batch_max: usize,
    /// Slots taken so far, which determines whose turn it is.
    turn: u64,
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    pub(super) lateness: Latencies,
    pub(super) slots_behind: u64,
}

impl Sender {
    pub(super) fn open(options: &Options, run: u64, idx: usize) -> Result<Sender, Error> {
        let mut flows = Vec::new();
        for flow_idx in (idx..options.flows).step_by(options.senders) {
            for target_idx in 0..options.targets.len() {
                flows.push(Flow::open(options, run, idx as u16, target_idx, flow_idx)?);
            }
        }

        let (_, size_max) = options.sizes.range();
        let contiguous = options.segmentation_possible() == Segmentation::Gso;
        let stride = if contiguous { size_max } else { size_max.next_multiple_of(64) + 64 };
        let batch_max = (BATCH_BYTES_MAX / stride).clamp(1, send::BATCH);

        // A run of segments may fill a message, and a batch has many messages.
        let batch_max =
            if contiguous { (BATCH_BYTES_MAX / stride).clamp(1, 512) } else { batch_max };

        let mut buffer = vec![0; batch_max * stride];
        buffer.chunks_exact_mut(stride).for_each(|slot| check::fill(options.payload, slot));
        Ok(Sender {
            idx,
            options: options.clone(),
            run,
            flows,
            buffer,
            stride,
            batch_max,
            turn: 0,
            start_ns: 0,
            end_ns: 0,
            lateness: Latencies::new(),
            slots_behind: 0,
        })
    }

    /// Time from the start of the schedule to the last data datagram.
    pub(super) fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.end_ns.saturating_sub(self.start_ns))
    }

    pub(super) fn run(&mut self, start_ns: u64, stop: &AtomicBool, progress: &Progress) {
        let mut schedule = Schedule::new(&self.options, self.run, self.idx, start_ns);
        let heartbeat_ns = self.options.heartbeat.map(|every| every.as_nanos().max(1) as u64);
        let mut next_heartbeat_ns = heartbeat_ns.map_or(u64::MAX, |every_ns| start_ns + every_ns);
        let round_max = (self.batch_max * self.flows.len()).min(ROUND_MAX.max(self.batch_max));
        let mut round: Vec<Slot> = Vec::with_capacity(round_max);

        self.start_ns = start_ns;
        self.end_ns = start_ns;
        let halt = &Halt { stop, at_ns: schedule.halt_ns(END_GRACE) };
        while !halt.is_now() {
            let now_ns = sys::clock::monotonic_ns();
            if now_ns >= next_heartbeat_ns {
                self.send_heartbeats(Kind::Heartbeat, 0, halt);
                next_heartbeat_ns = now_ns.saturating_add(heartbeat_ns.unwrap_or(u64::MAX));
            }

            let Some(first) = schedule.peek() else { break };
            if first.due_ns > now_ns {
                self.wait_until(first.due_ns.min(next_heartbeat_ns), now_ns);
                continue;
            }

            round.clear();
            while round.len() < round_max
                && let Some(slot) = schedule.peek().filter(|slot| slot.due_ns <= now_ns)
            {
                if slot.due_ns > 0 {
                    self.lateness.record(now_ns - slot.due_ns);
                }
                round.push(slot);
                schedule.advance();
            }

            self.send_round(&round, halt, progress);
            self.end_ns = sys::clock::monotonic_ns();
        }

        let done = self.flows.iter().map(|f| f.sent_datagrams + f.failed.total()).sum();
        self.slots_behind = schedule.slots_behind(sys::clock::monotonic_ns(), done);
        if self.options.heartbeat.is_some() {
            self.send_end();
        }
    }

    /// Assigns the slots to the flows in turn, one burst each, and sends each flow's share in
    /// batches.
    fn send_round(&mut self, round: &[Slot], halt: &Halt<'_>, progress: &Progress) {
        let flows = self.flows.len();
        let mut sizes = [0; 512];

        // The first burst may continue one that the last round began.
        let begun = (self.turn % self.options.burst) as usize;
        let burst_of = |slot: usize| (slot + begun) / self.options.burst as usize;
        let bursts = burst_of(round.len() - 1) + 1;
        let first_flow = (self.turn / self.options.burst) as usize;

        for shift in 0..flows.min(bursts) {
            let flow = (first_flow + shift) % flows;

            let mut pending = 0;
            for burst in (shift..bursts).step_by(flows) {
                let from = (burst * self.options.burst as usize).saturating_sub(begun);
                let to = ((burst + 1) * self.options.burst as usize - begun).min(round.len());
                for slot in &round[from..to] {
                    sizes[pending] = slot.size;
                    pending += 1;
                    if pending == self.batch_max {
                        self.send_batch(flow, &sizes[..pending], halt, progress);
                        pending = 0;
                    }
                }
            }

            self.send_batch(flow, &sizes[..pending], halt, progress);
        }
        self.turn += round.len() as u64;
    }

    fn send_batch(
        &mut self,
        flow: usize,
        mut sizes: &[usize],
        halt: &Halt<'_>,
        progress: &Progress,
    ) {
        let flow = &mut self.flows[flow];
        while !sizes.is_empty() && !halt.is_now() {
            let outcome = flow.send_data(sizes, self.stride, &mut self.buffer, halt);
            progress.sent_datagrams.fetch_add(outcome.sent as u64, Ordering::Relaxed);
            progress.failed_datagrams.fetch_add(outcome.gave_up as u64, Ordering::Relaxed);
            sizes = &sizes[outcome.sent + outcome.gave_up..];
        }
    }

    fn send_heartbeats(&mut self, kind: Kind, further: u32, halt: &Halt<'_>) {
        for flow in &mut self.flows {
            flow.send_heartbeat(kind, further, halt);
        }
    }

    /// Announces the end several times, because any of these heartbeats may be lost too.
    fn send_end(&mut self) {
        // The run is already stopping, and an absent receiver must not delay the end for long.
        let at_ns = Some(sys::clock::monotonic_ns() + END_MAX.as_nanos() as u64);
        let halt = &Halt { stop: &AtomicBool::new(false), at_ns };
        for further in (0..END_HEARTBEATS).rev() {
            self.send_heartbeats(Kind::End, further, halt);
            if further > 0 {
                thread::sleep(END_HEARTBEAT_GAP);
            }
        }
    }

    pub(super) fn wait_until(&self, due_ns: u64, now_ns: u64) {
        match self.options.pacing {
            Pacing::Sleep => thread::sleep(Duration::from_nanos(due_ns - now_ns).min(NAP_MAX)),
            Pacing::Spin => std::hint::spin_loop(),
        }
    }
}
