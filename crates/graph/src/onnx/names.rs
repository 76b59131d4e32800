//! Names that must not repeat.

use std::collections::{HashMap, HashSet};

/// The names taken so far.
#[derive(Debug, Default)]
pub(crate) struct Names {
    taken: HashSet<String>,
    /// For names wished for more than once, the next number to try.
    next: HashMap<String, usize>,
}

impl Names {
    /// Takes a name; `false` if it is taken already.
    pub(crate) fn take(&mut self, name: &str) -> bool {
        self.taken.insert(name.to_owned())
    }

    /// Whether a name is taken.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.taken.contains(name)
    }

    /// Takes a free name, the proposed one if possible.
    pub(crate) fn fresh(&mut self, target: &str) -> String {
        if self.take(target) {
            return target.to_owned();
        }
        let count = self.next.entry(target.to_owned()).or_insert(1);
        loop {
            let name = format!("{target}_{count}");
            *count += 1;
            if self.taken.insert(name.clone()) {
                return name;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_where_they_are_free() {
        let mut names = Names::default();
        assert!(names.take("a_1"));
        assert_eq!(["a", "a", "a", "b"].map(|n| names.fresh(n)), ["a", "a_2", "a_3", "b"]);
    }
}
