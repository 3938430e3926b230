use super::*;
use crate::batch::{Batch, Encoded, Part as BatchPart, PartKey, Sent};
use ledger::Trouble;
use std::sync::Arc;

const ROWS: u32 = 3;

fn now(at: Instant, unix_s: u64) -> Now {
    Now { at, unix_ns: unix_s * 1_000_000_000 }
}

fn made(id: u64, times_s: [u64; 2]) -> Made {
    let part = BatchPart { end: 0, rows: ROWS, row_bytes: 30, key: PartKey::NONE };
    let [oldest_unix_ns, newest_unix_ns] = times_s.map(|time| time * 1_000_000_000);
    let batch = Batch {
        id: BatchId(id),
        kind: None,
        token: 0,
        encoded: Encoded { bytes: Vec::new(), parts: vec![part] },
        rows: ROWS.into(),
        oldest_unix_ns,
    };
    Made { batch: Arc::new(batch), entries: Vec::new(), is_repeated: false, newest_unix_ns }
}

fn delivery(in_flight_max: usize, expire_after: Option<Duration>) -> Delivery {
    let options = DeliveryOptions { in_flight_max, expire_after, ..DeliveryOptions::default() };
    Delivery::new(options, 1)
}

fn failure(sent: Sent) -> Failure {
    let trouble = Trouble { what: "lost".into(), fix: "none".into() };
    Failure { sent, reason: Some(Reason::Unavailable), after: None, trouble }
}

#[test]
fn a_connection_that_is_lost_with_many_batches_is_one_failure() {
    let mut at = Instant::now();
    let mut delivery = delivery(8, None);
    (0..8).for_each(|id| delivery.add(made(id, [1, 1]), now(at, 1)));

    for round in 1..=CIRCUIT_FAILURES {
        let mut ids = Vec::new();
        while let Some(attempt) = delivery.next(now(at, 1)) {
            ids.push(attempt.batch.id);
        }
        assert_eq!(ids.len(), 8, "round {round}");
        for id in ids {
            let lost = Outcome::all(id, Fate::Failed(failure(Sent::Maybe)));
            delivery.outcome(&lost, now(at, 1));
        }
        assert_eq!(delivery.failures, round);
        assert_eq!(delivery.is_circuit_open(), round == CIRCUIT_FAILURES);
        assert!(delivery.is_failing());
        at += Duration::from_secs(60);
    }

    // Only one is tried now.
    assert!(delivery.next(now(at, 1)).is_some());
    assert!(delivery.next(now(at, 1)).is_none());
}

#[test]
fn a_batch_expires_with_its_newest_row() {
    let begin = Instant::now();
    let moment = |unix_s: u64| now(begin + Duration::from_secs(unix_s), unix_s);
    let mut delivery = delivery(2, Some(Duration::from_secs(10)));
    delivery.add(made(0, [100, 105]), moment(105));
    delivery.add(made(1, [0, 0]), moment(105));

    delivery.expire(moment(115));
    assert_eq!((delivery.len(), delivery.left.len()), (2, 0));
    delivery.expire(moment(116));
    let expired = Left {
        exit: Exit::Dropped(Reason::Expired),
        amount: Amount { count: ROWS.into(), bytes: 30 },
    };
    // Rows without a time do not expire.
    assert_eq!((delivery.len(), &delivery.left[..]), (1, &[expired][..]));
}

/// Rows that expire after 10 s, and a clock that is set by an hour when they are 5 s old.
#[test]
fn a_clock_that_is_set_expires_nothing_early_or_late() {
    for set_s in [3_600, -3_600] {
        let begin = Instant::now();
        let moment = |unix_s: u64| {
            let shift_s = if unix_s < 10_105 { 0 } else { set_s };
            now(begin + Duration::from_secs(unix_s), unix_s.strict_add_signed(shift_s))
        };
        let mut delivery = delivery(2, Some(Duration::from_secs(10)));
        delivery.add(made(0, [10_100, 10_100]), moment(10_100));
        for unix_s in 10_100..=10_110 {
            delivery.expire(moment(unix_s));
            assert_eq!(delivery.len(), 1, "{set_s}: early at {unix_s}");
        }
        delivery.expire(moment(10_111));
        assert_eq!(delivery.len(), 0, "{set_s}: late");
    }
}

#[test]
fn what_was_submitted_is_exposed_until_it_is_known_not_to_have_left() {
    let at = Instant::now();
    let mut delivery = delivery(3, None);
    (0..3).for_each(|id| delivery.add(made(id, [1, 1]), now(at, 1)));
    let exposed = |delivery: &Delivery| delivery.spooled_and_exposed()[1].count;
    assert_eq!(exposed(&delivery), 0);

    (0..2).for_each(|_| drop(delivery.next(now(at, 1))));
    assert_eq!(exposed(&delivery), u64::from(2 * ROWS));
    delivery.outcome(&Outcome::all(BatchId(0), Fate::Failed(failure(Sent::No))), now(at, 1));
    assert_eq!(exposed(&delivery), u64::from(ROWS));
    delivery.outcome(&Outcome::all(BatchId(1), Fate::Failed(failure(Sent::Maybe))), now(at, 1));
    assert_eq!(exposed(&delivery), u64::from(ROWS));
    delivery.outcome(&Outcome::all(BatchId(1), Fate::Acknowledged), now(at, 1));
    assert_eq!(exposed(&delivery), 0);
}
