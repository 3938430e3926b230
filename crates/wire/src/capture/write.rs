use super::protocol::Protocol;
use super::{ARPHRD_NETLINK, COOKED_BYTES, LINKTYPE_NETLINK, NETLINK_SOCK_DIAG};
use crate::bytes::count;
use crate::inet_diag::request::{SOCK_DIAG_BY_FAMILY, TCPDIAG_GETSOCK};
use crate::inet_diag::{is_socket, redact};
use crate::netlink::{Message, MessageWriter, NLM_F_MULTI, NLMSG_DONE};

/// pcap with times in nanoseconds.
const PCAP_MAGIC: u32 = 0xa1b2_3c4d;
/// Longest packet promised by the file header; `tcpdump` accepts at most this.
const SNAP_BYTES: u32 = 262_144;

/// The format of a capture to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The format that `ss -D FILE` writes and `TCPDIAG_FILE=FILE ss` reads: message after message.
    Ss,
    /// pcap of link type 253, with times, which `tcpdump` and Wireshark read.
    Pcap,
}

/// Produces the bytes of a capture, which are appended to the caller's `out`.
#[derive(Clone, Copy, Debug)]
pub struct Writer {
    format: Format,
}

impl Writer {
    /// Starts a file: appends its header.
    pub fn begin(format: Format, out: &mut Vec<u8>) -> Self {
        if format == Format::Pcap {
            out.extend_from_slice(&PCAP_MAGIC.to_ne_bytes());
            // Version 2.4, then two fields that are always 0.
            out.extend_from_slice(&2_u16.to_ne_bytes());
            out.extend_from_slice(&4_u16.to_ne_bytes());
            out.extend_from_slice(&[0; 8]);
            out.extend_from_slice(&SNAP_BYTES.to_ne_bytes());
            out.extend_from_slice(&u32::from(LINKTYPE_NETLINK).to_ne_bytes());
        }
        Self { format }
    }

    /// Appends one complete netlink message about a TCP socket. MD5 keys in it are overwritten with zeros. The time counts
    /// from 1970; pcap ends in 2106 and gets its last second for anything later, and the format of `ss` has no times.
    ///
    /// The request is not written, and without it a reply of type 20 may be of any protocol. In pcap, a reply that does not
    /// itself reveal TCP is changed to type 18, which only TCP uses; the format of `ss` holds nothing else.
    pub fn message(&self, time_unix_ns: u64, raw: &[u8], out: &mut Vec<u8>) {
        let padded = raw.len().next_multiple_of(4);
        if self.format == Format::Pcap {
            let length = count(padded + COOKED_BYTES);
            let seconds = u32::try_from(time_unix_ns / 1_000_000_000).unwrap_or(u32::MAX);
            out.extend_from_slice(&seconds.to_ne_bytes());
            out.extend_from_slice(&((time_unix_ns % 1_000_000_000) as u32).to_ne_bytes());
            // The captured and the original length: nothing is truncated.
            out.extend_from_slice(&length.to_ne_bytes());
            out.extend_from_slice(&length.to_ne_bytes());
            // The header of `LINKTYPE_NETLINK`: packet type, device type, unused, protocol.
            out.extend_from_slice(&[0; 2]);
            out.extend_from_slice(&ARPHRD_NETLINK.to_be_bytes());
            out.extend_from_slice(&[0; 10]);
            out.extend_from_slice(&NETLINK_SOCK_DIAG.to_be_bytes());
        }

        let start = out.len();
        out.extend_from_slice(raw);
        // Changed in the copy, because `raw` belongs to the caller.
        if let Some(message) = out.get_mut(start..) {
            if self.format == Format::Pcap {
                mark_as_tcp(message);
            }
            redact(message);
        }

        out.resize(start + padded, 0);
    }

    /// Ends the file with a message that ends a dump, without which `ss` complains.
    pub fn end(self, time_unix_ns: u64, out: &mut Vec<u8>) {
        // With port 0 and sequence 0, unlike any real dump: readers recognize it as the end of the file.
        let mut done = Vec::with_capacity(20);
        MessageWriter::begin(&mut done, NLMSG_DONE, NLM_F_MULTI, 0).bytes(&[0; 4]).finish();
        self.message(time_unix_ns, &done, out);
    }
}

fn mark_as_tcp(raw: &mut [u8]) {
    let is_ambiguous = Message::first(raw).is_ok_and(|message| {
        is_socket(&message)
            && message.kind == SOCK_DIAG_BY_FAMILY
            && Protocol::of_reply(&message) != Some(Protocol::Tcp)
    });

    if let Some(kind) = raw.get_mut(4..6).filter(|_| is_ambiguous) {
        kind.copy_from_slice(&TCPDIAG_GETSOCK.to_ne_bytes());
    }
}
