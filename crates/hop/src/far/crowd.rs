//! A fleet at the size that the tables are made for, without handshakes: they are what takes the time.

use super::runs::{runs_max, tables_bytes_max};
use super::*;
use crate::handshake::Hello;
use crate::key::Key;
use crate::packet::{Origin, Part, Sender as From};
use std::fs;
use std::sync::Mutex;

const MS: u64 = 1_000_000;
const SEC: u64 = 1_000 * MS;
const HOUR: u64 = 3_600 * SEC;
const SENDERS: u32 = 20_000;
const OPTIONS: ReceiverOptions = ReceiverOptions {
    window: 65_536,
    parts_bytes: 1 << 20,
    hold_ns: None,
    room_bytes: 64 << 20,
    senders_max: SENDERS,
};

/// A state file, as the relay keeps it, and what writing it took.
#[derive(Default)]
struct File {
    records: Vec<u8>,
    begun: usize,
    /// Bytes that were appended, and that were written to begin anew.
    appended: usize,
    rewritten: usize,
    /// Most processor time of one such time, in nanoseconds.
    longest_ns: u64,
    began_ns: u64,
}

/// Time that this thread has run, in nanoseconds.
fn processor_ns() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<File>>);

impl Memory for Shared {
    fn note(&mut self, record: &[u8]) {
        let mut file = self.0.lock().unwrap();
        file.records.extend(record);
        file.appended += record.len();
    }

    fn is_full(&self) -> bool {
        let mut file = self.0.lock().unwrap();
        let is_full = file.records.len() > 2 * file.begun + crate::kept::FILE_ROOM_BYTES;
        if is_full {
            file.began_ns = processor_ns();
        }
        is_full
    }

    fn begin_anew(&mut self, records: &[u8]) {
        let mut file = self.0.lock().unwrap();
        (file.records, file.begun) = (records.to_vec(), records.len());
        file.rewritten += records.len();
        let took_ns = processor_ns() - file.began_ns;
        if file.began_ns > 0 {
            file.longest_ns = file.longest_ns.max(took_ns);
        }
    }
}

struct Fleet {
    far: Far,
    now_ns: u64,
    key: Key,
    starts: u64,
    /// The run of each sender.
    runs: Vec<[u8; 16]>,
}

impl Fleet {
    fn new(far: Far, key: Key) -> Fleet {
        Fleet { far, now_ns: 0, key, starts: 0, runs: vec![[0; 16]; SENDERS as usize] }
    }

    /// A sender starts anew, gets a session, and sends a datagram.
    fn start(&mut self, at: usize) {
        self.starts += 1;
        let mut run = [1; 16];
        run[..8].copy_from_slice(&self.starts.to_le_bytes());
        let hello = Hello {
            run,
            unix_ns: self.now_ns,
            session: 1,
            floor: 0,
            host: format!("host-{at}.example.net"),
            listener: "syslog".to_owned(),
        };
        let (now_ns, id) = (self.now_ns, self.key.id);
        let before = self.runs[at];
        let is_known = self.far.runs.get(&before).is_some_and(|run| run.session.is_some());
        assert!(is_known || before == [0; 16], "a live session gave way");

        let name = self.key.name.clone();
        self.far.sweep(now_ns, &mut |_, _| {});
        self.far.note_run(now_ns, (id, name), &hello, 0, &mut |_, _| {});
        let place = self.far.free_place().expect("there is a place for everyone");
        let index = place as u32 | 1 << PLACE_BITS;
        self.far.sessions[place] = Some(Box::new(Session {
            index,
            far_index: 1,
            run,
            key: id,
            address: "192.0.2.1:7000".parse().unwrap(),
            sealer: Sealer::new([1; 32]),
            opener: Opener::new([2; 32]),
            arrivals: Arrivals::new(MS, now_ns),
            next_packet: 0,
            welcomed_ns: now_ns,
            heard_ns: now_ns,
            is_used: true,
            due_ns: None,
        }));
        self.runs[at] = run;
        if self.far.memory.as_ref().is_some_and(|memory| memory.is_full()) {
            self.far.note_all();
        }

        let origin = Origin { received_unix_ns: 1, sender: From::Nobody, bytes: 100 };
        let head = DataHead {
            sequence_low: 0,
            beyond_floor: 0,
            part: Part::Only,
            asks: false,
            may_be_second: false,
            origin: Some(origin),
        };
        let mut data = Vec::new();
        head.encode(&mut data);
        data.extend([7; 100]);
        let Far { runs, room, counts, memory, record, .. } = &mut self.far;
        let run = runs.get_mut(&run).unwrap();
        run.session = Some(index);
        let notes = (memory, record);
        take_in(now_ns, (Kind::Data, &data), (run, room), notes, counts, &mut |_, _| {}).unwrap();
    }

    /// All that run say something, so that their sessions last.
    fn hear_all(&mut self) {
        for id in &self.runs {
            let Some(run) = self.far.runs.get_mut(id) else { continue };
            run.heard_ns = self.now_ns;
            let session = run.session.and_then(|index| session_in(&mut self.far.sessions, index));
            if let Some(session) = session {
                session.heard_ns = self.now_ns;
            }
        }
    }
}

#[test]
fn a_fleet_that_restarts_all_the_time_locks_nobody_out_and_every_datagram_stays_counted() {
    let (key, shared) = (Key::new("a", [1; 32]), Shared::default());
    let keys = || Keys::parse(&key.line()).unwrap();
    let begin = Moment { now_ns: 0, unix_ns: 0 };
    let mut far = Far::new(keys(), OPTIONS, begin);
    far.remember(0, &[], Box::new(shared.clone()));
    let mut fleet = Fleet::new(far, key.clone());

    // Each of them ten times an hour, without state: each start is a run that was never heard of.
    let began_ns = processor_ns();
    let (starts, mut random) = (10 * u64::from(SENDERS), 1_u64);
    let (mut most_runs, mut most_sessions, mut heard_ns) = (0, 0, 0);
    while fleet.starts < starts {
        fleet.now_ns += HOUR / starts;
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        fleet.start((random >> 33) as usize % SENDERS as usize);
        if fleet.now_ns > heard_ns + 60 * SEC {
            heard_ns = fleet.now_ns;
            fleet.hear_all();
            most_runs = most_runs.max(fleet.far.run_count());
            most_sessions = most_sessions.max(fleet.far.session_count());
        }
    }
    // And all of them within a minute.
    for at in 0..SENDERS as usize {
        fleet.now_ns += 60 * SEC / u64::from(SENDERS);
        fleet.start(at);
    }
    let starts = fleet.starts;
    assert_eq!(fleet.far.accepted(), Amount { datagrams: starts, bytes: 100 * starts });

    let file = shared.0.lock().unwrap();
    let (size, rewritten) = (file.records.len(), file.rewritten as f64 / file.appended as f64);
    println!("{} ms", (processor_ns() - began_ns) / MS);
    println!(
        "{starts} starts: at most {most_runs} runs, {most_sessions} sessions; {} senders; state of {size} bytes, {:.1} MB appended, \
         {rewritten:.2} as much rewritten, the longest time {} us",
        fleet.far.peers.len(),
        file.appended as f64 / 1e6,
        file.longest_ns / 1_000,
    );
    assert!(most_runs < runs_max(OPTIONS) && most_sessions < 2 * SENDERS as usize);
    assert!(size < 24 << 20, "{size} bytes");
    assert!(rewritten < 1.5, "{rewritten}");
    assert!(file.longest_ns < 500 * MS, "{} ns", file.longest_ns);
    let records = file.records.clone();
    drop(file);

    let mut again = Far::new(keys(), OPTIONS, begin);
    assert!(again.remember(fleet.now_ns, &records, Box::new(shared)));
    assert_eq!(again.accepted(), fleet.far.accepted());
    assert!(again.run_count() <= runs_max(OPTIONS));
}

#[test]
fn a_full_table_gives_way_to_whoever_is_new() {
    let options = ReceiverOptions { senders_max: 100, ..OPTIONS };
    let key = Key::new("a", [1; 32]);
    let far =
        Far::new(Keys::parse(&key.line()).unwrap(), options, Moment { now_ns: 0, unix_ns: 0 });
    let mut fleet = Fleet::new(far, key);
    // Senders of a new name each time, which nobody supersedes: far more than are remembered, all at once.
    for at in 0..5_000 {
        fleet.now_ns += MS;
        fleet.start(at);
        assert!(fleet.far.run_count() <= 400 && fleet.far.session_count() <= 200);
        assert!(fleet.far.past_count <= 100 && fleet.far.peers.len() <= 502);
        assert!(fleet.far.runs.contains_key(&fleet.runs[at]), "the newest stays");
    }
    assert_eq!(fleet.far.accepted().datagrams, 5_000, "those that were forgotten are in sums");
    let sums = fleet.far.runs().filter(|(run, ..)| *run == [0; 16]);
    let of_key = sums.filter(|(_, peer, _)| peer.host.is_empty()).map(|(.., accepted)| accepted);
    assert!(of_key.map(|accepted| accepted.datagrams).sum::<u64>() > 4_000);
    let mut past = 0;
    fleet.far.peers.values().for_each(|standing| past += usize::from(standing.is_past()));
    assert_eq!(fleet.far.past_count, past);
}

#[test]
fn the_memory_of_a_full_end_is_what_its_options_say() {
    let most = |senders_max| tables_bytes_max(ReceiverOptions { senders_max, ..OPTIONS });
    let (few, many) = (most(100), most(20_000));
    assert!(few < 68 << 20 && (150 << 20..400 << 20).contains(&many), "{few} {many}");
}
