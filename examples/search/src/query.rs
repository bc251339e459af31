//! What a person types, as clauses.

use crate::text::{Words, term};
use std::fmt;

/// Longest query, in bytes.
pub const QUERY_BYTES_MAX: usize = 4096;
/// Most clauses of a query, refinements included.
pub const CLAUSES_MAX: usize = 64;

/// A parsed query: words that raise a document's rank, words and phrases it must contain, others it must not, names it
/// must have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    clauses: Vec<Clause>,
    excluded: Vec<Clause>,
    within: Vec<String>,
}

/// One word, or several that follow each other. As terms, never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clause {
    terms: Vec<String>,
    required: bool,
}

/// Why a query was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// Longer than [`QUERY_BYTES_MAX`].
    #[error("query of {0} bytes; at most {QUERY_BYTES_MAX} are allowed")]
    TooLong(usize),
    /// More than [`CLAUSES_MAX`] clauses.
    #[error("more than {CLAUSES_MAX} words and phrases")]
    TooManyClauses,
    /// Nothing to look for.
    #[error("no word to look for: a query needs at least one that is not excluded")]
    Empty,
}

impl Query {
    /// Parses words, `"exact phrases"`, `+required` and `-excluded` words or phrases, and `in:part-of-name`.
    ///
    /// A word that consists of several (an identifier, a path) is a phrase. A missing closing quote is forgiven.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn parse(text: &str) -> Result<Self, QueryError> {
        let mut query = Self::default();
        query.add(text, false)?;
        if query.clauses.is_empty() { Err(QueryError::Empty) } else { Ok(query) }
    }

    /// This query narrowed by more of the same; what is added is required.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn refined(&self, text: &str) -> Result<Self, QueryError> {
        let mut query = self.clone();
        query.add(text, true)?;
        if query == *self { Err(QueryError::Empty) } else { Ok(query) }
    }

    /// Words and phrases looked for.
    pub fn clauses(&self) -> &[Clause] {
        &self.clauses
    }

    /// Words and phrases a hit must not contain.
    pub fn excluded(&self) -> &[Clause] {
        &self.excluded
    }

    /// Every term looked for.
    pub fn terms(&self) -> impl Iterator<Item = &str> {
        self.clauses.iter().flat_map(|clause| clause.terms.iter().map(String::as_str))
    }

    /// Whether a document of this name may be a hit.
    pub fn admits(&self, name: &str) -> bool {
        self.within.iter().all(|part| name.contains(part.as_str()))
    }

    /// The same query with every term replaced as `by` says; `None` if it replaces nothing.
    pub fn replaced(&self, by: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let mut query = self.clone();
        let mut changed = false;
        for term in query.clauses.iter_mut().flat_map(|clause| &mut clause.terms) {
            if let Some(other) = by(term) {
                *term = other;
                changed = true;
            }
        }
        changed.then_some(query)
    }

    fn add(&mut self, text: &str, required: bool) -> Result<(), QueryError> {
        if text.len() > QUERY_BYTES_MAX {
            return Err(QueryError::TooLong(text.len()));
        }
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            let excluded = rest.starts_with('-');
            let required = required || rest.starts_with('+');
            let (piece, after) = split_piece(rest.trim_start_matches(['-', '+']));
            match piece {
                Piece::Word(word) => match word.strip_prefix("in:") {
                    Some(part) if !part.is_empty() => self.within.push(part.to_owned()),
                    _ => self.add_clause(word, excluded, required),
                },
                Piece::Quoted(phrase) => self.add_clause(phrase, excluded, required),
            }
            if self.clauses.len() + self.excluded.len() + self.within.len() > CLAUSES_MAX {
                return Err(QueryError::TooManyClauses);
            }
            rest = after.trim_start();
        }
        Ok(())
    }

    fn add_clause(&mut self, piece: &str, excluded: bool, required: bool) {
        let terms: Vec<String> = Words::of(piece).map(|word| term(&piece[word]).into_owned()).collect();
        let required = !excluded && (required || terms.len() > 1);
        let to = if excluded { &mut self.excluded } else { &mut self.clauses };
        match to.iter_mut().find(|clause| clause.terms == terms) {
            Some(known) => known.required |= required,
            None if terms.is_empty() => {}
            None => to.push(Clause { terms, required }),
        }
    }
}

impl Clause {
    /// The terms, in order.
    pub fn terms(&self) -> &[String] {
        &self.terms
    }

    /// Whether a hit must contain it. Phrases are: who quotes means it.
    pub fn is_required(&self) -> bool {
        self.required
    }
}

enum Piece<'a> {
    Word(&'a str),
    Quoted(&'a str),
}

/// The first word or quoted phrase, and what follows it.
fn split_piece(text: &str) -> (Piece<'_>, &str) {
    if let Some(quoted) = text.strip_prefix('"') {
        let (phrase, rest) = quoted.split_once('"').unwrap_or((quoted, ""));
        return (Piece::Quoted(phrase), rest);
    }
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (Piece::Word(word), rest)
}

impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut gap = "";
        let clauses = self.clauses.iter().map(|clause| (clause.required, false, clause));
        let excluded = self.excluded.iter().map(|clause| (false, true, clause));
        for (required, excluded, clause) in clauses.chain(excluded) {
            let is_phrase = clause.terms.len() > 1;
            let quote = if is_phrase { "\"" } else { "" };
            let sign = if excluded {
                "-"
            } else if required && !is_phrase {
                "+"
            } else {
                ""
            };
            write!(f, "{gap}{sign}{quote}{}{quote}", clause.terms.join(" "))?;
            gap = " ";
        }
        for part in &self.within {
            write!(f, "{gap}in:{part}")?;
            gap = " ";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    //! Shows the query language, that what is printed parses to the same, and the limits.
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_language() {
        for (text, canonical) in [
            ("ring  doorbell", "ring doorbell"),
            ("\"Turn loop\" -h2 in:core/", "\"turn loop\" -h2 in:core/"),
            ("calls_made", "\"call made\""),
            ("-\"a b\" c c", "c -\"a b\""),
            ("\"never closed", "\"never closed\""),
            ("in: x", "in x"),
            ("x --- \"\" -", "x"),
            ("x +y +x", "+x +y"),
        ] {
            let query = Query::parse(text).unwrap();
            assert_eq!(query.to_string(), canonical, "{text}");
            assert_eq!(Query::parse(canonical).unwrap(), query);
        }
    }

    #[test]
    fn limits_are_named() {
        assert_eq!(Query::parse(" -x in:y"), Err(QueryError::Empty));
        assert_eq!(Query::parse(&"x".repeat(5000)), Err(QueryError::TooLong(5000)));
        let many: String = (0..=CLAUSES_MAX).map(|i| format!("w{i} ")).collect();
        assert_eq!(Query::parse(&many), Err(QueryError::TooManyClauses));
        assert_eq!(Query::parse("x").unwrap().refined("  "), Err(QueryError::Empty));
    }

    #[test]
    fn refining_adds() {
        let query = Query::parse("ring").unwrap().refined("bell -loom in:shm").unwrap();
        assert_eq!(query.to_string(), "ring +bell -loom in:shm");
        assert!(query.admits("host/shm/ring.rs") && !query.admits("core/ring.rs"));
    }

    proptest! {
        #[test]
        fn printed_queries_parse_to_themselves(text in "[ \"a-z:_+-]{0,40}") {
            if let Ok(query) = Query::parse(&text) {
                prop_assert_eq!(Query::parse(&query.to_string()), Ok(query));
            }
        }
    }
}
