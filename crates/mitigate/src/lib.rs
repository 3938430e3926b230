//! Mitigation: routes that make routers drop an attack, announced through a BGP speaker.
//!
//! The [`Engine`] decides what to announce, refuse and withdraw. It does no I/O and reads no clock. A [`Speaker`]
//! announces routes: GoBGP through gRPC, or ExaBGP through its process interface. The [`Control`] thread connects the
//! two: it compares what is wanted with what the speaker accepted, and sends the difference.

#![forbid(unsafe_code)]

mod audit;
mod control;
mod engine;
mod journal;
mod policy;
mod prefix;
mod route;
pub mod speaker;

pub use audit::{AuditLog, Entry};
pub use control::{Change, Control, Event, Full, Observer, Options};
pub use engine::{Attack, Decision, Engine, Verdict};
pub use journal::Journal;
pub use policy::{Action, Limits, Mode, OnStop, Policy};
pub use prefix::{Prefix, PrefixError};
pub use route::{Actions, Community, CommunityError, Flow, KeyError, Nlri, NlriError};
pub use speaker::{Session, SpeakError, Speaker};
