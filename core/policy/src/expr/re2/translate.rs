//! From RE2's syntax to the regex library's.
//!
//! The library reads the same language with more in it (set operations, `\<`, nested comments), reads some of it
//! otherwise (`\d` is any script's digit) and lacks a little (`\Q`, a brace that counts nothing). So a pattern is read
//! by RE2's rules, as its own parser has them, and written out with nothing in it that the two read differently. What
//! is left to the library is what they agree on: how alternatives, repetitions and flags nest, simple case folding.

use super::class::{Bad, Rest, bracketed, escaped_char, escaped_class, literal};
use regex::Regex;

/// Repetitions of one thing, those within one another multiplied.
const REPEAT_MAX: u32 = 1000;
/// Larger numbers are no counts.
const COUNT_END: u32 = 100_000_000;

/// Reads a pattern of RE2's; returns one that means the same to the regex library's `bytes`.
pub(in crate::expr) fn translate(pattern: &str) -> Result<String, Bad> {
    let mut translator = Translator {
        pattern,
        rest: Rest(pattern),
        out: String::with_capacity(2 * pattern.len()),
        groups: vec![Group::default()],
        repeated: false,
    };
    translator.run()?;
    Ok(translator.out)
}

struct Translator<'p> {
    pattern: &'p str,
    rest: Rest<'p>,
    out: String,
    /// The groups that are open, the pattern itself first.
    groups: Vec<Group>,
    /// What was read last is a repetition.
    repeated: bool,
}

/// A group that is open.
#[derive(Default)]
struct Group {
    /// Where in the output it begins.
    start: usize,
    /// What a repetition would repeat.
    last: Option<Atom>,
    /// How often the most repeated part in it is repeated.
    repeats: u32,
}

/// Something that can be repeated.
#[derive(Clone, Copy)]
struct Atom {
    /// Where in the output it stands.
    start: usize,
    end: usize,
    /// It ends in a repetition, which another one must not be taken for a part of.
    repeated: bool,
    /// How often the most repeated part in it is repeated.
    repeats: u32,
}

impl Translator<'_> {
    fn run(&mut self) -> Result<(), Bad> {
        loop {
            let start = self.rest;
            let repeated = std::mem::take(&mut self.repeated);
            let Some(next) = self.rest.next() else { break };
            match next {
                '(' => self.open()?,
                ')' => self.close()?,
                '|' => self.alternative(),
                '^' | '$' | '.' => self.atom(next.encode_utf8(&mut [0; 4]), 1),
                '[' => {
                    let class = bracketed(&mut self.rest)?;
                    self.atom(&class, 1);
                }
                '*' | '+' | '?' => self.repeat(start, repeated, next.encode_utf8(&mut [0; 4]), None)?,
                '{' => match counts(&mut self.rest) {
                    Some(counts) => self.repeat(start, repeated, &counts.to_string(), Some(counts))?,
                    None => self.literal('{'.into()),
                },
                '\\' => self.escape()?,
                c => self.literal(c.into()),
            }
        }
        match self.groups.len() {
            1 => Ok(()),
            _ => Err(Bad(format!("missing ): {}", self.pattern))),
        }
    }

    fn literal(&mut self, number: u32) {
        self.atom(&literal(number), 1);
    }

    fn atom(&mut self, written: &str, repeats: u32) {
        let start = self.out.len();
        self.out.push_str(written);
        self.put(start, repeats);
    }

    /// What was written from `start` on can be repeated.
    fn put(&mut self, start: usize, repeats: u32) {
        let end = self.out.len();
        if let Some(group) = self.groups.last_mut() {
            group.last = Some(Atom { start, end, repeated: false, repeats });
            group.repeats = group.repeats.max(repeats);
        }
    }

    fn alternative(&mut self) {
        self.out.push('|');
        if let Some(group) = self.groups.last_mut() {
            group.last = None;
        }
    }

    /// What follows a backslash.
    fn escape(&mut self) -> Result<(), Bad> {
        if let Some(class) = escaped_class(&mut self.rest)? {
            self.atom(&class, 1);
            return Ok(());
        }
        let known = [
            ("A", r"\A"),
            ("z", r"\z"),
            ("b", r"(?-u:\b)"),
            ("B", r"(?-u:\B)"),
            // A byte, whatever it belongs to.
            ("C", "(?s-u:.)"),
        ];
        if let Some((_, written)) = known.into_iter().find(|(name, _)| self.rest.take(name)) {
            self.atom(written, 1);
        } else if self.rest.take("Q") {
            while !self.rest.take("\\E")
                && let Some(next) = self.rest.next()
            {
                self.literal(next.into());
            }
        } else {
            let number = escaped_char(&mut self.rest)?;
            self.literal(number);
        }
        Ok(())
    }

    /// What follows a parenthesis that opens. Nothing asks for what a group matched, so none is kept.
    fn open(&mut self) -> Result<(), Bad> {
        let start = self.rest;
        let special = self.rest.take("?");
        if special && !self.rest.0.starts_with("<=") && !self.rest.0.starts_with("<!") {
            let named = self.rest.take("P<") || self.rest.take("<");
            match named {
                true => self.name(start)?,
                false => return self.flags(start),
            }
        } else if special {
            return Err(no_operator(start, 3));
        }
        self.push_group("(?:");
        Ok(())
    }

    fn push_group(&mut self, opening: &str) {
        self.groups.push(Group { start: self.out.len(), ..Group::default() });
        self.out.push_str(opening);
    }

    fn name(&mut self, start: Rest<'_>) -> Result<(), Bad> {
        let bad = |found: &str| Bad(format!("invalid named capture group: ({found}"));
        let name = self.rest.until(">").ok_or_else(|| bad(start.0))?;
        let word = Regex::new(r"\A[\p{L}\p{Mn}\p{Mc}\p{Nd}\p{Nl}\p{Pc}]+\z");
        match word.is_ok_and(|word| word.is_match(name)) {
            true => Ok(()),
            false => Err(bad(self.rest.since(start))),
        }
    }

    /// `(?i)`, `(?i:...)`. What is set twice has the last word; greed (U) does not matter for whether there is a match.
    fn flags(&mut self, start: Rest<'_>) -> Result<(), Bad> {
        let mut set = [None; 3];
        let (mut on, mut any) = (true, true);
        let scoped = loop {
            let next = self.rest.next();
            match next {
                Some(flag @ ('i' | 'm' | 's' | 'U')) => {
                    any = true;
                    if let Some(at) = "ims".find(flag) {
                        set[at] = Some(on);
                    }
                }
                Some('-') if on => (on, any) = (false, false),
                Some(end @ (':' | ')')) if any => break end == ':',
                _ => return Err(no_operator(start, self.rest.since(start).chars().count())),
            }
        };
        let all =
            |wanted: bool| "ims".chars().zip(set).filter(move |(_, on)| *on == Some(wanted)).map(|(c, _)| c);
        let (on, off): (String, String) = (all(true).collect(), all(false).collect());
        let minus = if off.is_empty() { "" } else { "-" };
        if scoped {
            self.push_group(&format!("(?{on}{minus}{off}:"));
        } else if !on.is_empty() || !off.is_empty() {
            self.out.push_str(&format!("(?{on}{minus}{off})"));
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), Bad> {
        match self.groups.pop() {
            Some(group) if !self.groups.is_empty() => {
                self.out.push(')');
                self.put(group.start, group.repeats.max(1));
                Ok(())
            }
            _ => Err(Bad(format!("unexpected ): {}", self.pattern))),
        }
    }

    /// Repeats what was last, though flags may stand between. `start` is where the operator begins.
    fn repeat(
        &mut self,
        start: Rest<'_>,
        repeated: bool,
        operator: &str,
        counts: Option<Counts>,
    ) -> Result<(), Bad> {
        let operator_text = self.rest.since(start).to_owned();
        let lazy = self.rest.take("?");
        if repeated {
            return Err(Bad(format!("bad repetition operator: {operator_text} behind another")));
        }
        let group = self.groups.last_mut();
        let Some((group, mut atom)) = group.and_then(|group| group.last.map(|atom| (group, atom))) else {
            return Err(Bad(format!("no argument for repetition operator: {operator_text}")));
        };
        if let Some(counts) = counts {
            atom.repeats = atom.repeats.saturating_mul(counts.most().max(1));
            if !counts.is_sound() || counts.most() >= 2 && atom.repeats > REPEAT_MAX {
                return Err(Bad(format!("invalid repetition size: {operator_text}")));
            }
        }
        if atom.repeated {
            self.out.insert(atom.end, ')');
            self.out.insert_str(atom.start, "(?:");
            atom.end += "(?:)".len();
        }
        let written = [operator, if lazy { "?" } else { "" }].concat();
        self.out.insert_str(atom.end, &written);
        atom.end += written.len();
        atom.repeated = true;
        group.last = Some(atom);
        group.repeats = group.repeats.max(atom.repeats);
        self.repeated = true;
        Ok(())
    }
}

fn no_operator(start: Rest<'_>, chars: usize) -> Bad {
    let shown: String = start.0.chars().take(chars).collect();
    Bad(format!("invalid perl operator: ({shown}"))
}

/// `{3}`, `{3,}`, `{3,5}`
#[derive(Clone, Copy)]
struct Counts {
    least: u32,
    /// The same as `least`, another one, or none.
    most: Option<u32>,
}

impl Counts {
    fn most(self) -> u32 {
        self.most.unwrap_or(self.least)
    }

    fn is_sound(self) -> bool {
        self.least <= REPEAT_MAX && self.most.is_none_or(|most| self.least <= most && most <= REPEAT_MAX)
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.most {
            Some(most) => write!(f, "{{{},{most}}}", self.least),
            None => write!(f, "{{{},}}", self.least),
        }
    }
}

/// Reads counts behind a brace; what is none is left for text.
fn counts(rest: &mut Rest<'_>) -> Option<Counts> {
    let mut ahead = *rest;
    let inner = ahead.until("}")?;
    let counts = match inner.split_once(',') {
        None => Counts { least: count(inner)?, most: Some(count(inner)?) },
        Some((least, "")) => Counts { least: count(least)?, most: None },
        Some((least, most)) => Counts { least: count(least)?, most: Some(count(most)?) },
    };
    *rest = ahead;
    Some(counts)
}

/// A number without zeros in front.
fn count(digits: &str) -> Option<u32> {
    let plain =
        digits.bytes().all(|digit| digit.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    digits.parse().ok().filter(|&count| plain && count < COUNT_END)
}
