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
    /// Whether it is the collector's own: its close events carry no id.
    pub(crate) is_own: bool,
    /// The id that close events use for it.
    pub(crate) nsid: Option<i32>,
    /// The kernel's cookie for it, which no other namespace ever has. `None` before Linux 5.14.
    pub(crate) cookie: Option<u64>,
    /// The last poll that found it.
    found_poll: u32,
    /// The last poll that walked it completely.
    pub(crate) walked_poll: u32,
    /// Whether the kernel has reported its end. Earlier events from it may still be read.
    is_ended: bool,
    /// Whether it came after the first search, so that connections in it may have closed before they could be heard.
    is_newcomer: bool,
    /// Number of close events received from it.
    pub(crate) heard: u64,
}

/// Whether a namespace is collected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Admission {
    /// It has been at this place since an earlier search.
    Known(u32),
    /// It is at this place from now on.
    New(u32),
    /// The maximum number is reached.
    LeftOut,
}

/// Namespaces by place. A place stays the same while a namespace is found, and for a few more polls, for whatever refers to it.
#[derive(Default, Debug)]
pub(crate) struct Namespaces {
    places: Vec<Option<Known>>,
    by_id: HashMap<Identity, u32>,
    by_nsid: HashMap<i32, u32>,
    own: Option<Identity>,
    /// Polls after which the place of a namespace that is gone is reused; by then its sockets have left the table.
    place_kept_polls: u32,
    /// Maximum number collected at a time.
    max: usize,
    /// The last poll whose search was [noted](Self::note_all): what neither it nor a later one has found is gone.
    searched_poll: u32,
    /// Whether a search has found all that there were.
    is_past_first_look: bool,
}

impl Namespaces {
    /// An empty list of at most `max` namespaces. References to a namespace are kept for at most `referred_polls` polls after it
    /// is gone.
    pub(crate) fn new(referred_polls: u32, max: usize) -> Namespaces {
        Namespaces { place_kept_polls: referred_polls + 2, max, ..Namespaces::default() }
    }

    /// Records a namespace that was found, if it is already known. Returns its place.
    pub(crate) fn note_known(&mut self, found: &Found, poll: u32) -> Option<u32> {
        let place = *self.by_id.get(&found.id)?;
        let known = self.places.get_mut(place as usize)?.as_mut()?;
        known.found_poll = poll;
        if known.name.as_deref() != found.name.as_deref() {
            known.name = found.name.as_deref().map(Arc::from);
        }
        Some(place)
    }

    /// Records those of a poll's search that are already known, which come first, so that a flood of new ones displaces none.
    pub(crate) fn note_all(&mut self, found: &[Found], poll: u32) {
        for one in found {
            self.note_known(one, poll);
        }
        self.searched_poll = poll;
    }

    /// Records a namespace that was found. The collector's own is never left out.
    pub(crate) fn admit(&mut self, found: &Found, poll: u32) -> Admission {
        if let Some(place) = self.note_known(found, poll) {
            return Admission::Known(place);
        }
        // Namespaces that are gone keep their places for a while, and are counted only when that matters.
        let is_full = self.places.len() >= self.max && self.live() >= self.max;
        if is_full && self.own != Some(found.id) {
            return Admission::LeftOut;
        }
        Admission::New(self.put_new(found, poll))
    }

    /// Number of namespaces that the last poll's search, or a later one, has found.
    fn live(&self) -> usize {
        let is_live = |known: &&Known| known.found_poll >= self.searched_poll && !known.is_ended;
        self.places.iter().flatten().filter(is_live).count()
    }

    /// The place of a namespace that was found, a new one if necessary.
    #[cfg(test)]
    pub(crate) fn note(&mut self, found: &Found, poll: u32) -> u32 {
        match self.note_known(found, poll) {
            Some(place) => place,
            None => self.put_new(found, poll),
        }
    }

    /// Records that a search has found all namespaces: any others come later.
    pub(crate) fn end_first_look(&mut self) {
        self.is_past_first_look = true;
    }

    fn put_new(&mut self, found: &Found, poll: u32) -> u32 {
        let known = Known {
            id: found.id,
            name: found.name.as_deref().map(Arc::from),
            is_own: self.own == Some(found.id),
            nsid: None,
            cookie: None,
            found_poll: poll,
            walked_poll: 0,
            is_ended: false,
            is_newcomer: self.is_past_first_look,
            heard: 0,
        };
        self.put(known)
    }

    fn put(&mut self, known: Known) -> u32 {
        let free = self.places.iter().position(Option::is_none).or_else(|| self.oldest_ended());
        let place = free.unwrap_or(self.places.len());
        match free {
            Some(place) => self.vacate(place),
            None => self.places.push(None),
        }
        self.by_id.insert(known.id, place as u32);
        self.places[place] = Some(known);
        place as u32
    }

    /// The place of the namespace that ended first, if ended ones take too much room: some live for less than a second, and the
    /// next poll may be an hour away. All events of the first one were read long ago.
    fn oldest_ended(&self) -> Option<usize> {
        if self.places.len() < self.max.saturating_mul(2) {
            return None;
        }
        let ended = self.places.iter().enumerate().filter_map(|(place, known)| {
            let known = known.as_ref().filter(|known| known.is_ended)?;
            Some((known.nsid, place))
        });
        // The ids that we assign grow.
        ended.min().map(|(_, place)| place)
    }

    fn vacate(&mut self, place: usize) {
        let Some(known) = self.places.get_mut(place).and_then(Option::take) else { return };
        // The inode, and the id, may belong to another namespace by now.
        if self.by_id.get(&known.id) == Some(&(place as u32)) {
            self.by_id.remove(&known.id);
        }
        if let Some(nsid) = known.nsid
            && self.by_nsid.get(&nsid) == Some(&(place as u32))
        {
            self.by_nsid.remove(&nsid);
        }
    }

    /// The place of the namespace in which a socket was opened by way of this place. It is a different one if the namespace is
    /// gone and the kernel has reused its inode, which happens soon.
    pub(crate) fn recognize(&mut self, place: u32, cookie: Option<u64>) -> u32 {
        let Some(Some(known)) = self.places.get_mut(place as usize) else { return place };

        if known.is_ended
            && let Some(&other) = self.by_id.get(&known.id)
        {
            return self.recognize(other, cookie);
        }

        if known.cookie.is_none() || cookie.is_none() || known.cookie == cookie {
            known.cookie = known.cookie.or(cookie);
            return place;
        }

        // The inode belongs to another namespace now: what was learned about the old one does not apply to it.
        let successor = Known {
            nsid: None,
            cookie,
            walked_poll: 0,
            is_ended: false,
            is_newcomer: self.is_past_first_look,
            heard: 0,
            ..known.clone()
        };
        // Marks the old one as not found by this poll, so that its place is reused after a while.
        known.found_poll = known.found_poll.wrapping_sub(1);
        self.put(successor)
    }

    pub(crate) fn get(&self, place: u32) -> Option<&Known> {
        self.places.get(place as usize)?.as_ref()
    }

    /// Records that the namespace at this place was walked completely.
    pub(crate) fn walked(&mut self, place: u32, poll: u32) {
        if let Some(Some(known)) = self.places.get_mut(place as usize) {
            known.walked_poll = poll;
        }
    }

    /// Records the id that close events use for the namespace at this place. Returns whether it is a newcomer: closes in it
    /// before now were not heard.
    pub(crate) fn set_nsid(&mut self, place: u32, nsid: i32) -> bool {
        let Some(Some(known)) = self.places.get_mut(place as usize) else { return false };
        self.by_nsid.insert(nsid, place);
        known.nsid.replace(nsid).is_none() && known.is_newcomer
    }

    /// Records that events of the own namespace carry this id, because it was assigned one.
    pub(crate) fn set_own_nsid(&mut self, nsid: i32) {
        if let Some(own) = self.own() {
            self.by_nsid.insert(nsid, own);
        }
    }

    /// Records that the namespace with this id has ended. Its events may still be on their way, so the id keeps its meaning, but
    /// another namespace may have its inode from now on.
    pub(crate) fn end(&mut self, nsid: i32) {
        let Some(&place) = self.by_nsid.get(&nsid) else { return };
        // This process keeps its own namespace alive: only the id is gone.
        if self.get(place).is_some_and(|known| known.is_own) {
            self.by_nsid.remove(&nsid);
        } else {
            self.end_place(place);
        }
    }

    /// Records that the namespace at this place has ended.
    pub(crate) fn end_place(&mut self, place: u32) {
        let Some(Some(known)) = self.places.get_mut(place as usize) else { return };
        known.is_ended = true;
        let id = known.id;
        if self.by_id.get(&id) == Some(&place) {
            self.by_id.remove(&id);
        }
    }

    /// Whether the kernel has reported the end of the namespace at this place.
    #[cfg(test)]
    pub(crate) fn is_ended(&self, place: u32) -> bool {
        self.get(place).is_none_or(|known| known.is_ended)
    }

    /// Records that this id was assigned: it no longer belongs to a namespace that had it before and has ended.
    pub(crate) fn given(&mut self, nsid: i32) {
        let place = self.by_nsid.get(&nsid).copied();
        if place.and_then(|place| self.get(place)).is_some_and(|known| known.is_ended) {
            self.by_nsid.remove(&nsid);
        }
    }

    /// Counts a close that was heard from the namespace at this place.
    pub(crate) fn heard(&mut self, place: u32) {
        if let Some(Some(known)) = self.places.get_mut(place as usize) {
            known.heard += 1;
        }
    }

    /// Sets the collector's own namespace.
    pub(crate) fn set_own(&mut self, own: Option<Identity>) {
        self.own = own;
    }

    /// The place of the collector's own namespace, if it is collected.
    pub(crate) fn own(&self) -> Option<u32> {
        self.own.and_then(|own| self.by_id.get(&own)).copied()
    }

    /// The place of the namespace with this id in close events.
    pub(crate) fn by_nsid(&self, nsid: i32) -> Option<u32> {
        self.by_nsid.get(&nsid).copied()
    }

    /// Whether something this poll did not see there does not exist: the namespace was walked completely, or is gone.
    pub(crate) fn shows_absence(&self, place: u32, poll: u32) -> bool {
        self.get(place).is_none_or(|known| known.walked_poll == poll || known.found_poll != poll)
    }

    /// Records that no search was possible in this poll: not finding a namespace does not mean that it is gone.
    pub(crate) fn keep_all(&mut self, poll: u32) {
        for known in self.places.iter_mut().flatten().filter(|known| !known.is_ended) {
            known.found_poll = poll;
        }
    }

    /// Forgets namespaces that have been gone for a while.
    pub(crate) fn forget_gone(&mut self, poll: u32) {
        for place in 0..self.places.len() {
            let known = self.places[place].as_ref();
            let gone_polls = known.map_or(0, |known| poll.wrapping_sub(known.found_poll));
            if gone_polls >= self.place_kept_polls {
                self.vacate(place);
            }
        }

        // Free places between others stay, because table entries refer to places by number.
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
        let mut namespaces = Namespaces::new(2, 100);
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
        let mut namespaces = Namespaces::new(2, 100);
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
        let mut namespaces = Namespaces::new(2, 100);
        let old = namespaces.note(&found(1), 1);
        assert_eq!(namespaces.recognize(old, Some(70)), old);
        namespaces.set_nsid(old, 7);
        namespaces.walked(old, 1);
        assert_eq!(namespaces.note(&found(1), 2), old);
        let new = namespaces.recognize(old, Some(71));
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
    fn one_that_has_ended_keeps_its_id_and_not_its_inode() {
        let mut namespaces = Namespaces::new(2, 100);
        let old = namespaces.note(&found(1), 1);
        namespaces.set_nsid(old, 7);
        namespaces.recognize(old, Some(70));
        namespaces.end(7);
        assert!(namespaces.is_ended(old));
        assert_eq!(namespaces.by_nsid(7), Some(old), "its last events may still be read");
        let new = namespaces.note(&found(1), 1);
        assert_ne!(new, old);
        assert_eq!(namespaces.recognize(old, Some(71)), new, "a poll that found it before its end");
        namespaces.given(7);
        assert_eq!(namespaces.by_nsid(7), None, "the kernel gave its id to another");
        namespaces.set_nsid(new, 7);
        namespaces.given(7);
        assert_eq!(namespaces.by_nsid(7), Some(new));
    }

    #[test]
    fn only_what_came_after_the_first_look_is_a_newcomer() {
        let mut namespaces = Namespaces::new(2, 100);
        let old = namespaces.note(&found(1), 1);
        namespaces.end_first_look();
        let new = namespaces.note(&found(2), 1);
        assert!(!namespaces.set_nsid(old, 7));
        assert!(namespaces.set_nsid(new, 8));
        assert!(!namespaces.set_nsid(new, 8), "once");
    }

    #[test]
    fn an_id_of_the_own_namespace_is_another_name_of_it_until_it_is_taken_back() {
        let mut namespaces = Namespaces::new(2, 100);
        namespaces.set_own(Some(found(9).id));
        namespaces.set_own_nsid(7);
        assert_eq!(namespaces.by_nsid(7), None, "it is not among those that are collected");
        let own = namespaces.note(&found(9), 1);
        namespaces.set_own_nsid(7);
        assert_eq!(namespaces.by_nsid(7), Some(own));
        namespaces.end(7);
        assert_eq!((namespaces.by_nsid(7), namespaces.own()), (None, Some(own)));
    }

    #[test]
    fn there_are_no_more_than_allowed_but_the_own_one() {
        let mut namespaces = Namespaces::new(2, 3);
        namespaces.set_own(Some(found(9).id));
        for inode in 1..=3 {
            assert!(matches!(namespaces.admit(&found(inode), 1), Admission::New(_)));
        }
        assert_eq!(namespaces.admit(&found(4), 1), Admission::LeftOut);
        assert!(matches!(namespaces.admit(&found(2), 1), Admission::Known(_)));
        assert!(matches!(namespaces.admit(&found(9), 1), Admission::New(_)));
        let (Admission::Known(place) | Admission::New(place)) = namespaces.admit(&found(1), 1)
        else {
            panic!("it was admitted before");
        };
        namespaces.set_nsid(place, 7);
        namespaces.end(7);
        assert_eq!(namespaces.admit(&found(4), 1), Admission::LeftOut, "three and the own one");
        // A new one may be found when the next poll has begun, and before its own search has found the others again.
        assert_eq!(namespaces.admit(&found(4), 2), Admission::LeftOut);
        // That does not find another one of them.
        namespaces.note_all(&[found(3), found(9)], 2);
        assert!(matches!(namespaces.admit(&found(4), 2), Admission::New(_)));
        assert_eq!(namespaces.admit(&found(5), 2), Admission::LeftOut);
    }

    #[test]
    fn places_of_those_that_came_and_went_are_bounded_though_no_poll_comes() {
        let mut namespaces = Namespaces::new(2, 10);
        let stays = namespaces.note(&found(1_000), 1);
        for round in 0..1_000 {
            let place = namespaces.note(&found(1), 1);
            namespaces.set_nsid(place, round);
            namespaces.end(round);
            assert_eq!(namespaces.by_nsid(round), Some(place));
        }
        assert!(namespaces.places.len() <= 20 && namespaces.by_nsid.len() <= 20);
        assert_eq!(namespaces.note(&found(1_000), 1), stays);
    }

    #[test]
    fn absence_shows_only_in_what_was_walked_or_is_gone() {
        let mut namespaces = Namespaces::new(2, 100);
        let place = namespaces.note(&found(1), 1);
        assert!(!namespaces.shows_absence(place, 1), "it could not be walked");
        namespaces.walked(place, 1);
        assert!(namespaces.shows_absence(place, 1));
        assert!(namespaces.shows_absence(place, 2), "poll 2 did not find it");
        namespaces.keep_all(3);
        assert!(!namespaces.shows_absence(place, 3), "poll 3 could not look");
    }
}
