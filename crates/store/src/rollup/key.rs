//! What sums are grouped by.

use record::{ConnectionRole, SocketRecord};
use std::collections::HashSet;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

/// The name that replaces all keys beyond a span's limit.
const OTHER: &str = "other";

/// The grouping of a sum.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Dimension {
    All,
    Unit,
    Peer,
    Service,
    Path,
}

impl Dimension {
    pub(super) const ALL: [Dimension; 5] =
        [Dimension::All, Dimension::Unit, Dimension::Peer, Dimension::Service, Dimension::Path];

    pub(super) fn name(self) -> &'static str {
        match self {
            Dimension::All => "all",
            Dimension::Unit => "unit",
            Dimension::Peer => "peer",
            Dimension::Service => "service",
            Dimension::Path => "path",
        }
    }

    /// The part of a key that this dimension uses.
    pub(super) fn of(self, path: &Key) -> Key {
        match self {
            Dimension::All => Key::default(),
            Dimension::Unit => Key { unit: Arc::clone(&path.unit), ..Key::default() },
            Dimension::Peer => Key { peer: path.peer, ..Key::default() },
            Dimension::Service => Key { service: path.service, ..Key::default() },
            Dimension::Path => path.clone(),
        }
    }

    /// The key that replaces all keys beyond the limit.
    pub(super) fn other(self) -> Key {
        self.of(&Key { unit: OTHER.into(), service: 0, peer: Network::Other })
    }
}

/// The key of a sum.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(super) struct Key {
    /// The systemd unit, otherwise the container, pod or cgroup; empty if none is known.
    pub(super) unit: Arc<str>,
    /// The port of the side that accepted; 0 if unknown, and for keys beyond the limit.
    pub(super) service: u16,
    pub(super) peer: Network,
}

impl Key {
    /// The key of a record in the dimension that combines all.
    pub(super) fn of(record: &SocketRecord<'_>, units: &mut Units) -> Key {
        let unit =
            record.systemd_unit.or(record.container_id).or(record.pod_uid).or(record.cgroup_path);
        let (src, dst) = (record.src_port.unwrap_or_default(), record.dst_port.unwrap_or_default());
        let service = match record.role {
            Some(ConnectionRole::ACCEPTOR) => src,
            Some(ConnectionRole::OPENER) => dst,
            // The served port is nearly always the lower one.
            _ => src.min(dst),
        };
        let peer = record.dst_address.map_or(Network::Unknown, Network::of);
        Key { unit: units.shared(unit.unwrap_or_default()), service, peer }
    }
}

/// The names of units in a batch, each stored once.
#[derive(Default)]
pub(super) struct Units {
    names: HashSet<Arc<str>>,
}

impl Units {
    fn shared(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.names.get(name) {
            return Arc::clone(known);
        }
        let name = Arc::<str>::from(name);
        self.names.insert(Arc::clone(&name));
        name
    }
}

/// The network of a peer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(super) enum Network {
    #[default]
    Unknown,
    /// A /24.
    V4([u8; 3]),
    /// A /48.
    V6([u16; 3]),
    /// All networks beyond the limit.
    Other,
}

impl Network {
    fn of(address: IpAddr) -> Network {
        // An IPv6 socket may have an IPv4 peer.
        match address.to_canonical() {
            IpAddr::V4(v4) => {
                let [a, b, c, _] = v4.octets();
                Network::V4([a, b, c])
            }
            IpAddr::V6(v6) => {
                let [a, b, c, ..] = v6.segments();
                Network::V6([a, b, c])
            }
        }
    }

    /// As in the tables; empty if it is not known.
    pub(super) fn text(self) -> String {
        match self {
            Network::Unknown => String::new(),
            Network::V4([a, b, c]) => format!("{a}.{b}.{c}.0/24"),
            Network::V6([a, b, c]) => format!("{}/48", Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0)),
            Network::Other => OTHER.to_owned(),
        }
    }
}
