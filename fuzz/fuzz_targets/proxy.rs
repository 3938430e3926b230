//! Reading any bytes as a PROXY header must not panic; what is understood says the same when it is written again. And the sender's
//! address put into any message is read back from it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::net::{IpAddr, SocketAddr};
use wire::proxy::{HEADER_BYTES_MAX, Header, read, write};
use wire::syslog::{Arrival, Form, ORIGIN_BYTES_MAX, parse, write_origin};

fuzz_target!(|input: (&[u8], IpAddr, u16)| {
    let (bytes, ip, port) = input;

    if let Some(header) = read(bytes) {
        assert!(header.header_bytes <= bytes.len());
        check_write(header.sender);
    }
    check_write(Some(SocketAddr::new(ip.to_canonical(), port)));

    let mut room = [0; ORIGIN_BYTES_MAX];
    let Some(place) = write_origin(bytes, ip, &mut room) else { return };
    let (head, rest) = bytes.split_at(place.at);
    let changed = [head, &room[..place.text_bytes], &rest[place.replaced_bytes..]].concat();
    let arrival = Arrival::utc(0);
    let said = parse(&changed, arrival);
    let before = parse(bytes, arrival);
    // Behind a fault the text holds what is inserted, too. Inside another header (`relayed`) the outer one gets it, each time anew.
    if before.form == Some(Form::Rfc5424) && before.fault.is_none() {
        assert_eq!(said.form, Some(Form::Rfc5424));
        assert_eq!(said.message, before.message);
        // Once it is there, nothing is added.
        assert_eq!(write_origin(&changed, ip, &mut room).map(|place| place.text_bytes), Some(0));
    }
});

fn check_write(sender: Option<SocketAddr>) {
    let mut room = [0; HEADER_BYTES_MAX];
    let header_bytes = write(sender, ([10, 0, 0, 1], 514).into(), &mut room);
    assert_eq!(read(&room[..header_bytes]), Some(Header { sender, header_bytes }));
    assert_eq!(read(&room[..header_bytes - 1]), None);
}
