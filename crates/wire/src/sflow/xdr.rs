//! XDR (RFC 4506) as sFlow uses it: big-endian, every item a multiple of four bytes long.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::{Address, Counter32, Counter64, Fault, Mac, Text, Value};
use crate::bytes::count;

/// Reads bytes from the front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor<'a> {
    bytes: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// The remaining bytes.
    pub(super) const fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    #[inline]
    pub(super) fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], Fault> {
        let Some((first, rest)) = self.bytes.split_first_chunk::<N>() else {
            return Err(Fault::Short { need: N as u32, have: count(self.bytes.len()) });
        };
        self.bytes = rest;
        Ok(first)
    }

    #[inline]
    pub(super) fn u32(&mut self) -> Result<u32, Fault> {
        self.array().map(|bytes| u32::from_be_bytes(*bytes))
    }

    /// The next words.
    #[inline]
    pub(super) fn words<const N: usize>(&mut self) -> Result<[u32; N], Fault> {
        let have = self.bytes.len();
        let Some((bytes, rest)) = self.bytes.split_at_checked(4 * N) else {
            return Err(Fault::Short { need: count(4 * N), have: count(have) });
        };
        self.bytes = rest;

        let (words, _) = bytes.as_chunks::<4>();
        let mut values = [0; N];
        for (value, word) in values.iter_mut().zip(words) {
            *value = u32::from_be_bytes(*word);
        }
        Ok(values)
    }

    /// The next `length` bytes.
    #[inline]
    pub(super) fn exactly(&mut self, length: u32) -> Result<&'a [u8], Fault> {
        let have = self.bytes.len();
        let Some((bytes, rest)) = self.bytes.split_at_checked(length as usize) else {
            return Err(Fault::Length { length, have: count(have) });
        };
        self.bytes = rest;
        Ok(bytes)
    }

    /// The next `length` bytes and their padding to a multiple of 4, which may be missing after the last ones: some agents omit
    /// it.
    #[inline]
    pub(super) fn padded(&mut self, length: u32) -> Result<&'a [u8], Fault> {
        let bytes = self.exactly(length)?;
        let padding = (4 - bytes.len() % 4) % 4;
        self.bytes = self.bytes.get(padding..).unwrap_or_default();
        Ok(bytes)
    }

    /// The next `items` of `size` bytes each.
    #[inline]
    pub(super) fn items(&mut self, items: u32, size: usize) -> Result<&'a [u8], Fault> {
        let have = self.bytes.len();
        let fits = (items as usize).checked_mul(size);
        let Some((bytes, rest)) = fits.and_then(|len| self.bytes.split_at_checked(len)) else {
            return Err(Fault::Count { count: items, have: count(have) });
        };
        self.bytes = rest;
        Ok(bytes)
    }
}

/// A field type in the tables of structures.
pub trait Xdr<'a>: Copy {
    /// Its name in documentation.
    const NAME: &'static str;
    /// Minimum size in bytes; the exact size if it is fixed.
    const MIN_BYTES: usize;

    /// Decodes a value.
    #[doc(hidden)]
    fn take(from: &mut Cursor<'a>) -> Result<Self, Fault>;

    /// Encodes the value.
    #[doc(hidden)]
    fn put(&self, out: &mut Vec<u8>);

    /// The value passed to a visitor of all fields.
    fn value(&self) -> Value<'a>;
}

pub(super) fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_be_bytes());
}

/// Writes bytes, preceded by their length and followed by padding.
pub(super) fn put_opaque(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u32(out, count(bytes.len()));
    out.extend_from_slice(bytes);
    pad(out, bytes.len());
}

/// Writes the padding after `len` bytes.
pub(super) fn pad(out: &mut Vec<u8>, len: usize) {
    out.extend_from_slice(&[0; 3][..(4 - len % 4) % 4]);
}

/// Numbers: name in the documentation, type, wire type, conversions from and to it, variant of [`Value`].
macro_rules! numbers {
    ($($name:literal $type:ident $number:ident $from:expr, $to:expr;)*) => {$(
        impl<'a> Xdr<'a> for $type {
            const NAME: &'static str = $name;
            const MIN_BYTES: usize = size_of::<$number>();

            #[inline]
            fn take(from: &mut Cursor<'a>) -> Result<Self, Fault> {
                let bytes: &[u8; size_of::<$number>()] = from.array()?;
                Ok($from($number::from_be_bytes(*bytes)))
            }

            fn put(&self, out: &mut Vec<u8>) {
                let number: $number = $to(*self);
                out.extend_from_slice(&number.to_be_bytes());
            }

            fn value(&self) -> Value<'a> {
                (*self).into()
            }
        }
    )*};
}

numbers! {
    "u32" u32 u32 |number| number, |value| value;
    "u64" u64 u64 |number| number, |value| value;
    "i32" i32 i32 |number| number, |value| value;
    "f32" f32 f32 |number| number, |value| value;
    "counter32" Counter32 u32 Counter32, |value: Counter32| value.0;
    "counter64" Counter64 u64 Counter64, |value: Counter64| value.0;
    "IPv4" Ipv4Addr u32 Ipv4Addr::from_bits, Ipv4Addr::to_bits;
    "IPv6" Ipv6Addr u128 Ipv6Addr::from_bits, Ipv6Addr::to_bits;
}

/// Four one-byte numbers.
impl<'a> Xdr<'a> for [u8; 4] {
    const NAME: &'static str = "4 bytes";
    const MIN_BYTES: usize = 4;

    fn take(from: &mut Cursor<'a>) -> Result<Self, Fault> {
        from.array().copied()
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    fn value(&self) -> Value<'a> {
        Value::U32(u32::from_be_bytes(*self))
    }
}

/// A UUID. According to the specification's erratum, 16 bytes without a length.
impl<'a> Xdr<'a> for [u8; 16] {
    const NAME: &'static str = "16 bytes";
    const MIN_BYTES: usize = 16;

    fn take(from: &mut Cursor<'a>) -> Result<Self, Fault> {
        from.array().copied()
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    fn value(&self) -> Value<'a> {
        Value::Uuid(*self)
    }
}

/// Six bytes plus two of padding, as XDR pads `opaque mac<6>`; decoders that read only six get every later field wrong.
impl<'a> Xdr<'a> for Mac {
    const NAME: &'static str = "MAC";
    const MIN_BYTES: usize = 8;

    #[inline]
    fn take(from: &mut Cursor<'a>) -> Result<Self, Fault> {
        let [a, b, c, d, e, f, _, _] = *from.array()?;
        Ok(Self([a, b, c, d, e, f]))
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
        pad(out, self.0.len());
    }

    fn value(&self) -> Value<'a> {
        Value::Mac(*self)
    }
}

impl<'a> Xdr<'a> for Address {
    const NAME: &'static str = "address";
    const MIN_BYTES: usize = 4;

    #[inline]
    fn take(from: &mut Cursor<'a>) -> Result<Self, Fault> {
        match from.u32()? {
            0 => Ok(Self::Unknown),
            1 => Ipv4Addr::take(from).map(Self::V4),
            2 => Ipv6Addr::take(from).map(Self::V6),
            other => Err(Fault::AddressType(other)),
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Unknown => put_u32(out, 0),
            Self::V4(address) => {
                put_u32(out, 1);
                address.put(out);
            }
            Self::V6(address) => {
                put_u32(out, 2);
                address.put(out);
            }
        }
    }

    fn value(&self) -> Value<'a> {
        Value::Address(*self)
    }
}

impl<'a> Xdr<'a> for &'a [u8] {
    const NAME: &'static str = "bytes";
    const MIN_BYTES: usize = 4;

    #[inline]
    fn take(from: &mut Cursor<'a>) -> Result<Self, Fault> {
        let length = from.u32()?;
        from.padded(length)
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_opaque(out, self);
    }

    fn value(&self) -> Value<'a> {
        Value::Bytes(self)
    }
}

impl<'a> Xdr<'a> for Text<'a> {
    const NAME: &'static str = "text";
    const MIN_BYTES: usize = 4;

    fn take(from: &mut Cursor<'a>) -> Result<Self, Fault> {
        Xdr::take(from).map(Self)
    }

    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }

    fn value(&self) -> Value<'a> {
        Value::Text(*self)
    }
}

/// A field that a later edition of a structure appended: absent if the structure ends before it.
impl<'a, T: Xdr<'a>> Xdr<'a> for Option<T> {
    const NAME: &'static str = T::NAME;
    const MIN_BYTES: usize = 0;

    fn take(from: &mut Cursor<'a>) -> Result<Self, Fault> {
        let is_there = from.rest().len() >= T::MIN_BYTES;
        is_there.then(|| T::take(from)).transpose()
    }

    fn put(&self, out: &mut Vec<u8>) {
        if let Some(value) = self {
            value.put(out);
        }
    }

    fn value(&self) -> Value<'a> {
        self.map_or(Value::Absent, |value| value.value())
    }
}
