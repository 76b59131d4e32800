//! `monosplit bounds`: how far the scores of a network can move while its input changes a little, certified.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use monosplit::engine::Cpu;
use monosplit::graph::{Error, Result};
use monosplit::image::Picture;
use monosplit::render::{Caption, OverlayOptions, ScalarField};
use monosplit::{
    Certificate, CertifiedBounds, InputBox, InputFile, LEAST_CHANGE, Labels, MarginBound, Model,
    PatchCertificates, Sample, SampledInputs,
};

use super::bounds_output::{BoundsOutput, RadiusOutput};
use super::class::{class, labels};
use super::inputs::remember_skipped;
use super::network::NetworkArgs;
use super::network_input;
use super::preprocessing::PreprocessingArgs;
use super::progress::Bar;
use super::run::check_writable;
use crate::exit_status::ExitStatus;
use crate::failure::{Failure, note, text};
use crate::json;

/// How many margins are printed.
const SHOWN: usize = 5;

/// Bounds how far scores can move while an input changes a little
#[derive(Args)]
#[command(override_usage = "monosplit bounds MODEL INPUT --epsilon E [OPTIONS]
       monosplit bounds MODEL INPUT --radius [OPTIONS]")]
#[command(long_about = "\
Bounds how far scores can move while an input changes a little.

  monosplit bounds model.onnx three.png --epsilon 2/255
  monosplit bounds model.onnx three.png --epsilon 1 --patch 4 -o patches.png
  monosplit bounds model.onnx three.png --radius

Every pixel may change by at most E, as a share of its range; an array by E itself. No input of
that box has scores outside the bounds that are printed. Where the least margin of the class over
every other is above zero, no such change can flip it: the class is certified.

  intervals  every value of the network is enclosed by itself
  streams    g and h never decrease, so that two evaluations, at two corners, bound both
  linear     a linear function below the margin, found from the convexity of ReLUs and maxima

--patch N certifies each patch of N by N pixels by itself: only the patch changes, and with
--epsilon 1 to anything that a picture can hold.

Bounds are computed in double precision and widened by more than rounding can take. They are those
of the network in exact arithmetic: a run in single precision may differ in the last digits. Deep
networks that were not trained for it are certified only for very small changes.")]
pub(crate) struct Bounds {
    /// The network (an ONNX file, unless --arch and --weights are given), then a picture or .npy
    /// array.
    #[arg(value_name = "MODEL INPUT", verbatim_doc_comment)]
    files: Vec<PathBuf>,

    /// The largest change, as in 0.01 or 2/255.
    #[arg(long, value_name = "E", value_parser = change, required_unless_present = "radius")]
    epsilon: Option<f64>,

    /// Find the largest change for which the class is certified.
    #[arg(long, conflicts_with_all = ["epsilon", "patch"])]
    radius: bool,

    /// Certify every patch of N by N pixels by itself.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    patch: Option<u32>,

    /// Write a picture of how close each patch comes to flipping the class.
    #[arg(short, long, value_name = "FILE.png", requires = "patch")]
    out: Option<PathBuf>,

    /// The class whose margins are bounded: its number, its name, or top1.
    #[arg(long, value_name = "CLASS", default_value = "top1")]
    class: String,

    /// Class names, one a line. For networks with 1000 classes those of ImageNet are built in.
    #[arg(long, value_name = "FILE")]
    labels: Option<PathBuf>,

    /// Try N inputs of the box and count those outside the bounds, of which there must be none.
    #[arg(long, value_name = "N", default_value_t = 128, conflicts_with = "radius")]
    samples: u32,

    /// Use N threads [default: one per core].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,

    /// Print JSON, for programs.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    network: NetworkArgs,

    #[command(flatten)]
    preprocessing: PreprocessingArgs,
}

/// What was found of one input.
pub(super) struct Found {
    pub(super) epsilon: f64,
    pub(super) certificate: Certificate,
    pub(super) tried: SampledInputs,
    pub(super) patches: Option<PatchCertificates>,
}

/// A network, its bounds and an input.
pub(super) struct Opened {
    pub(super) bounds: CertifiedBounds,
    pub(super) labels: Labels,
    pub(super) sample: Sample,
    pub(super) ranges: Option<Vec<(f32, f32)>>,
    pub(super) class: Option<usize>,
}

impl Bounds {
    pub(crate) fn execute(&self, out: &mut dyn Write) -> Result<ExitStatus, Failure> {
        if let Some(path) = &self.out {
            check_writable(path)?;
        }
        let opened = self.open()?;
        let near = InputBox { epsilon: self.epsilon.unwrap_or(0.0), ranges: opened.ranges.clone() };
        let sample = &opened.sample.tensor;
        if self.radius {
            let radius = opened.bounds.radius(sample, &near, opened.class)?;
            let near = InputBox { epsilon: radius, ..near };
            let certificate = opened.bounds.certify(sample, &near, opened.class)?;
            if self.json {
                let class = certificate.class;
                json::print(&RadiusOutput { class, name: opened.labels.name(class), radius }, out)?;
            } else {
                print_radius(&opened, &certificate, radius, out)?;
            }
            return Ok(ExitStatus::SUCCESS);
        }
        let mut certificate = opened.bounds.certify(sample, &near, opened.class)?;
        let tried = opened.bounds.check_samples(sample, &near, &certificate, self.samples as usize)?;
        certificate.found = certificate.found.min(tried.least_margin);
        let bar = Bar::counting("patches");
        let patches = self.patch.map(|side| {
            let which = (side as usize, opened.class);
            opened.bounds.patches(sample, &near, which, |done, total| bar.show(done, total))
        });
        let found = Found { epsilon: near.epsilon, certificate, tried, patches: patches.transpose()? };
        if let (Some(path), Some(patches)) = (&self.out, &found.patches) {
            draw(&opened, &found, patches)?.save(path)?;
        }
        if self.json {
            json::print(&BoundsOutput::of(&opened, &found, self.out.as_ref()), out)?;
        } else {
            print(&opened, &found, out)?;
            if let Some(path) = &self.out {
                writeln!(out, "{}", path.display())?;
            }
        }
        Ok(if found.tried.violations > 0 { ExitStatus::from(1) } else { ExitStatus::SUCCESS })
    }

    fn open(&self) -> Result<Opened, Failure> {
        let (origin, inputs) =
            self.network.split(&self.files, "nothing to bound; name a picture or an array")?;
        let [input] = inputs else {
            return Err(Error::argument("bounds looks at one input; name one picture or array").into());
        };
        let model = network_input::open(&self.network.options(), origin)?;
        let model = model.with_open_batch().unwrap_or(model);
        let sources = self.preprocessing.inputs.list(std::slice::from_ref(input))?;
        let is_picture = sources.iter().any(InputFile::is_picture);
        let preprocess = self.preprocessing.for_sources(&model, &sources)?;
        let ranges = preprocess.as_ref().filter(|_| is_picture).map(|p| p.bounds()).transpose()?;
        let mut reader = self.preprocessing.reader(&model, sources, preprocess)?;
        let mut samples = reader.take(2)?;
        remember_skipped(&reader);
        if samples.len() > 1 {
            note(&format!("of several samples, {} is taken", samples[0].name));
        }
        samples.truncate(1);
        let sample = samples.pop().ok_or_else(|| Error::argument("the input holds no sample"))?;
        let (labels, classes) = labels(self.labels.as_deref(), &model)?;
        let chosen = class(&self.class, &labels, classes)?;
        let engine = Cpu::default().threads(self.threads.unwrap_or(0) as usize);
        let bounds = bounds_of(&model, &engine)?;
        Ok(Opened { bounds, labels, sample, ranges, class: chosen })
    }
}

fn bounds_of(model: &Model, engine: &Cpu) -> Result<CertifiedBounds> {
    let bounds = model.certified_bounds(engine)?;
    if let Some(reason) = bounds.no_streams() {
        note(&format!("without the bounds of g and h: {}", text(reason)));
    }
    Ok(bounds)
}

/// A share such as 0.01 or 2/255.
fn change(given: &str) -> std::result::Result<f64, String> {
    let number = |text: &str| text.trim().parse::<f64>().ok();
    let value = match given.split_once('/') {
        Some((part, whole)) => number(part).zip(number(whole)).map(|(part, whole)| part / whole),
        None => number(given),
    };
    value
        .filter(|value| value.is_finite() && *value >= 0.0)
        .ok_or_else(|| "expected a number from 0, as in 0.01 or 2/255".to_owned())
}

/// `12.3`, `-4.5e9`: four digits, however large.
fn number(value: f64) -> String {
    match value.abs() {
        size if size != 0.0 && !(1e-3..1e5).contains(&size) => format!("{value:.3e}"),
        _ => format!("{value:.4}"),
    }
}

/// The same, and never above the value: what is said to be certified must be.
fn number_below(value: f64) -> String {
    let shown = number(value);
    if shown.parse::<f64>().is_ok_and(|shown| shown <= value) {
        return shown;
    }
    // One in the last of the digits that are shown.
    let unit = match value.abs() {
        size if size != 0.0 && !(1e-3..1e5).contains(&size) => 10f64.powf(size.log10().floor() - 3.0),
        _ => 1e-4,
    };
    number(value - 0.6 * unit)
}

fn print(opened: &Opened, found: &Found, out: &mut dyn Write) -> Result<(), Failure> {
    let Certificate { class, scores, score_ranges, streams, margins, certified, .. } = &found.certificate;
    let name = |class: usize| opened.labels.name(class);
    let range = |(least, most): (f64, f64)| format!("{} to {}", number(least), number(most));
    writeln!(out, "class    {}", name(*class))?;
    writeln!(out, "score    {}, over the box {}", number(scores[*class]), range(score_ranges[*class]))?;
    if let Some(streams) = streams {
        let whose = if opened.bounds.is_difference() { "trained as g − h" } else { "the split" };
        writeln!(out, "g        {} ({whose})", range(streams.g[*class]))?;
        writeln!(out, "h        {}", range(streams.h[*class]))?;
    }
    writeln!(
        out,
        "\n{:<24}{:>12}{:>12}{:>12}{:>12}",
        "margin over", "here", "intervals", "streams", "linear"
    )?;
    for margin in margins.iter().take(SHOWN) {
        let MarginBound { rival, at_input, intervals, streams, linear } = margin;
        let shown = |bound: Option<f64>| bound.map_or_else(|| "–".to_owned(), number);
        let name: String = name(*rival).chars().take(22).collect();
        writeln!(
            out,
            "{name:<24}{:>12}{:>12}{:>12}{:>12}",
            number(*at_input),
            number(*intervals),
            shown(*streams),
            shown(*linear)
        )?;
    }
    if margins.len() > SHOWN {
        writeln!(out, "and {} more classes", margins.len() - SHOWN)?;
    }
    let epsilon = found.epsilon;
    let verdict = match (certified, found.certificate.found <= 0.0) {
        (true, _) => format!("certified: no change of at most {epsilon} flips the class"),
        (false, true) => {
            format!("not certified: a change of at most {epsilon} was found that flips the class")
        }
        (false, false) => {
            format!("not certified, and no change of at most {epsilon} was found that flips the class")
        }
    };
    writeln!(out, "\n{verdict}")?;
    let SampledInputs { tried, violations, least_margin } = found.tried;
    if tried > 0 {
        writeln!(
            out,
            "{tried} inputs of the box tried: {violations} outside the bounds, least margin {}",
            number(least_margin)
        )?;
    }
    if let Some(patches) = &found.patches {
        print_patches(patches, out)?;
    }
    Ok(())
}

fn print_patches(patches: &PatchCertificates, out: &mut dyn Write) -> Result<(), Failure> {
    let PatchCertificates { grid: (rows, columns), side, margins, certified } = patches;
    let holds = certified.iter().filter(|&&holds| holds).count();
    writeln!(
        out,
        "{holds} of {} patches of {side}×{side} pixels cannot flip the class by themselves:",
        rows * columns
    )?;
    for row in certified.chunks(*columns) {
        let line: String = row.iter().map(|&holds| if holds { '·' } else { '█' }).collect();
        writeln!(out, "  {line}")?;
    }
    let least = margins.iter().copied().fold(f64::INFINITY, f64::min);
    writeln!(out, "least margin with one patch changed: at least {}", number_below(least))?;
    Ok(())
}

fn print_radius(
    opened: &Opened,
    certificate: &Certificate,
    radius: f64,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let name = opened.labels.name(certificate.class);
    let unit = if opened.ranges.is_some() { " of the range of a pixel" } else { "" };
    match radius > 0.0 {
        true => writeln!(
            out,
            "{name}: certified for every change of at most {}{unit}{}",
            number_below(radius),
            if opened.ranges.is_some() {
                format!(", {}/255", number_below(255.0 * radius))
            } else {
                String::new()
            }
        )?,
        false => writeln!(
            out,
            "{name}: not certified for a change of {LEAST_CHANGE:e}{unit}, and none below that is tried"
        )?,
    }
    Ok(())
}

/// The picture, and over it the share of the margin that each patch may take away.
fn draw(opened: &Opened, found: &Found, patches: &PatchCertificates) -> Result<Picture> {
    let (rows, columns) = patches.grid;
    let margins = &found.certificate.margins;
    let here = margins.first().map_or(1.0, |margin| margin.at_input).max(f64::MIN_POSITIVE);
    let share = |margin: &f64| (1.0 - margin / here).clamp(0.0, 2.0) as f32;
    let shares: Vec<f32> = patches.margins.iter().map(share).collect();
    // Patches stay squares: nothing is smoothed.
    let (width, height) =
        opened.sample.picture.as_ref().map_or((columns * patches.side, rows * patches.side), |picture| {
            (picture.width(), picture.height())
        });
    let place = |at: usize| shares[at / width / patches.side * columns + at % width / patches.side];
    let map = ScalarField::new(width, height, (0..width * height).map(place).collect())?;
    let caption = Caption {
        method: format!("share of the margin, ε = {}", found.epsilon),
        class: opened.labels.name(found.certificate.class),
        ..Caption::default()
    };
    Ok(opened.sample.overlay(&map, &caption, &OverlayOptions::default())?.picture)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_certified_is_rounded_down() {
        for (value, shown) in [
            (0.01239, "0.0123"),
            (0.5, "0.5000"),
            (-0.00119, "-0.0012"),
            (-7.41004, "-7.4101"),
            (3.9999e-5, "3.999e-5"),
            (0.00099996, "9.999e-4"),
            (-1.23456e9, "-1.235e9"),
            (9.99999e9, "9.999e9"),
            (0.0, "0.0000"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(number_below(value), shown);
        }
    }

    #[test]
    fn changes_are_numbers_or_fractions() {
        assert_eq!(change("2/255"), Ok(2.0 / 255.0));
        assert_eq!(change("0.5"), Ok(0.5));
        for wrong in ["", "-1", "1/0", "x", "1/2/3", "nan"] {
            assert!(change(wrong).is_err(), "{wrong}");
        }
    }
}
