//! What a table of fields consists of, and the macro that makes a struct, its field list, its visitor and its decoder
//! from one.

use crate::DecodeError;
use crate::Words;
use crate::value::{Visitor, WireField};
use wire::inet_diag::TcpInfo;

/// What a field holds, and how it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// 8 bits; a protobuf `uint32`.
    U8,
    /// 16 bits; a protobuf `uint32`.
    U16,
    /// 32 bits; a protobuf `uint32`.
    U32,
    /// 64 bits; a protobuf `uint64`.
    U64,
    /// 64 bits that are nearly always large; a protobuf `fixed64`.
    Fixed64,
    /// Yes or no.
    Bool,
    /// UTF-8 text.
    Text,
    /// Bytes; base64 in the textual encodings.
    Bytes,
    /// Bytes that nearly always are text. In the textual encodings the text, or else base64 under the name with `_base64` behind it.
    Data,
    /// An IP address: 16 bytes in protobuf (IPv4 as `::ffff:a.b.c.d`), text elsewhere.
    Address,
    /// A number with a name.
    Word(&'static Words),
    /// Names and values, both text.
    Tags,
}

/// One field of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The protobuf field number; never changed, never reused.
    pub number: u32,
    /// The name in every encoding but protobuf JSON, which uses the same in lowerCamelCase.
    pub name: &'static str,
    /// The group it can be selected with.
    pub group: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// The unit, or empty.
    pub unit: &'static str,
    /// The kernel release that first gave it, or empty where that says nothing.
    pub kernel: &'static str,
    /// The number by which the kernel says that there is no value. It is never written and never read: the field is absent.
    pub none: Option<u64>,
    /// The field of `struct tcp_info` that it is filled from, as `wire` names it.
    pub tcp_info_field: Option<&'static str>,
    /// What it means.
    pub meaning: &'static str,
    /// The name in protobuf JSON: `name` in lowerCamelCase.
    pub json_name: &'static str,
    /// `,"name":`
    pub(crate) json_key: crate::text::Short,
    /// How ClickHouse has it.
    pub(crate) presence: crate::native::Presence,
}

/// Fields that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// The name to select it with.
    pub name: &'static str,
    /// What its fields say.
    pub meaning: &'static str,
}

/// A row that encoders can write.
pub(crate) trait Visit {
    /// Gives every field to `visitor`, in the order of the table, absent ones too; only those of `set` if there is one.
    fn visit<V: Visitor>(&self, set: Option<&crate::FieldSet>, visitor: &mut V);
}

/// A struct made by [`schema!`]: what encoders and decoders know of it.
pub(crate) trait Message<'a>: Visit + Sized + Default {
    /// The fields in the order of the table, which is the order they are written in.
    const FIELDS: &'static [Field];

    /// Takes one field that was read; unknown numbers are skipped.
    fn take(&mut self, field: &WireField<'a>) -> Result<(), DecodeError>;

    /// Takes each field of `info` that a row names.
    fn fill_tcp_info(&mut self, info: &TcpInfo<'_>);

    /// Called once after the last field.
    fn finish(&mut self) {}
}

/// The Rust type of a field.
macro_rules! rust_type {
    ($lt:lifetime u8) => { u8 };
    ($lt:lifetime u16) => { u16 };
    ($lt:lifetime u32) => { u32 };
    ($lt:lifetime u64) => { u64 };
    ($lt:lifetime fixed64) => { u64 };
    ($lt:lifetime bool) => { bool };
    ($lt:lifetime text) => { &$lt str };
    ($lt:lifetime bytes) => { &$lt [u8] };
    ($lt:lifetime data) => { &$lt [u8] };
    ($lt:lifetime address) => { std::net::IpAddr };
    ($lt:lifetime tags) => { $crate::Tags<$lt> };
    ($lt:lifetime $word:ident) => { $crate::$word };
}

/// The [`Kind`] of a field.
macro_rules! kind_of {
    (u8) => {
        $crate::Kind::U8
    };
    (u16) => {
        $crate::Kind::U16
    };
    (u32) => {
        $crate::Kind::U32
    };
    (u64) => {
        $crate::Kind::U64
    };
    (fixed64) => {
        $crate::Kind::Fixed64
    };
    (bool) => {
        $crate::Kind::Bool
    };
    (text) => {
        $crate::Kind::Text
    };
    (bytes) => {
        $crate::Kind::Bytes
    };
    (data) => {
        $crate::Kind::Data
    };
    (address) => {
        $crate::Kind::Address
    };
    (tags) => {
        $crate::Kind::Tags
    };
    ($word:ident) => {
        $crate::Kind::Word(&$crate::$word::WORDS)
    };
}

/// The number that stands for no value, if there is one.
macro_rules! none_of {
    () => {
        None
    };
    ($none:literal) => {
        Some($none)
    };
}

/// The name of the field that a row is filled from, if it names one.
macro_rules! filled_from {
    () => {
        None
    };
    ($source:ident) => {
        Some(stringify!($source))
    };
}

/// A number of the kernel's as the type of the field.
macro_rules! from_kernel {
    ($value:expr, u8) => {
        $value
    };
    ($value:expr, u16) => {
        $value
    };
    ($value:expr, u32) => {
        $value
    };
    ($value:expr, u64) => {
        $value
    };
    ($value:expr, bool) => {
        $value.map(|bit| bit != 0)
    };
    ($value:expr, $word:ident) => {
        $value.map($crate::$word)
    };
}

/// A field's value, unless it is the number that stands for none.
macro_rules! known {
    ($value:expr) => {
        $value
    };
    ($value:expr, $none:literal) => {
        $value.filter(|value| *value != $none)
    };
}

/// A name in lowerCamelCase, as the protobuf compiler makes it: no underscores, and the letter after one is a capital.
macro_rules! camel_case {
    ($name:expr) => {
        const {
            const NAME: ([u8; 64], usize) = $crate::schema::camel_case_of($name);
            match str::from_utf8(NAME.0.split_at(NAME.1).0) {
                Ok(name) => name,
                Err(_) => panic!("names are ASCII"),
            }
        }
    };
}

pub(crate) const fn camel_case_of(name: &str) -> ([u8; 64], usize) {
    let name = name.as_bytes();
    // A const function cannot allocate: room for the longest name, and how much of it counts.
    let (mut camel, mut len, mut at) = ([0; 64], 0, 0);

    while at < name.len() {
        let is_first_of_word = name[at] == b'_';
        if is_first_of_word {
            at += 1;
        }
        camel[len] = if is_first_of_word { name[at].to_ascii_uppercase() } else { name[at] };
        len += 1;
        at += 1;
    }

    (camel, len)
}

/// Rows are `name: type = number, unit, first kernel, meaning;` inside groups `name "meaning" { … }`. Where the kernel has a
/// number that stands for no value, the row has it after the field's: `number none 4294967295`. After that, a row names the field
/// of `struct tcp_info` that it is filled from: `number from rtt_us`.
macro_rules! schema {
    (
        $(#[$doc:meta])*
        $record:ident<$lt:lifetime> $index:ident finish $finish:ident
        $($group:ident $about:literal {
            $($name:ident: $kind:ident = $number:literal $(none $none:literal)? $(from $source:ident)?, $unit:literal, $kernel:literal,
                $meaning:literal;)+
        })+
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        pub struct $record<$lt> {
            $($(
                #[doc = $meaning]
                #[doc = concat!("\n\nField ", stringify!($number), ", group `", stringify!($group), "`.")]
                pub $name: Option<$crate::schema::rust_type!($lt $kind)>,
            )+)+
        }

        impl $record<'_> {
            /// Every field, in the order of the table.
            pub const FIELDS: &'static [$crate::Field] = &[
                $($($crate::Field {
                    number: $number,
                    name: stringify!($name),
                    group: stringify!($group),
                    kind: $crate::schema::kind_of!($kind),
                    unit: $unit,
                    kernel: $kernel,
                    none: $crate::schema::none_of!($($none)?),
                    tcp_info_field: $crate::schema::filled_from!($($source)?),
                    meaning: $meaning,
                    json_name: $crate::schema::camel_case!(stringify!($name)),
                    json_key: $crate::text::Short::of(concat!(",\"", stringify!($name), "\":")),
                    presence: $crate::native::Presence::of(stringify!($name)),
                },)+)+
            ];

            /// The groups, in the order of the table.
            pub const GROUPS: &'static [$crate::Group] = &[
                $($crate::Group { name: stringify!($group), meaning: $about },)+
            ];
        }

        #[expect(non_camel_case_types, reason = "the position of each field, under the field's own name")]
        enum $index { $($($name,)+)+ }

        impl $crate::schema::Visit for $record<'_> {
            #[inline(always)]
            fn visit<V: $crate::value::Visitor>(&self, set: Option<&$crate::FieldSet>, visitor: &mut V) {
                use $crate::value::Value;
                $($(
                    // Number and field are constants in each of these branches, so that an encoder looks nothing up.
                    if set.is_none_or(|set| set.has_index($index::$name as usize)) {
                        const FIELD: &$crate::Field = &$record::FIELDS[$index::$name as usize];
                        match $crate::schema::known!(self.$name $(, $none)?) {
                            Some(value) => value.give::<V, $number>(FIELD, visitor),
                            None => visitor.absent(FIELD),
                        }
                    }
                )+)+
            }
        }

        impl<$lt> $crate::schema::Message<$lt> for $record<$lt> {
            const FIELDS: &'static [$crate::Field] = $record::FIELDS;

            fn take(&mut self, field: &$crate::value::WireField<$lt>) -> Result<(), $crate::DecodeError> {
                use $crate::value::Value;
                match field.number {
                    $($($number => {
                        Value::take(&mut self.$name, $crate::schema::kind_of!($kind), field)?;
                        $(self.$name = $crate::schema::known!(self.$name, $none);)?
                    })+)+
                    _ => {}
                }
                Ok(())
            }

            #[inline]
            fn fill_tcp_info(&mut self, info: &wire::inet_diag::TcpInfo<'_>) {
                // Not every table has such rows.
                let _ = info;
                $($($(self.$name = $crate::schema::from_kernel!(info.$source(), $kind);)?)+)+
            }

            fn finish(&mut self) { $finish(self); }
        }
    };
}

pub(crate) use {camel_case, filled_from, from_kernel, kind_of, known, none_of, rust_type, schema};
