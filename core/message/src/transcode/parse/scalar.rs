//! How scalars look on the wire, in slots and in arrays.

use std::slice::ChunksExactMut;

use super::arena::Arena;
use crate::transcode::varint::{Overlong, WINDOW, unzigzag32, unzigzag64, varint, word32, word64};

/// How a scalar looks on the wire and in its slot.
pub(super) trait Scalar {
    /// Bytes of a slot or array element.
    const BYTES: u32;
    /// The value at `at` of a window and its length on the wire.
    fn read(window: &[u8; WINDOW], at: usize) -> Result<(u64, u32), Overlong>;
}

macro_rules! scalar {
    ($name:ident, $bytes:literal, $convert:expr) => {
        pub(super) struct $name;
        impl Scalar for $name {
            const BYTES: u32 = $bytes;
            #[inline(always)]
            fn read(window: &[u8; WINDOW], at: usize) -> Result<(u64, u32), Overlong> {
                let (v, n) = varint(window, at)?;
                Ok(($convert(v), n))
            }
        }
    };
}

scalar!(Varint32, 4, |v| v);
scalar!(Varint64, 8, |v| v);
scalar!(Zigzag32, 4, |v| u64::from(unzigzag32(v as u32)));
scalar!(Zigzag64, 8, unzigzag64);
scalar!(Bool, 1, |v| u64::from(v != 0));

pub(super) struct Fixed32;
impl Scalar for Fixed32 {
    const BYTES: u32 = 4;
    #[inline(always)]
    fn read(window: &[u8; WINDOW], at: usize) -> Result<(u64, u32), Overlong> {
        Ok((u64::from(word32(window, at)), 4))
    }
}

pub(super) struct Fixed64;
impl Scalar for Fixed64 {
    const BYTES: u32 = 8;
    #[inline(always)]
    fn read(window: &[u8; WINDOW], at: usize) -> Result<(u64, u32), Overlong> {
        Ok((word64(window, at), 8))
    }
}

impl Arena<'_> {
    /// The elements between two offsets.
    #[inline(always)]
    pub(super) fn cells<S: Scalar>(&mut self, from: u32, until: u32) -> ChunksExactMut<'_, u8> {
        self.between(from, until).chunks_exact_mut(S::BYTES as usize)
    }

    /// Writes the low bytes of `value`, as many as a scalar takes.
    #[inline(always)]
    pub(super) fn put_scalar<S: Scalar>(&mut self, at: u32, value: u64) {
        match S::BYTES {
            8 => self.put(at, value.to_le_bytes()),
            4 => self.put(at, (value as u32).to_le_bytes()),
            _ => self.put(at, [value as u8]),
        }
    }
}

/// Writes a scalar to an array's element, which is as long as it.
#[inline(always)]
pub(super) fn put_cell<S: Scalar>(cell: &mut [u8], value: u64) {
    for (to, from) in cell.iter_mut().zip(value.to_le_bytes()) {
        *to = from;
    }
}
