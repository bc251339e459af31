//! The `traceparent` of a call: which trace it belongs to, and which span made it (W3C Trace Context, section 3.2).

use std::fmt;

/// A trace, a span of it, and whether its maker records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace.
    pub trace: u128,
    /// The span that is the parent of whatever the call becomes.
    pub span: u64,
    /// Whoever made the span may have recorded it, and asks others to do so.
    pub sampled: bool,
}

/// Characters of version 00. Later versions may have more, behind a dash.
const CHARS: usize = 55;

impl TraceParent {
    /// The key of the metadata it travels in.
    pub const KEY: &'static str = "traceparent";

    /// Reads a header's value; `None` if it is malformed, or names no trace or span.
    ///
    /// ```
    /// # use trunkline_call::TraceParent;
    /// let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    /// let parent = TraceParent::parse(text).unwrap();
    /// assert_eq!((parent.span, parent.sampled), (0xb7ad_6b71_6920_3331, true));
    /// assert_eq!(parent.to_string(), text);
    /// ```
    pub fn parse(text: &str) -> Option<Self> {
        let (known, more) = text.as_bytes().split_at_checked(CHARS)?;
        let known = std::str::from_utf8(known).ok()?;
        let mut fields = known.split('-');
        let mut field = |chars: usize| fields.next().filter(|field| field.len() == chars);
        let version = hex(field(2)?)?;
        let (trace, span, flags) = (hex(field(32)?)?, hex(field(16)?)?, hex(field(2)?)?);
        let is_of_version = match version {
            0 => more.is_empty(),
            0xff => false,
            _ => more.is_empty() || more.starts_with(b"-"),
        };
        let is_named = trace != 0 && span != 0;
        (is_of_version && is_named && fields.next().is_none()).then_some(Self {
            trace,
            span: span as u64,
            sampled: flags & 1 == 1,
        })
    }
}

/// As version 00 writes it.
impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, u8::from(self.sampled))
    }
}

/// A field. Digits above nine are in lower case there.
fn hex(field: &str) -> Option<u128> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if field.bytes().all(is_digit) { u128::from_str_radix(field, 16).ok() } else { None }
}

#[cfg(test)]
mod tests {
    //! Shows what is read, what is not, and that what is written is read again.
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_read() {
        let sound = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        #[rustfmt::skip]
        let table = [
            (sound.to_owned(), true),
            (sound.replace("00-0a", "01-0a"), true),
            (sound.replace("00-0a", "cc-0a") + "-and-more", true),
            (sound.replace("00-0a", "ff-0a"), false),
            (sound.to_owned() + "-more", false),
            (sound.replace("00-0a", "01-0a") + "more", false),
            (sound.replace("0af7", "0AF7"), false),
            (sound.replace("0af7", "+af7"), false),
            (sound.replace("b7ad6b7169203331", "0000000000000000"), false),
            (sound.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)), false),
            (sound.replace("-01", "-1-"), false),
            (sound.replace('-', "_"), false),
            ("00".into(), false),
            (String::new(), false),
            ("é".repeat(40), false),
        ];
        for (text, expected) in table {
            assert_eq!(TraceParent::parse(&text).is_some(), expected, "{text}");
        }
        assert!(!TraceParent::parse(&sound.replace("-01", "-02")).unwrap().sampled);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(trace in 1..u128::MAX, span in 1..u64::MAX, sampled: bool) {
            let parent = TraceParent { trace, span, sampled };
            prop_assert_eq!(TraceParent::parse(&parent.to_string()), Some(parent));
        }

        #[test]
        fn any_text_has_an_outcome(text in ".{0,80}") {
            let _ = TraceParent::parse(&text);
        }
    }
}
