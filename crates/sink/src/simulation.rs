//! A sink's thread under simulated faults: each seed gives one history.
//!
//! Queue, backlog, spool, batcher and delivery are the real ones, driven by [`Worker`]. Simulated are the time (both clocks), the
//! destination (`world`), the encoder, the spool's disk, and the source. The destination answers late, in any order, part by
//! part, twice, or never; it refuses, drops, fails, panics, and may fail to be created; it gives batches back and reports on
//! batches that it never got. Or it is on this machine: it has what was written at once, on its disk after a sync, which may
//! fail, and loses the rest when the machine stops. The spool's disk fails and takes its time, during which the source goes on.
//! The encoder skips rows, panics, and may fail to be created. The sink is closed at a random moment with a random deadline, or
//! abandoned, or the machine stops, and another sink takes over the disk.
//!
//! The judge knows each row by its number and what the store did with it. After each turn the law must hold in rows and bytes,
//! and each way out must match exactly what the destination reported. At the end every row must be accounted for, nothing that
//! the store has may be counted as dropped, and everything must drain once the faults have ended.
//!
//! `WEIR_SINK_SEEDS` sets the number of seeds; `WEIR_SINK_SEED` replays a single one and prints its history, the last
//! `WEIR_SINK_LINES` lines of it.

mod destination;
mod encoder;
mod ending;
mod faults;
mod life;
mod local;
mod plan;
mod source;
mod world;

use crate::accounts::Accounts;
use crate::backlog::Backlog;
use crate::delivery::Now;
use crate::destination::Connector;
use crate::durability::{Durability, SyncTimer};
use crate::queue::Queue;
use crate::spool::tests::fake::{Call, FakeDisk, Faults};
use crate::spool::{self, Spool};
use crate::worker::{Turn, Worker};
use destination::make;
use encoder::make_form;
use faults::{FAULTS, Fault, Fired, Mood};
use ledger::{Amount, Reason};
use life::{Clock, Life, check_law};
use plan::Plan;
use source::Source;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use testkit::Random;
use world::{MS, Shared, World, lock};

/// Number of seeds in a normal run.
const SEEDS: u64 = 100_000;

/// How long after the end of all faults everything must have drained: the longest pause before a destination is recreated, the
/// longest wait for an answer, and retries.
const DRAIN: Duration = Duration::from_secs(120);

/// Most turns in a row in which nothing happens and no time passes.
const IDLE_TURNS_MAX: u32 = 24;

static BASE: LazyLock<Instant> = LazyLock::new(Instant::now);

struct Run {
    plan: Plan,
    random: Random,
    world: Shared,
    disk: FakeDisk,
    /// What a call of the disk takes, in nanoseconds.
    call_ns: Arc<AtomicU64>,
    source: Arc<Mutex<Source>>,
    next_mood_ns: u64,
    is_healthy: bool,
    /// Rows counted as lost, and those that a machine may have lost when it stopped.
    lost_rows: u64,
    /// Rows that must be there when the disk is reopened.
    durable_rows: u64,
    has_disk_failed: bool,
}

impl Run {
    fn new(seed: u64, log: Option<Vec<String>>) -> Run {
        let mut random = Random(seed);
        let plan = Plan::new(&mut random);
        let mut world = World::new(random.next(), log);
        world.in_flight_max = plan.delivery.in_flight_max;
        world.may_be_late = plan.delivery.expire_after.is_none();
        world.local = plan.is_local.then(|| {
            SyncTimer::new(Durability::Synced { batches_max: plan.delivery.in_flight_max })
        });
        world.say(|| format!("{plan:?}"));
        let world = Arc::new(Mutex::new(world));
        let of_source = Random(random.next());
        let source = Source::new(of_source, Arc::clone(&world), plan.offer_every_ms);
        let source = Arc::new(Mutex::new(source));

        let disk = FakeDisk::new(random.next());
        let call_ns = Arc::new(AtomicU64::new(plan.call_ms * MS));
        let work = (Arc::clone(&world), Arc::clone(&source), Arc::clone(&call_ns));
        disk.set_work(move |call, _| {
            let (world, source, call_ns) = &work;
            let call_ns = call_ns.load(Ordering::Relaxed);
            if call == Call::Read || call_ns == 0 {
                return;
            }
            let mut world = lock(world);
            world.fired.add(Fault::DiskTakesTime);
            world.now_ns += call_ns;
            drop(world);
            source.lock().unwrap().offer_due();
        });

        Run {
            disk,
            call_ns,
            source,
            plan,
            random,
            world,
            next_mood_ns: 0,
            is_healthy: false,
            lost_rows: 0,
            durable_rows: 0,
            has_disk_failed: false,
        }
    }

    fn now_ns(&self) -> u64 {
        lock(&self.world).now_ns
    }

    fn source(&self) -> MutexGuard<'_, Source> {
        self.source.lock().unwrap()
    }

    fn begin(&mut self) -> Life {
        lock(&self.world).begin_life();
        let plan = self.plan;
        let queue = Arc::new(Queue::new(plan.queue).unwrap());
        let capacity = 1_000_000;
        let accounts = Accounts::new("sim".into(), "sim".into(), Arc::clone(&queue), capacity);
        let accounts = Arc::new(accounts);
        self.source().begin(&queue);

        let disk = self.disk.clone();
        let options = spool::Options { bytes_max: 200_000, segment_bytes: 20_000 };
        let spool = plan.sync.map(|sync| {
            let open = move || Spool::open(disk.clone(), options);
            (Box::new(open) as Box<_>, sync)
        });
        let backlog = Backlog::new(queue, spool);

        let world = Arc::clone(&self.world);
        let clock: Clock = Box::new(move || {
            let world = lock(&world);
            Now { at: *BASE + Duration::from_nanos(world.now_ns), unix_ns: world.unix_ns() }
        });
        let of_form = Arc::clone(&self.world);
        let of_destination = Arc::clone(&self.world);
        let connector = Connector {
            form: Box::new(move || make_form(&plan, &of_form)),
            destination: Box::new(move || make(&of_destination)),
        };
        let limits = (plan.batch, plan.delivery);
        let worker =
            Worker::new(clock, Arc::clone(&accounts), backlog, limits, connector, plan.seed);
        Life {
            worker,
            accounts,
            idle_turns: 0,
            moved: (0, 0, Amount::default()),
            turns: 0,
            expired_before: 0,
        }
    }

    /// Changes which faults occur, for a while.
    fn change_mood(&mut self) {
        let random = &mut self.random;
        let mut some = |max: u64| if random.below(3) == 0 { random.below(max) } else { 0 };
        let mood = Mood {
            make_fails: some(1_000),
            panics: some(100),
            gives_back: some(500),
            rejects: some(300),
            drops: some(300),
            fails: some(1_000),
            hangs: some(200),
            splits: some(700),
            noise: some(300),
            skips: some(200),
            encoder_panics: some(30),
            sync_fails: some(500),
            delay_ms: some(2_000),
        };
        let mut faults = Faults::default();
        match self.random.below(12) {
            0 => faults.no_space = 200,
            1 => faults.io_error = 50,
            2 => faults.is_away = true,
            3 => faults.is_read_only = true,
            4 => faults.room_bytes = Some(30_000 + self.random.index(60_000)),
            5 | 6 => faults.failed_sync = 500,
            _ => {}
        }
        // Half of the histories have a sound disk.
        if self.plan.sync.is_some() && self.plan.seed.is_multiple_of(2) {
            self.has_disk_failed = true;
            self.disk.set(faults);
        }

        let mut world = lock(&self.world);
        world.mood = mood;
        if self.random.below(10) == 0 {
            world.fired.add(Fault::ClockStepped);
            world.unix_step_ns = self.random.below(7_200_000 * MS) as i64 - 3_600_000_000_000;
        }
        world.say(|| format!("{mood:?} {faults:?}"));
        self.next_mood_ns = world.now_ns + self.random.below(2_500) * MS;
    }

    fn heal(&mut self) {
        self.is_healthy = true;
        self.disk.set(Faults::default());
        self.call_ns.store(0, Ordering::Relaxed);
        let mut world = lock(&self.world);
        world.mood = Mood { delay_ms: 50, ..Mood::default() };
        world.say(|| "everything is well".into());
    }

    /// Runs one turn, and advances the time to the next.
    fn turn(&mut self, life: &mut Life, until_ns: u64) -> Turn {
        let begun_ns = self.now_ns();
        let turn = life.worker.turn();
        let moved = self.check(life, turn);
        let now_ns = self.now_ns();
        let took_ms = (now_ns - begun_ns) / MS;
        let most_ms = self.plan.turn_max_ms();
        assert!(took_ms <= most_ms, "a turn took {took_ms} ms: nothing is delivered meanwhile");
        let has_moved = moved != life.moved;
        life.moved = moved;

        life.idle_turns = if has_moved { 0 } else { life.idle_turns + 1 };
        assert!(life.idle_turns <= IDLE_TURNS_MAX, "it spins: {turn:?}");
        let wake_ns = match turn {
            Turn::Again => now_ns,
            Turn::End => return turn,
            Turn::Rest(time) => {
                let end_ns = now_ns + time.as_nanos() as u64;
                let is_queued = !life.accounts.queue.inside().amount.is_zero();
                let next_ns = if is_queued { now_ns } else { self.source().next_ns };
                end_ns.min(next_ns)
            }
            Turn::RestAlone(time) => now_ns + time.as_nanos() as u64,
        };
        lock(&self.world).now_ns = wake_ns.min(until_ns).max(now_ns);
        turn
    }

    /// Compares the accounts with what is known. Returns a value that changes whenever something has happened.
    fn check(&mut self, life: &mut Life, turn: Turn) -> (u64, u64, Amount) {
        let accounts = &life.accounts;
        let mut world = lock(&self.world);
        let recovered = accounts.recovered.load();
        let received = accounts.received();
        let left = accounts.counters.left() + accounts.queue.counters.left();
        world.say(|| format!("{turn:?}, {} of {} have left", left.count, received.count));
        assert_eq!(world.wrong, None);
        assert_eq!(received, self.source().offered + recovered);
        assert!(received.count >= left.count && received.bytes >= left.bytes);
        world.expected.check(&accounts.counters);

        let repeated = accounts.figures.possible_duplicates.load();
        if recovered.is_zero() {
            assert_eq!(repeated, world.expected.duplicates, "possible duplicates");
        } else {
            assert!(repeated >= world.expected.duplicates, "possible duplicates: {repeated}");
        }

        // Rows recovered after a crash may have been delivered in an earlier life.
        let uncertain = accounts.counters.uncertain_total().count;
        let maybe = world.maybe_rows() + recovered.count;
        assert!(uncertain <= maybe, "{uncertain} uncertain of {maybe}");
        self.check_expired(life, &mut world);
        let spent = (world.calls, world.now_ns);
        drop(world);

        life.turns += 1;
        if life.turns.is_multiple_of(16) {
            check_law(life, self.source().offered);
        }
        (spent.0, spent.1, left + life.accounts.queue.inside().amount)
    }

    fn check_expired(&self, life: &mut Life, world: &mut World) {
        let counters = &life.accounts.counters;
        let expired = counters.counters.dropped(Reason::Expired).count;
        if expired > life.expired_before {
            world.fired.add(Fault::Expired);
            let after = self.plan.delivery.expire_after.expect("rows expired without a limit");
            let limit_ns = world.now_ns.cast_signed() - after.as_nanos() as i64;
            let (rows, old) = (expired - life.expired_before, world.older_than(limit_ns));
            assert!(rows <= old, "{rows} rows expired, {old} are old enough");
        }
        life.expired_before = expired;
    }

    /// Runs until this time, or until the sink has ended.
    fn run_until(&mut self, life: &mut Life, until_ns: u64) -> Turn {
        let mut turn = Turn::Again;
        while self.now_ns() < until_ns {
            let now_ns = self.now_ns();
            if !self.is_healthy && now_ns >= self.next_mood_ns {
                self.change_mood();
            }
            self.source().offer_due();
            turn = self.turn(life, until_ns);
            if turn == Turn::End {
                break;
            }
        }
        turn
    }

    fn run(&mut self) -> Fired {
        let lives = if self.plan.sync.is_some() { 1 + self.random.below(3) } else { 1 };
        for _ in 1..lives {
            let mut life = self.begin();
            let until_ns = self.now_ns() + self.random.below(3_000) * MS;
            let turn = self.run_until(&mut life, until_ns);
            assert_ne!(turn, Turn::End, "it has ended by itself");
            self.note_recovered(&life);
            match self.random.below(2) {
                0 => self.crash(life),
                _ => {
                    let deadline_ms = self.random.below(5_000);
                    self.finish(life, deadline_ms);
                }
            }
        }

        let mut life = self.begin();
        let until_ns = self.now_ns() + self.random.below(6_000) * MS;
        self.run_until(&mut life, until_ns);
        self.note_recovered(&life);
        let has_spool = self.plan.sync.is_some();
        match self.random.below(8) {
            0 if !has_spool => self.give_up(life),
            1..4 if !has_spool => {
                let deadline_ms = self.random.below(6_000);
                self.finish(life, deadline_ms);
            }
            _ => self.drain(life),
        }
        self.check_rows();
        if self.plan.sync.is_some() {
            let disk = self.disk.fired().0.iter().sum::<u64>();
            lock(&self.world).fired.0[Fault::DiskFails as usize] += disk;
        }
        lock(&self.world).fired
    }

    fn note_recovered(&self, life: &Life) {
        let recovered = life.accounts.recovered.load().count;
        if !self.has_disk_failed && life.turns > 0 {
            assert!(recovered >= self.durable_rows, "{recovered} of {} rows", self.durable_rows);
        }
        let mut world = lock(&self.world);
        if !life.accounts.recovered.load().is_zero() {
            world.fired.add(Fault::Recovered);
        }
        if life.accounts.figures.circuit_openings.load() > 0 {
            world.fired.add(Fault::CircuitOpened);
        }
        if !life.accounts.queue.counters.counters.dropped(Reason::QueueFull).is_zero() {
            world.fired.add(Fault::QueueFull);
        }
    }

    /// Checks that every row the store never had was counted as lost.
    fn check_rows(&self) {
        let world = lock(&self.world);
        let missing = world.rows.iter().filter(|row| row.stored == 0).count() as u64;
        assert!(
            missing <= self.lost_rows,
            "{missing} rows are missing, {} are counted",
            self.lost_rows
        );
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

/// Runs one history; if it fails, runs it again with its log.
fn run_seed(seed: u64) -> Fired {
    let run = |log| {
        let mut run = Run::new(seed, log);
        let result = catch_unwind(AssertUnwindSafe(|| run.run()));
        (result, run)
    };
    let (result, _) = run(None);
    if let Ok(fired) = result
        && number("WEIR_SINK_SEED").is_none()
    {
        return fired;
    }

    let (result, run) = run(Some(Vec::new()));
    let log = lock(&run.world).log.take().unwrap_or_default();
    let from = log.len().saturating_sub(number("WEIR_SINK_LINES").unwrap_or(400) as usize);
    println!("seed {seed}:\n{}\n{}", log[0], log[from..].join("\n"));
    println!("WEIR_SINK_SEED={seed} cargo test -p sink --lib simulation shows it again");
    match result {
        Ok(_) if number("WEIR_SINK_SEED").is_none() => panic!("seed {seed} failed, and not again"),
        Ok(fired) => fired,
        Err(what) => std::panic::resume_unwind(what),
    }
}

#[test]
fn whatever_happens_every_row_is_accounted_for() {
    if let Some(seed) = number("WEIR_SINK_SEED") {
        run_seed(seed);
        return;
    }

    let seeds = number("WEIR_SINK_SEEDS").unwrap_or(SEEDS);
    let next = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let mut all = Fired::default();
    std::thread::scope(|scope| {
        let work = || {
            let mut fired = Fired::default();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= seeds {
                    return fired;
                }
                let one = run_seed(seed);
                fired.0.iter_mut().zip(one.0).for_each(|(all, one)| *all += one);
            }
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            let fired = thread.join().unwrap_or_else(|what| {
                next.store(u64::MAX / 2, Ordering::Relaxed);
                std::panic::resume_unwind(what)
            });
            all.0.iter_mut().zip(fired.0).for_each(|(all, one)| *all += one);
        }
    });

    testkit::say(&format!("sink simulation: {seeds} seeds, faults {:?}", all.0));
    for at in 0..FAULTS {
        let times = all.0[at];
        assert!(times >= seeds / 1_000, "fault {at} of the list fired {times} times");
    }
}
