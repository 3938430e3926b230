//! The most memory that a configuration uses for datagrams.

mod admin;

pub use admin::{
    AdminBudget, FOLLOWER_QUEUE_BYTES, FOLLOWERS_MAX, QUESTION_BYTES_MAX, QUESTIONS_MAX,
};

use crate::weir_listener::WeirListener;
use crate::{Config, FlowsConfig, SinkConfig, SocketsConfig, Target};
use serde::Serialize;

/// Buffers of one receive call.
const RECEIVE_BATCH_BYTES: u64 = (sys::recv::BATCH * sys::recv::BUFFER_BYTES) as u64;
/// Addresses, control messages and headers of that call.
const RECEIVE_HEADERS_BYTES: u64 = (sys::recv::BATCH * 1_024) as u64;

/// The most memory that a running daemon uses for datagrams, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    pub listeners: Vec<ListenerBudget>,
    /// The share of the socket collector, if it is configured.
    pub sockets: Option<SocketsBudget>,
    /// The share of the sFlow analysis, if it is configured.
    pub flows: Option<FlowsBudget>,
    pub sinks: Vec<SinkBudget>,
    /// The share of clients that follow records and of questions to the history, if there can be any.
    pub admin: Option<AdminBudget>,
}

/// The share of one sink.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SinkBudget {
    #[serde(rename = "sink")]
    pub name: String,
    /// Rows in the queue.
    pub queue_bytes: u64,
    /// Rows being gathered for the queue, one chunk for each source.
    pub gather_bytes: u64,
    /// Batches being filled and batches in flight.
    pub batch_bytes: u64,
    /// Disk space of its spool.
    pub disk_bytes: u64,
}

impl SinkBudget {
    /// Memory of the process.
    pub fn process_bytes(&self) -> u64 {
        self.queue_bytes + self.gather_bytes + self.batch_bytes
    }
}

/// The share of one listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ListenerBudget {
    #[serde(rename = "listener")]
    pub name: String,
    /// The ring's payload memory.
    pub ring_bytes: u64,
    /// The ring's descriptors.
    pub descriptor_bytes: u64,
    /// The rings of the sockets when there are several, with their descriptors; 0 with one socket.
    pub member_bytes: u64,
    /// The buffers of one receive call, for each socket.
    pub batch_bytes: u64,
    /// Data that file targets are about to write.
    pub file_bytes: u64,
    /// The receiving end of links from other Weirs: what is known of their senders, and what their datagrams need until they are
    /// handed on; 0 without links. Its state file is counted too, because it is best kept in memory.
    pub link_bytes: u64,
    /// The kernel's receive buffer, if the kernel grants the size asked for.
    pub kernel_receive_bytes: u64,
    /// The kernel's send buffers of all targets.
    pub kernel_send_bytes: u64,
}

impl ListenerBudget {
    /// Memory of the process.
    pub fn process_bytes(&self) -> u64 {
        self.ring_bytes
            + self.descriptor_bytes
            + self.member_bytes
            + self.batch_bytes
            + self.file_bytes
            + self.link_bytes
    }

    /// Memory that the kernel keeps for the process's sockets.
    pub fn kernel_bytes(&self) -> u64 {
        self.kernel_receive_bytes + self.kernel_send_bytes
    }
}

/// The share of the socket collector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SocketsBudget {
    /// The table of connections kept between polls.
    pub table_bytes: u64,
    /// Close events that wait for a poll of their namespace.
    pub held_bytes: u64,
    /// Known cgroups.
    pub cgroup_bytes: u64,
    /// The answer to one `GET /sockets` request.
    pub answer_bytes: u64,
    /// The kernel's buffer for close events, if the kernel grants the size asked for.
    pub kernel_receive_bytes: u64,
}

impl SocketsBudget {
    /// Memory of the process.
    pub fn process_bytes(&self) -> u64 {
        self.table_bytes + self.held_bytes + self.cgroup_bytes + self.answer_bytes
    }

    /// Memory that the kernel keeps for the process's sockets.
    pub fn kernel_bytes(&self) -> u64 {
        self.kernel_receive_bytes
    }
}

/// The share of the sFlow analysis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FlowsBudget {
    /// Agents with their samplers and interfaces, and the flows of all definitions.
    pub figures_bytes: u64,
}

impl FlowsBudget {
    /// Memory of the process.
    pub fn process_bytes(&self) -> u64 {
        self.figures_bytes
    }
}

impl Budget {
    /// Memory of the process: listeners, collector, analysis, sinks, followers and questions together.
    pub fn process_bytes(&self) -> u64 {
        let listeners: u64 = self.listeners.iter().map(ListenerBudget::process_bytes).sum();
        let sinks: u64 = self.sinks.iter().map(SinkBudget::process_bytes).sum();
        let sockets = self.sockets.as_ref().map_or(0, SocketsBudget::process_bytes);
        let flows = self.flows.as_ref().map_or(0, FlowsBudget::process_bytes);
        let admin = self.admin.as_ref().map_or(0, AdminBudget::process_bytes);
        listeners + sockets + flows + sinks + admin
    }

    /// Disk space of all spools.
    pub fn disk_bytes(&self) -> u64 {
        self.sinks.iter().map(|sink| sink.disk_bytes).sum()
    }

    /// Memory that the kernel keeps for all sockets.
    pub fn kernel_bytes(&self) -> u64 {
        let listeners: u64 = self.listeners.iter().map(ListenerBudget::kernel_bytes).sum();
        listeners + self.sockets.as_ref().map_or(0, SocketsBudget::kernel_bytes)
    }
}

pub(crate) fn of(config: &Config) -> Budget {
    let listeners = config.listeners.iter().map(|listener| {
        let ring_bytes = listener.ring_bytes as u64;
        let targets = listener.targets.iter().map(|target| &target.to);
        let files = targets.clone().filter(|target| matches!(target, Target::File(_)));
        let sockets = listener.sockets_max();
        ListenerBudget {
            name: listener.name.clone(),
            ring_bytes,
            member_bytes: relay::member_rings_bytes(listener.ring_bytes, sockets) as u64,
            descriptor_bytes: relay::descriptor_bytes(listener.ring_bytes) as u64,
            file_bytes: (files.count() * relay::FILE_BUFFER_BYTES_MAX) as u64,
            link_bytes: listener.weir().map_or(0, WeirListener::memory_bytes_max),
            batch_bytes: sockets as u64 * (RECEIVE_BATCH_BYTES + RECEIVE_HEADERS_BYTES),
            // Datagrams queued in a unix socket are charged to their senders (unix(7)).
            kernel_receive_bytes: (sockets * listener.receive_buffer_bytes()) as u64,
            kernel_send_bytes: targets.clone().map(Target::kernel_send_bytes).sum(),
        }
    });

    Budget {
        listeners: listeners.collect(),
        sockets: config.sockets.as_ref().map(sockets),
        flows: config.flows.as_ref().map(flows),
        sinks: config.sinks.iter().map(sink).collect(),
        admin: admin::of(config),
    }
}

/// Most memory per connection in the table: the entry, four index slots, and one slot of the free list.
const TABLE_ENTRY_BYTES: u64 = 208 + 4 * 4 + 4;

/// Most memory per rejected connection: 17 bytes in a map that is between a quarter and half full, plus the smaller map it is
/// being copied from while it grows.
const REJECTED_ENTRY_BYTES: u64 = 17 * 3;

/// Rows gathered before they enter a queue, and the chunks whose memory is kept for reuse (crate `sink`, fanout.rs).
const GATHER_BYTES: u64 = 10 * 68 * 1_024;

fn sockets(config: &SocketsConfig) -> SocketsBudget {
    // Without close events, memory that serves only them is not used.
    let is_heard = u64::from(config.closes);
    let rejects = u64::from(config.filter.is_some()) * is_heard;
    let entry_bytes = TABLE_ENTRY_BYTES + REJECTED_ENTRY_BYTES * rejects;

    SocketsBudget {
        table_bytes: config.table_entries_max as u64 * entry_bytes,
        held_bytes: ::sockets::HELD_BYTES_MAX as u64 * is_heard,
        cgroup_bytes: ::sockets::cgroup_bytes_max() as u64,
        answer_bytes: ::sockets::ANSWERS_BYTES_MAX as u64,
        kernel_receive_bytes: config.event_buffer_bytes as u64 * is_heard,
    }
}

fn flows(config: &FlowsConfig) -> FlowsBudget {
    FlowsBudget { figures_bytes: config.memory_max_bytes() }
}

fn sink(config: &SinkConfig) -> SinkBudget {
    let batch_bytes = config.batch().bytes as u64;
    // One complete batch waits while the others are in flight.
    let batches = config.delivery().in_flight_max as u64 + 1;
    SinkBudget {
        name: config.name.clone(),
        queue_bytes: config.queue_bytes as u64,
        gather_bytes: config.from.len() as u64 * GATHER_BYTES,
        batch_bytes: batches * batch_bytes + config.to.encoder_bytes_max(batch_bytes),
        disk_bytes: config.spool_options().map_or(0, |spool| spool.bytes_max),
    }
}
