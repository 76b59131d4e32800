//! Names near a mistyped or missing one.

/// Longer names than this are not compared.
const LONGEST: usize = 256;

/// At most `count` of `candidates`, the nearest to `name` first.
pub(super) fn closest<'a>(
    name: &str,
    candidates: impl Iterator<Item = &'a str>,
    count: usize,
) -> Vec<&'a str> {
    let name: Vec<char> = name.chars().take(LONGEST).collect();
    let mut ranked: Vec<(usize, &str)> =
        candidates.filter(|c| c.len() <= LONGEST).map(|c| (distance(&name, c), c)).collect();
    ranked.sort();
    ranked.into_iter().take(count).map(|(_, candidate)| candidate).collect()
}

/// Levenshtein's distance: letters inserted, removed or replaced.
fn distance(a: &[char], b: &str) -> usize {
    let mut row: Vec<usize> = (0..=a.len()).collect();
    for (i, letter) in b.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, &other) in a.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != other);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[a.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_levenshteins() {
        let between = |a: &str, b: &str| distance(&a.chars().collect::<Vec<_>>(), b);
        assert_eq!(between("kitten", "sitting"), 3);
        assert_eq!(between("", "abc"), 3);
        assert_eq!(between("flaw", "lawn"), 2);
    }
}
