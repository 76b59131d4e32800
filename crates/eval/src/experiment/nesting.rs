//! How deep a TOML text nests lists and tables, found without reading it: the reader of TOML bounds what it reads, but calls itself
//! without bound where it goes on behind an error.

/// How deep lists and tables may stand in one another.
pub(super) const MAX_NESTING: usize = 64;

/// The place of the first bracket that is nested too deep.
pub(super) fn too_deep(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut open = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'#' => at = end_of_line(bytes, at),
            quote @ (b'"' | b'\'') => {
                at = behind_text(bytes, at, quote);
                continue;
            }
            bracket @ (b'[' | b'{') => {
                if open.len() == MAX_NESTING {
                    return Some(at);
                }
                open.push(bracket);
            }
            // What closes nothing is passed over, by the reader too.
            b']' if open.last() == Some(&b'[') => {
                open.pop();
            }
            b'}' if open.last() == Some(&b'{') => {
                open.pop();
            }
            _ => {}
        }
        at += 1;
    }
    None
}

fn end_of_line(bytes: &[u8], from: usize) -> usize {
    bytes[from..].iter().position(|&byte| matches!(byte, b'\n' | b'\r')).map_or(bytes.len(), |n| from + n)
}

/// Where a text ends that begins at `at` with this quote. One on a single line ends with it if it is not closed.
fn behind_text(bytes: &[u8], at: usize, quote: u8) -> usize {
    let several = bytes[at..].starts_with(&[quote; 3]);
    let mut at = at + if several { 3 } else { 1 };
    while at < bytes.len() {
        let closed = if several { bytes[at..].starts_with(&[quote; 3]) } else { bytes[at] == quote };
        match bytes[at] {
            _ if closed && several => {
                // Up to two quotes more belong to the text.
                let more = bytes[at + 3..].iter().take(2).take_while(|&&byte| byte == quote).count();
                return at + 3 + more;
            }
            _ if closed => return at + 1,
            b'\n' if !several => return at,
            b'\\' if quote == b'"' && matches!(bytes.get(at + 1), Some(b'"' | b'\\')) => at += 2,
            _ => at += 1,
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::value::Value;
    use super::*;

    fn nested(depth: usize) -> String {
        format!("a = {}1{}\n", "[".repeat(depth), "]".repeat(depth))
    }

    #[test]
    fn only_what_is_open_counts() {
        assert_eq!(too_deep(&nested(MAX_NESTING)), None);
        assert_eq!(too_deep(&nested(MAX_NESTING + 1)), Some(4 + MAX_NESTING));
        let brackets = "[{".repeat(100);
        for honest in [
            "[[a]]\nb = { c = [1, 2] }\n".repeat(100),
            format!("a = \"{brackets}\"\n"),
            format!("a = '{brackets}' # {brackets}\n"),
            format!("a = \"\"\"\n\\\"{brackets}\"\"\"\"\nb = '''{brackets}''''\n"),
            format!("a = \"\\\\\" # {brackets}\n"),
        ] {
            assert_eq!(too_deep(&honest), None, "{honest}");
            Value::parse(&honest, Path::new("a.toml")).unwrap();
        }
        // Closed in a text is not closed.
        assert!(too_deep(&format!("a = {}", "[\"]\", ".repeat(100))).is_some());
    }

    #[test]
    fn issue_35_no_mistake_makes_the_reader_of_toml_end_the_program() {
        // On the stack of a thread, as long as a description may be. The first was found by the fuzz test.
        let mistakes = [
            "of = [\n  { title = \"S\"\n[data]\n[timing]\n",
            "[",
            "{b=",
            "[}",
            "{]",
            "[{]}",
            "[\"]\",",
            "{a='}'\n[b]\n",
            "{\n[",
            "{a \"\"\n{",
            "a.",
            "[a.",
            "[[",
            "{'",
            "[\"\\",
            "[#]\n",
            "{a=[}\n",
            "['''",
            "{a = 1 [",
            "[1 {",
            "[,{a,[",
        ];
        for mistake in mistakes {
            let text = format!("a = {}", mistake.repeat((1 << 20) / mistake.len()));
            assert!(Value::parse(&text, Path::new("a.toml")).is_err(), "{mistake}");
        }
    }
}
