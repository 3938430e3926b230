//! Which agents have a place when there are more than places.

use super::Engine;
use crate::agent::{Agent, AgentId};
use crate::share::{Candidate, Place};
use std::net::IpAddr;

impl Engine {
    /// Takes a place for another agent of this sender. `None` if there is none.
    #[cold]
    pub(super) fn admit(&mut self, sender: IpAddr, now_ns: u64) -> Option<()> {
        if self.agents.len() >= self.limits.agents_max {
            self.rest.shares.note_short_of_agents();
            self.evict(Place::Agent, sender, now_ns)?;
        }
        self.rest.shares.add_agent(sender);
        Some(())
    }

    /// Frees places for sources of this sender, if another one has far more.
    #[cold]
    pub(super) fn make_room_for_sources(&mut self, sender: IpAddr, now_ns: u64) {
        let _ = self.evict(Place::Source, sender, now_ns);
    }

    /// Forgets the next agent that gives way to this sender.
    fn evict(&mut self, place: Place, sender: IpAddr, now_ns: u64) -> Option<()> {
        let agents = &self.agents;
        let known = |id: &AgentId| agents.get(id).map(|agent| candidate(id, agent));
        let id = self.rest.shares.next_yielding(place, sender, now_ns, known)?;
        let agent = self.agents.remove(&id)?;
        self.rest.shares.remove(agent.sender(), agent.sources());
        self.rest.totals.agents_evicted += 1;
        let mut gone = Vec::new();
        self.rest.devices.leave(id.address, agent.place(), &mut gone);
        for counting in &mut self.rest.counting {
            counting.forget_vantages(&gone);
        }
        Some(())
    }

    /// Looks for agents that give way, if somebody found no place.
    pub(super) fn look_for_yielding(&mut self) {
        let agents = &self.agents;
        self.rest.shares.look(self.limits.agents_max, |each| {
            agents.iter().for_each(|(id, agent)| each(candidate(id, agent)));
        });
    }
}

fn candidate(id: &AgentId, agent: &Agent) -> Candidate {
    Candidate { id: *id, sender: agent.sender(), heard_ns: agent.heard_ns() }
}
