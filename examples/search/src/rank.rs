//! Which documents match a query, and which match best.

use crate::index::{Index, Part, Place};
use crate::query::{Clause, Query};
use crate::segment::{Postings, Segment};
use std::cmp::Ordering;

/// Saturation of repeated words: Okapi BM25's k1. (Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25
/// and Beyond", 2009, §3.5: 1.2 to 2 for k1, 0.5 to 0.8 for b.)
const K1: f32 = 1.2;
/// How much a long document is held to use more words without being more relevant: BM25's b.
const B: f32 = 0.75;

/// A document that matches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Match {
    pub place: Place,
    pub score: f32,
}

/// Every document that matches, best first; equal scores in the order of names, so that paging is stable.
pub(crate) fn matches(index: &Index, query: &Query) -> Vec<Match> {
    let words_mean = index.words() as f32 / index.len().max(1) as f32;
    let weights: Vec<f32> = query.clauses().iter().map(|clause| weight(index, clause)).collect();
    let mut found = Vec::new();
    for (at, part) in index.parts().iter().enumerate() {
        let scores = scores(part, query, &weights, words_mean);
        found.extend((0..).zip(scores).filter_map(|(document, score)| {
            let place = Place { part: at, document };
            (score > 0.0).then_some(Match { place, score })
        }));
    }
    found.sort_unstable_by(|a, b| order(index, a, b));
    found
}

fn order(index: &Index, a: &Match, b: &Match) -> Ordering {
    b.score.total_cmp(&a.score).then_with(|| index.stored(a.place).name.cmp(&index.stored(b.place).name))
}

/// What finding a clause is worth: the sum of its terms' inverse document frequencies.
fn weight(index: &Index, clause: &Clause) -> f32 {
    clause.terms().iter().map(|term| inverse_document_frequency(index, term)).sum()
}

/// ln(1 + (N − n + ½) / (n + ½)): never negative, unlike the textbook's, so that common words do no harm.
pub(crate) fn inverse_document_frequency(index: &Index, term: &str) -> f32 {
    let (all, having) = (index.len() as f32, index.document_frequency(term) as f32);
    (1.0 + ((all - having).max(0.0) + 0.5) / (having + 0.5)).ln()
}

/// The score of every document of a part; zero for those that do not match.
fn scores(part: &Part, query: &Query, weights: &[f32], words_mean: f32) -> Vec<f32> {
    let segment = part.segment();
    let mut scores = vec![0.0_f32; segment.documents().len()];
    let mut required_found = vec![0_usize; scores.len()];
    for (clause, weight) in query.clauses().iter().zip(weights) {
        occurrences(segment, clause, |document, count| {
            let words = segment.documents()[document as usize].words as f32;
            scores[document as usize] += weight * saturated(count as f32, words / words_mean);
            required_found[document as usize] += usize::from(clause.is_required());
        });
    }
    let required = query.clauses().iter().filter(|clause| clause.is_required()).count();
    for (document, score) in (0..).zip(&mut scores) {
        let admitted = part.holds(document) && query.admits(&segment.documents()[document as usize].name);
        if !admitted || required_found[document as usize] < required {
            *score = 0.0;
        }
    }
    for clause in query.excluded() {
        occurrences(segment, clause, |document, _| scores[document as usize] = 0.0);
    }
    scores
}

/// How much `count` occurrences are worth in a document `length` times as long as the mean: from 0 to k1 + 1.
fn saturated(count: f32, length: f32) -> f32 {
    count * (K1 + 1.0) / (count + K1 * (1.0 - B + B * length))
}

/// Calls with every document a clause occurs in, and how often.
fn occurrences(segment: &Segment, clause: &Clause, mut each: impl FnMut(u32, usize)) {
    let Some(postings): Option<Vec<&Postings>> =
        clause.terms().iter().map(|term| segment.postings(term)).collect()
    else {
        return;
    };
    let [first, rest @ ..] = &postings[..] else { return };
    first.for_each(|document, positions| {
        let count = positions.iter().filter(|at| follows(rest, document, **at)).count();
        if count > 0 {
            each(document, count);
        }
    });
}

/// Whether the terms behind `rest` stand right after position `at`, in order.
fn follows(rest: &[&Postings], document: u32, at: u32) -> bool {
    (at + 1..).zip(rest).all(|(position, postings)| {
        postings.positions_in(document).is_some_and(|positions| positions.binary_search(&position).is_ok())
    })
}

#[cfg(test)]
mod tests {
    //! Shows what outranks what, by hand-computed scores and by example.
    use super::*;
    use crate::segment::Document;

    fn index(texts: &[(&str, &str)]) -> Index {
        let document = |(name, text): &(&str, &str)| Document { name: (*name).into(), text: (*text).into() };
        Index::default().with(texts.iter().map(document).collect()).0
    }

    fn names(index: &Index, query: &str) -> Vec<String> {
        let query = Query::parse(query).unwrap();
        matches(index, &query).iter().map(|found| index.stored(found.place).name.to_string()).collect()
    }

    #[test]
    fn the_score_is_bm25() {
        let index = index(&[("a", "ring ring bell"), ("b", "ring"), ("c", "bell bell bell bell")]);
        let found = matches(&index, &Query::parse("ring").unwrap());
        // N = 3, n = 2: idf = ln(1 + 1.5 / 2.5) = 0.4700. Mean length 8/3.
        // a: tf 2, length 3: 2·2.2 / (2 + 1.2·(0.25 + 0.75·9/8)) = 1.3294.
        // b: tf 1, length 1: 2.2 / (1 + 1.2·(0.25 + 0.75·3/8)) = 1.3435.
        let scores: Vec<f32> = found.iter().map(|found| found.score).collect();
        assert!((scores[0] - 0.4700 * 1.3435).abs() < 1e-3, "{scores:?}");
        assert!((scores[1] - 0.4700 * 1.3294).abs() < 1e-3, "{scores:?}");
        assert_eq!(names(&index, "ring"), ["b", "a"]);
    }

    #[test]
    fn rare_words_count_more_and_phrases_are_required() {
        let index = index(&[
            ("common", "the daemon and the daemon"),
            ("rare", "the doorbell rings"),
            ("apart", "turn the loop"),
            ("together", "the turn loop"),
        ]);
        assert_eq!(names(&index, "the doorbell")[0], "rare");
        assert_eq!(names(&index, "\"turn loop\""), ["together"]);
        assert_eq!(names(&index, "turn_loop"), ["together"]);
        assert_eq!(names(&index, "turn loop").len(), 2);
        assert_eq!(names(&index, "the +loop +turn -\"turn loop\""), ["apart"]);
        assert_eq!(names(&index, "the -daemon -\"turn loop\""), ["apart", "rare"]);
        assert_eq!(names(&index, "the in:ar -turn"), ["rare"]);
        assert_eq!(names(&index, "unheard"), [""; 0]);
    }

    #[test]
    fn equal_scores_are_ordered_by_name_across_segments() {
        let mut index = Index::default();
        for name in ["c", "a", "b", "d"] {
            index = index.with(vec![Document { name: name.into(), text: "same".into() }]).0;
        }
        assert_eq!(names(&index, "same"), ["a", "b", "c", "d"]);
    }
}
