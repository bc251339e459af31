//! Numbers for names, so that recording takes no strings.

use std::collections::BTreeMap;
use std::sync::Arc;

/// What is beyond the limits is counted under.
pub(crate) const OTHER: &str = "(other)";
/// Longer names are cut.
pub(crate) const NAME_BYTES_MAX: usize = 256;

/// Whether a method, by its path, is of a service that daemons serve themselves.
pub fn is_own_method(path: &str) -> bool {
    path.trim_start_matches('/').starts_with("trunkline.")
}

/// Numbers for names, up to a limit; number zero is everything beyond it.
#[derive(Debug)]
pub(crate) struct NumberedNames {
    pub names: Vec<Arc<str>>,
    numbers: BTreeMap<Arc<str>, u32>,
    /// Numbers whose names were forgotten.
    free: Vec<u32>,
    max: usize,
}

impl NumberedNames {
    pub fn new(max: usize) -> Self {
        Self { names: vec![OTHER.into()], numbers: BTreeMap::new(), free: Vec::new(), max }
    }

    pub fn number(&mut self, name: &str) -> u32 {
        let name = cut(name);
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        if self.is_full() {
            return 0;
        }
        let name: Arc<str> = name.into();
        let number = self.free.pop().unwrap_or(self.names.len() as u32);
        match self.names.get_mut(number as usize) {
            Some(free) => *free = Arc::clone(&name),
            None => self.names.push(Arc::clone(&name)),
        }
        self.numbers.insert(name, number);
        number
    }

    pub fn is_full(&self) -> bool {
        self.names.len() >= self.max && self.free.is_empty()
    }

    /// Forgets names but for those whose numbers are to stay. Which numbers have names.
    pub fn retain(&mut self, stays: impl Fn(u32) -> bool) -> Vec<bool> {
        let Self { names, numbers, free, .. } = self;
        numbers.retain(|_, number| {
            let stays = stays(*number);
            if !stays {
                names[*number as usize] = Arc::clone(&names[0]);
                free.push(*number);
            }
            stays
        });
        let mut known = vec![false; names.len()];
        numbers.values().chain(&[0]).for_each(|number| known[*number as usize] = true);
        known
    }

    pub fn name(&self, number: u32) -> &str {
        self.names.get(number as usize).map_or("(other)", |name| name)
    }

    /// How many names have a number of their own.
    pub fn named(&self) -> usize {
        self.numbers.len()
    }

    pub fn len(&self) -> usize {
        self.names.len()
    }
}

fn cut(name: &str) -> &str {
    let end = (0..=NAME_BYTES_MAX.min(name.len())).rev().find(|&end| name.is_char_boundary(end));
    &name[..end.unwrap_or(0)]
}
