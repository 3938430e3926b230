//! The repaired link between two Weirs.

#![forbid(unsafe_code)]
