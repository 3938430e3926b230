//! What became of datagrams and samples.

use crate::discrepancy::Discrepancies;
use crate::source::Structure;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// What became of datagrams and their content. `datagrams = read + malformed + duplicate + agent_limit`; the agents' figures are
/// made from the `samples` of the read ones.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EngineTotals {
    /// Datagrams passed to the engine.
    pub datagrams: u64,
    /// Datagrams whose samples were read.
    pub read: u64,
    /// Datagrams that had already been read.
    pub duplicate: u64,
    /// Datagrams of agents beyond `agents_max`.
    pub agent_limit: u64,
    /// Agents that were forgotten because others, of senders that have less, needed their places.
    pub agents_evicted: u64,
    /// Datagrams without a readable header.
    pub malformed: u64,
    /// Datagrams that agents numbered but that have not arrived: lost on the network or in front of the engine. A late one is
    /// subtracted again. Includes agents that were forgotten.
    pub missing: u64,
    /// Samples that agents say they lost before numbering them. Includes agents that were forgotten.
    pub agent_dropped_samples: u64,
    /// Samples that the decoder found in datagrams that were read, of every kind. Each is one of the following: `flow_samples`,
    /// `dropped_packets`, `duplicate_samples`, `counter_samples`, or `other_samples`.
    pub samples: u64,
    /// Flow samples that are part of the figures.
    pub flow_samples: u64,
    /// Samples that had already been counted.
    pub duplicate_samples: u64,
    /// Counter samples.
    pub counter_samples: u64,
    /// Samples that are part of no figure: broken, of an unknown format, or of a format without frames and counters.
    pub other_samples: u64,
    /// Dropped packets.
    pub dropped_packets: u64,
    /// Samples scaled by the configured rate, and counters that were left out, because there are more than `sources_max`
    /// sources, or more than `agent_sources_max` of their agent.
    pub source_limit: u64,
    /// Samples that claimed more than their interface can have carried. They stand for what it can.
    pub implausible_samples: u64,
    /// Where agents' statements contradict one another. Includes agents that were forgotten.
    pub discrepancies: Discrepancies,
    /// Broken datagrams, samples and records, by class.
    pub faults: BTreeMap<&'static str, u64>,
    /// Datagrams of old versions of their protocol, which are not read, and who sent the last, by version.
    pub versions: BTreeMap<u32, (u64, IpAddr)>,
    /// Samples and records of unknown formats, by format.
    pub unknown: BTreeMap<Structure, u64>,
    /// Those of unknown formats beyond the first 256.
    pub unknown_other: u64,
}

impl EngineTotals {
    pub(super) fn note_version(&mut self, version: u32, sender: IpAddr) {
        let (count, last) = self.versions.entry(version).or_insert((0, sender));
        (*count, *last) = (*count + 1, sender);
    }
}

/// What became of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// Its samples were read; broken parts were counted.
    Read,
    /// It had already been read.
    Duplicate,
    /// There are too many agents.
    AgentLimit,
    /// It has no readable header.
    Malformed,
}
