//! A batch as a request body.

use super::Compression;
use crate::batch::{Batch, Encoded, Part, PartKey};
use crate::destination::{BatchEncoder, Pushed};
use bytes::Bytes;
use flate2::write::GzEncoder;
use record::Row;
use std::io::Write;
use std::sync::Arc;

impl Compression {
    /// The value of the `Content-Encoding` header.
    pub(crate) fn coding(self) -> Option<&'static str> {
        match self {
            Compression::None => None,
            Compression::Gzip => Some("gzip"),
            Compression::Zstd => Some("zstd"),
        }
    }
}

/// Compresses the output of another encoder, after a header at the start of each body. The batch holds the compressed bytes, so a
/// retry costs nothing.
pub(crate) struct BodyEncoder {
    pub(crate) rows: Box<dyn BatchEncoder>,
    pub(crate) header: Vec<u8>,
    pub(crate) compression: Compression,
}

impl BatchEncoder for BodyEncoder {
    fn push(&mut self, row: &Row<'_>, key: PartKey) -> Pushed {
        self.rows.push(row, key)
    }

    fn bytes(&self) -> usize {
        self.header.len() + self.rows.bytes()
    }

    fn finish(&mut self) -> Encoded {
        let Encoded { bytes, mut parts } = self.rows.finish();
        let bytes = match self.compression {
            Compression::None if self.header.is_empty() => bytes,
            Compression::None => [self.header.as_slice(), &bytes].concat(),
            Compression::Gzip => gzip(&self.header, &bytes),
            Compression::Zstd => zstd(&self.header, &bytes),
        };
        // They go together: the first part has all bytes.
        parts.iter_mut().for_each(|part: &mut Part| part.end = bytes.len());
        Encoded { bytes, parts }
    }

    fn memory_max_bytes(&self, batch_bytes: usize) -> usize {
        // The rows, and the body made from them.
        self.rows.memory_max_bytes(batch_bytes) + batch_bytes
    }
}

/// The fastest level: the network between a host and its store is rarely the bottleneck.
const LEVEL: u32 = 1;

fn gzip(header: &[u8], rows: &[u8]) -> Vec<u8> {
    let mut out =
        GzEncoder::new(Vec::with_capacity(rows.len() / 4), flate2::Compression::new(LEVEL));
    let written = out.write_all(header).and_then(|()| out.write_all(rows));
    written.and_then(|()| out.finish()).expect("memory takes every write")
}

fn zstd(header: &[u8], rows: &[u8]) -> Vec<u8> {
    let out = Vec::with_capacity(rows.len() / 4);
    let compressed = zstd::stream::Encoder::new(out, LEVEL.cast_signed()).and_then(|mut out| {
        out.write_all(header)?;
        out.write_all(rows)?;
        out.finish()
    });
    compressed.expect("memory takes every write, and the level is one that there is")
}

/// The bytes of a batch as a request body, without copying.
pub(crate) fn body_of(batch: Arc<Batch>) -> Bytes {
    struct Body(Arc<Batch>);

    impl AsRef<[u8]> for Body {
        fn as_ref(&self) -> &[u8] {
            &self.0.encoded.bytes
        }
    }
    Bytes::from_owner(Body(batch))
}
