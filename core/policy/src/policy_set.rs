//! Some of the policies of a chain.

/// Policies of one chain. Every call passes those that apply to it, in order.
pub const POLICIES_MAX: usize = 256;

/// Policies of a chain, by their places in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PolicySet([u64; POLICIES_MAX / 64]);

impl PolicySet {
    /// Those for which it is true, by place.
    pub fn of(is_in: impl IntoIterator<Item = bool>) -> Self {
        let mut set = Self::default();
        let places = is_in.into_iter().enumerate().filter(|(_, is_in)| *is_in);
        places.for_each(|(index, _)| set.insert(index));
        set
    }

    /// Takes the one at this place in. No chain has one beyond [`POLICIES_MAX`].
    pub fn insert(&mut self, index: usize) {
        if let Some(word) = self.0.get_mut(index / 64) {
            *word |= 1 << (index % 64);
        }
    }

    /// Whether the one at this place is among them.
    pub fn contains(&self, index: usize) -> bool {
        self.0.get(index / 64).is_some_and(|word| word & (1 << (index % 64)) != 0)
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Takes others in.
    pub fn join(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(word, more)| *word |= more);
    }

    /// Those that are among the others, too.
    pub fn common(mut self, other: Self) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(word, others)| *word &= others);
        self
    }
}

#[cfg(test)]
mod tests {
    //! Shows which places a set has, up to the last that a chain can have.
    use super::*;

    #[test]
    fn places_up_to_the_last() {
        let last = POLICIES_MAX - 1;
        let mut set = PolicySet::of([false, true]);
        assert_eq!((set.contains(0), set.contains(1), set.contains(last)), (false, true, false));
        set.join(PolicySet::of((0..=last).map(|index| index == last)));
        set.insert(POLICIES_MAX);
        assert!(set.contains(1) && set.contains(last) && !set.contains(POLICIES_MAX));
        let common = set.common(PolicySet::of([true; 2]));
        assert_eq!(common, PolicySet::of([false, true]));
        assert!(!common.is_empty() && common.common(PolicySet::of([true])).is_empty());
    }
}
