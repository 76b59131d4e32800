//! The lines that compute the same map: for the program, for Python, for Rust.

use monosplit::Result;
use serde_json::json;

use crate::maps::ChosenMap;
use crate::request::{MapChoice, Question};
use crate::response::Response;
use crate::session::Session;

/// What a line says, whatever the language.
struct Wanted<'a> {
    network: &'a str,
    picture: &'a str,
    preset: Option<&'a str>,
    /// The method with its options but α.
    method: &'a str,
    alpha: Option<f64>,
    layer: Option<&'a str>,
    class: usize,
    rival: Option<usize>,
}

impl Session {
    pub(crate) fn lines(&mut self, question: &Question, map: &MapChoice) -> Result<Response> {
        let network = self.network()?;
        let prepared = self.prepared(&question.subject)?;
        let targeted = self.targeted(question)?;
        let chosen = ChosenMap::new(map, question.alpha, &targeted.model, &prepared.preprocess)?;
        let class = match question.class {
            Some(class) => class,
            None => self.explained_class(question)?,
        };
        // An edited picture is one to be downloaded first.
        let is_edited = !question.subject.edits.is_empty();
        let picture = match is_edited {
            true => "edited.png",
            false => self.picture_name(question.subject.picture)?,
        };
        let layer = chosen.named_layer(&targeted.model);
        let wanted = Wanted {
            network: &network.name,
            picture,
            preset: question.subject.preset.as_deref(),
            method: chosen.written(),
            alpha: chosen.shift(),
            layer: layer.as_deref(),
            class,
            rival: question.rival,
        };
        Ok(Response::new(json!({
            "command": wanted.command(),
            "python": wanted.python(),
            "rust": wanted.rust(),
            "edited": is_edited,
        })))
    }
}

impl Wanted<'_> {
    fn command(&self) -> String {
        let mut words =
            vec!["monosplit explain".to_owned(), file_word(self.network), file_word(self.picture)];
        let mut add = |option: &str, value: &str| words.push(format!("{option} {}", shell_word(value)));
        add("--method", self.method);
        self.alpha.iter().for_each(|alpha| add("--alpha", &alpha.to_string()));
        self.layer.iter().for_each(|layer| add("--layer", layer));
        match self.rival {
            None => add("--class", &self.class.to_string()),
            Some(rival) => add("--target", &format!("contrast:{},{rival}", self.class)),
        }
        self.preset.iter().for_each(|preset| add("--preset", preset));
        add("--raw", "map.npy");
        words.join(" ")
    }

    fn python(&self) -> String {
        let (name, options) = self.method.split_once(':').unwrap_or((self.method, ""));
        let mut arguments = vec![format!("ms_picture, {}", text(name))];
        match self.rival {
            None => arguments.push(format!("target={}", self.class)),
            Some(rival) => arguments.push(format!("target=ms.target.Contrast({}, {rival})", self.class)),
        }
        arguments.extend(self.layer.map(|layer| format!("layer={}", text(layer))));
        arguments.extend(self.alpha.map(|alpha| format!("alpha={alpha}")));
        for (key, value) in options.split(',').filter_map(|option| option.split_once('=')) {
            let value = if value.parse::<f64>().is_ok() { value.to_owned() } else { text(value) };
            arguments.push(format!("{}={value}", key.replace('-', "_")));
        }
        let call = arguments.join(", ").replacen("ms_picture", &text(self.picture), 1);
        let preset = self.preset.map_or(String::new(), |preset| format!(", preset={}", text(preset)));
        format!(
            "import monosplit as ms\n\nmodel = ms.load({}{preset})\ne = model.explain({call})\ne.attributions, e.maps",
            text(self.network)
        )
    }

    fn rust(&self) -> String {
        let mut calls = vec![format!("model.explainer({})", text(self.method))];
        calls.extend(self.layer.map(|layer| format!(".layer({})", text(layer))));
        calls.extend(self.alpha.map(|alpha| format!(".alpha({alpha:?})")));
        match self.rival {
            None => calls.push(format!(".class({})", self.class)),
            Some(rival) => calls.push(format!(".target(\"contrast:{},{rival}\")", self.class)),
        }
        if let Some(preset) = self.preset {
            calls.push(format!(
                ".preprocess({}.parse::<Preset>()?.options().fit(model.picture_input()?.size, Fit::Auto)?)",
                text(preset)
            ));
        }
        calls.push(format!(".explain(&Picture::open({})?)?", text(self.picture)));
        let imports = if self.preset.is_some() { "{Fit, Picture, Preset}" } else { "Picture" };
        format!(
            "use monosplit::Model;\nuse monosplit::image::{imports};\n\nlet model = Model::open({})?;\n\
             let explanation = {};\nlet map = &explanation.map.values;",
            text(self.network),
            calls.join("\n    ")
        )
    }
}

/// A string literal of Rust and of Python alike.
fn text(value: &str) -> String {
    let mut quoted = String::from("\"");
    for c in value.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            c if c.is_control() => {}
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

/// A word of a shell's line.
fn shell_word(value: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-+/:=,@%".contains(c);
    match !value.is_empty() && value.chars().all(is_plain) {
        true => value.to_owned(),
        false => format!("'{}'", value.replace('\'', "'\\''")),
    }
}

/// A file's name as a word: one that begins like an option is given with its folder.
fn file_word(name: &str) -> String {
    shell_word(&if name.starts_with('-') { format!("./{name}") } else { name.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_language_says_another_preprocessing() {
        let guessed = Wanted {
            network: "net.onnx",
            picture: "cat.png",
            preset: None,
            method: "splitcam",
            alpha: Some(0.3),
            layer: None,
            class: 3,
            rival: None,
        };
        let changed = Wanted { preset: Some("unit"), ..guessed };
        assert!(changed.command().contains(" --preset unit "));
        assert!(changed.python().contains("model = ms.load(\"net.onnx\", preset=\"unit\")\n"));
        assert!(changed.rust().contains("\"unit\".parse::<Preset>()?"));
        assert!(guessed.python().contains("model = ms.load(\"net.onnx\")\n"));
        for lines in [guessed.command(), guessed.python(), guessed.rust()] {
            assert!(!lines.to_lowercase().contains("preset"), "{lines}");
        }
    }

    #[test]
    fn names_are_quoted_where_they_must_be() {
        for (name, word) in [
            ("cat.png", "cat.png"),
            ("my cat.png", "'my cat.png'"),
            ("it's.png", r"'it'\''s.png'"),
            ("--raw", "./--raw"),
            ("", "''"),
        ] {
            assert_eq!(file_word(name), word);
        }
        assert_eq!(text("a\"b\\c"), r#""a\"b\\c""#);
    }
}
