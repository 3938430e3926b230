//! What Weir exports: one table that describes every field, and the encoders that follow it.

#![forbid(unsafe_code)]
