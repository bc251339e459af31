//! A search carried out: ranked matches that turn into hits when they are looked at.

use crate::index::Index;
use crate::query::Query;
use crate::rank::{Match, inverse_document_frequency, matches};
use crate::snippet::{Snippet, snippet};
use crate::suggest::{correction, refinements};

/// Size of the passage shown of a hit: two lines of a terminal.
const SNIPPET_BYTES_MAX: usize = 160;

/// The matches of one query in one index, best first.
///
/// Ranking is done when it is made; snippets are cut when a hit is asked for, so that a reader who takes ten of ten
/// thousand pays for ten.
#[derive(Debug)]
pub struct Found {
    index: Index,
    query: Query,
    matches: Vec<Match>,
}

/// A document that matches, as shown to a person.
#[derive(Clone, Debug, PartialEq)]
pub struct Hit {
    /// From 1.
    pub rank: u32,
    /// The document's.
    pub name: String,
    /// BM25; comparable within one query only.
    pub score: f32,
    /// Where it matches best.
    pub snippet: Snippet,
}

impl Found {
    /// Searches.
    pub fn search(index: Index, query: Query) -> Self {
        let matches = matches(&index, &query);
        Self { index, query, matches }
    }

    /// Number of documents that match.
    pub fn len(&self) -> usize {
        self.matches.len()
    }

    /// Whether nothing matches.
    pub fn is_empty(&self) -> bool {
        self.matches.is_empty()
    }

    /// Number of documents searched.
    pub fn searched(&self) -> usize {
        self.index.len()
    }

    /// What was searched for.
    pub fn query(&self) -> &Query {
        &self.query
    }

    /// Hits by rank, `offset` passed over, at most `count_max`.
    pub fn hits(&self, offset: usize, count_max: usize) -> impl Iterator<Item = Hit> {
        let weigh = |term| (term, inverse_document_frequency(&self.index, term));
        let wanted: Vec<(&str, f32)> = self.query.terms().map(weigh).collect();
        self.matches.iter().enumerate().skip(offset).take(count_max).map(move |(at, found)| {
            let stored = self.index.stored(found.place);
            Hit {
                rank: at as u32 + 1,
                name: stored.name.to_string(),
                score: found.score,
                snippet: snippet(&stored.text, &wanted, SNIPPET_BYTES_MAX),
            }
        })
    }

    /// The text of the hit with this rank.
    pub fn text(&self, rank: u32) -> Option<(&str, &str)> {
        let found = self.matches.get((rank as usize).checked_sub(1)?)?;
        let stored = self.index.stored(found.place);
        Some((&stored.name, &stored.text))
    }

    /// The query with unknown words replaced by near ones, if there are any.
    pub fn did_you_mean(&self) -> Option<Query> {
        correction(&self.index, &self.query)
    }

    /// Words that would narrow the query well.
    pub fn suggestions(&self, count_max: usize) -> Vec<String> {
        refinements(&self.index, &self.query, &self.matches, count_max)
    }
}

#[cfg(test)]
mod tests {
    //! Shows paging.
    use super::*;
    use crate::segment::Document;

    #[test]
    fn hits_are_ranked_from_one_and_paged() {
        let document = |i: usize| Document { name: format!("d{i}"), text: "ring ".repeat(i) + "x" };
        let index = Index::default().with((1..=5).map(document).collect()).0;
        let found = Found::search(index, Query::parse("ring").unwrap());
        let ranks: Vec<u32> = found.hits(1, 2).map(|hit| hit.rank).collect();
        assert_eq!((found.len(), ranks), (5, vec![2, 3]));
        assert_eq!(found.hits(9, 2).count(), 0);
        assert_eq!(found.text(1).unwrap().0, found.hits(0, 1).next().unwrap().name);
        assert_eq!((found.text(0), found.text(6)), (None, None));
    }
}
