//! What a network says of its pictures and its classes, and what is assumed where it says nothing.

use monosplit_engine::check_memory;
use monosplit_graph::metadata::{PRESET, SCORES};
use monosplit_graph::{Error, Hint, Result, Tensor, element_count, shown};
use monosplit_image::{Fit, Picture, Preprocess, Preset};

use crate::input::{ModelInput, Sample};
use crate::labels::Labels;
use crate::model::Model;
use crate::prediction::ScoreKind;

/// Another output of the network holds scores of classes.
const CLASS_OUTPUT: Hint = Hint::new("class-output", "choose an output that holds them, or a target");
/// Networks that are no classifiers are explained by a target.
const TARGET: Hint = Hint::new("target", "name a target, which says what of the outputs is explained");

impl Model {
    /// The preprocessing that was named when the network was opened ([`ModelOptions::preset`](crate::ModelOptions::preset)), or
    /// that its own file names, as files written by training do.
    pub fn preset(&self) -> Result<Option<Preset>> {
        match self.opened_with().preset {
            Some(preset) => Ok(Some(preset)),
            None => self.metadata(PRESET).map(str::parse).transpose(),
        }
    }

    /// How pictures are made ready for the network unless told otherwise: by [`Model::pixel_values`], at the network's size.
    /// A picture of exactly that size is taken as it is.
    pub fn preprocess(&self) -> Result<Preprocess> {
        let size = self.picture_input()?.size;
        self.pixel_values()?.preset.options().fit(size, Fit::default())
    }

    /// A picture as the network reads it.
    pub fn sample(&self, picture: &Picture, preprocess: &Preprocess) -> Result<Sample> {
        let prepared = ModelInput::new(self, self.picture_input()?.order)?.picture(picture, preprocess)?;
        Ok(Sample {
            name: String::new(),
            tensor: prepared.tensor,
            picture: Some(prepared.picture),
            features: None,
        })
    }

    /// A batch of one sample of pseudo-random numbers between −1 and 1, or of bytes where the network reads those, the same
    /// on every call: for checks that need some input.
    pub fn pattern_sample(&self) -> Result<Tensor> {
        let shape = self.sample_shape()?;
        let count = element_count(&shape);
        check_memory(count, &format!("a sample of shape {shape:?}"))?;
        let count = count.unwrap_or(0);
        let mut state = 0x2545_f491_4f6c_dd1du64;
        let bytes = self.pixel_values()?.preset == Preset::None;
        let values: Vec<f32> = (0..count)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                let number = (state >> 40) as f32 / (1u32 << 23) as f32 - 1.0;
                if bytes { ((number + 1.0) * 127.5).round() } else { number }
            })
            .collect();
        Tensor::new([&[1], &shape[..]].concat(), values)
    }

    /// The number of classes; an error if the first output does not hold one score for each.
    pub fn expect_classes(&self) -> Result<usize> {
        self.classes().ok_or_else(|| {
            let suggested = self.suggested_targets().into_iter().flat_map(|output| output.targets).next();
            self.unfit_output("expected one score for each class")
                .hint(TARGET.about(suggested.unwrap_or_else(|| "sum:OUTPUT".to_owned())))
        })
    }

    /// An error about the output that is run and explained; where another holds scores of
    /// classes, a hint names it.
    pub fn unfit_output(&self, expected: &str) -> Error {
        let Some(first) = self.graph().outputs().first() else {
            return self.unfit("the network has no output".to_owned());
        };
        let shape = &self.graph().node(first.node).shape;
        let error = self.unfit(format!("output '{}' has the shape {shape}, {expected}", shown(&first.name)));
        match self.class_outputs().into_iter().find(|name| *name != first.name) {
            Some(name) => error.hint(CLASS_OUTPUT.about(name)),
            None => error,
        }
    }

    /// The names of the classes: [`Labels::of`].
    pub fn labels(&self) -> Result<Labels> {
        Ok(Labels::of(self, self.expect_classes()?))
    }

    /// What the class scores are, by what was found at the end of the network.
    pub fn score_kind(&self) -> ScoreKind {
        if self.target().is_some_and(|target| !target.is_class()) {
            return ScoreKind::Score;
        }
        // The metadata of a compiled file speak of its first output.
        let told = self.metadata(SCORES).filter(|_| self.opened_with().output.is_none());
        if let Some(kind) = told.and_then(ScoreKind::named) {
            return kind;
        }
        let output = self.graph().outputs().first().map_or("", |output| output.name.as_str());
        ScoreKind::of(self.classes().unwrap_or(0), output, &self.report().outputs)
    }
}
