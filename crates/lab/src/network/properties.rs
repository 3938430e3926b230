use std::fs;
use sys::link::Device;

/// What decides how TCP fares in the network, as the kernel says it. What a kernel does not know is `None`.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Properties {
    /// `uname -r`.
    pub kernel_release: Option<String>,
    /// Congestion control of sockets that choose none (`net.ipv4.tcp_congestion_control`).
    pub congestion_control: Option<String>,
    /// Those that sockets may choose (`net.ipv4.tcp_available_congestion_control`).
    pub congestion_controls: Vec<String>,
    /// Shortest retransmission timeout in microseconds (`net.ipv4.tcp_rto_min_us`, since Linux 6.11).
    pub rto_min_us: Option<u64>,
    /// Longest retransmission timeout in milliseconds (`net.ipv4.tcp_rto_max_ms`, since Linux 6.15; 120 s before).
    pub rto_max_ms: Option<u64>,
    /// Timeouts in a row after which a connection is given up (`net.ipv4.tcp_retries2`).
    pub retries: Option<u64>,
    /// Send buffer in bytes: least, first, most (`net.ipv4.tcp_wmem`).
    pub send_buffer_bytes: Option<[u64; 3]>,
    /// Receive buffer in bytes: least, first, most (`net.ipv4.tcp_rmem`).
    pub receive_buffer_bytes: Option<[u64; 3]>,
    /// Largest packet in bytes of IP.
    pub mtu_bytes: u32,
    /// Most segments that leave, and may be lost, as one packet.
    pub gso_max_segs: Option<u32>,
}

impl Properties {
    /// The kernel alone, for what depends on nothing else.
    pub fn of_kernel() -> Properties {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease");
        Properties {
            kernel_release: release.ok().map(|release| release.trim().to_owned()),
            ..Properties::default()
        }
    }

    /// Reads those of the calling thread's namespace.
    pub(super) fn read(device: &Device) -> Properties {
        let tcp = |name: &str| {
            let value = fs::read_to_string(format!("/proc/sys/net/ipv4/tcp_{name}")).ok()?;
            Some(value.trim().to_owned())
        };

        let number = |name| tcp(name)?.parse().ok();
        let numbers = |name| {
            let value = tcp(name)?;
            let mut words = value.split_whitespace().map_while(|word| word.parse().ok());
            Some([words.next()?, words.next()?, words.next()?])
        };

        let available = tcp("available_congestion_control").unwrap_or_default();
        Properties {
            congestion_control: tcp("congestion_control"),
            congestion_controls: available.split_whitespace().map(str::to_owned).collect(),
            rto_min_us: number("rto_min_us"),
            rto_max_ms: number("rto_max_ms"),
            retries: number("retries2"),
            send_buffer_bytes: numbers("wmem"),
            receive_buffer_bytes: numbers("rmem"),
            mtu_bytes: device.mtu_bytes,
            gso_max_segs: device.gso_max_segs,
            ..Properties::of_kernel()
        }
    }
}
