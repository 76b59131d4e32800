//! Different names of the same tensor: prefixes that wrapping modules add, and names that torchvision has changed.

/// The dotted prefix all `names` share, with its dot: what a wrapping module adds.
pub(super) fn shared_prefix<'a>(mut names: impl Iterator<Item = &'a str>) -> &'a str {
    let parent = |name: &'a str| name.rfind('.').map_or("", |dot| &name[..=dot]);
    let Some(first) = names.next().map(parent) else { return "" };
    names.fold(first, |shared, name| {
        let alike = shared.bytes().zip(name.bytes()).take_while(|(a, b)| a == b).count();
        shared.as_bytes()[..alike].iter().rposition(|&b| b == b'.').map_or("", |dot| &shared[..=dot])
    })
}

/// The name torchvision uses today: its DenseNet checkpoints still say `denselayer1.norm.1.weight` for what is
/// now `denselayer1.norm1.weight`.
pub(super) fn current_name(name: &str) -> String {
    let parts: Vec<&str> = name.split('.').collect();
    let old = parts.windows(3).position(|parts| {
        let layer = parts[0].strip_prefix("denselayer");
        layer.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
            && matches!(parts[1], "norm" | "conv")
            && matches!(parts[2], "1" | "2")
    });
    match old {
        None => name.to_owned(),
        Some(at) => {
            let merged = format!("{}{}", parts[at + 1], parts[at + 2]);
            [&parts[..=at], &[merged.as_str()], &parts[at + 3..]].concat().join(".")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_shared_by_whole_words() {
        assert_eq!(
            shared_prefix(["model.net.conv1.weight", "model.net.conv1.bias"].into_iter()),
            "model.net.conv1."
        );
        assert_eq!(shared_prefix(["model.a.weight", "model.b.weight"].into_iter()), "model.");
        assert_eq!(shared_prefix(["conv1.weight", "conv2.weight"].into_iter()), "");
        assert_eq!(shared_prefix(["é.weight", "è.weight"].into_iter()), "");
        assert_eq!(shared_prefix(["weight"].into_iter()), "");
    }

    #[test]
    fn old_densenet_names_are_todays() {
        let name = "features.denseblock1.denselayer12.norm.2.running_mean";
        assert_eq!(current_name(name), "features.denseblock1.denselayer12.norm2.running_mean");
        for same in ["features.norm.1.weight", "features.denselayer1.norm1.weight", "fc.weight"] {
            assert_eq!(current_name(same), same);
        }
    }
}
