//! The closest names to a mistyped or missing one. There is always a suggestion, however distant.

/// Longer names than this are not compared.
const LONGEST_COMPARED: usize = 200;

/// At most `count` of `candidates`, the nearest to `name` first.
pub(super) fn closest<'a>(
    name: &str,
    candidates: impl Iterator<Item = &'a str>,
    count: usize,
) -> Vec<&'a str> {
    let name: String = name.chars().take(LONGEST_COMPARED).collect();
    let comparable = candidates.filter(|candidate| candidate.len() <= LONGEST_COMPARED);
    let mut ranked: Vec<(usize, &str)> = comparable.map(|c| (strsim::levenshtein(&name, c), c)).collect();
    ranked.sort_unstable();
    ranked.into_iter().take(count).map(|(_, candidate)| candidate).collect()
}
