use std::collections::BTreeMap;
use std::fs;
use std::io;

/// The kernel's counters in one namespace: `/proc/net/snmp` and `/proc/net/netstat`.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Counters {
    values: BTreeMap<String, u64>,
}

impl Counters {
    /// Reads the counters of the calling thread's namespace.
    pub(super) fn read() -> io::Result<Counters> {
        let mut counters = Counters::default();
        // `/proc/net` would show the namespace of the process's first thread.
        for path in ["/proc/thread-self/net/snmp", "/proc/thread-self/net/netstat"] {
            counters.add(&fs::read_to_string(path)?);
        }
        Ok(counters)
    }

    /// One counter by group and name, such as `Tcp` and `RetransSegs`, or `TcpExt` and `TCPRetransFail`. `None` if this
    /// kernel has no counter with that name.
    pub fn value(&self, group: &str, name: &str) -> Option<u64> {
        self.values.get(&format!("{group}:{name}")).copied()
    }

    /// The increase since an earlier reading. Values that are not counters (`CurrEstab`, `RtoMax`) show their change if they
    /// grew.
    #[must_use]
    pub fn since(&self, earlier: &Counters) -> Counters {
        let values = self.values.iter().map(|(name, value)| {
            let before = earlier.values.get(name).copied().unwrap_or(0);
            (name.clone(), value.saturating_sub(before))
        });
        Counters { values: values.collect() }
    }

    /// Parses pairs of lines with names above values: `Tcp: RtoMin RtoMax` and `Tcp: 200 120000`.
    fn add(&mut self, text: &str) {
        let mut lines = text.lines();
        while let (Some(names), Some(values)) = (lines.next(), lines.next()) {
            let Some((group, names)) = names.split_once(": ") else { continue };
            let values = values.split_whitespace().skip(1);
            for (name, value) in names.split_whitespace().zip(values) {
                // A negative value, as for `MaxConn`, means that there is none.
                if let Ok(value) = value.parse() {
                    self.values.insert(format!("{group}:{name}"), value);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_are_paired_by_line_and_column() {
        let mut counters = Counters::default();
        counters.add(
            "Tcp: RtoMin MaxConn InSegs\nTcp: 200 -1 7\nUdp: InSegs Odd\nUdp: 9\ntorn: line\n",
        );
        assert_eq!(counters.value("Tcp", "RtoMin"), Some(200));
        assert_eq!(counters.value("Tcp", "MaxConn"), None);
        assert_eq!(counters.value("Tcp", "InSegs"), Some(7));
        assert_eq!(counters.value("Udp", "InSegs"), Some(9));
        assert_eq!(counters.value("Udp", "Odd"), None);
        let mut later = Counters::default();
        later.add("Tcp: RtoMin InSegs New\nTcp: 200 10 1\n");
        let since = later.since(&counters);
        let grown = ["RtoMin", "InSegs", "New"].map(|name| since.value("Tcp", name));
        assert_eq!(grown, [Some(0), Some(3), Some(1)]);
    }
}
