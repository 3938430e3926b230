use super::*;
use crate::daemon::flow_pages::played::{definition, shared};
use ::flows::ROWS_MAX;
use load::sflow::Flood;
use std::net::{IpAddr, Ipv4Addr};
use sys::clock::monotonic_ns;

const AGENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// An analysis with several parts of flows.
fn filled() -> (Arc<Shared>, usize) {
    let shared = shared(vec![definition("pairs", "src,dst")]);
    let flood = Flood::new(20, 500);
    for datagram in flood.bytes().chunks(flood.datagram_bytes()) {
        shared.with(|analysis| analysis.datagram(datagram, AGENT, monotonic_ns(), &mut ()));
    }
    shared.tick();
    let flows = shared.with(|analysis| analysis.counting("pairs").unwrap().flows());
    assert!(flows > 3 * ROWS_MAX, "{flows}");
    (shared, flows)
}

#[test]
fn a_list_is_made_of_bounded_copies_and_has_every_flow() {
    let (shared, flows) = filled();
    let before = shared.taken_by_readers();
    let top = shared.top("pairs").unwrap();
    let taken = shared.taken_by_readers();

    assert_eq!((top.summary.flows, top.figures.len()), (flows, flows.min(FLOWS_MAX)));
    assert_eq!(taken.rows_max, ROWS_MAX as u64);
    // One look at the definition, and one for each part.
    assert_eq!(taken.holds - before.holds, 1 + flows.div_ceil(ROWS_MAX) as u64);
    let whole = shared.with(|analysis| analysis.counting("pairs").unwrap().top(monotonic_ns()));
    let totals = |figures: &[Figure]| -> Vec<(Vec<::flows::Value>, f64)> {
        let mut totals: Vec<_> =
            figures.iter().map(|one| (one.key.clone(), one.total.value)).collect();
        totals.sort_by(|a, b| b.1.total_cmp(&a.1));
        totals
    };
    let heaviest = totals(&whole);
    let listed = totals(&top.figures);
    for one in &heaviest {
        assert!(listed.contains(one), "{one:?}");
    }
}

#[test]
fn many_readers_share_one_list() {
    let (shared, _) = filled();
    let first = shared.top("pairs").unwrap();
    let before = shared.taken_by_readers();
    thread::scope(|scope| {
        let ask = || shared.top("pairs").unwrap();
        let readers: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        let lists: Vec<_> = readers.into_iter().map(|one| one.join().unwrap()).collect();
        // The list may have expired meanwhile: then one reader has made another for all.
        let made = lists.iter().filter(|one| !Arc::ptr_eq(one, &first));
        let made: std::collections::HashSet<_> = made.map(Arc::as_ptr).collect();
        let copies = shared.taken_by_readers().holds - before.holds;
        let each = 1 + first.summary.flows.div_ceil(ROWS_MAX) as u64;
        assert_eq!(copies, made.len() as u64 * each);
    });
}

#[test]
fn readers_get_a_tenth_of_the_time_however_long_they_hold_it() {
    let mut turn = Turn::default();
    let began = Instant::now();
    let (mut now, mut held) = (began, Duration::ZERO);
    for round in 0..10_000 {
        now += turn.wait(now);
        let hold = Duration::from_micros([1, 20, 3_000][round % 3]);
        now += hold;
        held += hold;
        turn.held(hold, now);
        let passed = now - began;
        // The one that holds it now waits for its share afterwards.
        let most = (passed + SAVED_MAX) / SHARE + hold;
        assert!(held <= most, "{held:?} of {passed:?} after {round}");
    }
    let passed = now - began;
    assert!(held * (SHARE + 1) > passed, "{held:?} of {passed:?}: they are kept away for too long");
}

#[test]
fn a_reader_that_comes_seldom_does_not_wait() {
    let mut turn = Turn::default();
    let began = Instant::now();
    turn.held(Duration::from_micros(300), began);
    assert_eq!(turn.wait(began), Duration::ZERO);
    turn.held(Duration::from_millis(2), began);
    assert!(turn.wait(began) > Duration::ZERO);
    assert_eq!(turn.wait(began + Duration::from_secs(1)), Duration::ZERO);
}
