//! A destination that takes everything and keeps nothing: for measuring, and for trying a configuration.

use crate::batch::{Attempt, Fate, Outcome};
use crate::destination::{Connector, Destination, Form};
use crate::encode::{Partition, RowEncoder};
use record::{Encoding, FieldSet};
use std::time::Duration;

/// Nowhere: every record is written in this encoding, and forgotten.
pub fn null(encoding: Encoding, fields: FieldSet) -> Connector {
    let form = move || {
        Form::Mixed(Box::new(RowEncoder::new(encoding, &fields, Partition::Whole)) as Box<_>)
    };
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
