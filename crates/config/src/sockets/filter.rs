//! Checks a filter without access to the network: host names, interfaces and cgroups are resolved when the collector starts.

use ::sockets::filter::{Filter, FilterError, Names, Needs, SystemNames};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Reports what is wrong with a filter, as far as its text shows.
pub(super) fn check(text: &str) -> Result<(), FilterError> {
    Filter::parse_with(text, &TextOnly)?.check_known(Needs::ALL.without(Needs::PROCESSES))
}

/// Services and users are read from files of this host; every other name gets a stand-in.
struct TextOnly;

impl Names for TextOnly {
    fn service(&self, name: &str) -> Option<u16> {
        SystemNames.service(name)
    }

    fn user(&self, name: &str) -> Option<u32> {
        SystemNames.user(name)
    }

    fn host(&self, name: &str) -> Vec<IpAddr> {
        let is_name =
            name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
                && name.bytes().any(|byte| byte.is_ascii_alphabetic());
        let stand_ins = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        if is_name { stand_ins.to_vec() } else { Vec::new() }
    }

    fn device(&self, _: &str) -> Option<u32> {
        Some(1)
    }

    fn cgroup(&self, _: &str) -> Option<u64> {
        Some(1)
    }
}
