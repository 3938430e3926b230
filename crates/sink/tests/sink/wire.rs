//! Two network namespaces for a test, connected by a wire.

use testkit::{Netns, need_root_netns};

/// `left` (10.9.0.1) and `right` (10.9.0.2); they are removed with this value.
pub(crate) struct Wire {
    pub(crate) left: Netns,
    pub(crate) right: Netns,
}

impl Wire {
    /// `None`, with a message, where namespaces cannot be created.
    pub(crate) fn new(mtu: u32) -> Option<Wire> {
        if !need_root_netns() {
            return None;
        }
        let wire = Wire { left: Netns::new(), right: Netns::new() };
        wire.left.connect("w", &wire.right, "w");
        for (netns, address) in [(&wire.left, "10.9.0.1/24"), (&wire.right, "10.9.0.2/24")] {
            netns.ip(&format!("addr add {address} dev w"));
            netns.ip(&format!("link set w mtu {mtu}"));
        }
        Some(wire)
    }
}
