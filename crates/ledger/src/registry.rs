use crate::{Amount, HopKind, HopSnapshot, Snapshot};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Turns counters into hops. Counters must be read in the order that [`HopBuilder`](crate::HopBuilder) requires.
pub trait Meter: Send + Sync {
    /// Appends this meter's hops.
    fn read(&self, hops: &mut Vec<HopSnapshot>);
}

/// Most closed hops with a row of their own; further ones share one row, so that memory stays bounded.
const CLOSED_HOPS_MAX: usize = 1_000;

type HopKey = (HopKind, String, Option<String>);

/// All hops of the process.
pub struct Ledger {
    run_id: String,
    started: Instant,
    violations: AtomicU64,
    /// Those that the last check reported, with those that owners found.
    violations_known: AtomicU64,
    /// When a check last found one: milliseconds since the start, and 1; 0 if none has.
    violated_at_ms: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    meters: Vec<Arc<dyn Meter>>,
    /// Final counts of what a reload closed, so that totals never go back.
    closed: BTreeMap<HopKey, HopSnapshot>,
    order: Order,
}

/// Where origins and their targets stand.
#[derive(Default)]
struct Order(BTreeMap<String, Places>);

struct Places {
    own: usize,
    targets: BTreeMap<String, usize>,
}

impl Order {
    /// By origin; in it, its own hops and sockets first, then target by target. What has no place comes last.
    fn place(&self, hop: &HopSnapshot) -> (usize, usize) {
        let Some(places) = self.0.get(&hop.origin) else { return (usize::MAX, 0) };
        let target = match hop.target.as_deref().filter(|_| !hop.hop.is_part()) {
            Some(target) => places.targets.get(target).map_or(usize::MAX, |at| at + 1),
            None => 0,
        };
        (places.own, target)
    }
}

impl Ledger {
    /// An empty ledger. `run_id` identifies this life of the process.
    pub fn new(run_id: String) -> Ledger {
        Ledger {
            run_id,
            started: Instant::now(),
            violations: AtomicU64::new(0),
            violations_known: AtomicU64::new(0),
            violated_at_ms: AtomicU64::new(0),
            state: Mutex::default(),
        }
    }

    /// Adds a meter, whose hops are part of every snapshot from now on.
    pub fn register(&self, meter: Arc<dyn Meter>) {
        self.lock().meters.push(meter);
    }

    /// Has snapshots show origins and their targets in this order. An origin may come several times. What is not named comes last, by
    /// its name.
    pub fn arrange<'a>(&self, order: impl IntoIterator<Item = (&'a str, &'a str)>) {
        let mut arranged = Order::default();
        for (origin, target) in order {
            let next = arranged.0.len();
            let new = || Places { own: next, targets: BTreeMap::new() };
            let places = arranged.0.entry(origin.to_owned()).or_insert_with(new);
            let next = places.targets.len();
            places.targets.entry(target.to_owned()).or_insert(next);
        }
        self.lock().order = arranged;
    }

    /// Takes a meter out that has counted nothing.
    pub fn withdraw(&self, meter: &Arc<dyn Meter>) {
        self.lock().meters.retain(|other| !Arc::ptr_eq(other, meter));
    }

    /// Takes a meter out and keeps its final counts. Its writers must have stopped.
    pub fn retire(&self, meter: &Arc<dyn Meter>) {
        let mut state = self.lock();
        state.meters.retain(|other| !Arc::ptr_eq(other, meter));

        let mut hops = Vec::new();
        meter.read(&mut hops);

        for mut hop in hops {
            hop.gauges.clear();
            hop.trouble = None;
            // Nothing is inside any more: a later life under this name only has the room of its own ring.
            hop.capacity = None;

            let key = key_of(&hop);
            let key = if state.closed.contains_key(&key) || state.closed.len() < CLOSED_HOPS_MAX {
                key
            } else {
                (hop.hop, "(closed)".to_owned(), hop.target.as_ref().map(|_| "(closed)".to_owned()))
            };

            match state.closed.get_mut(&key) {
                Some(earlier) => earlier.absorb(&hop),
                None => {
                    (_, hop.origin, hop.target) = key.clone();
                    state.closed.insert(key, hop);
                }
            }
        }
    }

    /// Reads every hop.
    pub fn snapshot(&self) -> Snapshot {
        let state = self.lock();

        // Newer meters first: while a target is replaced by another of the same name, both are there and share a
        // row.
        let mut hops = Vec::new();
        for meter in state.meters.iter().rev() {
            meter.read(&mut hops);
        }
        hops.extend(state.closed.values().cloned());

        // A hop closed by a reload and one that continues under its name share a row.
        hops.sort_by(|a, b| order_of(a).cmp(&order_of(b)));
        hops.dedup_by(|later, first| {
            let is_same = order_of(later) == order_of(first);
            if is_same {
                first.absorb(later);
            }
            is_same
        });
        hops.sort_by_cached_key(|hop| state.order.place(hop));
        drop(state);

        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Snapshot {
            run_id: self.run_id.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            taken_at_unix_ms: since_epoch.as_millis() as u64,
            uptime_ms: self.started.elapsed().as_millis() as u64,
            violations: self.violations.load(Ordering::Relaxed) + found_by_owners(&hops),
            daemon: None,
            hops,
        }
    }

    /// Reads every hop and counts the violations of the law: those seen here, and those that hops' owners have found.
    pub fn check(&self) -> Snapshot {
        let mut snapshot = self.snapshot();
        let broken = snapshot.hops.iter().filter(|hop| hop.unaccounted != 0).count() as u64;
        let seen = self.violations.fetch_add(broken, Ordering::Relaxed) + broken;
        snapshot.violations = seen + found_by_owners(&snapshot.hops);
        let known = self.violations_known.swap(snapshot.violations, Ordering::Relaxed);
        if snapshot.violations > known {
            self.violated_at_ms.store(snapshot.uptime_ms + 1, Ordering::Relaxed);
        }
        snapshot
    }

    /// Whether a check found a violation within this time. Their number never falls, so it does not say whether all is well now.
    pub fn violated_within(&self, time: Duration) -> bool {
        let at_ms = self.violated_at_ms.load(Ordering::Relaxed);
        let since_ms = (self.started.elapsed().as_millis() as u64 + 1).saturating_sub(at_ms);
        at_ms > 0 && u128::from(since_ms) <= time.as_millis()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A reader that panicked has changed nothing: it only appends to its own list.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn found_by_owners(hops: &[HopSnapshot]) -> u64 {
    hops.iter().map(|hop| hop.violations).sum()
}

fn key_of(hop: &HopSnapshot) -> HopKey {
    (hop.hop, hop.origin.clone(), hop.target.clone())
}

/// Sorts by origin, and within it: its own hops, then its sockets, then each target.
fn order_of(hop: &HopSnapshot) -> (&str, bool, Option<&str>, HopKind) {
    let is_targets = hop.target.is_some() && !hop.hop.is_part();
    (&hop.origin, is_targets, hop.target.as_deref(), hop.hop)
}

impl Snapshot {
    /// Sum of what all hops of one kind received.
    pub fn received_at(&self, kind: HopKind) -> Amount {
        self.hops.iter().filter(|hop| hop.hop == kind).map(|hop| hop.received).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HopBuilder, Reason};

    struct Fixed(u64);

    impl Meter for Fixed {
        fn read(&self, hops: &mut Vec<HopSnapshot>) {
            let amount = Amount { count: self.0, bytes: 0 };
            hops.push(
                HopBuilder::new(HopKind::Target, "l", Some("t"), amount)
                    .dropped(Reason::Refused, amount)
                    .finish(amount),
            );
        }
    }

    #[test]
    fn a_closed_hop_keeps_its_counts_and_a_new_one_of_its_name_adds_to_them() {
        let ledger = Ledger::new("1".into());
        let first: Arc<dyn Meter> = Arc::new(Fixed(3));
        ledger.register(Arc::clone(&first));
        ledger.retire(&first);
        assert_eq!(ledger.snapshot().received_at(HopKind::Target).count, 3);
        ledger.register(Arc::new(Fixed(4)));
        let snapshot = ledger.snapshot();
        assert_eq!(snapshot.hops.len(), 1);
        assert_eq!(snapshot.hops[0].dropped_for(Reason::Refused).count, 7);
        assert!(snapshot.is_balanced());
    }

    #[test]
    fn hops_stand_as_they_are_arranged_and_others_behind_them_by_name() {
        struct Named(&'static str, Option<&'static str>);
        impl Meter for Named {
            fn read(&self, hops: &mut Vec<HopSnapshot>) {
                let kinds = match self.1 {
                    Some(_) => [HopKind::Target, HopKind::Egress],
                    None => [HopKind::Socket, HopKind::Receive],
                };
                hops.extend(kinds.map(|kind| {
                    HopBuilder::new(kind, self.0, self.1, Amount::default())
                        .finish(Amount::default())
                }));
            }
        }

        let ledger = Ledger::new("1".into());
        for origin in ["a", "b", "c", "d"] {
            for target in [None, Some("x"), Some("y"), Some("z")] {
                ledger.register(Arc::new(Named(origin, target)));
            }
        }
        ledger.arrange([("c", "z"), ("b", "y"), ("c", "x"), ("b", "x"), ("b", "y")]);
        let snapshot = ledger.snapshot();
        let rows = snapshot
            .hops
            .iter()
            .filter(|hop| matches!(hop.hop, HopKind::Receive | HopKind::Egress));
        let rows: Vec<_> = rows
            .map(|hop| format!("{}{}", hop.origin, hop.target.as_deref().unwrap_or("")))
            .collect();
        let wanted = "c cz cx cy b by bx bz a ax ay az d dx dy dz";
        assert_eq!(rows.join(" "), wanted);
    }

    #[test]
    fn a_broken_law_is_counted() {
        struct Broken;
        impl Meter for Broken {
            fn read(&self, hops: &mut Vec<HopSnapshot>) {
                let hop = HopBuilder::new(HopKind::Receive, "l", None, Amount::one(1));
                hops.push(hop.finish(Amount::one(1)));
            }
        }
        let ledger = Ledger::new("1".into());
        ledger.register(Arc::new(Broken));
        assert!(!ledger.violated_within(Duration::MAX));
        ledger.check();
        assert_eq!(ledger.check().violations, 2);
        assert!(ledger.violated_within(Duration::from_secs(3_600)));

        // A past one is still counted.
        let until = Instant::now() + Duration::from_secs(5);
        ledger.lock().meters.clear();
        while ledger.violated_within(Duration::from_millis(1)) && Instant::now() < until {
            std::thread::yield_now();
        }
        assert_eq!(ledger.check().violations, 2);
        assert!(!ledger.violated_within(Duration::from_millis(1)));
    }

    #[test]
    fn what_an_owner_found_counts_once_and_stays_after_its_end() {
        struct Found;
        impl Meter for Found {
            fn read(&self, hops: &mut Vec<HopSnapshot>) {
                let hop = HopBuilder::new(HopKind::Sink, "l", Some("s"), Amount::default());
                hops.push(hop.violations(2).finish(Amount::default()));
            }
        }
        let ledger = Ledger::new("1".into());
        let found: Arc<dyn Meter> = Arc::new(Found);
        ledger.register(Arc::clone(&found));
        ledger.check();
        assert_eq!(ledger.check().violations, 2);
        assert!(ledger.violated_within(Duration::MAX));
        ledger.retire(&found);
        assert_eq!(ledger.check().violations, 2);
        assert!(!ledger.snapshot().is_balanced());
    }
}
