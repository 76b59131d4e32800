//! Networks whose file leaves lengths of their inputs open: height and width of pictures, the length of a text. They are opened
//! for the lengths that an input has.

use monosplit_graph::onnx::{DeclaredLength, DeclaredValue};
use monosplit_graph::{Error, Result};

use crate::input::{FileShape, InputFile};
use crate::model::Model;
use crate::model_options::{ModelOptions, Origin};

/// A network of which lengths are open.
#[derive(Clone, Debug)]
pub struct OpenNetwork {
    options: ModelOptions,
    origin: Origin,
    inputs: Vec<DeclaredValue>,
}

impl ModelOptions {
    /// The network with what its file leaves open; none if it leaves nothing open but the number of samples, or these options say
    /// what it is.
    pub fn open_lengths(&self, origin: &Origin) -> Result<Option<OpenNetwork>> {
        let Origin::Onnx(path) = origin else { return Ok(None) };
        if self.input_shape.is_some() {
            return Ok(None);
        }
        let inputs = self.import_report(path)?.declared_inputs;
        let is_open = |input: &DeclaredValue| {
            let is_known = self.named_shapes.iter().any(|(name, _)| *name == input.name);
            !is_known && input.lengths.as_ref().is_some_and(|lengths| open_axes(lengths).next().is_some())
        };
        let found = inputs.iter().any(is_open);
        Ok(found.then(|| OpenNetwork { options: self.clone(), origin: origin.clone(), inputs }))
    }
}

/// The axes of open length, but for that of the samples.
fn open_axes(lengths: &[DeclaredLength]) -> impl Iterator<Item = usize> {
    let each = lengths.iter().enumerate().skip(1);
    each.filter(|(_, length)| matches!(length, DeclaredLength::Open(_))).map(|(axis, _)| axis)
}

impl OpenNetwork {
    /// The names of its inputs.
    pub fn inputs(&self) -> impl Iterator<Item = &str> {
        self.inputs.iter().map(|input| input.name.as_str())
    }

    /// The shape of a sample of the input `name` that fits a file: the lengths of its array, or height and width of its picture
    /// after `scaled`. Lengths that the network fixes stay.
    pub fn sample_shape(
        &self,
        name: &str,
        file: &InputFile,
        scaled: impl Fn((usize, usize)) -> (usize, usize),
    ) -> Result<Vec<usize>> {
        let misfit = |words: String| Error::shape(format!("{}: {words}", self.origin));
        let declared = self.inputs.iter().find(|input| input.name == name);
        let lengths = declared.and_then(|input| input.lengths.as_deref()).and_then(|all| all.get(1..));
        let Some(lengths) = lengths else {
            let names: Vec<String> = self.inputs().map(|name| format!("'{name}'")).collect();
            return Err(misfit(format!(
                "there is no input '{name}' of known axes; the inputs are {}",
                names.join(", ")
            )));
        };
        let fixed = |at: usize| match lengths.get(at) {
            Some(DeclaredLength::Fixed(length)) => Some(*length),
            _ => None,
        };
        match file.shape(&[name])? {
            FileShape::Array(shape) => {
                let own = match shape.len().checked_sub(lengths.len()) {
                    Some(0) => &shape[..],
                    Some(1) => &shape[1..],
                    _ => {
                        return Err(misfit(format!(
                            "input '{name}' has {} axes, found an array of shape {shape:?}",
                            lengths.len() + 1
                        )));
                    }
                };
                Ok(own.iter().enumerate().map(|(at, &length)| fixed(at).unwrap_or(length)).collect())
            }
            FileShape::Picture { width, height } => {
                let (width, height) = scaled((width, height));
                let is_channels = |at: usize| matches!(fixed(at), Some(1 | 3));
                // Channels lie where one or three are fixed, first unless only the last axis has them.
                let [channels, rows, columns] = match lengths.len() {
                    3 if is_channels(2) && !is_channels(0) => [2, 0, 1],
                    3 => [0, 1, 2],
                    axes => {
                        let axes = axes + 1;
                        return Err(misfit(format!("input '{name}' has {axes} axes, which no picture fits")));
                    }
                };
                let mut shape = vec![0; 3];
                shape[channels] = fixed(channels).unwrap_or(3);
                shape[rows] = fixed(rows).unwrap_or(height);
                shape[columns] = fixed(columns).unwrap_or(width);
                Ok(shape)
            }
        }
    }

    /// Shapes of samples of the inputs that leave lengths open, with usual lengths there: for a look at the network where nothing
    /// else says what they are. What has one name has one length.
    pub fn usual_shapes(&self) -> Vec<(String, Vec<usize>)> {
        let shape = |input: &DeclaredValue| {
            let lengths = input.lengths.as_deref()?;
            open_axes(lengths).next()?;
            let usual = match lengths.len() {
                4 => 224,
                3 => 128,
                _ => 16,
            };
            let each = lengths.iter().enumerate().skip(1);
            let shape = each.map(|(axis, length)| match length {
                DeclaredLength::Fixed(length) => *length,
                // Channels come first unless the last axis has them.
                DeclaredLength::Open(_) if axis == 1 && lengths.len() == 4 => 3,
                DeclaredLength::Open(_) => usual,
            });
            Some((input.name.clone(), shape.collect()))
        };
        self.inputs.iter().filter_map(shape).collect()
    }

    /// Opens the network for these shapes of samples, by the names of the inputs.
    pub fn open(&self, shapes: &[(String, Vec<usize>)]) -> Result<Model> {
        let shaped = |options: ModelOptions, (name, lengths): &(String, Vec<usize>)| {
            options.named_input_shape(name.clone(), lengths.clone())
        };
        let model = shapes.iter().fold(self.options.clone(), shaped).open(self.origin.clone());
        model.map_err(|error| {
            let lengths: Vec<String> = shapes.iter().map(|(name, l)| format!("{name} {l:?}")).collect();
            error.context(format!("for samples of shape {}", lengths.join(", ")))
        })
    }
}
