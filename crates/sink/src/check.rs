//! One attempt to deliver a chunk, step by step, for a user who watches: no queue, no retry, no ledger.

use crate::batch::{Attempt, Batch, Fate, Outcome, Parts};
use crate::batcher::{Batcher, Fed};
use crate::destination::{Connector, Destination, ReadBack};
use crate::options::BatchLimits;
use ledger::{Trouble, Way};
use record::Chunk;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest wait of one call to a destination.
const POLL: Duration = Duration::from_millis(100);

/// How long a client may keep reporting trouble: a client that knows several brokers fails with one and succeeds with another.
const TROUBLE_MAX: Duration = Duration::from_secs(3);

/// A part of a check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// What it does.
    pub what: &'static str,
    pub took: Duration,
    /// Its result, in words.
    pub result: Result<String, Trouble>,
}

/// Encodes the chunk for the sink, connects, sends it, waits for its fate, and checks that it is there. Stops at the first step
/// that fails; each may take `wait`.
pub fn check(mut connector: Connector, chunk: Chunk, wait: Duration) -> Vec<Step> {
    let mut steps = Steps(Vec::new());
    let Some(batches) = steps.run("write", || write(&mut connector, chunk)) else { return steps.0 };

    let made = steps.run("prepare", || Ok(((connector.destination)()?, "ready".to_owned())));
    let Some(mut destination) = made else { return steps.0 };

    let is_sent = steps.run("send", || {
        for batch in &batches {
            send(destination.as_mut(), batch, wait)?;
        }
        Ok(((), "acknowledged".to_owned()))
    });
    if is_sent.is_some() {
        steps.run("read back", || {
            let mut says = String::new();
            for batch in &batches {
                says = read_back(destination.as_mut(), batch, wait)?;
            }
            Ok(((), says))
        });
    }
    destination.close(POLL, &mut Vec::new());
    steps.0
}

struct Steps(Vec<Step>);

impl Steps {
    fn run<T>(
        &mut self,
        what: &'static str,
        step: impl FnOnce() -> Result<(T, String), Trouble>,
    ) -> Option<T> {
        let begun = Instant::now();
        let (value, result) = match step() {
            Ok((value, says)) => (Some(value), Ok(says)),
            Err(trouble) => (None, Err(trouble)),
        };
        self.0.push(Step { what, took: begun.elapsed(), result });
        value
    }
}

fn write(connector: &mut Connector, chunk: Chunk) -> Result<(Vec<Arc<Batch>>, String), Trouble> {
    let mut batcher = Batcher::new(BatchLimits::default(), (connector.form)());
    let fed = Fed { chunk: Arc::new(chunk), entry: None, is_repeated: false };
    batcher.feed(&fed, Instant::now(), &mut 0);
    batcher.end_all();

    let batches: Vec<_> = batcher.out.made.into_iter().map(|made| made.batch).collect();
    let bytes: usize = batches.iter().map(|batch| batch.encoded.bytes.len()).sum();
    match batches.is_empty() {
        true => Err(Trouble {
            what: "the test record has no form with this sink".to_owned(),
            fix: "choose another format".to_owned(),
        }),
        false => Ok((batches, format!("one record, {bytes} bytes"))),
    }
}

fn send(
    destination: &mut dyn Destination,
    batch: &Arc<Batch>,
    wait: Duration,
) -> Result<(), Trouble> {
    let begun = Instant::now();
    let until = begun + wait;
    let mut open = batch.encoded.parts.len();
    let mut attempt = Some(Attempt { batch: Arc::clone(batch), parts: Parts::All });

    while open > 0 {
        attempt = attempt.and_then(|attempt| destination.submit(attempt).err());
        let mut done = Vec::new();
        destination.poll(POLL, &mut done);
        for Outcome { parts, fate, .. } in done {
            match fate {
                Fate::Acknowledged => {
                    open -= parts.places(batch.encoded.parts.len()).count().min(open)
                }
                Fate::Rejected { class, says } => {
                    return Err(Trouble { what: says, fix: class.advice().to_owned() });
                }
                Fate::Dropped(reason) => {
                    return Err(Trouble {
                        what: reason.cause().to_owned(),
                        fix: reason.advice().to_owned(),
                    });
                }
                Fate::Uncertain => {
                    return Err(Trouble {
                        what: Way::Uncertain.cause().to_owned(),
                        fix: Way::Uncertain.advice().to_owned(),
                    });
                }
                Fate::Failed(failure) if failure.reason.is_some() => return Err(failure.trouble),
                // Merely slow: try again.
                Fate::Failed(_) => attempt = Some(Attempt { batch: Arc::clone(batch), parts }),
            }
        }
        let trouble = destination.figures().trouble;
        if let Some(trouble) = trouble.filter(|_| begun.elapsed() >= TROUBLE_MAX.min(wait)) {
            return Err(trouble);
        }
        if Instant::now() >= until {
            return Err(Trouble {
                what: format!("no answer within {} s", wait.as_secs()),
                fix: "see whether the destination hangs".to_owned(),
            });
        }
    }
    Ok(())
}

fn read_back(
    destination: &mut dyn Destination,
    batch: &Batch,
    wait: Duration,
) -> Result<String, Trouble> {
    match destination.read_back(batch, wait) {
        ReadBack::Found => Ok("the same is there".to_owned()),
        ReadBack::Cannot(why) => Ok(why.to_owned()),
        ReadBack::Missing(what) => Err(Trouble {
            what,
            fix: "see what the destination does with what it has acknowledged".to_owned(),
        }),
    }
}
