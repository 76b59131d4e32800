//! Certificates: what a network's scores can be at most and at least while an input changes by no more than a given amount, and
//! whether any such change can flip the class.

mod boxes;

use monosplit_engine::{CompileOptions, Engine, Precision, Program};
use monosplit_explain::{BoxBounds, EnclosedBoxes, InputBoxes, StreamBounds, StreamRanges, class_scores};
use monosplit_graph::metadata::STREAMS;
use monosplit_graph::op::Binary;
use monosplit_graph::{Error, Graph, Node, NodeId, Noise, Op, Result, Tensor};

use crate::model::{ChannelOrder, Model};

use boxes::Patch;

/// How many margins are bounded at once before it is asked whether the class can still be certified.
const RIVALS_AT_ONCE: usize = 16;
/// The most classes of which all margins get a linear bound, whether they need one or not.
const MOST_BOUNDED: usize = 64;
/// How many inputs of a box are tried at once.
const SAMPLES_AT_ONCE: usize = 64;
/// How often the interval that holds the largest certified change is halved.
const HALVINGS: usize = 10;

/// The smallest change for which [`CertifiedBounds::radius`] tries to certify a class.
pub const LEAST_CHANGE: f64 = 1e-6;

/// How far the elements of an input may change.
#[derive(Clone, Debug, PartialEq)]
pub struct InputBox {
    /// The largest change of an element: a share of the range of its channel, or a number where no ranges are known.
    pub epsilon: f64,
    /// The least and the greatest value of each channel, beyond which nothing changes; none where the input is no picture.
    pub ranges: Option<Vec<(f32, f32)>>,
}

/// Bounds of a network, compiled once for any number of inputs.
pub struct CertifiedBounds {
    bounds: BoxBounds,
    streams: Streams,
    scores: Box<dyn Program>,
    order: Option<(ChannelOrder, [usize; 3])>,
}

/// Where `g` and `h` come from.
enum Streams {
    /// The network was trained as a difference of them.
    Trained,
    /// They are the split of the network.
    Split(StreamBounds),
    /// The network has none.
    None(Error),
}

/// The bounds of how far the score of a class is above another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MarginBound {
    /// The other class.
    pub rival: usize,
    /// The margin at the input itself.
    pub at_input: f64,
    /// The lower bound of interval propagation.
    pub intervals: f64,
    /// The lower bound of the two streams at both corners, where the network has streams.
    pub streams: Option<f64>,
    /// The linear lower bound; none if it was not computed, because another bound suffices or another class could not be excluded.
    pub linear: Option<f64>,
}

impl MarginBound {
    /// The best of the bounds.
    pub fn best(&self) -> f64 {
        let bounds = [Some(self.intervals), self.streams, self.linear];
        bounds.into_iter().flatten().fold(f64::NEG_INFINITY, f64::max)
    }
}

/// What was found of one input and all inputs near it.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// The class whose margins these are.
    pub class: usize,
    /// The scores at the input.
    pub scores: Vec<f64>,
    /// The least and the greatest score of each class, by interval propagation.
    pub score_ranges: Vec<(f64, f64)>,
    /// The ranges of `g` and `h`, where the network has streams.
    pub streams: Option<StreamRanges>,
    /// One bound for each other class, the one with the least margin at the input first.
    pub margins: Vec<MarginBound>,
    /// Whether no input of the box has another class.
    pub certified: bool,
    /// The least margin that an input of the box was found to have; the bounds cannot be above it.
    pub found: f64,
}

/// The certificates of the patches of a picture: in each only the patch changes.
#[derive(Clone, Debug, PartialEq)]
pub struct PatchCertificates {
    /// Rows and columns of patches.
    pub grid: (usize, usize),
    /// Rows and columns of pixels of a patch; those at the end may be smaller.
    pub side: usize,
    /// The least lower bound of a margin found for each patch, row by row.
    pub margins: Vec<f64>,
    /// Whether no change of each patch can flip the class, row by row.
    pub certified: Vec<bool>,
}

/// Inputs of a box that were tried.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SampledInputs {
    /// How many.
    pub tried: usize,
    /// How many scores or margins were outside their bounds.
    pub violations: usize,
    /// The least margin of the class.
    pub least_margin: f64,
}

impl Model {
    /// Compiles certified bounds of the network's class scores. They are computed in double precision, by an engine that computes
    /// convolutions as sums, as [`Cpu`](monosplit_engine::Cpu) does.
    ///
    /// What is certified is the network as it is run: in canonical form, with its weights as they are stored and without the
    /// rounding of a run in single precision.
    pub fn certified_bounds(&self, engine: &dyn Engine) -> Result<CertifiedBounds> {
        self.expect_classes()?;
        if self.fixed_batch()?.is_some() {
            let message =
                "bounds are computed for several boxes at once, and the network has a fixed batch size";
            return Err(self.unfit(message.to_owned()));
        }
        let graph = class_scores(self.graph())?;
        let ends = self.metadata(STREAMS).and_then(|names| difference(&graph, names));
        let named: Vec<&str> = ends.iter().flatten().copied().collect();
        let streams = match &ends {
            Some(_) => Streams::Trained,
            None => StreamBounds::new(&graph, engine).map_or_else(Streams::None, Streams::Split),
        };
        let double = CompileOptions::default().precision(Precision::F64);
        let order = self.picture_input().ok().map(|input| (input.order, input.size));
        Ok(CertifiedBounds {
            bounds: BoxBounds::new(&graph, &named, engine)?,
            streams,
            scores: engine.compile_with(&graph, &double)?,
            order,
        })
    }
}

/// The names of `g` and `h`, separated by a blank, if the scores are their difference. A file may say what is not so.
fn difference<'n>(graph: &Graph, names: &'n str) -> Option<[&'n str; 2]> {
    let (first, second) = names.split_once(' ')?;
    let scores = graph.node(graph.outputs().first()?.node);
    let (Op::Binary(Binary::Sub), [g, h]) = (&scores.op, &scores.inputs[..]) else { return None };
    // The name of several values says nothing of one.
    let is_named = |id: NodeId, name: &str| {
        let named = |node: &Node| node.label.tensor == name || node.label.aliases.iter().any(|a| a == name);
        let node = graph.node(id);
        named(node)
            && node.shape == scores.shape
            && graph.nodes().filter(|(_, node)| named(node)).count() == 1
    };
    (is_named(*g, first) && is_named(*h, second)).then_some([first, second])
}

impl CertifiedBounds {
    /// Whether `g` and `h` are the two networks that this one was trained as the difference of.
    pub fn is_difference(&self) -> bool {
        matches!(self.streams, Streams::Trained)
    }

    /// Why the network has no streams `g` and `h`, if it has none.
    pub fn no_streams(&self) -> Option<&Error> {
        match &self.streams {
            Streams::None(reason) => Some(reason),
            _ => None,
        }
    }

    /// Scores in double precision, sample by sample.
    fn scores(&self, inputs: &Tensor) -> Result<Vec<Vec<f64>>> {
        let outputs = self.scores.run(std::slice::from_ref(inputs))?;
        let scores = outputs.first().ok_or_else(|| Error::argument("the network has no scores"))?;
        Ok(scores.to_f64().chunks(self.bounds.classes().max(1)).map(<[f64]>::to_vec).collect())
    }

    /// The certificate of a sample, a batch of one, for `class` or else the one with the highest score.
    pub fn certify(&self, sample: &Tensor, near: &InputBox, class: Option<usize>) -> Result<Certificate> {
        let scores = self.scores(sample)?.into_iter().next().unwrap_or_default();
        let class = self.class(&scores, class)?;
        let enclosed = self.bounds.enclose(self.boxes(sample, near, &[None])?)?;
        let streams = match &self.streams {
            Streams::Trained => Some(StreamRanges { g: enclosed.named(0, 0)?, h: enclosed.named(1, 0)? }),
            Streams::Split(streams) => streams.ranges(enclosed.boxes())?.into_iter().next(),
            Streams::None(_) => None,
        };
        let all = scores.len() <= MOST_BOUNDED;
        let (margins, certified, slopes) =
            self.margins(&enclosed, 0, (&scores, class, all), streams.as_ref())?;
        let least_at_input = margins.first().map_or(f64::INFINITY, |margin| margin.at_input);
        let found = self.least_margin_at_corners(enclosed.boxes(), class, &slopes)?.min(least_at_input);
        let score_ranges = enclosed.scores(0)?;
        Ok(Certificate { class, scores, score_ranges, streams, margins, certified, found })
    }

    /// The certificates of all patches of `side` by `side` pixels. `progress` hears how many are done.
    pub fn patches(
        &self,
        sample: &Tensor,
        near: &InputBox,
        (side, class): (usize, Option<usize>),
        progress: impl Fn(usize, usize),
    ) -> Result<PatchCertificates> {
        let (_, [_, height, width]) = self.order.ok_or_else(|| {
            Error::argument("patches are those of a picture, and the network does not read pictures")
        })?;
        if side == 0 {
            return Err(Error::argument("a patch has at least one pixel"));
        }
        let scores = self.scores(sample)?.into_iter().next().unwrap_or_default();
        let class = self.class(&scores, class)?;
        let (rows, columns) = (height.div_ceil(side), width.div_ceil(side));
        let patch = |index: usize| {
            let (top, left) = (index / columns * side, index % columns * side);
            Some((top..(top + side).min(height), left..(left + side).min(width)))
        };
        let count = rows * columns;
        let mut found = PatchCertificates {
            grid: (rows, columns),
            side,
            margins: Vec::with_capacity(count),
            certified: Vec::with_capacity(count),
        };
        let at_once = self.bounds.boxes_at_once();
        for first in (0..count).step_by(at_once) {
            let several: Vec<Option<Patch>> = (first..(first + at_once).min(count)).map(patch).collect();
            let enclosed = self.bounds.enclose(self.boxes(sample, near, &several)?)?;
            for index in 0..several.len() {
                let (margins, certified, _) =
                    self.margins(&enclosed, index, (&scores, class, false), None)?;
                // Without all linear bounds it is a lower bound as well, but not the best.
                found.margins.push(margins.iter().map(MarginBound::best).fold(f64::INFINITY, f64::min));
                found.certified.push(certified);
                progress(first + index + 1, count);
            }
        }
        Ok(found)
    }

    /// The largest change, found by halving, for which the class is certified; 0 if it is not for [`LEAST_CHANGE`]. It is below the
    /// change at which the class flips.
    pub fn radius(&self, sample: &Tensor, near: &InputBox, class: Option<usize>) -> Result<f64> {
        let scores = self.scores(sample)?.into_iter().next().unwrap_or_default();
        let class = self.class(&scores, class)?;
        let holds = |epsilon: f64| -> Result<bool> {
            let near = InputBox { epsilon, ..near.clone() };
            let enclosed = self.bounds.enclose(self.boxes(sample, &near, &[None])?)?;
            Ok(self.margins(&enclosed, 0, (&scores, class, false), None)?.1)
        };
        let (mut good, mut bad) = (0.0, LEAST_CHANGE);
        while holds(bad)? {
            good = bad;
            bad *= 4.0;
            if near.ranges.is_some() && good >= 1.0 {
                return Ok(1.0);
            }
            if !f64::is_finite(bad) {
                return Ok(good);
            }
        }
        if good == 0.0 {
            return Ok(0.0);
        }
        for _ in 0..HALVINGS {
            let middle = (good + bad) / 2.0;
            if holds(middle)? { good = middle } else { bad = middle }
        }
        Ok(good)
    }

    /// Tries `count` inputs of the box, half of them corners, and holds their scores and margins against the certificate.
    pub fn check_samples(
        &self,
        sample: &Tensor,
        near: &InputBox,
        certificate: &Certificate,
        count: usize,
    ) -> Result<SampledInputs> {
        let boxes = self.boxes(sample, near, &[None])?;
        let (lower, upper) = (boxes.lower().to_f64(), boxes.upper().to_f64());
        let mut found = SampledInputs { least_margin: f64::INFINITY, ..SampledInputs::default() };
        let noise = Noise::new(0).stream("bounds");
        for first in (0..count).step_by(SAMPLES_AT_ONCE) {
            let several = first..(first + SAMPLES_AT_ONCE).min(count);
            let mut values = Vec::with_capacity(several.len() * lower.len());
            for number in several.clone() {
                let noise = noise.numbered(number as u64);
                let drawn = (0u64..).zip(lower.iter().zip(upper.iter())).map(|(i, (&l, &u))| {
                    let share = noise.uniform(i);
                    let share = if number % 2 == 0 { share } else { share.round() };
                    (l + share * (u - l)).clamp(l, u)
                });
                values.extend(drawn);
            }
            let mut shape = sample.shape().to_vec();
            shape[0] = several.len();
            for scores in self.scores(&Tensor::new(shape, values)?)? {
                found.tried += 1;
                let outside = |(score, range): (&f64, &(f64, f64))| !(range.0 <= *score && *score <= range.1);
                found.violations +=
                    scores.iter().zip(&certificate.score_ranges).filter(|pair| outside(*pair)).count();
                for bound in &certificate.margins {
                    let margin = scores[certificate.class] - scores[bound.rival];
                    found.violations += usize::from(margin < bound.best());
                    found.least_margin = found.least_margin.min(margin);
                }
            }
        }
        Ok(found)
    }

    /// The margins over one box, the least at the input first. Linear bounds are computed of `all`, or where no other bound suffices
    /// and until one does not either; the slopes of the first of them are returned.
    fn margins(
        &self,
        enclosed: &EnclosedBoxes<'_>,
        index: usize,
        (scores, class, all): (&[f64], usize, bool),
        streams: Option<&StreamRanges>,
    ) -> Result<(Vec<MarginBound>, bool, Vec<Vec<f64>>)> {
        let ranges = enclosed.scores(index)?;
        let mut rivals: Vec<usize> = (0..scores.len()).filter(|&rival| rival != class).collect();
        rivals.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
        let bound = |&rival: &usize| MarginBound {
            rival,
            at_input: scores[class] - scores[rival],
            // The difference is rounded, at most by half a unit in the last place.
            intervals: (ranges[class].0 - ranges[rival].1).next_down(),
            streams: streams.map(|streams| streams.margin(class, rival)),
            linear: None,
        };
        let mut margins: Vec<MarginBound> = rivals.iter().map(bound).collect();
        // The nearest class always gets a linear bound, so that there is one to report.
        let open: Vec<usize> =
            (0..margins.len()).filter(|&at| all || at == 0 || margins[at].best() <= 0.0).collect();
        let mut slopes = Vec::new();
        for several in open.chunks(RIVALS_AT_ONCE) {
            let weights: Vec<Vec<f64>> = several
                .iter()
                .map(|&at| {
                    let mut row = vec![0.0; scores.len()];
                    (row[class], row[margins[at].rival]) = (1.0, -1.0);
                    row
                })
                .collect();
            let linear = enclosed.least(index, &weights)?;
            for (&at, bound) in several.iter().zip(linear) {
                margins[at].linear = Some(bound.value);
                if slopes.len() < SAMPLES_AT_ONCE {
                    slopes.push(bound.slopes);
                }
            }
            if !all && several.iter().any(|&at| margins[at].best() <= 0.0) {
                break;
            }
        }
        let certified = margins.iter().all(|margin| margin.best() > 0.0);
        Ok((margins, certified, slopes))
    }

    /// The least margin at the corners to which linear bounds point.
    fn least_margin_at_corners(&self, boxes: &InputBoxes, class: usize, slopes: &[Vec<f64>]) -> Result<f64> {
        if slopes.is_empty() {
            return Ok(f64::INFINITY);
        }
        let (lower, upper) = (boxes.lower().to_f64(), boxes.upper().to_f64());
        let mut values = Vec::with_capacity(slopes.len() * lower.len());
        for slopes in slopes {
            let ends = slopes.iter().zip(lower.iter().zip(upper.iter()));
            values.extend(ends.map(|(&slope, (&l, &u))| if slope > 0.0 { l } else { u }));
        }
        let mut shape = boxes.lower().shape().to_vec();
        shape[0] = slopes.len();
        let scores = self.scores(&Tensor::new(shape, values)?)?;
        let least = scores.iter().map(|scores| {
            let rivals = scores.iter().enumerate().filter(|&(rival, _)| rival != class);
            scores[class] - rivals.map(|(_, &score)| score).fold(f64::NEG_INFINITY, f64::max)
        });
        Ok(least.fold(f64::INFINITY, f64::min))
    }

    fn class(&self, scores: &[f64], class: Option<usize>) -> Result<usize> {
        let best = (0..scores.len()).max_by(|&a, &b| scores[a].total_cmp(&scores[b]).then(b.cmp(&a)));
        let class = class.or(best).filter(|&class| class < scores.len());
        let class = class.ok_or_else(|| Error::argument("the network has no such class"))?;
        if scores.len() < 2 {
            return Err(Error::argument(
                "the network has one score alone, so that there is no class to flip to",
            ));
        }
        Ok(class)
    }
}
