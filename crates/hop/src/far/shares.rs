//! Who gives way when a table is full: the key that has most in it, and there the least valuable.

use crate::Peer;
use crate::key::KeyId;
use std::cmp::Reverse;
use std::sync::Arc;

/// An entry of a table, as the choice sees it.
pub(super) struct Claim<T> {
    pub(super) key: KeyId,
    /// All entries of a sender share this.
    pub(super) peer: Arc<Peer>,
    /// Higher is better: entries of a higher class stay longer than any of a lower one of the same key.
    pub(super) class: u8,
    pub(super) heard_ns: u64,
    pub(super) of: T,
}

/// The `count` entries that give way. Each is taken from the key that has most at that time; of its entries the lowest class
/// goes first, in it those of the sender that has most, and of those the one that was heard longest ago.
pub(super) fn surplus<T>(mut claims: Vec<Claim<T>>, count: usize) -> Vec<T> {
    // The place of each among its sender's entries of a class, from the newest on.
    claims.sort_unstable_by_key(|one| {
        (one.key, Reverse(one.class), Arc::as_ptr(&one.peer), Reverse(one.heard_ns))
    });
    let mut places = Vec::with_capacity(claims.len());
    let (mut place, mut before) = (0_u32, None);
    for one in &claims {
        let sender = (one.key, one.class, Arc::as_ptr(&one.peer));
        place = if before == Some(sender) { place + 1 } else { 0 };
        before = Some(sender);
        places.push(place);
    }

    // The place of each among its key's entries: first every sender's newest, then every sender's second.
    let mut ranked: Vec<_> = places.into_iter().zip(claims).collect();
    ranked.sort_unstable_by_key(|(place, one)| {
        (one.key, Reverse(one.class), *place, Reverse(one.heard_ns))
    });
    let (mut rank, mut before) = (0_u32, None);
    let mut all: Vec<_> = ranked
        .into_iter()
        .map(|(_, one)| {
            rank = if before == Some(one.key) { rank + 1 } else { 0 };
            before = Some(one.key);
            (Reverse(rank), one.class, one.heard_ns, one.of)
        })
        .collect();

    let count = count.min(all.len());
    if count < all.len() {
        all.select_nth_unstable_by_key(count, |(rank, class, heard_ns, _)| {
            (*rank, *class, *heard_ns)
        });
    }
    all.truncate(count);
    all.into_iter().map(|(.., of)| of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(name: &str) -> Arc<Peer> {
        Arc::new(Peer { name: String::new(), host: name.to_owned(), listener: String::new() })
    }

    fn check(claims: &[(u64, &Arc<Peer>, u8, u64)], expected: &[usize]) {
        let claim = |(of, (key, peer, class, heard_ns)): (usize, &(u64, &Arc<Peer>, u8, u64))| {
            let (key, peer) = (KeyId(*key), Arc::clone(peer));
            Claim { key, peer, class: *class, heard_ns: *heard_ns, of }
        };
        let claims = || claims.iter().enumerate().map(claim).collect();
        for count in 0..=expected.len() {
            let mut chosen = surplus(claims(), count);
            let mut expected = expected[..count].to_vec();
            chosen.sort_unstable();
            expected.sort_unstable();
            assert_eq!(chosen, expected, "the first {count}");
        }
    }

    #[test]
    fn the_key_that_has_most_gives_way() {
        let (a, b, c) = (peer("a"), peer("b"), peer("c"));
        // Of the key with four until it has two, and then the one heard longest ago of those that have as much.
        let all = [
            (1, &a, 0, 9),
            (1, &b, 0, 8),
            (1, &c, 0, 7),
            (1, &peer("d"), 0, 6),
            (2, &a, 0, 1),
            (2, &b, 0, 2),
        ];
        check(&all, &[3, 2, 4]);
        // What has a session stays longest, whatever its sender has.
        check(&[(1, &a, 1, 1), (1, &a, 1, 2), (1, &b, 0, 9)], &[2, 0]);
        // A sender's second gives way to another's only one, even if it is newer.
        check(&[(1, &a, 0, 8), (1, &a, 0, 9), (1, &b, 0, 1)], &[0, 2]);
    }

    #[test]
    fn a_full_table_of_one_key_costs_no_other_key_anything() {
        let others: Vec<_> = (0..1_000).map(|at| peer(&at.to_string())).collect();
        let hostile = (0..9_000).map(|at| Claim {
            key: KeyId(0),
            peer: peer("x"),
            class: 1,
            heard_ns: 1_000 + at,
            of: 0,
        });
        let honest = others.iter().enumerate().map(|(at, peer)| Claim {
            key: KeyId(1 + at as u64 / 2),
            peer: Arc::clone(peer),
            class: 0,
            heard_ns: at as u64,
            of: 1,
        });
        let chosen = surplus(hostile.chain(honest).collect(), 8_000);
        assert_eq!((chosen.len(), chosen.iter().sum::<i32>()), (8_000, 0));
    }
}
