//! Class scores and gradients of perturbed samples. The network is cut at a layer; the part before the cut is run once for
//! each sample, the part after it is compiled once and run on perturbed copies of the layer's value. Copies of all samples
//! share batches of bounded size, and no more than one batch of copies exists at a time.

use monosplit_engine::{Change, CompileOptions, Engine, IncrementalProgram, Program, Reservation};
use monosplit_graph::batch::{places_differ, samples_interact};
use monosplit_graph::{Data, Dim, Error, Graph, Result, Tensor};

use crate::baseline::Baseline;
use crate::bindings::bind;
use crate::explain_batch::{Class, ExplainBatch, Settings};
use crate::explanation_graph::{ClassInput, ExplanationGraph};
use crate::finish::{ChannelReduction, Finish};
use crate::method::{MapRequest, NetworkLayer};
use crate::methods::Gradient;
use crate::model_output::{ModelOutput, ModelOutputs};
use crate::network::{Network, class_scores};
use crate::network_partition::{NetworkPartition, batch_of};
use crate::sample_layout::{Region, SampleLayout};
use crate::target::is_target_score;

/// The default number of perturbed copies in a batch.
pub(crate) const BATCH: usize = 16;
/// The largest batch size accepted.
const MAX_BATCH: usize = 4096;
/// The largest number of perturbed copies of one sample accepted.
const MAX_PERTURBATIONS: usize = 10_000_000;

/// Runs a network on perturbed copies of a layer's value.
pub(crate) struct Scorer {
    partition: NetworkPartition,
    suffix: SuffixProgram,
    batch: usize,
    has_probabilities: bool,
}

/// The part of the network after the cut.
enum SuffixProgram {
    /// Computes everything.
    Full { explanation: Box<ExplanationGraph>, program: Box<dyn Program> },
    /// Computes the receptive field of a change within a rectangle of the image.
    Incremental { scores: Graph, program: Box<IncrementalProgram> },
}

/// A perturbed copy: the index of its sample, and its number among the copies of that sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Perturbation {
    pub(crate) sample: usize,
    pub(crate) number: usize,
}

/// The values of a batch at the cut: those of the layer, and all others that the part after the cut uses.
pub(crate) struct CutValues<'a> {
    pub(crate) batch: &'a ExplainBatch<'a>,
    classes: &'a [usize],
    values: Vec<f64>,
    length: usize,
    crossing: Vec<Tensor>,
    /// Their part of the memory budget.
    _held: Reservation,
}

impl CutValues<'_> {
    /// Number of samples.
    pub(crate) fn samples(&self) -> usize {
        self.classes.len()
    }

    /// The unperturbed value of a sample.
    pub(crate) fn value(&self, sample: usize) -> &[f64] {
        &self.values[sample * self.length..(sample + 1) * self.length]
    }
}

impl Scorer {
    /// For class scores of perturbed copies of a layer.
    pub(crate) fn scores(target: &NetworkLayer<'_>, engine: &dyn Engine, batch: usize) -> Result<Self> {
        Scorer::new(target, engine, batch, &[])
    }

    /// For class scores of perturbed copies of a layer, and their gradients with respect to it.
    pub(crate) fn gradients(target: &NetworkLayer<'_>, engine: &dyn Engine, batch: usize) -> Result<Self> {
        Scorer::new(target, engine, batch, &[MapRequest::at_input(Gradient)])
    }

    /// For class scores of perturbed copies of the image, and their gradients with respect to a layer.
    pub(crate) fn gradients_behind(
        target: &NetworkLayer<'_>,
        engine: &dyn Engine,
        batch: usize,
    ) -> Result<Self> {
        let request = MapRequest { layer: target.layer.map(str::to_owned), ..MapRequest::at_input(Gradient) };
        Scorer::new(&NetworkLayer { layer: None, ..*target }, engine, batch, &[request])
    }

    /// For class scores of copies of the image that are perturbed within boxes of at most this size. The receptive
    /// field of the change alone is computed where the image has height and width and the engine can.
    pub(crate) fn local(
        target: &NetworkLayer<'_>,
        engine: &dyn Engine,
        batch: usize,
        largest: &[usize],
    ) -> Result<Self> {
        let (None, &[height, width]) = (target.layer, largest) else {
            return Scorer::scores(target, engine, batch);
        };
        check_batch(batch)?;
        check_samples(target.network)?;
        let network = Network::new(target.network)?;
        if places_differ(network.graph()) {
            return Scorer::scores(target, engine, batch);
        }
        let scores = class_scores(target.network)?;
        let Some(program) = engine.compile_incremental(&scores, [height, width], batch)? else {
            return Scorer::scores(target, engine, batch);
        };
        let partition = NetworkPartition::at(&network, network.input(), engine)?;
        Ok(Scorer {
            partition,
            suffix: SuffixProgram::Incremental { scores, program: Box::new(program) },
            batch,
            has_probabilities: !is_target_score(target.network),
        })
    }

    fn new(
        target: &NetworkLayer<'_>,
        engine: &dyn Engine,
        batch: usize,
        requests: &[MapRequest],
    ) -> Result<Self> {
        check_batch(batch)?;
        check_samples(target.network)?;
        let partition = NetworkPartition::new(target, engine)?;
        let scorer = Scorer::over(partition, engine, batch, requests)?;
        Ok(Scorer { has_probabilities: !is_target_score(target.network), ..scorer })
    }

    fn over(
        partition: NetworkPartition,
        engine: &dyn Engine,
        batch: usize,
        requests: &[MapRequest],
    ) -> Result<Self> {
        let whole = Finish { channels: ChannelReduction::Keep, ..Finish::default() };
        let requests: Vec<MapRequest> =
            requests.iter().map(|request| request.clone().finish(whole)).collect();
        let explanation = Box::new(ExplanationGraph::new(&partition.suffix, ClassInput::Given, &requests)?);
        let program =
            engine.compile_with(explanation.graph(), &CompileOptions::default().batch_size(batch))?;
        let suffix = SuffixProgram::Full { explanation, program };
        Ok(Scorer { partition, suffix, batch, has_probabilities: true })
    }

    /// The layout of the value that is perturbed.
    pub(crate) fn layout(&self) -> &SampleLayout {
        &self.partition.layout
    }

    /// Runs the part before the cut.
    pub(crate) fn cut_values<'a>(
        &self,
        batch: &'a ExplainBatch<'a>,
        classes: &'a [usize],
    ) -> Result<CutValues<'a>> {
        let mut crossing = self.partition.prefix.values(batch)?;
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
        let crossing_length: usize = crossing.iter().map(Tensor::len).sum();
        let bytes = (value.len() + crossing_length).saturating_mul(size_of::<f64>());
        let _held = match &self.suffix {
            SuffixProgram::Full { program, .. } => program.hold_memory(bytes),
            SuffixProgram::Incremental { program, .. } => program.hold_memory(bytes),
        };
        Ok(CutValues { batch, classes, values: value.to_f64().into_vec(), length, crossing, _held })
    }

    /// The shape of a sample's gradient.
    pub(crate) fn gradient_dims(&self) -> Vec<usize> {
        let SuffixProgram::Full { explanation, .. } = &self.suffix else { return Vec::new() };
        let graph = explanation.graph();
        let shape = graph.outputs().get(2).map(|output| &graph.node(output.node).shape);
        shape.map_or_else(Vec::new, |shape| shape.dims()[1..].iter().filter_map(|dim| dim.fixed()).collect())
    }

    /// The layout of the image.
    pub(crate) fn image(&self) -> &SampleLayout {
        &self.partition.image
    }

    /// For each sample the value of the layer on its baseline image.
    pub(crate) fn baseline_values(
        &self,
        cut_values: &CutValues<'_>,
        baseline: &Baseline,
    ) -> Result<Vec<Vec<f64>>> {
        let images = baseline.images(cut_values.batch, &self.partition.image)?;
        let batch = ExplainBatch { images: &images, ..*cut_values.batch };
        let value = self.partition.prefix.values(&batch)?.swap_remove(0).to_f64();
        Ok(value.chunks(cut_values.length).map(<[f64]>::to_vec).collect())
    }

    /// For each sample the values that replace removed elements of the layer.
    pub(crate) fn replacements(
        &self,
        cut_values: &CutValues<'_>,
        baseline: &Baseline,
    ) -> Result<Vec<Vec<f64>>> {
        let each = (0..cut_values.samples())
            .map(|sample| baseline.of_value(cut_values.value(sample), self.layout()));
        each.collect::<Option<Vec<_>>>().map_or_else(|| self.baseline_values(cut_values, baseline), Ok)
    }

    /// Runs `counts[i]` perturbed copies of sample `i`. Each starts as the value of the sample; `change` perturbs it, and `take`
    /// receives its outputs: sample by sample, in the order of the copies' numbers.
    pub(crate) fn run_perturbed(
        &self,
        cut_values: &CutValues<'_>,
        counts: &[usize],
        mut change: impl FnMut(Perturbation, &mut [f64]),
        take: impl FnMut(Perturbation, &ModelOutput<'_>),
    ) -> Result<()> {
        let mut copies = Vec::new();
        let outputs = |batch: &[Perturbation]| {
            copies.clear();
            for &perturbation in batch {
                let from = copies.len();
                copies.extend_from_slice(cut_values.value(perturbation.sample));
                change(perturbation, &mut copies[from..]);
            }
            let (outputs, reused) = self.run(cut_values, batch, std::mem::take(&mut copies))?;
            copies = reused;
            Ok(outputs)
        };
        self.run_in_batches(cut_values, counts, outputs, take)
    }

    /// Like [`Scorer::run_perturbed`], for copies that are perturbed within a region and nowhere else.
    pub(crate) fn run_perturbed_regions(
        &self,
        cut_values: &CutValues<'_>,
        counts: &[usize],
        region: impl Fn(Perturbation) -> Region,
        mut change: impl FnMut(Perturbation, &mut [f64]),
        take: impl FnMut(Perturbation, &ModelOutput<'_>),
    ) -> Result<()> {
        let SuffixProgram::Incremental { scores, program } = &self.suffix else {
            return self.run_perturbed(cut_values, counts, change, take);
        };
        let baseline = program.baseline(&bind(scores, cut_values.batch, &[])?)?;
        let (mut copy, mut copied) = (Vec::new(), None);
        let mut changed = |perturbation: Perturbation| {
            if copied.replace(perturbation.sample) != Some(perturbation.sample) {
                copy = cut_values.value(perturbation.sample).to_vec();
            }
            let region = region(perturbation);
            change(perturbation, &mut copy);
            let values = exchanged(&region, self.layout(), cut_values.value(perturbation.sample), &mut copy)?;
            let region = <[_; 2]>::try_from(region).map_err(|region| {
                Error::shape(format!(
                    "expected a change of rows and columns, found one along {} axes",
                    region.len()
                ))
            })?;
            Ok(Change { sample: perturbation.sample, region, values })
        };
        let outputs = |batch: &[Perturbation]| {
            let changes =
                batch.iter().map(|&perturbation| changed(perturbation)).collect::<Result<Vec<_>>>()?;
            program.run(&baseline, &changes)
        };
        self.run_in_batches(cut_values, counts, outputs, take)
    }

    /// The number of copies in a batch, given their total number. Where the places of a batch differ, each copy is run alone.
    fn batch_of(&self, total: usize) -> usize {
        match self.partition.prefix.samples() {
            _ if self.partition.places_differ => 1,
            Dim::Fixed(size) if size > 0 => size,
            _ => {
                let batch = self.batch.min(total);
                match &self.suffix {
                    SuffixProgram::Full { program, .. } => program.samples_at_once(batch, 0),
                    SuffixProgram::Incremental { program, .. } => program.copies_at_once(batch),
                }
            }
        }
    }

    /// The place of a sample in its batch, where that matters.
    fn place(&self, sample: usize) -> Option<usize> {
        match self.partition.prefix.samples() {
            Dim::Fixed(size) if size > 0 && self.partition.places_differ => Some(sample % size),
            _ => None,
        }
    }

    /// Hands copies to `outputs` batch by batch, and their outputs to `take`.
    fn run_in_batches(
        &self,
        cut_values: &CutValues<'_>,
        counts: &[usize],
        mut outputs: impl FnMut(&[Perturbation]) -> Result<Vec<Tensor>>,
        mut take: impl FnMut(Perturbation, &ModelOutput<'_>),
    ) -> Result<()> {
        let total = total(counts)?;
        let size = self.batch_of(total);
        let each = counts.iter().enumerate();
        let mut waiting =
            each.flat_map(|(sample, &count)| (0..count).map(move |number| Perturbation { sample, number }));
        let mut done = 0;
        while done < total {
            let batch: Vec<Perturbation> = waiting.by_ref().take(size).collect();
            let outputs_of = ModelOutputs::new(&outputs(&batch)?, self.has_probabilities);
            for (row, &perturbation) in batch.iter().enumerate() {
                let row = self.place(perturbation.sample).unwrap_or(row);
                take(perturbation, &outputs_of.row(row, cut_values.classes[perturbation.sample]));
            }
            done += batch.len();
            cut_values.batch.progress.advance(done, total)?;
        }
        Ok(())
    }

    /// Runs one batch. For a network of fixed batch size the last copy is repeated until the batch is full. Returns the memory
    /// of the copies for reuse.
    fn run(
        &self,
        cut_values: &CutValues<'_>,
        batch: &[Perturbation],
        mut copies: Vec<f64>,
    ) -> Result<(Vec<Tensor>, Vec<f64>)> {
        let rows = match self.partition.prefix.samples() {
            Dim::Fixed(size) if size > 0 => size,
            _ => batch.len(),
        };
        let last = (batch.len() - 1) * cut_values.length;
        (batch.len()..rows).for_each(|_| copies.extend_from_within(last..last + cut_values.length));
        let samples: Vec<usize> = (0..rows).map(|row| batch[row.min(batch.len() - 1)].sample).collect();
        let classes: Vec<i64> = samples.iter().map(|&sample| cut_values.classes[sample] as i64).collect();
        let images = Tensor::new(batch_of(rows, self.layout().dims()), copies)?;
        let mut given = Vec::with_capacity(cut_values.crossing.len());
        for (i, (name, value)) in self.partition.names.iter().zip(&cut_values.crossing).enumerate() {
            given.push((name.as_str(), self.partition.prefix.picked(i + 1, value, &samples)?));
        }
        let (class, settings) = (Class::Top, Settings::default());
        let batch = ExplainBatch { other_inputs: &given, ..ExplainBatch::new(&images, &class, &settings) };
        let SuffixProgram::Full { explanation, program } = &self.suffix else {
            return Err(Error::argument("the scorer was compiled for perturbations of small regions only"));
        };
        let outputs = program.run(&bind(explanation.graph(), &batch, &classes)?)?;
        let copies = match images.into_data() {
            Data::F64(copies) => copies.into_vec(),
            _ => Vec::new(),
        };
        Ok((outputs, copies))
    }
}

/// The elements `[channels, …]` of a region of a perturbed image, which is restored to the original there.
fn exchanged(region: &Region, layout: &SampleLayout, was: &[f64], image: &mut [f64]) -> Result<Tensor> {
    let lengths: Vec<usize> = region.iter().map(ExactSizeIterator::len).collect();
    let mut values = Vec::with_capacity(layout.channels() * lengths.iter().product::<usize>());
    for channel in 0..layout.channels() {
        layout.for_each_position(region, |position| {
            let element = layout.element(channel, position);
            values.push(std::mem::replace(&mut image[element], was[element]));
        });
    }
    Tensor::new(batch_of(layout.channels(), &lengths), values)
}

/// Fails if the batch size is out of range.
pub(crate) fn check_batch(batch: usize) -> Result<()> {
    if (1..=MAX_BATCH).contains(&batch) {
        return Ok(());
    }
    Err(Error::argument(format!("the batch size is {batch}, expected 1 to {MAX_BATCH}")))
}

/// Fails if the samples of a batch influence each other: perturbed copies must not.
pub(crate) fn check_samples(network: &Graph) -> Result<()> {
    if samples_interact(network) {
        return Err(Error::unsupported(
            "the method runs perturbed copies of a sample in one batch, but in this network the samples of a batch \
             depend on each other; export it in evaluation mode, or choose a method that is one graph",
        ));
    }
    Ok(())
}

/// The total number of copies.
fn total(counts: &[usize]) -> Result<usize> {
    let most = counts.iter().max().copied().unwrap_or(0);
    counts
        .iter()
        .try_fold(0usize, |sum, &count| sum.checked_add(count))
        .filter(|_| most <= MAX_PERTURBATIONS)
        .ok_or_else(|| {
            Error::argument(format!(
                "the network would be run {most} times for one sample; the limit is {MAX_PERTURBATIONS}"
            ))
        })
}
