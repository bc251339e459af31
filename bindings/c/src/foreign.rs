//! Memory of the caller's: the one file that reads and writes it.

use crate::abi::{tl_call_options, tl_channel_options, tl_outcome, tl_server_options, tl_slice};
use std::ffi::c_void;
use trunkline::Status;

/// Stands for the promise that the pointers of a function's caller are what the header says: null, or valid for what
/// is behind them, for as long as the function runs.
#[derive(Debug)]
pub struct CallerMemory(());

/// Structures that may grow: they begin with a `uint32_t` that says how large the caller's is, and any bytes make one.
///
/// # Safety
/// `repr(C)`, begins with a `u32`, and made of integers and raw pointers only.
pub unsafe trait Sized0: Copy {
    /// What it is called.
    const NAME: &'static str;
}

// SAFETY: repr(C), size first, integers and pointers: abi.rs.
unsafe impl Sized0 for tl_channel_options {
    const NAME: &'static str = "tl_channel_options";
}
// SAFETY: repr(C), size first, integers and pointers: abi.rs.
unsafe impl Sized0 for tl_call_options {
    const NAME: &'static str = "tl_call_options";
}
// SAFETY: repr(C), size first, integers and pointers: abi.rs.
unsafe impl Sized0 for tl_server_options {
    const NAME: &'static str = "tl_server_options";
}
// SAFETY: repr(C), size first, integers and pointers: abi.rs.
unsafe impl Sized0 for tl_outcome {
    const NAME: &'static str = "tl_outcome";
}

/// No structure is as large as this: a size that is larger was never set.
const SIZE_MAX: usize = 4096;

/// A pointer of the caller's that is only handed back to it, on any thread, as the header says.
#[derive(Clone, Copy, Debug)]
pub struct User(pub *mut c_void);

// SAFETY: never dereferenced here; the header says that the handler gets it on any thread.
unsafe impl Send for User {}
// SAFETY: as above.
unsafe impl Sync for User {}

#[expect(
    clippy::not_unsafe_ptr_arg_deref,
    reason = "who made a CallerMemory has promised it for all of them"
)]
impl CallerMemory {
    /// # Safety
    /// As this type says, for all pointers that are passed to its methods.
    pub unsafe fn promised() -> Self {
        Self(())
    }

    /// The bytes of a slice.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if it is null and not empty, or longer than memory can be.
    pub fn bytes(&self, slice: tl_slice) -> Result<&[u8], Status> {
        if slice.len == 0 {
            return Ok(&[]);
        }
        if slice.data.is_null() || isize::try_from(slice.len).is_err() {
            return Err(Status::invalid_argument("a slice that is null, or longer than memory can be"));
        }
        // SAFETY: not null, and by the promise valid for `len` bytes.
        Ok(unsafe { std::slice::from_raw_parts(slice.data, slice.len) })
    }

    /// The text of a slice.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if it is not UTF-8.
    pub fn text(&self, slice: tl_slice) -> Result<&str, Status> {
        std::str::from_utf8(self.bytes(slice)?)
            .map_err(|_| Status::invalid_argument("a text that is not UTF-8"))
    }

    /// A structure that may be smaller or larger than ours; what it lacks is 0. `None` for null.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if it is not aligned, says no size or none that can be, or says something that this library
    /// does not know.
    pub fn sized<T: Sized0>(&self, from: *const T) -> Result<Option<T>, Status> {
        if from.is_null() {
            return Ok(None);
        }
        check_aligned(from)?;
        // SAFETY: not null, aligned, and by the promise at least a u32 long.
        let size = unsafe { from.cast::<u32>().read() } as usize;
        if !(size_of::<u32>()..=SIZE_MAX).contains(&size) {
            return Err(Status::invalid_argument(format!("size of a {} is {size}", T::NAME)));
        }
        if let Some(surplus) = size.checked_sub(size_of::<T>()) {
            // SAFETY: by the promise valid for `size` bytes, so one past the end of ours at most.
            let more = unsafe { from.cast::<u8>().add(size_of::<T>()) };
            if self.bytes(tl_slice { data: more, len: surplus })?.iter().any(|byte| *byte != 0) {
                let why = format!("a {} of a newer library says what this one does not know", T::NAME);
                return Err(Status::invalid_argument(why));
            }
        }
        let mut out = std::mem::MaybeUninit::<T>::zeroed();
        let count = size.min(size_of::<T>());
        // SAFETY: by the promise valid for `size` bytes, of which no more are taken than `out` has.
        unsafe { std::ptr::copy_nonoverlapping(from.cast::<u8>(), out.as_mut_ptr().cast::<u8>(), count) };
        // SAFETY: integers and pointers by `Sized0`, so that zeroes and any bytes make one.
        Ok(Some(unsafe { out.assume_init() }))
    }

    /// Reads what is behind a pointer.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if it is null or not aligned.
    pub fn read<T: Copy>(&self, from: *const T) -> Result<T, Status> {
        check_out(from)?;
        // SAFETY: not null, aligned, and by the promise valid.
        Ok(unsafe { from.read() })
    }

    /// Writes to where the caller wants it.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if that is nowhere.
    pub fn write<T: Copy>(&self, to: *mut T, value: T) -> Result<(), Status> {
        check_out(to)?;
        // SAFETY: not null, aligned, and by the promise valid.
        unsafe { to.write(value) };
        Ok(())
    }

    /// The same, where nothing is done if the caller does not want it.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if it is not aligned.
    pub fn write_if_wanted<T: Copy>(&self, to: *mut T, value: T) -> Result<(), Status> {
        if to.is_null() { Ok(()) } else { self.write(to, value) }
    }

    /// Copies bytes to a buffer that has room for `capacity`.
    ///
    /// # Errors
    /// OUT_OF_RANGE if that is too short; INVALID_ARGUMENT if it is null.
    pub fn copy_out(&self, bytes: &[u8], to: *mut u8, capacity: usize) -> Result<(), Status> {
        if bytes.len() > capacity {
            let why = format!("{} bytes do not fit a buffer of {capacity}", bytes.len());
            return Err(Status::out_of_range(why));
        }
        if bytes.is_empty() {
            return Ok(());
        }
        check_out(to)?;
        // SAFETY: not null, and by the promise valid for `capacity` bytes, which are not the library's.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        Ok(())
    }
}

/// That something can be written to, or read from, where the caller says.
///
/// # Errors
/// INVALID_ARGUMENT if it is null or not aligned.
pub fn check_out<T>(to: *const T) -> Result<(), Status> {
    if to.is_null() {
        return Err(Status::invalid_argument("a pointer that must not be null"));
    }
    check_aligned(to)
}

fn check_aligned<T>(pointer: *const T) -> Result<(), Status> {
    if pointer.is_aligned() { Ok(()) } else { Err(Status::invalid_argument("a pointer that is not aligned")) }
}

/// Bytes of the library's, for the caller to read.
pub fn lend(bytes: &[u8]) -> tl_slice {
    tl_slice { data: bytes.as_ptr(), len: bytes.len() }
}

/// No bytes.
pub const NOTHING: tl_slice = tl_slice { data: std::ptr::null(), len: 0 };

#[cfg(test)]
mod tests {
    //! Shows what becomes of pointers that make no sense, and of structures of other sizes.
    use super::*;
    use trunkline::Code;

    fn foreign() -> CallerMemory {
        // SAFETY: the tests' pointers are valid, or null, or not looked behind.
        unsafe { CallerMemory::promised() }
    }

    fn code<T: std::fmt::Debug>(result: Result<T, Status>) -> Code {
        result.unwrap_err().code()
    }

    #[test]
    fn null_and_unaligned_are_refused() {
        let foreign = foreign();
        assert_eq!(code(foreign.bytes(tl_slice { data: std::ptr::null(), len: 1 })), Code::InvalidArgument);
        assert!(foreign.bytes(NOTHING).unwrap().is_empty());
        let mut byte = 0u8;
        let too_long = tl_slice { data: &raw const byte, len: usize::MAX };
        assert_eq!(code(foreign.bytes(too_long)), Code::InvalidArgument);
        assert_eq!(code(foreign.text(lend(&[0xff]))), Code::InvalidArgument);
        assert_eq!(code(foreign.write(std::ptr::null_mut::<u64>(), 1)), Code::InvalidArgument);
        let odd = (&raw mut byte).wrapping_add(1 + (&raw const byte as usize) % 2).cast::<u64>();
        assert_eq!(code(foreign.write(odd, 1)), Code::InvalidArgument);
        assert_eq!(code(foreign.copy_out(&[1, 2], &raw mut byte, 1)), Code::OutOfRange);
        assert_eq!((foreign.copy_out(&[7], &raw mut byte, 1), byte), (Ok(()), 7));
    }

    #[test]
    fn a_smaller_structure_is_filled_up_with_zeroes() {
        #[repr(C, align(8))]
        struct Older {
            size: u32,
            code: u32,
        }
        let older = Older { size: 8, code: 5 };
        let read = foreign().sized((&raw const older).cast::<tl_outcome>()).unwrap().unwrap();
        assert_eq!((read.code, read.message.len, read.trailers.id), (5, 0, 0));
        assert!(foreign().sized(std::ptr::null::<tl_outcome>()).unwrap().is_none());
    }

    #[test]
    fn a_structure_without_size_is_refused() {
        let outcome = tl_outcome {
            size: 0,
            code: 0,
            message: NOTHING,
            details: NOTHING,
            trailers: crate::abi::tl_metadata::default(),
            built: crate::memory::NONE,
            built_bytes: 0,
            flags: 0,
            reserved: 0,
        };
        assert_eq!(code(foreign().sized(&raw const outcome)), Code::InvalidArgument);
        let unset = tl_outcome { size: u32::MAX, ..outcome };
        assert_eq!(code(foreign().sized(&raw const unset)), Code::InvalidArgument);

        #[repr(C)]
        struct Newer {
            known: tl_outcome,
            new: [u8; 8],
        }
        let known = tl_outcome { size: size_of::<Newer>() as u32, code: 3, ..outcome };
        let mut newer = Newer { known, new: [0; 8] };
        let sized = |newer: &Newer| foreign().sized(std::ptr::from_ref(newer).cast::<tl_outcome>());
        assert_eq!(sized(&newer).unwrap().unwrap().code, 3, "what is new is not used");
        newer.new[7] = 1;
        assert_eq!(code(sized(&newer)), Code::InvalidArgument, "what is new is not ignored");
    }
}
