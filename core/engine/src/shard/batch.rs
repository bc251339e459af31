//! What goes from one shard to another at once.

use super::crossing::Crossing;

/// What one shard has for another, in its order: it passes a queue as one thing, however much it is.
#[derive(Debug, Default)]
pub struct CrossingBatch(pub(super) Vec<Crossing>);

impl CrossingBatch {
    /// How much there is.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<Crossing> for CrossingBatch {
    fn from(crossing: Crossing) -> Self {
        Self(vec![crossing])
    }
}

impl IntoIterator for CrossingBatch {
    type Item = Crossing;
    type IntoIter = std::vec::IntoIter<Crossing>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
