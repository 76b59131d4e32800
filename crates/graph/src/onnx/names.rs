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
    /// Takes a name; `false` if somebody has it.
    pub(crate) fn take(&mut self, name: &str) -> bool {
        self.taken.insert(name.to_owned())
    }

    /// Whether somebody has a name.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.taken.contains(name)
    }

    /// Takes a name nobody has yet, the one wished for if possible.
    pub(crate) fn fresh(&mut self, wish: &str) -> String {
        if self.take(wish) {
            return wish.to_owned();
        }
        let count = self.next.entry(wish.to_owned()).or_insert(1);
        loop {
            let name = format!("{wish}_{count}");
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
