use super::*;
use std::collections::HashMap;
use std::net::Ipv4Addr;

pub(crate) fn entry(cookie: u64, poll: u32) -> Entry {
    let nowhere = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    Entry {
        cookie,
        fingerprint: cookie,
        first_seen_unix_ns: 0,
        last_seen_unix_ns: 0,
        first_seen_boot_ns: 0,
        seen_poll: poll,
        polls_seen: 1,
        namespace: 0,
        cgroup_id: 0,
        uid: None,
        holder: None,
        src: nowhere,
        dst: nowhere,
        sport: 0,
        dport: 0,
        state: 1,
        life: Life::Open,
        role: None,
        has_counters: false,
        is_all_acked: false,
        was_socket: true,
        was_remnant: false,
        verdict: Verdict::True,
        congestion: 0,
        last: LastCounters::default(),
        recorded: Recorded::default(),
    }
}

#[test]
fn behaves_as_a_map() {
    let mut table = Table::new(10_000);
    let mut model = HashMap::new();
    let mut random = 1;
    for round in 0..200_000 {
        random = mix(random);
        let cookie = random % 3_000;
        if random & (1 << 40) == 0 {
            assert_eq!(
                table.remove(cookie).map(|entry| entry.fingerprint),
                model.remove(&cookie),
                "round {round}"
            );
        } else if let Some(entry) = table.get_mut(cookie) {
            assert_eq!(Some(&entry.fingerprint), model.get(&cookie));
        } else {
            assert!(model.insert(cookie, cookie).is_none());
            table.insert(entry(cookie, 1));
        }
        assert_eq!(table.len(), model.len());
    }
    table.retain(|entry| entry.cookie % 2 == 0);
    model.retain(|cookie, _| cookie % 2 == 0);
    assert_eq!(table.len(), model.len());
    assert!(model.keys().all(|&cookie| table.get_mut(cookie).is_some()));
    assert_eq!(table.evicted(), 0);
}

#[test]
fn the_entry_behind_the_last_one_is_found_only_if_it_is_there() {
    let mut table = Table::new(10_000);
    for cookie in 0..3_000 {
        table.insert(entry(cookie, 1));
    }
    for gone in [1, 1_024, 1_026, 2_999] {
        table.remove(gone);
        assert!(table.find(gone - 1).is_some());
        assert_eq!(table.find(gone), None, "it was removed");
        // Another entry takes its place.
        table.insert(entry(gone + 10_000, 1));
        assert!(table.find(gone - 1).is_some());
        assert_eq!(table.find(gone), None, "another one is there");
        assert!(table.find(gone - 1).is_some());
        let other = table.find(gone + 10_000).unwrap();
        assert_eq!(table.at_mut(other).cookie, gone + 10_000);
    }
    assert_eq!(table.find(3_000), None, "behind the last");
}

#[test]
fn every_entry_is_visited_once_in_the_order_it_came() {
    let mut table = Table::new(10_000);
    for cookie in 0..2_100 {
        table.insert(entry(cookie, 1));
    }
    for cookie in [0, 63, 64, 1_023, 1_024, 2_099] {
        table.remove(cookie);
    }
    let mut met = Vec::new();
    table.retain(|entry| {
        met.push(entry.cookie);
        entry.cookie % 3 != 0
    });
    let there = |cookie: &u64| ![0, 63, 64, 1_023, 1_024, 2_099].contains(cookie);
    assert!(met.iter().copied().eq((0..2_100).filter(there)));
    let left = (0..2_100).filter(|cookie| table.get_mut(*cookie).is_some());
    assert!(left.eq((0..2_100).filter(there).filter(|cookie| cookie % 3 != 0)));
}

#[test]
fn a_full_table_forgets_and_counts() {
    let mut table = Table::new(100);
    for cookie in 1..=1_000 {
        table.insert(entry(cookie, 1));
    }
    assert_eq!((table.len(), table.evicted()), (100, 900));
}

#[test]
fn a_table_that_is_too_small_keeps_what_it_has() {
    let mut table = Table::new(100);
    for poll in 1..=10 {
        let mut known = 0;
        for cookie in 0..150 {
            match table.get_mut(cookie) {
                Some(_) => known += 1,
                None => _ = table.insert(entry(cookie, poll)),
            }
        }
        assert!(poll == 1 || known >= 99, "{known} in poll {poll}");
    }
    assert_eq!(table.len(), 100);
}

#[test]
fn what_is_gone_makes_room_first() {
    let mut table = Table::new(100);
    for cookie in 0..100 {
        table.insert(entry(cookie, 1));
    }
    for cookie in 0..50 {
        table.get_mut(cookie).unwrap().life = Life::Missing;
    }
    for cookie in 100..150 {
        table.insert(entry(cookie, 2));
    }
    let kept = (50..100).filter(|&cookie| table.get_mut(cookie).is_some()).count();
    assert_eq!(kept, 50, "none that is there was forgotten");
    let known = (100..150).filter(|&cookie| table.get_mut(cookie).is_some()).count();
    assert!(known >= 40, "{known} of the new");
}

#[test]
fn what_does_not_fit_is_not_put_in_and_displaces_nothing() {
    let mut table = Table::new(1_000);
    for cookie in 0..1_000 {
        table.insert(entry(cookie, 1));
    }
    for cookie in 1_000..101_000 {
        assert_eq!(table.insert(entry(cookie, 1)).cookie, cookie, "it may be written to");
    }
    assert_eq!((table.len(), table.evicted()), (1_000, 100_000));
    assert!((0..1_000).all(|cookie| table.get_mut(cookie).is_some()));
    assert!((1_000..101_000).all(|cookie| table.get_mut(cookie).is_none()));
}

#[test]
fn memory_is_bounded_by_the_capacity() {
    let mut table = Table::new(2_000);
    for cookie in 0..20_000 {
        table.insert(entry(cookie, cookie as u32));
    }
    assert!(table.blocks.len() <= 2 && table.index.len() <= 8_192);
}
