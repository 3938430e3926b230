//! Plays many hosts: turns one collector's records of many namespaces into those of the machines of a fleet.

use super::traffic::{Random, uuid};
use anyhow::Context;
use record::{Delimited, Encoder, Encoding, FieldSet, Record, SocketRecord, decode_record};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Weir's own encodings in the comparison.
pub(super) const ENCODINGS: [Encoding; 3] =
    [Encoding::Protobuf, Encoding::Jsonl, Encoding::MessagePack];

const PODS_PER_HOST: u64 = 20;

/// Counts of what was collected.
#[derive(Clone, Copy, Default, Debug, serde::Serialize)]
pub(super) struct Collected {
    pub(super) hosts: usize,
    pub(super) polls: u64,
    /// Sockets that the polls listed.
    pub(super) visited: u64,
    pub(super) records: u64,
    /// Of these, closing records.
    pub(super) closes: u64,
}

/// A host of the fleet, and its rows so far.
struct Host {
    number: usize,
    name: String,
    host_id: String,
    boot_id: String,
    run_id: u64,
    pods: Vec<Pod>,
    sequence: u64,
    /// The encoded rows of the current poll, one buffer for each encoding.
    batch: [Vec<u8>; ENCODINGS.len()],
    keys: Vec<u8>,
    encoders: [Encoder; ENCODINGS.len()],
}

struct Pod {
    uid: String,
    container_id: String,
    cgroup_path: String,
}

impl Pod {
    fn new(random: &mut Random) -> Pod {
        let uid = uuid(random);
        let container_id = format!(
            "{:016x}{:016x}{:016x}{:016x}",
            random.next(),
            random.next(),
            random.next(),
            random.next()
        );
        let slice = uid.replace('-', "_");
        let cgroup_path = format!(
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{slice}.slice/cri-containerd-{container_id}.scope"
        );
        Pod { uid, container_id, cgroup_path }
    }
}

impl Host {
    fn new(number: usize) -> Host {
        let mut random = Random(number as u64 + 1);
        Host {
            number,
            name: format!("node-{:05}.fra1.example.net", number * 821),
            host_id: uuid(&mut random),
            boot_id: uuid(&mut random),
            run_id: random.next() >> 1,
            pods: (0..PODS_PER_HOST).map(|_| Pod::new(&mut random)).collect(),
            sequence: 0,
            batch: Default::default(),
            keys: Vec::new(),
            encoders: ENCODINGS.map(|encoding| Encoder::new(encoding, &FieldSet::ALL)),
        }
    }

    /// Adopts a record: sets this host's name and a pod, and adds a network delay.
    fn take(&mut self, seen: &SocketRecord<'_>) {
        let cookie = seen.cookie.unwrap_or_default();
        let mut random = Random(cookie ^ self.run_id);
        let pod = &self.pods[random.below(PODS_PER_HOST) as usize];
        // From 0.2 to 51.2 ms in powers of two: loopback has no delay of its own.
        let way_us = 200 << random.below(9);
        let longer = |us: Option<u32>| us.filter(|us| *us > 0).map(|us| us + way_us);

        let record = SocketRecord {
            host: Some(&self.name),
            host_id: Some(&self.host_id),
            boot_id: Some(&self.boot_id),
            run_id: Some(self.run_id),
            sequence: Some(self.sequence),
            netns_name: None,
            pod_uid: Some(&pod.uid),
            container_id: Some(&pod.container_id),
            cgroup_path: Some(&pod.cgroup_path),
            rtt_us: longer(seen.rtt_us),
            min_rtt_us: longer(seen.min_rtt_us),
            rcv_rtt_us: longer(seen.rcv_rtt_us),
            ..*seen
        };
        for (encoder, out) in self.encoders.iter_mut().zip(&mut self.batch) {
            encoder.encode(&record, out);
        }
        self.keys.extend_from_slice(&(self.number as u128).to_be_bytes());
        self.keys.extend_from_slice(&cookie.to_be_bytes());
        self.sequence += 1;
    }

    /// Writes the rows of the poll with this number, and begins the next one.
    fn end_poll(&mut self, folder: &Path, poll: u64) -> anyhow::Result<()> {
        let file =
            |extension: &str| folder.join(format!("{:05}-{poll:05}.{extension}", self.number));
        for (encoding, bytes) in ENCODINGS.iter().zip(&mut self.batch) {
            fs::write(file(encoding.extension()), &*bytes)?;
            bytes.clear();
        }
        fs::write(file("keys"), &self.keys)?;
        self.keys.clear();
        Ok(())
    }
}

/// Reads a collector's file, and writes each host's rows of each poll. The first poll is left out: it has every socket, and
/// occurs once in the life of a collector.
pub(super) fn play(collected: &[u8], folder: &Path) -> anyhow::Result<Collected> {
    let mut hosts: BTreeMap<String, Host> = BTreeMap::new();
    let (mut counts, mut poll) = (Collected::default(), Collected::default());
    let mut is_first = true;

    for message in Delimited::new(collected) {
        match decode_record(message.context("the collector's file")?)? {
            Record::Socket(_) if is_first => {}
            Record::Datagram(_) | Record::Flow(_) | Record::Counters(_) | Record::FlowTotals(_) => {
            }
            Record::Socket(record) => {
                let number = hosts.len();
                let namespace = record.netns_name.context("a record of no namespace")?;
                let host = hosts.entry(namespace.to_owned()).or_insert_with(|| Host::new(number));
                host.take(&record);
                poll.records += 1;
                poll.closes += u64::from(record.record_kind == Some(record::RecordKind::CLOSE));
            }
            Record::Totals(_) if is_first => is_first = false,
            Record::Totals(totals) => {
                let visited = totals.sockets_visited.unwrap_or_default();
                if visited == 0 {
                    // Rows after the last poll are not a complete poll.
                    break;
                }
                counts.polls += 1;
                counts.visited += visited;
                counts.records += poll.records;
                counts.closes += poll.closes;
                poll = Collected::default();
                for host in hosts.values_mut() {
                    host.end_poll(folder, counts.polls)?;
                }
            }
        }
    }

    counts.hosts = hosts.len();
    Ok(counts)
}
