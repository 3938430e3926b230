//! Numbers and quantities for people: one way to parse each, one way to print each.
//!
//! [`units`] reads sizes, durations, counts and rates, and writes them so that they are read back exactly. The functions
//! here print for people: three digits, and the unit that needs no more. Sizes in bytes have binary units (KiB, MiB),
//! rates have decimal ones (kbit/s, Mbit/s). [`Table`], [`folded`] and [`cut`] fit texts to a terminal, [`Ink`] colors them.

#![forbid(unsafe_code)]

mod civil;
mod ink;
mod lines;
mod people;
mod table;
pub mod units;

pub use civil::Civil;
pub use ink::{Ink, Tint};
pub use lines::{cut, cut_middle, folded};
pub use people::{
    bit_rate, date, escaped, grouped, percent, plural, rfc3339, short_count, short_time, size,
    time, time_of_day, time_range,
};
pub use table::{Align, Table};
