use std::fs;
use std::io;

/// CPU time of a relay's threads in nanoseconds, by their task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Times {
    /// The thread that receives or merges.
    pub(super) single_ns: u64,
    /// The threads that each read one of several sockets.
    pub(super) members_ns: u64,
    /// The threads that send.
    pub(super) workers_ns: u64,
    /// All other threads.
    pub(super) rest_ns: u64,
}

impl Times {
    /// Reads the times of this process so far, as counted by the scheduler.
    pub(super) fn of(pid: u32) -> io::Result<Times> {
        let mut times = Times::default();
        for task in fs::read_dir(format!("/proc/{pid}/task"))? {
            let path = task?.path();
            // The time of a thread that ends in the meantime is lost.
            let read = |name: &str| fs::read_to_string(path.join(name)).unwrap_or_default();
            let ns = first_number(&read("schedstat"));
            times.add(read("comm").trim_end(), ns);
        }
        Ok(times)
    }

    fn add(&mut self, name: &str, ns: u64) {
        if name.starts_with("rx-in-") {
            self.members_ns += ns;
        } else if name.starts_with("rx-") {
            self.single_ns += ns;
        } else if name.starts_with("tx-") {
            self.workers_ns += ns;
        } else {
            self.rest_ns += ns;
        }
    }

    pub(super) fn all_ns(self) -> u64 {
        self.single_ns + self.members_ns + self.workers_ns + self.rest_ns
    }

    pub(super) fn since(self, then: Times) -> Times {
        Times {
            single_ns: self.single_ns.saturating_sub(then.single_ns),
            members_ns: self.members_ns.saturating_sub(then.members_ns),
            workers_ns: self.workers_ns.saturating_sub(then.workers_ns),
            rest_ns: self.rest_ns.saturating_sub(then.rest_ns),
        }
    }
}

fn first_number(text: &str) -> u64 {
    text.split_ascii_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_told_apart_by_their_names() {
        let mut times = Times::default();
        for (name, ns) in [("rx-in", 1), ("rx-in-0", 2), ("rx-in-3", 4), ("tx-0", 8), ("admin", 16)]
        {
            times.add(name, ns);
        }
        assert_eq!(times, Times { single_ns: 1, members_ns: 6, workers_ns: 8, rest_ns: 16 });
        assert_eq!(times.all_ns(), 31);
        assert_eq!(first_number("12 34 5\n"), 12);
        assert_eq!(first_number(""), 0);
    }
}
