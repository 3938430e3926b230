//! The kernel's TCP counters of one network namespace.

use std::fs::File;
use std::io::Read;

/// Counts of one namespace, for comparing two readings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TcpCounts {
    /// Sockets of both families in the kernel's tables of connections and listeners.
    pub in_use: u64,
    /// Minisocks of both families in TIME-WAIT and, with the same timer, in FIN-WAIT-2.
    pub time_wait: u64,
    /// Connections opened since the namespace was created, by either side: one for each socket that sent a SYN, and one for each
    /// that was accepted (`ActiveOpens` and `PassiveOpens` of RFC 4022). A socket that connects twice counts twice.
    pub opened: u64,
    /// Segments in and out, connections opened and accepted, and so on: the line verbatim, because only its change matters.
    pub activity: Box<str>,
}

/// More than any kernel writes into these files, in bytes: 1.5 kB on Linux 6.18.
const FILE_BYTES_MAX: usize = 8 * 1024;

impl TcpCounts {
    /// Reads the counts of the calling thread's namespace. `None` when `/proc` does not have them.
    ///
    /// Each call looks the files up again, even after `setns(2)` (`proc_net_d_revalidate` in fs/proc/generic.c, Linux 5.0).
    #[must_use]
    pub fn read() -> Option<TcpCounts> {
        let mut buffer = [0; FILE_BYTES_MAX];
        let v4 = read_file("/proc/thread-self/net/sockstat", &mut buffer)?;
        // `inuse` is per family, `tw` covers both.
        let (mut in_use, time_wait) = (value(v4, "TCP:", "inuse")?, value(v4, "TCP:", "tw")?);

        // Without IPv6 there is no such file and no such socket.
        if let Some(v6) = read_file("/proc/thread-self/net/sockstat6", &mut buffer) {
            in_use += value(v6, "TCP6:", "inuse")?;
        }

        let snmp = read_file("/proc/thread-self/net/snmp", &mut buffer)?;
        let (names, activity) = tcp_lines(snmp)?;
        let opened = opened(names, activity)?;
        Some(TcpCounts { in_use, time_wait, opened, activity: activity.into() })
    }
}

/// The text of a file. `None` if it does not fit the buffer.
fn read_file<'b>(path: &str, buffer: &'b mut [u8; FILE_BYTES_MAX]) -> Option<&'b str> {
    let mut file = File::open(path).ok()?;
    let mut len = 0;
    loop {
        match file.read(buffer.get_mut(len..)?).ok()? {
            0 if len == FILE_BYTES_MAX => return None,
            0 => return str::from_utf8(buffer.get(..len)?).ok(),
            more => len += more,
        }
    }
}

/// The number after `name` in the line that starts with `line`.
fn value(text: &str, line: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|text| text.strip_prefix(line))?;
    let mut words = line.split_ascii_whitespace();
    words.find(|word| *word == name)?;
    words.next()?.parse().ok()
}

/// The line of names, and the line of values.
fn tcp_lines(snmp: &str) -> Option<(&str, &str)> {
    let mut lines = snmp.lines().filter(|line| line.starts_with("Tcp:"));
    Some((lines.next()?, lines.next()?))
}

fn opened(names: &str, values: &str) -> Option<u64> {
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
    fn a_number_stands_behind_its_name_in_its_line() {
        let text =
            "sockets: used 14\nTCP: inuse 3 orphan 0 tw 7 alloc 5 mem 0\nUDP: inuse 9 mem 252\n";
        assert_eq!((value(text, "TCP:", "inuse"), value(text, "TCP:", "tw")), (Some(3), Some(7)));
        assert_eq!(value(text, "TCP:", "no"), None);
        assert_eq!(value(text, "TCP6:", "inuse"), None);
        assert_eq!(value("TCP: inuse -3\n", "TCP:", "inuse"), None);
        assert_eq!(value("TCP: inuse\n", "TCP:", "inuse"), None);
    }

    #[test]
    fn both_ways_to_open_are_added() {
        let opened = |text| tcp_lines(text).and_then(|(names, values)| opened(names, values));
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

    #[test]
    fn this_thread_has_some() {
        let counts = TcpCounts::read().unwrap();
        assert!(counts.activity.split(' ').count() > 10, "{counts:?}");
    }
}
