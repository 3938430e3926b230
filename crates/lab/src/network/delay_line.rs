use super::End;
use super::bursts::Bursts;
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use sys::clock::monotonic_ns;
use sys::link::Tap;
use sys::poll::{EventFd, Interest, PollSet};

/// The properties of the path between the two hosts.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Span {
    /// Round-trip time of a frame; half of it applies each way.
    pub round_trip: Duration,
    /// Bits of Ethernet per second each way. `None`: no limit.
    pub bits_per_sec: Option<u64>,
    /// Mean number of consecutive packets of a flow that are lost in a burst, at least 1. `None`: each packet is lost
    /// independently.
    pub burst_packets: Option<f64>,
}

impl Span {
    /// Whether there is nothing to simulate.
    pub fn is_none(&self) -> bool {
        *self == Span::default()
    }
}

/// Longest time that a frame waits to leave. A frame that would wait longer is dropped, as with a full queue.
const QUEUE_TIME: Duration = Duration::from_millis(50);

/// Maximum number of frames in transit in one direction: 10,000 per second for six seconds.
const FRAMES_MAX: usize = 65_536;

/// Number of frames taken from one direction before it is the other's turn.
const BATCH_FRAMES: usize = 64;

/// Longer than any frame of a device with a usual MTU.
const FRAME_BYTES_MAX: usize = 10_000;

/// Longest time between two checks of whether to stop.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Simulates a long cable: what one device sends reaches the other later, in order.
///
/// A thread holds the frames. It replaces netem, which not every kernel has. A frame costs two system calls, so 40,000 frames per
/// second take a fifth of a CPU.
pub(super) struct DelayLine {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    bell: EventFd,
    is_over: AtomicBool,
    dropped: AtomicU64,
    /// Loss of frames from each end: a number from 0 to 1, as bits.
    loss: [AtomicU64; 2],
}

impl DelayLine {
    /// Connects two devices.
    pub(super) fn start(ends: [Tap; 2], span: Span) -> io::Result<DelayLine> {
        let shared = Arc::new(Shared {
            bell: EventFd::new()?,
            is_over: AtomicBool::new(false),
            dropped: AtomicU64::new(0),
            loss: [const { AtomicU64::new(0) }; 2],
        });
        let thread = thread::Builder::new().name("delay-line".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || run(&ends, span, &shared)
        })?;
        Ok(DelayLine { shared, thread: Some(thread) })
    }

    /// Number of frames that were dropped because they would have waited too long to leave.
    pub(super) fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }

    /// Sets the loss, in bursts, of frames on the way to one host: 0 to 1.
    pub(super) fn set_loss_towards(&self, towards: End, loss: f64) {
        self.shared.loss[towards.other() as usize].store(loss.to_bits(), Ordering::Relaxed);
    }
}

impl Drop for DelayLine {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        self.shared.bell.wake();
        if let Some(thread) = self.thread.take() {
            // A panic has already printed its message on standard error.
            let _ = thread.join();
        }
    }
}

fn run(ends: &[Tap; 2], span: Span, shared: &Shared) {
    sys::poll::set_timer_slack(Duration::ZERO);
    let mut ways = [Way::new(span), Way::new(span)];
    let mut bursts = span.burst_packets.map(|packets| Bursts::new(packets, monotonic_ns()));
    let mut frame = vec![0; FRAME_BYTES_MAX];
    let mut spare = Vec::new();
    let mut poll = PollSet::default();

    while !shared.is_over.load(Ordering::Acquire) {
        let mut is_more = false;
        for (from, way) in ways.iter_mut().enumerate() {
            let loss = f64::from_bits(shared.loss[from].load(Ordering::Relaxed));
            for _ in 0..BATCH_FRAMES {
                // Nothing to read, or the device is down: frames that it has sent are lost, as on a cut cable.
                let Ok(len) = ends[from].read(&mut frame) else { break };
                is_more = true;
                if bursts.as_mut().is_some_and(|bursts| bursts.is_lost(loss, &frame[..len])) {
                    continue;
                }
                let buffer: Vec<u8> = spare.pop().unwrap_or_default();
                if let Err(buffer) = way.take(monotonic_ns(), &frame[..len], buffer) {
                    shared.dropped.fetch_add(1, Ordering::Relaxed);
                    spare.push(buffer);
                }
            }
            while let Some(due) = way.due(monotonic_ns()) {
                let _ = ends[1 - from].write(&due);
                spare.push(due);
            }
        }
        if is_more {
            continue;
        }

        let due_ns = ways.iter().filter_map(Way::due_ns).min().unwrap_or(u64::MAX);
        let rest = Duration::from_nanos(due_ns.saturating_sub(monotonic_ns()));
        poll.clear();
        for end in ends {
            poll.add(end.as_fd(), Interest::Readable);
        }
        poll.add(shared.bell.as_fd(), Interest::Readable);
        // An interrupted wait just ends early.
        let _ = poll.wait(rest.min(LOOK_INTERVAL));
    }
}

/// One direction: its frames in the order of their arrival times.
struct Way {
    delay_ns: u64,
    ns_per_byte: f64,
    /// Time when the previous frame has left.
    free_ns: u64,
    held: VecDeque<(u64, Vec<u8>)>,
}

impl Way {
    fn new(span: Span) -> Way {
        Way {
            delay_ns: span.round_trip.as_nanos() as u64 / 2,
            ns_per_byte: span.bits_per_sec.map_or(0.0, |bits| 8e9 / bits.max(1) as f64),
            free_ns: 0,
            held: VecDeque::new(),
        }
    }

    /// Copies a frame into the buffer and queues it; returns the buffer if the frame would leave too late.
    fn take(&mut self, now_ns: u64, frame: &[u8], mut buffer: Vec<u8>) -> Result<(), Vec<u8>> {
        let leaves_ns = self.free_ns.max(now_ns);
        let is_late = leaves_ns - now_ns > QUEUE_TIME.as_nanos() as u64;
        if is_late || self.held.len() == FRAMES_MAX {
            return Err(buffer);
        }
        self.free_ns = leaves_ns + (frame.len() as f64 * self.ns_per_byte) as u64;
        buffer.clear();
        buffer.extend_from_slice(frame);
        self.held.push_back((self.free_ns + self.delay_ns, buffer));
        Ok(())
    }

    fn due_ns(&self) -> Option<u64> {
        self.held.front().map(|(due_ns, _)| *due_ns)
    }

    fn due(&mut self, now_ns: u64) -> Option<Vec<u8>> {
        self.due_ns().filter(|due_ns| *due_ns <= now_ns)?;
        self.held.pop_front().map(|(_, frame)| frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_late_by_half_a_round_trip_and_by_those_before_them() {
        let span = Span {
            round_trip: Duration::from_millis(20),
            bits_per_sec: Some(8_000_000),
            ..Span::default()
        };
        let mut way = Way::new(span);
        let frame = [0; 1_000];
        // One frame takes a millisecond.
        assert!(way.take(0, &frame, Vec::new()).is_ok());
        assert!(way.take(0, &frame, Vec::new()).is_ok());
        assert_eq!(way.due_ns(), Some(11_000_000));
        assert!(way.due(10_999_999).is_none());
        assert_eq!(way.due(11_000_000).map(|frame| frame.len()), Some(1_000));
        assert_eq!(way.due_ns(), Some(12_000_000));

        let taken = (0..100).filter(|_| way.take(0, &frame, Vec::new()).is_ok()).count();
        assert_eq!(taken, 49, "at most 50 ms wait");
        let mut straight = Way::new(Span::default());
        assert!(straight.take(7, &frame, Vec::new()).is_ok());
        assert_eq!(straight.due_ns(), Some(7));
    }
}
