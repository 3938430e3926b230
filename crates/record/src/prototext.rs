//! Protobuf text, one record per line: `record { … }`, so that a file of them is one `SocketRecords`
//! message (<https://protobuf.dev/reference/protobuf/textformat-spec/>).

use crate::schema::Visit;
use crate::text::{put_decimal, put_escaped};
use crate::value::{Visitor, address_bytes};
use crate::{Field, FieldSet, Tags};
use std::net::IpAddr;

/// Appends the fields of a message, each preceded by a space.
#[inline(never)]
pub(crate) fn put_fields<M: Visit>(message: &M, set: Option<&FieldSet>, out: &mut Vec<u8>) {
    message.visit(set, &mut Fields(out));
}

struct Fields<'o>(&'o mut Vec<u8>);

impl Fields<'_> {
    fn name(&mut self, field: &'static Field) {
        self.0.push(b' ');
        self.0.extend_from_slice(field.name.as_bytes());
        self.0.extend_from_slice(b": ");
    }
}

impl Visitor for Fields<'_> {
    fn unsigned<const NUMBER: u32>(&mut self, field: &'static Field, value: u64) {
        self.name(field);
        put_decimal(value, self.0);
    }

    fn bool<const NUMBER: u32>(&mut self, field: &'static Field, value: bool) {
        self.name(field);
        self.0.extend_from_slice(if value { b"true" } else { b"false" });
    }

    fn word<const NUMBER: u32>(
        &mut self,
        field: &'static Field,
        value: u8,
        word: Option<&'static str>,
    ) {
        self.name(field);
        match word {
            Some(word) => self.0.extend_from_slice(word.as_bytes()),
            None => put_decimal(value.into(), self.0),
        }
    }

    fn text<const NUMBER: u32>(&mut self, field: &'static Field, value: &str) {
        self.bytes::<NUMBER>(field, value.as_bytes());
    }

    fn bytes<const NUMBER: u32>(&mut self, field: &'static Field, value: &[u8]) {
        self.name(field);
        put_escaped(value, self.0);
    }

    fn address<const NUMBER: u32>(&mut self, field: &'static Field, value: IpAddr) {
        self.bytes::<NUMBER>(field, &address_bytes(value));
    }

    fn tags<const NUMBER: u32>(&mut self, field: &'static Field, value: Tags<'_>) {
        for (name, value) in value.iter() {
            self.0.push(b' ');
            self.0.extend_from_slice(field.name.as_bytes());
            self.0.extend_from_slice(b" { key: ");
            put_escaped(name.as_bytes(), self.0);
            self.0.extend_from_slice(b" value: ");
            put_escaped(value.as_bytes(), self.0);
            self.0.extend_from_slice(b" }");
        }
    }
}
