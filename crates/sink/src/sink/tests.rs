use super::*;
use crate::events::Events;
use crate::null::Null;
use crate::stream::Stream;
use ledger::{Event, Gauge, HopSnapshot};
use std::io::{PipeReader, Read};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

const DEADLINE: Duration = Duration::from_secs(60);

fn sink_to(destination: Box<dyn Destination>, limits: QueueLimits) -> Sink {
    let queue = Arc::new(Queue::new("test".into(), "sink".into(), limits));
    Sink { queue: start(queue, destination).unwrap(), datagram_limit: None }
}

/// A sink into a pipe that holds 64 KiB.
fn sink_to_pipe(header: &[u8], limits: QueueLimits) -> (Sink, PipeReader) {
    let (reader, writer) = std::io::pipe().unwrap();
    let mut stream = Stream::new(writer.into());
    stream.begin(Framing { header: header.to_vec(), record_end: None });
    (sink_to(Box::new(stream), limits), reader)
}

fn hop(sink: &Sink) -> HopSnapshot {
    let mut hops = Vec::new();
    sink.meter().read(&mut hops);
    let hop = hops.pop().unwrap();
    assert_eq!(hop.unaccounted, 0, "{hop:?}");
    assert_eq!(hop.received, hop.delivered + hop.dropped_total() + hop.in_flight, "{hop:?}");
    assert!(hop.in_flight.bytes <= hop.gauges[&Gauge::QueueLimitBytes]);
    hop
}

fn wait_for(sink: &Sink, is_there: impl Fn(&HopSnapshot) -> bool) -> HopSnapshot {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let hop = hop(sink);
        if is_there(&hop) {
            return hop;
        }
        assert!(Instant::now() < deadline, "{hop:?}");
        thread::park_timeout(Duration::from_millis(2));
    }
}

fn payload(number: u64) -> Payload {
    let mut bytes = vec![b'.'; 999];
    bytes.push(b'\n');
    bytes[..20].copy_from_slice(format!("{number:>20}").as_bytes());
    Payload::new(&bytes, 1)
}

fn numbers_in(text: &str) -> Vec<u64> {
    text.lines().map(|line| line[..20].trim().parse().unwrap()).collect()
}

#[test]
fn a_reader_that_does_not_read_costs_the_oldest_and_holds_no_other_sink() {
    let limits = QueueLimits { bytes: 100_000, payloads: 1_000 };
    let (slow, mut reader) = sink_to_pipe(b"", limits);
    let other = sink_to(Box::new(Null), QueueLimits::default());
    for number in 0..1_000 {
        slow.offer(&payload(number));
        other.offer(&payload(number));
        // So that what the pipe takes is the first: the rest is for the queue to hold.
        if number == 80 {
            wait_for(&slow, |hop| hop.delivered.count >= 60);
        }
    }
    wait_for(&other, |hop| hop.delivered.count == 1_000);
    let stuck = hop(&slow);
    assert!(stuck.delivered.count < 70, "{stuck:?}");
    assert_eq!(stuck.in_flight.count, 100);
    let lost = stuck.dropped_for(Reason::QueueFull).count;
    assert_eq!(lost + stuck.delivered.count + 100, 1_000);
    slow.close(Instant::now() + DEADLINE);
    let reader = thread::spawn(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        text
    });
    assert!(slow.wait(Instant::now() + DEADLINE).is_zero());
    let numbers = numbers_in(&reader.join().unwrap());
    assert_eq!(numbers.len() as u64, 1_000 - lost);
    assert!(numbers.is_sorted());
    // In the hands of the destination was what came first; what the queue kept is the end.
    assert_eq!(numbers[..61], (0..61).collect::<Vec<_>>());
    assert_eq!(*numbers.last().unwrap(), 999);
}

#[test]
fn the_header_comes_once_and_before_everything() {
    let (sink, mut reader) = sink_to_pipe(b"header\n", QueueLimits::default());
    (0..3).for_each(|number| sink.offer(&payload(number)));
    sink.close(Instant::now() + DEADLINE);
    assert!(sink.wait(Instant::now() + DEADLINE).is_zero());
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(numbers_in(text.strip_prefix("header\n").unwrap()), [0, 1, 2]);
}

#[test]
fn a_closed_pipe_ends_the_sink_quietly() {
    let (sink, reader) = sink_to_pipe(b"", QueueLimits::default());
    sink.offer(&payload(0));
    wait_for(&sink, |hop| hop.delivered.count == 1);
    drop(reader);
    (1..100).for_each(|number| sink.offer(&payload(number)));
    let seen = wait_for(&sink, |hop| hop.in_flight.is_zero());
    assert_eq!(seen.dropped_for(Reason::WriteError).count, 99);
    assert_eq!((seen.events.get(&Event::Errors), seen.gauges[&Gauge::Up]), (None, 0));
    sink.offer(&payload(100));
    wait_for(&sink, |hop| hop.dropped_for(Reason::WriteError).count == 100);
}

#[test]
fn what_has_not_left_at_the_deadline_is_counted_and_so_is_what_comes_later() {
    let (sink, _reader) = sink_to_pipe(b"", QueueLimits::default());
    (0..100).for_each(|number| sink.offer(&payload(number)));
    wait_for(&sink, |hop| hop.delivered.count >= 60);
    let deadline = Instant::now() + Duration::from_millis(50);
    sink.close(deadline);
    sink.offer(&payload(100));
    let queue = Arc::clone(&sink.queue);
    let left = sink.wait(deadline);
    let mut hops = Vec::new();
    queue.read(&mut hops);
    assert!(hops[0].in_flight.is_zero());
    assert_eq!(hops[0].delivered.count + left.count, 100);
    assert_eq!(hops[0].dropped_for(Reason::Shutdown).count, left.count + 1);
}

/// Waits for a word before each delivery, and says with which payloads it begins one.
struct Commanded {
    began: Sender<Vec<u64>>,
    next: Receiver<Delivery>,
}

impl Destination for Commanded {
    fn deliver(&mut self, payloads: &[Payload], _events: &Events) -> Delivery {
        let number = |payload: &Payload| {
            let text = String::from_utf8_lossy(&payload.bytes()[..20]);
            text.trim().parse().unwrap_or(u64::MAX)
        };
        let _ = self.began.send(payloads.iter().map(number).collect());
        self.next.recv().unwrap_or(Delivery::Delivered(payloads.len()))
    }
}

fn commanded(limits: QueueLimits) -> (Sink, Receiver<Vec<u64>>, Sender<Delivery>) {
    let (began, begins) = channel();
    let (command, next) = channel();
    (sink_to(Box::new(Commanded { began, next }), limits), begins, command)
}

#[test]
fn a_stuck_thread_is_given_up_and_counts_nothing_when_it_comes_back() {
    let (sink, begins, command) = commanded(QueueLimits::default());
    (0..10).for_each(|number| sink.offer(&payload(number)));
    begins.recv().unwrap();
    let queue = Arc::clone(&sink.queue);
    let deadline = Instant::now();
    sink.close(deadline);
    assert_eq!(sink.wait(deadline).count, 10);
    command.send(Delivery::Delivered(1)).unwrap();
    drop(command);
    // The thread ends: it lets go of its end of the channel.
    assert!(begins.recv().is_err());
    let mut hops = Vec::new();
    queue.read(&mut hops);
    assert_eq!(hops[0].unaccounted, 0);
    assert_eq!(hops[0].dropped_for(Reason::Shutdown).count, 10);
}

#[test]
fn each_fate_is_counted_as_what_it_is() {
    let (sink, begins, command) = commanded(QueueLimits { bytes: 10_000, payloads: 10 });
    sink.offer(&payload(0));
    assert_eq!(begins.recv().unwrap(), [0]);
    (1..10).for_each(|number| sink.offer(&payload(number)));
    command.send(Delivery::Delivered(1)).unwrap();
    assert_eq!(begins.recv().unwrap().len(), 9);
    command.send(Delivery::Dropped(2, Reason::Refused)).unwrap();
    assert_eq!(begins.recv().unwrap().len(), 7);
    assert_eq!(hop(&sink).gauges[&Gauge::Up], 0);
    command.send(Delivery::Retry(Duration::ZERO, Some(Reason::SendError))).unwrap();
    assert_eq!(begins.recv().unwrap().len(), 7);
    // Seven are in its hands: three fit, and of the next two each costs the oldest that is not.
    (10..15).for_each(|number| sink.offer(&payload(number)));
    let seen = hop(&sink);
    assert_eq!(seen.dropped_for(Reason::SendError).count, 2);
    assert_eq!((seen.in_flight.count, seen.delivered.count), (10, 1));
    assert_eq!(seen.dropped_for(Reason::Refused).count, 2);
    assert_eq!(seen.event(Event::Retries), 1);
    command.send(Delivery::Gone(Reason::WriteError)).unwrap();
    wait_for(&sink, |hop| hop.dropped_for(Reason::WriteError).count == 10);
}

#[test]
fn what_is_in_hand_is_not_taken_back() {
    let (sink, begins, _command) = commanded(QueueLimits { bytes: 2_500, payloads: 100 });
    sink.offer(&payload(0));
    begins.recv().unwrap();
    sink.offer(&payload(1));
    sink.offer(&payload(2));
    assert_eq!(hop(&sink).in_flight.count, 2);
    assert_eq!(hop(&sink).dropped_for(Reason::QueueFull).count, 1);
    // Larger than what is left beside the one in hand: nothing is thrown out in vain.
    sink.offer(&Payload::new(&[0; 1_501], 1));
    assert_eq!(hop(&sink).in_flight.count, 2);
    assert_eq!(hop(&sink).dropped_for(Reason::QueueFull).count, 2);
}

#[test]
fn the_rest_of_a_batch_stays_in_hand() {
    let limits = QueueLimits { bytes: 3_000, payloads: 3 };
    let (sink, begins, command) = commanded(limits);
    sink.offer(&payload(0));
    begins.recv().unwrap();
    command.send(Delivery::Retry(Duration::ZERO, None)).unwrap();
    sink.offer(&payload(1));
    sink.offer(&payload(2));
    // Three are in its hands, and one of them leaves.
    while begins.recv().unwrap() != [0, 1, 2] {
        command.send(Delivery::Retry(Duration::ZERO, None)).unwrap();
    }
    command.send(Delivery::Delivered(1)).unwrap();
    wait_for(&sink, |hop| hop.delivered.count == 1);
    (3..6).for_each(|number| sink.offer(&payload(number)));
    // Whether it has begun again or not, only what is not in its hands makes room.
    assert_eq!(hop(&sink).dropped_for(Reason::QueueFull).count, 2);
    assert_eq!(begins.recv().unwrap()[..2], [1, 2]);
    command.send(Delivery::Retry(Duration::ZERO, None)).unwrap();
    assert_eq!(begins.recv().unwrap(), [1, 2, 5]);
}

#[test]
fn the_law_holds_at_every_look_while_many_offer_and_some_is_lost() {
    struct Moody(u64);
    impl Destination for Moody {
        fn deliver(&mut self, payloads: &[Payload], _events: &Events) -> Delivery {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let count = 1 + (self.0 >> 33) as usize % payloads.len();
            match self.0 >> 60 {
                0 => Delivery::Retry(Duration::from_micros(300), None),
                1 => Delivery::Retry(Duration::from_micros(50), Some(Reason::WriteError)),
                2 => Delivery::Dropped(count, Reason::Refused),
                _ => Delivery::Delivered(count),
            }
        }
    }
    let sink = sink_to(Box::new(Moody(1)), QueueLimits { bytes: 60_000, payloads: 200 });
    let looks = Mutex::new(0_u64);
    let is_done = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                hop(&sink);
                *looks.lock().unwrap() += 1;
            }
        });
        let offerers: Vec<_> = (0..3_u64)
            .map(|seed| {
                let sink = &sink;
                scope.spawn(move || {
                    for number in 0..50_000 {
                        let len = ((number * 7 + seed) % 1_000) as usize;
                        sink.offer(&Payload::new(&vec![0; len], 1 + number % 5));
                    }
                })
            })
            .collect();
        offerers.into_iter().for_each(|thread| thread.join().unwrap());
        is_done.store(true, std::sync::atomic::Ordering::Relaxed);
        watcher.join().unwrap();
    });
    let seen = wait_for(&sink, |hop| hop.in_flight.is_zero());
    assert_eq!(seen.received.count, 3 * 50_000 * 3);
    assert_eq!(seen.event(Event::Payloads), 150_000);
    for reason in [Reason::QueueFull, Reason::WriteError, Reason::Refused] {
        assert!(!seen.dropped_for(reason).is_zero(), "{reason:?}");
    }
    assert!(*looks.lock().unwrap() > 100);
}
