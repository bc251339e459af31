//! Streams that end in a header block which is no good as trailers, until it is known what that is (client role).

/// What is wrong with a header block, if it is trailers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Suspicion {
    /// It begins with a pseudo-header: an answer's head, or no trailers.
    Malformed,
    /// It has more bytes than any list within the limit: h2 may have left a field of it out.
    Large,
}

/// Streams under suspicion. Most were answered by a head alone, and are forgotten.
#[derive(Debug, Default)]
pub(super) struct Suspects(Vec<(u32, Suspicion)>);

impl Suspects {
    const MAX: usize = 64;

    /// Notes what has been read. Few large blocks fit into a read, and no crowd of short answers behind one has it
    /// forgotten.
    pub fn note(&mut self, read: &[(u32, Suspicion)]) {
        self.0.extend_from_slice(read);
        let mut over = self.0.len().saturating_sub(Self::MAX);
        self.0.retain(|(_, of)| {
            let is_forgotten = over > 0 && *of == Suspicion::Malformed;
            over -= usize::from(is_forgotten);
            !is_forgotten
        });
        self.0.drain(..over);
    }

    /// What this stream is suspected of.
    pub fn of(&self, stream: u32) -> Option<Suspicion> {
        let found = self.0.iter().filter(|(id, _)| *id == stream).map(|(_, of)| *of);
        found.max_by_key(|of| *of == Suspicion::Large)
    }

    /// It is known how the stream has ended.
    pub fn clear(&mut self, stream: u32) {
        self.0.retain(|(id, _)| *id != stream);
    }
}

#[cfg(test)]
mod tests {
    //! Shows that few are remembered, and which.
    use super::*;

    #[test]
    fn a_large_one_is_remembered_behind_many_short_ones() {
        let mut suspects = Suspects::default();
        let short: Vec<_> = (3..1000).map(|id| (id, Suspicion::Malformed)).collect();
        suspects.note(&[(1, Suspicion::Malformed), (1, Suspicion::Large), (2, Suspicion::Malformed)]);
        suspects.note(&short);
        assert_eq!(suspects.0.len(), Suspects::MAX);
        assert_eq!((suspects.of(1), suspects.of(2)), (Some(Suspicion::Large), None));
        assert_eq!(suspects.of(999), Some(Suspicion::Malformed));
        suspects.clear(1);
        assert_eq!(suspects.of(1), None);
        let large: Vec<_> = (1000..2000).map(|id| (id, Suspicion::Large)).collect();
        suspects.note(&large);
        assert_eq!((suspects.0.len(), suspects.of(999), suspects.of(1000)), (Suspects::MAX, None, None));
        assert_eq!(suspects.of(1999), Some(Suspicion::Large));
    }
}
