//! Which processors a thread may run on (sched_setaffinity(2)), and what they did (proc_stat(5)).

use crate::Errno;
use crate::errno::check;
use std::fmt;
use std::fs;
use std::io;
use std::mem;
use std::str::FromStr;

/// Numbers of processors, in order, each once.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct CpuList(Vec<u16>);

/// Numbers that a set of the C library's has room for.
const CPUS_MAX: u16 = libc::CPU_SETSIZE as u16;

impl CpuList {
    /// The numbers.
    pub fn numbers(&self) -> &[u16] {
        &self.0
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One of them for each thread in turn; nothing if there are none.
    #[must_use]
    pub fn in_turn(&self, thread: usize) -> CpuList {
        let one = self.0.get(thread.checked_rem(self.0.len()).unwrap_or(0));
        CpuList(one.copied().into_iter().collect())
    }

    /// Those of both lists.
    #[must_use]
    pub fn with(&self, other: &CpuList) -> CpuList {
        CpuList::of(self.0.iter().chain(&other.0).copied().collect())
    }

    fn of(mut numbers: Vec<u16>) -> CpuList {
        numbers.sort_unstable();
        numbers.dedup();
        CpuList(numbers)
    }

    /// Those that another list lacks.
    #[must_use]
    pub fn without(&self, other: &CpuList) -> CpuList {
        CpuList(self.0.iter().copied().filter(|cpu| !other.0.contains(cpu)).collect())
    }

    /// Where the calling thread may run.
    ///
    /// # Errors
    /// `EINVAL` on a host with more than 1,024 processors.
    pub fn of_this_thread() -> Result<CpuList, Errno> {
        // SAFETY: all-zero bytes are a valid `cpu_set_t`: it holds integers only.
        let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
        // SAFETY: the pointer and the length describe `set`; 0 is the calling thread.
        check(unsafe { libc::sched_getaffinity(0, mem::size_of_val(&set), &raw mut set) })?;
        // SAFETY: the number is below CPU_SETSIZE.
        let has = |cpu: &u16| unsafe { libc::CPU_ISSET(usize::from(*cpu), &set) };
        Ok(CpuList((0..CPUS_MAX).filter(has).collect()))
    }

    /// Has the calling thread, and those that it starts, run on these only. Nothing changes if there are none.
    ///
    /// # Errors
    /// `EINVAL` when the host has none of them, or this process may use none of them.
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

    /// As the kernel writes it: `0-3,8`.
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

/// A tick of `/proc/stat` in nanoseconds: USER_HZ is 100 wherever Weir runs.
const TICK_NS: u64 = 10_000_000;

/// What processors did since the host began, all that were asked for together; in nanoseconds, to 10 ms.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProcessorTime {
    /// Nothing, or nothing but wait for a disk.
    pub idle_ns: u64,
    /// Programs of a lower priority than usual (`nice`), but for what the kernel did for them.
    pub low_priority_ns: u64,
}

/// What these processors did.
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

/// The first of a line's numbers, in the order of proc_stat(5); 0 for one that is not there.
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
