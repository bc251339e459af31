//! Whom most of something is of, in two words of memory (Boyer and Moore, MJRTY: a fast majority vote algorithm).

/// The one that more than half of what was noted is of, if there is one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Majority<T>(Option<(T, u64)>);

impl<T> Default for Majority<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Copy + PartialEq> Majority<T> {
    /// One more is of this.
    #[inline]
    pub fn note(&mut self, of: T) {
        self.0 = match self.0 {
            Some((most, count)) if most == of => Some((most, count + 1)),
            Some((most, count)) if count > 0 => Some((most, count - 1)),
            _ => Some((of, 1)),
        };
    }

    /// One speaks against this, and against no other.
    #[inline]
    pub fn note_against(&mut self, of: T) {
        if let Some((most, count)) = &mut self.0
            && *most == of
        {
            *count = count.saturating_sub(1);
        }
    }

    /// It, and by how many it is ahead of all others.
    pub fn most(&self) -> Option<(T, u64)> {
        self.0.filter(|(_, count)| *count > 0)
    }
}

#[cfg(test)]
mod tests {
    //! Shows who wins, and by how many.
    use super::*;

    #[test]
    fn the_majority_wins_by_what_it_is_ahead() {
        type Row<'a> = (&'a str, &'a [(u8, bool)], Option<(u8, u64)>);
        let table: [Row<'_>; 5] = [
            ("nobody", &[], None),
            ("one", &[(1, true)], Some((1, 1))),
            ("two of three", &[(1, true), (2, true), (1, true)], Some((1, 1))),
            ("as many against it", &[(1, true), (1, false)], None),
            ("what speaks against another is nothing to it", &[(1, true), (2, false)], Some((1, 1))),
        ];
        for (why, said, expected) in table {
            let mut majority = Majority::default();
            for (of, is_for) in said {
                if *is_for { majority.note(*of) } else { majority.note_against(*of) }
            }
            assert_eq!(majority.most(), expected, "{why}");
        }
    }
}
