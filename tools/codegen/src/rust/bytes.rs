//! Bytes as source text.

use super::writer::{Writer, line};

/// Columns of one line of a byte string.
const LINE_COLUMNS: usize = 92;

/// `pub const NAME: &[u8] = b"…";` broken into lines.
pub(super) fn constant(w: &mut Writer, name: &str, bytes: &[u8]) {
    line!(w, "pub const {name}: &[u8] = b\"\\");
    let mut row = String::with_capacity(LINE_COLUMNS + 4);
    for &byte in bytes {
        let start = row.is_empty();
        match byte {
            // A line continuation swallows leading blanks.
            b' ' if start => row.push_str("\\x20"),
            b'\'' => row.push('\''),
            _ => row.extend(byte.escape_ascii().map(char::from)),
        }
        if row.len() >= LINE_COLUMNS {
            w.raw_line(&format!("{row}\\"));
            row.clear();
        }
    }
    w.raw_line(&format!("{row}\";"));
}
