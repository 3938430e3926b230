use std::fs;
use sys::link::Device;

/// Kernel properties that determine the performance of TCP in the network. Properties that a kernel does not report are left
/// out.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Properties {
    /// `uname -r`.
    pub kernel_release: String,
    /// Congestion controls that sockets may choose (`net.ipv4.tcp_available_congestion_control`).
    pub congestion_controls: Vec<String>,
    /// The other relevant TCP settings: name and value.
    pub sysctls: Vec<(String, String)>,
    /// Size of the largest IP packet in bytes.
    pub mtu_bytes: u32,
    /// Maximum number of segments that leave, and may be lost, as one packet.
    pub gso_max_segs: Option<u32>,
}

/// The congestion control of sockets that choose none, the limits of timeouts, how many timeouts in a row end a connection, and
/// the buffers.
const SYSCTLS: [&str; 6] = [
    "tcp_congestion_control",
    "tcp_rto_min_us",
    "tcp_rto_max_ms",
    "tcp_retries2",
    "tcp_wmem",
    "tcp_rmem",
];

impl Properties {
    /// Only the kernel's release, for results that depend on nothing else.
    pub fn of_kernel() -> Properties {
        let kernel_release = read("kernel/osrelease").unwrap_or_default();
        Properties { kernel_release, ..Properties::default() }
    }

    /// Reads the properties in the calling thread's namespace.
    pub(super) fn read(device: &Device) -> Properties {
        let available = read("net/ipv4/tcp_available_congestion_control").unwrap_or_default();
        let sysctl = |name: &str| {
            let value = read(&format!("net/ipv4/{name}"))?;
            Some((format!("net.ipv4.{name}"), value.replace('\t', " ")))
        };

        Properties {
            congestion_controls: available.split_whitespace().map(str::to_owned).collect(),
            sysctls: SYSCTLS.into_iter().filter_map(sysctl).collect(),
            mtu_bytes: device.mtu_bytes,
            gso_max_segs: device.gso_max_segs,
            ..Properties::of_kernel()
        }
    }
}

fn read(path: &str) -> Option<String> {
    let value = fs::read_to_string(format!("/proc/sys/{path}")).ok()?;
    Some(value.trim().to_owned())
}
