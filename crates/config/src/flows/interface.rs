//! An interface of an agent, as text.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// An interface of an agent: `3@192.0.2.1`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interface {
    /// Its `ifIndex`.
    pub if_index: u32,
    /// The agent's address.
    pub agent: IpAddr,
}

impl FromStr for Interface {
    type Err = String;

    fn from_str(text: &str) -> Result<Interface, String> {
        let parts = text.split_once('@').and_then(|(index, agent)| {
            Some(Interface { if_index: index.parse().ok()?, agent: agent.parse().ok()? })
        });
        parts.ok_or_else(|| {
            let shown = text.escape_debug();
            format!("\"{shown}\" is not an interface. Fix: write its ifIndex and its agent's address, as in 3@192.0.2.1")
        })
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.if_index, self.agent)
    }
}
