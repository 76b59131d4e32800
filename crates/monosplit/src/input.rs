//! Input files: pictures, folders of pictures, preprocessed batches in `.npy` and `.npz` files and tables in `.csv` files, read
//! one after the other so that any number of them fits into memory.

use std::collections::VecDeque;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use monosplit_graph::onnx::IntegerInput;
use monosplit_graph::{Data, Error, Kind, LogTimer, Result, Tensor, array_file, element_count, open_regular};
use monosplit_image::{Picture, Prepared, Preprocess, ReadOptions};
use monosplit_render::{Caption, Overlay, OverlayOptions, OverlayPanels, ScalarField, overlay};

use crate::given_inputs::of_kind;
use crate::input_list::InputList;
use crate::model::{self, ChannelOrder, Model};
use crate::standard_input;
use crate::table_file::{self, TableFile};

/// The largest file of an array that is read.
const MAX_ARRAY: u64 = 16 << 30;

/// An input file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InputFile {
    /// A picture, in any of the formats that are read.
    Picture(PathBuf),
    /// A preprocessed batch.
    Batch(PathBuf),
    /// A table with a sample a row, and perhaps the names of its columns on the first.
    Table(PathBuf),
    /// A picture that standard input held.
    PictureBytes(Arc<[u8]>),
    /// A preprocessed batch that standard input held.
    BatchBytes(Arc<[u8]>),
}

impl InputFile {
    /// The files at `paths`; for a folder, the pictures in it sorted by name; for `-`, what standard input holds.
    /// [`InputList`] also looks into the folders of a folder.
    pub fn list(paths: &[PathBuf]) -> Result<Vec<InputFile>> {
        Ok(InputList::of(paths, false)?.files)
    }

    /// The kind of a file by its first bytes. Its name counts only if it is that of an array.
    pub(crate) fn of_file(path: &Path) -> Result<InputFile> {
        let mut first = Vec::new();
        let read = open_regular(path)?.take(array_file::BEGINNING as u64).read_to_end(&mut first);
        read.map_err(|cause| Error::io(path, cause))?;
        let is_batch = array_file::is_array(&first) || array_file::is_array_name(path);
        Ok(match path.to_owned() {
            path if is_batch => InputFile::Batch(path),
            path if table_file::is_table_name(&path) => InputFile::Table(path),
            path => InputFile::Picture(path),
        })
    }

    /// What standard input held.
    pub(crate) fn of_bytes(bytes: Arc<[u8]>) -> InputFile {
        let is_batch = array_file::is_array(&bytes[..bytes.len().min(array_file::BEGINNING)]);
        if is_batch { InputFile::BatchBytes(bytes) } else { InputFile::PictureBytes(bytes) }
    }

    /// Whether it is read as a picture.
    pub fn is_picture(&self) -> bool {
        matches!(self, InputFile::Picture(_) | InputFile::PictureBytes(_))
    }

    /// The shape of what it holds. Of an archive with several arrays it is the one whose name is among `wanted`.
    pub fn shape(&self, wanted: &[&str]) -> Result<FileShape> {
        let of_picture =
            |picture: Picture| FileShape::Picture { width: picture.width(), height: picture.height() };
        let of_array = |array: Tensor| FileShape::Array(array.shape().to_vec());
        let found = match self {
            InputFile::Picture(path) => Picture::open(path).map(of_picture),
            InputFile::PictureBytes(bytes) => Picture::decode(bytes).map(of_picture),
            InputFile::Batch(path) => model::read_file(path, MAX_ARRAY)
                .and_then(|file| array_file::read(&file, wanted))
                .map(of_array),
            InputFile::BatchBytes(bytes) => array_file::read(bytes, wanted).map(of_array),
            InputFile::Table(path) => TableFile::open(path).map(|table| of_array(table.rows)),
        };
        found.map_err(|error| about(&self.name(), error))
    }

    /// Its name in results.
    fn name(&self) -> String {
        match self {
            InputFile::Picture(path) | InputFile::Batch(path) | InputFile::Table(path) => {
                path.display().to_string()
            }
            InputFile::PictureBytes(_) | InputFile::BatchBytes(_) => standard_input::NAME.to_owned(),
        }
    }
}

/// The shape of what an input file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileShape {
    /// That of an array.
    Array(Vec<usize>),
    /// That of a picture, turned upright.
    Picture {
        /// Pixels in a row.
        width: usize,
        /// Rows.
        height: usize,
    },
}

/// One sample, ready for the network.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The file, and for a batch the position in it.
    pub name: String,
    /// A batch of one.
    pub tensor: Tensor,
    /// The picture it was made from, scaled and cropped, where it was one.
    pub picture: Option<Picture>,
    /// The names of its numbers, where it was a row of a table that names its columns.
    pub features: Option<Arc<[String]>>,
}

impl Sample {
    /// A map of this sample, drawn over its picture; where there is no picture, the map alone.
    pub fn overlay(&self, map: &ScalarField, caption: &Caption, options: &OverlayOptions) -> Result<Overlay> {
        if let Some(picture) = &self.picture {
            return overlay(picture, map, caption, options);
        }
        let options = OverlayOptions { panels: OverlayPanels::Single, opacity: 1.0, ..*options };
        overlay(&self.blank(map)?, map, caption, &options)
    }

    /// A white page of the size of the sample where that is an image, otherwise of the size of the map.
    pub(crate) fn blank(&self, map: &ScalarField) -> Result<Picture> {
        let (width, height) = match *self.tensor.shape() {
            [_, 1 | 3, height, width] | [_, height, width, 1 | 3] => (width, height),
            _ => (map.width(), map.height()),
        };
        Picture::new(width, height, vec![0xff; width * height * 3])
    }
}

/// Reads samples from files, one file at a time.
pub struct SampleReader {
    sources: VecDeque<InputFile>,
    opened: usize,
    rest: Option<Batch>,
    preprocess: Option<Preprocess>,
    input: ModelInput,
    read_options: ReadOptions,
    skips: bool,
    skipped: Vec<SkippedInput>,
    any_read: bool,
}

/// An input that could not be read, and why.
#[derive(Clone, Debug)]
pub struct SkippedInput {
    /// The file.
    pub name: String,
    /// What is wrong with it; begins with the file.
    pub error: Error,
}

/// What the input of a network expects.
#[derive(Clone, Debug)]
pub(crate) struct ModelInput {
    name: String,
    order: ChannelOrder,
    sample_shape: Vec<usize>,
    kind: Kind,
    integers: Option<IntegerInput>,
}

struct Batch {
    name: String,
    tensor: Tensor,
    features: Option<Arc<[String]>>,
    next: usize,
}

impl SampleReader {
    /// A reader of `sources` for `model`. `preprocess` is applied to pictures and must be fitted to the model.
    pub fn new(model: &Model, sources: Vec<InputFile>, preprocess: Option<Preprocess>) -> Result<Self> {
        let pictures = sources.iter().any(InputFile::is_picture);
        let order = if pictures { model.picture_input()?.order } else { ChannelOrder::ChannelsFirst };
        let input = ModelInput::new(model, order)?;
        if let Some(preprocess) = preprocess.as_ref().filter(|_| pictures) {
            input.check(preprocess)?;
        }
        Ok(SampleReader {
            sources: sources.into(),
            opened: 0,
            rest: None,
            preprocess,
            input,
            read_options: ReadOptions::default(),
            skips: false,
            skipped: Vec::new(),
            any_read: false,
        })
    }

    /// Sets how pictures are read.
    #[must_use]
    pub fn read_options(mut self, options: ReadOptions) -> Self {
        self.read_options = options;
        self
    }

    /// Sets that a file which cannot be read is left out, if there are others; [`skipped`](SampleReader::skipped) lists
    /// those. Without it, the first such file is an error, as it is in any case where no file can be read.
    #[must_use]
    pub fn skip_unreadable(mut self, skips: bool) -> Self {
        self.skips = skips && self.sources.len() > 1;
        self
    }

    /// The files that were left out so far.
    pub fn skipped(&self) -> &[SkippedInput] {
        &self.skipped
    }

    /// How many files have been opened.
    pub fn opened(&self) -> usize {
        self.opened
    }

    /// How many files there are.
    pub fn total(&self) -> usize {
        self.opened + self.sources.len()
    }

    /// The next samples, at most `count`; none at the end.
    pub fn take(&mut self, count: usize) -> Result<Vec<Sample>> {
        let mut samples = Vec::new();
        while samples.len() < count
            && let Some(sample) = self.next_sample()?
        {
            samples.push(sample);
        }
        Ok(samples)
    }

    fn next_sample(&mut self) -> Result<Option<Sample>> {
        if let Some(batch) = &mut self.rest {
            let sample = batch.sample(&self.input.sample_shape)?;
            if batch.next == batch.tensor.shape()[0] {
                self.rest = None;
            }
            return Ok(Some(sample));
        }
        while let Some(source) = self.sources.pop_front() {
            self.opened += 1;
            match self.opened_file(&source) {
                Ok(sample) => {
                    self.any_read = true;
                    return if sample.is_some() { Ok(sample) } else { self.next_sample() };
                }
                Err(error) if self.skips => {
                    self.skipped.push(SkippedInput { name: source.name(), error });
                }
                Err(error) => return Err(error),
            }
        }
        match self.skipped.first() {
            Some(first) if !self.any_read => Err(first.error.clone().context(format!(
                "none of the {} inputs can be read, the first for this reason",
                self.skipped.len()
            ))),
            _ => Ok(None),
        }
    }

    /// The sample of a picture. A batch becomes what is read next, and has none of its own.
    fn opened_file(&mut self, source: &InputFile) -> Result<Option<Sample>> {
        let name = source.name();
        let mut features = None;
        let batch = match source {
            InputFile::Table(path) => TableFile::open(path).and_then(|table| {
                features = table.columns.map(Arc::from);
                self.input.fitting(table.rows)
            }),
            InputFile::Picture(path) => {
                return self.picture(&name, || Picture::open_with(path, &self.read_options)).map(Some);
            }
            InputFile::PictureBytes(bytes) => {
                return self.picture(&name, || Picture::decode_with(bytes, &self.read_options)).map(Some);
            }
            InputFile::Batch(path) => {
                model::read_file(path, MAX_ARRAY).and_then(|file| self.input.batch(&file))
            }
            InputFile::BatchBytes(bytes) => self.input.batch(bytes),
        };
        let tensor = batch.map_err(|error| about(&name, error))?;
        self.rest = Some(Batch { name, tensor, features, next: 0 });
        Ok(None)
    }

    fn picture(&self, name: &str, read: impl FnOnce() -> Result<Picture>) -> Result<Sample> {
        let time = LogTimer::start(log::Level::Debug);
        let preprocess = self.preprocess.clone().unwrap_or_default();
        let prepared = read().and_then(|picture| self.input.picture(&picture, &preprocess));
        let prepared = prepared.map_err(|error| about(name, error))?;
        log::debug!("{name}: read and preprocessed in {time}");
        let (tensor, picture) = (prepared.tensor, Some(prepared.picture));
        Ok(Sample { name: name.to_owned(), tensor, picture, features: None })
    }
}

impl ModelInput {
    /// The input of `model`, which reads images in this order of axes.
    pub(crate) fn new(model: &Model, order: ChannelOrder) -> Result<Self> {
        let input = model.input()?;
        let name = input.label.tensor.clone();
        let integers = model.integer_input().cloned();
        Ok(ModelInput { name, order, sample_shape: model.sample_shape()?, kind: input.kind, integers })
    }

    /// An error if pictures cannot come out of the preprocessing as the network reads them, whatever they are.
    fn check(&self, preprocess: &Preprocess) -> Result<()> {
        let channels = preprocess.bounds()?.len();
        let Some((height, width)) = preprocess.output_size() else { return Ok(()) };
        let shape = match self.order {
            ChannelOrder::ChannelsFirst => [channels, height, width],
            ChannelOrder::ChannelsLast => [height, width, channels],
        };
        if shape[..] == self.sample_shape { Ok(()) } else { Err(self.misfit(&[&[1], &shape[..]].concat())) }
    }

    /// A picture as the network reads it.
    pub(crate) fn picture(&self, picture: &Picture, preprocess: &Preprocess) -> Result<Prepared> {
        let prepared = preprocess.apply(picture)?;
        let tensor = match self.order {
            ChannelOrder::ChannelsFirst => prepared.tensor,
            ChannelOrder::ChannelsLast => channels_last(&prepared.tensor)?,
        };
        if tensor.shape()[1..] != self.sample_shape {
            return Err(self.misfit(tensor.shape()));
        }
        finite(&tensor)?;
        Ok(Prepared { tensor, ..prepared })
    }

    fn batch(&self, bytes: &[u8]) -> Result<Tensor> {
        self.fitting(array_file::read(bytes, &[&*self.name])?)
    }

    /// An array as the network reads it.
    fn fitting(&self, tensor: Tensor) -> Result<Tensor> {
        let alone = tensor.shape() == self.sample_shape;
        let tensor = if alone { tensor.reshaped([&[1], &self.sample_shape[..]].concat())? } else { tensor };
        match tensor.shape().split_first() {
            Some((0, _)) => return Err(Error::argument("the array holds no samples")),
            Some((_, rest)) if *rest == self.sample_shape => {}
            _ => return Err(self.misfit(tensor.shape())),
        }
        finite(&tensor)?;
        self.check_integers(&tensor)?;
        of_kind(tensor, self.kind, &self.name)
    }

    /// An error if the file's input holds integers and a value is none, or lies outside their range.
    fn check_integers(&self, tensor: &Tensor) -> Result<()> {
        let Some(IntegerInput { name, type_name, range: (min, max), .. }) = &self.integers else {
            return Ok(());
        };
        let fits = |value: f64| value.fract() == 0.0 && value >= *min as f64 && value <= *max as f64;
        match tensor.to_f64().iter().find(|&&value| !fits(value)) {
            Some(value) => Err(Error::argument(format!(
                "input '{name}' holds {type_name} numbers, from {min} to {max}, found {value}"
            ))),
            None => Ok(()),
        }
    }

    fn misfit(&self, found: &[usize]) -> Error {
        let rest: String = self.sample_shape.iter().map(|length| format!(", {length}")).collect();
        Error::shape(format!("input '{}' expects the shape [N{rest}], found {found:?}", self.name))
    }
}

impl Batch {
    fn sample(&mut self, sample_shape: &[usize]) -> Result<Sample> {
        let size = element_count(sample_shape).unwrap_or(0);
        let range = self.next * size..(self.next + 1) * size;
        let data: Data = match self.tensor.data() {
            Data::F32(all) => all[range].to_vec().into(),
            Data::F64(all) => all[range].to_vec().into(),
            Data::I64(all) => all[range].to_vec().into(),
            Data::Bool(all) => all[range].to_vec().into(),
        };
        let tensor = Tensor::new([&[1], sample_shape].concat(), data)?;
        let name = format!("{}[{}]", self.name, self.next);
        self.next += 1;
        Ok(Sample { name, tensor, picture: None, features: self.features.clone() })
    }
}

fn about(name: &str, error: Error) -> Error {
    match error.to_string().starts_with(name) {
        true => error,
        false => error.context(name),
    }
}

/// An error if a value is not finite, because all scores computed from it would be NaN without a warning.
fn finite(tensor: &Tensor) -> Result<()> {
    let found = match tensor.data() {
        Data::F32(all) => all.iter().position(|v| !v.is_finite()).map(|at| (at, f64::from(all[at]))),
        Data::F64(all) => all.iter().position(|v| !v.is_finite()).map(|at| (at, all[at])),
        Data::I64(_) | Data::Bool(_) => None,
    };
    let Some((mut offset, value)) = found else { return Ok(()) };
    let mut position = vec![0; tensor.shape().len()];
    for (index, &length) in position.iter_mut().zip(tensor.shape()).rev() {
        (*index, offset) = (offset % length, offset / length);
    }
    Err(Error::argument(format!(
        "sample {} holds {value} at {:?}, expected finite numbers",
        position[0],
        &position[1..]
    )))
}

fn channels_last(tensor: &Tensor) -> Result<Tensor> {
    let &[count, channels, height, width] = tensor.shape() else {
        return Err(Error::shape(format!("expected four axes, found {:?}", tensor.shape())));
    };
    let (from, area) = (tensor.to_f32(), height * width);
    let picture = |sample: usize| {
        let from = &from[sample * channels * area..];
        (0..area).flat_map(move |pixel| (0..channels).map(move |channel| from[channel * area + pixel]))
    };
    let turned: Vec<f32> = (0..count).flat_map(picture).collect();
    Tensor::new([count, height, width, channels], turned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_number_is_found_where_it_is() {
        let mut values = vec![0f32; 24];
        values[12 + 2 * 4 + 1] = f32::INFINITY;
        let error = finite(&Tensor::new([2, 3, 4], values).unwrap()).unwrap_err().to_string();
        assert_eq!(error, "sample 1 holds inf at [2, 1], expected finite numbers");
    }

    #[test]
    fn channels_go_last_pixel_by_pixel() {
        let planes = Tensor::new([2, 3, 1, 2], (0..12).map(|v| v as f32).collect::<Vec<_>>()).unwrap();
        let turned = channels_last(&planes).unwrap();
        assert_eq!(turned.shape(), [2, 1, 2, 3]);
        assert_eq!(&*turned.to_f32(), [0.0, 2.0, 4.0, 1.0, 3.0, 5.0, 6.0, 8.0, 10.0, 7.0, 9.0, 11.0]);
    }
}
