use super::super::Holder;
use super::Process;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Sockets by inode, each with a chain of the processes that hold it.
#[derive(Debug, Default)]
pub(in super::super) struct Owners {
    sockets: HashMap<u64, Chain>,
    links: Vec<Link>,
    processes: Vec<Named>,
}

#[derive(Debug)]
struct Chain {
    first: u32,
    last: u32,
    /// Pid of the process counted last.
    pid: u32,
    /// Number of processes, including those not in the chain.
    count: u32,
}

#[derive(Debug)]
struct Link {
    process: u32,
    next: u32,
}

#[derive(Debug)]
struct Named {
    pid: u32,
    name: Box<str>,
    holder: Option<Holder>,
}

/// Marks the end of a chain.
const END: u32 = u32::MAX;

fn index(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(END)
}

/// Result of adding a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    Kept,
    /// The process already holds it through another descriptor.
    Again,
    /// Only counted.
    Counted,
    /// There is no room for another socket.
    Cut,
}

impl Owners {
    pub(super) fn len(&self) -> usize {
        self.sockets.len()
    }

    /// Starts a process: `add` refers to it from now on.
    pub(super) fn begin(&mut self, pid: u32) {
        self.processes.push(Named { pid, name: Box::default(), holder: None });
    }

    /// Ends the current process, and forgets it if it holds nothing.
    pub(super) fn finish(&mut self, name: impl FnOnce() -> Box<str>) {
        let process = self.processes.len().saturating_sub(1);
        // If it holds anything, the last link is its own.
        if self.links.last().is_some_and(|link| link.process as usize == process) {
            if let Some(named) = self.processes.last_mut() {
                named.name = name();
            }
        } else {
            self.processes.pop();
        }
    }

    pub(super) fn add(&mut self, inode: u64, max_sockets: usize, max_owners: u32) -> Added {
        let is_full = self.sockets.len() >= max_sockets;
        let pid = self.processes.last().map_or(0, |named| named.pid);
        let link = index(self.links.len());
        let process = index(self.processes.len().saturating_sub(1));

        match self.sockets.entry(inode) {
            Entry::Vacant(_) if is_full || link == END => return Added::Cut,
            Entry::Vacant(place) => {
                place.insert(Chain { first: link, last: link, pid, count: 1 });
            }
            Entry::Occupied(mut place) => {
                let chain = place.get_mut();
                // The descriptors of one process are added consecutively, so the last pid shows whether it is already counted.
                if chain.pid == pid {
                    return Added::Again;
                }

                chain.pid = pid;
                chain.count = chain.count.saturating_add(1);
                if chain.count > max_owners || link == END {
                    return Added::Counted;
                }

                if let Some(last) = self.links.get_mut(chain.last as usize) {
                    last.next = link;
                }
                chain.last = link;
            }
        }

        self.links.push(Link { process, next: END });
        Added::Kept
    }

    /// Numbers the processes.
    pub(in super::super) fn number_each(
        &mut self,
        mut number: impl FnMut(Process<'_>) -> Option<Holder>,
    ) {
        for named in &mut self.processes {
            named.holder = number(Process { pid: named.pid, name: &named.name });
        }
    }

    /// The number of the first process that holds the socket.
    pub(super) fn holder(&self, inode: u64) -> Option<Holder> {
        let link = self.links.get(self.sockets.get(&inode)?.first as usize)?;
        self.processes.get(link.process as usize)?.holder
    }

    pub(super) fn count(&self, inode: u64) -> u32 {
        self.sockets.get(&inode).map_or(0, |chain| chain.count)
    }

    pub(super) fn of(&self, inode: u64) -> impl Iterator<Item = Process<'_>> {
        let first = self.sockets.get(&inode).map_or(END, |chain| chain.first);
        let links = std::iter::successors(self.links.get(first as usize), |link| {
            self.links.get(link.next as usize)
        });
        links.filter_map(|link| {
            let named = self.processes.get(link.process as usize)?;
            Some(Process { pid: named.pid, name: &named.name })
        })
    }
}
