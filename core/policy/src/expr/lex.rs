//! Text to tokens, by the lexical part of the CEL specification (langdef.md, "Syntax").

use super::error::Complaint;
use super::text::{Quoted, quoted};

/// A token and where it begins.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token {
    pub at: u32,
    pub kind: Lexeme,
}

/// What a token is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Lexeme {
    Ident(String),
    /// Magnitude; a sign is an operator. At most 2^63, which only its negation fits.
    Int(u64),
    Uint(u64),
    Double(f64),
    Str(Vec<u8>),
    Bytes(Vec<u8>),
    /// Operators and punctuation as written.
    Sign(&'static str),
    End,
}

/// Longest first, so that `<=` is not read as `<`.
const SIGNS: [&str; 24] = [
    "==", "!=", "<=", ">=", "&&", "||", "(", ")", "[", "]", "{", "}", ".", ",", "+", "-", "*", "/", "%", "<",
    ">", "!", "?", ":",
];

/// Cuts the whole text; the last token is [`Lexeme::End`].
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, Complaint> {
    let mut lexer = Lexer { text, at: 0 };
    let mut tokens = Vec::new();
    loop {
        lexer.skip_blank();
        let at = lexer.at as u32;
        let kind = lexer.next()?;
        let ended = kind == Lexeme::End;
        tokens.push(Token { at, kind });
        if ended {
            return Ok(tokens);
        }
    }
}

struct Lexer<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Lexer<'t> {
    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn skip_blank(&mut self) {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start_matches([' ', '\t', '\n', '\r', '\u{c}']);
            self.at += rest.len() - trimmed.len();
            if !trimmed.starts_with("//") {
                return;
            }
            self.at += trimmed.find('\n').unwrap_or(trimmed.len());
        }
    }

    fn next(&mut self) -> Result<Lexeme, Complaint> {
        let rest = self.rest();
        let Some(first) = rest.chars().next() else { return Ok(Lexeme::End) };
        if let Some(Quoted { value, is_bytes, used }) = quoted(rest, self.at as u32)? {
            self.at += used;
            return Ok(if is_bytes { Lexeme::Bytes(value) } else { Lexeme::Str(value) });
        }
        if first.is_ascii_digit() || (first == '.' && rest[1..].starts_with(|c: char| c.is_ascii_digit())) {
            return self.number();
        }
        if first.is_ascii_alphabetic() || first == '_' {
            return Ok(Lexeme::Ident(self.take_while(|c| c.is_ascii_alphanumeric() || c == '_').to_owned()));
        }
        match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            Some(sign) => {
                self.at += sign.len();
                Ok(Lexeme::Sign(sign))
            }
            None => Err(self.unexpected(first)),
        }
    }

    fn unexpected(&self, found: char) -> Complaint {
        let advice = match found {
            '=' => "write == to compare",
            '&' => "write && for and",
            '|' => "write || for or",
            _ => "text stands in quotes",
        };
        Complaint::new(self.at as u32, format!("unexpected character {found:?}"), advice)
    }

    fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> &'t str {
        let rest = self.rest();
        let end = rest.find(|c| !wanted(c)).unwrap_or(rest.len());
        self.at += end;
        rest.get(..end).unwrap_or_default()
    }

    fn number(&mut self) -> Result<Lexeme, Complaint> {
        let start = self.at;
        if let Some(hex) = self.rest().strip_prefix("0x").or_else(|| self.rest().strip_prefix("0X")) {
            let digits = hex.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(hex.len());
            self.at += 2 + digits;
            let value = u64::from_str_radix(hex.get(..digits).unwrap_or_default(), 16);
            return self.integer(start, value.ok());
        }
        self.take_while(|c| c.is_ascii_digit());
        if !self.fraction() & !self.exponent() {
            let value = self.text.get(start..self.at).and_then(|digits| digits.parse().ok());
            return self.integer(start, value);
        }
        // The exponent of a number with a fraction.
        self.exponent();
        let digits = self.text.get(start..self.at).unwrap_or_default();
        match digits.parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(Lexeme::Double(value)),
            _ => Err(Complaint::new(start as u32, format!("{digits} is not a number"), "write 1.5 or 1e9")),
        }
    }

    fn fraction(&mut self) -> bool {
        let has =
            self.rest().strip_prefix('.').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        if has {
            self.at += 1;
            self.take_while(|c| c.is_ascii_digit());
        }
        has
    }

    fn exponent(&mut self) -> bool {
        let rest = self.rest();
        let Some(power) = rest.strip_prefix(['e', 'E']) else { return false };
        let digits = power.strip_prefix(['+', '-']).unwrap_or(power);
        if !digits.starts_with(|c: char| c.is_ascii_digit()) {
            return false;
        }
        self.at += rest.len() - digits.len();
        self.take_while(|c| c.is_ascii_digit());
        true
    }

    fn integer(&mut self, start: usize, value: Option<u64>) -> Result<Lexeme, Complaint> {
        let unsigned = self.rest().starts_with(['u', 'U']);
        self.at += usize::from(unsigned);
        if self.rest().starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') {
            let problem = "a name cannot begin with a digit";
            return Err(Complaint::new(start as u32, problem, "put a space or an operator between the two"));
        }
        match value {
            Some(value) if unsigned => Ok(Lexeme::Uint(value)),
            Some(value) if value <= 1 << 63 => Ok(Lexeme::Int(value)),
            _ => Err(Complaint::new(
                start as u32,
                "integer does not fit 64 bits",
                "write it with u if it is unsigned",
            )),
        }
    }
}
