//! Devices created through rtnetlink, in namespaces that are mounted nowhere.

use std::net::UdpSocket;
use std::time::Duration;
use sys::Errno;
use sys::link::{Error, Links};
use sys::namespace::{self, OpenNamespace};
use testkit::{need_root_netns, within};

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn a_namespace_is_made_without_moving_the_caller_and_goes_with_its_descriptor() {
    if !need_root_netns() {
        return;
    }
    let own = namespace::own().unwrap();
    let (kept, watched) = (OpenNamespace::create().unwrap(), OpenNamespace::create().unwrap());
    assert_eq!(namespace::own().unwrap(), own);
    assert!(kept.id() != own && watched.id() != own && kept.id() != watched.id());
    assert_eq!(watched.run(|| namespace::own().unwrap()), Ok(watched.id()));
    // A veth pair ends with either of its namespaces, so the remaining end shows when the other
    // namespace is gone.
    let mut links = Links::open(&kept).unwrap();
    links.add_veth("here", "there", &watched).unwrap();
    links.device("here").unwrap();
    drop(watched);
    assert!(within(MINUTE, || links.device("here").is_err()));
}

#[test]
fn what_is_made_is_what_was_asked_for() {
    if !need_root_netns() {
        return;
    }
    let (left, right) = (OpenNamespace::create().unwrap(), OpenNamespace::create().unwrap());
    let mut links = Links::open(&left).unwrap();
    links.add_veth("l0", "r0", &right).unwrap();
    let device = links.device("l0").unwrap();
    assert!(!device.is_up && !device.is_operational && device.index > 1);
    assert_eq!(device.mtu_bytes, 1_500);
    links.set_mtu("l0", 1_400).unwrap();
    links.set_gso_max_segs("l0", 1).unwrap();
    links.set_up("l0").unwrap();
    Links::open(&right).unwrap().set_up("r0").unwrap();
    assert!(within(MINUTE, || links.device("l0").unwrap().is_operational));
    let device = links.device("l0").unwrap();
    assert!(device.is_up && device.mtu_bytes == 1_400 && device.gso_max_segs == Some(1));
    links.delete("l0").unwrap();
    assert_eq!(links.device("l0").unwrap_err().errno(), Some(Errno::NODEV));
    assert!(Links::open(&right).unwrap().device("r0").is_err());
}

#[test]
fn datagrams_cross_a_bridge_and_are_counted() {
    if !need_root_netns() {
        return;
    }
    let bridged = Bridged::new();
    let [first, second] = ["10.0.0.1:0", "10.0.0.2:0"];
    let receiver = bridged.hosts[1].run(|| UdpSocket::bind(second).unwrap()).unwrap();
    let sender = bridged.hosts[0].run(|| UdpSocket::bind(first).unwrap()).unwrap();
    receiver.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let mut buf = [0; 2_000];
    let has_arrived = within(MINUTE, || {
        let _ = sender.send_to(&[7; 1_000], receiver.local_addr().unwrap());
        receiver
            .recv_from(&mut buf)
            .is_ok_and(|(len, src)| len == 1_000 && src == sender.local_addr().unwrap())
    });
    assert!(has_arrived);
    let statistics = Links::open(&bridged.hosts[1]).unwrap().device("eth").unwrap().statistics;
    assert!(statistics.received_packets >= 1 && statistics.received_bytes >= 1_042);
}

/// Two namespaces, each connected to a bridge in a third.
struct Bridged {
    hosts: [OpenNamespace; 2],
    _switch: OpenNamespace,
}

impl Bridged {
    fn new() -> Bridged {
        let hosts = [(); 2].map(|()| OpenNamespace::create().unwrap());
        let switch = OpenNamespace::create().unwrap();
        let mut ports = Links::open(&switch).unwrap();
        ports.add_bridge("br").unwrap();
        ports.set_up("br").unwrap();
        for (number, host) in hosts.iter().enumerate() {
            let port = format!("port{number}");
            ports.add_veth(&port, "eth", host).unwrap();
            let mut links = Links::open(host).unwrap();
            links.add_address("eth", [10, 0, 0, number as u8 + 1].into(), 24).unwrap();
            links.set_up("eth").unwrap();
            ports.set_up(&port).unwrap();
            ports.set_master(&port, "br").unwrap();
        }
        Bridged { hosts, _switch: switch }
    }
}

#[test]
fn an_error_names_the_call_and_the_device_and_keeps_the_kernels_words() {
    if !need_root_netns() {
        return;
    }
    let (left, right) = (OpenNamespace::create().unwrap(), OpenNamespace::create().unwrap());
    let mut links = Links::open(&left).unwrap();
    links.add_bridge("br").unwrap();
    let taken = links.add_veth("br", "r0", &right).unwrap_err();
    assert_eq!(taken.errno(), Some(Errno::EXIST));
    assert!(taken.to_string().starts_with("RTM_NEWLINK (veth) on br: File exists"), "{taken}");
    let refused = links.set_mtu("br", 1).unwrap_err();
    let Error::Refused { call, device, explanation, .. } = &refused else { panic!("{refused}") };
    assert_eq!((*call, device.as_str()), ("RTM_NEWLINK (mtu)", "br"));
    assert_eq!(explanation.as_deref(), Some("mtu less than device minimum"));
    assert_eq!(links.set_up("none").unwrap_err().errno(), Some(Errno::NODEV));
}

#[test]
fn without_privilege_nothing_is_made() {
    if !need_root_netns() {
        return;
    }
    let visit = || {
        sys::process::keep_capabilities(0).unwrap();
        let error = OpenNamespace::create().unwrap_err();
        assert_eq!(error.to_string(), "unshare of a network namespace needs CAP_SYS_ADMIN");
    };
    std::thread::scope(|scope| scope.spawn(visit).join().unwrap());
}
