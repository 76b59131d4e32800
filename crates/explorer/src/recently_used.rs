//! Values by key, of which the most recently used are kept.

/// The most recently used values.
pub(crate) struct RecentlyUsed<V> {
    most: usize,
    /// The last is the most recently used.
    entries: Vec<(String, V)>,
}

impl<V: Clone> RecentlyUsed<V> {
    /// Keeps at most so many values.
    pub(crate) fn new(most: usize) -> Self {
        RecentlyUsed { most, entries: Vec::new() }
    }

    /// The value of this key, which is made if it is not kept.
    pub(crate) fn get<E>(&mut self, key: String, make: impl FnOnce() -> Result<V, E>) -> Result<V, E> {
        let known = self.entries.iter().position(|(known, _)| *known == key);
        let value = match known {
            Some(at) => self.entries.remove(at).1,
            None => {
                // Before the new one is made, so that the two are never held together.
                if self.entries.len() >= self.most {
                    self.entries.remove(0);
                }
                make()?
            }
        };
        self.entries.push((key, value.clone()));
        Ok(value)
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_is_made_again() {
        let mut cache = RecentlyUsed::new(2);
        let mut made = Vec::new();
        for key in ["a", "b", "a", "c", "a", "b"] {
            let value = cache.get(key.to_owned(), || {
                made.push(key);
                Ok::<_, ()>(key)
            });
            assert_eq!(value, Ok(key));
        }
        assert_eq!(made, ["a", "b", "c", "b"]);
    }
}
