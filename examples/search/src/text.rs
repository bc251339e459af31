//! Text to words, and words to the terms they are indexed under.
//!
//! The texts are prose and source code, so that identifiers fall apart into their words: `calls_made` and `callsMade`
//! are both *call made*. A query for an identifier is a phrase of its words and finds either spelling.

use std::borrow::Cow;
use std::ops::Range;
use std::str::CharIndices;

/// Longest word indexed, in bytes. Longer runs are hashes and encoded data: nobody types them.
pub const WORD_BYTES_MAX: usize = 64;

/// The words of a text as byte ranges, in order.
#[derive(Clone, Debug)]
pub struct Words<'a> {
    text: &'a str,
    chars: std::iter::Peekable<CharIndices<'a>>,
}

/// How a character takes part in a word.
#[derive(Clone, Copy, PartialEq)]
enum Class {
    Upper,
    /// Letters without case count as lower.
    Lower,
    Digit,
    Other,
}

impl<'a> Words<'a> {
    /// The words of `text`.
    ///
    /// ```
    /// # use trunkline_example_search::Words;
    /// let text = "HTTPServer's calls_made: p99";
    /// let words: Vec<&str> = Words::of(text).map(|word| &text[word]).collect();
    /// assert_eq!(words, ["HTTP", "Server", "s", "calls", "made", "p99"]);
    /// ```
    pub fn of(text: &'a str) -> Self {
        Self { text, chars: text.char_indices().peekable() }
    }

    fn skip_to_word(&mut self) -> Option<(usize, Class)> {
        self.chars.by_ref().map(|(at, c)| (at, class(c))).find(|(_, class)| *class != Class::Other)
    }

    /// Reads on to the end of the word that began with `first`.
    fn end_of_word(&mut self, first: Class) -> usize {
        let mut before = first;
        while let Some(&(at, c)) = self.chars.peek() {
            let here = class(c);
            if here == Class::Other || (before != Class::Upper && here == Class::Upper) {
                return at;
            }
            // In `HTTPServer` the S begins a word, because what follows it is lower case.
            if before == Class::Upper && here == Class::Upper && self.lower_follows(at, c) {
                return at;
            }
            before = here;
            self.chars.next();
        }
        self.text.len()
    }

    fn lower_follows(&self, at: usize, c: char) -> bool {
        self.text[at + c.len_utf8()..].chars().next().is_some_and(|next| class(next) == Class::Lower)
    }
}

impl Iterator for Words<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        loop {
            let (start, first) = self.skip_to_word()?;
            let end = self.end_of_word(first);
            if end - start <= WORD_BYTES_MAX {
                return Some(start..end);
            }
        }
    }
}

fn class(c: char) -> Class {
    match c {
        _ if c.is_uppercase() => Class::Upper,
        _ if c.is_alphabetic() => Class::Lower,
        _ if c.is_numeric() => Class::Digit,
        _ => Class::Other,
    }
}

/// The term a word is indexed under: lower case, plural removed.
///
/// Only the plural: Harman's S-stemmer ("How effective is suffixing?", 1991), which in her trials did as well as
/// stronger ones and never turns a word into one nobody wrote.
pub fn term(word: &str) -> Cow<'_, str> {
    let lower = if word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()) {
        Cow::Borrowed(word)
    } else {
        Cow::Owned(word.to_lowercase())
    };
    match stem(&lower) {
        Stem::Whole => lower,
        Stem::Cut(len) => match lower {
            Cow::Borrowed(text) => Cow::Borrowed(&text[..len]),
            Cow::Owned(mut text) => {
                text.truncate(len);
                Cow::Owned(text)
            }
        },
        Stem::Y(len) => Cow::Owned(format!("{}y", &lower[..len])),
    }
}

enum Stem {
    Whole,
    Cut(usize),
    Y(usize),
}

fn stem(word: &str) -> Stem {
    let len = word.len();
    let ends = |suffix: &str| word.ends_with(suffix);
    if len < 4 || !ends("s") {
        Stem::Whole
    } else if ends("ies") {
        if ends("eies") || ends("aies") { Stem::Whole } else { Stem::Y(len - 3) }
    } else if ends("es") {
        if ends("aes") || ends("ees") || ends("oes") { Stem::Whole } else { Stem::Cut(len - 1) }
    } else if ends("us") || ends("ss") || ends("is") {
        // "is" is our addition to Harman's rules: analysis, this, axis.
        Stem::Whole
    } else {
        Stem::Cut(len - 1)
    }
}

#[cfg(test)]
mod tests {
    //! Shows where words begin and end, which words share a term, and that any text can be cut.
    use super::*;
    use proptest::prelude::*;

    fn terms(text: &str) -> Vec<String> {
        Words::of(text).map(|word| term(&text[word]).into_owned()).collect()
    }

    #[test]
    fn identifiers_fall_apart() {
        let table: &[(&str, &[&str])] = &[
            ("calls_made callsMade CallsMade CALLS_MADE", &["call", "made"]),
            ("parseHTTPHeader", &["parse", "http", "header"]),
            ("BM25 u32 p99.9", &["bm25", "u32", "p99", "9"]),
            ("Größe straße ÄRGER", &["größe", "straße", "ärger"]),
            ("日本語 x", &["日本語", "x"]),
            ("--- \n\t ...", &[]),
        ];
        for (text, expected) in table {
            let found = terms(text);
            assert!(found.chunks(expected.len().max(1)).all(|chunk| chunk == *expected), "{text}: {found:?}");
        }
    }

    #[test]
    fn plurals_share_a_term() {
        for (plural, singular) in [
            ("queries", "query"),
            ("caches", "cache"),
            ("rings", "ring"),
            ("bus", "bus"),
            ("class", "class"),
            ("this", "this"),
            ("goes", "goes"),
            ("is", "is"),
        ] {
            assert_eq!(term(plural), term(singular));
        }
    }

    #[test]
    fn encoded_data_is_no_word() {
        let text = format!("before {} after", "ab".repeat(WORD_BYTES_MAX));
        assert_eq!(terms(&text), ["before", "after"]);
    }

    proptest! {
        #[test]
        fn words_are_ordered_ranges_of_any_text(text in "\\PC{0,80}") {
            let mut end = 0;
            for word in Words::of(&text) {
                prop_assert!(end <= word.start && word.start < word.end);
                prop_assert!(!term(&text[word.clone()]).is_empty());
                end = word.end;
            }
        }
    }
}
