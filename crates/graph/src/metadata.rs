//! Properties of a model file's metadata that say how its input and its outputs are meant.

/// Names the preprocessing of pictures that a network was trained with.
pub const PRESET: &str = "monosplit.preset";
/// Says what the class scores at the first output are: logits that enter a softmax or sigmoids, or probabilities.
pub const SCORES: &str = "monosplit.scores";
/// Holds the names of a network's classes, one a line.
pub const CLASSES: &str = "monosplit.classes";
/// Holds the names of the values that are the scores of `g` and of `h`, separated by a blank.
pub const STREAMS: &str = "monosplit.streams";
