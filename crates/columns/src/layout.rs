//! Turns a table of crate `record` into the schema of a Parquet file.

use ::parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type, ZstdLevel};
use ::parquet::errors::ParquetError;
use ::parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesPtr};
use ::parquet::schema::types::{ColumnPath, Type as SchemaType, TypePtr};
use ::record::{Field, FieldSet, Kind, RowKind};
use std::sync::Arc;

/// The compression level. Levels 1 to 3 gave file sizes within 0.1 % of each other, once numbers are stored as differences.
pub(crate) const ZSTD_LEVEL: i32 = 1;

/// The compression as Parquet specifies it.
///
/// # Errors
/// The level does not exist.
pub(crate) fn compression() -> Result<Compression, ParquetError> {
    Ok(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
}

/// A table; each row is one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its name in paths and in the file.
    pub name: &'static str,
    /// The fields with a column, in order.
    pub fields: Vec<&'static Field>,
}

impl Table {
    /// Socket records, with these fields.
    pub fn sockets(fields: &FieldSet) -> Table {
        Table { name: Table::name_of(RowKind::Record), fields: fields.fields().collect() }
    }

    /// Poll totals, with all fields.
    pub fn polls() -> Table {
        Table::of(RowKind::Totals)
    }

    /// Datagrams, with all fields.
    pub fn datagrams() -> Table {
        Table::of(RowKind::Datagram)
    }

    /// Rows of this kind, with all fields.
    pub fn of(kind: RowKind) -> Table {
        Table { name: Table::name_of(kind), fields: kind.fields().iter().collect() }
    }

    /// The name of the table for rows of this kind.
    pub fn name_of(kind: RowKind) -> &'static str {
        kind.table()
    }

    /// The schema of its files.
    ///
    /// # Errors
    /// Two fields have the same name.
    pub fn schema(&self) -> Result<TypePtr, ParquetError> {
        let mut columns = Vec::new();
        for field in &self.fields {
            let (physical, logical) = type_of(field);
            columns.push(column(field.name, physical, logical)?);
            if let Some(name) = moment_of(field) {
                let logical = LogicalType::timestamp(true, TimeUnit::MICROS);
                columns.push(column(name, Type::INT64, Some(logical))?);
            }
        }
        Ok(Arc::new(SchemaType::group_type_builder(self.name).with_fields(columns).build()?))
    }

    /// The properties for columns that crate `parquet` writes: plain encoding. Bytes are payloads, all different, and get no
    /// statistics.
    pub(crate) fn properties(&self) -> Result<WriterPropertiesPtr, ParquetError> {
        let mut properties = WriterProperties::builder()
            .set_created_by(created_by())
            .set_compression(compression()?)
            .set_statistics_enabled(EnabledStatistics::Chunk)
            // Useful only with page statistics.
            .set_offset_index_disabled(true)
            .set_dictionary_enabled(false);

        for field in &self.fields {
            if matches!(field.kind, Kind::Bytes | Kind::Data) {
                let path = ColumnPath::from(field.name);
                properties =
                    properties.set_column_statistics_enabled(path, EnabledStatistics::None);
            }
        }
        Ok(Arc::new(properties.build()))
    }
}

/// The name of the timestamp column for a field in nanoseconds; `None` for other fields.
pub(crate) fn moment_of(field: &Field) -> Option<&'static str> {
    field.name.strip_suffix("_unix_ns")
}

fn type_of(field: &Field) -> (Type, Option<LogicalType>) {
    match field.kind {
        Kind::Bool => (Type::BOOLEAN, None),
        Kind::U8 | Kind::U16 => (Type::INT32, None),
        Kind::U32 | Kind::U64 | Kind::Fixed64 => (Type::INT64, None),
        Kind::Bytes | Kind::Data => (Type::BYTE_ARRAY, None),
        Kind::Text | Kind::Address | Kind::Tags | Kind::Word(_) => {
            (Type::BYTE_ARRAY, Some(LogicalType::String))
        }
    }
}

fn column(
    name: &str,
    physical: Type,
    logical: Option<LogicalType>,
) -> Result<TypePtr, ParquetError> {
    let column = SchemaType::primitive_type_builder(name, physical)
        .with_repetition(Repetition::OPTIONAL)
        .with_logical_type(logical);
    Ok(Arc::new(column.build()?))
}

/// Readers look here for known bugs of writers: name, version, build.
fn created_by() -> String {
    let library = ::parquet::file::properties::DEFAULT_CREATED_BY;
    format!("weir version {} (build {library})", env!("CARGO_PKG_VERSION"))
}
