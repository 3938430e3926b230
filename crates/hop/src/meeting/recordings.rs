//! Hellos that someone recorded, and plays from addresses of his choice.

use super::*;
use crate::packet::COOKIE_BYTES;

const SEC: u64 = 1_000 * MS;
const MIN: u64 = 60 * SEC;
const HOUR: u64 = 60 * MIN;
const DAY: u64 = 24 * HOUR;

/// A sender with its own clock, a receiver, and everything that was said.
struct Scene {
    far: Far,
    near: Near,
    now_ns: u64,
    /// What the sender's clock says more than the receiver's.
    ahead_ns: i64,
    recorded: Vec<Vec<u8>>,
    accepted: u64,
}

impl Scene {
    fn new(ahead_ns: i64) -> Scene {
        let (key, keys) = keys();
        Scene {
            far: Far::new(keys, FAR_OPTIONS, moment(0)),
            near: Near::new(key, identity(), OPTIONS, 0),
            now_ns: 0,
            ahead_ns,
            recorded: Vec::new(),
            accepted: 0,
        }
    }

    /// Says a hello, and does not deliver it.
    fn say(&mut self) -> Vec<u8> {
        let (mut hello, unix_ns) = (Vec::new(), moment(self.now_ns).unix_ns);
        let unix_ns = unix_ns.saturating_add_signed(self.ahead_ns);
        assert!(self.near.hello(self.now_ns, unix_ns, &mut hello), "one is due");
        self.recorded.push(hello.clone());
        hello
    }

    /// Delivers a packet. Returns the answer.
    fn deliver(&mut self, mut packet: Vec<u8>, from: SocketAddr) -> Vec<u8> {
        let (mut answer, len) = (Vec::new(), packet.len());
        let at = moment(self.now_ns);
        let accepted = &mut self.accepted;
        self.far.on_packet(at, from, &mut packet, &mut |_, _| *accepted += 1, &mut answer);
        assert!(answer.len() <= len, "{} bytes for {len}", answer.len());
        answer
    }

    /// The sender gets a session and uses it. Returns the number of hellos that it took.
    fn meet(&mut self) -> usize {
        let begin = self.recorded.len();
        while !self.near.is_answered(self.now_ns) {
            assert!(self.recorded.len() < begin + 3, "{:?}", self.far.counts());
            let hello = self.say();
            let mut answer = self.deliver(hello, from());
            self.near.on_packet(self.now_ns, &mut answer);
            self.now_ns += MS;
        }
        self.near.take(self.now_ns, Taken { number: self.now_ns, bytes: 5, expires_ns: u64::MAX });
        let mut packet = Vec::new();
        loop {
            packet.clear();
            match self.near.next(self.now_ns) {
                Next::Data(one) => {
                    let origin =
                        Origin { received_unix_ns: 1, sender: From::Nobody, bytes: one.len };
                    self.near.seal_data(self.now_ns, &one, origin, b"hello", &mut packet);
                }
                Next::Floor { packet: number, floor } => {
                    self.near.seal_floor(self.now_ns, number, floor, &mut packet);
                }
                Next::Wait { .. } => break,
            }
            self.deliver(packet.clone(), from());
        }
        packet.clear();
        while self.far.next_report(self.now_ns + 10 * MS, &mut packet).is_some() {
            self.near.on_packet(self.now_ns + 10 * MS, &mut packet);
            packet.clear();
        }
        self.recorded.len() - begin
    }

    /// Lets this much time pass without a packet, and the sender finds that it has no answer.
    fn pass(&mut self, ns: u64) {
        self.now_ns += ns;
        self.far.release(self.now_ns, &mut |_, _| panic!("nothing waits"));
        self.near.take(self.now_ns, Taken { number: self.now_ns, bytes: 5, expires_ns: u64::MAX });
        while !matches!(self.near.next(self.now_ns), Next::Wait { .. }) {}
        self.now_ns += 30 * SEC;
        assert!(!self.near.is_answered(self.now_ns));
    }

    /// Plays everything that was recorded, in order, three times over, from where it came and from elsewhere. No session may begin,
    /// and answers may only be cookies.
    fn play(&mut self) {
        let (runs, sessions) = (self.far.run_count(), self.far.counts().sessions);
        for round in 0..3 {
            for hello in self.recorded.clone() {
                for from in [from(), "198.51.100.9:99".parse().unwrap()] {
                    self.now_ns += MS;
                    let answer = self.deliver(hello.clone(), from);
                    let kind = answer.first().map(|first| first & 0xf);
                    let is_cookie = kind.is_none_or(|kind| kind == Kind::Cookie as u8);
                    assert!(is_cookie, "round {round}: an answer of kind {kind:?}");
                }
            }
        }
        assert_eq!(self.far.counts().sessions, sessions);
        assert_eq!(self.far.run_count(), runs.min(self.far.run_count()), "no run began");
    }

    fn restart(&mut self, shared: Option<&Shared>) {
        let (_, keys) = keys();
        self.far = Far::new(keys, FAR_OPTIONS, moment(self.now_ns));
        if let Some(shared) = shared {
            let noted = shared.0.lock().unwrap().0.clone();
            assert!(self.far.remember(self.now_ns, &noted, Box::new(shared.clone())));
        }
    }
}

#[test]
fn a_recording_is_not_answered_with_a_session_however_old_it_is() {
    for age_ns in [0, 30 * SEC, 61 * SEC, 5 * MIN, 11 * MIN, HOUR, DAY - HOUR, 2 * DAY, 30 * DAY] {
        let mut scene = Scene::new(0);
        // Hellos that never arrived, over two minutes; then a session.
        for _ in 0..40 {
            scene.say();
            scene.now_ns += 3 * SEC;
        }
        scene.meet();
        scene.now_ns += age_ns;
        scene.far.release(scene.now_ns, &mut |_, _| {});
        scene.play();
    }
}

#[test]
fn what_was_recorded_while_nobody_heard_it_is_worth_nothing_to_the_next_receiver() {
    for age_ns in [0, 61 * SEC, 11 * MIN, 2 * DAY] {
        // The clock of the sender may be ahead: its hellos are newer than the receiver is.
        for ahead_ns in [0, 5 * MIN as i64, -(5 * MIN as i64), HOUR as i64] {
            let mut scene = Scene::new(ahead_ns);
            for _ in 0..40 {
                scene.say();
                scene.now_ns += 3 * SEC;
            }
            scene.now_ns += age_ns;
            scene.restart(None);
            scene.play();
        }
    }
}

#[test]
fn a_receiver_that_kept_its_state_knows_what_it_heard() {
    for age_ns in [0, 61 * SEC, 11 * MIN, 2 * DAY] {
        for ahead_ns in [0, 5 * MIN as i64, HOUR as i64] {
            let (mut scene, shared) = (Scene::new(ahead_ns), Shared::default());
            scene.far.remember(0, &[], Box::new(shared.clone()));
            for _ in 0..3 {
                scene.meet();
                scene.pass(4 * SEC);
            }
            scene.now_ns += age_ns;
            scene.far.release(scene.now_ns, &mut |_, _| {});
            scene.restart(Some(&shared));
            scene.play();
            scene.far.release(scene.now_ns, &mut |_, _| {});
            scene.restart(Some(&shared));
            scene.play();
            assert!(scene.far.accepted().datagrams >= 3, "totals are kept");
        }
    }
}

#[test]
fn a_host_whose_clock_is_off_gets_in_with_a_cookie() {
    for ahead_ns in [0, 59, -59, 61, -61, 3_600, -3_600, 1_000_000_000, -1_000_000_000] {
        let mut scene = Scene::new(ahead_ns * SEC as i64);
        // The receiver has just begun, so the first one takes a cookie in any case.
        assert_eq!(scene.meet(), 2);
        scene.now_ns += 20 * MIN;
        scene.pass(0);
        let expected = if ahead_ns.abs() <= 600 { 1 } else { 2 };
        assert_eq!(scene.meet(), expected, "{ahead_ns} s ahead");
        scene.play();
    }
}

#[test]
fn a_host_whose_clock_is_set_back_gets_in_with_a_cookie() {
    let mut scene = Scene::new(0);
    scene.meet();
    scene.pass(20 * MIN);
    assert_eq!(scene.meet(), 1);
    for back_ns in [HOUR, 2 * HOUR, DAY] {
        scene.ahead_ns = -(back_ns as i64);
        scene.pass(5 * SEC);
        assert_eq!(
            scene.meet(),
            2,
            "a cookie each time: its hellos are older than one that was heard"
        );
        scene.play();
        scene.pass(5 * SEC);
        assert_eq!(scene.meet(), 2);
    }
    scene.ahead_ns = 0;
    scene.pass(5 * SEC);
    assert_eq!(scene.meet(), 1, "its clock is right again");
    scene.play();
}

#[test]
fn a_cookie_is_taken_once() {
    let mut scene = Scene::new(-(HOUR as i64));
    scene.meet();
    let with_cookie = scene.recorded.last().unwrap().clone();
    assert!(
        with_cookie.len() > COOKIE_BYTES && with_cookie[0] & 0xf == Kind::HelloWithCookie as u8
    );
    let replayed = scene.far.counts().replayed;
    assert!(
        scene.deliver(with_cookie.clone(), from()).is_empty(),
        "from the same address, at once"
    );
    assert_eq!(scene.far.counts().replayed, replayed + 1);
    // Its run is forgotten while the cookie is still valid.
    let (id, _, _) = scene.far.runs().next().unwrap();
    scene.far.forget(&id, &mut |_, _| {});
    let answer = scene.deliver(with_cookie, from());
    assert_eq!(answer[0] & 0xf, Kind::Cookie as u8);
    assert_eq!(scene.far.run_count(), 0);
}
