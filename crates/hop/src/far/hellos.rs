//! Hellos: which of them to read, which to ask back with a cookie, and which to give a session.
//!
//! Opening a hello takes 4 to 6 µs; X25519, which the answer needs, takes 25 times as long. So the tag is checked before a cookie
//! is given: strangers without a key get no answer at all, and under load someone who replays a recorded hello gets a cookie that
//! is useless to them.

use super::{Far, Heard, PLACE_BITS, Run, SESSIONS_MAX, Session, note};
use crate::cookie::Cookies;
use crate::handshake::{Hello, Responder, Welcome, respond};
use crate::kept::Record;
use crate::key::KeyId;
use crate::packet::{HEADER_BYTES, Header, decode_hello};
use crate::receiver::{Arrivals, Receiver};
use crate::seal::{Opener, Sealer};
use crate::{Amount, Peer, Totals, random_u32};
use std::net::SocketAddr;
use std::sync::Arc;

/// Maximum hellos read per second, once for those without a valid cookie and once for those with one. Each costs a few
/// microseconds.
const LOOKED_AT_PER_SEC: u64 = 20_000;

/// Hellos per second that are answered without a cookie.
const WITHOUT_COOKIE_PER_SEC: u64 = 1_000;

/// Maximum sessions started per second: each costs a tenth of a millisecond.
const ANSWERED_PER_SEC: u64 = 6_000;

/// Burst that each rate allows, as the time it covers, in nanoseconds.
const BURST_NS: u64 = 100_000_000;

/// Maximum number of runs remembered.
const RUNS_MAX: usize = 1 << 17;

/// How long a session without packets is kept, in nanoseconds.
const SESSION_IDLE_NS: u64 = 180_000_000_000;

/// How long a session that has not had its first packet is kept, in nanoseconds.
const SESSION_UNUSED_NS: u64 = 10_000_000_000;

/// How long a run without a session is remembered, in nanoseconds.
const RUN_IDLE_NS: u64 = 86_400_000_000_000;

/// How long a run from which only hellos have come is remembered, in nanoseconds.
const RUN_UNUSED_NS: u64 = 60_000_000_000;

/// How far a sender's clock may be set back before its hello counts as a replay, in nanoseconds. A larger step back is accepted.
const CLOCK_BACK_NS: u64 = 60_000_000_000;

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
    pub(super) fn new() -> Hellos {
        Hellos {
            cookies: Cookies::new(),
            looked_at: Rate::per_sec(LOOKED_AT_PER_SEC),
            looked_at_with_cookie: Rate::per_sec(LOOKED_AT_PER_SEC),
            without_cookie: Rate::per_sec(WITHOUT_COOKIE_PER_SEC),
            answered: Rate::per_sec(ANSWERED_PER_SEC),
        }
    }

    /// Whether the hello carries a cookie that was given to its address.
    fn has_cookie(&self, now_ns: u64, from: SocketAddr, header: &Header, packet: &[u8]) -> bool {
        match decode_hello(header.kind, &packet[HEADER_BYTES..]) {
            Ok((Some(cookie), _)) => self.cookies.is_valid(now_ns, from, cookie),
            Ok((None, _)) | Err(_) => false,
        }
    }
}

impl Far {
    pub(super) fn on_hello(
        &mut self,
        now_ns: u64,
        from: SocketAddr,
        header: &Header,
        packet: &[u8],
        out: &mut Vec<u8>,
    ) -> Heard {
        let id = KeyId(header.number);
        let Some(key) = self.keys.by_id(id) else {
            self.counts.unknown_session += 1;
            return Heard::Nothing;
        };
        let has_cookie = self.hellos.has_cookie(now_ns, from, header, packet);
        let Hellos { looked_at, looked_at_with_cookie, .. } = &mut self.hellos;
        let looked_at = if has_cookie { looked_at_with_cookie } else { looked_at };
        if !looked_at.allows(now_ns) {
            self.counts.hellos_refused += 1;
            return Heard::Nothing;
        }

        let Ok((hello, responder)) = respond(key, packet) else {
            self.counts.forged += 1;
            return Heard::Nothing;
        };
        if self.is_replay(id, &hello) {
            self.counts.replayed += 1;
            return Heard::Nothing;
        }
        if !has_cookie && !self.hellos.without_cookie.allows(now_ns) {
            self.counts.hello_cookies += 1;
            responder.ask_for_cookie(key, self.hellos.cookies.of(now_ns, from), out);
            return Heard::Answer;
        }
        if !self.hellos.answered.allows(now_ns) {
            self.counts.hellos_refused += 1;
            return Heard::Nothing;
        }

        let name = key.name.clone();
        self.sweep(now_ns);
        let Some(known) = self.note_run(now_ns, id, name, &hello) else {
            self.counts.hellos_refused += 1;
            return Heard::Nothing;
        };
        self.begin_session(now_ns, from, &hello, known, responder, out)
    }

    /// Starts a session and answers the hello with it.
    fn begin_session(
        &mut self,
        now_ns: u64,
        from: SocketAddr,
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
        let Ok(secrets) = responder.accept(&welcome, out) else { return Heard::Nothing };

        self.counts.sessions += 1;
        self.sessions[place] = Some(Box::new(Session {
            index,
            far_index: hello.session,
            run: hello.run,
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

    /// Whether a hello was sent before, or before a newer one that was heard.
    fn is_replay(&self, key: KeyId, hello: &Hello) -> bool {
        self.runs.get(&hello.run).is_some_and(|run| {
            let is_newer = hello.unix_ns > run.said_unix_ns
                || hello.unix_ns + CLOCK_BACK_NS < run.said_unix_ns;
            run.key != key || !is_newer
        })
    }

    /// Records the run of a hello and returns what is known of it. `None` when there is no room for another run.
    fn note_run(
        &mut self,
        now_ns: u64,
        key: KeyId,
        name: String,
        hello: &Hello,
    ) -> Option<Option<Totals>> {
        if let Some(run) = self.runs.get_mut(&hello.run) {
            (run.said_unix_ns, run.heard_ns) = (hello.unix_ns, now_ns);
            // The floor is where an earlier process of the sender stopped: its packets are late from here on, so both ends count
            // the same.
            run.receiver.adopt(hello.floor);
            if let Some(memory) = &mut self.memory {
                let said = Record::Said { run: run.number, unix_ns: hello.unix_ns };
                note(memory.as_mut(), &mut self.record, &said);
            }
            return Some(Some(run.receiver.totals()));
        }

        if self.runs.len() >= RUNS_MAX {
            return None;
        }
        let peer = Peer { name, host: hello.host.clone(), listener: hello.listener.clone() };
        let receiver = Receiver::new(self.options, hello.floor);
        let number = self.next_run;
        self.next_run = self.next_run.wrapping_add(1);
        let run = Run {
            number,
            peer: Arc::new(peer),
            key,
            receiver,
            hold_due_ns: None,
            said_unix_ns: hello.unix_ns,
            session: None,
            heard_ns: now_ns,
        };
        if let Some(memory) = &mut self.memory {
            self.record.clear();
            run.encode(hello.run, &mut self.record);
            memory.note(&self.record);
        }
        self.runs.insert(hello.run, run);
        Some(None)
    }

    fn free_place(&mut self) -> Option<usize> {
        match self.free.pop() {
            Some(place) => Some(place as usize),
            None if self.sessions.len() < SESSIONS_MAX => {
                self.sessions.push(None);
                Some(self.sessions.len() - 1)
            }
            None => None,
        }
    }

    /// Drops sessions and runs that have been silent for too long.
    fn sweep(&mut self, now_ns: u64) {
        if now_ns < self.swept_ns + 1_000_000_000 {
            return;
        }
        self.swept_ns = now_ns;
        for (at, place) in self.sessions.iter_mut().enumerate() {
            let is_over = place.as_ref().is_some_and(|session| {
                let kept_ns = if session.is_used { SESSION_IDLE_NS } else { SESSION_UNUSED_NS };
                now_ns > session.heard_ns + kept_ns
            });
            if is_over {
                *place = None;
                self.free.push(at as u32);
            }
        }
        self.runs.retain(|_, run| {
            let is_unused = run.session.is_none() && run.receiver.accepted() == Amount::default();
            let kept_ns = if is_unused { RUN_UNUSED_NS } else { RUN_IDLE_NS };
            now_ns <= run.heard_ns + kept_ns
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
    const RECEIVER: ReceiverOptions =
        ReceiverOptions { window: 4_096, parts_bytes: 1 << 20, hold_ns: None };

    fn near(key: &Key) -> Near {
        let identity = Identity { host: "web-1".to_owned(), listener: "syslog".to_owned() };
        Near::new(key.clone(), identity, SENDER, 0)
    }

    /// A hello from a sender that has the key.
    fn hello(key: &Key) -> Vec<u8> {
        let mut packet = Vec::new();
        assert!(near(key).hello(0, 1, &mut packet));
        packet
    }

    fn addr(at: usize) -> SocketAddr {
        SocketAddr::from(([10, (at >> 16) as u8, (at >> 8) as u8, at as u8], 7_000))
    }

    fn far(key: &Key) -> Far {
        Far::new(Keys::parse(&key.line()).unwrap(), RECEIVER, 0)
    }

    /// Delivers a packet and returns the answer, which is never longer.
    fn hear(far: &mut Far, now_ns: u64, from: SocketAddr, packet: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let heard = far.on_packet(now_ns, from, &mut packet.to_vec(), &mut |_, _| {}, &mut out);
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
            if now_ns >= 40 * MS && sender.hello(now_ns, 2 + now_ns, &mut packet) {
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
        assert!(sender.hello(0, 1, &mut packet));
        let mut answer = hear(&mut far, 0, addr(0), &packet);
        sender.on_packet(0, &mut answer.clone());
        assert_eq!((far.counts().hello_cookies, far.counts().sessions), (1, 0));

        // More hellos come than are read.
        far.hellos.looked_at.used_until_ns = u64::MAX / 2;
        assert!(hear(&mut far, 0, addr(0), &hello(&key)).is_empty());
        assert_eq!(far.counts().hellos_refused, 1);
        packet.clear();
        assert!(sender.hello(1, 2, &mut packet), "at once");
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
            if sender.hello(now_ns, 1 + now_ns, &mut packet) {
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
