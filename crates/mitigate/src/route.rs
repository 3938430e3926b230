//! Announcements: the part of a route that identifies it (its NLRI), and what routers should do with the traffic.

use crate::Prefix;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// Traffic described by what Flowspec (RFC 8955, RFC 8956) can match.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flow {
    pub destination: Prefix,
    /// Has the destination's family.
    pub source: Option<Prefix>,
    /// The number in the IP header: 17 is UDP.
    pub protocol: Option<u8>,
    pub source_port: Option<u16>,
    pub destination_port: Option<u16>,
    /// TCP flags that must be set, with the bits of its header: 2 is SYN.
    pub tcp_flags: Option<u8>,
    /// Minimum packet length, in bytes of IP.
    pub length_min_bytes: Option<u16>,
    /// Only fragments.
    pub is_fragment: bool,
}

impl Flow {
    /// All traffic to a destination.
    pub fn to(destination: Prefix) -> Flow {
        Flow {
            destination,
            source: None,
            protocol: None,
            source_port: None,
            destination_port: None,
            tcp_flags: None,
            length_min_bytes: None,
            is_fragment: false,
        }
    }
}

/// Why keys of a flow do not form a [`Flow`].
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("the flow has no key dst, so there is no target")]
    NoTarget,
    #[error("{0} = \"{1}\" cannot be matched")]
    Value(String, String),
}

impl Flow {
    /// Builds the flow from keys, named as in flow definitions (`dst`, or `dst/24/48`), with their values as text. Keys that
    /// Flowspec cannot match, such as `input`, are omitted: the route then matches more than the flow.
    ///
    /// # Errors
    /// There is no `dst`, or a value has the wrong type for its field.
    pub fn of_keys<'k>(
        keys: impl IntoIterator<Item = (&'k str, &'k str)>,
    ) -> Result<Flow, KeyError> {
        fn read<T: FromStr>((name, value): (&str, &str)) -> Result<Option<T>, KeyError> {
            let wrong = |_| KeyError::Value(name.to_owned(), value.to_owned());
            value.parse().map(Some).map_err(wrong)
        }

        let mut destination = None;
        // The target is unknown until all keys are read.
        let mut flow = Flow::to(Prefix::from(IpAddr::V4(Ipv4Addr::UNSPECIFIED)));
        for key in keys {
            // For a network, the field name is followed by its bits.
            match key.0.split('/').next().unwrap_or_default() {
                "dst" => destination = read(key)?,
                "src" => flow.source = read(key)?,
                "protocol" => flow.protocol = read(key)?,
                "src_port" => flow.source_port = read(key)?,
                "dst_port" => flow.destination_port = read(key)?,
                // "No flags" cannot be distinguished from "any flags".
                "tcp_flags" => flow.tcp_flags = read(key)?.filter(|flags| *flags != 0),
                "fragment" => flow.is_fragment = read::<u8>(key)? == Some(1),
                _ => {}
            }
        }
        Ok(Flow { destination: destination.ok_or(KeyError::NoTarget)?, ..flow })
    }
}

/// Identifies a route: a speaker has one for each.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Nlri {
    Unicast(Prefix),
    Flowspec(Flow),
}

/// A text that is not in the display format of [`Nlri`].
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a route")]
pub struct NlriError(String);

impl FromStr for Nlri {
    type Err = NlriError;

    /// Parses the display format.
    fn from_str(text: &str) -> Result<Nlri, NlriError> {
        let wrong = || NlriError(text.to_owned());
        let Some(flow) = text.strip_prefix("flow to ") else {
            return text.parse().map(Nlri::Unicast).map_err(|_| wrong());
        };
        Flow::shown(flow).map(Nlri::Flowspec).ok_or_else(wrong)
    }
}

impl Flow {
    /// Parses the display format of a flow.
    fn shown(text: &str) -> Option<Flow> {
        let mut words = text.split(' ');
        let mut flow = Flow::to(words.next()?.parse().ok()?);
        while let Some(name) = words.next() {
            if name == "fragments" {
                flow.is_fragment = true;
                continue;
            }
            let value = words.next()?;
            match name {
                "from" => flow.source = Some(value.parse().ok()?),
                "protocol" => flow.protocol = Some(value.parse().ok()?),
                "source-port" => flow.source_port = Some(value.parse().ok()?),
                "destination-port" => flow.destination_port = Some(value.parse().ok()?),
                "tcp-flags" => {
                    let flags = u8::from_str_radix(value.strip_prefix("0x")?, 16);
                    flow.tcp_flags = Some(flags.ok()?);
                }
                "length-from" => flow.length_min_bytes = Some(value.parse().ok()?),
                _ => return None,
            }
        }
        Some(flow)
    }
}

impl Nlri {
    /// The destination of its traffic.
    pub fn destination(&self) -> Prefix {
        match self {
            Nlri::Unicast(prefix) => *prefix,
            Nlri::Flowspec(flow) => flow.destination,
        }
    }
}

/// What routers should do with the traffic.
#[derive(Clone, Debug, PartialEq)]
pub enum Actions {
    /// Drop it: signaled by the communities, or by a next hop for which routers have a null route.
    Blackhole { next_hop: IpAddr, communities: Vec<Community> },
    /// Flowspec's traffic-rate. 0 discards everything.
    RateLimit { bytes_per_sec: f32 },
}

impl Actions {
    /// Any actions that fit the NLRI, for speakers that require some in a withdrawal too. Their values do not matter there.
    pub(crate) fn withdrawal_of(nlri: &Nlri) -> Actions {
        match nlri {
            Nlri::Unicast(prefix) => {
                let next_hop = match prefix.addr() {
                    IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                    IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
                };
                Actions::Blackhole { next_hop, communities: Vec::new() }
            }
            Nlri::Flowspec(_) => Actions::RateLimit { bytes_per_sec: 0.0 },
        }
    }
}

/// A community of RFC 1997.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Community(pub u16, pub u16);

impl Community {
    /// "Discard the traffic" (RFC 7999).
    pub const BLACKHOLE: Community = Community(65535, 666);
}

/// A text that is not two numbers.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a community such as 65535:666")]
pub struct CommunityError(String);

impl FromStr for Community {
    type Err = CommunityError;

    fn from_str(text: &str) -> Result<Community, CommunityError> {
        let parts = text.split_once(':');
        let parts = parts.and_then(|(a, b)| Some(Community(a.parse().ok()?, b.parse().ok()?)));
        parts.ok_or_else(|| CommunityError(text.to_owned()))
    }
}

impl fmt::Display for Community {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.0, self.1)
    }
}

impl fmt::Display for Nlri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Nlri::Unicast(prefix) => write!(f, "{prefix}"),
            Nlri::Flowspec(flow) => write!(f, "flow to {flow}"),
        }
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.destination)?;
        let mut part = |name: &str, value: Option<String>| match value {
            Some(value) => write!(f, " {name} {value}"),
            None => Ok(()),
        };
        part("from", self.source.map(|source| source.to_string()))?;
        part("protocol", self.protocol.map(|number| number.to_string()))?;
        part("source-port", self.source_port.map(|port| port.to_string()))?;
        part("destination-port", self.destination_port.map(|port| port.to_string()))?;
        part("tcp-flags", self.tcp_flags.map(|flags| format!("{flags:#04x}")))?;
        part("length-from", self.length_min_bytes.map(|bytes| bytes.to_string()))?;
        if self.is_fragment { f.write_str(" fragments") } else { Ok(()) }
    }
}

impl fmt::Display for Actions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Actions::Blackhole { next_hop, communities } => {
                write!(f, "blackhole via {next_hop}")?;
                communities.iter().try_for_each(|community| write!(f, " {community}"))
            }
            Actions::RateLimit { bytes_per_sec: 0.0 } => f.write_str("discard"),
            Actions::RateLimit { bytes_per_sec } => write!(f, "limit to {bytes_per_sec} bytes/s"),
        }
    }
}
