//! Filters, and the answers that each must give. The collector is checked against them here, and the command and the daemon in
//! the tests of `weir`.
//!
//! The connections are those of `scene.rs`: clients at ports 21001 to 21004 of 0.0.0.0, of user 1000, with mark 7 and the
//! congestion control reno; each has sent 10 bytes to 127.0.0.1:443 and received 5. The collector runs as root on the host, sees
//! two namespaces, and has polled once while the first two clients were connected.

/// `{home}` is the name of the collector's own namespace, and `{cgroup}` the path of the cgroup of all sockets. The answers, in
/// this order, are for:
///
/// 1. the poll: `Y` with a record, `N` without;
/// 2. the close of a client that the poll met;
/// 3. the abort of a client that the poll met;
/// 4. the close of a client that no poll met;
/// 5. the abort of a client that no poll met.
///
/// For closes, `Y` is a record, `N` none, and `?` is undecided: a record if those are kept.
pub(crate) const CASES: &[(&str, &str)] = &[
    ("", "YYYYY"),
    // Addresses and ports. An abort clears the peer's port, and our address if the socket was not bound to it.
    ("sport >= :21000 and sport <= :21999", "YYYYY"),
    ("sport < :21000", "NNNNN"),
    ("not sport < :21000", "YYYYY"),
    ("dport = :443", "YYYY?"),
    ("dport != :80", "YYYY?"),
    // No poll meets what the kernel leaves out, so the event decides.
    ("dport = :80", "NN?N?"),
    ("not dport = :443", "NN?N?"),
    ("src 127.0.0.1", "YYYY?"),
    ("src 10.0.0.0/8", "NN?N?"),
    ("not src 10.0.0.0/8", "YYYY?"),
    ("dst 127.0.0.1:443", "YYYY?"),
    ("dport = :80 and sport < :21000", "NNNNN"),
    ("dport = :443 or sport > :21000", "YYYYY"),
    ("family inet", "YYYYY"),
    ("family inet6", "NNNNN"),
    ("dev = 0", "YYYYY"),
    ("dev = 1", "NNNNN"),
    ("autobound", "NNNNN"),
    // No event names the owner: its 0 means nothing.
    ("uid = 0", "NNN??"),
    ("user = root", "NNN??"),
    ("uid = 1000", "YYY??"),
    ("uid != 0", "YYY??"),
    ("not uid = 1000", "NNN??"),
    ("uid = 0 or uid = 1000", "YYY??"),
    ("uid = 1000 and sport >= :21000", "YYY??"),
    ("uid = 1000 and sport < :21000", "NNNNN"),
    ("uid = 0 or sport >= :21000", "YYYYY"),
    ("not ( uid = 0 and sport < :21000 )", "YYYYY"),
    ("uid = 1000 and dport = :443", "YYY??"),
    ("uid = 0 and dport = :80", "NN?N?"),
    ("inode = 0", "NNN??"),
    ("inode > 0", "YYY??"),
    ("cookie > 0", "YYYYY"),
    ("cookie = 0", "NNNNN"),
    // Nor the mark, the cgroup, the congestion control and the memory.
    ("fwmark = 7", "YYY??"),
    ("fwmark != 7", "NNN??"),
    ("fwmark = 0x1/0x1", "YYY??"),
    ("cgroup = {cgroup}", "YYY??"),
    ("cgroup != {cgroup}", "N????"),
    ("cgroup = *", "YYY??"),
    ("not cgroup = *", "NNN??"),
    ("pod = no-such", "NNN??"),
    ("not pod = no-such", "YYY??"),
    ("unit != no-such", "YYY??"),
    ("cc = reno", "YYY??"),
    ("cc != reno", "NNN??"),
    ("drops = 0", "YYY??"),
    ("not drops < 1M", "NNN??"),
    // Events have counters, but not those of an abort.
    ("bytes_acked >= 10", "YYYY?"),
    ("bytes_acked < 10", "NNNN?"),
    ("not bytes_received >= 5", "NNNN?"),
    ("rtt < 1h and bytes_sent = 10", "YYYY?"),
    ("wqueue = 0", "YYYY?"),
    ("rqueue > 1M", "NNNN?"),
    // The queue is emptied before the event is made, whatever was in it.
    ("unacked < 1000", "YYY??"),
    ("uid = 0 or bytes_sent = 10", "YYYY?"),
    ("uid = 0 and bytes_sent = 11", "NNNN?"),
    // How long the polls have seen it.
    ("age < 1h", "YYY??"),
    ("age > 1h", "NNN??"),
    ("not age > 1h", "YYY??"),
    ("age > 1h or sport >= :21000", "YYYYY"),
    // A poll could have met it in any of the states that it went through.
    ("state established", "YYYYY"),
    ("state listening", "NNNNN"),
    ("exclude established", "NYYYY"),
    ("not state listening", "YYYYY"),
    ("state close-wait or state last-ack", "NYYYY"),
    ("state established and not uid = 0", "YYY??"),
    ("state listening or uid = 1000", "YYY??"),
    ("state listening and uid = 1000", "NNNNN"),
    // The namespace is known by its id.
    ("netns = weir-no-such", "NNNNN"),
    ("netns != weir-no-such", "YYYYY"),
];

/// The same with answers for the own namespace, and for the other one.
pub(crate) const BY_NAMESPACE: &[(&str, &str, &str)] = &[
    ("netns = {home}", "YYYYY", "NNNNN"),
    ("not netns = {home}", "NNNNN", "YYYYY"),
    ("netns = {home} and uid = 1000", "YYY??", "NNNNN"),
];
