//! Kernel counters that explain losses before a datagram reaches our socket. They count for the whole network namespace, not
//! only for Weir, so they are shown next to the ledger and not in it. Counters that cannot be read are absent, not zero.

use crate::process::{self, Process};
use std::fs;
use std::path::{Path, PathBuf};

/// The host's counters.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Host {
    pub udp4: Option<UdpErrors>,
    pub udp6: Option<UdpErrors>,
    pub softnet: Option<Softnet>,
    pub interfaces: Option<Interfaces>,
}

/// UDP errors of all sockets in the network namespace, with the kernel's names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UdpErrors {
    /// Every datagram that arrived and was not delivered; includes the three receive errors below.
    pub in_errors: Option<u64>,
    /// A socket's receive buffer was full.
    pub rcvbuf_errors: Option<u64>,
    /// A socket's send buffer, or the queue of the outgoing device, was full.
    pub sndbuf_errors: Option<u64>,
    /// No socket was bound to the port.
    pub no_ports: Option<u64>,
    /// Wrong checksums.
    pub in_csum_errors: Option<u64>,
    /// The memory for all UDP sockets (`net.ipv4.udp_mem`) was used up.
    pub mem_errors: Option<u64>,
}

impl UdpErrors {
    /// The individual errors, by the kernel's names.
    pub fn causes(&self) -> [(&'static str, Option<u64>); 5] {
        [
            ("RcvbufErrors", self.rcvbuf_errors),
            ("SndbufErrors", self.sndbuf_errors),
            ("NoPorts", self.no_ports),
            ("InCsumErrors", self.in_csum_errors),
            ("MemErrors", self.mem_errors),
        ]
    }

    fn from_lookup(value_of: impl Fn(&str) -> Option<u64>) -> UdpErrors {
        UdpErrors {
            in_errors: value_of("InErrors"),
            rcvbuf_errors: value_of("RcvbufErrors"),
            sndbuf_errors: value_of("SndbufErrors"),
            no_ports: value_of("NoPorts"),
            in_csum_errors: value_of("InCsumErrors"),
            mem_errors: value_of("MemErrors"),
        }
    }
}

/// The first stage of receiving in the kernel, summed over processors.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Softnet {
    /// Packets dropped because a processor's backlog was full.
    pub dropped: u64,
    /// Times that a processor's budget ran out with packets left.
    pub squeezed: u64,
}

/// The network interfaces.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Interfaces {
    /// The first [`Reader::INTERFACES_MAX`], by name.
    pub listed: Vec<Interface>,
    /// Number of further interfaces.
    pub omitted: u64,
}

/// Losses at one interface, with the kernel's names.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Interface {
    pub device: String,
    pub rx_dropped: Option<u64>,
    pub rx_missed_errors: Option<u64>,
    pub rx_errors: Option<u64>,
    pub tx_dropped: Option<u64>,
}

/// Reads the counters from `/proc` and `/sys`.
#[derive(Clone, Debug)]
pub struct Reader {
    proc: PathBuf,
    sys: PathBuf,
}

impl Reader {
    /// Most interfaces that are read. Each one costs four files, and a host with containers may have thousands.
    pub const INTERFACES_MAX: usize = 128;

    /// A reader of this system.
    pub fn system() -> Reader {
        Reader::at(Path::new("/proc"), Path::new("/sys"))
    }

    /// A reader of the same files under other folders.
    pub fn at(proc: &Path, sys: &Path) -> Reader {
        Reader { proc: proc.to_owned(), sys: sys.to_owned() }
    }

    /// Reads the host's counters.
    pub fn read(&self) -> Host {
        // `self/net`, not `net`: this is the namespace of the process even where /proc/net is not a link.
        let net = |name: &str| fs::read_to_string(self.proc.join("self/net").join(name)).ok();
        Host {
            udp4: net("snmp").and_then(|text| parse_snmp(&text)),
            udp6: net("snmp6").and_then(|text| parse_snmp6(&text)),
            softnet: net("softnet_stat").and_then(|text| parse_softnet(&text)),
            interfaces: self.read_interfaces(),
        }
    }

    /// Reads this process's counters.
    pub fn read_process(&self) -> Process {
        process::read(&self.proc)
    }

    fn read_interfaces(&self) -> Option<Interfaces> {
        let folder = self.sys.join("class/net");
        let entries = fs::read_dir(&folder).ok()?;
        let mut devices: Vec<String> =
            entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        devices.sort_unstable();

        let omitted = devices.len().saturating_sub(Reader::INTERFACES_MAX) as u64;
        devices.truncate(Reader::INTERFACES_MAX);
        let listed = devices.into_iter().map(|device| read_interface(&folder, device)).collect();
        Some(Interfaces { listed, omitted })
    }
}

fn read_interface(folder: &Path, device: String) -> Interface {
    let statistics = folder.join(&device).join("statistics");
    let read = |name| fs::read_to_string(statistics.join(name)).ok()?.trim().parse().ok();
    Interface {
        rx_dropped: read("rx_dropped"),
        rx_missed_errors: read("rx_missed_errors"),
        rx_errors: read("rx_errors"),
        tx_dropped: read("tx_dropped"),
        device,
    }
}

/// Parses `/proc/net/snmp`: a line of names and a line of values for each protocol. `None` without the UDP lines.
pub fn parse_snmp(text: &str) -> Option<UdpErrors> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp:"));
    let names: Vec<&str> = lines.next()?.split_ascii_whitespace().collect();
    let values: Vec<&str> = lines.next()?.split_ascii_whitespace().collect();
    Some(UdpErrors::from_lookup(|wanted| {
        values.get(names.iter().position(|name| *name == wanted)?)?.parse().ok()
    }))
}

/// Parses `/proc/net/snmp6`: a name and a value on each line. `None` without a UDP line.
pub fn parse_snmp6(text: &str) -> Option<UdpErrors> {
    let udp: Vec<(&str, &str)> = text
        .lines()
        .filter_map(|line| line.strip_prefix("Udp6")?.split_once(char::is_whitespace))
        .collect();
    let value_of =
        |wanted: &str| udp.iter().find(|(name, _)| *name == wanted)?.1.trim().parse().ok();
    (!udp.is_empty()).then(|| UdpErrors::from_lookup(value_of))
}

/// Parses `/proc/net/softnet_stat`: a line of hexadecimal columns for each processor; the second column counts drops, the third
/// squeezes (net/core/net-procfs.c, `softnet_seq_show`). `None` if no line can be read.
pub fn parse_softnet(text: &str) -> Option<Softnet> {
    let mut sum = None;
    for line in text.lines() {
        let mut columns =
            line.split_ascii_whitespace().map(|column| u64::from_str_radix(column, 16));

        if let (Some(Ok(_)), Some(Ok(dropped)), Some(Ok(squeezed))) =
            (columns.next(), columns.next(), columns.next())
        {
            let sum: &mut Softnet = sum.get_or_insert_default();
            sum.dropped += dropped;
            sum.squeezed += squeezed;
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    const SNMP: &str = "\
Ip: Forwarding DefaultTTL InReceives
Ip: 1 64 5
Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors IgnoredMulti MemErrors
Udp: 226 11 12 168 13 14 15 0 16
UdpLite: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors IgnoredMulti MemErrors
UdpLite: 0 91 92 93 94 95 96 97 98
";

    fn expected() -> UdpErrors {
        UdpErrors {
            in_errors: Some(12),
            rcvbuf_errors: Some(13),
            sndbuf_errors: Some(14),
            no_ports: Some(11),
            in_csum_errors: Some(15),
            mem_errors: Some(16),
        }
    }

    #[test]
    fn snmp_takes_the_udp_lines() {
        assert_eq!(parse_snmp(SNMP), Some(expected()));
    }

    #[test]
    fn snmp_of_an_old_kernel_lacks_fields() {
        let udp = parse_snmp("Udp: InDatagrams NoPorts InErrors\nUdp: 1 2 3\n").unwrap();
        let old = UdpErrors { in_errors: Some(3), no_ports: Some(2), ..UdpErrors::default() };
        assert_eq!(udp, old);
    }

    #[test]
    fn snmp_without_values_or_without_udp() {
        assert_eq!(parse_snmp("Udp: InDatagrams NoPorts\n"), None);
        assert_eq!(parse_snmp("Tcp: a\nTcp: 1\n"), None);
        assert_eq!(parse_snmp("Udp: InErrors\nUdp: many\n"), Some(UdpErrors::default()));
    }

    #[test]
    fn snmp6_takes_the_udp_lines() {
        let text = "Ip6InReceives      7\nUdp6InDatagrams  3\nUdp6NoPorts   11\nUdp6InErrors  12\n\
            Udp6RcvbufErrors\t13\nUdp6SndbufErrors\t14\nUdp6InCsumErrors\t15\nUdp6MemErrors 16\n\
            UdpLite6InErrors 99\n";
        assert_eq!(parse_snmp6(text), Some(expected()));
        assert_eq!(parse_snmp6("Ip6InReceives 7\n"), None);
    }

    #[test]
    fn softnet_sums_processors() {
        let text = "000001ad 00000002 00000003 00000000\n0000244f 0000000a 00000010 00000000\n";
        assert_eq!(parse_softnet(text), Some(Softnet { dropped: 12, squeezed: 19 }));
        assert_eq!(parse_softnet("no numbers\n"), None);
        assert_eq!(parse_softnet(""), None);
    }

    #[test]
    fn files_that_are_not_there_are_absent() {
        let nowhere = Path::new("/nonexistent");
        assert_eq!(Reader::at(nowhere, nowhere).read(), Host::default());
    }

    #[test]
    fn this_system_has_a_loopback_interface() {
        let host = Reader::system().read();
        let interfaces = host.interfaces.expect("/sys is mounted");
        assert!(interfaces.listed.iter().any(|interface| interface.device == "lo"));
        assert!(host.udp4.expect("/proc is mounted").rcvbuf_errors.is_some());
    }
}
