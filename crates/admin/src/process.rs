//! Resource use of the process, under the names that every Prometheus client uses.

use std::fs;
use std::path::Path;

/// Figures of this process. Those that cannot be read are absent.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Process {
    pub cpu_seconds: Option<f64>,
    pub start_time_seconds: Option<f64>,
    pub resident_bytes: Option<u64>,
    pub virtual_bytes: Option<u64>,
    pub open_fds: Option<u64>,
    pub max_fds: Option<u64>,
    pub threads: Option<u64>,
}

/// Ticks per second in `/proc`: `USER_HZ`, 100 on every architecture that Weir runs on (include/asm-generic/param.h).
const TICKS_PER_SECOND: f64 = 100.0;

/// Reads the figures below `proc`.
pub fn read(proc: &Path) -> Process {
    let text = |name: &str| fs::read_to_string(proc.join(name)).unwrap_or_default();

    let times = parse_stat(&text("self/stat"));
    let boot_time = field(&text("stat"), "btime ");
    let status = text("self/status");
    let kilobytes = |name| Some(field(&status, name)? * 1024);

    Process {
        cpu_seconds: times.map(|times| times.cpu_seconds),
        start_time_seconds: times
            .and_then(|times| Some(boot_time? as f64 + times.start_after_boot_seconds)),
        resident_bytes: kilobytes("VmRSS:"),
        virtual_bytes: kilobytes("VmSize:"),
        open_fds: fs::read_dir(proc.join("self/fd")).ok().map(|entries| entries.count() as u64),
        max_fds: field(&text("self/limits"), "Max open files"),
        threads: field(&status, "Threads:"),
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct Times {
    cpu_seconds: f64,
    start_after_boot_seconds: f64,
}

/// Parses `/proc/self/stat`: the fields after the program's name, which is in parentheses and may contain anything.
fn parse_stat(text: &str) -> Option<Times> {
    let after_name = text.rsplit_once(')')?.1;
    // The first field after the name is number 3 in proc(5), which counts from 1.
    let fields: Vec<&str> = after_name.split_ascii_whitespace().collect();
    let seconds = |number: usize| {
        let ticks: u64 = fields.get(number - 3)?.parse().ok()?;
        Some(ticks as f64 / TICKS_PER_SECOND)
    };
    let (user, system) = (seconds(14)?, seconds(15)?);
    Some(Times { cpu_seconds: user + system, start_after_boot_seconds: seconds(22)? })
}

/// The first number after `name` at the start of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_with_a_hostile_name() {
        let text = "7 (a b) R 1) S 1 7 7 0 -1 4194560 1 0 0 0 150 25 0 0 20 0 3 0 4200 1000 50";
        let times = parse_stat(text).unwrap();
        assert_eq!(times, Times { cpu_seconds: 1.75, start_after_boot_seconds: 42.0 });
        assert_eq!(parse_stat("7 (a) S 1"), None);
        assert_eq!(parse_stat(""), None);
    }

    #[test]
    fn first_number_of_a_line() {
        let text = "Max open files            1024                 524288               files\n";
        assert_eq!(field(text, "Max open files"), Some(1024));
        assert_eq!(field("VmRSS:\t    2048 kB\n", "VmRSS:"), Some(2048));
        assert_eq!(field("Max open files unlimited\n", "Max open files"), None);
    }

    #[test]
    fn this_process() {
        let process = read(Path::new("/proc"));
        assert!(process.open_fds.is_some_and(|fds| fds > 2));
        assert!(process.resident_bytes.is_some_and(|bytes| bytes > 100_000));
        let now = crate::health::unix_seconds(std::time::SystemTime::now());
        assert!(process.start_time_seconds.is_some_and(|at| (now - at).abs() < 3600.0));
    }

    #[test]
    fn nothing_to_read() {
        assert_eq!(read(Path::new("/nonexistent")), Process::default());
    }
}
