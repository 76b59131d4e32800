//! Patterns of layers: names with `*` for any text, which also name what a module contains.

use monosplit_graph::Label;

/// Whether the pattern matches one of the names of a node, or of a module that contains it.
pub(crate) fn fits(pattern: &str, label: &Label) -> bool {
    let inside = |name: &str| name.strip_prefix(pattern).is_some_and(|rest| rest.starts_with(['.', '/']));
    let mut names = [&label.module, &label.node, &label.tensor].into_iter().chain(&label.aliases);
    names.any(|name| !name.is_empty() && (inside(name) || matches(pattern, name)))
}

/// Whether `name` matches `pattern`, in which `*` stands for any characters or none.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = name.strip_prefix(parts.next().unwrap_or("")) else { return false };
    let Some(last) = pattern.split('*').skip(1).last() else { return rest.is_empty() };
    let between = pattern.matches('*').count() - 1;
    for part in parts.take(between) {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, name, expected) in [
            ("conv1", "conv1", true),
            ("conv1", "conv10", false),
            ("layer4.*", "layer4.1.conv2", true),
            ("*.conv2", "layer4.1.conv2", true),
            ("l*4*conv2", "layer4.1.conv2", true),
            ("l*4*conv2", "layer3.1.conv2", false),
            ("a*a", "a", false),
            ("*", "", true),
            ("**", "x", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn a_container_stands_for_what_it_holds() {
        let label = |module: &str| Label { module: module.into(), ..Label::default() };
        assert!(fits("layer4", &label("layer4.0.conv1")));
        assert!(!fits("layer4", &label("layer40.conv1")));
    }
}
