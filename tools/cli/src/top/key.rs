//! Keys, as a terminal tells them (ECMA-48 and what xterm made of it).

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keystroke {
    Char(char),
    Enter,
    Escape,
    Backspace,
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    /// The input ends, or the person interrupts.
    Leave,
}

/// Longest sequence that is one key. What is longer is none, and is left out.
const SEQUENCE_MAX: usize = 8;

/// The keys in what a terminal has sent at once. An escape that nothing follows is the key of that name.
pub fn keys(mut bytes: &[u8]) -> Vec<Keystroke> {
    let mut keys = Vec::new();
    while let Some((first, rest)) = bytes.split_first() {
        let (key, after) = match first {
            0x1b => sequence(rest),
            b'\r' | b'\n' => (Some(Keystroke::Enter), rest),
            0x7f | 0x08 => (Some(Keystroke::Backspace), rest),
            3 | 4 => (Some(Keystroke::Leave), rest),
            0..0x20 => (None, rest),
            _ => character(bytes),
        };
        keys.extend(key);
        bytes = after;
    }
    keys
}

/// What an escape begins.
fn sequence(rest: &[u8]) -> (Option<Keystroke>, &[u8]) {
    let Some((b'[' | b'O', tail)) = rest.split_first() else { return (Some(Keystroke::Escape), rest) };
    let ends = |byte: &u8| (0x40..=0x7e).contains(byte);
    let Some(end) = tail.iter().take(SEQUENCE_MAX).position(ends) else {
        return (None, tail.get(SEQUENCE_MAX..).unwrap_or_default());
    };
    let key = match &tail[..=end] {
        b"A" => Some(Keystroke::Up),
        b"B" => Some(Keystroke::Down),
        b"5~" => Some(Keystroke::PageUp),
        b"6~" => Some(Keystroke::PageDown),
        b"H" | b"1~" | b"7~" => Some(Keystroke::Home),
        b"F" | b"4~" | b"8~" => Some(Keystroke::End),
        _ => None,
    };
    (key, &tail[end + 1..])
}

/// A character of UTF-8; a byte of none is left out.
fn character(bytes: &[u8]) -> (Option<Keystroke>, &[u8]) {
    for length in 1..=bytes.len().min(4) {
        if let Ok(text) = std::str::from_utf8(&bytes[..length]) {
            return (text.chars().next().filter(|c| !c.is_control()).map(Keystroke::Char), &bytes[length..]);
        }
    }
    (None, &bytes[1..])
}

#[cfg(test)]
mod tests {
    //! Shows keys, and that no bytes are more than keys.
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_a_key() {
        let table: [(&[u8], &[Keystroke]); 9] = [
            (b"q", &[Keystroke::Char('q')]),
            ("aé".as_bytes(), &[Keystroke::Char('a'), Keystroke::Char('é')]),
            (b"\x1b", &[Keystroke::Escape]),
            (b"\x1b[A\x1bOB", &[Keystroke::Up, Keystroke::Down]),
            (
                b"\x1b[5~\x1b[6~\x1b[H\x1b[4~",
                &[Keystroke::PageUp, Keystroke::PageDown, Keystroke::Home, Keystroke::End],
            ),
            (
                b"\r\x7f\x03\x04",
                &[Keystroke::Enter, Keystroke::Backspace, Keystroke::Leave, Keystroke::Leave],
            ),
            (b"\x1b[1;5Ax", &[Keystroke::Char('x')]),
            (
                b"\x1b[11111111111A",
                &[Keystroke::Char('1'), Keystroke::Char('1'), Keystroke::Char('1'), Keystroke::Char('A')],
            ),
            (b"\xff\x00z", &[Keystroke::Char('z')]),
        ];
        for (bytes, expected) in table {
            assert_eq!(keys(bytes), expected, "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_keys_or_nothing(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            prop_assert!(keys(&bytes).len() <= bytes.len());
        }
    }
}
