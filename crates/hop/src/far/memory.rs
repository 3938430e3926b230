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
