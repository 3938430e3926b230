use std::fmt;

use super::attribute::{self, Bbr, Dctcp, MemInfo, Memory, SocketOptions, Vegas, prefix};
use super::request::{SOCK_DIAG_BY_FAMILY, TCPDIAG_GETSOCK};
use super::ulp::{Ulp, text};
use super::{Family, SocketId, State, TcpInfo, Timer};
use crate::DecodeError;
use crate::bytes::{at, header, u32_at};
use crate::netlink::{Attributes, Message, MessageWriter, NLM_F_REQUEST};

/// Bytes of `struct inet_diag_msg`.
pub const SOCKET_HEADER_BYTES: usize = 72;

/// One socket, as in the kernel's reply to a request or its report of a close: `struct inet_diag_msg` and its attributes.
/// Attributes missing from the message are `None`; which ones it has depends on the request, the state, the kernel and the
/// reader's capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketMessage<'a> {
    /// Address family.
    pub family: Family,
    /// State of the connection; [`State::Closed`] in destroy events.
    pub state: State,
    /// The running timer.
    pub timer: Timer,
    /// Retransmissions or probes of that timer so far.
    pub retransmits: u8,
    /// Addresses, interface and cookie.
    pub id: SocketId,
    /// Time until the timer fires, in milliseconds; 0 without a timer.
    pub expires_ms: u32,
    /// Unread bytes. For a listener: connections waiting to be accepted.
    pub receive_queue: u32,
    /// Bytes written and not acknowledged. For a listener: its backlog limit.
    pub send_queue: u32,
    /// Owner, in the numbering of the reader's user namespace; 0 for TIME-WAIT and request entries and in destroy events.
    pub uid: u32,
    /// Inode of the socket; 0 where no file holds it.
    pub inode: u32,
    /// Socket memory.
    pub memory: Option<Memory>,
    /// The older, smaller form of [`memory`](Self::memory).
    pub meminfo: Option<MemInfo>,
    /// TCP's own figures; never for TIME-WAIT and request entries.
    pub tcp_info: Option<TcpInfo<'a>>,
    /// What a kernel newer than this program appended to `tcp_info`.
    pub tcp_info_tail: &'a [u8],
    /// State of vegas and its relatives.
    pub vegas: Option<Vegas>,
    /// State of DCTCP.
    pub dctcp: Option<Dctcp>,
    /// State of BBR.
    pub bbr: Option<Bbr<'a>>,
    /// Name of the congestion control.
    pub congestion: Option<&'a str>,
    /// IPv4 type of service, 8 bits.
    pub type_of_service: Option<u8>,
    /// IPv6 traffic class, 8 bits.
    pub traffic_class: Option<u8>,
    /// Directions that were shut down: bit 0 receiving, bit 1 sending.
    pub shutdown: Option<u8>,
    /// IP protocol; in destroy events and for raw sockets.
    pub protocol: Option<u8>,
    /// Whether an IPv6 listener refuses IPv4 connections.
    pub v6_only: Option<bool>,
    /// `SO_MARK`; only for a reader with `CAP_NET_ADMIN`.
    pub mark: Option<u32>,
    /// Traffic class of net_cls, or `SO_PRIORITY`.
    pub class_id: Option<u32>,
    /// Inode number of the cgroup (version 2) in which the socket was created.
    pub cgroup_id: Option<u64>,
    /// Socket options.
    pub socket_options: Option<SocketOptions>,
    /// The upper-layer protocol on top of TCP inside the kernel.
    pub ulp: Option<Ulp<'a>>,
    /// The socket has MD5 keys (RFC 2385). The keys themselves are not kept.
    pub has_md5: bool,
    unknown: Unknown<'a>,
}

/// The attributes from the first unknown one on; empty if all are known.
#[derive(Clone, Copy, Default)]
struct Unknown<'a>(&'a [u8]);

impl<'a> Unknown<'a> {
    fn iter(self) -> impl Iterator<Item = (u16, &'a [u8])> + Clone {
        // `decode` has walked them once, so there are no errors left.
        Attributes::new(self.0).flatten().filter(|(kind, _)| is_unknown(*kind))
    }
}

impl PartialEq for Unknown<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Unknown<'_> {}

/// Prints only unknown attributes, because the range may contain keys.
impl fmt::Debug for Unknown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

const fn is_unknown(kind: u16) -> bool {
    matches!(kind, 0 | attribute::LOCALS | attribute::PEERS | attribute::SK_BPF_STORAGES | 23..)
}

/// Whether a message describes a socket, so that its body can be passed to [`decode`]: a reply of the socket diagnosis or a
/// destroy event, but not a request, which has the same type.
#[must_use]
pub const fn is_socket(message: &Message<'_>) -> bool {
    matches!(message.kind, SOCK_DIAG_BY_FAMILY | TCPDIAG_GETSOCK)
        && message.flags & NLM_F_REQUEST == 0
}

/// Decodes the body of a message: what follows the netlink header.
///
/// If a structure is longer than the known one, its prefix is used; if it is shorter, that is an error, because no kernel sends
/// it. If an attribute occurs twice, the last one counts.
///
/// For TCP only: for other protocols `INET_DIAG_INFO` is a different structure, and no field of the message tells them apart.
/// MPTCP's (96 bytes in Linux 6.18) is refused as too short.
///
/// # Errors
/// The first error in the message, see [`DecodeError`].
pub fn decode(body: &[u8]) -> Result<SocketMessage<'_>, DecodeError> {
    let head: &[u8; SOCKET_HEADER_BYTES] = header(body)?;
    let mut message = decode_header(head)?;
    let mut attributes = Attributes::new(body.get(SOCKET_HEADER_BYTES..).unwrap_or_default());

    loop {
        let before = attributes.rest();
        let Some(attribute) = attributes.next() else { return Ok(message) };
        let (kind, payload) = attribute?;

        if is_unknown(kind) {
            // Only the beginning of the range is kept: `unknown_attributes` walks it again.
            if message.unknown.0.is_empty() {
                message.unknown.0 = before;
            }
        } else {
            message.take(kind, payload)?;
        }
    }
}

#[inline]
fn decode_header(head: &[u8; SOCKET_HEADER_BYTES]) -> Result<SocketMessage<'static>, DecodeError> {
    const SIZE: usize = SOCKET_HEADER_BYTES;
    let family = Family::from_number(head[0])?;
    let id = SocketId::decode(family, &at::<4, 48, SIZE>(head));
    Ok(SocketMessage {
        timer: Timer::from_number(head[2]),
        retransmits: head[3],
        expires_ms: u32_at::<52, SIZE>(head),
        receive_queue: u32_at::<56, SIZE>(head),
        send_queue: u32_at::<60, SIZE>(head),
        uid: u32_at::<64, SIZE>(head),
        inode: u32_at::<68, SIZE>(head),
        ..SocketMessage::new(family, State::from_number(head[1]), id)
    })
}

impl<'a> SocketMessage<'a> {
    /// A message without attributes, with everything else zero.
    #[must_use]
    pub const fn new(family: Family, state: State, id: SocketId) -> Self {
        Self {
            family,
            state,
            timer: Timer::Off,
            retransmits: 0,
            id,
            expires_ms: 0,
            receive_queue: 0,
            send_queue: 0,
            uid: 0,
            inode: 0,
            memory: None,
            meminfo: None,
            tcp_info: None,
            tcp_info_tail: &[],
            vegas: None,
            dctcp: None,
            bbr: None,
            congestion: None,
            type_of_service: None,
            traffic_class: None,
            shutdown: None,
            protocol: None,
            v6_only: None,
            mark: None,
            class_id: None,
            cgroup_id: None,
            socket_options: None,
            ulp: None,
            has_md5: false,
            unknown: Unknown(&[]),
        }
    }

    /// Attributes with an unknown type, or that are kept raw (SCTP addresses, BPF storage): type and payload, in the kernel's
    /// order. Never MD5 keys.
    pub fn unknown_attributes(&self) -> impl Iterator<Item = (u16, &'a [u8])> + Clone + use<'a> {
        self.unknown.iter()
    }

    #[inline]
    fn take(&mut self, kind: u16, payload: &'a [u8]) -> Result<(), DecodeError> {
        let byte = || prefix::<1>(kind, payload).map(|[byte]| *byte);
        let word = || prefix::<4>(kind, payload).map(|bytes| u32::from_ne_bytes(*bytes));
        match kind {
            attribute::MEMINFO => self.meminfo = Some(MemInfo::decode(payload)?),
            attribute::INFO => {
                let info = TcpInfo::decode(payload)?;
                self.tcp_info = Some(info);
                self.tcp_info_tail = info.tail();
            }
            attribute::VEGASINFO => self.vegas = Some(Vegas::decode(payload)?),
            attribute::CONG => self.congestion = Some(text(kind, payload)?),
            attribute::TOS => self.type_of_service = Some(byte()?),
            attribute::TCLASS => self.traffic_class = Some(byte()?),
            attribute::SKMEMINFO => self.memory = Some(Memory::decode(payload)?),
            attribute::SHUTDOWN => self.shutdown = Some(byte()?),
            attribute::DCTCPINFO => self.dctcp = Some(Dctcp::decode(payload)?),
            attribute::PROTOCOL => self.protocol = Some(byte()?),
            attribute::SKV6ONLY => self.v6_only = Some(byte()? != 0),
            attribute::MARK => self.mark = Some(word()?),
            attribute::BBRINFO => self.bbr = Some(Bbr::decode(payload)?),
            attribute::CLASS_ID => self.class_id = Some(word()?),
            attribute::MD5SIG => self.has_md5 = true,
            attribute::ULP_INFO => self.ulp = Some(Ulp::decode(payload)?),
            attribute::CGROUP_ID => {
                self.cgroup_id = Some(u64::from_ne_bytes(*prefix(kind, payload)?));
            }
            attribute::SOCKOPT => self.socket_options = Some(SocketOptions::decode(payload)?),
            // Filler, and attributes that `unknown_attributes` finds again.
            _ => {}
        }
        Ok(())
    }
}

/// The fixed part of a message in the kernel's representation.
#[must_use]
pub fn encode_header(message: &SocketMessage<'_>) -> [u8; SOCKET_HEADER_BYTES] {
    let mut bytes = [0; SOCKET_HEADER_BYTES];
    bytes[0] = message.family.number();
    bytes[1] = message.state.number();
    bytes[2] = message.timer.number();
    bytes[3] = message.retransmits;
    bytes[4..52].copy_from_slice(&message.id.encode());

    let numbers =
        [message.expires_ms, message.receive_queue, message.send_queue, message.uid, message.inode];
    for (place, number) in bytes[52..].chunks_exact_mut(4).zip(numbers) {
        place.copy_from_slice(&number.to_ne_bytes());
    }

    bytes
}

/// Appends the complete netlink message that [`decode`] reads as `message`, in the kernel's order of attributes. MD5 keys,
/// which are not kept, become an empty attribute.
pub fn encode(
    message: &SocketMessage<'_>,
    kind: u16,
    flags: u16,
    sequence: u32,
    out: &mut Vec<u8>,
) {
    let mut writer = MessageWriter::begin(out, kind, flags, sequence);
    writer.bytes(&encode_header(message));
    encode_small(message, &mut writer);

    if let Some(info) = &message.tcp_info {
        let mut payload = info.as_bytes().to_vec();
        payload.extend_from_slice(message.tcp_info_tail);
        writer.attribute(attribute::INFO, &payload);
    }
    if let Some(name) = message.congestion {
        writer.text(attribute::CONG, name);
    }
    if message.has_md5 {
        writer.attribute(attribute::MD5SIG, &[]);
    }
    if let Some(ulp) = message.ulp {
        writer.nested(attribute::ULP_INFO, |out| ulp.encode(out));
    }
    if let Some(vegas) = message.vegas {
        writer.attribute(attribute::VEGASINFO, &vegas.encode());
    }
    if let Some(dctcp) = message.dctcp {
        writer.attribute(attribute::DCTCPINFO, &dctcp.encode());
    }
    if let Some(bbr) = message.bbr {
        writer.attribute(attribute::BBRINFO, &bbr.encode());
    }

    for (kind, payload) in message.unknown_attributes() {
        writer.attribute(kind, payload);
    }

    writer.finish();
}

fn encode_small(message: &SocketMessage<'_>, writer: &mut MessageWriter<'_>) {
    let bytes = [
        (attribute::SHUTDOWN, message.shutdown),
        (attribute::PROTOCOL, message.protocol),
        (attribute::TOS, message.type_of_service),
        (attribute::TCLASS, message.traffic_class),
        (attribute::SKV6ONLY, message.v6_only.map(u8::from)),
    ];

    for (kind, byte) in bytes {
        if let Some(byte) = byte {
            writer.attribute(kind, &[byte]);
        }
    }

    for (kind, word) in [(attribute::MARK, message.mark), (attribute::CLASS_ID, message.class_id)] {
        if let Some(word) = word {
            writer.attribute(kind, &word.to_ne_bytes());
        }
    }

    if let Some(id) = message.cgroup_id {
        writer.attribute(attribute::CGROUP_ID, &id.to_ne_bytes());
    }
    if let Some(options) = message.socket_options {
        writer.attribute(attribute::SOCKOPT, &options.encode());
    }
    if let Some(meminfo) = message.meminfo {
        writer.attribute(attribute::MEMINFO, &meminfo.encode());
    }
    if let Some(memory) = message.memory {
        let (bytes, len) = memory.encode();
        writer.attribute(attribute::SKMEMINFO, &bytes[..len]);
    }
}
