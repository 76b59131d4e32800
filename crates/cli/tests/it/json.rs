//! Whether a text is JSON, by its grammar (RFC 8259).

/// Panics, saying where, if `text` is not one JSON value.
pub(crate) fn assert_json(text: &str) {
    let rest =
        value(text).unwrap_or_else(|at| panic!("no JSON at: {}", at.chars().take(60).collect::<String>()));
    assert!(rest.trim().is_empty(), "more than one value: {rest}");
}

type Rest<'a> = Result<&'a str, &'a str>;

fn value(text: &str) -> Rest<'_> {
    let text = text.trim_start();
    match text.chars().next().ok_or(text)? {
        '{' => sequence(&text[1..], '}', |member| {
            let behind = string(member.trim_start())?.trim_start();
            value(behind.strip_prefix(':').ok_or(behind)?)
        }),
        '[' => sequence(&text[1..], ']', value),
        '"' => string(text),
        _ => {
            let end = text.find([',', '}', ']', '\n', ' ']).unwrap_or(text.len());
            let (word, rest) = text.split_at(end);
            let number = word.parse::<f64>().is_ok_and(f64::is_finite) && !word.starts_with(['+', '.']);
            if number || ["true", "false", "null"].contains(&word) { Ok(rest) } else { Err(text) }
        }
    }
}

fn sequence(text: &str, end: char, item: impl Fn(&str) -> Rest<'_>) -> Rest<'_> {
    if let Some(rest) = text.trim_start().strip_prefix(end) {
        return Ok(rest);
    }
    let mut rest = item(text)?.trim_start();
    while let Some(next) = rest.strip_prefix(',') {
        rest = item(next)?.trim_start();
    }
    rest.strip_prefix(end).ok_or(rest)
}

fn string(text: &str) -> Rest<'_> {
    let inner = text.strip_prefix('"').ok_or(text)?;
    let mut characters = inner.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Ok(&inner[at + 1..]),
            '\\' => drop(characters.next()),
            control if control < ' ' => return Err(&inner[at..]),
            _ => {}
        }
    }
    Err(text)
}
