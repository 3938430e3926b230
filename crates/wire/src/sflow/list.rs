//! Lists of items, decoded in place from the datagram.

use std::fmt;
use std::marker::PhantomData;

use super::counter::Lane;
use super::xdr::{Cursor, Xdr, put_u32};
use super::{Fault, Mac, Value};
use crate::bytes::count;

/// Items of a fixed size, decoded in place.
pub struct List<'a, T> {
    /// A whole number of items.
    bytes: &'a [u8],
    items: PhantomData<T>,
}

impl<'a, T: Xdr<'a>> List<'a, T> {
    /// The empty list.
    pub const EMPTY: Self = Self { bytes: &[], items: PhantomData };

    /// Writes items into `buf`, which is cleared, and returns a list of them.
    pub fn write(items: &[T], buf: &'a mut Vec<u8>) -> Self {
        buf.clear();
        for item in items {
            item.put(buf);
        }
        Self { bytes: buf, items: PhantomData }
    }

    /// The number of items.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.bytes.len() / T::MIN_BYTES
    }

    /// Whether the list is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The items in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = T> + use<'a, T> {
        // Each item has all its bytes, so decoding cannot fail.
        self.bytes
            .chunks_exact(T::MIN_BYTES)
            .filter_map(|item| T::take(&mut Cursor::new(item)).ok())
    }
}

impl<T> Clone for List<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for List<'_, T> {}

impl<T> PartialEq for List<'_, T> {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl<'a, T: Xdr<'a> + fmt::Debug> fmt::Debug for List<'a, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Lists on the wire: a count, followed by the items.
macro_rules! lists {
    ($($name:literal $type:ty, $value:expr;)*) => {$(
        impl<'a> Xdr<'a> for List<'a, $type> {
            const NAME: &'static str = $name;
            const MIN_BYTES: usize = 4;

            #[inline]
            fn take(from: &mut Cursor<'a>) -> Result<Self, Fault> {
                let items = from.u32()?;
                let bytes = from.items(items, <$type>::MIN_BYTES)?;
                Ok(Self { bytes, items: PhantomData })
            }

            fn put(&self, out: &mut Vec<u8>) {
                put_u32(out, count(self.len()));
                out.extend_from_slice(self.bytes);
            }

            fn value(&self) -> Value<'a> {
                $value(*self)
            }
        }
    )*};
}

lists! {
    "list of u32" u32, Value::Numbers;
    "list of i32" i32, Value::Signed;
    "list of lanes" Lane, Value::Lanes;
}

/// The autonomous systems that a route passes through, in segments.
#[derive(Clone, Copy, PartialEq)]
pub struct AsPath<'a> {
    segments: u32,
    /// Whole segments.
    bytes: &'a [u8],
}

/// A segment of an [`AsPath`]: autonomous systems of one kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AsSegment<'a> {
    /// 1 an unordered set, 2 a sequence.
    kind: u32,
    /// The autonomous systems.
    systems: List<'a, u32>,
}

impl<'a> AsSegment<'a> {
    /// Whether the systems are unordered.
    #[must_use]
    pub const fn is_set(&self) -> bool {
        self.kind == 1
    }

    /// The kind as sent by the agent: 1 a set, 2 a sequence.
    #[must_use]
    pub const fn kind(&self) -> u32 {
        self.kind
    }

    /// The autonomous systems; in a sequence, nearest first.
    #[must_use]
    pub const fn systems(&self) -> List<'a, u32> {
        self.systems
    }

    fn take(from: &mut Cursor<'a>) -> Result<Self, Fault> {
        Ok(Self { kind: from.u32()?, systems: Xdr::take(from)? })
    }
}

impl<'a> AsPath<'a> {
    /// The path to the router's own system: no segments.
    pub const EMPTY: Self = Self { segments: 0, bytes: &[] };

    /// Writes segments, given as kind and systems, into `buf`, which is cleared, and returns a path of them.
    pub fn write(segments: &[(u32, &[u32])], buf: &'a mut Vec<u8>) -> Self {
        buf.clear();
        for (kind, systems) in segments {
            put_u32(buf, *kind);
            put_u32(buf, count(systems.len()));
            systems.iter().for_each(|system| put_u32(buf, *system));
        }
        Self { segments: count(segments.len()), bytes: buf }
    }

    /// The segments, nearest first.
    pub fn segments(&self) -> impl Iterator<Item = AsSegment<'a>> + use<'a> {
        let mut from = Cursor::new(self.bytes);
        (0..self.segments).map_while(move |_| AsSegment::take(&mut from).ok())
    }

    /// All autonomous systems, nearest first: the first one is the peer, the last one announces the
    /// destination.
    pub fn systems(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.segments().flat_map(|segment| segment.systems.iter())
    }
}

impl fmt::Debug for AsPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.segments()).finish()
    }
}

impl<'a> Xdr<'a> for AsPath<'a> {
    const NAME: &'static str = "AS path";
    const MIN_BYTES: usize = 4;

    fn take(from: &mut Cursor<'a>) -> Result<Self, Fault> {
        let segments = from.u32()?;
        let bytes = from.rest();
        bounded(segments, 8, from)?;
        for _ in 0..segments {
            AsSegment::take(from)?;
        }
        Ok(Self { segments, bytes: read(bytes, from) })
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_u32(out, self.segments);
        out.extend_from_slice(self.bytes);
    }

    fn value(&self) -> Value<'a> {
        Value::AsPath(*self)
    }
}

/// Interfaces of a host with their Ethernet addresses.
#[derive(Clone, Copy, PartialEq)]
pub struct Adapters<'a> {
    adapters: u32,
    /// Whole adapters.
    bytes: &'a [u8],
}

/// An interface of a host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adapter<'a> {
    /// `ifIndex`.
    pub if_index: u32,
    macs: &'a [u8],
}

impl<'a> Adapter<'a> {
    /// Its Ethernet addresses.
    pub fn macs(&self) -> impl Iterator<Item = Mac> + use<'a> {
        List { bytes: self.macs, items: PhantomData }.iter()
    }

    fn take(from: &mut Cursor<'a>) -> Result<Self, Fault> {
        let if_index = from.u32()?;
        let macs = from.u32()?;
        Ok(Self { if_index, macs: from.items(macs, Mac::MIN_BYTES)? })
    }
}

impl<'a> Adapters<'a> {
    /// Writes interfaces, given as index and addresses, into `buf`, which is cleared, and returns a list of
    /// them.
    pub fn write(adapters: &[(u32, &[Mac])], buf: &'a mut Vec<u8>) -> Self {
        buf.clear();
        for (if_index, macs) in adapters {
            put_u32(buf, *if_index);
            put_u32(buf, count(macs.len()));
            macs.iter().for_each(|mac| mac.put(buf));
        }
        Self { adapters: count(adapters.len()), bytes: buf }
    }

    /// The interfaces in order.
    pub fn iter(&self) -> impl Iterator<Item = Adapter<'a>> + use<'a> {
        let mut from = Cursor::new(self.bytes);
        (0..self.adapters).map_while(move |_| Adapter::take(&mut from).ok())
    }
}

impl fmt::Debug for Adapters<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> Xdr<'a> for Adapters<'a> {
    const NAME: &'static str = "list of adapters";
    const MIN_BYTES: usize = 4;

    fn take(from: &mut Cursor<'a>) -> Result<Self, Fault> {
        let adapters = from.u32()?;
        let bytes = from.rest();
        bounded(adapters, 8, from)?;
        for _ in 0..adapters {
            Adapter::take(from)?;
        }
        Ok(Self { adapters, bytes: read(bytes, from) })
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_u32(out, self.adapters);
        out.extend_from_slice(self.bytes);
    }

    fn value(&self) -> Value<'a> {
        Value::Adapters(*self)
    }
}

/// Refuses a count of items of at least `size` bytes each that the remaining bytes cannot hold.
fn bounded(items: u32, size: usize, from: &Cursor<'_>) -> Result<(), Fault> {
    let have = from.rest().len();
    if items as usize > have / size {
        return Err(Fault::Count { count: items, have: count(have) });
    }
    Ok(())
}

/// The part of `bytes` read since the cursor was at its beginning.
fn read<'a>(bytes: &'a [u8], from: &Cursor<'a>) -> &'a [u8] {
    let len = bytes.len() - from.rest().len();
    bytes.get(..len).unwrap_or_default()
}
