//! Requests to the kernel's socket diagnosis (`NETLINK_SOCK_DIAG`).

use super::id::SOCKET_ID_BYTES;
use super::{Family, SocketId, States};
use crate::netlink::{MessageWriter, NLM_F_DUMP, NLM_F_REQUEST};

/// `SOCK_DIAG_BY_FAMILY`: a request for one family, and its replies; also the type of destroy events.
pub const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// `TCPDIAG_GETSOCK`: the older request, which the kernel answers with both families from one walk of its table.
pub const TCPDIAG_GETSOCK: u16 = 18;
/// `SOCK_DESTROY`.
pub const SOCK_DESTROY: u16 = 21;

/// `IPPROTO_TCP`.
pub const IPPROTO_TCP: u16 = 6;
/// `IPPROTO_UDP`.
pub const IPPROTO_UDP: u16 = 17;
/// `IPPROTO_MPTCP`.
pub const IPPROTO_MPTCP: u16 = 262;

/// `INET_DIAG_REQ_BYTECODE`.
const BYTECODE: u16 = 1;
/// `INET_DIAG_REQ_PROTOCOL`, for protocols above 255.
const PROTOCOL: u16 = 3;

/// Which optional attributes a reply should carry (`idiag_ext`): bit N-1 asks for attribute N.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extensions(u8);

impl Extensions {
    /// None.
    pub const NONE: Self = Self(0);
    /// The small form of socket memory, contained in [`MEMORY`](Self::MEMORY).
    pub const MEMINFO: Self = Self(0x01);
    /// `tcp_info`, the upper-layer protocol, and MD5 keys for a reader with `CAP_NET_ADMIN`.
    pub const INFO: Self = Self(0x02);
    /// The congestion control's own block, whichever it uses.
    pub const CONGESTION_STATE: Self = Self(0x04);
    /// Name of the congestion control.
    pub const CONGESTION: Self = Self(0x08);
    /// IPv4 type of service.
    pub const TYPE_OF_SERVICE: Self = Self(0x10);
    /// IPv6 traffic class, and the class id.
    pub const TRAFFIC_CLASS: Self = Self(0x20);
    /// Socket memory.
    pub const MEMORY: Self = Self(0x40);
    /// Everything except [`MEMINFO`](Self::MEMINFO).
    pub const ALL: Self = Self(0x7e);

    /// Both sets.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The extensions that are not in the other set.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The set with these bits.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// The bits as in the request.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }
}

/// Which sockets to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Both families from one walk (type 18). TCP only, whatever [`Request::protocol`] says.
    Both,
    /// One family (type 20).
    Family(Family),
    /// One socket (type 20 without a dump): the reply is one message, or `-ENOENT`, or `-ESTALE` for another cookie.
    Exact(SocketId),
}

/// One request.
///
/// ```
/// use wire::inet_diag::request::{Extensions, Request};
/// use wire::inet_diag::States;
/// let mut bytes = Vec::new();
/// Request { states: States::CONNECTED, extensions: Extensions::INFO, ..Request::dump(1) }.encode(&mut bytes);
/// assert_eq!(bytes.len(), 76);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Which sockets.
    pub kind: Kind,
    /// IP protocol; above 255 it goes into a separate attribute. For protocols other than TCP omit [`Extensions::INFO`]:
    /// their reply to it is not `tcp_info`.
    pub protocol: u16,
    /// States to include in a dump; an exact request ignores them.
    pub states: States,
    /// Attributes wanted.
    pub extensions: Extensions,
    /// Local port to limit a dump to, 0 for any. An exact request has its own.
    pub src_port: u16,
    /// Peer's port to limit a dump to, 0 for any.
    pub dst_port: u16,
    /// Filter program that the kernel runs on each socket of a dump; none if empty.
    pub bytecode: &'a [u8],
    /// Number that every reply repeats.
    pub sequence: u32,
}

impl Request<'_> {
    /// A dump of all TCP sockets of both families, without attributes.
    #[must_use]
    pub const fn dump(sequence: u32) -> Self {
        Self {
            kind: Kind::Both,
            protocol: IPPROTO_TCP,
            states: States::ALL,
            extensions: Extensions::NONE,
            src_port: 0,
            dst_port: 0,
            bytecode: &[],
            sequence,
        }
    }

    /// A lookup of one TCP socket.
    #[must_use]
    pub const fn exact(id: SocketId, extensions: Extensions, sequence: u32) -> Self {
        Self { kind: Kind::Exact(id), extensions, ..Self::dump(sequence) }
    }

    /// Appends the complete netlink message. A filter program longer than an attribute can be (65,531 bytes) is truncated,
    /// which the kernel refuses.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self.kind {
            Kind::Both => self.encode_both(out),
            Kind::Family(family) => {
                let id = self.dump_id();
                self.encode_family(family, NLM_F_REQUEST | NLM_F_DUMP, &id, out);
            }
            Kind::Exact(id) => {
                self.encode_family(id.family(), NLM_F_REQUEST, &id.encode(), out);
            }
        }
    }

    /// `struct inet_diag_req`, 60 bytes.
    fn encode_both(&self, out: &mut Vec<u8>) {
        let flags = NLM_F_REQUEST | NLM_F_DUMP;
        let mut writer = MessageWriter::begin(out, TCPDIAG_GETSOCK, flags, self.sequence);
        // The kernel ignores the family: to it this is a request for both (`inet_diag_dump_compat`).
        writer
            .bytes(&[Family::Inet.number(), 0, 0, self.extensions.bits()])
            .bytes(&self.dump_id())
            .bytes(&self.states.bits().to_ne_bytes())
            .bytes(&[0; 4]);
        self.encode_bytecode(&mut writer);
        writer.finish();
    }

    /// `struct inet_diag_req_v2`, 56 bytes.
    fn encode_family(
        &self,
        family: Family,
        flags: u16,
        id: &[u8; SOCKET_ID_BYTES],
        out: &mut Vec<u8>,
    ) {
        let mut writer = MessageWriter::begin(out, SOCK_DIAG_BY_FAMILY, flags, self.sequence);
        // For a number above 255 the attribute counts, not this byte.
        let protocol = self.protocol.to_le_bytes()[0];

        writer
            .bytes(&[family.number(), protocol, self.extensions.bits(), 0])
            .bytes(&self.states.bits().to_ne_bytes())
            .bytes(id);

        if self.protocol > 0xff {
            writer.attribute(PROTOCOL, &u32::from(self.protocol).to_ne_bytes());
        }

        self.encode_bytecode(&mut writer);
        writer.finish();
    }

    fn encode_bytecode(&self, writer: &mut MessageWriter<'_>) {
        if !self.bytecode.is_empty() {
            writer.attribute(BYTECODE, self.bytecode);
        }
    }

    fn dump_id(&self) -> [u8; SOCKET_ID_BYTES] {
        let mut id = [0; SOCKET_ID_BYTES];
        id[0..2].copy_from_slice(&self.src_port.to_be_bytes());
        id[2..4].copy_from_slice(&self.dst_port.to_be_bytes());
        id
    }
}
