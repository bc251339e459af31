//! Which message fields need an indirection, because their message holds itself by value.

use std::collections::HashMap;

/// Messages and which of them hold which by value (a singular message field; lists and maps are indirections anyway).
#[derive(Default)]
pub(super) struct Holdings {
    indices: HashMap<String, usize>,
    holds: Vec<Vec<usize>>,
}

/// The answer: messages with the same number lie on a common cycle.
pub(super) struct Cycles {
    indices: HashMap<String, usize>,
    component: Vec<usize>,
}

impl Holdings {
    /// Notes that `holder` has a field of type `held`.
    pub(super) fn add(&mut self, holder: &str, held: &str) {
        let holder = self.index(holder);
        let held = self.index(held);
        self.holds[holder].push(held);
    }

    fn index(&mut self, name: &str) -> usize {
        if let Some(&index) = self.indices.get(name) {
            return index;
        }
        let index = self.holds.len();
        self.indices.insert(name.to_owned(), index);
        self.holds.push(Vec::new());
        index
    }

    /// Strongly connected components, after Kosaraju: without recursion, for a descriptor may nest deeply.
    pub(super) fn cycles(self) -> Cycles {
        let order = finishing_order(&self.holds);
        let mut held_by = vec![Vec::new(); self.holds.len()];
        for (holder, helds) in self.holds.iter().enumerate() {
            helds.iter().for_each(|&held| held_by[held].push(holder));
        }
        let mut component = vec![usize::MAX; self.holds.len()];
        for &root in order.iter().rev() {
            let mut stack = vec![root];
            while let Some(node) = stack.pop() {
                if component[node] == usize::MAX {
                    component[node] = root;
                    stack.extend(held_by[node].iter().filter(|&&next| component[next] == usize::MAX));
                }
            }
        }
        Cycles { indices: self.indices, component }
    }
}

impl Cycles {
    /// Whether a field of type `held` in `holder` closes a cycle.
    pub(super) fn closes(&self, holder: &str, held: &str) -> bool {
        match (self.indices.get(holder), self.indices.get(held)) {
            (Some(&holder), Some(&held)) => self.component[holder] == self.component[held],
            _ => false,
        }
    }
}

/// Nodes in the order in which a depth-first walk leaves them.
fn finishing_order(edges: &[Vec<usize>]) -> Vec<usize> {
    let mut seen = vec![false; edges.len()];
    let mut order = Vec::with_capacity(edges.len());
    for root in 0..edges.len() {
        let mut stack = vec![(root, 0)];
        while let Some((node, next)) = stack.pop() {
            if next == 0 && std::mem::replace(&mut seen[node], true) {
                continue;
            }
            match edges[node].get(next) {
                Some(&child) => stack.extend([(node, next + 1), (child, 0)]),
                None => order.push(node),
            }
        }
    }
    order
}

#[cfg(test)]
mod tests {
    //! Shows that exactly the fields on a cycle are found.
    use super::*;

    #[test]
    fn only_fields_on_a_cycle_close_it() {
        let mut holdings = Holdings::default();
        for (holder, held) in [("a", "b"), ("b", "c"), ("c", "b"), ("d", "d"), ("c", "e")] {
            holdings.add(holder, held);
        }
        let cycles = holdings.cycles();
        assert!(cycles.closes("b", "c") && cycles.closes("c", "b") && cycles.closes("d", "d"));
        assert!(!cycles.closes("a", "b") && !cycles.closes("c", "e") && !cycles.closes("x", "y"));
    }

    #[test]
    fn a_long_chain_needs_no_stack() {
        let mut holdings = Holdings::default();
        for i in 0..100_000 {
            holdings.add(&i.to_string(), &(i + 1).to_string());
        }
        assert!(!holdings.cycles().closes("0", "1"));
    }
}
