//! All documents at one moment, and the collection that moves from moment to moment.

use crate::segment::{Document, DocumentIndex, Postings, Segment, Stored};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// The documents as they were at one moment. Cheap to clone; searching it takes no lock.
#[derive(Clone, Debug, Default)]
pub struct Index {
    /// Oldest and largest first.
    parts: Vec<Part>,
    documents: usize,
    bytes: u64,
    words: u64,
}

/// A segment, and which of its documents have been replaced since.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    segment: Arc<Segment>,
    replaced: Arc<HashSet<DocumentIndex>>,
}

/// Names a document within an [`Index`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub part: usize,
    pub document: DocumentIndex,
}

/// What adding documents did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Added {
    /// Documents there now that were not there before, or in another version.
    pub documents: usize,
    /// How many of them took the place of one of the same name.
    pub replaced: usize,
    /// Bytes of text.
    pub bytes: u64,
    /// Words with repetitions.
    pub words: u64,
}

/// A collection many read while one adds: readers hold the [`Index`] of their moment.
#[derive(Debug, Default)]
pub struct Collection {
    current: RwLock<Index>,
    adding: Mutex<()>,
}

impl Collection {
    /// The collection as it is now.
    pub fn index(&self) -> Index {
        // A poisoned lock still holds a whole index: it is only ever replaced.
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Adds documents; readers see all of them or none. Takes time in proportion to the documents, not the collection.
    pub fn add(&self, documents: Vec<Document>) -> Added {
        // Held while indexing, so that two who add do not build on the same predecessor; readers do not wait for it.
        let _adding = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        let (index, added) = self.index().with(documents);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = index;
        added
    }
}

impl Index {
    /// This index with more documents. Of several with one name the last counts.
    pub fn with(&self, documents: Vec<Document>) -> (Self, Added) {
        let bytes = documents.iter().map(|document| document.text.len() as u64).sum();
        let segment = Segment::build(documents);
        if segment.documents().is_empty() {
            return (self.clone(), Added::default());
        }
        let mut index = self.clone();
        let replaced = index.replace(&segment);
        let words = segment.documents().iter().map(|stored| u64::from(stored.words)).sum();
        let added = Added { documents: segment.documents().len(), replaced, bytes, words };
        index.parts.push(Part { segment: Arc::new(segment), replaced: Arc::default() });
        index.merge_small();
        index.count();
        (index, added)
    }

    /// Number of documents.
    pub fn len(&self) -> usize {
        self.documents
    }

    /// Whether there is nothing to find.
    pub fn is_empty(&self) -> bool {
        self.documents == 0
    }

    /// Bytes of the text of all documents.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Words of all documents, with repetitions.
    pub fn words(&self) -> u64 {
        self.words
    }

    /// The text of the document with this name.
    pub fn text_of(&self, name: &str) -> Option<&str> {
        self.parts.iter().find_map(|part| {
            let index = part.segment.document_named(name).filter(|index| part.holds(*index))?;
            Some(&*part.segment.documents()[index as usize].text)
        })
    }

    pub(crate) fn parts(&self) -> &[Part] {
        &self.parts
    }

    pub(crate) fn stored(&self, place: Place) -> &Stored {
        &self.parts[place.part].segment.documents()[place.document as usize]
    }

    /// Documents a term occurs in. Replaced ones count until their segment is merged; that only dims a weight a little.
    pub(crate) fn document_frequency(&self, term: &str) -> usize {
        self.parts.iter().filter_map(|part| part.segment.postings(term)).map(Postings::len).sum()
    }

    /// Marks what `newer` replaces; says how many.
    fn replace(&mut self, newer: &Segment) -> usize {
        let mut count = 0;
        for part in &mut self.parts {
            let gone: Vec<DocumentIndex> = newer
                .documents()
                .iter()
                .filter_map(|stored| part.segment.document_named(&stored.name))
                .filter(|index| part.holds(*index))
                .collect();
            if !gone.is_empty() {
                count += gone.len();
                Arc::make_mut(&mut part.replaced).extend(gone);
            }
        }
        count
    }

    /// Merges from the young end while a segment is not much smaller than the one before it, so that there are
    /// logarithmically many and every document is merged logarithmically often.
    fn merge_small(&mut self) {
        while let [.., older, younger] = &self.parts[..] {
            if younger.len() * 2 <= older.len() {
                return;
            }
            let both = [older, younger];
            let keep = |which: usize, index| both[which].holds(index);
            let segment = Segment::merge([&older.segment, &younger.segment], keep);
            self.parts.truncate(self.parts.len() - 2);
            self.parts.push(Part { segment: Arc::new(segment), replaced: Arc::default() });
        }
    }

    fn count(&mut self) {
        (self.documents, self.bytes, self.words) = (0, 0, 0);
        for (_, stored) in self.parts.iter().flat_map(Part::live) {
            self.documents += 1;
            self.bytes += stored.text.len() as u64;
            self.words += u64::from(stored.words);
        }
    }
}

impl Added {
    /// What two additions did together.
    pub fn and(self, other: Self) -> Self {
        Self {
            documents: self.documents + other.documents,
            replaced: self.replaced + other.replaced,
            bytes: self.bytes + other.bytes,
            words: self.words + other.words,
        }
    }
}

impl Part {
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Whether a document has not been replaced.
    pub fn holds(&self, index: DocumentIndex) -> bool {
        !self.replaced.contains(&index)
    }

    fn live(&self) -> impl Iterator<Item = (DocumentIndex, &Stored)> {
        (0..).zip(self.segment.documents()).filter(|(index, _)| self.holds(*index))
    }

    fn len(&self) -> usize {
        self.segment.documents().len() - self.replaced.len()
    }
}

#[cfg(test)]
mod tests {
    //! Shows that replacing, merging and concurrent reading keep whole collections visible.
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn document(name: impl ToString, text: impl ToString) -> Document {
        Document { name: name.to_string(), text: text.to_string() }
    }

    #[test]
    fn a_known_name_replaces() {
        let collection = Collection::default();
        collection.add(vec![document("a", "old words here"), document("b", "b")]);
        let before = collection.index();
        let added = collection.add(vec![document("a", "new")]);
        assert_eq!(added, Added { documents: 1, replaced: 1, bytes: 3, words: 1 });
        let after = collection.index();
        assert_eq!((after.len(), after.words(), after.text_of("a")), (2, 2, Some("new")));
        assert_eq!(before.text_of("a"), Some("old words here"), "a reader keeps its moment");
        assert_eq!(collection.add(Vec::new()), Added::default());
    }

    #[test]
    fn segments_stay_few() {
        let mut index = Index::default();
        for i in 0..500 {
            index = index.with(vec![document(i, "word")]).0;
            assert!(index.parts.len() <= 10, "{} segments for {i} documents", index.parts.len());
        }
        assert_eq!((index.len(), index.document_frequency("word")), (500, 500));
    }

    #[test]
    fn readers_see_all_or_nothing_of_an_addition() {
        let collection = Collection::default();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                loop {
                    let count = collection.index().len();
                    assert!(count.is_multiple_of(10), "half an addition is visible: {count}");
                    if count == 200 {
                        return;
                    }
                    std::thread::yield_now();
                }
            });
            for batch in 0..20 {
                collection.add((0..10).map(|i| document(batch * 10 + i, "text")).collect());
            }
            reader.join().unwrap();
        });
    }

    proptest! {
        #[test]
        fn any_history_ends_in_the_latest_texts(
            batches in prop::collection::vec(prop::collection::vec((0..6u8, "[a-c ]{0,6}"), 0..5), 0..12),
        ) {
            let mut index = Index::default();
            let mut model = BTreeMap::new();
            for batch in batches {
                index = index.with(batch.iter().map(|(name, text)| document(name, text)).collect()).0;
                model.extend(batch.into_iter().map(|(name, text)| (name.to_string(), text)));
            }
            prop_assert_eq!(index.len(), model.len());
            for (name, text) in &model {
                prop_assert_eq!(index.text_of(name), Some(text.as_str()));
            }
        }
    }
}
