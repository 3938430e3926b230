//! Numbers, indices and levels in Parquet's encodings (<https://parquet.apache.org/docs/file-format/data-pages/encodings/>).

/// Differences in a block, which has one minimum; a multiple of 128.
const BLOCK_VALUES: usize = 128;
/// Differences in a miniblock, which share a bit width.
const MINI_VALUES: usize = 32;
const MINIS: usize = BLOCK_VALUES / MINI_VALUES;

/// Packed numbers come in groups of this size, and a shorter run is packed as well.
const GROUP_VALUES: usize = 8;

/// Appends numbers as DELTA_BINARY_PACKED.
pub(crate) fn put_differences<T: Copy + Into<i64>>(values: &[T], out: &mut Vec<u8>) {
    let Some((&first, rest)) = values.split_first() else { return };
    let mut last: i64 = first.into();
    for number in [BLOCK_VALUES, MINIS, values.len()] {
        put_varint(number as u64, out);
    }
    put_zigzag(last, out);

    let mut differences = [0_i64; BLOCK_VALUES];
    for block in rest.chunks(BLOCK_VALUES) {
        let (mut smallest, mut any) = (i64::MAX, 0);
        for (difference, &value) in differences.iter_mut().zip(block) {
            let value = value.into();
            *difference = value.wrapping_sub(last);
            any |= *difference;
            smallest = smallest.min(*difference);
            last = value;
        }

        // Most columns do not change at all.
        if any == 0 {
            out.extend_from_slice(&[0; 1 + MINIS]);
            continue;
        }
        let differences = differences.get_mut(..block.len()).unwrap_or_default();
        put_block(differences, smallest, out);
    }
}

/// Appends a block: the excess of each difference over the minimum, in the bit width that each quarter of the block needs.
fn put_block(differences: &mut [i64], smallest: i64, out: &mut Vec<u8>) {
    put_zigzag(smallest, out);
    let widths_at = out.len();
    out.extend_from_slice(&[0; MINIS]);

    for (at, mini) in differences.chunks_mut(MINI_VALUES).enumerate() {
        let mut any = 0;
        for difference in mini.iter_mut() {
            *difference = difference.wrapping_sub(smallest);
            any |= *difference;
        }
        let width = u64::BITS - any.leading_zeros();
        if let Some(place) = out.get_mut(widths_at + at) {
            *place = width as u8;
        }
        // Decoders read whole miniblocks.
        let missing = std::iter::repeat_n(0, MINI_VALUES - mini.len());
        pack(mini.iter().map(|above| *above as u64).chain(missing), width, out);
    }
}

/// Appends numbers as PLAIN: the lowest `width` bytes of each, least significant first.
pub(crate) fn put_plain<T: Copy + Into<i64>>(values: &[T], width: usize, out: &mut Vec<u8>) {
    out.reserve(values.len() * width);
    for &value in values {
        let value: i64 = value.into();
        out.extend(value.to_le_bytes().iter().take(width));
    }
}

/// Appends indices below `count` in RLE_DICTIONARY encoding: their bit width, then the indices.
pub(crate) fn put_indices(indices: &[u32], count: usize, out: &mut Vec<u8>) {
    let width = usize::BITS - count.saturating_sub(1).leading_zeros();
    out.push(width as u8);
    let mut hybrid = Hybrid { width, packed: Vec::new(), out };
    for run in indices.chunk_by(|a, b| a == b) {
        hybrid.put(run.first().copied().unwrap_or_default(), run.len());
    }
    hybrid.end_packed();
}

/// Appends which of `rows` rows have a value, as definition levels: 1 for a value, 0 for none. The rows up to the first of
/// `changes` have values, those from there up to the second have none, and so on.
pub(crate) fn put_presence(changes: &[u32], rows: usize, out: &mut Vec<u8>) {
    let mut hybrid = Hybrid { width: 1, packed: Vec::new(), out };
    let (mut from, mut level) = (0, 1);
    for end in changes.iter().map(|end| *end as usize).chain([rows]) {
        hybrid.put(level, end.saturating_sub(from));
        (from, level) = (end, 1 - level);
    }
    hybrid.end_packed();
}

/// Encodes small numbers: runs where they repeat, and packed groups of 8 where they do not.
struct Hybrid<'o> {
    /// Bit width of a number.
    width: u32,
    /// Numbers of groups that are not written yet.
    packed: Vec<u32>,
    out: &'o mut Vec<u8>,
}

impl Hybrid<'_> {
    fn put(&mut self, number: u32, mut count: usize) {
        // A run can only begin at the end of a group.
        let missing = self.packed.len().next_multiple_of(GROUP_VALUES) - self.packed.len();
        let of_group = if count - missing.min(count) < GROUP_VALUES { count } else { missing };
        self.packed.extend(std::iter::repeat_n(number, of_group));
        count -= of_group;
        if count == 0 {
            return;
        }

        self.end_packed();
        put_varint((count as u64) << 1, self.out);
        let bytes = number.to_le_bytes();
        self.out.extend(bytes.iter().take(self.width.div_ceil(8) as usize));
    }

    fn end_packed(&mut self) {
        if self.packed.is_empty() {
            return;
        }
        // Decoders do not read beyond the last value.
        self.packed.resize(self.packed.len().next_multiple_of(GROUP_VALUES), 0);
        let groups = self.packed.len() / GROUP_VALUES;
        put_varint((groups as u64) << 1 | 1, self.out);
        pack(self.packed.drain(..).map(u64::from), self.width, self.out);
    }
}

/// Appends the lowest `width` bits of each number, least significant bit first.
fn pack(numbers: impl Iterator<Item = u64>, width: u32, out: &mut Vec<u8>) {
    if width == 0 {
        return;
    }
    let (mut word, mut used) = (0_u64, 0);
    for number in numbers {
        word |= number << used;
        used += width;
        if used >= u64::BITS {
            out.extend_from_slice(&word.to_le_bytes());
            used -= u64::BITS;
            word = if used == 0 { 0 } else { number >> (width - used) };
        }
    }
    out.extend(word.to_le_bytes().iter().take(used.div_ceil(8) as usize));
}

fn put_zigzag(number: i64, out: &mut Vec<u8>) {
    put_varint((number << 1 ^ number >> 63) as u64, out);
}

fn put_varint(mut number: u64, out: &mut Vec<u8>) {
    while number > 0x7f {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(put: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out);
        out
    }

    #[test]
    fn differences_are_those_of_the_specification() {
        // 7, 5, 3, 1, 2, 3, 4, 5: the example in the specification, in blocks of 128.
        let bytes = written(|out| put_differences(&[7_i64, 5, 3, 1, 2, 3, 4, 5], out));
        let packed = [0b1100_0000, 0b0011_1111, 0, 0, 0, 0, 0, 0];
        assert_eq!(bytes, [&[0x80, 1, 4, 8, 14, 3, 2, 0, 0, 0][..], &packed].concat());
        // A block without changes has width 0.
        let bytes = written(|out| put_differences(&[3_i64; 129], out));
        assert_eq!(bytes, [0x80, 1, 4, 0x81, 1, 6, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn plain_numbers_have_the_width_of_their_type() {
        let bytes = written(|out| put_plain(&[1_i64, -2], 8, out));
        assert_eq!(
            bytes,
            [[1, 0, 0, 0, 0, 0, 0, 0], [0xfe, 255, 255, 255, 255, 255, 255, 255]].concat()
        );
        assert_eq!(written(|out| put_plain(&[0x1_0203_u32], 4, out)), [3, 2, 1, 0]);
    }

    #[test]
    fn levels_are_runs_where_they_repeat() {
        assert_eq!(written(|out| put_presence(&[], 20, out)), [40, 1]);
        assert_eq!(written(|out| put_presence(&[0], 20, out)), [40, 0]);
        // 1, 1, 1, then 0: the rest of the group, then a run.
        assert_eq!(written(|out| put_presence(&[3], 20, out)), [3, 0b111, 24, 0]);
        // Too short for a run.
        assert_eq!(written(|out| put_presence(&[3, 5], 10, out)), [5, 0b1110_0111, 0b11]);
    }

    #[test]
    fn indices_have_the_width_of_the_largest() {
        assert_eq!(written(|out| put_indices(&[0; 9], 1, out)), [0, 18]);
        assert_eq!(written(|out| put_indices(&[0, 1, 2], 3, out)), [2, 3, 0b10_0100, 0]);
        let long = [[256; 8].as_slice(), &[1]].concat();
        assert_eq!(
            written(|out| put_indices(&long, 257, out)),
            [9, 16, 0, 1, 3, 1, 0, 0, 0, 0, 0, 0, 0, 0]
        );
    }

    #[test]
    fn numbers_are_packed_across_words() {
        let bytes = written(|out| pack([u64::MAX, 1, u64::MAX].into_iter(), 64, out));
        assert_eq!(bytes, [&[0xff; 8][..], &[1, 0, 0, 0, 0, 0, 0, 0], &[0xff; 8]].concat());
        let bytes = written(|out| pack([0x1_2345_6789, 0x0_ffff_ffff].into_iter(), 36, out));
        assert_eq!(bytes, [0x89, 0x67, 0x45, 0x23, 0xf1, 0xff, 0xff, 0xff, 0x0f]);
    }
}
