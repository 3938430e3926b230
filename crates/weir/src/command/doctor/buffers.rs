//! Buffers that the kernel grants, and what they have dropped so far.

use super::process::setcap;
use super::{Finding, Host, Severity, udp_listeners, udp_targets};
use config::{Config, Listen, RECEIVE_BUFFER_BYTES, Target};
use sys::process::CAP_NET_ADMIN;
use sys::socket::{charged_bytes, receive_buffer_max};
use text::size;

/// The datagram size in which capacities are given.
const TYPICAL_BYTES: usize = 200;

/// A buffer in the kernel's accounting, as bytes and as a number of datagrams.
pub(crate) fn capacity(bytes: u64) -> String {
    let datagrams = bytes / charged_bytes(TYPICAL_BYTES) as u64;
    format!("{} (about {datagrams} datagrams of {TYPICAL_BYTES} bytes)", size(bytes))
}

pub(super) fn examine(host: &Host, config: Option<&Config>, findings: &mut Vec<Finding>) {
    receive_buffers(host, config, findings);
    findings.extend(memory_of_all(host, config));
    findings.extend(others_buffers(host));
    if let Some(config) = config {
        send_buffers(host, config, findings);
        unix_queues(host, config, findings);
    }
    findings.extend(backlog(host));
    findings.extend(lost_in_buffers(host));
}

fn receive_buffers(host: &Host, config: Option<&Config>, findings: &mut Vec<Finding>) {
    let rmem_max = host.sysctl("net.core.rmem_max").or_else(|| {
        let granted = receive_buffer_max().ok()? as u64;
        let value = format!("cannot be read here; a socket is granted {}", size(2 * granted));
        let finding = Finding::new(Severity::Advice, "net.core.rmem_max", value);
        findings.push(finding.because(
            "it bounds receive buffers, and a container has it from its host: set it there",
        ));
        Some(granted)
    });
    let Some(rmem_max) = rmem_max else { return };

    let raise = |asked: u64| format!("sudo sysctl -w net.core.rmem_max={}", asked.div_ceil(2));

    let Some(config) = config else {
        let asked = RECEIVE_BUFFER_BYTES as u64;
        let program = host.program().display();
        let fix = format!("{}   or: sudo setcap cap_net_admin=+ep {program}", raise(asked));
        findings.push(receive_buffer(host, "receive buffer", asked, rmem_max, fix));
        return;
    };
    // One command that is enough for all listeners.
    let largest = udp_listeners(config).map(|(_, udp)| udp.receive_buffer_bytes).max();
    let largest = largest.unwrap_or(0) as u64;
    let fix = format!("{}   or: {}", raise(largest), setcap(host, config));
    for (listener, udp) in udp_listeners(config) {
        let what = format!("receive buffer of {}", listener.name);
        let asked = udp.receive_buffer_bytes as u64;
        findings.push(receive_buffer(host, &what, asked, rmem_max, fix.clone()));
    }
}

fn receive_buffer(host: &Host, what: &str, asked: u64, rmem_max: u64, fix: String) -> Finding {
    // SO_RCVBUF is clamped to rmem_max and then doubled (net/core/sock.c, sock_setsockopt).
    let granted = asked.min(rmem_max.saturating_mul(2));
    if granted == asked {
        return Finding::new(Severity::Ok, what, format!("{} will be granted", capacity(asked)));
    }

    if host.has_capability(CAP_NET_ADMIN) {
        let value = format!("{} will be granted, by CAP_NET_ADMIN", capacity(asked));
        return Finding::new(Severity::Ok, what, value);
    }

    let value = format!("asks for {}, would get {}", capacity(asked), capacity(granted));
    Finding::new(Severity::Warning, what, value)
        .because(format!(
            "net.core.rmem_max is {rmem_max} and CAP_NET_ADMIN is missing; what a burst brings beyond the buffer is lost"
        ))
        .fixed_by(fix)
}

/// All UDP sockets of the host share `udp_mem`.
fn memory_of_all(host: &Host, config: Option<&Config>) -> Option<Finding> {
    const PAGE_BYTES: u64 = 4_096;
    let text = host.sysctl_text("net.ipv4.udp_mem")?;
    let pages: Vec<u64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let limit = pages.get(2)?.saturating_mul(PAGE_BYTES);

    let needed = match config {
        Some(config) => config.budget().kernel_bytes(),
        None => RECEIVE_BUFFER_BYTES as u64,
    };

    let what = "memory of all UDP sockets";
    let value = format!("{} for the host, the relay may need {}", size(limit), size(needed));
    if needed <= limit {
        return Some(Finding::new(Severity::Ok, what, value));
    }

    let (pressure, max) = (needed.div_ceil(PAGE_BYTES), needed.div_ceil(PAGE_BYTES) * 2);
    Some(
        Finding::new(Severity::Warning, what, value)
            .because("beyond net.ipv4.udp_mem the kernel drops datagrams although a socket's own buffer has room")
            .fixed_by(format!("sudo sysctl -w net.ipv4.udp_mem=\"{} {pressure} {max}\"", pressure / 2)),
    )
}

/// Receivers on this host that do not set a buffer size get the default.
fn others_buffers(host: &Host) -> Option<Finding> {
    let bytes = host.sysctl("net.core.rmem_default")?;
    let value = format!("{} for programs that ask for nothing", capacity(bytes));
    Some(Finding::new(Severity::Ok, "net.core.rmem_default", value))
}

fn send_buffers(host: &Host, config: &Config, findings: &mut Vec<Finding>) {
    let Some(wmem_max) = host.sysctl("net.core.wmem_max") else { return };
    for (target, udp) in udp_targets(config) {
        let Some(asked) = udp.send_buffer_bytes else { continue };

        let (asked, granted) = (asked as u64, wmem_max.saturating_mul(2));
        let what = format!("send buffer of {}", target.name);

        findings.push(if asked <= granted {
            Finding::new(Severity::Ok, what, format!("{} will be granted", size(asked)))
        } else {
            let (asked_text, granted) = (size(asked), size(granted));
            Finding::new(Severity::Advice, what, format!("asks for {asked_text}, would get {granted}"))
                .because(format!(
                    "net.core.wmem_max is {wmem_max}; the target waits in the ring sooner, and loses nothing until that is full"
                ))
                .fixed_by(format!("sudo sysctl -w net.core.wmem_max={}", asked.div_ceil(2)))
        });
    }
}

/// The queue of a unix datagram socket is limited by the number of datagrams, not by their size.
const UNIX_QUEUE_WANTED: u64 = 512;

fn unix_queues(host: &Host, config: &Config, findings: &mut Vec<Finding>) {
    let Some(len) = host.sysctl("net.unix.max_dgram_qlen") else { return };
    let value = format!("{len} datagrams wait at most (net.unix.max_dgram_qlen)");
    let command = format!(
        "sudo sysctl -w net.unix.max_dgram_qlen={UNIX_QUEUE_WANTED}   (then restart the receiving program)"
    );

    for listener in &config.listeners {
        if let Listen::Unix(_) = listener.listen {
            let what = format!("queue of {}", listener.name);
            findings.push(if len >= UNIX_QUEUE_WANTED {
                Finding::new(Severity::Ok, what, &*value)
            } else {
                Finding::new(Severity::Warning, what, &*value)
                    .because("beyond that a sender waits, and one that does not wait (StatsD clients) loses its datagram")
                    .fixed_by(&*command)
            });
        }

        for target in &listener.targets {
            if let Target::Unix(_) = target.to
                && len < UNIX_QUEUE_WANTED
            {
                findings.push(
                    Finding::new(
                        Severity::Advice,
                        format!("queue behind {}", target.name),
                        &*value,
                    )
                    .because("a full queue makes this target wait, and it falls behind in the ring")
                    .fixed_by(&*command),
                );
            }
        }
    }
}

/// Packets wait in this queue, one per processor, before the kernel finds their socket.
fn backlog(host: &Host) -> Option<Finding> {
    const USUAL: u64 = 1_000;
    let len = host.sysctl("net.core.netdev_max_backlog")?;
    let drops = host.softnet_drops().unwrap_or(0);

    let what = "net.core.netdev_max_backlog";
    let value = format!("{len} packets a processor, {drops} dropped since the host started");
    let why = "packets dropped there are in no socket's count; above some 100 thousand datagrams a second, raise it";
    let command = format!("sudo sysctl -w net.core.netdev_max_backlog={}", (len * 4).max(USUAL));

    Some(if len < USUAL {
        Finding::new(Severity::Warning, what, value).because(why).fixed_by(command)
    } else if drops > 0 {
        Finding::new(Severity::Advice, what, value).because(why).fixed_by(command)
    } else {
        Finding::new(Severity::Ok, what, value)
    })
}

/// Past losses do not predict future ones. These findings never become warnings, since no command would clear them.
fn lost_in_buffers(host: &Host) -> Option<Finding> {
    let full = host.snmp("Udp", "RcvbufErrors")?;
    let what = "datagrams lost at UDP sockets";
    let value = format!("{full} since this network namespace was made (RcvbufErrors)");
    if full == 0 {
        return Some(Finding::new(Severity::Ok, what, value));
    }
    Some(
        Finding::new(Severity::Advice, what, value)
            .because("some socket's buffer was full; the column DROPS says which")
            .fixed_by("weir sockets -uap"),
    )
}
