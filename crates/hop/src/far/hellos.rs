//! Hellos: which of them to read, which to ask back with a cookie, and which to give a session.
//!
//! Opening a hello takes 4 to 6 µs; X25519, which the answer needs, takes 25 times as long. So the tag is checked before a cookie
//! is given: strangers without a key get no answer at all, and under load someone who replays a recorded hello gets a cookie that
//! is useless to them.
//!
//! A hello gets a session once, however old its recording. Without a cookie it must be newer than every hello of its run that was
//! heard; if its run is not known, newer than all that were forgotten with their runs, and than this receiving end; and its time
//! must be near ours. All others need a cookie of this moment. Each cookie is taken once too.

use super::{Far, Heard, Moment, PLACE_BITS, Peer, PeerIntake, Run, Session};
use crate::cookie::Cookies;
use crate::handshake::{Hello, Responder, Welcome, respond};
use crate::key::KeyId;
use crate::packet::{HEADER_BYTES, Header, decode_hello};
use crate::receiver::{Arrivals, Receiver};
use crate::seal::{Opener, Sealer};
use crate::{Totals, random_u32};
use std::collections::HashMap;
use std::net::SocketAddr;

/// Maximum hellos read per second, once for those without a valid cookie and once for those with one. Each costs a few
/// microseconds.
const LOOKED_AT_PER_SEC: u64 = 20_000;

/// Hellos per second that are answered without a cookie.
const WITHOUT_COOKIE_PER_SEC: u64 = 1_000;

/// Maximum sessions started per second: each costs a tenth of a millisecond. And of them with one key, so that nobody who has a
/// key keeps out those who have others.
const ANSWERED_PER_SEC: u64 = 6_000;
const ANSWERED_PER_KEY_PER_SEC: u64 = ANSWERED_PER_SEC / 2;

/// Burst that each rate allows, as the time it covers, in nanoseconds.
const BURST_NS: u64 = 100_000_000;

/// How far a sender's clock may be off before its hellos need a cookie, in nanoseconds.
const CLOCK_OFF_NS: u64 = 600_000_000_000;

/// A hello this much older than the newest of its run is a replay, which gets no answer, in nanoseconds. One that is older still
/// may be of a clock that was set back.
const CLOCK_BACK_NS: u64 = 60_000_000_000;

/// What hellos of unknown runs must be newer than at the start of a receiving end, which does not know what earlier ones heard:
/// those had hellos of clocks ahead of ours too.
pub(super) fn since(unix_ns: u64) -> u64 {
    unix_ns.saturating_add(CLOCK_OFF_NS)
}

/// What is known of the hellos made with one key.
pub(super) struct KeyHellos {
    /// Those of unknown runs must be newer than this: the greatest time of those of forgotten runs.
    pub(super) since_unix_ns: u64,
    /// So must their cookies.
    pub(super) cookie_time: u64,
    answered: Rate,
}

/// What is known of the hellos of `key`. They are newer than `since_unix_ns` if nothing is.
pub(super) fn of_key(
    of_keys: &mut HashMap<KeyId, KeyHellos>,
    key: KeyId,
    since_unix_ns: u64,
) -> &mut KeyHellos {
    of_keys.entry(key).or_insert_with(|| KeyHellos {
        since_unix_ns,
        cookie_time: 0,
        answered: Rate::per_sec(ANSWERED_PER_KEY_PER_SEC),
    })
}

/// What a hello's time and cookie prove.
enum Proof {
    /// It was never heard before.
    New,
    /// It was never heard before, and its sender receives at its address.
    Cookie(u64),
    /// Nothing: it may be a recording.
    Missing,
    Replay,
}

/// Rate limit: a number of events per second, a tenth of which may come at once.
struct Rate {
    interval_ns: u64,
    /// Time until which the allowance is used up.
    used_until_ns: u64,
}

impl Rate {
    const fn per_sec(count: u64) -> Rate {
        Rate { interval_ns: 1_000_000_000 / count, used_until_ns: 0 }
    }

    fn allows(&mut self, now_ns: u64) -> bool {
        let until_ns = self.used_until_ns.max(now_ns) + self.interval_ns;
        let is_allowed = until_ns <= now_ns + BURST_NS;
        if is_allowed {
            self.used_until_ns = until_ns;
        }
        is_allowed
    }
}

/// The rate limits and cookies for hellos.
pub(super) struct Hellos {
    cookies: Cookies,
    looked_at: Rate,
    /// Separate, so that a flood with cookies does not lock out senders without one, nor the other way round.
    looked_at_with_cookie: Rate,
    without_cookie: Rate,
    answered: Rate,
}

impl Hellos {
    pub(super) fn new(now_ns: u64) -> Hellos {
        Hellos {
            cookies: Cookies::new(now_ns),
            looked_at: Rate::per_sec(LOOKED_AT_PER_SEC),
            looked_at_with_cookie: Rate::per_sec(LOOKED_AT_PER_SEC),
            without_cookie: Rate::per_sec(WITHOUT_COOKIE_PER_SEC),
            answered: Rate::per_sec(ANSWERED_PER_SEC),
        }
    }

    /// The time of the hello's cookie, if it carries one that was given to its address.
    fn cookie_time(
        &self,
        now_ns: u64,
        from: SocketAddr,
        (header, packet): (&Header, &[u8]),
    ) -> Option<u64> {
        let (cookie, _) = decode_hello(header.kind, &packet[HEADER_BYTES..]).ok()?;
        self.cookies.time(now_ns, from, cookie?)
    }
}

impl Far {
    pub(super) fn on_hello(
        &mut self,
        moment: Moment,
        from: SocketAddr,
        (header, packet): (&Header, &[u8]),
        intake: &mut PeerIntake<'_>,
        out: &mut Vec<u8>,
    ) -> Heard {
        let (now_ns, id) = (moment.now_ns, KeyId(header.number));
        let Some(key) = self.keys.by_id(id) else {
            self.counts.unknown_session += 1;
            return Heard::Nothing;
        };
        let cookie_time = self.hellos.cookie_time(now_ns, from, (header, packet));
        let Hellos { looked_at, looked_at_with_cookie, .. } = &mut self.hellos;
        let looked_at = if cookie_time.is_some() { looked_at_with_cookie } else { looked_at };
        if !looked_at.allows(now_ns) {
            self.counts.hellos_refused += 1;
            return Heard::Nothing;
        }

        let Ok((hello, responder)) = respond(key, packet) else {
            self.counts.forged += 1;
            return Heard::Nothing;
        };
        let proof = self.proof_of(moment.unix_ns, id, &hello, cookie_time);
        let cookie_time = match proof {
            Proof::Replay => {
                self.counts.replayed += 1;
                return Heard::Nothing;
            }
            Proof::Cookie(time) => time,
            Proof::New if self.hellos.without_cookie.allows(now_ns) => 0,
            Proof::New | Proof::Missing => {
                self.counts.hello_cookies += 1;
                responder.ask_for_cookie(key, self.hellos.cookies.of(now_ns, from), out);
                return Heard::Answer;
            }
        };
        let name = key.name.clone();
        let of_key = of_key(&mut self.of_keys, id, self.since_unix_ns);
        if !of_key.answered.allows(now_ns) || !self.hellos.answered.allows(now_ns) {
            self.counts.hellos_refused += 1;
            return Heard::Nothing;
        }

        self.sweep(now_ns, intake);
        let known = self.note_run(now_ns, (id, name), &hello, cookie_time, intake);
        self.begin_session((now_ns, from, id), &hello, known, responder, out)
    }

    /// Starts a session and answers the hello with it.
    fn begin_session(
        &mut self,
        (now_ns, from, key): (u64, SocketAddr, KeyId),
        hello: &Hello,
        known: Option<Totals>,
        responder: Responder,
        out: &mut Vec<u8>,
    ) -> Heard {
        let Some(place) = self.free_place() else {
            self.counts.hellos_refused += 1;
            return Heard::Nothing;
        };
        let index = place as u32 | random_u32() << PLACE_BITS;
        let welcome = Welcome {
            session: index,
            epoch: self.epoch,
            interval_us: 1_000,
            window: self.options.window,
            known,
        };
        let Ok(secrets) = responder.accept(&welcome, out) else {
            self.free.push(place as u32);
            return Heard::Nothing;
        };

        self.counts.sessions += 1;
        self.sessions[place] = Some(Box::new(Session {
            index,
            far_index: hello.session,
            run: hello.run,
            key,
            address: from,
            sealer: Sealer::new(secrets.send),
            opener: Opener::new(secrets.receive),
            arrivals: Arrivals::new(1_000_000, now_ns),
            next_packet: 0,
            welcomed_ns: now_ns,
            heard_ns: now_ns,
            is_used: false,
            due_ns: None,
        }));
        Heard::Answer
    }

    fn proof_of(&self, unix_ns: u64, key: KeyId, hello: &Hello, cookie_time: Option<u64>) -> Proof {
        let (newest_ns, newest_cookie) = match self.runs.get(&hello.run) {
            Some(run) if run.key != key => return Proof::Replay,
            Some(run) => (run.said_unix_ns, run.cookie_time),
            None => {
                let of_key = self.of_keys.get(&key);
                of_key.map_or((self.since_unix_ns, 0), |of| (of.since_unix_ns, of.cookie_time))
            }
        };
        let is_known = self.runs.contains_key(&hello.run);
        if let Some(time) = cookie_time.filter(|time| *time > newest_cookie) {
            return Proof::Cookie(time);
        }
        let is_near = hello.unix_ns.abs_diff(unix_ns) <= CLOCK_OFF_NS;
        match newest_ns.checked_sub(hello.unix_ns) {
            None if is_near => Proof::New,
            Some(back_ns) if is_known && back_ns <= CLOCK_BACK_NS => Proof::Replay,
            _ => Proof::Missing,
        }
    }

    /// Records the run of a hello and returns what is known of it.
    pub(super) fn note_run(
        &mut self,
        now_ns: u64,
        (key, name): (KeyId, String),
        hello: &Hello,
        cookie_time: u64,
        intake: &mut PeerIntake<'_>,
    ) -> Option<Totals> {
        if let Some(run) = self.runs.get_mut(&hello.run) {
            let is_newer = hello.unix_ns > run.said_unix_ns;
            run.said_unix_ns = run.said_unix_ns.max(hello.unix_ns);
            run.cookie_time = run.cookie_time.max(cookie_time);
            run.heard_ns = now_ns;
            // The floor is where an earlier process of the sender stopped: its packets are late from here on, so both ends count
            // the same.
            run.receiver.adopt(hello.floor, &mut self.room);
            let totals = run.receiver.totals();
            if is_newer {
                self.note_said(&hello.run);
            }
            return Some(totals);
        }

        self.make_room_for_runs(intake);
        let peer = Peer { name, host: hello.host.clone(), listener: hello.listener.clone() };
        let run = Run {
            number: self.next_run,
            peer: self.begin_run(key, peer, hello.run),
            key,
            receiver: Receiver::new(self.options, key, hello.floor),
            hold_due_ns: None,
            said_unix_ns: hello.unix_ns,
            cookie_time,
            is_superseded: false,
            session: None,
            heard_ns: now_ns,
        };
        self.next_run = self.next_run.wrapping_add(1);
        self.runs.insert(hello.run, run);
        self.note_run_of(&hello.run);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::far::runs::RUN_UNUSED_NS;
    use crate::key::{Key, Keys};
    use crate::near::{Identity, Near};
    use crate::receiver::ReceiverOptions;
    use crate::sender::SenderOptions;

    const MS: u64 = 1_000_000;
    const SENDER: SenderOptions = SenderOptions {
        rate_bytes_per_sec: 100_000_000,
        repair_percent: 50,
        part_bytes: 1_000,
        window: 4_096,
        redelivers: true,
    };
    const RECEIVER: ReceiverOptions = ReceiverOptions {
        window: 4_096,
        parts_bytes: 1 << 20,
        hold_ns: None,
        room_bytes: 1 << 20,
        senders_max: 1_000,
    };
    /// When the tests begin: a receiving end that began long before has no reason to ask for a cookie.
    const UNIX_NS: u64 = 1 << 60;

    fn near(key: &Key) -> Near {
        let identity = Identity { host: "web-1".to_owned(), listener: "syslog".to_owned() };
        Near::new(key.clone(), identity, SENDER, 0)
    }

    /// A hello from a sender that has the key.
    fn hello(key: &Key) -> Vec<u8> {
        let mut packet = Vec::new();
        assert!(near(key).hello(0, UNIX_NS + 1, &mut packet));
        packet
    }

    fn addr(at: usize) -> SocketAddr {
        SocketAddr::from(([10, (at >> 16) as u8, (at >> 8) as u8, at as u8], 7_000))
    }

    fn far(key: &Key) -> Far {
        let begun = Moment { now_ns: 0, unix_ns: UNIX_NS - 2 * CLOCK_OFF_NS };
        Far::new(Keys::parse(&key.line()).unwrap(), RECEIVER, begun)
    }

    /// Delivers a packet and returns the answer, which is never longer.
    fn hear(far: &mut Far, now_ns: u64, from: SocketAddr, packet: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let moment = Moment { now_ns, unix_ns: UNIX_NS + now_ns };
        let heard = far.on_packet(moment, from, &mut packet.to_vec(), &mut |_, _| {}, &mut out);
        assert_eq!(heard == Heard::Answer, !out.is_empty());
        assert!(out.len() <= packet.len(), "{} bytes for {}", out.len(), packet.len());
        out
    }

    #[test]
    fn a_flood_of_hellos_keeps_no_sender_out_and_is_not_answered_with_sessions() {
        let key = Key::new("a", [1; 32]);
        let mut far = far(&key);
        let replay = hello(&key);
        assert!(!hear(&mut far, 0, addr(1), &replay).is_empty());
        let authentic: Vec<_> = (0..300).map(|_| hello(&key)).collect();
        let forged: Vec<_> = (0..6)
            .map(|at| {
                let mut one = hello(&key);
                one[40 + at] ^= 1;
                one
            })
            .collect();

        let (mut sender, mut packet, mut met_ns) = (near(&key), Vec::new(), None);
        let mut at = 1;
        for now_ns in (0..100).map(|ms| ms * MS) {
            for one in &forged {
                at += 1;
                assert!(hear(&mut far, now_ns, addr(at), &replay).is_empty(), "a replay");
                assert!(hear(&mut far, now_ns, addr(at), one).is_empty(), "forged");
                hear(&mut far, now_ns, addr(at), &authentic[at % authentic.len()]);
            }
            packet.clear();
            if now_ns >= 40 * MS && sender.hello(now_ns, UNIX_NS + 2 + now_ns, &mut packet) {
                let mut answer = hear(&mut far, now_ns, addr(0), &packet);
                sender.on_packet(now_ns, &mut answer);
            }
            if sender.is_answered(now_ns) {
                met_ns.get_or_insert(now_ns);
            }
        }

        let counts = far.counts();
        // One hello asks for the cookie, and the next returns it.
        assert!(met_ns.is_some_and(|met_ns| met_ns <= 42 * MS), "{met_ns:?} {counts:?}");
        assert_eq!(sender.counts().forged, 0);
        // A tenth of a second's allowance as a burst, and the rate over the elapsed time; plus those that returned a cookie.
        assert!((150..=100 + 100 + 2).contains(&counts.sessions), "{counts:?}");
        assert!(counts.hello_cookies > 200 && counts.forged == 600, "{counts:?}");
    }

    #[test]
    fn who_brings_a_cookie_is_heard_whatever_comes_without_one() {
        let key = Key::new("a", [1; 32]);
        let (mut far, mut sender, mut packet) = (far(&key), near(&key), Vec::new());
        far.hellos.without_cookie.used_until_ns = u64::MAX / 2;
        assert!(sender.hello(0, UNIX_NS + 1, &mut packet));
        let mut answer = hear(&mut far, 0, addr(0), &packet);
        sender.on_packet(0, &mut answer.clone());
        assert_eq!((far.counts().hello_cookies, far.counts().sessions), (1, 0));

        // More hellos come than are read.
        far.hellos.looked_at.used_until_ns = u64::MAX / 2;
        assert!(hear(&mut far, 0, addr(0), &hello(&key)).is_empty());
        assert_eq!(far.counts().hellos_refused, 1);
        packet.clear();
        assert!(sender.hello(1, UNIX_NS + 2, &mut packet), "at once");
        // From another address it counts as a hello without a cookie, so nobody else can use it.
        assert!(hear(&mut far, 1, addr(1), &packet).is_empty());
        let mut welcome = hear(&mut far, 1, addr(0), &packet);
        sender.on_packet(1, &mut welcome);
        assert!(sender.is_answered(1));
        assert_eq!((far.counts().hellos_refused, far.counts().sessions), (2, 1));

        // The cookie for a hello that is over is rejected.
        sender.on_packet(1, &mut answer);
        assert_eq!(sender.counts().forged, 1);
    }

    #[test]
    fn a_cookie_in_vain_does_not_make_a_sender_ask_without_end() {
        let key = Key::new("a", [1; 32]);
        let (mut far, mut sender, mut packet) = (far(&key), near(&key), Vec::new());
        far.hellos.without_cookie.used_until_ns = u64::MAX / 2;
        let mut hellos = 0;
        for now_ns in (0..1_000).map(|ms| ms * MS) {
            packet.clear();
            if sender.hello(now_ns, UNIX_NS + 1 + now_ns, &mut packet) {
                hellos += 1;
                // Something on the path changes the port each time.
                let mut answer = hear(&mut far, now_ns, addr(hellos), &packet);
                sender.on_packet(now_ns, &mut answer);
            }
        }
        assert!((3..=4).contains(&hellos), "{hellos} in a second");
    }

    #[test]
    fn a_run_of_which_nothing_came_is_soon_forgotten() {
        let key = Key::new("a", [1; 32]);
        let mut far = far(&key);
        assert!(!hear(&mut far, 0, addr(0), &hello(&key)).is_empty());
        assert!(!hear(&mut far, RUN_UNUSED_NS, addr(1), &hello(&key)).is_empty());
        assert_eq!(far.run_count(), 2);
        assert!(!hear(&mut far, 2 * RUN_UNUSED_NS, addr(2), &hello(&key)).is_empty());
        assert_eq!(far.run_count(), 2, "the first is gone");
    }
}
