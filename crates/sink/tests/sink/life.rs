//! The life of a sink's thread: its end, its deadline, and a client that hangs or panics.

use crate::support::{Source, Watch, batch_rows, check_law, hop, number_and_filling, options};
use ledger::{Event, Gauge, Reason, RejectClass};
use record::{Encoding, FieldSet};
use sink::batch::{Attempt, BatchId, Failure, Fate, Outcome, Sent};
use sink::{
    Connector, Content, DeliveryOptions, Destination, Form, OwnFigures, Partition, QueueOptions,
    RowEncoder, SinkOptions, SpoolOptions, SpoolSync, WhenFull,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use testkit::{DEADLINE, TempDir, wait_for};

/// A sink to this destination, which is recreated as a clone.
fn to<D: Destination + Clone + Sync + 'static>(destination: D) -> Connector {
    Connector {
        form: Box::new(|| {
            let fields = number_and_filling();
            Form::Mixed(Box::new(RowEncoder::new(Encoding::Jsonl, &fields, Partition::Whole)))
        }),
        destination: Box::new(move || Ok(Box::new(destination.clone()))),
    }
}

/// Reports each batch it gets, and waits for a command before it answers.
#[derive(Clone)]
struct Commanded {
    began: Sender<u64>,
    next: Arc<Mutex<Receiver<Fate>>>,
    batch: Option<BatchId>,
}

fn commanded() -> (Connector, Receiver<u64>, Sender<Fate>) {
    let (began, begins) = channel();
    let (command, next) = channel();
    let next = Arc::new(Mutex::new(next));
    (to(Commanded { began, next, batch: None }), begins, command)
}

impl Destination for Commanded {
    fn submit(&mut self, attempt: Attempt) -> Result<(), Attempt> {
        let _ = self.began.send(attempt.batch.rows);
        self.batch = Some(attempt.batch.id);
        Ok(())
    }

    fn poll(&mut self, _wait: Duration, done: &mut Vec<Outcome>) {
        let Some(id) = self.batch.take() else { return };
        // Longer than allowed: a stuck client.
        let fate = self.next.lock().unwrap().recv().unwrap_or(Fate::Acknowledged);
        done.push(Outcome::all(id, fate));
    }
}

fn failed(sent: Sent, reason: Reason) -> Fate {
    let trouble = ledger::Trouble { what: "as told".into(), fix: "tell otherwise".into() };
    let after = Some(Duration::ZERO);
    Fate::Failed(Failure { sent, reason: Some(reason), after, trouble })
}

#[test]
fn a_stuck_thread_is_given_up_once_and_counts_nothing_when_it_comes_back() {
    let (connector, begins, command) = commanded();
    let batch = batch_rows(10);
    let mut source = Source::to_one(SinkOptions { batch, ..options("stuck", connector) });
    let meter = source.meters().remove(0);
    let watch = Watch::new([Arc::clone(&meter)]);
    // One batch is submitted, one is complete, one is being filled; the rest is queued.
    source.send(0..25);
    assert_eq!(begins.recv().unwrap(), 10);
    source.send(25..40);
    let left = source.stop(Instant::now());
    assert_eq!(left[0].1.count, 40);

    let seen = hop(&meter);
    check_law(&seen);
    assert_eq!((seen.uncertain.count, seen.dropped_for(Reason::Shutdown).count), (10, 30));
    command.send(Fate::Acknowledged).unwrap();
    drop(command);
    // The thread ends: it drops its end of the channel.
    while begins.recv().is_ok() {}
    let mut after = hop(&meter);
    after.gauges.clone_from(&seen.gauges);
    after.events.clone_from(&seen.events);
    assert_eq!(after, seen);
    assert!(watch.end() > 0);
}

#[test]
fn what_the_spool_has_of_a_stuck_thread_stays_for_the_next() {
    let dir = TempDir::new();
    let (connector, begins, command) = commanded();
    let spool = Some(SpoolOptions {
        folder: dir.file("spool"),
        bytes_max: 1 << 20,
        sync: SpoolSync::Every(Duration::from_millis(1)),
    });
    let batch = batch_rows(10);
    let mut source = Source::to_one(SinkOptions { batch, spool, ..options("stuck", connector) });
    let meter = source.meters().remove(0);
    source.send(0..25);
    assert_eq!(begins.recv().unwrap(), 10);
    source.send(25..40);
    let left = source.stop(Instant::now());

    // The rows queued after those never reached the spool.
    assert_eq!(left[0].1.count, 15);
    let seen = hop(&meter);
    check_law(&seen);
    assert_eq!((seen.kept.count, seen.in_flight.count, seen.uncertain.count), (25, 0, 0));
    assert_eq!(seen.dropped_for(Reason::Shutdown).count, 15);
    drop(command);
    while begins.recv().is_ok() {}
}

/// Creating the form fails the first three times.
#[test]
fn a_form_that_cannot_be_made_is_counted_and_tried_again() {
    let mut connector = sink::null(Content::Records(Encoding::Jsonl, FieldSet::ALL));
    let (mut make, mut attempts) = (connector.form, 0);
    connector.form = Box::new(move || {
        attempts += 1;
        assert!(attempts > 3, "as planned");
        make()
    });
    let mut source = Source::to_one(options("form", connector));
    source.send(0..100);
    let seen =
        wait_for("the fourth", || Some(source.hop()).filter(|hop| hop.delivered.count == 100));
    check_law(&seen);
    assert_eq!(seen.event(Event::Panics), 3);
    assert_eq!(source.stop(Instant::now() + DEADLINE), []);
}

/// Creating the destination fails the first two times, while there is nothing to send.
#[test]
fn a_destination_that_was_made_in_the_end_is_in_no_trouble() {
    let mut connector = sink::null(Content::Records(Encoding::Jsonl, FieldSet::ALL));
    let (mut make, mut attempts) = (connector.destination, 0);
    connector.destination = Box::new(move || {
        attempts += 1;
        let trouble = || ledger::Trouble { what: "as planned".into(), fix: "wait".into() };
        if attempts > 2 { make() } else { Err(trouble()) }
    });
    let source = Source::to_one(options("late", connector));

    let up = |hop: &ledger::HopSnapshot| hop.gauges[&Gauge::Up];
    wait_for("trouble", || Some(source.hop()).filter(|hop| hop.trouble.is_some() && up(hop) == 0));
    wait_for("none", || Some(source.hop()).filter(|hop| hop.trouble.is_none() && up(hop) == 1));
    assert_eq!(source.hop().event(Event::Connects), 1);
}

#[test]
fn each_fate_is_counted_as_what_it_is() {
    let (connector, begins, command) = commanded();
    let batch = batch_rows(10);
    let mut source = Source::to_one(SinkOptions { batch, ..options("fates", connector) });
    let mut send = |fate| {
        source.send(0..10);
        assert_eq!(begins.recv().unwrap(), 10);
        command.send(fate).unwrap();
    };
    send(Fate::Acknowledged);
    send(Fate::Dropped(Reason::Refused));
    send(Fate::Rejected { class: RejectClass::Schema, says: "no".into() });
    send(failed(Sent::No, Reason::Unavailable));
    assert_eq!(begins.recv().unwrap(), 10);
    command.send(Fate::Acknowledged).unwrap();
    send(failed(Sent::Maybe, Reason::Unavailable));
    assert_eq!(begins.recv().unwrap(), 10);
    command.send(Fate::Acknowledged).unwrap();

    let seen = wait_for("the last", || {
        let hop = source.hop();
        hop.in_flight.is_zero().then_some(hop)
    });
    check_law(&seen);
    assert_eq!((seen.received.count, seen.delivered.count), (50, 30));
    assert_eq!(seen.dropped_for(Reason::Refused).count, 10);
    assert_eq!(seen.rejected_with(RejectClass::Schema).count, 10);
    let events = [Event::Attempts, Event::Retries, Event::Errors, Event::PossibleDuplicates];
    assert_eq!(events.map(|event| seen.event(event)), [7, 2, 4, 10]);
}

#[test]
fn what_was_sent_and_not_answered_at_the_deadline_is_uncertain_and_the_rest_is_not() {
    let (connector, begins, command) = commanded();
    let mut source =
        Source::to_one(SinkOptions { batch: batch_rows(10), ..options("end", connector) });
    let meter = source.meters().remove(0);
    source.send(0..10);
    begins.recv().unwrap();
    source.send(10..30);
    command.send(failed(Sent::Maybe, Reason::Unavailable)).unwrap();
    begins.recv().unwrap();

    // The answer comes after the deadline: the thread is not abandoned, and knows what it had
    // tried.
    let deadline = Instant::now() + Duration::from_millis(50);
    source.sinks[0].close(deadline);
    wait_for("the deadline", || (Instant::now() > deadline).then_some(()));
    command.send(failed(Sent::Maybe, Reason::Unavailable)).unwrap();
    let left = source.stop(deadline);
    assert_eq!(left[0].1.count, 30);
    let seen = hop(&meter);
    check_law(&seen);
    assert_eq!((seen.uncertain.count, seen.dropped_total().count), (10, 20));
}

#[test]
fn what_comes_after_the_end_was_announced_is_counted_as_lost_to_it() {
    let connector = sink::null(Content::Records(Encoding::Jsonl, FieldSet::ALL));
    let mut source = Source::to_one(options("late", connector));
    let meter = source.meters().remove(0);
    source.send(0..10);
    source.sinks[0].close(Instant::now() + DEADLINE);
    source.send(10..15);
    assert_eq!(source.stop(Instant::now() + DEADLINE), []);
    let seen = hop(&meter);
    check_law(&seen);
    assert_eq!((seen.delivered.count, seen.dropped_for(Reason::Shutdown).count), (10, 5));
}

/// Acknowledges, refuses, drops and forgets in turn, with the same fate for all parts of a batch.
#[derive(Clone)]
struct Moody {
    seed: Arc<AtomicU64>,
    has: Vec<BatchId>,
}

impl Moody {
    fn chance(&self) -> u64 {
        let step = |seed: u64| seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        step(
            self.seed
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |seed| Some(step(seed)))
                .unwrap(),
        ) >> 33
    }
}

impl Destination for Moody {
    fn submit(&mut self, attempt: Attempt) -> Result<(), Attempt> {
        if self.chance().is_multiple_of(5) {
            return Err(attempt);
        }
        self.has.push(attempt.batch.id);
        Ok(())
    }

    fn poll(&mut self, _wait: Duration, done: &mut Vec<Outcome>) {
        while let Some(id) = self.has.pop() {
            let fate = match self.chance() % 40 {
                0 => failed(Sent::No, Reason::Unavailable),
                1 => failed(Sent::Maybe, Reason::Unavailable),
                2 => Fate::Dropped(Reason::Refused),
                3 => Fate::Rejected { class: RejectClass::Invalid, says: "no".into() },
                4 => panic!("a defect of the client, as planned"),
                _ => Fate::Acknowledged,
            };
            done.push(Outcome::all(id, fate));
        }
    }

    fn figures(&self) -> OwnFigures {
        OwnFigures::default()
    }
}

#[test]
fn the_law_holds_at_every_look_while_many_offer_and_some_is_lost() {
    let moody = Moody { seed: Arc::new(AtomicU64::new(1)), has: Vec::new() };
    let delivery = DeliveryOptions {
        in_flight_max: 4,
        retry_max: Duration::from_millis(1),
        ..DeliveryOptions::default()
    };
    let queue = QueueOptions { bytes_max: 200_000, when_full: WhenFull::DropOldest };
    let batch = batch_rows(37);
    let options = SinkOptions { delivery, queue, batch, ..options("moody", to(moody)) };
    let source = Source::to_one(options);
    let meter = source.meters().remove(0);
    let watch = Watch::new([Arc::clone(&meter)]);
    let fanout = sink::Fanout::default();
    fanout.attach(&source.sinks[0]);

    let offerers: Vec<_> = (0..3_u64)
        .map(|at| {
            let mut writer = fanout.writer([at as u8; 16]);
            thread::spawn(move || {
                for number in 0..50_000 {
                    writer.record(&crate::support::numbered(number));
                    if number.is_multiple_of(70 + at) {
                        writer.flush();
                    }
                }
            })
        })
        .collect();
    offerers.into_iter().for_each(|thread| thread.join().unwrap());
    wait_for("the rest", || source.is_empty());

    let seen = source.hop();
    check_law(&seen);
    assert_eq!(seen.received.count, 3 * 50_000);
    assert!(seen.event(Event::Panics) > 0 && seen.event(Event::PossibleDuplicates) > 0, "{seen:?}");
    assert!(!seen.dropped_for(Reason::Refused).is_zero() && !seen.rejected.is_empty(), "{seen:?}");
    assert!(watch.end() > 100);
}
