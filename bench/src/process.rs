//! Figures of processes and processors from `/proc`.

use anyhow::Context;
use std::fs;

/// CPU time of all threads of a process in nanoseconds, user and system, as counted by the scheduler.
pub(crate) fn cpu_ns(pid: u32) -> anyhow::Result<u64> {
    let tasks = format!("/proc/{pid}/task");
    let mut total_ns = 0;
    for task in fs::read_dir(&tasks).with_context(|| tasks.clone())? {
        // The time of a thread that ends meanwhile is lost; the relays measured here end none while they run.
        let Ok(text) = fs::read_to_string(task?.path().join("schedstat")) else { continue };
        total_ns += first_number(&text).context("schedstat without a number")?;
    }
    Ok(total_ns)
}

/// Resident memory of a process, in KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resident {
    pub(crate) now_kib: u64,
    pub(crate) peak_kib: u64,
}

pub(crate) fn resident(pid: u32) -> anyhow::Result<Resident> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let field = |name| status.lines().find_map(|line| first_number(line.strip_prefix(name)?));
    Ok(Resident {
        now_kib: field("VmRSS:").context("no VmRSS")?,
        peak_kib: field("VmHWM:").context("no VmHWM")?,
    })
}

/// Ids of the threads of a process whose names begin with `prefix`.
pub(crate) fn threads_named(pid: u32, prefix: &str) -> anyhow::Result<Vec<u32>> {
    let tasks = format!("/proc/{pid}/task");
    let mut ids = Vec::new();
    for task in fs::read_dir(&tasks).with_context(|| tasks.clone())? {
        let task = task?;
        // As above, for a thread that ends meanwhile.
        let Ok(name) = fs::read_to_string(task.path().join("comm")) else { continue };
        if name.starts_with(prefix) {
            ids.extend(task.file_name().to_str().and_then(|id| id.parse::<u32>().ok()));
        }
    }
    Ok(ids)
}

/// Datagrams that the kernel dropped at the IPv4 UDP sockets bound to a port, in the network namespace of a process.
pub(crate) fn socket_drops(pid: u32, port: u16) -> u64 {
    let table = fs::read_to_string(format!("/proc/{pid}/net/udp"));
    table.map_or(0, |table| drops_in(&table, port))
}

fn drops_in(table: &str, port: u16) -> u64 {
    let port = format!(":{port:04X}");
    let lines = table.lines().skip(1).filter(|line| {
        line.split_ascii_whitespace().nth(1).is_some_and(|local| local.ends_with(&port))
    });
    lines.filter_map(|line| line.split_ascii_whitespace().last()?.parse::<u64>().ok()).sum()
}

/// Time of all processors since boot, in ticks of 10 ms (`/proc/stat`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ticks {
    pub(crate) busy: u64,
    /// Time that the host gave to other machines while we wanted to run.
    pub(crate) stolen: u64,
}

pub(crate) const TICK_NS: u64 = 10_000_000;

pub(crate) fn ticks() -> Ticks {
    fs::read_to_string("/proc/stat").map_or(Ticks::default(), |stat| ticks_in(&stat))
}

fn ticks_in(stat: &str) -> Ticks {
    let mut fields = stat.lines().next().unwrap_or_default().split_ascii_whitespace().skip(1);
    let mut next = || fields.next().and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    let (user, nice, system, _idle, _iowait) = (next(), next(), next(), next(), next());
    let (irq, softirq, stolen) = (next(), next(), next());
    Ticks { busy: user + nice + system + irq + softirq, stolen }
}

/// The id of the calling thread, as used by tools like taskset(1).
pub(crate) fn thread_id() -> anyhow::Result<u32> {
    let link = fs::read_link("/proc/thread-self").context("/proc/thread-self")?;
    let id = link.file_name().and_then(|name| name.to_str()?.parse().ok());
    id.context("/proc/thread-self points nowhere")
}

fn first_number(text: &str) -> Option<u64> {
    text.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_summed_by_port() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n\
                     12: 0100007F:1F90 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 5 2 0 17\n\
                     13: 00000000:1F90 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 6 2 0 3\n\
                     14: 0100007F:1F91 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 7 2 0 9\n";
        assert_eq!(drops_in(table, 8080), 20);
    }

    #[test]
    fn ticks_leave_idle_time_out() {
        let expected = Ticks { busy: 10 + 1 + 20 + 3 + 4, stolen: 5 };
        assert_eq!(ticks_in("cpu  10 1 20 1000 50 3 4 5 0 0\ncpu0 1 1\n"), expected);
    }

    #[test]
    fn this_process_has_used_time_and_memory() {
        assert!(cpu_ns(std::process::id()).unwrap() > 0);
        let resident = resident(std::process::id()).unwrap();
        assert!(resident.peak_kib >= resident.now_kib && resident.now_kib > 0);
        assert!(thread_id().unwrap() > 0);
    }

    #[test]
    fn threads_are_found_by_the_beginning_of_their_name() {
        let visit = || threads_named(std::process::id(), "rx-of-a-te").unwrap();
        let thread = std::thread::Builder::new().name("rx-of-a-test".into());
        let found = std::thread::scope(|scope| {
            let inside = || (visit(), thread_id().unwrap());
            thread.spawn_scoped(scope, inside).unwrap().join().unwrap()
        });
        assert_eq!(found.0, [found.1]);
    }
}
