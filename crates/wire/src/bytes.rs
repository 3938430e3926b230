//! Reads numbers from bytes of unknown length, without panicking.

use crate::DecodeError;

/// A byte count for errors. Saturates at `u32::MAX`.
pub(crate) fn count(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// What follows an element of `len` bytes and its padding to a multiple of 4 (`NLMSG_ALIGNTO`, `NLA_ALIGNTO`). The
/// padding of the last element may be missing.
pub(crate) fn behind(bytes: &[u8], len: usize) -> &[u8] {
    bytes.get(len.saturating_add(3) & !3..).unwrap_or_default()
}

/// The first `N` bytes, or [`DecodeError::Truncated`].
pub(crate) fn header<const N: usize>(bytes: &[u8]) -> Result<&[u8; N], DecodeError> {
    bytes
        .first_chunk::<N>()
        .ok_or(DecodeError::Truncated { need: count(N), have: count(bytes.len()) })
}

/// `N` bytes at a fixed offset of a fixed-size array. An offset outside the array does not compile.
#[inline(always)]
pub(crate) fn at<const OFFSET: usize, const N: usize, const SIZE: usize>(
    bytes: &[u8; SIZE],
) -> [u8; N] {
    const { assert!(OFFSET + N <= SIZE) };
    let mut value = [0; N];
    value.copy_from_slice(&bytes[OFFSET..OFFSET + N]);
    value
}

/// Native-order `u16` at a fixed offset.
#[inline(always)]
pub(crate) fn u16_at<const OFFSET: usize, const SIZE: usize>(bytes: &[u8; SIZE]) -> u16 {
    u16::from_ne_bytes(at::<OFFSET, 2, SIZE>(bytes))
}

/// Native-order `u32` at a fixed offset.
#[inline(always)]
pub(crate) fn u32_at<const OFFSET: usize, const SIZE: usize>(bytes: &[u8; SIZE]) -> u32 {
    u32::from_ne_bytes(at::<OFFSET, 4, SIZE>(bytes))
}

/// Native-order `u64` at a fixed offset, of any alignment.
#[inline(always)]
pub(crate) fn u64_at<const OFFSET: usize, const SIZE: usize>(bytes: &[u8; SIZE]) -> u64 {
    u64::from_ne_bytes(at::<OFFSET, 8, SIZE>(bytes))
}
