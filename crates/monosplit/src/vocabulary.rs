//! The words that token ids stand for, from the files that tokenisers are kept in.

use std::path::Path;

use monosplit_graph::{Error, Result, shortened};
use serde_json::Value;

use crate::model;

/// The largest file of tokens that is read, and the largest id.
const MAX_FILE: u64 = 1 << 28;
const MAX_TOKENS: u64 = 1 << 24;
/// The longest token in characters.
const LONGEST_TOKEN: usize = 250;

/// The words of token ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vocabulary {
    tokens: Vec<String>,
}

impl Vocabulary {
    /// Reads `vocab.txt` (a token a line, the first has the id 0), `vocab.json` (an object of ids by token) or the
    /// `tokenizer.json` of Hugging Face.
    pub fn open(path: &Path) -> Result<Self> {
        let bytes = model::read_file(path, MAX_FILE)?;
        Vocabulary::read(&bytes).map_err(|error| error.context(path.display()))
    }

    fn read(bytes: &[u8]) -> Result<Self> {
        let text = std::str::from_utf8(bytes)
            .map_err(|_| Error::malformed("expected tokens as text, found bytes that are none"))?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut found = Vocabulary::default();
        if text.trim_start().starts_with('{') {
            let json: Value = serde_json::from_str(text)
                .map_err(|cause| Error::malformed(format!("the tokens are no JSON: {cause}")))?;
            found.add_all(&json)?;
        } else {
            found.tokens = text.lines().map(|line| spoken(line.trim_end_matches('\r'))).collect();
        }
        match found.tokens.is_empty() {
            true => Err(Error::malformed(
                "expected a token a line, an object of ids by token, or a tokenizer.json; found no token",
            )),
            false => Ok(found),
        }
    }

    fn add_all(&mut self, json: &Value) -> Result<()> {
        let vocabulary = json.get("model").and_then(|model| model.get("vocab"));
        match vocabulary.unwrap_or(json) {
            Value::Object(ids) => {
                for (token, id) in ids.iter().filter_map(|(token, id)| Some((token, id.as_u64()?))) {
                    self.add(token, id)?;
                }
            }
            // Unigram models: pairs of a token and its score, in the order of the ids.
            Value::Array(pairs) => {
                for (id, pair) in (0u64..).zip(pairs) {
                    self.add(pair.get(0).and_then(Value::as_str).unwrap_or_default(), id)?;
                }
            }
            _ => {}
        }
        for added in json.get("added_tokens").and_then(Value::as_array).into_iter().flatten() {
            let (content, id) = (added.get("content").and_then(Value::as_str), added.get("id"));
            if let (Some(content), Some(id)) = (content, id.and_then(Value::as_u64)) {
                self.add(content, id)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, token: &str, id: u64) -> Result<()> {
        if id >= MAX_TOKENS {
            return Err(Error::malformed(format!("the token id {id} is larger than any tokeniser's")));
        }
        let id = id as usize;
        if id >= self.tokens.len() {
            self.tokens.resize(id + 1, String::new());
        }
        self.tokens[id] = spoken(token);
        Ok(())
    }

    /// The word of a token; its id where none is known.
    pub fn word(&self, id: i64) -> String {
        let known = usize::try_from(id).ok().and_then(|id| self.tokens.get(id));
        known.filter(|token| !token.is_empty()).cloned().unwrap_or_else(|| id.to_string())
    }
}

/// A token without the sign for the space before it (GPT-2's `Ġ`, SentencePiece's `▁`).
fn spoken(token: &str) -> String {
    let bare = token.strip_prefix(['Ġ', '▁']).filter(|bare| !bare.is_empty()).unwrap_or(token);
    shortened(bare, LONGEST_TOKEN).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let vocabulary = Vocabulary::read(text.as_bytes()).unwrap();
        (-1..4).map(|id| vocabulary.word(id)).collect()
    }

    #[test]
    fn tokens_are_read_from_the_files_of_tokenisers() {
        assert_eq!(words("[PAD]\r\nfilm\r\n##s\r\n"), ["-1", "[PAD]", "film", "##s", "3"]);
        assert_eq!(words(r#"{"Ġfilm": 1, "<s>": 0, "s": 3}"#), ["-1", "<s>", "film", "2", "s"]);
        let bpe = r#"{"added_tokens": [{"id": 3, "content": "<mask>"}],
                      "model": {"type": "BPE", "vocab": {"a": 0, "Ġ": 1, "b": 2}}}"#;
        assert_eq!(words(bpe), ["-1", "a", "Ġ", "b", "<mask>"]);
        let unigram = r#"{"model": {"vocab": [["<unk>", 0.0], ["▁the", -3.1], ["s", -4.0]]}}"#;
        assert_eq!(words(unigram), ["-1", "<unk>", "the", "s", "3"]);
    }

    #[test]
    fn files_without_tokens_are_refused() {
        for text in ["", "{}", "{\"a\": 99999999999}", "{\"a\"", "{\"model\": {\"vocab\": 3}}"] {
            let error = Vocabulary::read(text.as_bytes()).unwrap_err().to_string();
            assert!(!error.contains('\n'), "{error}");
        }
        assert!(Vocabulary::read(b"\xff\xfe").is_err());
    }
}
