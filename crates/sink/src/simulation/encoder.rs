//! An encoder that writes the numbers of rows, skips some, and sometimes panics.

use super::faults::Fault;
use super::plan::Plan;
use super::world::{Shared, lock, panic};
use crate::batch::{Encoded, Part, PartKey};
use crate::destination::{BatchEncoder, Form, Pushed};
use ledger::{Amount, Reason};
use record::Row;

pub(super) struct Numbers {
    world: Shared,
    out: Encoded,
    filling: Part,
    /// Most rows in a part.
    part_rows: u32,
}

pub(super) fn make_form(plan: &Plan, world: &Shared) -> Form {
    let mut here = lock(world);
    here.calls += 1;
    if here.chance(|mood| mood.panics) {
        here.fired.add(Fault::FormPanics);
        panic(here, "its form is made");
    }
    drop(here);
    plan.form(world)
}

const EMPTY: Part = Part { end: 0, rows: 0, row_bytes: 0, key: PartKey::NONE };

impl Numbers {
    pub(super) fn new(world: &Shared, part_rows: u32) -> Numbers {
        Numbers { world: world.clone(), out: Encoded::default(), filling: EMPTY, part_rows }
    }

    fn end_part(&mut self) {
        if self.filling.rows > 0 {
            let part = std::mem::replace(&mut self.filling, EMPTY);
            self.out.parts.push(Part { end: self.out.bytes.len(), ..part });
        }
    }
}

impl BatchEncoder for Numbers {
    fn push(&mut self, row: &Row<'_>, _key: PartKey) -> Pushed {
        let mut world = lock(&self.world);
        if world.chance(|mood| mood.encoder_panics) {
            world.fired.add(Fault::PushPanics);
            world.expected.encoder_panics += 1;
            panic(world, "it encodes a row");
        }
        if world.chance(|mood| mood.skips) {
            world.fired.add(Fault::RowSkipped);
            let reason = [Reason::EncodeError, Reason::TooBig][world.random.index(2)];
            let dropped = world.expected.dropped.entry(reason as u8).or_default();
            *dropped += Amount::one(row.bytes.len());
            return Pushed::Skipped(reason);
        }
        drop(world);

        self.out.bytes.extend_from_slice(&row.number.to_le_bytes());
        self.filling.rows += 1;
        self.filling.row_bytes += row.bytes.len() as u64;
        if self.filling.rows >= self.part_rows {
            self.end_part();
        }
        Pushed::Taken
    }

    fn bytes(&self) -> usize {
        self.out.bytes.len()
    }

    fn finish(&mut self) -> Encoded {
        let mut world = lock(&self.world);
        if world.chance(|mood| mood.encoder_panics) {
            world.fired.add(Fault::FinishPanics);
            world.expected.encoder_panics += 1;
            panic(world, "it ends a batch");
        }
        drop(world);
        self.end_part();
        std::mem::take(&mut self.out)
    }
}
