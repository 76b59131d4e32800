//! A state dict seen through one architecture: its tensors under the names the architecture uses, and what is
//! missing, misshapen or left over, said in one sentence.

use std::collections::BTreeMap;

use super::closest::closest;
use super::naming::{current_name, shared_prefix};
use crate::tensor::Tensor;
use crate::weights::Weights;

/// How many names a message lists.
const LISTED: usize = 3;

/// Bookkeeping of PyTorch's `BatchNorm2d` that evaluation does not read.
const BATCHES_TRACKED: &str = "num_batches_tracked";

/// Name and shape of a tensor.
pub(super) type Parameter = (String, Vec<usize>);

/// The tensors of a file, by the names of `architecture`.
pub(super) struct StateDict<'a> {
    architecture: &'a str,
    tensors: BTreeMap<String, &'a Tensor>,
}

impl<'a> StateDict<'a> {
    /// The tensors of `weights`, less a prefix all names share if what remains is `wanted`.
    pub(super) fn new(architecture: &'a str, weights: &'a Weights, wanted: &[Parameter]) -> Self {
        let named = |prefix: usize| -> BTreeMap<String, &'a Tensor> {
            weights.iter().map(|(name, tensor)| (current_name(&name[prefix..]), tensor)).collect()
        };
        let mut tensors = named(shared_prefix(weights.names()).len());
        if !wanted.iter().any(|(name, _)| tensors.contains_key(name)) {
            tensors = named(0);
        }
        StateDict { architecture, tensors }
    }

    /// The first axis of a tensor.
    pub(super) fn rows(&self, name: &str) -> Option<usize> {
        self.tensors.get(name)?.shape().first().copied()
    }

    /// The tensor `name`, or what is wrong with it.
    pub(super) fn tensor(&self, name: &str, shape: &[usize]) -> Result<&'a Tensor, String> {
        let need = || format!("weights for '{}' need '{name}' {shape:?}", self.architecture);
        match self.tensors.get(name) {
            Some(tensor) if tensor.shape() == shape => Ok(tensor),
            Some(tensor) => Err(format!("{}; the file has it as {:?}", need(), tensor.shape())),
            None => Err(format!("{}; {}", need(), self.instead_of(name))),
        }
    }

    /// What the file has where `name` is missing.
    fn instead_of(&self, name: &str) -> String {
        match listed(&closest(name, self.tensors.keys().map(String::as_str), LISTED)) {
            near if near.is_empty() => "the file has no tensors".into(),
            near => format!("the file has {near}"),
        }
    }

    /// The prefix under which all of `wanted` is, beside other things.
    fn wrapper(&self, wanted: &[Parameter]) -> Option<&str> {
        let (first, _) = wanted.first()?;
        let prefixes = self.tensors.keys().filter_map(|k| k.strip_suffix(first.as_str()));
        let holds =
            |prefix: &str| wanted.iter().all(|(n, _)| self.tensors.contains_key(&format!("{prefix}{n}")));
        prefixes.filter(|prefix| prefix.ends_with('.')).find(|prefix| holds(prefix))
    }

    /// Whether everything in `wanted` is there in its shape.
    pub(super) fn check(&self, wanted: &[Parameter]) -> Result<(), String> {
        let fits = |name: &str, shape: &[usize]| self.tensors.get(name).is_some_and(|t| t.shape() == shape);
        let mut misfits = wanted.iter().filter(|(name, shape)| !fits(name, shape));
        let Some((name, shape)) = misfits.next() else { return Ok(()) };
        let Err(complaint) = self.tensor(name, shape) else { return Ok(()) };
        Err(match (self.wrapper(wanted), misfits.count()) {
            (Some(prefix), _) => format!("{complaint}: keep only what is under '{prefix}'"),
            (None, 0) => complaint,
            (None, others) => format!("{complaint} ({others} more do not fit)"),
        })
    }

    /// Whether nothing is there but what is `wanted`, for training only, or bookkeeping.
    pub(super) fn check_unused(&self, wanted: &[Parameter], training_only: &[&str]) -> Result<(), String> {
        let wanted: std::collections::HashSet<&str> = wanted.iter().map(|(name, _)| name.as_str()).collect();
        let known = |name: &str| {
            wanted.contains(name)
                || name.rsplit('.').next() == Some(BATCHES_TRACKED)
                || training_only.iter().any(|prefix| name.starts_with(prefix))
        };
        let unused: Vec<&str> = self.tensors.keys().map(String::as_str).filter(|name| !known(name)).collect();
        match unused.len() {
            0 => Ok(()),
            n => Err(format!(
                "the file has {n} tensor(s) that '{}' has no use for: {}{}",
                self.architecture,
                listed(&unused[..n.min(LISTED)]),
                if n > LISTED { ", …" } else { "" },
            )),
        }
    }
}

/// Quoted and separated by commas.
pub(super) fn listed(names: &[&str]) -> String {
    names.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ")
}
