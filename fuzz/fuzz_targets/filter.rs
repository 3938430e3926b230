//! Any text is a filter or an error that points into it. A filter prints as a text that is read as the same filter. And on
//! any socket its parts decide as the whole does: the states and the program of the request, and the rest.
//!
//! The input is a text, a zero byte, and sockets of 48 bytes each.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sockets::filter::{Facts, Filter, Names, Target};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use wire::inet_diag::bytecode::{self, Entry, Operations, Privilege};
use wire::inet_diag::{Family, SocketId, SocketMessage, State, States};

const SOCKET_BYTES: usize = 48;
const LOCAL_PORTS: (u16, u16) = (0, u16::MAX);

fuzz_target!(|bytes: &[u8]| {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let (text, sockets) = bytes.split_at(end);
    let text = String::from_utf8_lossy(text);
    match Filter::parse_with(&text, &FewNames) {
        Ok(filter) => {
            let printed = filter.to_string();
            let again = Filter::parse_with(&printed, &FewNames);
            assert_eq!(again.as_ref(), Ok(&filter), "{text:?} is printed as {printed:?}");
            for operations in [Operations::ALL, Operations::BASIC] {
                decides_alike(&filter, operations, sockets.get(1..).unwrap_or_default());
            }
        }
        Err(error) => {
            assert!(text.get(error.span.clone()).is_some(), "{error:?} in {text:?}");
            assert!(!error.message.is_empty() && error.to_string().contains('^'));
        }
    }
});

fn decides_alike(filter: &Filter, operations: Operations, sockets: &[u8]) {
    let target = Target {
        operations,
        default_states: States::ALL,
        local_ports: LOCAL_PORTS,
        ..Target::new(&FewNames)
    };
    let compiled = filter.compile(&target);
    let program = &compiled.bytecode;
    assert!(
        program.is_empty() || bytecode::audit(program, Privilege::NetAdmin).is_ok(),
        "{filter}: {program:?}"
    );
    assert!(!filter.explain(&target).is_empty());
    for bytes in sockets.as_chunks::<SOCKET_BYTES>().0 {
        let (message, entry) = socket(bytes);
        let interface = ["", "lo", "eth0"].get(message.id.interface_index as usize).copied();
        let facts = Facts {
            netns: Some("blue"),
            interface,
            local_ports: Some(LOCAL_PORTS),
            ..Facts::default()
        };
        let asked = compiled.states.contains(message.state);
        let split = asked && bytecode::run(program, &entry) && compiled.matches(&message, &facts);
        assert_eq!(split, filter.matches(&message, &facts), "{filter} on {message:?}");
    }
}

fn socket(bytes: &[u8; SOCKET_BYTES]) -> (SocketMessage<'static>, Entry) {
    let at = |offset: usize| bytes[offset];
    let word = |offset: usize| u16::from_ne_bytes([at(offset), at(offset + 1)]);
    let address = |offset: usize| -> IpAddr {
        let octets: [u8; 16] = bytes[offset..offset + 16].try_into().expect("sixteen bytes");
        match at(0) % 3 {
            0 => Ipv4Addr::new(octets[0], octets[1], octets[2], octets[3]).into(),
            1 => Ipv4Addr::new(octets[0], octets[1], octets[2], octets[3]).to_ipv6_mapped().into(),
            _ => Ipv6Addr::from(octets).into(),
        }
    };
    let src = SocketAddr::new(address(4), word(36));
    let dst = SocketAddr::new(address(20), word(38));
    let family = if src.is_ipv4() { Family::Inet } else { Family::Inet6 };
    let id = SocketId { src, dst, interface_index: u32::from(at(1) % 3), cookie: at(2).into() };
    let state = State::from_number(1 + at(3) % 11);
    let mut message = SocketMessage::new(family, state, id);
    message.mark = Some(at(40).into());
    message.cgroup_id = Some(at(41).into());
    message.uid = at(42).into();
    message.receive_queue = word(44).into();
    message.type_of_service = (at(46) > 0).then_some(at(46));
    message.traffic_class = (at(47) > 0).then_some(at(47));
    message.congestion = [None, Some("bbr"), Some("cubic")][usize::from(at(43) % 3)];
    let entry = Entry {
        source: src.ip(),
        destination: dst.ip(),
        source_port: src.port(),
        destination_port: dst.port(),
        interface_index: id.interface_index,
        // All ports are those that the kernel chooses from, so this is what evaluation takes it for.
        autobound: true,
        mark: at(40).into(),
        cgroup_id: at(41).into(),
    };
    (message, entry)
}

/// A few names, so that no input asks a resolver.
struct FewNames;

impl Names for FewNames {
    fn service(&self, name: &str) -> Option<u16> {
        (name == "http").then_some(80)
    }

    fn host(&self, name: &str) -> Vec<IpAddr> {
        if name == "localhost" {
            vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]
        } else {
            Vec::new()
        }
    }

    fn user(&self, name: &str) -> Option<u32> {
        (name == "root").then_some(0)
    }

    fn device(&self, name: &str) -> Option<u32> {
        ["lo", "eth0"].iter().position(|known| *known == name).map(|at| at as u32 + 1)
    }

    fn cgroup(&self, path: &str) -> Option<u64> {
        path.strip_prefix("/c").and_then(|id| id.parse().ok())
    }
}
