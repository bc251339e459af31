//! Reading a message where it lies.

use std::borrow::Cow;

use crate::HEADER_BYTES;
use crate::bytes::{chunk, read_pair, read_u32, slice};
use crate::place::{DEPTH_MAX, FieldAt};
use crate::scalar::Blittable;

/// One message within an extent: a place, not a copy.
///
/// A view of any bytes whatever can be read without panic: an offset out of range, or an array that is not aligned,
/// reads as the field's zero. A view of bytes that passed [`check`](crate::check) never comes to that. Messages
/// more than [`DEPTH_MAX`] levels below the root read as absent, so that recursion over a view ends.
///
/// An absent field reads as zero, empty, or `None`; a declared default is its caller's business.
///
/// ```
/// use trunkline_message::{AlignedBuf, Builder, FieldAt, View};
/// const NAME: FieldAt = FieldAt::new(8, 0);
/// const TIMES: FieldAt = FieldAt::new(16, 1);
///
/// let mut builder = Builder::new(AlignedBuf::new(), 24);
/// let mut root = builder.root();
/// root.set_str(NAME, "Ada");
/// root.set_i32(TIMES, 3);
/// let built = builder.finish(0)?;
///
/// let view = View::root(built.bytes());
/// assert_eq!((view.str(NAME), view.i32(TIMES)), ("Ada", 3));
/// # Ok::<(), trunkline_message::BuildError>(())
/// ```
#[derive(Clone, Copy)]
pub struct View<'a> {
    extent: &'a [u8],
    at: u32,
    /// Levels that may still follow.
    depth_left: u32,
}

impl<'a> View<'a> {
    /// A message with no field present.
    pub const EMPTY: View<'static> = View { extent: &[], at: 0, depth_left: 0 };

    /// The root message of an extent, header included in the bytes.
    #[inline]
    pub const fn root(extent: &'a [u8]) -> Self {
        Self { extent, at: HEADER_BYTES as u32, depth_left: DEPTH_MAX }
    }

    /// Whether the field is present: set, even if to zero; for repeated fields and maps, set even if to empty.
    #[inline]
    pub fn has(self, field: FieldAt) -> bool {
        self.u32_at(field.word()) & field.mask() != 0
    }

    /// The bytes of a string or bytes field.
    #[inline]
    pub fn bytes(self, field: FieldAt) -> &'a [u8] {
        let (offset, length) = self.pair(field);
        slice(self.extent, offset, length as usize).unwrap_or_default()
    }

    /// A string field. Empty if the bytes are not UTF-8: a check vouches for the strings whose schema demands it;
    /// for the others (proto2) use [`View::bytes`] or [`View::str_lossy`].
    #[inline]
    pub fn str(self, field: FieldAt) -> &'a str {
        simdutf8::basic::from_utf8(self.bytes(field)).unwrap_or_default()
    }

    /// A string field with what is not UTF-8 replaced by U+FFFD.
    pub fn str_lossy(self, field: FieldAt) -> Cow<'a, str> {
        String::from_utf8_lossy(self.bytes(field))
    }

    /// A message field, if present.
    #[inline]
    pub fn message(self, field: FieldAt) -> Option<View<'a>> {
        if self.has(field) { self.below(self.u32_at(field.slot())) } else { None }
    }

    /// The unknown fields, in wire form.
    #[inline]
    pub fn unknown(self) -> &'a [u8] {
        match self.u32_at(0) {
            0 => &[],
            at => slice(self.extent, at.saturating_add(4), read_u32(self.extent, at as usize) as usize)
                .unwrap_or_default(),
        }
    }

    /// The bytes all offsets are relative to.
    pub fn extent(self) -> &'a [u8] {
        self.extent
    }

    /// Where in the extent this message's block begins.
    pub fn offset(self) -> u32 {
        self.at
    }

    /// The message at an offset, one level further down; `None` at offset 0 or below the last level.
    #[inline]
    pub(crate) fn below(self, at: u32) -> Option<View<'a>> {
        let depth_left = self.depth_left.checked_sub(1)?;
        if at == 0 { None } else { Some(View { extent: self.extent, at, depth_left }) }
    }

    /// The bytes of a present array; empty if it is absent or reaches out of the extent.
    #[inline]
    pub(crate) fn array(self, field: FieldAt, element_bytes: usize) -> &'a [u8] {
        let (offset, count) = self.pair(field);
        slice(self.extent, offset, count as usize * element_bytes).unwrap_or_default()
    }

    /// A repeated scalar field as a slice of the extent itself.
    #[inline]
    fn blit<T: Blittable>(self, field: FieldAt) -> &'a [T] {
        bytemuck::try_cast_slice(self.array(field, size_of::<T>())).unwrap_or_default()
    }

    /// The slot of a present field, zero if it is absent.
    #[inline]
    fn scalar<const N: usize>(self, field: FieldAt) -> [u8; N] {
        if !self.has(field) {
            return [0; N];
        }
        chunk(self.extent, self.at as usize + field.slot() as usize).copied().unwrap_or([0; N])
    }

    #[inline]
    fn pair(self, field: FieldAt) -> (u32, u32) {
        if !self.has(field) {
            return (0, 0);
        }
        read_pair(self.extent, self.at as usize + field.slot() as usize)
    }

    #[inline]
    fn u32_at(self, within_block: u32) -> u32 {
        read_u32(self.extent, self.at as usize + within_block as usize)
    }
}

/// Accessors that differ in nothing but the type.
macro_rules! scalars {
    ($($one:ident, $many:ident: $type:ty;)*) => {
        impl<'a> View<'a> {
            $(
                #[doc = concat!("A `", stringify!($type), "` field; zero if absent.")]
                #[inline]
                pub fn $one(self, field: FieldAt) -> $type {
                    <$type>::from_le_bytes(self.scalar(field))
                }

                #[doc = concat!("A repeated `", stringify!($type), "` field, where it lies.")]
                #[inline]
                pub fn $many(self, field: FieldAt) -> &'a [$type] {
                    self.blit(field)
                }
            )*
        }
    };
}

scalars! {
    i32, i32s: i32;
    u32, u32s: u32;
    f32, f32s: f32;
    i64, i64s: i64;
    u64, u64s: u64;
    f64, f64s: f64;
}

impl View<'_> {
    /// A bool field; false if absent. Any byte but zero is true.
    #[inline]
    pub fn bool(self, field: FieldAt) -> bool {
        self.scalar::<1>(field) != [0]
    }
}

impl Default for View<'_> {
    fn default() -> Self {
        View::EMPTY
    }
}

/// Shows the place only: what lies there needs a schema to be read ([`DynamicView`](crate::DynamicView)).
impl std::fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "View {{ at: {}, extent_bytes: {} }}", self.at, self.extent.len())
    }
}
