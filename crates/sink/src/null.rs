//! A destination that takes everything and keeps nothing: for measuring, and for trying a configuration.

use crate::Payload;
use crate::destination::{Delivery, Destination};
use crate::events::Events;

/// Nowhere: everything is taken and nothing is kept.
pub fn null() -> Box<dyn Destination> {
    Box::new(Null)
}

pub(crate) struct Null;

impl Destination for Null {
    fn deliver(&mut self, payloads: &[Payload], _events: &Events) -> Delivery {
        Delivery::Delivered(payloads.len())
    }
}
