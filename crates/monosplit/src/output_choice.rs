//! Which scores of a network are meant: an output by its name, and probabilities or the logits that they are made of.

use std::convert::Infallible;
use std::str::FromStr;

/// The scores that are run and explained. As text: `NAME`, `logit`, `probability`, `NAME,logit` or `NAME,probability`. An output
/// called `logits` or the like is found by that name alone.
///
/// ```
/// use monosplit::OutputChoice;
///
/// let choice: OutputChoice = "aux,probability".parse().unwrap();
/// assert_eq!((choice.name.as_deref(), choice.probabilities), (Some("aux"), true));
/// // An output called like a kind of score is named together with a kind.
/// let choice: OutputChoice = "probability,logit".parse().unwrap();
/// assert_eq!((choice.name.as_deref(), choice.probabilities), (Some("probability"), false));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct OutputChoice {
    /// The output; the first if there is none.
    pub name: Option<String>,
    /// The word for a kind of score that stood alone. An output of that name is meant if there is one.
    pub word: Option<String>,
    /// Whether scores are the probabilities of a final softmax or sigmoid, rather than the logits that enter it.
    pub probabilities: bool,
}

impl FromStr for OutputChoice {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let kind = |word: &str| match word.trim() {
            "logit" | "logits" => Some(false),
            "probability" | "probabilities" => Some(true),
            _ => None,
        };
        if let Some(probabilities) = kind(text) {
            return Ok(OutputChoice { name: None, word: Some(text.trim().to_owned()), probabilities });
        }
        let split = text.rsplit_once(',').and_then(|(name, word)| Some((name, kind(word)?)));
        let (name, probabilities) = split.unwrap_or((text, false));
        Ok(OutputChoice { name: Some(name.to_owned()), word: None, probabilities })
    }
}
