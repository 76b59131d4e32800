//! Properties of a model file's metadata that say how its input and its outputs are meant.

/// Names the preprocessing of pictures that a network was trained with.
pub const PRESET: &str = "monosplit.preset";
/// Holds the names of a network's classes, one a line.
pub const CLASSES: &str = "monosplit.classes";
