//! Which hosts have files of their own. Senders choose the names, and each is a directory on disk, so their number is limited.

use std::collections::BTreeMap;

/// Maximum number of hosts with separate files at a time.
const HOSTS_MAX: usize = 4_096;

/// Most names that wait for a place.
const WAITING_MAX: usize = 4_096;

/// How much more often than another a host must be heard to take its place. So an evicted host costs the one that evicts it this
/// factor, and n messages make at most `HOSTS_MAX` × log n directories, whatever the names.
const FACTOR: u64 = 8;

/// Hosts with files of their own, and names that may get them.
#[derive(Default)]
pub(super) struct Hosts {
    /// How often each has been heard.
    placed: BTreeMap<String, u64>,
    /// The same of names without a place, approximately: those heard once are forgotten first.
    waiting: BTreeMap<String, u64>,
}

impl Hosts {
    /// Whether a host has files of its own, and counts that it was heard. When all places are taken, a host that is heard often gets
    /// the place of one that is heard rarely.
    pub(super) fn hear(&mut self, host: &str) -> bool {
        if let Some(heard) = self.placed.get_mut(host) {
            *heard += 1;
            return true;
        }
        if self.placed.len() < HOSTS_MAX {
            self.placed.insert(host.to_owned(), 1);
            return true;
        }

        let Some(heard) = self.waiting.get_mut(host) else {
            self.make_room();
            self.waiting.insert(host.to_owned(), 1);
            return false;
        };
        *heard += 1;
        let heard = *heard;
        // Looking for the rarest reads all places: not with each message.
        heard >= FACTOR && heard.is_power_of_two() && self.replace(host, heard)
    }

    fn make_room(&mut self) {
        while self.waiting.len() >= WAITING_MAX {
            self.waiting.retain(|_, heard| {
                *heard /= 2;
                *heard > 0
            });
        }
    }

    /// Gives a host the place of the rarest, if that one is rare enough.
    fn replace(&mut self, host: &str, heard: u64) -> bool {
        let rarest = self.placed.iter().min_by_key(|(_, heard)| **heard);
        let Some((name, _)) = rarest.filter(|(_, rare)| **rare * FACTOR <= heard) else {
            return false;
        };

        let name = name.clone();
        self.placed.remove(&name);
        self.waiting.remove(host);
        self.placed.insert(host.to_owned(), heard);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_host_that_is_heard_often_gets_the_place_of_one_heard_once() {
        let mut hosts = Hosts::default();
        for n in 0..HOSTS_MAX {
            assert!(hosts.hear(&format!("forged-{n}")));
        }
        // Among ever other names, which stay without a place.
        let mut is_placed = false;
        for n in 0..1_000 {
            assert!(!hosts.hear(&format!("once-{n}")));
            is_placed = hosts.hear("gw1");
        }
        assert!(is_placed);
        assert!(hosts.placed.len() <= HOSTS_MAX && hosts.waiting.len() <= WAITING_MAX);
    }

    #[test]
    fn a_host_keeps_its_place_against_names_heard_less() {
        let mut hosts = Hosts::default();
        for n in 0..HOSTS_MAX {
            for _ in 0..100 {
                assert!(hosts.hear(&format!("host-{n}")));
            }
        }
        for n in 0..100_000 {
            assert!(!hosts.hear(&format!("forged-{}", n / 50)), "50 times are not enough");
        }
        for n in 0..HOSTS_MAX {
            assert!(hosts.hear(&format!("host-{n}")));
        }
    }

    #[test]
    fn forged_names_make_few_directories_however_often_they_are_sent() {
        let (mut hosts, mut folders) = (Hosts::default(), BTreeSet::new());
        for n in 0..100_000_u32 {
            let host = format!("forged-{}", n / 8);
            if hosts.hear(&host) {
                folders.insert(host);
            }
        }
        // Without a bound it is 12,500.
        assert!(folders.len() <= 2 * HOSTS_MAX, "{}", folders.len());
    }
}
