//! Room lent to modules for words, metadata and state, and the reading of what they left there.

use std::ffi::c_void;
use trunkline_module_abi::{
    METADATA_ADDED_BYTES_MAX, METADATA_ADDED_MAX, STATE_BYTES_MAX, Slice, WORDS_BYTES_MAX, Words,
};

/// Room for words, reused from call to call.
#[derive(Debug)]
pub(crate) struct Room {
    bytes: Box<[u8; WORDS_BYTES_MAX]>,
}

/// Pairs a module adds to a call's metadata. `Err`: they were refused, and the module was told.
#[derive(Debug, Default)]
pub(crate) struct Added {
    pub pairs: Vec<(String, Vec<u8>)>,
    bytes: usize,
}

/// State a module exports.
#[derive(Debug, Default)]
pub(crate) struct Exported {
    pub bytes: Vec<u8>,
    /// It was more than [`STATE_BYTES_MAX`].
    pub overflowed: bool,
}

/// Keys with a meaning of their own between daemons, or between gRPC peers.
const RESERVED: [&str; 3] = ["grpc-", "trunkline-", ":"];

impl Room {
    pub fn new() -> Self {
        Self { bytes: Box::new([0; WORDS_BYTES_MAX]) }
    }

    /// The room, empty.
    pub fn lend(&mut self) -> Words {
        Words { data: self.bytes.as_mut_ptr(), capacity: WORDS_BYTES_MAX as u32, bytes: 0 }
    }

    /// What a module said it wrote: text without control characters; otherwise what is wrong with it.
    pub fn said(&self, words: &Words) -> Result<&str, String> {
        let len = words.bytes as usize;
        let Some(bytes) = self.bytes.get(..len) else {
            return Err(format!("it says {len} bytes of words, and has room for {WORDS_BYTES_MAX}"));
        };
        let text = std::str::from_utf8(bytes).map_err(|_| "its words are no UTF-8".to_owned())?;
        if text.contains(|c: char| c.is_control()) {
            return Err("its words have control characters".to_owned());
        }
        Ok(text)
    }

    /// The same for people: whatever can be read of it, in one line.
    pub fn shown(&self, words: &Words) -> String {
        let len = (words.bytes as usize).min(WORDS_BYTES_MAX);
        let text = String::from_utf8_lossy(&self.bytes[..len]);
        let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        if line.trim().is_empty() { "it does not say why".to_owned() } else { line.trim().to_owned() }
    }
}

impl Added {
    fn take(&mut self, key: &[u8], value: &[u8]) -> bool {
        let Ok(key) = std::str::from_utf8(key) else { return false };
        self.bytes += key.len() + value.len();
        let reserved = RESERVED.iter().any(|prefix| key.starts_with(prefix));
        let full = self.pairs.len() >= METADATA_ADDED_MAX || self.bytes > METADATA_ADDED_BYTES_MAX;
        // The rules of metadata are those of a call's own.
        let legal = trunkline_call::Metadata::new().insert(key, value).is_ok();
        if reserved || full || !legal {
            return false;
        }
        self.pairs.push((key.to_owned(), value.to_vec()));
        true
    }
}

/// `add_metadata` of an answer whose context is an [`Added`].
///
/// # Safety
/// `context` is the one the answer has, during the callback the answer was lent to; the slices are readable.
pub(crate) unsafe extern "C" fn add_metadata(context: *mut c_void, key: Slice, value: Slice) -> i32 {
    // SAFETY: the answer's context points to an `Added` on the stack of `Instance::decide`, which waits for the module
    // and does not touch it meanwhile.
    let Some(added) = (unsafe { context.cast::<Added>().as_mut() }) else { return 1 };
    // SAFETY: the module vouches for its slices, as the header demands.
    let key = unsafe { borrowed(&key) };
    // SAFETY: as above.
    let value = unsafe { borrowed(&value) };
    i32::from(!added.take(key, value))
}

/// `write` of a sink whose context is an [`Exported`].
///
/// # Safety
/// As for [`add_metadata`].
pub(crate) unsafe extern "C" fn write_state(context: *mut c_void, piece: Slice) -> i32 {
    // SAFETY: the sink's context points to an `Exported` on the stack of `Instance::export`, which waits for the
    // module.
    let Some(exported) = (unsafe { context.cast::<Exported>().as_mut() }) else { return 1 };
    // SAFETY: the module vouches for its slice, as the header demands.
    let piece = unsafe { borrowed(&piece) };
    exported.overflowed |= exported.bytes.len().saturating_add(piece.len()) > STATE_BYTES_MAX;
    if exported.overflowed {
        return 1;
    }
    exported.bytes.extend_from_slice(piece);
    0
}

/// The bytes a module names.
///
/// # Safety
/// Null, or readable for as long as the borrow.
pub(crate) unsafe fn borrowed(slice: &Slice) -> &[u8] {
    if slice.data.is_null() || slice.bytes == 0 || slice.bytes > isize::MAX as usize {
        return &[];
    }
    // SAFETY: the caller vouches that so many bytes are readable there; their number was checked above.
    unsafe { std::slice::from_raw_parts(slice.data, slice.bytes) }
}

#[cfg(test)]
mod tests {
    //! Shows what is believed of what a module says.
    use super::*;
    use std::ptr::from_mut;

    #[test]
    fn words_are_bounded_text() {
        let mut room = Room::new();
        let mut words = room.lend();
        room.bytes[..5].copy_from_slice(b"no\nno");
        words.bytes = 2;
        assert_eq!(room.said(&words), Ok("no"));
        words.bytes = 5;
        assert_eq!(room.said(&words), Err("its words have control characters".to_owned()));
        assert_eq!(room.shown(&words), "no no");
        words.bytes = 1025;
        assert_eq!(room.said(&words), Err("it says 1025 bytes of words, and has room for 1024".to_owned()));
        room.bytes[0] = 0xff;
        words.bytes = 1;
        assert_eq!(room.said(&words), Err("its words are no UTF-8".to_owned()));
        words.bytes = 0;
        assert_eq!(room.shown(&words), "it does not say why");
    }

    #[test]
    fn metadata_is_legal_and_bounded() {
        let mut added = Added::default();
        let context = from_mut(&mut added).cast();
        let add = |key: &str, value: &[u8]| {
            // SAFETY: the context is an `Added` that outlives the call, the slices lie in the arguments.
            unsafe { add_metadata(context, Slice::of(key.as_bytes()), Slice::of(value)) }
        };
        assert_eq!([add("tier", b"gold"), add("x-bin", &[0, 255])], [0, 0]);
        assert_eq!([add("Tier", b"gold"), add("tier", b"\n"), add("grpc-status", b"0")], [1, 1, 1]);
        assert_eq!(add("big-bin", &[0; METADATA_ADDED_BYTES_MAX]), 1);
        assert_eq!(added.pairs.len(), 2);
    }

    #[test]
    fn state_is_bounded() {
        let mut exported = Exported::default();
        let context = from_mut(&mut exported).cast();
        let piece = vec![1; STATE_BYTES_MAX];
        // SAFETY: as above.
        let write = |bytes: &[u8]| unsafe { write_state(context, Slice::of(bytes)) };
        assert_eq!([write(&piece), write(&[]), write(&[1])], [0, 0, 1]);
        assert!(exported.overflowed);
        assert_eq!(exported.bytes.len(), STATE_BYTES_MAX);
    }
}
