//! The words of flow definitions: what can be known about a sampled frame.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The type of a field's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A whole number.
    Number,
    /// An IP address.
    Address,
    /// An Ethernet address.
    Mac,
    /// A BGP community: two halves of 16 bits.
    Community,
}

/// A value that is none of the usual ones of its field.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Word {
    /// The frame is known to have none: `-`.
    None,
    /// The agent itself: the frame was made by it or for it.
    Internal,
    /// The agent does not know the interface.
    Unknown,
    /// Several interfaces.
    Several,
    /// No interface: the frame was discarded.
    Discarded,
}

impl Word {
    /// All of them, in the order of their numbers in keys.
    const ALL: [Word; 5] =
        [Word::None, Word::Internal, Word::Unknown, Word::Several, Word::Discarded];

    /// The word, as it is shown.
    pub const fn word(self) -> &'static str {
        match self {
            Word::None => "-",
            Word::Internal => "internal",
            Word::Unknown => "unknown",
            Word::Several => "several",
            Word::Discarded => "discarded",
        }
    }

    /// The value with this word, in a filter on this field. `none` is another way to write `-`.
    pub(crate) fn named(field: Field, word: &str) -> Option<Word> {
        let word = Word::ALL
            .into_iter()
            .find(|one| one.word() == word || (*one == Word::None && word == "none"))?;
        let is_end = matches!(field, Field::Input | Field::Output);
        (is_end != (word == Word::None)).then_some(word)
    }
}

/// The value of one field in one sample.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Value {
    /// The sample does not have it.
    Absent,
    /// A whole number.
    Number(u64),
    /// An IP address.
    Address(IpAddr),
    /// An Ethernet address.
    Mac([u8; 6]),
    /// None of the above.
    Word(Word),
}

impl Value {
    /// A number, or [`Value::Absent`].
    pub fn number(number: Option<impl Into<u64>>) -> Value {
        number.map_or(Value::Absent, |number| Value::Number(number.into()))
    }

    /// A number, or that the frame is known to have none.
    pub fn number_or_none(number: Option<impl Into<u64>>) -> Value {
        number.map_or(Value::Word(Word::None), |number| Value::Number(number.into()))
    }

    /// An address, or [`Value::Absent`].
    pub fn address(address: Option<IpAddr>) -> Value {
        address.map_or(Value::Absent, Value::Address)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Absent => out.write_str("-"),
            Value::Number(number) => write!(out, "{number}"),
            Value::Address(address) => write!(out, "{address}"),
            Value::Mac([a, b, c, d, e, f]) => {
                write!(out, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
            }
            Value::Word(word) => out.write_str(word.word()),
        }
    }
}

impl Value {
    /// Length of a value in a key, in bytes: its type, and room for the widest one.
    pub(crate) const KEY_LEN: usize = 17;

    /// Writes the value into a key. Equal values have equal bytes.
    pub(crate) fn write(self, key: &mut [u8; Value::KEY_LEN]) {
        *key = [0; Value::KEY_LEN];
        match self {
            Value::Absent => {}
            Value::Number(number) => {
                key[0] = 1;
                key[1..9].copy_from_slice(&number.to_be_bytes());
            }
            Value::Address(IpAddr::V4(address)) => {
                key[0] = 4;
                key[1..5].copy_from_slice(&address.octets());
            }
            Value::Address(IpAddr::V6(address)) => {
                key[0] = 6;
                key[1..].copy_from_slice(&address.octets());
            }
            Value::Mac(mac) => {
                key[0] = 2;
                key[1..7].copy_from_slice(&mac);
            }
            Value::Word(word) => key[..2].copy_from_slice(&[3, word as u8]),
        }
    }

    /// Reads what [`write`](Self::write) wrote.
    pub(crate) fn read(key: &[u8; Value::KEY_LEN]) -> Value {
        let [kind, rest @ ..] = key;
        match kind {
            1 => Value::Number(rest[..8].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))),
            4 => Value::Address(Ipv4Addr::new(rest[0], rest[1], rest[2], rest[3]).into()),
            6 => Value::Address(Ipv6Addr::from(*rest).into()),
            3 => Word::ALL.get(usize::from(rest[0])).map_or(Value::Absent, |one| Value::Word(*one)),
            2 => Value::Mac([rest[0], rest[1], rest[2], rest[3], rest[4], rest[5]]),
            _ => Value::Absent,
        }
    }
}

/// Rows are `Name = "word", Kind, "meaning";`.
macro_rules! fields {
    ($($name:ident = $word:literal, $kind:ident, $meaning:literal;)+) => {
        /// What is known about a sampled frame.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Field { $(#[doc = $meaning] $name,)+ }

        impl Field {
            /// All fields, in the order of the documentation.
            pub const ALL: &'static [Field] = &[$(Field::$name,)+];

            /// The word in definitions and filters.
            pub const fn word(self) -> &'static str {
                match self { $(Field::$name => $word,)+ }
            }

            /// The type of its value.
            pub const fn kind(self) -> Kind {
                match self { $(Field::$name => Kind::$kind,)+ }
            }

            /// What it means.
            pub const fn meaning(self) -> &'static str {
                match self { $(Field::$name => $meaning,)+ }
            }

            /// The field with this word.
            pub fn named(word: &str) -> Option<Field> {
                match word { $($word => Some(Field::$name),)+ _ => None }
            }
        }
    };
}

fields! {
    Agent = "agent", Address, "The agent's address, as its datagrams say.";
    SubAgent = "sub_agent", Number, "The part of the agent that took the sample.";
    Source = "data_source", Number, "The index of the data source that was sampled: usually an interface.";
    Input = "input", Number, "The interface by which the frame came in: its index, or `internal` (the agent itself) or `unknown`.";
    Output = "output", Number, "The interface by which it left: its index, or `internal`, `unknown`, `several` or `discarded`.";
    SrcMac = "src_mac", Mac, "The Ethernet source.";
    DstMac = "dst_mac", Mac, "The Ethernet destination.";
    Ethertype = "ethertype", Number, "The type of what the Ethernet frame carries, behind all tags.";
    Vlan = "vlan", Number, "The outermost VLAN, or the one that the switch put the frame in; `-` if it has none.";
    OutVlan = "out_vlan", Number, "The VLAN in which it left.";
    InnerVlan = "inner_vlan", Number, "The second VLAN.";
    MplsLabel = "mpls_label", Number, "The outermost MPLS label.";
    IpVersion = "ip_version", Number, "4 or 6.";
    Src = "src", Address, "The source address.";
    Dst = "dst", Address, "The destination address.";
    Protocol = "protocol", Number, "The IP protocol, behind all extension headers.";
    Dscp = "dscp", Number, "The traffic class, without its two bits of congestion.";
    Ttl = "ttl", Number, "Time to live, or hop limit.";
    Fragment = "fragment", Number, "1 for a fragment, 0 for a whole packet.";
    SrcPort = "src_port", Number, "The source port of TCP, UDP or SCTP; `-` for packets without ports, such as ICMP and later fragments.";
    DstPort = "dst_port", Number, "The destination port.";
    TcpFlags = "tcp_flags", Number, "TCP's flags: 1 fin, 2 syn, 4 rst, 8 psh, 16 ack, 32 urg.";
    IcmpType = "icmp_type", Number, "The type of an ICMP message.";
    IcmpCode = "icmp_code", Number, "Its code.";
    FrameSize = "frame_size", Number, "The frame's bytes on the wire.";
    Vni = "vni", Number, "The virtual network of VXLAN, Geneve or NVGRE, or the service of a backbone frame.";
    InnerSrc = "inner_src", Address, "The source address inside a tunnel.";
    InnerDst = "inner_dst", Address, "The destination address inside a tunnel.";
    InnerProtocol = "inner_protocol", Number, "The IP protocol inside a tunnel.";
    InnerSrcPort = "inner_src_port", Number, "The source port inside a tunnel.";
    InnerDstPort = "inner_dst_port", Number, "The destination port inside a tunnel.";
    NextHop = "next_hop", Address, "The address of the next router.";
    BgpNextHop = "bgp_next_hop", Address, "The address of the router at the border to which the packet goes.";
    RouterAs = "router_as", Number, "The agent's own autonomous system.";
    SrcAs = "src_as", Number, "The autonomous system of the source, as the agent knows it; its own for its own addresses.";
    DstAs = "dst_as", Number, "The autonomous system of the destination; the agent's own for its own addresses.";
    PeerAs = "peer_as", Number, "The autonomous system that handed the packet over.";
    DstPeerAs = "dst_peer_as", Number, "The autonomous system that it is handed to.";
    Community = "community", Community, "The first BGP community of the route, such as 64500:100; a filter compares all of them.";
    DropReason = "drop_reason", Number, "Why the frame was dropped; only of frames that were.";
    TransitDelay = "transit_delay_ns", Number, "How long the frame was inside the switch.";
    QueueDepth = "queue_depth", Number, "Bytes in its queue when it left.";
    Queue = "queue", Number, "The queue by which it left.";
}

/// The content of one sample.
pub trait Facts {
    /// The value of a field.
    fn value(&self, field: Field) -> Value;

    /// Whether a field has a value for which this holds, if it may have several.
    fn any(&self, field: Field, holds: impl Fn(Value) -> bool) -> bool {
        holds(self.value(field))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_has_every_field() {
        let mut text = String::from("\n| field | what it is |\n|---|---|\n");
        for field in Field::ALL {
            text.push_str(&format!("| `{}` | {} |\n", field.word(), field.meaning()));
        }
        let marks = ["<!-- fields -->\n", "<!-- end of fields -->"];
        testkit::generated_part("docs/flows.md", marks, &format!("{text}\n"));
    }
}
