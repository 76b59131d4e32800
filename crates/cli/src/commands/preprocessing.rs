//! The options that say how a picture becomes what the network reads.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use monosplit::graph::metadata::PRESET;
use monosplit::graph::{Error, Result, Tensor};
use monosplit::image;
use monosplit::image::{OrientationChoice, PixelRange, Preprocess, ReadOptions, Resize};
use monosplit::{ChannelOrder, InputFile, Model, PixelValues, SampleReader};

use crate::failure::note;

use super::inputs::{InputArgs, remember_skipped};

/// What becomes of the size of a picture before it is read.
pub(crate) type Scaling = Box<dyn Fn((usize, usize)) -> (usize, usize)>;

/// How pictures are made ready.
#[derive(Args)]
#[command(next_help_heading = "Preprocessing of pictures")]
pub(crate) struct PreprocessingArgs {
    #[command(flatten)]
    pub(crate) inputs: InputArgs,

    #[command(flatten)]
    values: ValueArgs,

    /// Which way up a picture is: upright (turned as its EXIF orientation says, as people see
    /// it) or ignore (as Pillow and torchvision open it: as it is stored, TIFF files excepted).
    #[arg(
        long,
        value_name = "HOW",
        value_enum,
        default_value_t,
        hide_possible_values = true,
        verbatim_doc_comment
    )]
    orientation: Orientation,

    /// Lay transparent pictures on this colour: white, black, grey or six hexadecimal digits
    /// as in #c81e5a. Without it alpha is dropped, as Pillow's convert("RGB") does.
    #[arg(long, value_name = "COLOUR", value_parser = colour, verbatim_doc_comment)]
    background: Option<[u8; 3]>,

    /// Scale the shorter side to N pixels before cropping.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    resize: Option<u32>,

    /// Keep N×N pixels around the centre [default: the network's size].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    crop: Option<u32>,

    /// How a picture is brought to the network's size:
    ///   auto    one of that size is taken as it is, any other is scaled and cropped
    ///   crop    always scaled and cropped
    ///   squash  scaled to exactly that size, giving up its proportions
    /// [default: auto, or crop where --resize or --crop is given]
    #[arg(long, value_name = "HOW", value_enum, hide_possible_values = true, verbatim_doc_comment)]
    fit: Option<Fit>,

    /// How pixels are weighted when scaling: bilinear, bicubic or nearest; the first two are
    /// antialiased, as Pillow does it.
    #[arg(
        long,
        value_name = "NAME",
        value_enum,
        default_value_t,
        hide_possible_values = true,
        verbatim_doc_comment
    )]
    filter: Filter,
}

/// What values the pixels of a picture become.
#[derive(Args)]
#[command(next_help_heading = "Preprocessing of pictures")]
pub(crate) struct ValueArgs {
    /// How the network was trained to see pictures:
    ///   imagenet      torchvision's networks: shorter side to 256, centre 224×224, RGB in 0 … 1
    ///                 less the mean (0.485, 0.456, 0.406), over the deviation
    ///                 (0.229, 0.224, 0.225)
    ///   imagenet-bgr  Caffe's and Keras' older ones: the same crop, BGR in 0 … 255 less
    ///                 (103.939, 116.779, 123.68)
    ///   unit          the same crop, RGB in 0 … 1
    ///   none          the same crop, RGB in 0 … 255 as in the file
    /// For a network of another size the scaling keeps its ratio to the crop (146 around 128).
    /// [default: what the file says, as one written by `monosplit train` does; else none or
    /// unit for a network that reads bytes or scales its input itself; else imagenet]
    #[arg(long, value_name = "NAME", value_enum, hide_possible_values = true, verbatim_doc_comment)]
    preset: Option<Preset>,

    /// Subtract these instead of the preset's mean: one number for each channel in the order the
    /// network reads them, or one for all.
    #[arg(
        long,
        value_name = "A,B,C",
        value_delimiter = ',',
        allow_hyphen_values = true,
        verbatim_doc_comment
    )]
    mean: Option<Vec<f32>>,

    /// Divide by these instead of the preset's deviation, given like --mean.
    #[arg(long, value_name = "A,B,C", value_delimiter = ',', allow_hyphen_values = true)]
    std: Option<Vec<f32>>,

    /// Hand over blue, green, red instead of red, green, blue.
    #[arg(long)]
    bgr: bool,

    /// The range of a pixel before the mean is taken off: unit (0 … 1) or bytes (0 … 255)
    /// [default: the preset's].
    #[arg(long, value_name = "RANGE", value_enum, hide_possible_values = true, verbatim_doc_comment)]
    scale: Option<Range>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Preset {
    Imagenet,
    ImagenetBgr,
    Unit,
    None,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Fit {
    Auto,
    Crop,
    Squash,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Filter {
    #[default]
    Bilinear,
    Bicubic,
    Nearest,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Orientation {
    #[default]
    Upright,
    Ignore,
}

#[derive(Clone, Copy, ValueEnum)]
enum Range {
    Unit,
    Bytes,
}

impl PreprocessingArgs {
    /// The preprocessing for a network, where there are pictures to preprocess.
    pub(crate) fn for_sources(&self, model: &Model, sources: &[InputFile]) -> Result<Option<Preprocess>> {
        let pictures = sources.iter().any(InputFile::is_picture);
        if pictures { self.preprocess(model).map(Some) } else { Ok(None) }
    }

    /// A reader of `sources`, which were listed by [`InputArgs::list`]. It skips files that cannot be read.
    pub(crate) fn reader(
        &self,
        model: &Model,
        sources: Vec<InputFile>,
        preprocess: Option<Preprocess>,
    ) -> Result<SampleReader> {
        let options =
            ReadOptions::default().background(self.background).orientation(match self.orientation {
                Orientation::Upright => OrientationChoice::Upright,
                Orientation::Ignore => OrientationChoice::Ignore,
            });
        let reader = SampleReader::new(model, sources, preprocess)?.read_options(options);
        Ok(self.inputs.skipping(reader))
    }

    /// The first sample of `input`; without an input, a fixed pattern of pseudo-random numbers. The other pictures of a folder
    /// are read too, so that those which cannot be are reported.
    pub(crate) fn one_sample(&self, model: &Model, input: Option<&PathBuf>) -> Result<Tensor> {
        let sources = self.inputs.list(input.map_or(&[], std::slice::from_ref))?;
        self.first_sample(model, input, sources)
    }

    /// The same, of an input that is listed already: standard input can be read only once.
    pub(crate) fn first_sample(
        &self,
        model: &Model,
        input: Option<&PathBuf>,
        sources: Vec<InputFile>,
    ) -> Result<Tensor> {
        let Some(input) = input else { return model.pattern_sample() };
        let pictures = sources.len();
        let preprocess = self.for_sources(model, &sources)?;
        let mut reader = self.reader(model, sources, preprocess)?;
        let sample = reader.take(1)?.into_iter().next();
        let sample = sample.ok_or_else(|| Error::argument("the input holds no sample"))?;
        if pictures > 1 {
            note(&format!("of the {pictures} pictures in {}, {} was taken", input.display(), sample.name));
            while !reader.take(1)?.is_empty() {}
        }
        remember_skipped(&reader);
        Ok(sample.tensor)
    }

    /// The preprocessing for the pictures that a target names; none for a network that reads no pictures.
    pub(crate) fn known(&self, model: &Model) -> Option<Preprocess> {
        self.values.preprocess(model).ok()
    }

    /// The preprocessing for a network that reads pictures.
    pub(crate) fn preprocess(&self, model: &Model) -> Result<Preprocess> {
        let size = model.picture_input()?.size;
        let preset = self.values.preset(model)?;
        if self.values.preset.is_none() {
            pixel_remark(model)?.iter().for_each(|remark| note(remark));
        }
        let mut preprocess = preset.options().fit(size, self.fit()?)?.filter(match self.filter {
            Filter::Bilinear => image::Filter::Bilinear,
            Filter::Bicubic => image::Filter::Bicubic,
            Filter::Nearest => image::Filter::Nearest,
        });
        if let Some(side) = self.resize {
            preprocess = preprocess.resize(Resize::Shorter(side as usize));
        }
        if let Some(side) = self.crop {
            preprocess = preprocess.crop(Some((side as usize, side as usize)));
        }
        self.values.applied(preprocess, size)
    }

    /// The size of a picture, width and height, that a network of open size reads: its own, unless it is scaled or cropped.
    pub(crate) fn scaling(&self) -> Scaling {
        let [resize, crop] = [self.resize, self.crop].map(|side| side.map(|side| side as usize));
        Box::new(move |(width, height)| match (resize, crop) {
            (_, Some(side)) => (side, side),
            // As torchvision's Resize scales: the longer side is rounded down.
            (Some(side), None) if width <= height => (side, side * height / width.max(1)),
            (Some(side), None) => (side * width / height.max(1), side),
            (None, None) => (width, height),
        })
    }

    fn fit(&self) -> Result<image::Fit> {
        let explicit = self.resize.is_some() || self.crop.is_some();
        match self.fit {
            Some(Fit::Squash) if explicit => Err(Error::argument(
                "--fit squash scales to the network's size; leave out --resize and --crop, or the --fit",
            )),
            Some(Fit::Squash) => Ok(image::Fit::Squash),
            Some(Fit::Crop) => Ok(image::Fit::Crop),
            Some(Fit::Auto) => Ok(image::Fit::Auto),
            None if explicit => Ok(image::Fit::Crop),
            None => Ok(image::Fit::Auto),
        }
    }
}

impl ValueArgs {
    /// The preprocessing of values, whatever the crop.
    pub(crate) fn preprocess(&self, model: &Model) -> Result<Preprocess> {
        let size = model.picture_input()?.size;
        self.applied(self.preset(model)?.options().fit(size, image::Fit::Auto)?, size)
    }

    /// Whether the command line or the network's file states the preprocessing; otherwise it is a guess.
    pub(crate) fn is_known(&self, model: &Model) -> bool {
        let changed = self.mean.is_some() || self.std.is_some() || self.scale.is_some() || self.bgr;
        // A table may be scaled in the network as pictures are.
        let told = || model.pixel_values().is_ok_and(|values| values.reason.is_some());
        let told = model.picture_input().is_ok() && (told() || model.metadata(PRESET).is_some());
        self.preset.is_some() || changed || told
    }

    fn preset(&self, model: &Model) -> Result<image::Preset> {
        Ok(match self.preset {
            Some(Preset::Imagenet) => image::Preset::Imagenet,
            Some(Preset::ImagenetBgr) => image::Preset::ImagenetBgr,
            Some(Preset::Unit) => image::Preset::Unit,
            Some(Preset::None) => image::Preset::None,
            None => model.pixel_values()?.preset,
        })
    }

    /// A preset's preprocessing with the options that were given.
    fn applied(&self, mut preprocess: Preprocess, size: [usize; 3]) -> Result<Preprocess> {
        if self.bgr {
            if size[0] != 3 {
                return Err(Error::argument("--bgr was given, but the network reads one channel"));
            }
            preprocess = preprocess.bgr();
        }
        if let Some(range) = self.scale {
            preprocess = preprocess.scale(match range {
                Range::Unit => PixelRange::Unit,
                Range::Bytes => PixelRange::Bytes,
            });
        }
        if let Some(mean) = &self.mean {
            preprocess = preprocess.mean(mean.clone());
        }
        if let Some(std) = &self.std {
            preprocess = preprocess.std(std.clone());
        }
        Ok(preprocess)
    }
}

/// The remark on which values pictures become, where the network itself tells.
pub(crate) fn pixel_remark(model: &Model) -> Result<Option<String>> {
    let PixelValues { preset, reason: Some(reason) } = model.pixel_values()? else { return Ok(None) };
    let range = if preset == image::Preset::Unit { "0 … 1" } else { "0 … 255" };
    let order = match model.picture_input()?.order {
        ChannelOrder::ChannelsFirst => "",
        ChannelOrder::ChannelsLast => ", channels last",
    };
    Ok(Some(format!(
        "the network is given pictures in {range}{order}, without normalisation, because {reason}; a preset changes that"
    )))
}

/// Parses a colour.
fn colour(text: &str) -> std::result::Result<[u8; 3], String> {
    match text.to_ascii_lowercase().as_str() {
        "white" => return Ok([255; 3]),
        "black" => return Ok([0; 3]),
        "grey" | "gray" => return Ok([128; 3]),
        _ => {}
    }
    let digits = text.strip_prefix('#').unwrap_or(text);
    let number = u32::from_str_radix(digits, 16).ok();
    match number.filter(|_| digits.len() == 6 && digits.bytes().all(|digit| digit.is_ascii_hexdigit())) {
        Some(number) => Ok([(number >> 16) as u8, (number >> 8) as u8, number as u8]),
        None => Err("expected white, black, grey or six hexadecimal digits, as in #c81e5a".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_have_names_and_numbers() {
        assert_eq!(colour("White"), Ok([255; 3]));
        assert_eq!(colour("#c81E5a"), Ok([200, 30, 90]));
        assert_eq!(colour("000001"), Ok([0, 0, 1]));
        for wrong in ["", "#fff", "+12345", "pink", "#1234567", "é23456"] {
            assert!(colour(wrong).is_err(), "{wrong}");
        }
    }
}
