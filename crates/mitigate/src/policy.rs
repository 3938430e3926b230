//! The limits of a mitigation.

use crate::{Actions, Attack, Community, Nlri, Prefix};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// What one `[[mitigation]]` may do.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    pub name: String,
    /// The thresholds that it responds to.
    pub thresholds: Vec<String>,
    pub action: Action,
    pub mode: Mode,
    /// Nothing is announced for an address outside these networks. Empty: nothing at all.
    pub own_networks: Vec<Prefix>,
    /// Never touched: no target may overlap any of these.
    pub allow_list: Vec<Prefix>,
    pub limits: Limits,
    pub on_stop: OnStop,
}

/// What to announce against an attack.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Announces the target's prefix. Refused if there is no next hop for its family.
    Blackhole {
        next_hop_v4: Option<Ipv4Addr>,
        next_hop_v6: Option<Ipv6Addr>,
        communities: Vec<Community>,
    },
    /// Announces the attack's flow. 0 discards it.
    Flowspec { rate_limit_bytes_per_sec: f32 },
}

/// Whether routes are announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Everything is decided and logged, and nothing is sent.
    DryRun,
    Announce,
}

/// What happens to routes when Weir stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnStop {
    Withdraw,
    Keep,
}

/// Limits of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most routes at a time.
    pub routes_max: usize,
    /// Most routes that may begin within 60 s.
    pub new_routes_per_minute_max: usize,
    /// Shortest IPv4 prefix to announce, in bits.
    pub shortest_v4_bits: u8,
    /// Shortest IPv6 prefix to announce, in bits.
    pub shortest_v6_bits: u8,
    /// How long the traffic must be gone before the route is withdrawn.
    pub withdraw_after: Duration,
    /// Minimum life of a route.
    pub hold: Duration,
    /// Maximum life of a route, whatever the traffic does.
    pub expiry: Duration,
}

impl Policy {
    /// Why nothing may be announced for this target, regardless of the limits; `None` if something
    /// may.
    pub(crate) fn refusal(&self, target: &Prefix) -> Option<String> {
        if let Some(kept) = self.allow_list.iter().find(|kept| kept.overlaps(target)) {
            return Some(format!("{kept} is on the allow-list"));
        }
        if !self.own_networks.iter().any(|own| own.covers(target)) {
            return Some(format!("{target} is not in own_networks"));
        }

        let shortest_bits = match target.addr() {
            IpAddr::V4(_) => self.limits.shortest_v4_bits,
            IpAddr::V6(_) => self.limits.shortest_v6_bits,
        };
        (target.length_bits() < shortest_bits)
            .then(|| format!("{target} is shorter than /{shortest_bits}"))
    }

    /// The route against an attack.
    ///
    /// # Errors
    /// Why there is no route, in words.
    pub(crate) fn route(&self, attack: &Attack) -> Result<(Nlri, Actions), String> {
        let target = attack.flow.destination;
        match &self.action {
            Action::Blackhole { next_hop_v4, next_hop_v6, communities } => {
                let next_hop = match target.addr() {
                    IpAddr::V4(_) => next_hop_v4.map(IpAddr::V4),
                    IpAddr::V6(_) => next_hop_v6.map(IpAddr::V6),
                };
                let next_hop = next_hop.ok_or("there is no next hop of its family")?;
                let actions = Actions::Blackhole { next_hop, communities: communities.clone() };
                Ok((Nlri::Unicast(target), actions))
            }
            Action::Flowspec { rate_limit_bytes_per_sec } => {
                let mut flow = attack.flow.clone();
                let is_v4 = target.addr().is_ipv4();
                if flow.source.is_some_and(|source| source.addr().is_ipv4() != is_v4) {
                    return Err("its source is of the other family".to_owned());
                }
                if flow.is_fragment {
                    // Only the first fragment has them.
                    (flow.source_port, flow.destination_port, flow.tcp_flags) = (None, None, None);
                }
                let actions = Actions::RateLimit { bytes_per_sec: *rate_limit_bytes_per_sec };
                Ok((Nlri::Flowspec(flow), actions))
            }
        }
    }
}
