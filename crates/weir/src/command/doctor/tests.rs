use super::*;
use std::fs;

/// A host made of files, removed at the end.
struct Tree(PathBuf);

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const NO_CAPABILITIES: &str = "Name:\tweir\nCapEff:\t0000000000000000\n";

/// An unchanged host, seen without privileges.
const USUAL: &[(&str, &str)] = &[
    ("proc/sys/net/core/rmem_max", "212992\n"),
    ("proc/sys/net/core/rmem_default", "212992\n"),
    ("proc/sys/net/core/wmem_max", "212992\n"),
    ("proc/sys/net/core/netdev_max_backlog", "1000\n"),
    ("proc/sys/net/ipv4/ip_unprivileged_port_start", "1024\n"),
    ("proc/sys/net/ipv4/udp_mem", "190000\t254000\t380000\n"),
    ("proc/sys/net/ipv4/icmp_ratelimit", "1000\n"),
    ("proc/sys/net/ipv4/neigh/default/unres_qlen_bytes", "212992\n"),
    ("proc/sys/net/ipv4/conf/all/rp_filter", "0\n"),
    ("proc/sys/net/ipv4/conf/default/rp_filter", "0\n"),
    ("proc/sys/net/unix/max_dgram_qlen", "10\n"),
    ("proc/self/status", NO_CAPABILITIES),
    (
        "proc/self/limits",
        "Limit  Soft Limit\nMax open files            1024                 4096  files\n",
    ),
    ("proc/net/softnet_stat", "0000aaaa 00000000 0 0\n0000bbbb 00000000 0 0\n"),
    (
        "proc/net/snmp",
        "Udp: InDatagrams NoPorts RcvbufErrors\nUdp: 5 0 0\nUdpLite: InDatagrams\nUdpLite: 0\n",
    ),
];

fn host(name: &str, changes: &[(&str, &str)]) -> (Tree, Host) {
    let root = std::env::temp_dir().join(format!("weir-doctor-{}-{name}", std::process::id()));
    for (path, text) in USUAL.iter().chain(changes) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let host = Host::at(&root, "/usr/bin/weir");
    (Tree(root), host)
}

/// The findings that are not fine, on a usual host with these changes.
fn found(name: &str, changes: &[(&str, &str)], config: Option<&str>) -> String {
    let (_tree, host) = host(name, changes);
    let config = config.map(|text| Config::parse(text, "t").unwrap());
    let mut findings = examine(&host, config.as_ref());
    findings.retain(|finding| finding.severity != Severity::Ok);
    text(&findings)
}

/// A small listener with a target on this host, which a usual host serves without loss.
const SMALL: &str = "[[listener]]\nname='l'\nlisten=':5514'\nreceive_buffer='208KiB'\n[[listener.target]]\n\
                     name='t'\nto='127.0.0.1:5515'\n";

#[test]
fn a_usual_host_is_enough_for_a_small_relay() {
    assert_eq!(found("usual", &[], Some(SMALL)), "");
}

#[test]
fn receive_buffer_beyond_the_limit() {
    assert_eq!(
        found("rmem", &[], Some(&SMALL.replace("208KiB", "16MiB"))),
        "WARNING  receive buffer of l: asks for 16 MiB (about 13107 datagrams of 200 bytes), would get 416 KiB (about \
         332 datagrams of 200 bytes)\n         net.core.rmem_max is 212992 and CAP_NET_ADMIN is missing; what a burst \
         brings beyond the buffer is lost\n         Fix: sudo sysctl -w net.core.rmem_max=8388608   or: sudo setcap \
         cap_net_admin=+ep /usr/bin/weir\n"
    );
    let admin = ("proc/self/status", "CapEff:\t0000000000001000\n");
    assert_eq!(found("admin", &[admin], Some(&SMALL.replace("208KiB", "16MiB"))), "");
    let raised = ("proc/sys/net/core/rmem_max", "8388608");
    assert_eq!(found("raised", &[raised], Some(&SMALL.replace("208KiB", "16MiB"))), "");
}

#[test]
fn without_a_configuration_the_default_is_assumed() {
    let text = found("none", &[], None);
    assert!(text.starts_with("WARNING  receive buffer: asks for 16 MiB"), "{text}");
    assert_eq!(text.lines().count(), 3, "{text}");
}

#[test]
fn a_low_port_needs_a_capability() {
    let config = SMALL.replace(":5514", ":514").replace("208KiB", "16MiB");
    let text = found("port", &[("proc/sys/net/core/rmem_max", "8388608")], Some(&config));
    assert_eq!(
        text,
        "ERROR    listener l: port 514 needs CAP_NET_BIND_SERVICE\n         ports below 1024 \
         (net.ipv4.ip_unprivileged_port_start) are refused without it; a service manager may also hand the socket over \
         (deploy/systemd/weir.socket)\n         Fix: sudo setcap cap_net_bind_service=+ep /usr/bin/weir\n"
    );
    let both = found("both", &[], Some(&config));
    assert!(
        both.contains("setcap cap_net_bind_service,cap_net_admin=+ep /usr/bin/weir\n"),
        "{both}"
    );
    let capable = ("proc/self/status", "CapEff:\t0000000000000400\n");
    let raised = ("proc/sys/net/core/rmem_max", "8388608");
    assert_eq!(found("capable", &[capable, raised], Some(&config)), "");
    let open = ("proc/sys/net/ipv4/ip_unprivileged_port_start", "0");
    assert_eq!(found("open", &[open, raised], Some(&config)), "");
}

#[test]
fn a_fixed_source_port_under_connection_tracking() {
    let config = format!("{SMALL}source_port = 56565\n");
    assert_eq!(found("untracked", &[], Some(&config)), "");
    let tracked = [
        ("proc/sys/net/netfilter/nf_conntrack_max", "1000"),
        ("proc/sys/net/netfilter/nf_conntrack_count", "5"),
    ];
    let text = found("tracked", &tracked, Some(&config));
    assert!(
        text.starts_with(
            "WARNING  target t: fixed source_port 56565 while connection tracking is loaded\n"
        ),
        "{text}"
    );
    assert!(
        text.ends_with(
            "Fix: sudo iptables -t raw -A OUTPUT -p udp --sport 56565 -j CT --notrack\n"
        )
    );
    assert_eq!(found("tracked-free", &tracked, Some(SMALL)), "");
    let full = [tracked[0], ("proc/sys/net/netfilter/nf_conntrack_count", "900")];
    let text = found("full", &full, Some(SMALL));
    assert!(
        text.starts_with("WARNING  connection tracking: 900 of 1000 entries in use\n"),
        "{text}"
    );
    assert!(text.ends_with("Fix: sudo sysctl -w net.netfilter.nf_conntrack_max=2000\n"), "{text}");
}

#[test]
fn what_was_lost_so_far_is_advice() {
    let lost = [
        ("proc/net/snmp", "Udp: InDatagrams NoPorts RcvbufErrors\nUdp: 5 0 7\n"),
        ("proc/net/snmp6", "Udp6RcvbufErrors                \t3\n"),
        ("proc/net/softnet_stat", "0000aaaa 0000000a 0 0\n0000bbbb 00000001 0 0\n"),
    ];
    let text = found("lost", &lost, Some(SMALL));
    assert!(text.contains("advice   datagrams lost at UDP sockets: 10 since"), "{text}");
    assert!(text.contains("1000 packets a processor, 11 dropped since"), "{text}");
    assert!(text.contains("Fix: sudo sysctl -w net.core.netdev_max_backlog=4000\n"), "{text}");
    assert!(!text.contains("WARNING"), "{text}");
}

#[test]
fn unix_queues_are_short() {
    let config = "[[listener]]\nname='l'\nlisten='unix:/run/x'\n[[listener.target]]\nname='t'\nto='unix:/dev/log'\n";
    let text = found("unix", &[], Some(config));
    assert!(text.starts_with("WARNING  queue of l: 10 datagrams wait at most"), "{text}");
    assert!(text.contains("advice   queue behind t: 10 datagrams wait at most"), "{text}");
    assert_eq!(
        found("unix-long", &[("proc/sys/net/unix/max_dgram_qlen", "512")], Some(config)),
        ""
    );
}

#[test]
fn limits_of_the_way_out() {
    let config = SMALL.replace("127.0.0.1:5515", "10.0.0.1:514") + "send_buffer = '4MiB'\n";
    let text = found(
        "out",
        &[("proc/sys/net/ipv4/neigh/default/unres_qlen_bytes", "65536")],
        Some(&config),
    );
    assert!(text.contains("WARNING  net.ipv4.neigh.default.unres_qlen_bytes: 64 KiB"), "{text}");
    assert!(
        text.contains("advice   send buffer of t: asks for 4 MiB, would get 416 KiB\n"),
        "{text}"
    );
    assert!(text.contains("Fix: sudo sysctl -w net.core.wmem_max=2097152\n"), "{text}");
    assert!(text.contains("advice   ICMP errors: at most one error each 1000 ms"), "{text}");
}

#[test]
fn a_strict_reverse_path_filter_hides_groups() {
    let config = SMALL.replace(":5514'", "239.0.0.1:5514'\nmulticast_interface='eth0.7'");
    assert_eq!(
        found("loose", &[("proc/sys/net/ipv4/conf/eth0.7/rp_filter", "2")], Some(&config)),
        ""
    );
    let text = found("strict", &[("proc/sys/net/ipv4/conf/eth0.7/rp_filter", "1")], Some(&config));
    assert!(text.starts_with("WARNING  reverse path filter for l: strict"), "{text}");
    assert!(text.ends_with("Fix: sudo sysctl -w net.ipv4.conf.eth0/7.rp_filter=2\n"), "{text}");
}

#[test]
fn kept_sources_need_a_capability_and_a_network_that_lets_them_pass() {
    let config = format!("{SMALL}preserve_source='address+port'\nsource_sockets=10\n");
    let text = found("kept", &[], Some(&config));
    for part in [
        "ERROR    source addresses for t: preserve_source needs CAP_NET_RAW\n",
        "Fix: sudo setcap cap_net_raw=+ep /usr/bin/weir\n",
        "advice   source addresses for t: those of the senders (preserve_source)\n",
        "advice   source addresses for t: but no ports below 1024\n",
        "advice   source addresses for t: but not port 5514\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }

    // Bits 10 and 13.
    let status = ("proc/self/status", "Name:\tweir\nCapEff:\t0000000000002400\n");
    let config = config.replace(":5514'", "127.0.0.1:5514'");
    let text = found("kept-root", &[status], Some(&config));
    assert!(text.starts_with("advice   source addresses for t: those"), "{text}");
    assert!(!text.contains("but"), "{text}");

    let config = config.replace("sockets=10", "sockets=4096");
    let text = found("kept-files", &[status], Some(&config));
    assert!(text.starts_with("WARNING  open files: 1024 allowed, 8262 needed"), "{text}");
}

#[test]
fn limits_of_the_process_and_of_all_sockets() {
    let files = ("proc/self/limits", "Max open files            64                 64  files\n");
    let text = found("files", &[files], Some(SMALL));
    assert!(text.starts_with("WARNING  open files: 64 allowed, 70 needed\n"), "{text}");
    let memory = ("proc/sys/net/ipv4/udp_mem", "10\t20\t30\n");
    let text = found("memory", &[memory], Some(SMALL));
    assert!(text.starts_with("WARNING  memory of all UDP sockets: 120 KiB for the host"), "{text}");
}

#[test]
fn a_host_that_shows_nothing_is_no_reason_to_fail() {
    let host = Host::at(Path::new("/nowhere/at/all"), "weir");
    let findings = examine(&host, None);
    // A socket says itself what it is granted.
    let mut others = findings.iter().filter(|finding| finding.what != "receive buffer");
    assert!(others.all(|finding| finding.severity >= Severity::Advice), "{findings:?}");
}

/// A host with `count` namespaces, half of them mounted.
fn with_namespaces(name: &str, count: usize, changes: &[(&str, &str)]) -> (Tree, Host) {
    let mounts: String = (0..count / 2)
        .map(|at| {
            format!("{at} 27 0:4 net:[{}] /run/netns/n{at} rw shared:1 - nsfs nsfs rw\n", at + 1)
        })
        .collect();
    let (tree, host) = host(name, changes);
    fs::write(tree.0.join("proc/self/mountinfo"), mounts).unwrap();
    for process in 1..=count {
        let folder = tree.0.join(format!("proc/{process}/ns"));
        fs::create_dir_all(&folder).unwrap();
        std::os::unix::fs::symlink(format!("net:[{process}]"), folder.join("net")).unwrap();
    }
    (tree, host)
}

#[test]
fn many_namespaces_that_share_the_table_of_connections() {
    const SHARED: &[(&str, &str)] = &[
        ("proc/sys/net/ipv4/tcp_ehash_entries", "262144\n"),
        ("proc/sys/net/ipv4/tcp_child_ehash_entries", "0\n"),
    ];
    let collector = "[sockets]\n[[sink]]\nfrom=['sockets']\nto='null:'\n";
    let own = collector.replace("]\n[[", "]\nnamespaces='own'\n[[");
    let found = |name: &str, count, changes: &[_], config: &str| {
        let (_tree, host) = with_namespaces(name, count, changes);
        let mut findings = examine(&host, Some(&Config::parse(config, "t").unwrap()));
        findings.retain(|finding| finding.what == "tables of connections");
        text(&findings)
    };
    assert_eq!(
        found("shared", 100, SHARED, collector),
        "advice   tables of connections: 100 network namespaces, net.ipv4.tcp_child_ehash_entries = 0\n         all share \
         one table of 262144 entries, and each poll of the socket collector walks it once for each namespace: up to 19 ms; \
         with tables of their own 0.3 ms. This holds for namespaces that are made from then on\n         Fix: sudo sysctl \
         -w net.ipv4.tcp_child_ehash_entries=4096\n"
    );
    let inside = [("proc/sys/net/ipv4/tcp_ehash_entries", "-262144\n"), SHARED[1]];
    assert!(found("inside", 100, &inside, collector).contains("262144 entries"));
    let raised = [SHARED[0], ("proc/sys/net/ipv4/tcp_child_ehash_entries", "4096\n")];
    assert!(found("raised", 100, &raised, collector).starts_with("ok "));
    assert_eq!(found("few", 15, SHARED, collector), "");
    assert_eq!(found("own", 100, SHARED, &own), "");
    assert_eq!(found("no-collector", 100, SHARED, SMALL), "");
    assert_eq!(found("old-kernel", 100, &[], collector), "");
}

/// A card with this many queues, whose interrupts are handled by these processors, on this node.
fn card(queues: usize, irqs: &[&str], node: &str) -> Vec<(String, String)> {
    let mut files = vec![
        ("sys/devices/system/cpu/online".to_owned(), "0-39\n".to_owned()),
        ("sys/devices/system/node/node0/cpulist".to_owned(), "0-19\n".to_owned()),
        ("sys/devices/system/node/node1/cpulist".to_owned(), "20-39\n".to_owned()),
        ("sys/class/net/eth0/device/numa_node".to_owned(), format!("{node}\n")),
    ];
    for queue in 0..queues {
        files.push((
            format!("sys/class/net/eth0/queues/rx-{queue}/rps_cpus"),
            "00,00000000\n".into(),
        ));
    }
    for (irq, cpus) in irqs.iter().enumerate() {
        files.push((format!("sys/class/net/eth0/device/msi_irqs/{}", 30 + irq), String::new()));
        files.push((format!("proc/irq/{}/smp_affinity_list", 30 + irq), format!("{cpus}\n")));
    }
    files
}

fn found_with(name: &str, files: &[(String, String)], config: Option<&str>) -> String {
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    found(name, &files, config)
}

#[test]
fn a_card_whose_interrupts_are_all_at_one_processor_is_told() {
    let one = found_with("one-queue", &card(1, &["3"], "-1"), None);
    for part in [
        "card eth0: 1 receive queue, interrupts at processor 3, 40 processors\n",
        "Fix: sudo ethtool -L eth0 combined 40",
        "echo ff,ffffffff | sudo tee /sys/class/net/eth0/queues/rx-0/rps_cpus\n",
    ] {
        assert!(one.contains(part), "{part}: {one}");
    }
    let crowded = found_with("crowded", &card(4, &["3", "3"], "-1"), None);
    assert!(crowded.contains("4 receive queues, interrupts at processor 3"), "{crowded}");
    assert!(crowded.contains("echo 0-39 | sudo tee /proc/irq/31/smp_affinity_list"), "{crowded}");

    let mut spread = card(1, &["3"], "-1");
    spread.iter_mut().filter(|(path, _)| path.ends_with("rps_cpus")).for_each(|(_, mask)| {
        "ff,ffffffff\n".clone_into(mask);
    });
    assert!(!found_with("spread", &spread, None).contains("eth0"));
    assert!(!found_with("even", &card(2, &["3", "4"], "-1"), None).contains("eth0"));
}

#[test]
fn a_listener_far_from_the_card_is_told() {
    let at = |cpus: &str| {
        format!(
            "[[listener]]\nname = \"in\"\nlisten = \"127.0.0.1:5514\"\ncpus = \"{cpus}\"\n[[listener.target]]\nto = \"null:\"\n"
        )
    };
    let card = card(2, &["3", "4"], "1");
    let far = found_with("far", &card, Some(&at("18-21")));
    assert!(
        far.contains("listener in: cpus = \"18-21\", and 18-19 is not at node 1, where eth0 is\n"),
        "{far}"
    );
    assert!(
        far.contains("Fix: write cpus = \"20-39\", if the listener's datagrams come by eth0\n"),
        "{far}"
    );
    assert!(!found_with("near", &card, Some(&at("20-23"))).contains("node 1"));
}

#[test]
fn generated_screens() {
    let raised = ("proc/sys/net/core/netdev_max_backlog", "1000\n");
    let (_tree, host) = host("screens", &[raised]);
    let config = Config::parse(&SMALL.replace("208KiB", "16MiB"), "t").unwrap();
    let findings = examine(&host, Some(&config));
    crate::screen::check("doctor", |_| text(&findings) + &summary(&findings));
}
