//! How many connections a namespace has had.

use std::io;

/// Connections that were opened in the network namespace of the calling thread since it was made, by either side: one for each
/// socket that sent a SYN and one for each that was accepted (`ActiveOpens` and `PassiveOpens` of RFC 4022, both address
/// families). A socket that connects twice counts twice.
///
/// # Errors
/// `/proc` is not mounted, or this is not what the file looks like.
pub fn connections_opened() -> io::Result<u64> {
    // Not /proc/net, which is the namespace of the process's first thread.
    let text = std::fs::read_to_string("/proc/thread-self/net/snmp")?;
    opened(&text).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn opened(snmp: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = (lines.next()?, lines.next()?);
    let value = |wanted| {
        let mut both = names.split(' ').zip(values.split(' '));
        both.find(|(name, _)| *name == wanted)?.1.parse::<u64>().ok()
    };
    value("ActiveOpens")?.checked_add(value("PassiveOpens")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_to_open_are_added() {
        let text = "Ip: Forwarding DefaultTTL\nIp: 1 64\n\
                    Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens PassiveOpens AttemptFails\n\
                    Tcp: 1 200 120000 -1 17 4 3\nUdp: InDatagrams\nUdp: 5\n";
        assert_eq!(opened(text), Some(21));
        for (text, what) in [
            ("", "nothing"),
            ("Tcp: ActiveOpens PassiveOpens\n", "no values"),
            ("Tcp: ActiveOpens PassiveOpens\nTcp: 1\n", "too few values"),
            ("Tcp: ActiveOpens PassiveOpens\nTcp: 1 -1\n", "a value below 0"),
            ("Tcp: ActiveOpens\nTcp: 1\n", "a name that is missing"),
        ] {
            assert_eq!(opened(text), None, "{what}");
        }
    }
}
