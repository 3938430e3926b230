//! From the kernel's message to a shown socket: the rest of the filter, attribution, and rates.

use super::columns::View;
use super::rates::{History, Moved};
use record::{RecordKind, SCHEMA_VERSION, SocketRecord};
use sockets::attribution::{Cgroup, Cgroups, Host, HostOptions, ProcessOptions, Processes, Users};
use sockets::filter::{Expr, Facts, Filter, Needs, Origin};
use sockets::{Found, Identity, Transport, Whose, describe};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::sync::Arc;
use std::time::Instant;
use wire::inet_diag::SocketMessage;
use wire::inet_diag::request::IPPROTO_UDP;

/// Receives the sockets to show.
pub(super) trait Take {
    fn take(&mut self, view: &View<'_>, raw: &[u8]);
}

/// Where a message comes from.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    /// The namespace; `None` for a message from a file.
    pub(super) found: Option<&'a Found>,
    /// Whether it is this process's own namespace, whose interfaces we know by name.
    pub(super) is_own: bool,
    pub(super) transport: Transport,
    /// Whether the message describes a live socket or a close.
    pub(super) kind: RecordKind,
    /// The part of the filter that is left to evaluate here.
    pub(super) rest: Option<&'a Expr>,
    pub(super) time_unix_ns: Option<u64>,
    pub(super) now: Instant,
}

/// What became of the messages of a poll.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Counts {
    pub(super) shown: u64,
    /// Rejected by the rest of the filter.
    pub(super) filtered: u64,
    /// Listed a second time: a dump is not a snapshot.
    pub(super) doubled: u64,
    pub(super) malformed: u64,
}

/// Turns messages into records.
pub(super) struct Assembler {
    host: Host,
    users: Users,
    cgroups: Option<Cgroups>,
    /// `None` if nothing needs them.
    processes: Option<Processes>,
    history: Option<History>,
    seen: HashSet<u64>,
    interfaces: HashMap<u32, String>,
    unknown: Vec<u8>,
    run_id: u64,
    poll: u64,
    sequence: u64,
    pub(super) counts: Counts,
}

/// Whether sockets are seen more than once, so that there are rates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Polls {
    One,
    Many,
}

impl Assembler {
    pub(super) fn new(filter: &Filter, wants_processes: bool, polls: Polls) -> Assembler {
        let wants_processes = wants_processes || filter.needs().contains(Needs::PROCESSES);

        Assembler {
            host: Host::read(HostOptions::default()),
            users: Users::read().unwrap_or_default(),
            cgroups: Cgroups::open(Default::default()).ok(),
            processes: wants_processes.then(Processes::default),
            history: (polls == Polls::Many).then(History::default),
            seen: HashSet::new(),
            interfaces: interface_names(),
            unknown: Vec::new(),
            run_id: sockets::run_id(),
            poll: 0,
            sequence: 0,
            counts: Counts::default(),
        }
    }

    /// An assembler for a file. A file does not say which host it comes from, so its ids are not resolved to names.
    pub(super) fn of_file(filter: &Filter) -> Assembler {
        Assembler {
            users: Users::default(),
            interfaces: HashMap::new(),
            cgroups: None,
            ..Assembler::new(filter, false, Polls::One)
        }
    }

    /// Begins a poll: forgets which sockets were seen, and looks up processes again.
    pub(super) fn begin_poll(&mut self) {
        self.poll += 1;
        self.seen.clear();
        self.counts = Counts::default();
        if let Some(history) = &mut self.history {
            history.begin_poll();
        }
        if let Some(processes) = &mut self.processes {
            *processes = Processes::scan(&ProcessOptions::default());
        }
    }

    pub(super) fn poll(&self) -> u64 {
        self.poll
    }

    /// The last look at processes, if there was one.
    pub(super) fn processes(&self) -> Option<&Processes> {
        self.processes.as_ref()
    }

    /// Hands a socket on if it passes the filter and was not seen before in this poll.
    pub(super) fn socket(
        &mut self,
        message: &SocketMessage<'_>,
        raw: &[u8],
        place: &Place<'_>,
        take: &mut dyn Take,
    ) {
        let cookie = message.id.cookie;
        let is_live = place.found.is_some();

        // A file may hold many polls.
        if is_live && !self.seen.insert(cookie) {
            self.counts.doubled += 1;
            return;
        }

        // A file may come from another host, where an id is another cgroup.
        let id = message.cgroup_id.filter(|_| is_live);
        let cgroup = id.and_then(|id| self.cgroup_of(id, place.now));
        let interface = self.interface(message.id.interface_index, place);
        let age = self.history.as_ref().and_then(|history| history.age(cookie, place.now));

        let facts = Facts {
            netns: place.found.and_then(|found| found.name.as_deref()),
            is_netns_known: is_live,
            interface: interface.as_deref(),
            // A socket that was not there before has age zero.
            age: self.history.is_some().then(|| age.unwrap_or_default()),
            origin: if place.kind == RecordKind::CLOSE { Origin::Close } else { Origin::Row },
            ..Facts::of_cgroup(cgroup.as_deref())
        };

        let passes = self.passes(message, place, &facts);
        self.counts.filtered += u64::from(!passes);
        if !passes && self.history.is_none() {
            return;
        }

        // A socket without a file has inode 0 and no holder.
        let holders = self.processes.as_ref().filter(|_| message.inode != 0);
        let mut unknown = std::mem::take(&mut self.unknown);
        let whose = Whose {
            is_of_this_host: is_live,
            netns_inode: place.found.map(|found| found.id.inode),
            netns_name: facts.netns,
            cgroup: cgroup.as_deref(),
            process: holders.and_then(|holders| holders.owner(message.inode.into())),
            ..Whose::default()
        };
        let mut record = identify(&self.host, self.run_id, place);
        record.poll = is_live.then_some(self.poll);
        describe(&mut record, message, &whose, &mut unknown);
        if place.transport == Transport::Udp {
            // The kernel does not repeat the protocol in its answer.
            record.protocol = Some(IPPROTO_UDP as u8);
        }

        // Note it even if it does not pass: the next poll may show it, and needs the difference.
        let history = self.history.as_mut();
        let moved =
            history.map_or_else(Moved::default, |history| history.note(cookie, &record, place.now));
        if passes {
            self.counts.shown += 1;
            record.sequence = is_live.then_some(self.sequence);
            self.sequence += 1;
            let owners = holders.map_or(0, |holders| holders.owner_count(message.inode.into()));
            let interface = interface.as_deref();
            let view = View { record: &record, moved, age, owners, interface, users: &self.users };
            take.take(&view, raw);
        }

        self.unknown = unknown;
    }

    fn cgroup_of(&mut self, id: u64, now: Instant) -> Option<Arc<Cgroup>> {
        self.cgroups.as_mut()?.lookup(id, now).cloned()
    }

    fn interface(&self, index: u32, place: &Place<'_>) -> Option<String> {
        let name = self.interfaces.get(&index).filter(|_| place.is_own);
        (index != 0).then(|| name.map_or_else(|| index.to_string(), String::clone))
    }

    fn passes(&self, message: &SocketMessage<'_>, place: &Place<'_>, facts: &Facts<'_>) -> bool {
        let Some(rest) = place.rest else { return true };
        let Some(processes) = &self.processes else { return rest.matches(message, facts) };

        let owners: Vec<_> = processes.owners(message.inode.into()).collect();
        rest.matches(message, &Facts { processes: &owners, ..*facts })
    }
}

/// A record with host, run and time; for a file, with the time at most.
fn identify<'a>(host: &'a Host, run_id: u64, place: &Place<'_>) -> SocketRecord<'a> {
    let mut record = match place.found {
        Some(_) => Identity { host, tags: &[], run_id }.record(place.kind, 0),
        None => SocketRecord {
            record_kind: Some(place.kind),
            schema_version: Some(SCHEMA_VERSION),
            ..SocketRecord::default()
        },
    };
    record.time_unix_ns = place.time_unix_ns;
    record
}

/// Names of this namespace's interfaces by index. `/sys` shows those of the namespace it was mounted in.
fn interface_names() -> HashMap<u32, String> {
    let entries = fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let index = fs::read_to_string(entry.path().join("ifindex")).ok()?;
            Some((index.trim().parse().ok()?, entry.file_name().into_string().ok()?))
        })
        .collect()
}
