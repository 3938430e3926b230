//! Decides what to announce and withdraw, from attacks and the time. No I/O, no clock.

use crate::policy::{Mode, OnStop, Policy};
use crate::{Actions, Flow, Nlri};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// The period for the limit on new routes.
const MINUTE: Duration = Duration::from_secs(60);
/// Most attacks that may wait for room. A further one is refused.
const WAITING_MAX: usize = 1_000;
/// Most attacks recorded by name for one route: more than the thresholds of a policy usually let be raised at a time.
const ATTACKS_PER_ROUTE_MAX: usize = 100_000;

/// Traffic that exceeded a threshold.
#[derive(Clone, Debug, PartialEq)]
pub struct Attack {
    /// Identifies the attack, also when it is cleared.
    pub id: String,
    /// The threshold's name.
    pub threshold: String,
    pub flow: Flow,
    /// The figure that exceeded the threshold, in the threshold's unit.
    pub value: f64,
    /// The same figure for people, with its unit.
    pub measured: String,
}

/// The outcome of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Announce,
    Withdraw,
    /// Nothing is announced, now or later.
    Refuse,
    /// Nothing is announced until there is room.
    Wait,
}

/// A decision and its reason.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    pub verdict: Verdict,
    /// The attack that it is about; of a route that is withdrawn, the one that it began with. `None` if there is none.
    pub attack: Option<Attack>,
    /// The route; `None` if there is no route against the attack.
    pub route: Option<(Nlri, Actions)>,
    pub reason: String,
}

/// The state of one policy.
#[derive(Debug)]
pub struct Engine {
    policy: Policy,
    held: BTreeMap<Nlri, Held>,
    waiting: VecDeque<Attack>,
    /// Routes that expired during their attacks, until they may come back.
    resting: BTreeMap<Nlri, Resting>,
    /// When the routes of the last minute began, oldest first.
    begun: VecDeque<Instant>,
}

/// An announced route.
#[derive(Debug)]
struct Held {
    actions: Actions,
    /// The attack that it began with.
    first: Attack,
    attacks: Attacks,
    since: Instant,
    /// Since when there has been no attack.
    gone_since: Option<Instant>,
}

/// A route that expired during its attacks.
#[derive(Debug)]
struct Resting {
    first: Attack,
    attacks: Attacks,
    since: Instant,
}

/// The attacks on one route.
#[derive(Debug, Default)]
struct Attacks {
    ids: BTreeSet<String>,
    /// Whether there were more than are recorded. Nobody knows then when the last one is over, until all that go on are named.
    has_more: bool,
}

impl Attacks {
    fn add(&mut self, id: String) {
        if self.ids.len() < ATTACKS_PER_ROUTE_MAX {
            self.ids.insert(id);
        } else {
            self.has_more |= !self.ids.contains(&id);
        }
    }

    fn are_over(&self) -> bool {
        self.ids.is_empty() && !self.has_more
    }
}

impl Engine {
    pub fn new(policy: Policy) -> Engine {
        Engine {
            policy,
            held: BTreeMap::new(),
            waiting: VecDeque::new(),
            resting: BTreeMap::new(),
            begun: VecDeque::new(),
        }
    }

    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// What a speaker should have of this policy at this moment. Nothing in a dry run.
    pub fn wanted(&self) -> impl Iterator<Item = (&Nlri, &Actions)> {
        let held = (self.policy.mode == Mode::Announce).then_some(&self.held);
        held.into_iter().flatten().map(|(nlri, held)| (nlri, &held.actions))
    }

    /// Number of its routes, also in a dry run.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Notes that an attack has begun or continues. Ignores attacks of thresholds that are not the
    /// policy's.
    pub fn raise(&mut self, attack: Attack, now: Instant) -> Option<Decision> {
        if !self.policy.thresholds.contains(&attack.threshold) {
            return None;
        }
        if let Some(waits) = self.waiting.iter_mut().find(|waits| waits.id == attack.id) {
            *waits = attack;
            return None;
        }

        let refusal = self.policy.refusal(&attack.flow.destination);
        match refusal.map_or_else(|| self.policy.route(&attack), Err) {
            Ok(route) => self.admit(attack, route, now),
            Err(reason) => Some(refused(attack, None, reason)),
        }
    }

    /// Notes that an attack is over.
    pub fn clear(&mut self, id: &str, now: Instant) {
        self.waiting.retain(|attack| attack.id != id);
        self.attacks_mut().for_each(|attacks| _ = attacks.ids.remove(id));
        self.note_what_is_over(now);
    }

    /// Sets the attacks in progress to exactly these, which corrects anything missed.
    pub fn set(&mut self, attacks: &[Attack], now: Instant) -> Vec<Decision> {
        let ids: BTreeSet<&str> = attacks.iter().map(|attack| attack.id.as_str()).collect();
        self.waiting.retain(|attack| ids.contains(attack.id.as_str()));
        for attacks in self.attacks_mut() {
            attacks.ids.retain(|id| ids.contains(id.as_str()));
            // All that go on are named here.
            attacks.has_more = false;
        }
        let decisions: Vec<_> =
            attacks.iter().filter_map(|attack| self.raise(attack.clone(), now)).collect();
        self.note_what_is_over(now);
        decisions
    }

    /// The attacks on each route.
    fn attacks_mut(&mut self) -> impl Iterator<Item = &mut Attacks> {
        let held = self.held.values_mut().map(|held| &mut held.attacks);
        held.chain(self.resting.values_mut().map(|resting| &mut resting.attacks))
    }

    /// Notes which routes have no attack any more.
    fn note_what_is_over(&mut self, now: Instant) {
        for held in self.held.values_mut().filter(|held| held.attacks.are_over()) {
            held.gone_since.get_or_insert(now);
        }
        self.resting.retain(|_, resting| !resting.attacks.are_over());
    }

    /// Makes the decisions due at this time.
    pub fn tick(&mut self, now: Instant) -> Vec<Decision> {
        let mut decisions = Vec::new();
        let limits = &self.policy.limits;
        let has_passed =
            |since: Instant, time: Duration| now.saturating_duration_since(since) >= time;

        let resting = &mut self.resting;
        self.held.retain(|nlri, held| {
            let is_gone = held.gone_since.is_some_and(|at| has_passed(at, limits.withdraw_after));
            let reason = match held.since {
                since if has_passed(since, limits.expiry) => "it has expired",
                since if is_gone && has_passed(since, limits.hold) => "the traffic is gone",
                _ => return true,
            };
            decisions.push(withdrawn(nlri, held, reason));
            if !held.attacks.are_over() {
                let (first, attacks) = (held.first.clone(), std::mem::take(&mut held.attacks));
                resting.insert(nlri.clone(), Resting { first, attacks, since: now });
            }
            false
        });

        let rested = |_: &Nlri, resting: &mut Resting| has_passed(resting.since, limits.hold);
        for (nlri, Resting { first, attacks, .. }) in
            self.resting.extract_if(.., rested).collect::<Vec<_>>()
        {
            // The first attack may be over; any of them represents all.
            let id = attacks.ids.first().cloned().unwrap_or_else(|| first.id.clone());
            decisions.extend(self.raise(Attack { id, ..first }, now));
            if let Some(held) = self.held.get_mut(&nlri) {
                held.attacks = attacks;
            }
        }

        // In order, until one has to keep waiting.
        while self.room(now).is_ok()
            && let Some(attack) = self.waiting.pop_front()
        {
            decisions.extend(self.raise(attack, now));
        }
        decisions
    }

    /// Weir stops: afterwards nothing is wanted, unless routes are to be kept.
    pub fn stop(&mut self) -> Vec<Decision> {
        self.waiting.clear();
        self.resting.clear();
        match self.policy.on_stop {
            OnStop::Keep => Vec::new(),
            OnStop::Withdraw => self.withdraw_all("weir stops"),
        }
    }

    /// Withdraws everything, whatever the policy says about a stop.
    pub fn withdraw_all(&mut self, reason: &str) -> Vec<Decision> {
        self.waiting.clear();
        self.resting.clear();
        let all = std::mem::take(&mut self.held);
        all.iter().map(|(nlri, held)| withdrawn(nlri, held, reason)).collect()
    }

    fn admit(
        &mut self,
        attack: Attack,
        (nlri, actions): (Nlri, Actions),
        now: Instant,
    ) -> Option<Decision> {
        if let Some(held) = self.held.get_mut(&nlri) {
            held.gone_since = None;
            held.attacks.add(attack.id);
            return None;
        }
        if let Some(resting) = self.resting.get_mut(&nlri) {
            resting.attacks.add(attack.id);
            return None;
        }

        if let Err(reason) = self.room(now) {
            let route = Some((nlri, actions));
            if self.waiting.len() >= WAITING_MAX {
                return Some(refused(
                    attack,
                    route,
                    format!("{reason}, and too many attacks wait"),
                ));
            }
            self.waiting.push_back(attack.clone());
            return Some(Decision { verdict: Verdict::Wait, attack: Some(attack), route, reason });
        }

        self.begun.push_back(now);
        let attacks = Attacks { ids: BTreeSet::from([attack.id.clone()]), has_more: false };
        let first = attack.clone();
        let held = Held { actions: actions.clone(), first, attacks, since: now, gone_since: None };
        self.held.insert(nlri.clone(), held);
        let reason = format!("{} is at {}", attack.threshold, attack.measured);
        let route = Some((nlri, actions));
        Some(Decision { verdict: Verdict::Announce, attack: Some(attack), route, reason })
    }

    /// Whether one more route may begin; if not, the limit that prevents it.
    fn room(&mut self, now: Instant) -> Result<(), String> {
        let is_old = |at: &Instant| now.saturating_duration_since(*at) >= MINUTE;
        while self.begun.front().is_some_and(is_old) {
            self.begun.pop_front();
        }

        let limits = &self.policy.limits;
        if self.held.len() >= limits.routes_max {
            return Err(format!("there are routes_max = {} routes", limits.routes_max));
        }
        if self.begun.len() >= limits.new_routes_per_minute_max {
            let most = limits.new_routes_per_minute_max;
            return Err(format!("new_routes_per_minute = {most} have begun in the last minute"));
        }
        Ok(())
    }
}

fn refused(attack: Attack, route: Option<(Nlri, Actions)>, reason: String) -> Decision {
    Decision { verdict: Verdict::Refuse, attack: Some(attack), route, reason }
}

fn withdrawn(nlri: &Nlri, held: &Held, reason: &str) -> Decision {
    Decision {
        verdict: Verdict::Withdraw,
        attack: Some(held.first.clone()),
        route: Some((nlri.clone(), held.actions.clone())),
        reason: reason.to_owned(),
    }
}
