//! Text and bytes the daemon lends.

use trunkline_module_abi as abi;

/// Text the daemon lends for as long as the struct it stands in.
pub(crate) fn text(slice: &abi::Slice) -> &str {
    std::str::from_utf8(bytes(slice)).unwrap_or_default()
}

/// The same as bytes.
pub(crate) fn bytes(slice: &abi::Slice) -> &[u8] {
    if slice.data.is_null() || slice.bytes == 0 {
        return &[];
    }
    // SAFETY: slices reach this crate in structs the daemon lends and vouches for; they live as long as the struct, and
    // its borrow bounds this one.
    unsafe { std::slice::from_raw_parts(slice.data, slice.bytes) }
}
