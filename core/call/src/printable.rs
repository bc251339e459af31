//! Names from elsewhere, before a person reads them.

/// A name as a terminal, a log or a page may show it: characters that would do something to what is around them
/// instead of being seen, control characters and those that turn the direction of writing, are U+FFFD.
pub fn printable(name: &str) -> String {
    name.chars().map(|c| if acts(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// JSON as a terminal may show it: such characters are escaped in its strings, so that it stays the same value. Lines
/// stay lines.
pub fn printable_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        // Below U+0020 strings have none, and all of these are in the basic plane.
        match acts(c) && c != '\n' {
            true => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => out.push(c),
        }
    }
    out
}

fn acts(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{2028}' | '\u{2029}')
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The same of a text of several lines, which stay lines.
pub fn printable_lines(text: &str) -> String {
    text.split('\n').map(printable).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_is_replaced_and_what_is_seen_stays() {
        let name = "größe/日本 a\u{301}-1_b";
        assert_eq!(printable(name), name);
        assert_eq!(
            printable("a\u{1b}[31mb\nc\0\u{202e}d\u{2067}"),
            "a\u{fffd}[31mb\u{fffd}c\u{fffd}\u{fffd}d\u{fffd}"
        );
        assert_eq!(
            printable_json("{\n \"a\": \"ö\u{9b}\u{202e}\u{7f}\"}"),
            "{\n \"a\": \"ö\\u009b\\u202e\\u007f\"}"
        );
        assert_eq!(printable_lines("a\u{1b}]0;b\n c\n"), "a\u{fffd}]0;b\n c\n");
    }
}
