//! Characters: in brackets, behind backslashes, by property.

use super::scripts::is_script;

/// The classes of the regex library mean Unicode; these are RE2's. Its `\s` has no vertical tab.
const DIGIT: &str = "0-9";
const SPACE: &str = r"\t\n\x0C\r ";
const WORD: &str = "0-9A-Za-z_";
/// Matches nothing.
const EMPTY: &str = "[a&&b]";
/// RE2's general categories. It has none of those characters that are not assigned.
const CATEGORIES: [&str; 34] = [
    "Cc", "Cf", "Co", "L", "Ll", "Lm", "Lo", "Lt", "Lu", "M", "Mc", "Me", "Mn", "N", "Nd", "Nl", "No", "P",
    "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S", "Sc", "Sk", "Sm", "So", "Z", "Zl", "Zp", "Zs",
];
const POSIX: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
    "upper", "word", "xdigit",
];

/// Why a pattern is none, in RE2's words.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::expr) struct Bad(pub String);

/// What is left of a pattern.
#[derive(Clone, Copy)]
pub(super) struct Rest<'p>(pub &'p str);

impl<'p> Rest<'p> {
    pub fn next(&mut self) -> Option<char> {
        let mut chars = self.0.chars();
        let first = chars.next();
        self.0 = chars.as_str();
        first
    }

    /// Takes a prefix off, if it stands here.
    pub fn take(&mut self, prefix: &str) -> bool {
        match self.0.strip_prefix(prefix) {
            Some(rest) => {
                self.0 = rest;
                true
            }
            None => false,
        }
    }

    /// Takes everything up to `end`, and `end`.
    pub fn until(&mut self, end: &str) -> Option<&'p str> {
        let (before, after) = self.0.split_once(end)?;
        self.0 = after;
        Some(before)
    }

    /// What has been taken since `start`.
    pub fn since(self, start: Self) -> &'p str {
        start.0.get(..start.0.len() - self.0.len()).unwrap_or_default()
    }
}

/// Reads what follows a backslash if it is a class, as a class of the regex library's.
pub(super) fn escaped_class(rest: &mut Rest<'_>) -> Result<Option<String>, Bad> {
    let start = *rest;
    let (members, negated) = match rest.next() {
        Some('d') => (DIGIT, false),
        Some('D') => (DIGIT, true),
        Some('s') => (SPACE, false),
        Some('S') => (SPACE, true),
        Some('w') => (WORD, false),
        Some('W') => (WORD, true),
        Some('p') => return property(rest, start, false).map(Some),
        Some('P') => return property(rest, start, true).map(Some),
        _ => {
            *rest = start;
            return Ok(None);
        }
    };
    Ok(Some(format!("[{}{members}]", if negated { "^" } else { "" })))
}

/// `\pN`, `\p{Name}`, `\p{^Name}`.
fn property(rest: &mut Rest<'_>, start: Rest<'_>, negated: bool) -> Result<String, Bad> {
    let one = *rest;
    let name = match rest.next() {
        Some('{') => rest.until("}"),
        Some(_) => Some(rest.since(one)),
        None => None,
    };
    let unknown = |rest: &Rest<'_>| Bad(format!("invalid character class range: \\{}", rest.since(start)));
    let Some(name) = name else {
        rest.0 = "";
        return Err(unknown(rest));
    };
    let (name, negated) = match name.strip_prefix('^') {
        Some(name) => (name, !negated),
        None => (name, negated),
    };
    let members = match name {
        "Any" => r"\x{0}-\x{10FFFF}".to_owned(),
        "C" => r"\p{Cc}\p{Cf}\p{Co}".to_owned(),
        // Surrogates, which no text has.
        "Cs" => EMPTY.to_owned(),
        _ if CATEGORIES.contains(&name) => format!(r"\p{{gc={name}}}"),
        _ if is_script(name) => format!(r"\p{{sc={name}}}"),
        _ => return Err(unknown(rest)),
    };
    Ok(format!("[{}{members}]", if negated { "^" } else { "" }))
}

/// Reads what follows a backslash as the number of one character.
pub(super) fn escaped_char(rest: &mut Rest<'_>) -> Result<u32, Bad> {
    let start = *rest;
    let found = match rest.next() {
        None => return Err(Bad("trailing \\".to_owned())),
        Some('a') => Some(0x07),
        Some('f') => Some(0x0c),
        Some('n') => Some(0x0a),
        Some('r') => Some(0x0d),
        Some('t') => Some(0x09),
        Some('v') => Some(0x0b),
        Some('x') => hexadecimal(rest),
        Some(digit @ '0'..='7') => octal(rest, digit),
        Some(c) => (c.is_ascii() && !c.is_ascii_alphanumeric()).then_some(u32::from(c)),
    };
    found.ok_or_else(|| Bad(format!("invalid escape sequence: \\{}", rest.since(start))))
}

/// `\x41` or `\x{1F9ED}`, behind the x.
fn hexadecimal(rest: &mut Rest<'_>) -> Option<u32> {
    let digits = if rest.take("{") {
        rest.until("}")?
    } else {
        let digits = rest.0.get(..2)?;
        rest.0 = rest.0.get(2..).unwrap_or_default();
        digits
    };
    // No sign, and no more than can be told apart.
    let hexadecimal = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let number = u32::from_str_radix(digits.trim_start_matches('0'), 16);
    let number = if digits.bytes().all(|digit| digit == b'0') { Ok(0) } else { number };
    number.ok().filter(|&number| hexadecimal && number <= u32::from(char::MAX))
}

/// One to three digits of which `first` is read. One digit alone, other than 0, would be a reference back.
fn octal(rest: &mut Rest<'_>, first: char) -> Option<u32> {
    let mut number = first.to_digit(8)?;
    let mut digits = 1;
    while digits < 3
        && let Some(digit) = rest.0.chars().next().and_then(|next| next.to_digit(8))
    {
        rest.next();
        number = 8 * number + digit;
        digits += 1;
    }
    (first == '0' || digits > 1).then_some(number)
}

/// Reads a class in brackets, the first of which has been read, as one of the regex library's.
pub(super) fn bracketed(rest: &mut Rest<'_>) -> Result<String, Bad> {
    let start = *rest;
    let mut class = String::from(if rest.take("^") { "[^" } else { "[" });
    let open = class.len();
    let mut first = true;
    loop {
        if !first && rest.take("]") {
            break;
        }
        first = false;
        if let Some(named) = posix(rest)? {
            class.push_str(named);
            continue;
        }
        let mut behind = *rest;
        if behind.take("\\")
            && let Some(escaped) = escaped_class(&mut behind)?
        {
            *rest = behind;
            class.push_str(&escaped);
            continue;
        }
        let range = *rest;
        let low = class_char(rest, start)?;
        let high = match rest.0.as_bytes() {
            [b'-', next, ..] if *next != b']' => {
                rest.next();
                class_char(rest, start)?
            }
            _ => low,
        };
        if high < low {
            return Err(Bad(format!("invalid character class range: {}", rest.since(range))));
        }
        push_range(&mut class, low, high);
    }
    if class.len() == open {
        class.push_str(EMPTY);
    }
    class.push(']');
    Ok(class)
}

/// `[:name:]`, if that is what stands here.
fn posix<'p>(rest: &mut Rest<'p>) -> Result<Option<&'p str>, Bad> {
    let start = *rest;
    if !rest.take("[:") {
        return Ok(None);
    }
    let Some(name) = rest.until(":]") else {
        *rest = start;
        return Ok(None);
    };
    let whole = rest.since(start);
    match POSIX.contains(&name.strip_prefix('^').unwrap_or(name)) {
        true => Ok(Some(whole)),
        false => Err(Bad(format!("invalid character class range: {whole}"))),
    }
}

fn class_char(rest: &mut Rest<'_>, start: Rest<'_>) -> Result<u32, Bad> {
    match rest.next() {
        None => Err(Bad(format!("missing ]: [{}", start.0))),
        Some('\\') => escaped_char(rest),
        Some(c) => Ok(u32::from(c)),
    }
}

/// Surrogates, which RE2 takes for characters, are left out: no text has them.
fn push_range(class: &mut String, low: u32, high: u32) {
    const BEFORE: u32 = 0xd7ff;
    const BEHIND: u32 = 0xe000;
    for (low, high) in [(low, high.min(BEFORE)), (low.max(BEHIND), high)] {
        if low <= high {
            class.push_str(&format!(r"\x{{{low:x}}}-\x{{{high:x}}}"));
        }
    }
}

/// One character, as the regex library reads it.
pub(super) fn literal(number: u32) -> String {
    match char::from_u32(number) {
        Some(c) => regex::escape(c.encode_utf8(&mut [0; 4])),
        None => EMPTY.to_owned(),
    }
}
