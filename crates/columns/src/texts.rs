//! Texts and bytes of one field: each distinct value is stored once while there are few.

use ::parquet::data_type::ByteArray;
use ::record::{Cell, Kind};
use std::collections::HashMap;

/// Most bytes of a dictionary, with the lengths of its texts. It has room for the names of a host's services, or for some
/// thousands of addresses; in columns with more, most rows have a value of their own.
const DICTIONARY_MAX_BYTES: usize = 128 << 10;

/// Memory of an entry of the map, in addition to its bytes.
const KNOWN_BYTES: usize = 64;

/// The text values of a column, without gaps.
#[derive(Default)]
pub(crate) struct Texts {
    /// The distinct texts, concatenated.
    bytes: Vec<u8>,
    /// The start and end of each.
    spans: Vec<(u32, u32)>,
    /// For each value, the index of its text.
    indices: Vec<u32>,
    /// The last value in its raw form, before it became text; `last_index` is its text.
    last: Vec<u8>,
    last_index: Option<u32>,
    /// The text of each raw value. `None` if there are too many.
    known: Option<HashMap<Box<[u8]>, u32>>,
}

impl Texts {
    /// For values of this kind. Payloads get no map: hardly two are the same.
    pub(crate) fn of(kind: Kind) -> Texts {
        let repeat = !matches!(kind, Kind::Bytes | Kind::Data);
        Texts { known: repeat.then(HashMap::new), ..Texts::default() }
    }

    /// Adds a value. A number is ignored.
    #[inline]
    pub(crate) fn push(&mut self, cell: &Cell<'_>) {
        match cell {
            Cell::Number(_) => {}
            Cell::Bytes(bytes) => self.add(bytes, cell),
            Cell::Address(address) => self.add(address.as_slice(), cell),
            Cell::Tags(_) => {
                let mut text = Vec::new();
                cell.put_text(&mut text);
                self.add(&text, &Cell::Bytes(&text));
            }
        }
    }

    #[inline]
    fn add(&mut self, raw: &[u8], cell: &Cell<'_>) {
        if let Some(last) = self.last_index
            && self.last == raw
        {
            return self.indices.push(last);
        }
        let index = self.index_of(raw, cell);
        self.indices.push(index);
        self.last_index = Some(index);
        self.last.clear();
        self.last.extend_from_slice(raw);
    }

    fn index_of(&mut self, raw: &[u8], cell: &Cell<'_>) -> u32 {
        if let Some(known) = &self.known
            && let Some(&index) = known.get(raw)
        {
            return index;
        }

        // A row group ends long before 4 GiB.
        let (index, start) = (self.spans.len() as u32, self.bytes.len() as u32);
        cell.put_text(&mut self.bytes);
        self.spans.push((start, self.bytes.len() as u32));
        if self.bytes.len() + self.spans.len() * 4 > DICTIONARY_MAX_BYTES {
            self.known = None;
        }
        if let Some(known) = &mut self.known {
            known.insert(raw.into(), index);
        }
        index
    }

    /// Removes the last value, and its text if no other value has it.
    pub(crate) fn pop(&mut self) {
        let Some(index) = self.indices.pop() else { return };
        self.last_index = None;
        if index as usize + 1 < self.spans.len() || self.indices.contains(&index) {
            return;
        }
        if let Some((start, _)) = self.spans.pop() {
            self.bytes.truncate(start as usize);
        }
        if let Some(known) = &mut self.known {
            known.retain(|_, other| *other != index);
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let known =
            self.known.as_ref().map_or(0, |known| self.bytes.len() + known.len() * KNOWN_BYTES);
        self.bytes.len() + self.spans.len() * 8 + self.indices.len() * 4 + known
    }

    /// The dictionary index of each value, and the dictionary's texts; `None` without a dictionary.
    pub(crate) fn dictionary(&self) -> Option<(&[u32], impl Iterator<Item = &[u8]> + Clone)> {
        let text = |span: &(u32, u32)| self.bytes.get(span.0 as usize..span.1 as usize);
        self.known.as_ref().map(|_| (self.indices.as_slice(), self.spans.iter().filter_map(text)))
    }

    /// Every value in full.
    pub(crate) fn into_values(self) -> Vec<ByteArray> {
        let all = ByteArray::from(self.bytes);
        let text = |index: u32| {
            let &(start, end) = self.spans.get(index as usize)?;
            Some(all.slice(start as usize, (end - start) as usize))
        };
        self.indices.into_iter().filter_map(text).collect()
    }
}
