//! The namespaces that the collector knows: their names, and whether they still exist.

use crate::access::Found;
use std::collections::HashMap;
use std::sync::Arc;
use sys::namespace::Identity;

/// A namespace that a poll has seen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Known {
    pub(crate) id: Identity,
    pub(crate) name: Option<Arc<str>>,
    /// It is the collector's own: close events name it by no id.
    pub(crate) is_own: bool,
    /// The id by which close events name it.
    pub(crate) nsid: Option<i32>,
    /// The kernel's number of it, which no other ever has; `None` before Linux 5.14.
    pub(crate) cookie: Option<u64>,
    /// The last poll that found it.
    found_poll: u32,
    /// The last poll that walked it to the end.
    pub(crate) walked_poll: u32,
}

/// Namespaces by place. A place stays the same while a namespace is found, and a few polls longer, for what refers to it.
#[derive(Default, Debug)]
pub(crate) struct Namespaces {
    places: Vec<Option<Known>>,
    by_id: HashMap<Identity, u32>,
    by_nsid: HashMap<i32, u32>,
    own: Option<Identity>,
    /// Polls after which the place of a namespace that is gone is used again, when its sockets have left the table.
    place_kept_polls: u32,
}

impl Namespaces {
    /// None yet. What refers to a namespace does so for at most so many polls after it is gone.
    pub(crate) fn new(referred_polls: u32) -> Namespaces {
        Namespaces { place_kept_polls: referred_polls + 2, ..Namespaces::default() }
    }

    /// The place of what was found, a new one if need be.
    pub(crate) fn note(&mut self, found: &Found, poll: u32) -> u32 {
        if let Some(&place) = self.by_id.get(&found.id)
            && let Some(Some(known)) = self.places.get_mut(place as usize)
        {
            known.found_poll = poll;
            if known.name.as_deref() != found.name.as_deref() {
                known.name = found.name.as_deref().map(Arc::from);
            }
            return place;
        }
        let known = Known {
            id: found.id,
            name: found.name.as_deref().map(Arc::from),
            is_own: self.own == Some(found.id),
            nsid: None,
            cookie: None,
            found_poll: poll,
            walked_poll: 0,
        };
        self.put(known)
    }

    fn put(&mut self, known: Known) -> u32 {
        let free = self.places.iter().position(Option::is_none);
        let place = free.unwrap_or(self.places.len());
        if free.is_none() {
            self.places.push(None);
        }
        self.by_id.insert(known.id, place as u32);
        self.places[place] = Some(known);
        place as u32
    }

    /// The place of the namespace of a socket that was opened in the one at this place. It is another when that has gone and
    /// the kernel has given its inode to a new one, as it does soon.
    pub(crate) fn recognise(&mut self, place: u32, cookie: Option<u64>) -> u32 {
        let Some(Some(known)) = self.places.get_mut(place as usize) else { return place };
        if known.cookie.is_none() || cookie.is_none() || known.cookie == cookie {
            known.cookie = known.cookie.or(cookie);
            return place;
        }
        let successor = Known { nsid: None, cookie, walked_poll: 0, ..known.clone() };
        known.found_poll = known.found_poll.wrapping_sub(1);
        self.put(successor)
    }

    pub(crate) fn get(&self, place: u32) -> Option<&Known> {
        self.places.get(place as usize)?.as_ref()
    }

    /// Notes that the namespace at this place was walked to the end.
    pub(crate) fn walked(&mut self, place: u32, poll: u32) {
        if let Some(Some(known)) = self.places.get_mut(place as usize) {
            known.walked_poll = poll;
        }
    }

    /// Notes the id by which close events name the namespace at this place.
    pub(crate) fn set_nsid(&mut self, place: u32, nsid: i32) {
        if let Some(Some(known)) = self.places.get_mut(place as usize) {
            known.nsid = Some(nsid);
            self.by_nsid.insert(nsid, place);
        }
    }

    /// Says which namespace is the collector's own.
    pub(crate) fn set_own(&mut self, own: Option<Identity>) {
        self.own = own;
    }

    /// The place of the collector's own namespace, if it is among those that are collected.
    pub(crate) fn own(&self) -> Option<u32> {
        self.own.and_then(|own| self.by_id.get(&own)).copied()
    }

    /// The place of the namespace that close events name so.
    pub(crate) fn by_nsid(&self, nsid: i32) -> Option<u32> {
        self.by_nsid.get(&nsid).copied()
    }

    /// Whether what this poll did not see there is not there: the namespace was walked to the end, or is gone.
    pub(crate) fn shows_absence(&self, place: u32, poll: u32) -> bool {
        self.get(place).is_none_or(|known| known.walked_poll == poll || known.found_poll != poll)
    }

    /// Notes that nobody could look for namespaces in this poll: those that it does not find are not gone for that.
    pub(crate) fn keep_all(&mut self, poll: u32) {
        for known in self.places.iter_mut().flatten() {
            known.found_poll = poll;
        }
    }

    /// Forgets namespaces that have been gone for a while.
    pub(crate) fn forget_gone(&mut self, poll: u32) {
        for place in 0..self.places.len() {
            let gone = self.places[place]
                .take_if(|known| poll.wrapping_sub(known.found_poll) >= self.place_kept_polls);
            let Some(known) = gone else { continue };
            if self.by_id.get(&known.id) == Some(&(place as u32)) {
                self.by_id.remove(&known.id);
            }
            if let Some(nsid) = known.nsid
                && self.by_nsid.get(&nsid) == Some(&(place as u32))
            {
                self.by_nsid.remove(&nsid);
            }
        }
        while self.places.last().is_some_and(Option::is_none) {
            self.places.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE_KEPT_POLLS: u32 = 4;

    fn found(inode: u64) -> Found {
        Found { id: Identity { device: 4, inode }, name: Some(format!("n{inode}")), process: None }
    }

    #[test]
    fn a_place_is_used_again_some_polls_after_its_namespace_has_gone() {
        let mut namespaces = Namespaces::new(2);
        let (a, b) = (namespaces.note(&found(1), 1), namespaces.note(&found(2), 1));
        namespaces.set_nsid(a, 7);
        for poll in 2..2 + PLACE_KEPT_POLLS {
            assert_eq!(namespaces.note(&found(2), poll), b);
            assert_ne!(namespaces.note(&found(3), poll), a, "poll {poll}");
            namespaces.forget_gone(poll);
        }
        assert_eq!(namespaces.by_nsid(7), None);
        assert_eq!(namespaces.note(&found(4), 99), a);
    }

    #[test]
    fn an_nsid_that_was_given_anew_names_the_new_namespace() {
        let mut namespaces = Namespaces::new(2);
        let old = namespaces.note(&found(1), 1);
        namespaces.set_nsid(old, 7);
        let new = namespaces.note(&found(2), 2);
        namespaces.set_nsid(new, 7);
        for poll in 3..3 + PLACE_KEPT_POLLS {
            namespaces.note(&found(2), poll);
            namespaces.forget_gone(poll);
        }
        assert_eq!((namespaces.get(old), namespaces.by_nsid(7)), (None, Some(new)));
    }

    #[test]
    fn a_namespace_that_took_an_inode_over_has_a_place_of_its_own() {
        let mut namespaces = Namespaces::new(2);
        let old = namespaces.note(&found(1), 1);
        assert_eq!(namespaces.recognise(old, Some(70)), old);
        namespaces.set_nsid(old, 7);
        namespaces.walked(old, 1);
        assert_eq!(namespaces.note(&found(1), 2), old);
        let new = namespaces.recognise(old, Some(71));
        assert_ne!(new, old);
        assert!(namespaces.shows_absence(old, 2) && !namespaces.shows_absence(new, 2));
        assert_eq!(namespaces.get(new).map(|known| known.nsid), Some(None));
        assert_eq!((namespaces.note(&found(1), 3), namespaces.by_nsid(7)), (new, Some(old)));
        for poll in 3..3 + PLACE_KEPT_POLLS {
            namespaces.note(&found(1), poll);
            namespaces.forget_gone(poll);
        }
        assert_eq!((namespaces.get(old), namespaces.by_nsid(7)), (None, None));
        assert_eq!(namespaces.note(&found(1), 99), new);
    }

    #[test]
    fn absence_shows_only_in_what_was_walked_or_is_gone() {
        let mut namespaces = Namespaces::new(2);
        let place = namespaces.note(&found(1), 1);
        assert!(!namespaces.shows_absence(place, 1), "it could not be walked");
        namespaces.walked(place, 1);
        assert!(namespaces.shows_absence(place, 1));
        assert!(namespaces.shows_absence(place, 2), "poll 2 did not find it");
        namespaces.keep_all(3);
        assert!(!namespaces.shows_absence(place, 3), "poll 3 could not look");
    }
}
