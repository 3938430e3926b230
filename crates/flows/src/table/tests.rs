use super::hot::HOT_MAX;
use super::*;
use std::collections::HashMap;

const SECOND_NS: u64 = 1_000_000_000;

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

fn add(table: &mut Table, key: &[u8], value: f64, weight: f64, now_ns: u64, gone: &mut impl Ended) {
    let hash = table.hash(key);
    table.add((key, hash), value, weight, now_ns, gone);
}

/// The same sequence in every run (xorshift64*).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % limit
    }
}

#[derive(Default)]
struct Gone(HashMap<u32, f64>);

impl Ended for Gone {
    fn ended(&mut self, table: &Table, place: u32, _: Leaving) {
        let key = u32::from_be_bytes(table.key(place).try_into().unwrap());
        *self.0.entry(key).or_default() += table.flow(place).total.value;
    }
}

/// Compared with a map that keeps everything: nothing is lost, no key is duplicated, no heavy key is missing, and each bound
/// holds.
#[test]
fn what_is_kept_and_what_went_are_what_was_added() {
    for seed in 1..=40 {
        let mut random = Random(seed);
        let capacity = 1 + random.below(50) as usize;
        let mut table = Table::new(4, capacity, Duration::from_secs(1_000_000));
        let (mut truth, mut gone) = (HashMap::<u32, f64>::new(), Gone::default());
        for step in 0..5_000u64 {
            let now_ns = (step + 1) * 1_000;
            // Few keys are heavy, and most are seen a few times.
            let number = (random.below(20) * random.below(20)) as u32;
            let value = 1.0 + random.below(9) as f64;
            let weight = table.weight_at(now_ns);
            add(&mut table, &key(number), value, weight, now_ns, &mut gone);
            *truth.entry(number).or_default() += value;
            if random.below(100) == 0 {
                let before_ns = now_ns.saturating_sub(random.below(200) * 1_000);
                table.sweep(before_ns, capacity, &mut gone);
            }
        }

        let mut kept = HashMap::new();
        for (key, flow) in table.iter() {
            let number = u32::from_be_bytes(key.try_into().unwrap());
            assert!(kept.insert(number, *flow).is_none(), "seed {seed}: {number} twice");
            assert_eq!(table.get(key), Some(flow));
        }
        assert!(kept.len() <= capacity && kept.len() == table.len());
        for (number, truth) in &truth {
            let here = kept.get(number).map_or(0.0, |flow| flow.total.value);
            let went = gone.0.get(number).copied().unwrap_or(0.0);
            assert!((here + went - truth).abs() < 1e-6, "seed {seed}: {number}");
        }
    }
}

#[test]
fn a_heavy_key_is_never_missing_and_its_error_is_bounded() {
    for seed in 1..=20 {
        let mut random = Random(seed);
        let mut table = Table::new(4, 50, Duration::from_secs(1_000_000));
        let mut truth = HashMap::<u32, f64>::new();
        for step in 0..50_000 {
            // A third of the samples belong to ten keys, and the rest to a million different ones.
            let number =
                if random.below(3) == 0 { random.below(10) } else { 1_000 + random.below(1 << 20) };
            let weight = table.weight_at(step + 1);
            add(&mut table, &key(number as u32), 1.0, weight, step + 1, &mut ());
            *truth.entry(number as u32).or_default() += 1.0;
        }
        for (number, truth) in truth.iter().filter(|(_, truth)| **truth > 1_000.0) {
            let flow = table.get(&key(*number)).unwrap_or_else(|| panic!("{number} is missing"));
            let (low, high) = (flow.recent.value, flow.weight());
            assert!(low <= truth * 1.001 && high * 1.001 >= *truth, "{low} {truth} {high}");
            assert!(flow.inherited <= 1_000.0);
        }
        assert!(table.evicted() > 10_000);
    }
}

#[test]
fn a_steady_rate_is_that_rate_after_some_time_constants() {
    let mut table = Table::new(4, 10, Duration::from_millis(200));
    // Long enough that sums are scaled down several times.
    for step in 1..=60_000u64 {
        let now_ns = step * SECOND_NS / 100;
        let weight = table.weight_at(now_ns);
        assert!(weight.is_finite());
        add(&mut table, &key(1), 5.0, weight, now_ns, &mut ());
    }
    let now_ns = 60_000 * SECOND_NS / 100;
    let rate = table.get(&key(1)).unwrap().recent.value * table.rate_factor(now_ns);
    assert!((rate / 500.0 - 1.0).abs() < 0.03, "{rate}");
    let later = table.get(&key(1)).unwrap().recent.value * table.rate_factor(now_ns + SECOND_NS);
    assert!(later < rate * 0.01, "{later}");
}

#[test]
fn what_is_heavy_now_takes_the_place_of_what_was() {
    let mut table = Table::new(4, 2, Duration::from_secs(1));
    for (number, at_s) in [(1, 1), (1, 1), (2, 1), (3, 30), (4, 30)] {
        let weight = table.weight_at(at_s * SECOND_NS);
        add(&mut table, &key(number), 1.0, weight, at_s * SECOND_NS, &mut ());
    }
    let mut kept: Vec<u32> =
        table.iter().map(|(key, _)| u32::from_be_bytes(key.try_into().unwrap())).collect();
    kept.sort_unstable();
    assert_eq!(kept, [3, 4]);
}

#[test]
fn memory_stays_within_what_was_said() {
    let (key_len, capacity) = (40, 1_000);
    let mut table = Table::new(key_len, capacity, Duration::from_secs(1));
    for number in 0..100_000u64 {
        let mut key = vec![0; key_len];
        key[..8].copy_from_slice(&number.to_be_bytes());
        let weight = table.weight_at(number + 1);
        add(&mut table, &key, 1.0, weight, number + 1, &mut ());
        if number % 7 == 0 {
            table.sweep(number / 2, 10, &mut ());
        }
    }
    let used = table.keys.capacity()
        + table.places.capacity() * size_of::<Place>()
        + table.free.capacity() * size_of::<u32>()
        + table.flows.capacity() * size_of::<Flow>()
        + table.index.memory_bytes()
        + table.bounds.memory_bytes();
    assert!(used <= Table::memory_max_bytes(key_len, capacity), "{used}");
    assert_eq!(table.len(), capacity);
}

#[test]
fn keys_of_no_length_are_one_key() {
    let mut table = Table::new(0, 10, Duration::from_secs(1));
    let weight = table.weight_at(1);
    add(&mut table, &[], 1.0, weight, 1, &mut ());
    add(&mut table, &[], 2.0, weight, 1, &mut ());
    assert_eq!(table.get(&[]).unwrap().total.value, 3.0);
}

/// Many flows above a low threshold, and then one above a high one too.
#[test]
fn a_heavy_flow_is_noted_among_many_light_ones() {
    let mut table = Table::new(4, 4 * HOT_MAX, Duration::from_secs(10));
    let mut now_ns = SECOND_NS;
    let mut add_one = |table: &mut Table, number: u32, value: f64| {
        now_ns += 1_000;
        let weight = table.weight_at(now_ns);
        add(table, &key(number), value, weight, now_ns, &mut ());
        now_ns
    };
    add_one(&mut table, 0, 1.0);
    table.watch(1.0, SECOND_NS);
    for number in 1..=2 * HOT_MAX as u32 {
        add_one(&mut table, number, 20.0);
    }
    assert_eq!(table.hot().count(), HOT_MAX);
    assert_eq!(table.hot_missed(), HOT_MAX as u64);

    let heavy = u32::MAX;
    for _ in 0..10 {
        add_one(&mut table, heavy, 1_000.0);
    }
    assert_eq!(table.hot().filter(|(noted, ..)| *noted == key(heavy)).count(), 1);
    assert_eq!(table.hot().count(), HOT_MAX);
    let now_ns = add_one(&mut table, heavy, 1_000.0);
    table.watch(100.0, now_ns);
    assert_eq!(table.hot().count(), 1, "the rest is light");
}
