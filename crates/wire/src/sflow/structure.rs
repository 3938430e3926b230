//! The macros for the two tables that define the structures: their types, decoding, encoding and names.

use super::DataFormat;

/// One structure, as declared in the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Its number.
    pub format: DataFormat,
    /// Its name in the specifications.
    pub name: &'static str,
    /// Name and type of each field, in order.
    pub fields: &'static [(&'static str, &'static str)],
}

/// Declares structures: for each, a type with one field per row, in wire order.
macro_rules! structures {
    ($($(#[$doc:meta])* $name:ident $(<$lifetime:lifetime>)? {
        $($(#[$field_doc:meta])* $field:ident: $type:ty,)*
    })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct $name $(<$lifetime>)? {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl<'a> $name $(<$lifetime>)? {
            /// Name and type of each field, in order.
            pub const FIELDS: &'static [(&'static str, &'static str)] =
                &[$((stringify!($field), <$type as Xdr<'a>>::NAME),)*];

            #[inline]
            pub(in crate::sflow) fn read(from: &mut Cursor<'a>) -> Result<Self, Fault> {
                Ok(Self { $($field: Xdr::take(from)?,)* })
            }

            pub(in crate::sflow) fn write(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }

            /// Calls `visit` with the name and value of each field, in order.
            pub fn each(&self, visit: &mut dyn FnMut(&'static str, Value<'a>)) {
                $(visit(stringify!($field), self.$field.value());)*
            }
        }
    )*};
}

/// Declares an enum of all structures in one number space, by number.
macro_rules! records {
    ($(#[$doc:meta])* $records:ident; $(
        $enterprise:literal : $format:literal $name:literal $variant:ident($type:ident $(<$lifetime:lifetime>)?) $meaning:literal;
    )*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum $records<'a> {
            $(
                #[doc = $meaning]
                $variant($type $(<$lifetime>)?),
            )*
            /// An unknown structure.
            Unknown(RawRecord<'a>),
        }

        impl<'a> $records<'a> {
            /// All known structures.
            pub const KINDS: &'static [Kind] = &[$(Kind {
                format: DataFormat::new($enterprise, $format),
                name: $name,
                fields: $type::FIELDS,
            },)*];

            /// Decodes a record's fields. Fields appended by a later edition of its structure are ignored.
            ///
            /// # Errors
            /// [`Fault::Short`], [`Fault::Length`], [`Fault::Count`] and [`Fault::AddressType`].
            #[inline]
            pub fn decode(record: &RawRecord<'a>) -> Result<Self, Fault> {
                let from = &mut Cursor::new(record.body);
                // A record is large, so it is made where it is returned.
                match (record.format.enterprise(), record.format.format()) {
                    $(($enterprise, $format) => match $type::read(from) {
                        Ok(fields) => Ok(Self::$variant(fields)),
                        Err(fault) => Self::of_vendor(record).ok_or(fault),
                    },)*
                    _ => Ok(Self::Unknown(*record)),
                }
            }

            /// The structure's number.
            #[must_use]
            pub const fn format(&self) -> DataFormat {
                match self {
                    $(Self::$variant(_) => DataFormat::new($enterprise, $format),)*
                    Self::Unknown(record) => record.format,
                }
            }

            /// The structure's name in the specifications; `None` if it is unknown.
            #[must_use]
            pub const fn name(&self) -> Option<&'static str> {
                match self {
                    $(Self::$variant(_) => Some($name),)*
                    Self::Unknown(_) => None,
                }
            }

            /// Calls `visit` with the name and value of each field, in order. Does nothing for an unknown structure.
            pub fn each(&self, visit: &mut dyn FnMut(&'static str, Value<'a>)) {
                match self {
                    $(Self::$variant(record) => record.each(visit),)*
                    Self::Unknown(_) => {}
                }
            }

            /// Writes the fields.
            pub(in crate::sflow) fn write(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$variant(record) => record.write(out),)*
                    Self::Unknown(record) => out.extend_from_slice(record.body),
                }
            }
        }
    };
}

pub(super) use {records, structures};
