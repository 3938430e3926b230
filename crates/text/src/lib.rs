//! Numbers and quantities for people: one way to parse each, one way to print each.
//!
//! [`units`] parses sizes, durations, counts and rates, and writes them so that they parse back exactly. The functions
//! here print for people: three digits, in the best-fitting unit. Sizes in bytes have binary units (KiB, MiB), rates
//! have decimal ones (kbit/s, Mbit/s).

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
    bit_rate, date, escaped, grouped, percent, plural, short_count, short_time, size, time,
    time_of_day, time_range,
};
pub use table::{Align, Table};
