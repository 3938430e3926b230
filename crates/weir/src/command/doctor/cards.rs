//! Which processors do the kernel's part of receiving, and whether a listener's threads are close to them.

use super::{Finding, Host, Severity};
use config::{Config, ListenerConfig};
use sys::cpus::CpuList;

pub(super) fn examine(host: &Host, config: Option<&Config>, findings: &mut Vec<Finding>) {
    let nodes = nodes(host);
    for card in cards(host) {
        findings.push(queues(host, &card));
        for listener in config.into_iter().flat_map(|config| &config.listeners) {
            findings.extend(far(listener, &card, &nodes));
        }
    }
}

/// A network card: a device with hardware, or what a hypervisor presents as one.
struct Card {
    name: String,
    /// Number of receive queues.
    queues: usize,
    /// Number of receive queues that the kernel spreads over processors (RPS).
    spread: usize,
    /// The processors that handle its interrupts; empty if unknown.
    irq_cpus: CpuList,
    /// Its interrupts.
    irqs: Vec<String>,
    /// The memory node it is attached to, if the host has several.
    node: Option<usize>,
}

fn cards(host: &Host) -> Vec<Card> {
    let mut cards: Vec<_> = host
        .names("sys/class/net")
        .into_iter()
        .filter_map(|name| {
            let of_card = |path: &str| format!("sys/class/net/{name}/{path}");
            // Interfaces without a device, such as lo, veth and bridges, have no relevant queues.
            if !host.has(&of_card("device")) {
                return None;
            }

            let queues: Vec<_> = host.names(&of_card("queues"));
            let queues: Vec<_> = queues.iter().filter(|queue| queue.starts_with("rx-")).collect();
            let is_spread = |queue: &&&String| {
                let mask = host.read(&of_card(&format!("queues/{queue}/rps_cpus")));
                mask.is_some_and(|mask| mask.chars().any(|c| matches!(c, '1'..='9' | 'a'..='f')))
            };

            // A virtual card's interrupts are those of its PCI device.
            let device = ["device", "device/.."].map(of_card);
            let mut irqs =
                device.iter().flat_map(|device| host.names(&format!("{device}/msi_irqs")));
            let irqs: Vec<String> = irqs.by_ref().collect();
            let node = device.iter().find_map(|device| host.read(&format!("{device}/numa_node")));
            Some(Card {
                queues: queues.len(),
                spread: queues.iter().filter(is_spread).count(),
                irq_cpus: irq_cpus(host, &irqs),
                irqs,
                node: node.and_then(|node| node.trim().parse().ok()),
                name,
            })
        })
        .collect();
    cards.sort_by(|a, b| a.name.cmp(&b.name));
    cards
}

/// The union of the processors that handle these interrupts.
fn irq_cpus(host: &Host, irqs: &[String]) -> CpuList {
    let of = |irq: &String| {
        let files = ["effective_affinity_list", "smp_affinity_list"];
        let read = |file| host.read(&format!("proc/irq/{irq}/{file}"));
        let text = files.into_iter().find_map(read)?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    let all: Vec<_> = irqs.iter().filter_map(of).collect();
    all.join(",").parse().unwrap_or_default()
}

/// The processors of each memory node; at most one node on a host without NUMA.
fn nodes(host: &Host) -> Vec<(usize, CpuList)> {
    let of = |name: &String| {
        let number = name.strip_prefix("node")?.parse().ok()?;
        let cpus = host.read(&format!("sys/devices/system/node/{name}/cpulist"))?;
        Some((number, cpus.trim().parse().ok()?))
    };
    host.names("sys/devices/system/node").iter().filter_map(of).collect()
}

/// How many processors do the kernel's part of receiving from a card.
fn queues(host: &Host, card: &Card) -> Finding {
    let Card { name, queues, irq_cpus, .. } = card;
    let cpus = host.cpu_count();
    let plural = if *queues == 1 { "queue" } else { "queues" };
    let at = match irq_cpus.numbers().len() {
        0 => String::new(),
        1 => format!(", interrupts at processor {irq_cpus}"),
        _ => format!(", interrupts at processors {irq_cpus}"),
    };
    let value = format!("{queues} receive {plural}{at}, {cpus} processors");

    let what = format!("card {name}");
    let is_alone = *queues == 1 && card.spread == 0;
    let is_crowded = *queues > 1 && irq_cpus.numbers().len() == 1;
    if cpus == 1 || !(is_alone || is_crowded) {
        return Finding::new(Severity::Ok, what, value);
    }

    let why = "one processor does the kernel's part of all that arrives there; when it is busy, datagrams are dropped before any socket (softnet, rx_missed), and sockets = N does not help";
    let finding = Finding::new(Severity::Advice, what, value).because(why);
    match (is_crowded, card.irqs.last()) {
        (true, Some(irq)) => finding.fixed_by(format!(
            "sudo systemctl start irqbalance   or one by one: echo 0-{} | sudo tee /proc/irq/{irq}/smp_affinity_list",
            cpus - 1
        )),
        _ => finding.fixed_by(format!(
            "sudo ethtool -L {name} combined {cpus}   or, where the card has one queue: echo {} | sudo tee /sys/class/net/{name}/queues/rx-0/rps_cpus",
            mask(cpus)
        )),
    }
}

/// A mask of the first `cpus` processors, as the kernel writes it: hexadecimal groups of 32 bits.
fn mask(cpus: usize) -> String {
    let groups = cpus.div_ceil(32).max(1);
    let rest = cpus - (groups - 1) * 32;
    let first = if rest >= 32 { u32::MAX } else { (1 << rest) - 1 };
    let full = std::iter::repeat_n("ffffffff".to_owned(), groups - 1);
    std::iter::once(format!("{first:x}")).chain(full).collect::<Vec<_>>().join(",")
}

/// A finding if a listener's threads run far from the card's memory.
fn far(listener: &ListenerConfig, card: &Card, nodes: &[(usize, CpuList)]) -> Option<Finding> {
    let (cpus, node) = (listener.cpus.as_ref()?, card.node?);
    let (_, near) = nodes.iter().find(|(number, _)| *number == node)?;
    let elsewhere = cpus.without(near);
    (nodes.len() > 1 && !elsewhere.is_empty()).then(|| {
        let what = format!("listener {}", listener.name);
        let value = format!("cpus = \"{cpus}\", and {elsewhere} is not at node {node}, where {} is", card.name);
        Finding::new(Severity::Advice, what, value)
            .because("each datagram is then read over the link between the processors, at about half the speed of near memory")
            .fixed_by(format!("write cpus = \"{near}\", if the listener's datagrams come by {}", card.name))
    })
}
