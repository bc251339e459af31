//! An immutable inverted index over some documents.

use crate::text::{Words, term};
use std::collections::HashMap;
use std::ops::Range;

/// A text with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// Identifies it; usually a path.
    pub name: String,
    /// All of it.
    pub text: String,
}

/// Names a document within its segment.
pub(crate) type DocumentIndex = u32;

/// Documents, and for each term where it occurs in them. Never changes once built, so readers need no lock.
#[derive(Debug, Default)]
pub(crate) struct Segment {
    documents: Vec<Stored>,
    by_name: HashMap<Box<str>, DocumentIndex>,
    /// In the order of terms, so that a prefix is a range.
    dictionary: Vec<(Box<str>, Postings)>,
}

/// A document with the number of its words.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub name: Box<str>,
    pub text: Box<str>,
    pub words: u32,
}

/// Where a term occurs: documents in ascending order, and in each the word positions in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Postings {
    documents: Vec<DocumentIndex>,
    /// End of each document's positions in `positions`.
    ends: Vec<u32>,
    positions: Vec<u32>,
}

impl Segment {
    /// Indexes documents. Of several with one name the last counts.
    pub fn build(documents: impl IntoIterator<Item = Document>) -> Self {
        let mut latest: Vec<Option<Document>> = Vec::new();
        let mut by_name = HashMap::new();
        for document in documents {
            let index = *by_name.entry(Box::from(document.name.as_str())).or_insert(latest.len() as u32);
            if index as usize == latest.len() {
                latest.push(Some(document));
            } else {
                latest[index as usize] = Some(document);
            }
        }
        let mut terms = HashMap::new();
        let documents: Vec<Stored> = latest
            .into_iter()
            .flatten()
            .enumerate()
            .map(|(index, document)| store(index as DocumentIndex, document, &mut terms))
            .collect();
        Self { documents, by_name, dictionary: sorted(terms) }
    }

    /// One segment of two, without the documents `keep` refuses (it is told 0 or 1, and the index there).
    pub fn merge(parts: [&Self; 2], keep: impl Fn(usize, DocumentIndex) -> bool) -> Self {
        let mut documents = Vec::new();
        let mut terms: HashMap<Box<str>, Postings> = HashMap::new();
        for (which, part) in parts.into_iter().enumerate() {
            let renumbered: Vec<Option<DocumentIndex>> = (0..part.documents.len() as u32)
                .map(|index| {
                    keep(which, index).then(|| {
                        documents.push(part.documents[index as usize].clone());
                        documents.len() as u32 - 1
                    })
                })
                .collect();
            for (term, postings) in &part.dictionary {
                let into = terms.entry(term.clone()).or_default();
                postings.for_each(|index, positions| {
                    if let Some(new) = renumbered[index as usize] {
                        into.push_document(new, positions);
                    }
                });
            }
        }
        terms.retain(|_, postings| !postings.documents.is_empty());
        let by_name = (0..).zip(&documents).map(|(index, stored)| (stored.name.clone(), index)).collect();
        Self { documents, by_name, dictionary: sorted(terms) }
    }

    pub fn documents(&self) -> &[Stored] {
        &self.documents
    }

    pub fn document_named(&self, name: &str) -> Option<DocumentIndex> {
        self.by_name.get(name).copied()
    }

    pub fn postings(&self, term: &str) -> Option<&Postings> {
        let at = self.dictionary.binary_search_by(|(known, _)| (**known).cmp(term)).ok()?;
        Some(&self.dictionary[at].1)
    }

    /// The terms that begin with `prefix`, with the number of documents each occurs in.
    pub fn terms_from(&self, prefix: &str) -> impl Iterator<Item = (&str, usize)> {
        let start = self.dictionary.partition_point(|(term, _)| **term < *prefix);
        self.dictionary[start..]
            .iter()
            .take_while(move |(term, _)| term.starts_with(prefix))
            .map(|(term, postings)| (&**term, postings.documents.len()))
    }
}

impl Postings {
    /// Number of documents.
    pub fn len(&self) -> usize {
        self.documents.len()
    }

    /// Calls with every document and the positions in it.
    pub fn for_each(&self, mut each: impl FnMut(DocumentIndex, &[u32])) {
        for (at, index) in self.documents.iter().enumerate() {
            each(*index, &self.positions[self.range(at)]);
        }
    }

    /// The positions in one document, if the term occurs there.
    pub fn positions_in(&self, document: DocumentIndex) -> Option<&[u32]> {
        let at = self.documents.binary_search(&document).ok()?;
        Some(&self.positions[self.range(at)])
    }

    fn range(&self, at: usize) -> Range<usize> {
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        start as usize..self.ends[at] as usize
    }

    /// Adds an occurrence; documents and positions come in ascending order.
    fn push(&mut self, document: DocumentIndex, position: u32) {
        self.positions.push(position);
        let end = self.positions.len() as u32;
        if self.documents.last() == Some(&document) {
            *self.ends.last_mut().expect("as many ends as documents") = end;
        } else {
            self.documents.push(document);
            self.ends.push(end);
        }
    }

    fn push_document(&mut self, document: DocumentIndex, positions: &[u32]) {
        self.positions.extend_from_slice(positions);
        self.documents.push(document);
        self.ends.push(self.positions.len() as u32);
    }
}

fn store(index: DocumentIndex, document: Document, terms: &mut HashMap<Box<str>, Postings>) -> Stored {
    let mut words = 0;
    for word in Words::of(&document.text) {
        let term = term(&document.text[word]);
        match terms.get_mut(&*term) {
            Some(postings) => postings.push(index, words),
            None => terms.entry(term.into()).or_default().push(index, words),
        }
        words += 1;
    }
    Stored { name: document.name.into(), text: document.text.into(), words }
}

fn sorted(terms: HashMap<Box<str>, Postings>) -> Vec<(Box<str>, Postings)> {
    let mut dictionary: Vec<_> = terms.into_iter().collect();
    dictionary.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    dictionary
}

#[cfg(test)]
mod tests {
    //! Shows what is stored where, and that merging gives what building at once would have given.
    use super::*;
    use proptest::prelude::*;

    fn document(name: &str, text: &str) -> Document {
        Document { name: name.into(), text: text.into() }
    }

    #[test]
    fn positions_are_word_numbers() {
        let segment = Segment::build([document("a", "x y x"), document("b", "y"), document("a", "y z y")]);
        assert_eq!(segment.documents().len(), 2);
        assert!(segment.postings("x").is_none(), "the first text of a was replaced");
        let y = segment.postings("y").unwrap();
        assert_eq!(y.positions_in(segment.document_named("a").unwrap()), Some(&[0, 2][..]));
        assert_eq!(y.positions_in(segment.document_named("b").unwrap()), Some(&[0][..]));
        assert_eq!(segment.terms_from("").collect::<Vec<_>>(), [("y", 2), ("z", 1)]);
    }

    proptest! {
        #[test]
        fn merging_equals_building_at_once(
            texts in prop::collection::vec("[abc ]{0,12}", 0..8),
            cut in 0..8usize,
            dropped in 0..9usize,
        ) {
            let all: Vec<Document> =
                (0..).zip(&texts).map(|(i, text)| document(&format!("d{i}"), text)).collect();
            let cut = cut.min(all.len());
            let (left, right) = (Segment::build(all[..cut].to_vec()), Segment::build(all[cut..].to_vec()));
            let merged = Segment::merge([&left, &right], |which, index| which * cut + index as usize != dropped);
            let kept = (0..).zip(all).filter(|(i, _)| *i != dropped).map(|(_, document)| document);
            let whole = Segment::build(kept);
            prop_assert_eq!(merged.dictionary, whole.dictionary);
            prop_assert_eq!(merged.by_name, whole.by_name);
        }
    }
}
