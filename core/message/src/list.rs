//! Reading arrays whose elements are not plain scalars.

use std::marker::PhantomData;

use crate::bytes::{read_pair, read_u32, slice};
use crate::place::FieldAt;
use crate::view::View;

impl<'a> View<'a> {
    /// A repeated field as a list of `T`: `bool`, `&str` (as by [`View::str`]), `&[u8]`, or for messages and a map's
    /// entries [`View`] or a generated view. `T` must fit the field; numbers have slices ([`View::i32s`]).
    #[inline]
    pub fn list<T: Element<'a>>(self, field: FieldAt) -> List<'a, T> {
        List::new(self, self.array(field, T::BYTES))
    }
}

/// The elements of a repeated field, read where they lie, as `T`.
///
/// `T` is `bool`, `&str`, `&[u8]`, [`View`] or a generated view. (Numbers need no such list: they are a slice.)
pub struct List<'a, T> {
    parent: View<'a>,
    array: &'a [u8],
    read_as: PhantomData<fn() -> T>,
}

/// What a [`List`] can be read as.
pub trait Element<'a>: Sized {
    /// Bytes of one element in the array itself.
    #[doc(hidden)]
    const BYTES: usize;

    /// Reads the element whose part of the array is `chunk`; `parent` holds the field.
    #[doc(hidden)]
    fn read(parent: View<'a>, chunk: &[u8]) -> Self;
}

impl<'a, T: Element<'a>> List<'a, T> {
    #[inline]
    pub(crate) fn new(parent: View<'a>, array: &'a [u8]) -> Self {
        Self { parent, array, read_as: PhantomData }
    }

    /// Number of elements.
    #[inline]
    pub fn len(self) -> usize {
        self.array.len() / T::BYTES
    }

    /// Whether there is no element.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.array.is_empty()
    }

    /// The element at `index`.
    #[inline]
    pub fn get(self, index: usize) -> Option<T> {
        let start = index.checked_mul(T::BYTES)?;
        let chunk = self.array.get(start..)?.get(..T::BYTES)?;
        Some(T::read(self.parent, chunk))
    }

    /// The elements in order.
    #[inline]
    pub fn iter(self) -> Elements<'a, T> {
        Elements { parent: self.parent, chunks: self.array.chunks_exact(T::BYTES), read_as: PhantomData }
    }
}

/// Iterator over a [`List`].
pub struct Elements<'a, T> {
    parent: View<'a>,
    chunks: std::slice::ChunksExact<'a, u8>,
    read_as: PhantomData<fn() -> T>,
}

impl<'a, T: Element<'a>> Iterator for Elements<'a, T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        self.chunks.next().map(|chunk| T::read(self.parent, chunk))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.chunks.size_hint()
    }
}

impl<'a, T: Element<'a>> DoubleEndedIterator for Elements<'a, T> {
    fn next_back(&mut self) -> Option<T> {
        self.chunks.next_back().map(|chunk| T::read(self.parent, chunk))
    }
}

impl<'a, T: Element<'a>> ExactSizeIterator for Elements<'a, T> {}

impl<'a, T: Element<'a>> IntoIterator for List<'a, T> {
    type Item = T;
    type IntoIter = Elements<'a, T>;

    fn into_iter(self) -> Elements<'a, T> {
        self.iter()
    }
}

impl<'a> Element<'a> for bool {
    const BYTES: usize = 1;

    #[inline]
    fn read(_parent: View<'a>, chunk: &[u8]) -> Self {
        chunk != [0]
    }
}

impl<'a> Element<'a> for &'a [u8] {
    const BYTES: usize = 8;

    #[inline]
    fn read(parent: View<'a>, chunk: &[u8]) -> Self {
        let (offset, length) = read_pair(chunk, 0);
        slice(parent.extent(), offset, length as usize).unwrap_or_default()
    }
}

/// What is not UTF-8 reads as empty, as in [`View::str`].
impl<'a> Element<'a> for &'a str {
    const BYTES: usize = 8;

    #[inline]
    fn read(parent: View<'a>, chunk: &[u8]) -> Self {
        simdutf8::basic::from_utf8(Element::read(parent, chunk)).unwrap_or_default()
    }
}

/// Messages: [`View`] itself and every type made from one.
impl<'a, V: From<View<'a>>> Element<'a> for V {
    const BYTES: usize = 4;

    #[inline]
    fn read(parent: View<'a>, chunk: &[u8]) -> Self {
        V::from(parent.below(read_u32(chunk, 0)).unwrap_or(View::EMPTY))
    }
}

impl<T> Clone for List<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for List<'_, T> {}

impl<T> Default for List<'_, T> {
    fn default() -> Self {
        Self { parent: View::EMPTY, array: &[], read_as: PhantomData }
    }
}

impl<'a, T: Element<'a> + std::fmt::Debug> std::fmt::Debug for List<'a, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<T> Clone for Elements<'_, T> {
    fn clone(&self) -> Self {
        Self { parent: self.parent, chunks: self.chunks.clone(), read_as: PhantomData }
    }
}
