//! SQL functions of the store, in addition to SQLite's own. All of them depend only on their arguments.

use crate::sketch::Sketch;
use rusqlite::functions::{Aggregate, Context, FunctionFlags};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Error, Result};
use text::Civil;

const PURE: FunctionFlags = FunctionFlags::SQLITE_UTF8
    .union(FunctionFlags::SQLITE_DETERMINISTIC)
    .union(FunctionFlags::SQLITE_INNOCUOUS);

/// Registers the functions on a connection.
pub(crate) fn register(connection: &Connection) -> Result<()> {
    connection.create_scalar_function(c"sketch_add", 2, PURE, |context| {
        let mut sum = sketch(context, 0)?;
        sum.merge(&sketch(context, 1)?);
        Ok(sum.to_blob())
    })?;
    connection.create_scalar_function(c"sketch_quantile", 2, PURE, |context| {
        let quantile: f64 = context.get(1)?;
        Ok(sketch(context, 0)?.quantile(quantile))
    })?;
    connection.create_scalar_function(c"sketch_count", 1, PURE, |context| {
        Ok(signed(sketch(context, 0)?.count()))
    })?;
    connection.create_scalar_function(c"sketch_between", 3, PURE, |context| {
        let (low, high): (i64, i64) = (context.get(1)?, context.get(2)?);
        Ok(signed(sketch(context, 0)?.count_between(low.max(0) as u64, high.max(0) as u64)))
    })?;
    connection.create_aggregate_function(c"sketch_merge", 1, PURE, Merge)?;
    connection.create_aggregate_function(c"quantile", 2, PURE, Quantile)?;
    connection.create_scalar_function(c"ts", 1, PURE, |context| {
        Ok(context.get::<Option<i64>>(0)?.map(moment))
    })
}

/// A time in nanoseconds since 1970 as text, in UTC.
fn moment(unix_ns: i64) -> String {
    let time = Civil::of(unix_ns.max(0) as u64);
    format!(
        "{:04}-{:02}-{:02} {:02}:{:02}:{:02}.{:03}",
        time.year,
        time.month,
        time.day,
        time.hour,
        time.minute,
        time.second,
        time.micros / 1_000
    )
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn sketch(context: &Context<'_>, at: usize) -> Result<Sketch> {
    let read = match context.get_raw(at) {
        ValueRef::Null => Some(Sketch::default()),
        ValueRef::Blob(blob) => Sketch::from_blob(blob),
        _ => None,
    };
    read.ok_or_else(|| Error::UserFunctionError("it is not a sketch".into()))
}

/// Aggregate: merges sketches.
struct Merge;

impl Aggregate<Sketch, Vec<u8>> for Merge {
    fn init(&self, _: &mut Context<'_>) -> Result<Sketch> {
        Ok(Sketch::default())
    }

    fn step(&self, context: &mut Context<'_>, sum: &mut Sketch) -> Result<()> {
        sum.merge(&sketch(context, 0)?);
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, sum: Option<Sketch>) -> Result<Vec<u8>> {
        Ok(sum.unwrap_or_default().to_blob())
    }
}

/// Aggregate: a quantile of numbers. It uses a sketch, so memory stays small for any number of rows.
struct Quantile;

impl Aggregate<(Sketch, f64), Option<f64>> for Quantile {
    fn init(&self, _: &mut Context<'_>) -> Result<(Sketch, f64)> {
        Ok(Default::default())
    }

    fn step(&self, context: &mut Context<'_>, (sum, quantile): &mut (Sketch, f64)) -> Result<()> {
        *quantile = context.get(1)?;
        match context.get_raw(0) {
            ValueRef::Integer(value) => sum.add(value.max(0) as u64),
            ValueRef::Real(value) => sum.add(value.max(0.0) as u64),
            _ => {}
        }
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, sum: Option<(Sketch, f64)>) -> Result<Option<f64>> {
        Ok(sum.and_then(|(sum, quantile)| sum.quantile(quantile)))
    }
}
