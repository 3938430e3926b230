//! Shared fixtures and builders for the tests of this crate.

pub(crate) mod files;

use std::net::SocketAddr;

use wire::inet_diag::{self, SocketMessage};
use wire::netlink::{Message, MessageWriter, Messages};

/// 22 sockets, see testdata/README.md.
pub(crate) const BOTH: &[u8] = include_bytes!("../../testdata/both-6.18.bin");
/// The output of `ss` for them.
pub(crate) const BOTH_TEXT: &str = include_str!("../../testdata/both-6.18.txt");
/// What `ss -D` wrote.
pub(crate) const SS: &[u8] = include_bytes!("../../testdata/ss-6.18.bin");
/// Dumps of every protocol, with their requests.
pub(crate) const PROTOCOLS: &[u8] = include_bytes!("../../testdata/protocols-6.18.pcap");
/// Destroy events of two connections.
pub(crate) const DESTROY: &[u8] = include_bytes!("../../testdata/destroy-6.18.bin");

pub(crate) fn sockets(dump: &[u8]) -> impl Iterator<Item = Message<'_>> {
    Messages::new(dump).map(|message| message.unwrap()).filter(inet_diag::is_socket)
}

pub(crate) fn decoded(dump: &[u8]) -> Vec<SocketMessage<'_>> {
    sockets(dump).map(|message| inet_diag::decode(message.body).unwrap()).collect()
}

pub(crate) fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// A message body: the fixed part of an IPv4 connection in ESTABLISHED, and these attributes.
pub(crate) fn body(attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let id = inet_diag::SocketId::between(address("10.0.0.1:80"), address("10.0.0.2:4000"));
    let message = SocketMessage::new(inet_diag::Family::Inet, inet_diag::State::Established, id);
    let mut bytes = Vec::new();
    let mut writer = MessageWriter::begin(&mut bytes, 20, 0, 0);
    writer.bytes(&inet_diag::encode_header(&message));
    for (kind, payload) in attributes {
        writer.attribute(*kind, payload);
    }
    writer.finish();
    bytes.split_off(16)
}
