//! Addresses that loop, and addresses with options as the command line has them.

use super::messages;
use config::{Config, would_loop};
use std::net::SocketAddr;

fn would(listen: &[&str], target: &str, local: &[&str], expected: Option<&str>) {
    let listen: Vec<SocketAddr> =
        listen.iter().map(|addr| addr.parse().expect("an address")).collect();
    let local: Vec<_> = local.iter().map(|addr| addr.parse().expect("an address")).collect();
    let found = would_loop(&listen, target.parse().expect("an address"), &local);
    assert_eq!(found, expected.map(|addr| addr.parse().expect("an address")), "{target}");
}

#[test]
fn loops_over_addresses() {
    would(&["10.0.0.1:5", "10.0.0.2:5"], "10.0.0.2:5", &[], Some("10.0.0.2:5"));
    would(&["0.0.0.0:5"], "127.9.9.9:5", &[], Some("0.0.0.0:5"));
    would(&["0.0.0.0:5"], "10.0.0.1:5", &[], None);
    would(&["0.0.0.0:5"], "10.0.0.1:5", &["10.0.0.1"], Some("0.0.0.0:5"));
    would(&["0.0.0.0:5"], "10.0.0.1:6", &["10.0.0.1"], None);
    would(&["0.0.0.0:5"], "255.255.255.255:5", &[], Some("0.0.0.0:5"));
    would(&["127.0.0.1:5"], "0.0.0.0:5", &[], Some("127.0.0.1:5"));
    would(&["10.0.0.1:5"], "127.0.0.1:5", &["10.0.0.1"], None);
    would(&["0.0.0.0:5"], "[::ffff:127.0.0.1]:5", &[], Some("0.0.0.0:5"));
    would(&["[::]:5"], "[::1]:5", &[], Some("[::]:5"));
    would(&["[::]:5"], "127.0.0.1:5", &[], None);
    would(&["[::]:5"], "[2001:db8::1]:5", &["2001:db8::1"], Some("[::]:5"));
    would(&["0.0.0.0:5", "239.0.0.1:6"], "239.0.0.1:5", &[], Some("0.0.0.0:5"));
    would(&["0.0.0.0:5"], "239.0.0.1:5", &[], None);
}

#[test]
fn addresses_of_the_command_line() {
    let text = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let config = Config::from_addresses(
        &text(&[":514?name=syslog&ring_size=16MiB&allow_sources=10.0.0.0/8,::1", ":515"]),
        &text(&[
            "10.0.0.1:514?rate_limit=1000&sample=10&sample_by=source&ttl=3",
            "file:/x?format=pcap&rotate_size=1MiB",
        ]),
    );
    let error = config.as_ref().expect_err("two listeners write one file");
    assert_eq!(
        messages(error),
        "command line: listener.target.to: file:/x is written by target file:/x of listener syslog already, or set \
         aside under that name. Fix: choose another path\n"
    );
    let config = Config::from_addresses(
        &text(&[":514?name=syslog&ring_size=16MiB&allow_sources=10.0.0.0/8,::1", ":515"]),
        &text(&[
            "10.0.0.1:514?rate_limit=1000&sample=10&sample_by=source&ttl=3",
            "null:?name=none",
        ]),
    )
    .unwrap();
    assert_eq!(config.listeners[0].name, "syslog");
    assert_eq!(config.listeners[0].ring_bytes, 16 << 20);
    assert_eq!(config.listeners[0].udp().unwrap().allow_sources.len(), 2);
    assert_eq!(config.listeners[1].targets, config.listeners[0].targets);
    assert_eq!(config.listeners[0].targets[0].udp().unwrap().ttl, Some(3));
    assert_eq!(config.listeners[0].targets[1].name, "none");
}

#[test]
fn mistakes_of_the_command_line() {
    let errors = Config::from_addresses(
        &["127.0.0.1:514?rings=1".to_owned()],
        &["10.0.0.1:514?rate=5&ttl=no&ttl=4".to_owned(), "127.0.0.1:514".to_owned()],
    );
    assert_eq!(
        messages(&errors.unwrap_err()),
        "--to 10.0.0.1:514?rate=5&ttl=no&ttl=4: listener.target.ttl: it is given twice. Fix: keep one\n\
         --to 10.0.0.1:514?rate=5&ttl=no&ttl=4: listener.target.rate: unknown key in [[listener.target]]. Fix: did you mean rate_limit?\n\
         --to 10.0.0.1:514?rate=5&ttl=no&ttl=4: listener.target.ttl: \"no\" is not a whole number. Fix: write a number from 1 to 255\n\
         --listen 127.0.0.1:514?rings=1: listener.rings: unknown key in [[listener]]. Fix: did you mean ring_size?\n\
         command line: listener.target.to: udp://127.0.0.1:514 is where the relay itself receives: its datagrams would come back for ever. Fix: send them elsewhere\n"
    );
}

#[test]
fn a_command_line_without_addresses() {
    assert_eq!(
        messages(&Config::from_addresses(&[], &[]).unwrap_err()),
        "command line: there is nothing to listen on. Fix: add --listen 127.0.0.1:5514\n\
         command line: there is no target. Fix: add --to 10.0.0.1:514\n"
    );
}
