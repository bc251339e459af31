//! Words worth typing: endings, corrections, refinements.

use crate::index::Index;
use crate::query::Query;
use crate::rank::{Match, inverse_document_frequency};
use crate::text::{Words, term};
use std::collections::{BTreeMap, HashSet};

/// Most hits whose words are weighed for refinements.
const SOURCES_MAX: usize = 20;
/// Words looked at in one of them: the beginning of a document says what it is about.
const WORDS_MAX: usize = 2000;

/// The most frequent words that begin with `prefix`.
pub(crate) fn completions(index: &Index, prefix: &str, count_max: usize) -> Vec<String> {
    let prefix = prefix.trim().to_lowercase();
    if prefix.is_empty() {
        return Vec::new();
    }
    let mut frequencies: BTreeMap<&str, usize> = BTreeMap::new();
    for part in index.parts() {
        for (term, documents) in part.segment().terms_from(&prefix) {
            *frequencies.entry(term).or_default() += documents;
        }
    }
    let mut ranked: Vec<(&str, usize)> = frequencies.into_iter().collect();
    // Stable: equal frequencies stay in the order of the alphabet.
    ranked.sort_by_key(|(_, documents)| std::cmp::Reverse(*documents));
    ranked.into_iter().take(count_max).map(|(term, _)| term.to_owned()).collect()
}

/// The query with every unknown word replaced by a known one that differs by one slip of the hand, if there are such.
pub(crate) fn correction(index: &Index, query: &Query) -> Option<Query> {
    query.replaced(|term| (index.document_frequency(term) == 0).then(|| nearest(index, term)).flatten())
}

/// Words that would narrow a query well: frequent in its best hits and rare elsewhere.
pub(crate) fn refinements(index: &Index, query: &Query, best: &[Match], count_max: usize) -> Vec<String> {
    let known: HashSet<&str> = query.terms().collect();
    let sources = best.len().min(SOURCES_MAX);
    let mut sources_with: BTreeMap<String, usize> = BTreeMap::new();
    for found in &best[..sources] {
        let text = &index.stored(found.place).text;
        let terms: HashSet<_> = Words::of(text).take(WORDS_MAX).map(|word| term(&text[word])).collect();
        for term in terms.into_iter().filter(|term| is_telling(term) && !known.contains(&**term)) {
            *sources_with.entry(term.into_owned()).or_default() += 1;
        }
    }
    // A word that every hit has narrows nothing, one that only one has narrows to that one.
    let narrowing = |with: usize| with > 1 && with < sources.max(3);
    let mut ranked: Vec<(String, f32)> = sources_with
        .into_iter()
        .filter(|(_, with)| narrowing(*with))
        .map(|(term, with)| {
            let value = with as f32 * inverse_document_frequency(index, &term);
            (term, value)
        })
        .collect();
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
    ranked.into_iter().take(count_max).map(|(term, _)| term).collect()
}

/// Numbers and very short words say little by themselves.
fn is_telling(term: &str) -> bool {
    term.chars().count() >= 4 && !term.starts_with(|c: char| c.is_numeric())
}

/// The most frequent known term one slip away: a letter missing, too many, wrong, or two swapped.
fn nearest(index: &Index, unknown: &str) -> Option<String> {
    let letters: Vec<char> = unknown.chars().collect();
    if letters.len() < 4 {
        return None;
    }
    // The first letter is seldom wrong, and keeping it makes the search a range of the dictionary.
    let first = letters[0].to_string();
    let candidates = index.parts().iter().flat_map(|part| part.segment().terms_from(&first));
    candidates
        .filter(|(term, _)| is_one_slip(&letters, term))
        .max_by(|a, b| a.1.cmp(&b.1).then_with(|| b.0.cmp(a.0)))
        .map(|(term, _)| term.to_owned())
}

fn is_one_slip(typed: &[char], term: &str) -> bool {
    let term: Vec<char> = term.chars().collect();
    if typed.len().abs_diff(term.len()) > 1 {
        return false;
    }
    let same = typed.iter().zip(&term).take_while(|(a, b)| a == b).count();
    let (typed, term) = (&typed[same..], &term[same..]);
    match (typed, term) {
        ([], _) | (_, []) => true,
        ([a, b, typed @ ..], [c, d, term @ ..]) if a == d && b == c && typed == term => true,
        ([_, typed_rest @ ..], [_, term_rest @ ..]) => {
            typed_rest == term_rest || typed_rest == term || typed == term_rest
        }
    }
}

#[cfg(test)]
mod tests {
    //! Shows what is suggested for what.
    use super::*;
    use crate::rank::matches;
    use crate::segment::Document;

    fn index() -> Index {
        let texts = [
            "daemon ring doorbell shared",
            "daemon ring doorbell socket",
            "daemon ring latency socket",
            "daemon bread butter",
            "doors",
        ];
        let document = |(i, text): (usize, &&str)| Document { name: i.to_string(), text: (*text).into() };
        Index::default().with(texts.iter().enumerate().map(document).collect()).0
    }

    #[test]
    fn endings_by_frequency() {
        assert_eq!(completions(&index(), "Do", 5), ["doorbell", "door"]);
        assert_eq!(completions(&index(), "Do", 1), ["doorbell"]);
        assert_eq!(completions(&index(), " ", 5), [""; 0]);
    }

    #[test]
    fn one_slip_is_corrected_and_known_words_are_kept() {
        let table = [
            ("deamon ring", Some("daemon ring")),
            ("dorbell", Some("doorbell")),
            ("daaemon", Some("daemon")),
            ("latencz", Some("latency")),
            ("daemon", None),
            ("doorbells", None),
            ("zebra", None),
        ];
        for (typed, corrected) in table {
            let found = correction(&index(), &Query::parse(typed).unwrap()).map(|query| query.to_string());
            assert_eq!(found.as_deref(), corrected, "{typed}");
        }
    }

    #[test]
    fn refinements_divide_the_hits() {
        let (index, query) = (index(), Query::parse("ring").unwrap());
        let found = matches(&index, &query);
        assert_eq!(refinements(&index, &query, &found, 5), ["doorbell", "socket"]);
    }
}
