//! Where records leave: a bounded queue and a thread for each destination. A slow or dead one holds no other, nor the source.

#![forbid(unsafe_code)]
