//! Configuration errors, with the place they point at.

use std::fmt;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// What is wrong with a configuration file. Prints as `file:line:column: key: problem`; without a place, as
/// `file: key: problem`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The file, as it was named.
    pub origin: String,
    /// From 1; 0 if no place is to blame.
    pub line: usize,
    /// In characters from 1.
    pub column: usize,
    /// Dotted path of the key at fault; empty if the text is no TOML.
    pub key: String,
    /// What is wrong.
    pub problem: String,
    /// What to write instead; may be empty.
    pub advice: String,
}

/// A value that has the right type and the wrong content.
#[derive(Debug)]
pub(crate) struct Breach {
    /// Dotted path of the key.
    pub key: String,
    pub problem: String,
    pub advice: String,
}

pub(super) fn breach(key: &str, problem: String, advice: &str) -> Breach {
    Breach { key: key.to_owned(), problem, advice: advice.to_owned() }
}

impl ConfigError {
    /// An error of the TOML parser or of a value's own form.
    pub(super) fn of_parser(error: &toml::de::Error, text: &str, origin: &str) -> Self {
        let at = error.span().map_or(0, |span| span.start);
        let path = key_at(text, at);
        let (problem, advice) = match unknown_key(error.message()) {
            Some((found, known)) => {
                let advice = service_in_parts(text, &path).unwrap_or_else(|| advice(found, &known));
                (format!("there is no key {found:?} here"), advice)
            }
            None if is_table_list(&path, error.message()) => {
                let name = path[0].trim_end_matches("[0]");
                (
                    "it is a table, not a list of tables".to_owned(),
                    format!("write [{name}], in single brackets"),
                )
            }
            None => {
                let message = error.message().trim_end().replace('\n', "; ");
                let word = error.span().and_then(|span| text.get(span)).unwrap_or_default();
                (in_words_of_toml(message, word), String::new())
            }
        };
        Self::at(text, origin, at, Breach { key: path.join("."), problem, advice })
    }

    /// A rule of ours that the file breaks.
    pub(crate) fn of_rule(breach: Breach, text: &str, origin: &str) -> Self {
        match place_of(text, &breach.key) {
            Some(at) => Self::at(text, origin, at, breach),
            // Said on the command line, or by a default: no place in the file is to blame.
            None => Self { line: 0, column: 0, ..Self::at(text, origin, 0, breach) },
        }
    }

    fn at(text: &str, origin: &str, at: usize, breach: Breach) -> Self {
        let before = text.get(..at).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self {
            origin: origin.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            key: breach.key,
            problem: breach.problem,
            advice: breach.advice,
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: ", self.origin)?,
            line => write!(f, "{}:{line}:{}: ", self.origin, self.column)?,
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.problem)?;
        if self.advice.is_empty() { Ok(()) } else { write!(f, "; {}", self.advice) }
    }
}

impl std::error::Error for ConfigError {}

/// Takes serde's words apart: ``unknown field `a`, expected one of `b`, `c` ``. They are the one place that names both
/// the key and its neighbours; if serde changes them, the message is passed on as it is (and a test says so).
fn unknown_key(message: &str) -> Option<(&str, Vec<&str>)> {
    let mut words = message.strip_prefix("unknown field ")?.split('`').skip(1).step_by(2);
    Some((words.next()?, words.collect()))
}

/// What to write where the name of a service was not quoted: TOML takes `[services.a.B]` for a table in a table.
fn service_in_parts(text: &str, path: &[String]) -> Option<String> {
    let (document, _) = DeTable::parse_recoverable(text);
    let mut table = document.get_ref();
    for part in path {
        let (_, value) = table.iter().find(|(key, _)| quoted(key.get_ref()) == *part)?;
        let DeValue::Table(inner) = value.get_ref() else { return None };
        table = inner;
    }
    match path {
        [services, parts @ ..] if services == "services" && parts.len() > 1 => {
            Some(format!("quote the name: [services.\"{}\"]", parts.join(".")))
        }
        _ => None,
    }
}

/// Whether `[[name]]` stands where there is one table of that name.
fn is_table_list(path: &[String], message: &str) -> bool {
    matches!(path, [name] if name.ends_with("[0]")) && message.starts_with("invalid type: map, expected ")
}

/// The parser's and serde's words without Rust's names of types. `word` is what the place of the error has.
fn in_words_of_toml(message: String, word: &str) -> String {
    if message == "duplicate key" {
        return format!("the key {word:.80?} is there twice");
    }
    if let Some(field) = message.strip_prefix("missing field ") {
        return format!("{field} is missing");
    }
    let Some((found, expected)) = message.rsplit_once(", expected ") else { return message };
    let is_too_large = found.starts_with("invalid value: integer");
    let expected = match expected {
        "u8" if is_too_large => "a whole number from 0 to 255",
        "u16" if is_too_large => "a whole number from 0 to 65535",
        "u32" if is_too_large => "a whole number from 0 to 4294967295",
        "a sequence" => "a list in brackets",
        "f32" | "f64" => "a number",
        "u8" | "u16" | "u32" | "u64" | "usize" | "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "a boolean" => "true or false",
        "a string" | "path string" => "text in quotes",
        "a map" => "a table",
        expected if expected.starts_with("struct ") => "a table",
        expected => expected,
    };
    let found = match found {
        "invalid type: sequence" => "invalid type: a list",
        "invalid type: map" => "invalid type: a table",
        found => found,
    };
    format!("{found}, expected {expected}")
}

fn advice(found: &str, known: &[&str]) -> String {
    match nearest(found, known) {
        Some(near) => format!("did you mean {near:?}?"),
        None => format!("keys here: {}", known.join(", ")),
    }
}

/// The known name closest to `found`, if it is close enough to be what was meant: a third of its letters.
pub fn nearest<'a>(found: &str, known: &[&'a str]) -> Option<&'a str> {
    let (distance, name) = known.iter().map(|name| (edits(found, name), *name)).min()?;
    (distance <= name.len().max(3) / 3).then_some(name)
}

/// Edit distance (Levenshtein), one row at a time. Both words are keys; a long `found` is cut, it is no typo of ours.
fn edits(found: &str, name: &str) -> usize {
    let name: Vec<char> = name.chars().collect();
    let mut row: Vec<usize> = (0..=name.len()).collect();
    for (i, a) in found.chars().take(64).enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in name.iter().enumerate() {
            let substituted = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[name.len()]
}

/// The path of keys whose key or value covers byte `at`, outermost first. Empty for text that is no TOML.
fn key_at(text: &str, at: usize) -> Vec<String> {
    let (document, _) = DeTable::parse_recoverable(text);
    let mut path = Vec::new();
    descend(document.get_ref(), at, &mut path);
    path
}

fn descend(table: &DeTable<'_>, at: usize, path: &mut Vec<String>) -> bool {
    for (key, value) in table {
        path.push(quoted(key.get_ref()));
        let inside = match value.get_ref() {
            DeValue::Table(inner) => descend(inner, at, path),
            DeValue::Array(items) => descend_items(key.get_ref(), items, at, path),
            _ => false,
        };
        if inside || covers(&key.span(), at) || covers(&value.span(), at) {
            return true;
        }
        path.pop();
    }
    false
}

/// The same in an array of tables, whose place is part of the path: `policy[2]`.
fn descend_items(key: &str, items: &[Spanned<DeValue<'_>>], at: usize, path: &mut Vec<String>) -> bool {
    let own = path.pop();
    for (index, item) in items.iter().enumerate() {
        let DeValue::Table(inner) = item.get_ref() else { continue };
        path.push(format!("{}[{index}]", quoted(key)));
        if descend(inner, at, path) || covers(&item.span(), at) {
            return true;
        }
        path.pop();
    }
    path.extend(own);
    false
}

fn covers(span: &Range<usize>, at: usize) -> bool {
    span.start <= at && at < span.end.max(span.start + 1)
}

/// Where the value of a dotted path stands, or the innermost table on the way to it.
fn place_of(text: &str, path: &str) -> Option<usize> {
    let (document, _) = DeTable::parse_recoverable(text);
    let mut table = document.get_ref();
    let mut place = None;
    let mut rest = path;
    loop {
        let found = table.iter().find(|(key, _)| leads(rest, &quoted(key.get_ref())));
        let Some((key, value)) = found else { return place };
        let mut value = value;
        rest = rest.get(quoted(key.get_ref()).len()..).unwrap_or_default();
        if let (DeValue::Array(items), Some((index, behind))) = (value.get_ref(), item_index(rest)) {
            value = items.get(index)?;
            rest = behind;
        }
        // A table that is only implied by others has no span: it begins where the one around it does.
        place = Some(value.span().start).filter(|start| *start > 0).or(place).or(Some(0));
        rest = rest.strip_prefix('.').unwrap_or_default();
        match value.get_ref() {
            DeValue::Table(inner) if !rest.is_empty() && !inner.is_empty() => table = inner,
            _ => return place,
        }
    }
}

fn leads(path: &str, key: &str) -> bool {
    path.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// `2` and what follows, of `[2].deny`.
fn item_index(path: &str) -> Option<(usize, &str)> {
    let (index, behind) = path.strip_prefix('[')?.split_once(']')?;
    Some((index.parse().ok()?, behind))
}

/// A key as it stands in a dotted path.
pub(super) fn quoted(key: &str) -> String {
    let bare = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if bare { key.to_owned() } else { format!("{key:?}") }
}
