use crate::network::Properties;
use serde::{Deserialize, Serialize};
use std::fs;
use std::thread;

/// The machine and the kernel settings on which the results depend. An empty string, 0 or `None` means unknown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// `uname -sr`, for example `Linux 6.18.5`.
    pub kernel: String,
    /// `uname -m`.
    pub architecture: String,
    /// Model name of the CPU.
    pub processor: String,
    /// Number of CPUs that the experiment may use.
    pub processors: u32,
    pub memory_bytes: u64,
    /// `net.ipv4.tcp_congestion_control`: the default for sockets.
    pub congestion_control_default: String,
    /// `net.ipv4.tcp_available_congestion_control`.
    pub congestion_controls: Vec<String>,
    /// Load average over one minute, before the first run and after the last.
    pub load_before: Option<f64>,
    pub load_after: Option<f64>,
    /// Kernel settings by name, as read in the sender's namespace: `net.ipv4.tcp_rto_max_ms` = `120000`, and so on.
    pub sysctls: Vec<(String, String)>,
}

impl Machine {
    /// Describes this machine, with the settings of the lab's network that determine the performance of TCP.
    pub(crate) fn of(properties: &Properties) -> Machine {
        let default =
            properties.sysctls.iter().find(|(name, _)| name.ends_with("_congestion_control"));
        Machine {
            kernel: format!("Linux {}", properties.kernel_release).trim_end().to_owned(),
            architecture: std::env::consts::ARCH.to_owned(),
            processor: processor(&read("/proc/cpuinfo")),
            processors: thread::available_parallelism().map_or(0, |count| count.get() as u32),
            memory_bytes: memory_bytes(&read("/proc/meminfo")),
            congestion_control_default: default.map(|(_, value)| value.clone()).unwrap_or_default(),
            congestion_controls: properties.congestion_controls.clone(),
            load_before: None,
            load_after: None,
            sysctls: properties.sysctls.clone(),
        }
    }
}

/// The load average over one minute.
pub(crate) fn load() -> Option<f64> {
    read("/proc/loadavg").split_whitespace().next()?.parse().ok()
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// `model name` on x86; other architectures use a different name, or none.
fn processor(cpuinfo: &str) -> String {
    let value = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    ["model name", "Model", "cpu model", "uarch"].into_iter().find_map(value).unwrap_or_default()
}

fn memory_bytes(meminfo: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.map_or(0, |kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_described_by_its_proc() {
        assert_eq!(processor("processor\t: 0\nmodel name\t: A Chip 3\n"), "A Chip 3");
        assert_eq!(processor("processor\t: 0\n"), "");
        assert_eq!(memory_bytes("MemTotal:        8000 kB\nMemFree: 1 kB\n"), 8_192_000);
        assert_eq!(memory_bytes(""), 0);
        assert!(load().is_some());
    }
}
