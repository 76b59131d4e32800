//! A network asked many times: the part above a value, compiled once, run on changed copies of that value in batches of
//! bounded size. The copies of all samples in question share the batches; no more of them than one batch ever exist.

use std::ops::Range;

use monosplit_engine::{Change, CompileOptions, Engine, IncrementalProgram, Program};
use monosplit_graph::batch::samples_interact;
use monosplit_graph::{Data, Dim, Error, Graph, Result, Tensor, element_count};

use crate::baseline::Baseline;
use crate::bindings::bind;
use crate::explain_batch::{Class, ExplainBatch, Settings};
use crate::explanation_graph::{ClassInput, ExplanationGraph};
use crate::finish::{Channels, Finish};
use crate::layout::Layout;
use crate::method::{MapRequest, NetworkLayer};
use crate::methods::Gradient;
use crate::network::{Network, class_scores};
use crate::section::{Section, batch_of};

/// How many changed copies are asked about at once unless told otherwise.
pub(crate) const BATCH: usize = 16;
/// More copies at once than this are refused.
const LARGEST_BATCH: usize = 4096;
/// More copies of one sample than this are refused.
const MOST_DRAWS: usize = 10_000_000;

/// The network from a value on.
pub(crate) struct Scorer {
    section: Section,
    above: Above,
    batch: usize,
}

/// How what lies above the value is computed.
enum Above {
    /// All of it.
    Whole { explanation: Box<ExplanationGraph>, program: Box<dyn Program> },
    /// What a change within a rectangle of the image reaches.
    Incremental { scores: Graph, program: Box<dyn IncrementalProgram> },
}

/// Rows and columns of an image.
pub(crate) type Region = [Range<usize>; 2];

/// A changed copy: of which sample, and which of its copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Draw {
    pub(crate) sample: usize,
    pub(crate) number: usize,
}

/// What the network says of a changed copy.
pub(crate) struct Answer<'a> {
    class: usize,
    scores: &'a [f64],
    /// The gradient of the explained score; empty where none is computed.
    pub(crate) gradient: &'a [f64],
}

impl Answer<'_> {
    /// The score of the explained class.
    pub(crate) fn score(&self) -> f64 {
        self.scores[self.class]
    }

    /// Its probability: the softmax of the scores.
    pub(crate) fn probability(&self) -> f64 {
        let largest = self.scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let total: f64 = self.scores.iter().map(|score| (score - largest).exp()).sum();
        (self.score() - largest).exp() / total
    }
}

/// The samples in question: their value at the cut, and what else reaches the class scores.
pub(crate) struct Stage<'a> {
    pub(crate) batch: &'a ExplainBatch<'a>,
    classes: &'a [usize],
    values: Vec<f64>,
    length: usize,
    crossing: Vec<Tensor>,
}

impl Stage<'_> {
    /// Number of samples.
    pub(crate) fn samples(&self) -> usize {
        self.classes.len()
    }

    /// A sample's own value.
    pub(crate) fn value(&self, sample: usize) -> &[f64] {
        &self.values[sample * self.length..(sample + 1) * self.length]
    }
}

impl Scorer {
    /// Class scores for changed copies of the target.
    pub(crate) fn scores(target: &NetworkLayer<'_>, engine: &dyn Engine, batch: usize) -> Result<Self> {
        Scorer::new(target, engine, batch, &[])
    }

    /// Class scores for changed copies of the target, and their gradients with respect to it.
    pub(crate) fn gradients(target: &NetworkLayer<'_>, engine: &dyn Engine, batch: usize) -> Result<Self> {
        Scorer::new(target, engine, batch, &[MapRequest::at_input(Gradient)])
    }

    /// Class scores for changed copies of the image, and their gradients with respect to the target.
    pub(crate) fn gradients_behind(
        target: &NetworkLayer<'_>,
        engine: &dyn Engine,
        batch: usize,
    ) -> Result<Self> {
        let request = MapRequest { layer: target.layer.map(str::to_owned), ..MapRequest::at_input(Gradient) };
        Scorer::new(&NetworkLayer { layer: None, ..*target }, engine, batch, &[request])
    }

    /// Class scores for copies of the image changed within areas of at most this size, or of a layer changed anywhere.
    pub(crate) fn local(
        target: &NetworkLayer<'_>,
        engine: &dyn Engine,
        batch: usize,
        largest: [usize; 2],
    ) -> Result<Self> {
        if target.layer.is_some() {
            return Scorer::scores(target, engine, batch);
        }
        check_batch(batch)?;
        check_samples(target.network)?;
        let network = Network::new(target.network)?;
        let scores = class_scores(target.network)?;
        let Some(program) = engine.compile_incremental(&scores, largest, batch)? else {
            return Scorer::scores(target, engine, batch);
        };
        let section = Section::at(&network, network.input(), engine)?;
        Ok(Scorer { section, above: Above::Incremental { scores, program }, batch })
    }

    fn new(
        target: &NetworkLayer<'_>,
        engine: &dyn Engine,
        batch: usize,
        requests: &[MapRequest],
    ) -> Result<Self> {
        check_batch(batch)?;
        check_samples(target.network)?;
        Scorer::over(Section::new(target, engine)?, engine, batch, requests)
    }

    fn over(section: Section, engine: &dyn Engine, batch: usize, requests: &[MapRequest]) -> Result<Self> {
        let whole = Finish { channels: Channels::Keep, ..Finish::default() };
        let requests: Vec<MapRequest> =
            requests.iter().map(|request| request.clone().finish(whole)).collect();
        let explanation = Box::new(ExplanationGraph::new(&section.above, ClassInput::Given, &requests)?);
        let program =
            engine.compile_with(explanation.graph(), &CompileOptions::default().batch_size(batch))?;
        Ok(Scorer { section, above: Above::Whole { explanation, program }, batch })
    }

    /// How the value that is changed is arranged.
    pub(crate) fn layout(&self) -> &Layout {
        &self.section.layout
    }

    /// Computes what lies below the cut.
    pub(crate) fn stage<'a>(&self, batch: &'a ExplainBatch<'a>, classes: &'a [usize]) -> Result<Stage<'a>> {
        let mut crossing = self.section.below.values(batch)?;
        let value = crossing.remove(0);
        let length = self.layout().len();
        if value.shape() != batch_of(classes.len(), self.layout().dims()) {
            return Err(Error::shape(format!(
                "expected {} samples of shape {:?}, found {:?}",
                classes.len(),
                self.layout().dims(),
                value.shape()
            )));
        }
        Ok(Stage { batch, classes, values: value.to_f64().into_vec(), length, crossing })
    }

    /// The shape of a sample's gradient.
    pub(crate) fn gradient_dims(&self) -> Vec<usize> {
        let Above::Whole { explanation, .. } = &self.above else { return Vec::new() };
        let graph = explanation.graph();
        let shape = graph.outputs().get(2).map(|output| &graph.node(output.node).shape);
        shape.map_or_else(Vec::new, |shape| shape.dims()[1..].iter().filter_map(|dim| dim.fixed()).collect())
    }

    /// How the image is arranged.
    pub(crate) fn image(&self) -> &Layout {
        &self.section.image
    }

    /// For each sample the value that its baseline image has: where paths begin.
    pub(crate) fn starts(&self, stage: &Stage<'_>, baseline: &Baseline) -> Result<Vec<Vec<f64>>> {
        let images = baseline.images(stage.batch, &self.section.image)?;
        let batch = ExplainBatch { images: &images, ..*stage.batch };
        let value = self.section.below.values(&batch)?.swap_remove(0).to_f64();
        Ok(value.chunks(stage.length).map(<[f64]>::to_vec).collect())
    }

    /// For each sample what covers those parts of its value that are taken away.
    pub(crate) fn covers(&self, stage: &Stage<'_>, baseline: &Baseline) -> Result<Vec<Vec<f64>>> {
        let each = (0..stage.samples()).map(|sample| baseline.of_value(stage.value(sample), self.layout()));
        each.collect::<Option<Vec<_>>>().map_or_else(|| self.starts(stage, baseline), Ok)
    }

    /// Asks about as many changed copies of each sample as `draws` says. Each begins as the sample's own value, `change`
    /// changes it, `take` hears the answer: sample by sample, in the order of the copies' numbers.
    pub(crate) fn ask(
        &self,
        stage: &Stage<'_>,
        draws: &[usize],
        mut change: impl FnMut(Draw, &mut [f64]),
        take: impl FnMut(Draw, &Answer<'_>),
    ) -> Result<()> {
        let mut copies = Vec::new();
        let outputs = |batch: &[Draw]| {
            copies.clear();
            for &draw in batch {
                let from = copies.len();
                copies.extend_from_slice(stage.value(draw.sample));
                change(draw, &mut copies[from..]);
            }
            let (outputs, reused) = self.run(stage, batch, std::mem::take(&mut copies))?;
            copies = reused;
            Ok(outputs)
        };
        self.ask_in_batches(stage, draws, outputs, take)
    }

    /// Like [`Scorer::ask`], of copies that are changed within a region and nowhere else.
    pub(crate) fn ask_locally(
        &self,
        stage: &Stage<'_>,
        draws: &[usize],
        region: impl Fn(Draw) -> Region,
        mut change: impl FnMut(Draw, &mut [f64]),
        take: impl FnMut(Draw, &Answer<'_>),
    ) -> Result<()> {
        let Above::Incremental { scores, program } = &self.above else {
            return self.ask(stage, draws, change, take);
        };
        let baseline = program.baseline(&bind(scores, stage.batch, &[])?)?;
        let (_, width) = self.layout().plane()?;
        let (mut copy, mut copied) = (Vec::new(), None);
        let mut changed = |draw: Draw| {
            if copied.replace(draw.sample) != Some(draw.sample) {
                copy = stage.value(draw.sample).to_vec();
            }
            let region = region(draw);
            change(draw, &mut copy);
            let values = exchanged(&region, width, self.layout(), stage.value(draw.sample), &mut copy)?;
            Ok(Change { sample: draw.sample, region, values })
        };
        let outputs = |batch: &[Draw]| {
            let changes = batch.iter().map(|&draw| changed(draw)).collect::<Result<Vec<_>>>()?;
            program.run(&baseline, &changes)
        };
        self.ask_in_batches(stage, draws, outputs, take)
    }

    /// The number of copies in a batch, if there are so many in all.
    fn batch_of(&self, total: usize) -> usize {
        match self.section.below.samples() {
            Dim::Fixed(size) if size > 0 => size,
            _ => self.batch.min(total),
        }
    }

    /// Asks about copies whose outputs are computed a batch at a time.
    fn ask_in_batches(
        &self,
        stage: &Stage<'_>,
        draws: &[usize],
        mut outputs: impl FnMut(&[Draw]) -> Result<Vec<Tensor>>,
        mut take: impl FnMut(Draw, &Answer<'_>),
    ) -> Result<()> {
        let total = total(draws)?;
        let size = self.batch_of(total);
        let each = draws.iter().enumerate();
        let mut waiting =
            each.flat_map(|(sample, &count)| (0..count).map(move |number| Draw { sample, number }));
        let mut done = 0;
        while done < total {
            let batch: Vec<Draw> = waiting.by_ref().take(size).collect();
            let answers = Answers::new(&outputs(&batch)?);
            for (row, &draw) in batch.iter().enumerate() {
                take(draw, &answers.row(row, stage.classes[draw.sample]));
            }
            done += batch.len();
            stage.batch.progress.advance(done, total);
        }
        Ok(())
    }

    /// Runs one batch; a network of fixed batch size gets its last copy again until it has enough. The memory of the copies is
    /// handed back.
    fn run(
        &self,
        stage: &Stage<'_>,
        batch: &[Draw],
        mut copies: Vec<f64>,
    ) -> Result<(Vec<Tensor>, Vec<f64>)> {
        let rows = match self.section.below.samples() {
            Dim::Fixed(size) if size > 0 => size,
            _ => batch.len(),
        };
        let last = (batch.len() - 1) * stage.length;
        (batch.len()..rows).for_each(|_| copies.extend_from_within(last..last + stage.length));
        let samples: Vec<usize> = (0..rows).map(|row| batch[row.min(batch.len() - 1)].sample).collect();
        let classes: Vec<i64> = samples.iter().map(|&sample| stage.classes[sample] as i64).collect();
        let images = Tensor::new(batch_of(rows, self.layout().dims()), copies)?;
        let mut given = Vec::with_capacity(stage.crossing.len());
        for (i, (name, value)) in self.section.names.iter().zip(&stage.crossing).enumerate() {
            given.push((name.as_str(), self.section.below.picked(i + 1, value, &samples)?));
        }
        let (class, settings) = (Class::Top, Settings::default());
        let batch = ExplainBatch { other_inputs: &given, ..ExplainBatch::new(&images, &class, &settings) };
        let Above::Whole { explanation, program } = &self.above else {
            return Err(Error::argument("changes of small regions were prepared for, not of everything"));
        };
        let outputs = program.run(&bind(explanation.graph(), &batch, &classes)?)?;
        let copies = match images.into_data() {
            Data::F64(copies) => copies.into_vec(),
            _ => Vec::new(),
        };
        Ok((outputs, copies))
    }
}

/// The elements `[channels, rows, columns]` of a region of an image, which becomes there what it was.
fn exchanged(
    region: &Region,
    width: usize,
    layout: &Layout,
    was: &[f64],
    image: &mut [f64],
) -> Result<Tensor> {
    let [rows, columns] = region;
    let mut values = Vec::with_capacity(layout.channels() * rows.len() * columns.len());
    for channel in 0..layout.channels() {
        for place in rows.clone().flat_map(|row| columns.clone().map(move |column| row * width + column)) {
            let element = layout.element(channel, place);
            values.push(std::mem::replace(&mut image[element], was[element]));
        }
    }
    Tensor::new([layout.channels(), rows.len(), columns.len()], values)
}

/// An error unless copies are asked about, and not too many at once.
fn check_batch(batch: usize) -> Result<()> {
    if (1..=LARGEST_BATCH).contains(&batch) {
        return Ok(());
    }
    Err(Error::argument(format!("the batch size is {batch}, expected 1 to {LARGEST_BATCH}")))
}

/// An error if copies in one batch would change what the network says of each other.
fn check_samples(network: &Graph) -> Result<()> {
    if samples_interact(network) {
        return Err(Error::unsupported(
            "the method asks about changed copies of a sample by themselves, but in this network the samples of a batch \
             depend on each other; export it in evaluation mode, or choose a method that asks once",
        ));
    }
    Ok(())
}

/// How many copies there are in all.
fn total(draws: &[usize]) -> Result<usize> {
    let most = draws.iter().max().copied().unwrap_or(0);
    draws
        .iter()
        .try_fold(0usize, |sum, &count| sum.checked_add(count))
        .filter(|_| most <= MOST_DRAWS)
        .ok_or_else(|| {
            Error::argument(format!(
                "the network would be asked {most} times about one sample; ask for fewer than {MOST_DRAWS}"
            ))
        })
}

/// The answers to one batch.
struct Answers {
    scores: monosplit_graph::Buffer<f64>,
    classes: usize,
    gradients: Option<(monosplit_graph::Buffer<f64>, usize)>,
}

impl Answers {
    fn new(outputs: &[Tensor]) -> Self {
        let per_row =
            |tensor: &Tensor| element_count(tensor.shape().get(1..).unwrap_or_default()).unwrap_or(0);
        Answers {
            scores: outputs[0].to_f64(),
            classes: per_row(&outputs[0]),
            gradients: outputs.get(2).map(|tensor| (tensor.to_f64(), per_row(tensor))),
        }
    }

    fn row(&self, row: usize, class: usize) -> Answer<'_> {
        let scores = &self.scores[row * self.classes..(row + 1) * self.classes];
        let gradient = match &self.gradients {
            Some((all, length)) => &all[row * length..(row + 1) * length],
            None => &[],
        };
        Answer { class, scores, gradient }
    }
}
