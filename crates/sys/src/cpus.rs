//! Which CPUs a thread may run on (sched_setaffinity(2)), and what they did (proc_stat(5)).

use crate::Errno;
use crate::errno::check;
use std::fmt;
use std::fs;
use std::io;
use std::mem;
use std::str::FromStr;

/// CPU numbers in ascending order, each once.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct CpuList(Vec<u16>);

/// How many CPU numbers the C library's `cpu_set_t` can hold.
const CPUS_MAX: u16 = libc::CPU_SETSIZE as u16;

impl CpuList {
    /// The numbers.
    pub fn numbers(&self) -> &[u16] {
        &self.0
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One CPU of the list for each thread, round-robin; empty if the list is empty.
    #[must_use]
    pub fn in_turn(&self, thread: usize) -> CpuList {
        let one = self.0.get(thread.checked_rem(self.0.len()).unwrap_or(0));
        CpuList(one.copied().into_iter().collect())
    }

    /// The CPUs of both lists.
    #[must_use]
    pub fn with(&self, other: &CpuList) -> CpuList {
        CpuList::of(self.0.iter().chain(&other.0).copied().collect())
    }

    fn of(mut numbers: Vec<u16>) -> CpuList {
        numbers.sort_unstable();
        numbers.dedup();
        CpuList(numbers)
    }

    /// The CPUs of this list that are not in `other`.
    #[must_use]
    pub fn without(&self, other: &CpuList) -> CpuList {
        CpuList(self.0.iter().copied().filter(|cpu| !other.0.contains(cpu)).collect())
    }

    /// The CPUs that the calling thread may run on.
    ///
    /// # Errors
    /// `EINVAL` on a host with more than 1,024 CPUs.
    pub fn of_this_thread() -> Result<CpuList, Errno> {
        // SAFETY: all-zero bytes are a valid `cpu_set_t`: it holds integers only.
        let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
        // SAFETY: the pointer and the length describe `set`; 0 is the calling thread.
        check(unsafe { libc::sched_getaffinity(0, mem::size_of_val(&set), &raw mut set) })?;
        // SAFETY: the number is below CPU_SETSIZE.
        let has = |cpu: &u16| unsafe { libc::CPU_ISSET(usize::from(*cpu), &set) };
        Ok(CpuList((0..CPUS_MAX).filter(has).collect()))
    }

    /// Restricts the calling thread, and the threads it starts, to these CPUs. Does nothing if the list is
    /// empty.
    ///
    /// # Errors
    /// `EINVAL` when the host has none of these CPUs, or this process may use none of them.
    pub fn bind_this_thread(&self) -> Result<(), Errno> {
        if self.is_empty() {
            return Ok(());
        }
        // SAFETY: all-zero bytes are a valid `cpu_set_t`: it holds integers only.
        let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
        for cpu in &self.0 {
            // SAFETY: the number is below CPU_SETSIZE, as every one that was read is.
            unsafe { libc::CPU_SET(usize::from(*cpu), &mut set) };
        }
        // SAFETY: the pointer and the length describe `set`; 0 is the calling thread.
        check(unsafe { libc::sched_setaffinity(0, mem::size_of_val(&set), &raw const set) })
            .map(drop)
    }
}

impl FromStr for CpuList {
    type Err = String;

    /// Parses the kernel's format: `0-3,8`.
    fn from_str(text: &str) -> Result<CpuList, String> {
        let wrong = || format!("\"{text}\" is no list of processors, such as 0-3 or 0,2,4-7");
        let number = |text: &str| {
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let number = text.parse::<u16>().ok().filter(|number| is_number && *number < CPUS_MAX);
            number.ok_or_else(wrong)
        };

        let mut all: Vec<u16> = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if last < first {
                return Err(wrong());
            }
            all.extend(first..=last);
        }
        Ok(CpuList::of(all))
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let follows = |a: &u16, b: &u16| *b == *a + 1;
        for (at, run) in self.0.chunk_by(follows).enumerate() {
            let separator = if at > 0 { "," } else { "" };
            match run {
                [first, .., last] => write!(f, "{separator}{first}-{last}")?,
                [one] => write!(f, "{separator}{one}")?,
                [] => {}
            }
        }
        Ok(())
    }
}

/// Length of a `/proc/stat` tick in nanoseconds: USER_HZ is 100 wherever Weir runs.
const TICK_NS: u64 = 10_000_000;

/// Time that a set of CPUs has spent since boot, summed over the set; in nanoseconds, with a resolution of 10
/// ms.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProcessorTime {
    /// Time spent idle, or waiting for a disk.
    pub idle_ns: u64,
    /// Time spent in user code of programs with a lowered priority (`nice`). The kernel's work for them is not
    /// included.
    pub low_priority_ns: u64,
}

/// Reads how these CPUs have spent their time.
///
/// # Errors
/// When `/proc` is not mounted.
pub fn processor_time(processors: &CpuList) -> io::Result<ProcessorTime> {
    let stat = fs::read_to_string("/proc/stat")?;
    let mut time = ProcessorTime::default();
    for number in processors.numbers() {
        let prefix = format!("cpu{number} ");
        let line = stat.lines().find_map(|line| line.strip_prefix(&prefix));
        let [_user, nice, _system, idle, iowait] = first_ticks(line.unwrap_or_default());
        time.idle_ns += (idle + iowait) * TICK_NS;
        time.low_priority_ns += nice * TICK_NS;
    }
    Ok(time)
}

/// The first five numbers of a line, in the order of proc_stat(5); 0 for a missing one.
fn first_ticks(numbers: &str) -> [u64; 5] {
    let mut words = numbers.split_ascii_whitespace();
    std::array::from_fn(|_| words.next().and_then(|word| word.parse().ok()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_the_kernel_writes_them() {
        for (text, shown) in [("0", "0"), ("0-3,8", "0-3,8"), ("8,1,2,0-1", "0-2,8"), ("5-5", "5")]
        {
            assert_eq!(text.parse::<CpuList>().unwrap().to_string(), shown);
        }
        for text in ["", ",", "1,", "3-1", "a", "-1", "1-", "+1", "1024", "0-99999", "1 "] {
            assert!(text.parse::<CpuList>().is_err(), "{text}");
        }
    }

    #[test]
    fn idle_is_what_the_kernel_counts_as_such() {
        assert_eq!(first_ticks("10 1 20 1000 50 3 4 5 0 0"), [10, 1, 20, 1_000, 50]);
        let all = CpuList::of_this_thread().unwrap();
        assert!(processor_time(&all).unwrap().idle_ns > 0);
        assert_eq!(processor_time(&CpuList::default()).unwrap(), ProcessorTime::default());
    }

    #[test]
    fn threads_take_turns() {
        let list: CpuList = "2,5-6".parse().unwrap();
        let turns: Vec<_> = (0..4).map(|thread| list.in_turn(thread).to_string()).collect();
        assert_eq!(turns, ["2", "5", "6", "2"]);
        assert!(CpuList::default().in_turn(3).is_empty());
    }

    #[test]
    fn a_thread_runs_where_it_is_bound() {
        let all = CpuList::of_this_thread().unwrap();
        assert!(!all.is_empty());
        std::thread::spawn(move || {
            let last = all.in_turn(all.numbers().len() - 1);
            last.bind_this_thread().unwrap();
            let inherited = std::thread::spawn(|| CpuList::of_this_thread().unwrap());
            assert_eq!(inherited.join().unwrap(), last);
            let nowhere: CpuList = "1023".parse().unwrap();
            assert_eq!(nowhere.bind_this_thread(), Err(Errno::INVAL));
            assert_eq!(nowhere.without(&last), nowhere);
        })
        .join()
        .unwrap();
    }
}
