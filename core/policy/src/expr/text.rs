//! String and bytes literals: `"a"`, `'a'`, `"""a"""`, with `r` raw and with `b` bytes.

use super::error::Complaint;

/// A literal that was read.
pub(super) struct Quoted {
    pub value: Vec<u8>,
    pub is_bytes: bool,
    /// How many bytes it takes of the text.
    pub used: usize,
}

/// Reads a literal that begins here, if one does.
pub(super) fn quoted(rest: &str, at: u32) -> Result<Option<Quoted>, Complaint> {
    let prefix = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
    let (letters, body) = rest.split_at(prefix);
    let (raw, bytes) = match letters {
        "" => (false, false),
        "r" | "R" => (true, false),
        "b" | "B" => (false, true),
        "rb" | "br" | "Rb" | "rB" | "RB" | "bR" | "Br" | "BR" => (true, true),
        _ => return Ok(None),
    };
    let Some(quote) = ["\"\"\"", "'''", "\"", "'"].into_iter().find(|quote| body.starts_with(quote)) else {
        return Ok(None);
    };
    let inner = body.get(quote.len()..).unwrap_or_default();
    let mut literal = Literal { quote, raw, bytes, at, value: Vec::new() };
    let used = literal.read(inner)?;
    Ok(Some(Quoted { value: literal.value, is_bytes: bytes, used: prefix + quote.len() + used }))
}

struct Literal {
    quote: &'static str,
    raw: bool,
    bytes: bool,
    at: u32,
    value: Vec<u8>,
}

impl Literal {
    /// Reads up to and with the closing quote; returns the bytes consumed.
    fn read(&mut self, inner: &str) -> Result<usize, Complaint> {
        let mut rest = inner;
        loop {
            if let Some(after) = rest.strip_prefix(self.quote) {
                return Ok(inner.len() - after.len());
            }
            let mut chars = rest.chars();
            match chars.next() {
                Some('\\') if !self.raw => rest = self.escape(chars.as_str())?,
                Some('\n' | '\r') if self.quote.len() == 1 => return Err(self.unclosed()),
                Some(c) => {
                    self.push(c);
                    rest = chars.as_str();
                }
                None => return Err(self.unclosed()),
            }
        }
    }

    fn push(&mut self, c: char) {
        self.value.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    }

    /// Reads what follows a backslash; returns the rest.
    fn escape<'t>(&mut self, after: &'t str) -> Result<&'t str, Complaint> {
        let mut chars = after.chars();
        let kind = chars.next().ok_or_else(|| self.unclosed())?;
        let rest = chars.as_str();
        let plain = match kind {
            'a' => '\u{7}',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{b}',
            '\\' | '\'' | '"' | '`' | '?' => kind,
            'x' | 'X' => return self.code(rest, 2, 16),
            'u' if !self.bytes => return self.code(rest, 4, 16),
            'U' if !self.bytes => return self.code(rest, 8, 16),
            '0'..='3' => return self.code(after, 3, 8),
            _ => return Err(self.bad_escape(kind)),
        };
        self.push(plain);
        Ok(rest)
    }

    fn code<'t>(&mut self, rest: &'t str, digits: usize, radix: u32) -> Result<&'t str, Complaint> {
        let number = rest.get(..digits).filter(|text| text.chars().all(|c| c.is_digit(radix)));
        let value = number.and_then(|text| u32::from_str_radix(text, radix).ok());
        match value {
            Some(value) if self.bytes => self.value.push(value as u8),
            Some(value) => self.push(char::from_u32(value).ok_or_else(|| self.bad_escape('u'))?),
            None => return Err(self.bad_escape(if radix == 8 { '0' } else { 'x' })),
        }
        Ok(rest.get(digits..).unwrap_or_default())
    }

    fn bad_escape(&self, kind: char) -> Complaint {
        let advice = r#"write \\ for a backslash, \xHH, \uHHHH, \UHHHHHHHH or \OOO for a code, or r"..." for raw text"#;
        Complaint::new(self.at, format!("bad escape \\{kind} in a literal"), advice)
    }

    fn unclosed(&self) -> Complaint {
        Complaint::new(self.at, "literal is not closed", format!("end it with {}", self.quote))
    }
}
