//! What outlives the process of a receiving end.

use super::{Far, Peer, Run, hellos, note};
use crate::kept::{KeptPast, KeptRun, Memory, Record};
use crate::key::KeyId;
use crate::receiver::Receiver;
use crate::{Amount, Totals};
use std::collections::HashMap;

impl Far {
    /// Continues from what an earlier process recorded, and records what happens from here on. Forgets runs whose key is no
    /// longer known. Returns false if nothing could be read: a new life begins.
    pub fn remember(&mut self, now_ns: u64, noted: &[u8], memory: Box<dyn Memory>) -> bool {
        let is_remembered = self.recall(now_ns, noted).is_some();
        self.memory = Some(memory);
        self.note_all();
        is_remembered
    }

    fn recall(&mut self, now_ns: u64, mut noted: &[u8]) -> Option<()> {
        let Record::Life(life) = Record::decode(&mut noted)? else { return None };
        // Run ids by their number in records.
        let mut ids: HashMap<u32, [u8; 16]> = HashMap::new();
        while let Some(record) = Record::decode(&mut noted) {
            if let Record::Life(_) = record {
                return None;
            }
            self.recall_one(now_ns, &mut ids, &record);
        }
        self.epoch = life;
        while self.runs.len() > self.runs_max() {
            // Nothing waits yet.
            self.make_room_for_runs(&mut |_, _| {});
        }
        Some(())
    }

    fn recall_one(&mut self, now_ns: u64, ids: &mut HashMap<u32, [u8; 16]>, record: &Record<'_>) {
        let Far { runs, room, .. } = self;
        let run = match record {
            Record::Slots { run, .. } | Record::Said { run, .. } | Record::Accepted { run, .. } => {
                ids.get(run).and_then(|id| runs.get_mut(id))
            }
            _ => None,
        };
        match *record {
            Record::Life(_) => {}
            Record::Run(kept) => self.recall_run(now_ns, ids, &kept),
            Record::Slots { first, slots, .. } => {
                if let Some(run) = run {
                    run.receiver.restore_slots(first, slots, room);
                }
            }
            Record::Said { unix_ns, .. } => {
                if let Some(run) = run {
                    run.said_unix_ns = run.said_unix_ns.max(unix_ns);
                }
            }
            Record::Accepted { floor, last, parts, bytes, .. } => {
                if let Some(run) = run {
                    run.receiver.accept_again(floor, (last, parts), bytes, room);
                }
            }
            Record::Forgotten { key, unix_ns } => {
                let of_key = hellos::of_key(&mut self.of_keys, KeyId(key), unix_ns);
                of_key.since_unix_ns = unix_ns;
            }
            Record::Past(KeptPast { key, accepted, host, listener }) => {
                if let Some(key) = self.keys.by_id(KeyId(key)) {
                    let (name, host) = (key.name.clone(), host.to_owned());
                    let peer = Peer { name, host, listener: listener.to_owned() };
                    let id = key.id;
                    self.add_past(id, peer, accepted);
                }
            }
        }
    }

    fn recall_run(&mut self, now_ns: u64, ids: &mut HashMap<u32, [u8; 16]>, kept: &KeptRun<'_>) {
        let Some(key) = self.keys.by_id(KeyId(kept.key)) else { return };
        let (id, name) = (key.id, key.name.clone());
        let peer = Peer { name, host: kept.host.to_owned(), listener: kept.listener.to_owned() };
        // It was forgotten, and its sender came back.
        self.forget(&kept.id, &mut |_, _| {});
        let mut receiver = Receiver::from_kept(self.options, id, kept.floor, kept.accepted);
        receiver.restore_slots(kept.floor, kept.slots, &mut self.room);
        let run = Run {
            number: kept.number,
            peer: self.begin_run(id, peer, kept.id),
            key: id,
            receiver,
            hold_due_ns: None,
            said_unix_ns: kept.said_unix_ns,
            cookie_time: 0,
            is_superseded: false,
            session: None,
            heard_ns: now_ns,
        };
        ids.insert(kept.number, kept.id);
        self.next_run = self.next_run.max(kept.number.saturating_add(1));
        self.runs.insert(kept.id, run);
    }

    /// Replaces everything recorded with the current state.
    pub(super) fn note_all(&mut self) {
        let Some(memory) = &mut self.memory else { return };
        let mut records = Vec::new();
        Record::Life(self.epoch).encode(&mut records);
        for (key, of_key) in &self.of_keys {
            let unix_ns = of_key.since_unix_ns;
            Record::Forgotten { key: key.0, unix_ns }.encode(&mut records);
        }
        for (peer, standing) in &self.peers {
            if standing.past != Amount::default() {
                let (host, listener) = (&*peer.host, &*peer.listener);
                let (key, accepted) = (standing.key.0, standing.past);
                Record::Past(KeptPast { key, accepted, host, listener }).encode(&mut records);
            }
        }

        // In the order in which they began, and numbered anew, so that numbers never run out.
        let mut runs: Vec<_> = self.runs.iter_mut().collect();
        runs.sort_unstable_by_key(|(_, run)| run.number);
        self.next_run = runs.len() as u32;
        for ((id, run), number) in runs.into_iter().zip(0..) {
            run.number = number;
            run.encode(*id, &mut records);
        }
        memory.begin_anew(&records);
    }

    /// Records a run that begins.
    pub(super) fn note_run_of(&mut self, id: &[u8; 16]) {
        if let (Some(memory), Some(run)) = (&mut self.memory, self.runs.get(id)) {
            self.record.clear();
            run.encode(*id, &mut self.record);
            memory.note(&self.record);
        }
    }

    /// Records the time of a run's newest hello.
    pub(super) fn note_said(&mut self, id: &[u8; 16]) {
        if let (Some(memory), Some(run)) = (&mut self.memory, self.runs.get(id)) {
            let said = Record::Said { run: run.number, unix_ns: run.said_unix_ns };
            note(memory.as_mut(), &mut self.record, &said);
        }
    }
}

impl Run {
    /// Appends records of the run's whole state to `out`.
    fn encode(&self, id: [u8; 16], out: &mut Vec<u8>) {
        let Totals { floor, accepted } = self.receiver.totals();
        let kept = KeptRun {
            number: self.number,
            id,
            key: self.key.0,
            said_unix_ns: self.said_unix_ns,
            floor,
            accepted,
            host: &self.peer.host,
            listener: &self.peer.listener,
            slots: &[],
        };
        Record::Run(kept).encode(out);
        self.receiver.kept_slots(&mut |first, slots| {
            Record::Slots { run: self.number, first, slots }.encode(out);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::far::{Moment, take_in};
    use crate::handshake::Hello;
    use crate::key::{Key, Keys};
    use crate::packet::{DataHead, Kind, Origin, Part, Sender as From};
    use crate::receiver::ReceiverOptions;
    use std::sync::{Arc, Mutex};

    const OPTIONS: ReceiverOptions = ReceiverOptions {
        window: 4_096,
        parts_bytes: 1 << 20,
        hold_ns: None,
        room_bytes: 2_000,
        senders_max: 2,
    };

    #[derive(Clone, Default)]
    struct Records(Arc<Mutex<Vec<u8>>>);

    impl Memory for Records {
        fn note(&mut self, record: &[u8]) {
            self.0.lock().unwrap().extend(record);
        }

        fn is_full(&self) -> bool {
            false
        }

        fn begin_anew(&mut self, records: &[u8]) {
            *self.0.lock().unwrap() = records.to_vec();
        }
    }

    struct Test {
        far: Far,
        records: Records,
        key: Key,
    }

    impl Test {
        fn new(options: ReceiverOptions) -> Test {
            let (key, records) = (Key::new("a", [1; 32]), Records::default());
            let keys = Keys::parse(&key.line()).unwrap();
            let mut far = Far::new(keys, options, Moment { now_ns: 0, unix_ns: 0 });
            far.remember(0, &[], Box::new(records.clone()));
            Test { far, records, key }
        }

        fn begin(&mut self, run: u8) {
            let (host, listener) = (format!("host-{}", run % 2), "in".to_owned());
            let hello = Hello { run: [run; 16], unix_ns: 1, session: 1, floor: 0, host, listener };
            let key = (self.key.id, self.key.name.clone());
            self.far.note_run(0, key, &hello, 0, &mut |_, _| {});
        }

        /// A datagram of the run arrives, for which there is room.
        fn take(&mut self, run: u8, sequence: u32) {
            let origin = Origin { received_unix_ns: 1, sender: From::Nobody, bytes: 10 };
            let head = DataHead {
                sequence_low: sequence,
                beyond_floor: sequence,
                part: Part::Only,
                asks: false,
                may_be_second: false,
                origin: Some(origin),
            };
            let mut data = Vec::new();
            head.encode(&mut data);
            data.extend([7; 10]);
            let (mut got, before) = (0, self.far.accepted().datagrams);
            let Far { runs, room, counts, memory, record, .. } = &mut self.far;
            let run = runs.get_mut(&[run; 16]).unwrap();
            let notes = (memory, record);
            take_in(0, (Kind::Data, &data), (run, room), notes, counts, &mut |_, _| got += 1);
            assert_eq!((got, self.far.accepted().datagrams), (1, before + 1));
        }

        /// Another process, with these options and what this one recorded.
        fn restart(&mut self, options: ReceiverOptions) {
            let accepted = self.far.accepted();
            let noted = self.records.0.lock().unwrap().clone();
            *self = Test { records: self.records.clone(), ..Test::new(options) };
            assert!(self.far.remember(0, &noted, Box::new(self.records.clone())));
            assert_eq!(self.far.accepted(), accepted);
            assert!(self.far.room_used() <= options.room_bytes);
        }
    }

    #[test]
    fn what_was_accepted_out_of_order_stays_counted_when_there_is_no_room_to_remember_it() {
        let mut test = Test::new(OPTIONS);
        for run in 1..=6 {
            test.begin(run);
            for sequence in [70, 0, 1] {
                test.take(run, sequence);
            }
            // Its memory is free at once. Records have the run until they begin anew.
            if run < 6 {
                test.far.forget(&[run; 16], &mut |_, _| {});
            }
        }
        test.restart(OPTIONS);
        assert_eq!(test.far.accepted(), Amount { datagrams: 18, bytes: 180 });
        test.restart(OPTIONS);
    }

    #[test]
    fn what_was_accepted_stays_counted_by_an_end_with_less_room_or_a_smaller_window() {
        for is_noted_anew in [true, false] {
            let mut test = Test::new(ReceiverOptions { room_bytes: 1 << 20, ..OPTIONS });
            for run in 1..=3 {
                test.begin(run);
                for sequence in [4_000, 200, 70, 0, 63, 201] {
                    test.take(run, sequence);
                }
            }
            if is_noted_anew {
                test.far.note_all();
            }
            test.restart(ReceiverOptions { window: 64, ..OPTIONS });
            test.restart(ReceiverOptions { room_bytes: 0, ..OPTIONS });
            assert_eq!(test.far.accepted(), Amount { datagrams: 18, bytes: 180 });
        }
    }
}
