//! What the inputs of a network hold, and which of them are explained unless others are named.

use monosplit_explain::{ExplainedInputs, InputPart, parameter_inputs};
use monosplit_graph::{Error, Kind, Result, Shape};

use crate::model::Model;

/// What an input holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InputKind {
    /// Real numbers.
    Real,
    /// Integers, or truth values.
    Integers,
    /// Token ids, which are looked up in a constant table.
    Tokens {
        /// The number of tokens of a sample.
        tokens: usize,
        /// The number of real numbers for each token.
        width: usize,
        /// The number of rows of the table, where the ids are looked up in it as they are.
        rows: Option<usize>,
    },
}

/// An input of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InputFacts {
    /// Its name.
    pub name: String,
    /// Its shape.
    pub shape: Shape,
    /// What it holds.
    pub holds: InputKind,
    /// Whether an explanation can follow it.
    pub is_explainable: bool,
    /// Whether it is explained unless others are named.
    pub is_default: bool,
}

impl Model {
    /// The inputs that a person gives, in the order of the network: all but optional ones and those of a target.
    ///
    /// Explained by default are those that hold real numbers, and of those that hold token ids the one with the largest
    /// table: the others are positions and segments. Where there are none, it is the first whose integers the network
    /// turns into real numbers, as pictures of bytes are.
    pub fn input_facts(&self) -> Vec<InputFacts> {
        let nodes = self.graph().inputs().iter().map(|&id| self.graph().node(id));
        let is_given = |name: &str| {
            let is_target = self.target().is_some() && parameter_inputs::ALL.contains(&name);
            !is_target && self.defaults().iter().all(|(optional, _)| optional != name)
        };
        let nodes = nodes.filter(|node| is_given(&node.label.tensor));
        let mut all: Vec<InputFacts> = nodes
            .map(|node| {
                let name = node.label.tensor.clone();
                let found = ExplainedInputs::new(self.graph(), &[&name]);
                let part = found.as_ref().ok().and_then(|found| found.parts().first());
                let holds = part.and_then(tokens).unwrap_or(match self.declared_kind(&name) {
                    Some(Kind::Float) => InputKind::Real,
                    _ => InputKind::Integers,
                });
                let is_explainable = found.is_ok();
                InputFacts { name, shape: node.shape.clone(), holds, is_explainable, is_default: false }
            })
            .collect();
        choose_defaults(&mut all);
        all
    }

    /// The names of the inputs that are explained unless others are named; an error if there are none.
    pub fn default_inputs(&self) -> Result<Vec<String>> {
        let all = self.input_facts();
        let chosen: Vec<String> =
            all.iter().filter(|input| input.is_default).map(|input| input.name.clone()).collect();
        if !chosen.is_empty() {
            return Ok(chosen);
        }
        // What is wrong with the first says it best.
        let first = all.first().map(|first| ExplainedInputs::new(self.graph(), &[&first.name]));
        Err(match first {
            Some(Err(error)) => error.context(self.origin()),
            _ => Error::argument(format!("{}: the output does not depend on any input", self.origin())),
        })
    }

    /// The kind of an input in the network's file.
    fn declared_kind(&self, name: &str) -> Option<Kind> {
        let mut inputs = self.original().inputs().iter().map(|&id| self.original().node(id));
        inputs.find(|node| node.label.tensor == name).map(|node| node.kind)
    }
}

fn tokens(part: &InputPart) -> Option<InputKind> {
    let tokens = part.tokens()?;
    Some(InputKind::Tokens { tokens, width: part.len() / tokens.max(1), rows: part.rows() })
}

fn choose_defaults(all: &mut [InputFacts]) {
    let rows = |input: &InputFacts| match input.holds {
        InputKind::Tokens { rows, .. } => Some(rows.unwrap_or(usize::MAX)),
        InputKind::Real | InputKind::Integers => None,
    };
    let most = all.iter().filter_map(rows).max();
    let first = most.and_then(|most| all.iter().position(|input| rows(input) == Some(most)));
    for (index, input) in all.iter_mut().enumerate() {
        input.is_default = input.is_explainable && (input.holds == InputKind::Real || first == Some(index));
    }
    if all.iter().all(|input| !input.is_default)
        && let Some(first) = all.iter_mut().find(|input| input.is_explainable)
    {
        first.is_default = true;
    }
}
