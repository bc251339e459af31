//! What a module may ask for, say and keep.

/// A module's name or version: a column of a table.
pub const NAME_BYTES_MAX: usize = 64;

/// Values of one configuration.
pub const CONFIG_PAIRS_MAX: usize = 256;

/// Bytes of keys and texts in one configuration.
pub const CONFIG_BYTES_MAX: usize = 64 * 1024;

/// Fields an instance may ask for: their values are put together on the stack for every call.
pub const FIELDS_MAX: usize = 16;

/// Words for a caller or an operator: they travel in a status message, and that in one metadata value.
pub const WORDS_BYTES_MAX: usize = 1024;

/// Pairs a module may add to the metadata of one call.
pub const METADATA_ADDED_MAX: usize = 16;

/// Their keys and values together: an eighth of what a call's metadata may have.
pub const METADATA_ADDED_BYTES_MAX: usize = 4 * 1024;

/// Exported state. It is handed over between two calls, which wait meanwhile: copying this much takes some ten
/// milliseconds.
pub const STATE_BYTES_MAX: usize = 16 * 1024 * 1024;
