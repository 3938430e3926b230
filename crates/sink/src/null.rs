//! A destination that accepts everything and keeps nothing: for benchmarks, and for trying a
//! configuration.

use crate::batch::{Attempt, Fate, Outcome};
use crate::destination::{Connector, Destination, Form};
use crate::encode::{Content, Partition};
use std::time::Duration;

/// A sink to nowhere: every row is encoded, then discarded.
pub fn null(content: Content) -> Connector {
    let form = move || Form::Mixed(content.encoder(Partition::Whole));
    let destination = || Ok(Box::new(Null::default()) as Box<dyn Destination>);
    Connector { form: Box::new(form), destination: Box::new(destination) }
}

#[derive(Default)]
struct Null {
    done: Vec<Outcome>,
}

impl Destination for Null {
    fn submit(&mut self, attempt: Attempt) -> Result<(), Attempt> {
        self.done.push(Outcome::all(attempt.batch.id, Fate::Acknowledged));
        Ok(())
    }

    fn poll(&mut self, _wait: Duration, done: &mut Vec<Outcome>) {
        done.append(&mut self.done);
    }
}
