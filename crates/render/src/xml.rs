//! Whether a document is well-formed XML, for the tests of those who write such documents.

/// Walks `document` and returns the tags in the order they are opened; panics at the first mistake.
pub(crate) fn assert_well_formed(document: &str) -> Vec<String> {
    let (mut tags, mut open) = (Vec::new(), Vec::new());
    let mut rest = document.trim_end();
    assert!(rest.starts_with('<'), "words before the document");
    while !rest.is_empty() {
        let Some(at) = rest.find('<') else { panic!("words after the document: {rest:.40}") };
        assert_words(&rest[..at]);
        assert!(at == 0 || !open.is_empty(), "words outside of every element");
        rest = &rest[at + 1..];
        let end = tag_end(rest);
        let tag = &rest[..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name), "an element ends that was not open");
            continue;
        }
        let (tag, empty) = tag.strip_suffix('/').map_or((tag, false), |tag| (tag, true));
        let name = tag.split(' ').next().unwrap_or_default();
        assert!(!name.is_empty() && name.chars().all(char::is_alphanumeric), "the tag {name:?}");
        assert_attributes(&tag[name.len()..]);
        assert!(!tags.is_empty() && !open.is_empty() || tags.is_empty(), "two documents");
        tags.push(name.to_string());
        if !empty {
            open.push(name.to_string());
        }
    }
    assert!(open.is_empty(), "left open: {open:?}");
    tags
}

/// Where the tag ends that `rest` starts with; a `>` within quotes does not end it.
fn tag_end(rest: &str) -> usize {
    let mut quoted = false;
    for (at, c) in rest.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '>' if !quoted => return at,
            '<' => panic!("a tag within a tag: {rest:.40}"),
            _ => {}
        }
    }
    panic!("a tag without end: {rest:.40}")
}

fn assert_attributes(mut rest: &str) {
    let mut seen: Vec<&str> = Vec::new();
    while !rest.trim_start().is_empty() {
        assert!(rest.starts_with(' '), "attributes run together: {rest:.40}");
        let (name, after) = rest.trim_start().split_once("=\"").expect("an attribute has a value in quotes");
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'), "the attribute {name:?}");
        assert!(!seen.contains(&name), "{name} is given twice");
        seen.push(name);
        let (value, after) = after.split_once('"').expect("a value ends");
        assert_words(value);
        rest = after;
    }
}

fn assert_words(words: &str) {
    const ENTITIES: [&str; 5] = ["&amp;", "&lt;", "&gt;", "&quot;", "&#39;"];
    for (at, c) in words.char_indices() {
        assert!(c >= ' ' || matches!(c, '\n' | '\t' | '\r'), "the character {c:?} may not occur in XML");
        assert!(c != '\u{fffe}' && c != '\u{ffff}', "the character {c:?} may not occur in XML");
        if c == '&' {
            assert!(ENTITIES.iter().any(|e| words[at..].starts_with(e)), "a bare ampersand: {words:.60}");
        }
    }
}
