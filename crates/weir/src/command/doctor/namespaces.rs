//! What network namespaces cost the socket collector.

use super::{Finding, Host, Severity};
use config::{Config, Namespaces};

/// The number of namespaces from which on their cost is worth mentioning.
const MANY: usize = 16;
/// Time to walk one empty bucket: 187 µs for 262,144 (Linux 6.18, 2 processors).
const BUCKET_NS: f64 = 0.71;
/// A table of this size is walked in some 4 µs.
const OWN_ENTRIES: u64 = 4_096;

pub(super) fn examine(host: &Host, config: Option<&Config>, findings: &mut Vec<Finding>) {
    let collects = |config: &Config| {
        config.sockets.as_ref().is_some_and(|sockets| sockets.namespaces != Namespaces::Own)
    };
    if config.is_none_or(collects) {
        shared_table(host, findings);
    }
}

/// The kernel keeps the connections of all namespaces in one table, and a listing walks the whole table, unless a namespace was
/// created with its own (Linux 6.1; net/ipv4/tcp_ipv4.c, `tcp_set_hashinfo`).
fn shared_table(host: &Host, findings: &mut Vec<Finding>) {
    let name = "net.ipv4.tcp_child_ehash_entries";
    let (Some(own), Some(entries)) =
        (host.sysctl(name), host.sysctl_text("net.ipv4.tcp_ehash_entries"))
    else {
        return;
    };
    // Negative in a namespace that itself uses the shared table.
    let Some(entries) = entries.trim_start_matches('-').parse::<u64>().ok() else { return };

    let namespaces = host.network_namespaces();
    if namespaces < MANY {
        return;
    }

    let what = "tables of connections";
    let value = format!("{namespaces} network namespaces, {name} = {own}");
    let poll_ms = namespaces as f64 * entries as f64 * BUCKET_NS / 1e6;
    let own_ms = namespaces as f64 * OWN_ENTRIES as f64 * BUCKET_NS / 1e6;

    findings.push(if own > 0 || entries <= OWN_ENTRIES * 4 {
        Finding::new(Severity::Ok, what, value)
    } else {
        Finding::new(Severity::Advice, what, value)
            .because(format!(
                "all share one table of {entries} entries, and each poll of the socket collector walks it once for each \
                 namespace: up to {poll_ms:.0} ms; with tables of their own {own_ms:.1} ms. This holds for namespaces that are \
                 made from then on"
            ))
            .fixed_by(format!("sudo sysctl -w {name}={OWN_ENTRIES}"))
    });
}
