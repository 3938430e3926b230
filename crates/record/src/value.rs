//! The types of fields: how each is passed to an encoder, and how each is taken from decoded fields.

use crate::{DecodeError, Field, Kind, Tags};
use std::net::{IpAddr, Ipv6Addr};

/// What an encoder does with each type of field. `NUMBER` is the field's number, a compile-time constant.
pub(crate) trait Visitor {
    fn unsigned<const NUMBER: u32>(&mut self, field: &'static Field, value: u64);
    fn bool<const NUMBER: u32>(&mut self, field: &'static Field, value: bool);
    fn word<const NUMBER: u32>(
        &mut self,
        field: &'static Field,
        value: u8,
        word: Option<&'static str>,
    );
    fn text<const NUMBER: u32>(&mut self, field: &'static Field, value: &str);
    fn bytes<const NUMBER: u32>(&mut self, field: &'static Field, value: &[u8]);
    fn address<const NUMBER: u32>(&mut self, field: &'static Field, value: IpAddr);
    fn tags<const NUMBER: u32>(&mut self, field: &'static Field, value: Tags<'_>);

    /// An absent field, for which only tables have a place.
    #[inline(always)]
    fn absent(&mut self, _: &'static Field) {}

    #[inline(always)]
    fn u8<const NUMBER: u32>(&mut self, field: &'static Field, value: u8) {
        self.unsigned::<NUMBER>(field, value.into());
    }

    #[inline(always)]
    fn u16<const NUMBER: u32>(&mut self, field: &'static Field, value: u16) {
        self.unsigned::<NUMBER>(field, value.into());
    }

    #[inline(always)]
    fn u32<const NUMBER: u32>(&mut self, field: &'static Field, value: u32) {
        self.unsigned::<NUMBER>(field, value.into());
    }
}

/// One decoded field of a protobuf message.
#[derive(Clone, Copy)]
pub(crate) struct WireField<'a> {
    pub(crate) number: u32,
    pub(crate) payload: Payload<'a>,
    /// The message it is part of, and where the field starts and ends in it.
    pub(crate) message: &'a [u8],
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// The four wire forms of a protobuf field.
#[derive(Clone, Copy)]
pub(crate) enum Payload<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32,
}

impl<'a> WireField<'a> {
    pub(crate) fn number_up_to(&self, max: u64) -> Result<u64, DecodeError> {
        match self.payload {
            Payload::Varint(value) if value <= max => Ok(value),
            Payload::Varint(_) => Err(DecodeError::OutOfRange { number: self.number }),
            _ => Err(self.wrong_type()),
        }
    }

    pub(crate) fn bytes(&self) -> Result<&'a [u8], DecodeError> {
        match self.payload {
            Payload::Bytes(bytes) => Ok(bytes),
            _ => Err(self.wrong_type()),
        }
    }

    pub(crate) fn wrong_type(&self) -> DecodeError {
        DecodeError::WrongType { number: self.number }
    }
}

/// A possible type of a field.
pub(crate) trait Value<'a>: Sized {
    fn give<V: Visitor, const NUMBER: u32>(self, field: &'static Field, visitor: &mut V);

    /// Stores a decoded value; a later one with the same number replaces an earlier one, as protobuf requires.
    fn take(slot: &mut Option<Self>, kind: Kind, field: &WireField<'a>) -> Result<(), DecodeError>;
}

macro_rules! unsigned_values {
    ($($type:ident $method:ident;)+) => { $(
        impl Value<'_> for $type {
            #[inline(always)]
            fn give<V: Visitor, const NUMBER: u32>(self, field: &'static Field, visitor: &mut V) {
                visitor.$method::<NUMBER>(field, self);
            }

            fn take(slot: &mut Option<Self>, kind: Kind, field: &WireField<'_>) -> Result<(), DecodeError> {
                *slot = Some(match (kind, field.payload) {
                    // Fields of this kind are `u64`, so nothing is truncated.
                    (Kind::Fixed64, Payload::Fixed64(value)) => value as $type,
                    (Kind::Fixed64, _) => return Err(field.wrong_type()),
                    _ => field.number_up_to($type::MAX as u64)? as $type,
                });
                Ok(())
            }
        }
    )+ };
}

unsigned_values! { u8 u8; u16 u16; u32 u32; u64 unsigned; }

impl Value<'_> for bool {
    #[inline(always)]
    fn give<V: Visitor, const NUMBER: u32>(self, field: &'static Field, visitor: &mut V) {
        visitor.bool::<NUMBER>(field, self);
    }

    fn take(slot: &mut Option<Self>, _: Kind, field: &WireField<'_>) -> Result<(), DecodeError> {
        *slot = Some(field.number_up_to(1)? == 1);
        Ok(())
    }
}

impl<'a> Value<'a> for &'a str {
    #[inline(always)]
    fn give<V: Visitor, const NUMBER: u32>(self, field: &'static Field, visitor: &mut V) {
        visitor.text::<NUMBER>(field, self);
    }

    fn take(slot: &mut Option<Self>, _: Kind, field: &WireField<'a>) -> Result<(), DecodeError> {
        *slot = Some(text(field.number, field.bytes()?)?);
        Ok(())
    }
}

impl<'a> Value<'a> for &'a [u8] {
    #[inline(always)]
    fn give<V: Visitor, const NUMBER: u32>(self, field: &'static Field, visitor: &mut V) {
        visitor.bytes::<NUMBER>(field, self);
    }

    fn take(slot: &mut Option<Self>, _: Kind, field: &WireField<'a>) -> Result<(), DecodeError> {
        *slot = Some(field.bytes()?);
        Ok(())
    }
}

impl Value<'_> for IpAddr {
    #[inline(always)]
    fn give<V: Visitor, const NUMBER: u32>(self, field: &'static Field, visitor: &mut V) {
        visitor.address::<NUMBER>(field, self);
    }

    fn take(slot: &mut Option<Self>, _: Kind, field: &WireField<'_>) -> Result<(), DecodeError> {
        let bytes: [u8; 16] = field
            .bytes()?
            .try_into()
            .map_err(|_| DecodeError::AddressLength { number: field.number })?;
        // Addresses of an IPv4 socket become IPv4 once its family is known (`restore_ipv4`).
        *slot = Some(IpAddr::V6(Ipv6Addr::from(bytes)));
        Ok(())
    }
}

impl<'a> Value<'a> for Tags<'a> {
    #[inline(always)]
    fn give<V: Visitor, const NUMBER: u32>(self, field: &'static Field, visitor: &mut V) {
        visitor.tags::<NUMBER>(field, self);
    }

    fn take(slot: &mut Option<Self>, _: Kind, field: &WireField<'a>) -> Result<(), DecodeError> {
        Tags::take_entry(slot, field)
    }
}

pub(crate) fn text(number: u32, bytes: &[u8]) -> Result<&str, DecodeError> {
    str::from_utf8(bytes).map_err(|_| DecodeError::NotUtf8 { number })
}

/// The 16 bytes of an address: IPv4 as `::ffff:a.b.c.d` (RFC 4291 section 2.5.5.2).
#[inline(always)]
pub(crate) fn address_bytes(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => {
            let [a, b, c, d] = v4.octets();
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d]
        }
        IpAddr::V6(v6) => v6.octets(),
    }
}
