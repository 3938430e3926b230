//! sFlow: every structure written and read back, every trap that agents and other decoders are known for, every cut.

mod bytes;
