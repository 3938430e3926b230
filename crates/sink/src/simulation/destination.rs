//! A destination whose behavior changes with its mood.

use super::faults::Fault;
use super::world::{Shared, World, lock, panic, trouble};
use crate::batch::{Attempt, Outcome};
use crate::destination::Destination;
use ledger::Trouble;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

pub(super) struct Fake {
    world: Shared,
}

pub(super) fn make(world: &Shared) -> Result<Box<dyn Destination>, Trouble> {
    let mut here = lock(world);
    here.calls += 1;
    if here.chance(|mood| mood.make_fails) {
        here.fired.add(Fault::MakeFails);
        here.say(|| "it cannot be made".into());
        return Err(trouble());
    }
    if here.chance(|mood| mood.panics) {
        here.fired.add(Fault::MakePanics);
        panic(here, "made");
    }
    here.say(|| "it is made".into());
    drop(here);
    Ok(Box::new(Fake { world: Arc::clone(world) }))
}

/// Keeps a failed check for the judge: here the sink would take it for a panic of its client.
fn judged(world: &mut World, judge: impl FnOnce(&mut World)) {
    if catch_unwind(AssertUnwindSafe(|| judge(world))).is_err() {
        world.wrong = Some("the sink made a wrong call: see above".into());
    }
}

impl Destination for Fake {
    fn submit(&mut self, attempt: Attempt) -> Result<(), Attempt> {
        let mut world = lock(&self.world);
        world.calls += 1;
        if world.chance(|mood| mood.gives_back) {
            world.fired.add(Fault::GivenBack);
            world.say(|| format!("{:?} is given back", attempt.batch.id));
            return Err(attempt);
        }
        judged(&mut world, |world| world.submit(&attempt.batch, &attempt.parts));
        if world.chance(|mood| mood.panics) {
            world.fired.add(Fault::SubmitPanics);
            panic(world, "it is given a batch");
        }
        Ok(())
    }

    fn poll(&mut self, wait: Duration, done: &mut Vec<Outcome>) {
        let mut world = lock(&self.world);
        let until_ns = world.now_ns + wait.as_nanos() as u64;
        let sync_in = world.sync_in();
        let sync_ns = sync_in.map(|due| world.now_ns + due.as_nanos() as u64);
        let next_ns = world.next_answer_ns().into_iter().chain(sync_ns).min().unwrap_or(u64::MAX);
        world.now_ns = until_ns.min(next_ns.max(world.now_ns));
        if sync_in.is_some_and(|due| due <= wait) && world.sync_in() == Some(Duration::ZERO) {
            world.sync();
        }
        let before = done.len();
        judged(&mut world, |world| world.answer(done));
        world.calls += (done.len() - before) as u64;
        if world.chance(|mood| mood.panics) {
            world.fired.add(Fault::PollPanics);
            panic(world, "it is polled");
        }
    }

    fn close(&mut self, wait: Duration, done: &mut Vec<Outcome>) {
        lock(&self.world).sync();
        self.poll(wait.min(Duration::from_millis(50)), done);
        let mut world = lock(&self.world);
        if world.chance(|mood| mood.panics) {
            world.fired.add(Fault::ClosePanics);
            panic(world, "it is closed");
        }
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        lock(&self.world).gone();
    }
}
