//! Compiling and running incremental programs.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use monosplit_graph::batch::{rows as rows_of, sample_axis, samples_interact, select_samples, stack};
use monosplit_graph::{Buffer, Cut, Data, Dim, Error, Graph, NodeId, Op, Result, Tensor};
use web_time::Instant;

use super::segment::Segment;
use super::tiles::{TileRead, Tiles, whole_reads};
use super::tiling::TilingPlanner;
use super::{BaselineActivations, Change};
use crate::cpu::kernels::scratch::ScratchBuffers;
use crate::cpu::real::Real;
use crate::cpu::thread_pool::ThreadPool;
use crate::profile::{NodeTime, Profile};
use crate::{CompileOptions, Engine, Precision, Program, Reservation, run_in_fixed_batches, samples_within};

/// A graph compiled for inputs that differ from a baseline input within a rectangle: it computes tiles up to an activation, and
/// everything above it. The same arguments give the same bits at every number of threads.
pub struct IncrementalProgram {
    /// The image, then the segments that are computed tile by tile.
    segments: Vec<Segment>,
    /// The program of each segment and tile shape; the image has none.
    tile_programs: Vec<Vec<Box<dyn Program>>>,
    /// Computes the activations of all segments but the image, then what else the part above reads.
    baseline: Box<dyn Program>,
    /// The sample axes of what that program computes.
    axes: Vec<Option<(usize, usize)>>,
    /// Computes the outputs from the activation of the last segment.
    above: Box<dyn Program>,
    /// The length of the image's sample axis.
    samples: Dim,
    largest_change: [usize; 2],
    precision: Precision,
    threads: Arc<ThreadPool>,
    /// Memory of earlier runs.
    scratch: Arc<ScratchBuffers>,
    /// Where the times of moving tiles are recorded, if they are.
    profile: Option<Arc<Mutex<Profile>>>,
}

impl IncrementalProgram {
    /// Compiles `graph` for changes within rectangles of at most this size and about `batch_size` copies at a time; `None`
    /// where computing everything again is as good. Data between runs of `engine` is moved by `threads`.
    pub(crate) fn compile(
        graph: &Graph,
        largest_change: [usize; 2],
        batch_size: usize,
        engine: &dyn Engine,
        threads: Arc<ThreadPool>,
    ) -> Result<Option<Self>> {
        let Some(&image) = graph.inputs().first() else { return Ok(None) };
        let samples = graph.node(image).shape.dims().first();
        let over_samples = |id: NodeId| graph.node(id).shape.dims().first() == samples;
        if any_samples_interact(graph) || !graph.outputs().iter().all(|output| over_samples(output.node)) {
            return Ok(None);
        }
        let planner = TilingPlanner::new(graph, image, largest_change);
        let Some(last) = planner.last_tiled() else { return Ok(None) };
        IncrementalProgram::up_to(last, &planner, batch_size, engine, threads)
    }

    /// Computes tiles up to the node `last`; `None` if that cannot be.
    pub(super) fn up_to(
        last: NodeId,
        planner: &TilingPlanner<'_>,
        batch_size: usize,
        engine: &dyn Engine,
        threads: Arc<ThreadPool>,
    ) -> Result<Option<Self>> {
        let graph = planner.graph;
        let Some(segments) = planner.segments(last) else { return Ok(None) };
        let Some(cut) = Cut::new(graph, last, graph.outputs()) else { return Ok(None) };
        let compile =
            |graph: &Graph, size| engine.compile_with(graph, &CompileOptions::default().batch_size(size));
        let mut tile_programs = vec![Vec::new()];
        for segment in &segments[1..] {
            let mut programs = Vec::with_capacity(segment.tile_shapes.len());
            for &tile in &segment.tile_shapes {
                let about = (batch_size as f64 * tile.share).ceil() as usize;
                programs.push(compile(&segment.tile_graph(graph, tile)?, about)?);
            }
            tile_programs.push(programs);
        }
        let tiled = segments[1..].iter().map(|segment| segment.output);
        let wanted: Vec<NodeId> = tiled.chain(cut.crossing().iter().copied()).collect();
        let samples = graph.node(segments[0].output).shape.dims().first().copied().unwrap_or(Dim::Fixed(1));
        let axes = wanted.iter().map(|&id| sample_axis(graph.node(id).shape.dims(), samples)).collect();
        Ok(Some(IncrementalProgram {
            tile_programs,
            baseline: engine.compile(&with_outputs(graph, &wanted)?)?,
            axes,
            above: compile(&cut.above(graph)?, batch_size)?,
            samples,
            largest_change: planner.largest_change,
            precision: engine.native_precision(),
            threads,
            scratch: Arc::default(),
            profile: None,
            segments,
        }))
    }

    /// Replaces the programs that the run consists of, for engines that wrap the programs of another.
    #[must_use]
    pub fn map_programs(self, replace: impl Fn(Box<dyn Program>) -> Box<dyn Program>) -> Self {
        let each = |programs: Vec<Box<dyn Program>>| programs.into_iter().map(&replace).collect();
        IncrementalProgram {
            tile_programs: self.tile_programs.into_iter().map(each).collect(),
            baseline: replace(self.baseline),
            above: replace(self.above),
            ..self
        }
    }

    /// Counts `bytes` that the caller is going to hold to the memory budget, until the result is dropped.
    pub fn hold_memory(&self, bytes: usize) -> Reservation {
        self.above.hold_memory(bytes)
    }

    /// Memory of earlier runs.
    pub(crate) fn scratch(&self) -> &Arc<ScratchBuffers> {
        &self.scratch
    }

    /// How many of `copies` copies are best run at once, so that the run stays within the memory budget; at least one.
    pub fn copies_at_once(&self, copies: usize) -> usize {
        let numbers = |segment: &Segment| {
            let tiles = segment.tile_shapes.iter().map(|tile| {
                let read =
                    segment.inputs.iter().map(|input| input.shape(tile.size).iter().product::<usize>());
                read.sum::<usize>() + segment.channels * tile.size[0] * tile.size[1]
            });
            tiles.max().unwrap_or(0)
        };
        // What tiles read and are, and the rows of the last segment, beside which the part above reads a copy of them.
        let each = self.segments[1..].iter().map(numbers).sum::<usize>() + 2 * self.last().len();
        let real = if self.precision == Precision::F32 { size_of::<f32>() } else { size_of::<f64>() };
        let programs = || self.tile_programs.iter().flatten().chain([&self.above]);
        samples_within(copies, self.above.memory_left(), |copies| {
            let most = programs().map(|program| program.run_memory(copies)).max().unwrap_or(0);
            most.saturating_add(each.saturating_mul(real).saturating_mul(copies))
        })
    }

    /// Records how long moving tiles takes.
    #[must_use]
    pub(crate) fn record_moves(self, profile: Arc<Mutex<Profile>>) -> Self {
        IncrementalProgram { profile: Some(profile), ..self }
    }

    /// Computes the activations of unchanged inputs: one tensor for each input of the graph, any number of samples.
    pub fn baseline(&self, inputs: &[Tensor]) -> Result<BaselineActivations> {
        let image =
            inputs.first().ok_or_else(|| Error::argument("the graph has an input, none was given"))?;
        let mut tiled = match self.samples {
            Dim::Fixed(size) => run_in_fixed_batches(&*self.baseline, inputs, size, &self.axes)?,
            Dim::Batch(_) => self.baseline.run(inputs)?,
        };
        let crossing = tiled.split_off(self.segments.len() - 1);
        let data = match self.precision {
            Precision::F32 => Data::F32(image.to_f32()),
            Precision::F64 => Data::F64(image.to_f64()),
        };
        tiled.insert(0, Tensor::new(image.shape(), data)?);
        let bytes = |tensor: &Tensor| tensor.len().saturating_mul(size_of::<f64>());
        let held = tiled.iter().chain(&crossing).map(bytes).fold(0, usize::saturating_add);
        let held =
            Arc::new(self.above.hold_memory(if self.precision == Precision::F32 { held / 2 } else { held }));
        Ok(BaselineActivations { tiled, crossing, _held: held })
    }

    /// The outputs of the graph for copies with one change each: row `i` belongs to sample `changes[i].sample` of the
    /// baseline with that change alone. All copies are computed at once.
    pub fn run(&self, baseline: &BaselineActivations, changes: &[Change]) -> Result<Vec<Tensor>> {
        if changes.is_empty() {
            return Err(Error::argument("expected at least one change"));
        }
        self.check(changes, self.samples_of(baseline)?)?;
        match self.precision {
            Precision::F32 => self.run_as::<f32>(baseline, changes),
            Precision::F64 => self.run_as::<f64>(baseline, changes),
        }
    }

    /// The outputs of the graph while changes add up: row 0 belongs to the unchanged input, row `i` to the input after the
    /// first `i` changes. The baseline has one sample. At most `batch_size` copies are computed at once.
    pub fn run_cumulative(
        &self,
        baseline: BaselineActivations,
        changes: &[Change],
        batch_size: usize,
    ) -> Result<Vec<Tensor>> {
        match self.precision {
            Precision::F32 => self.run_cumulative_as::<f32>(baseline, changes, batch_size),
            Precision::F64 => self.run_cumulative_as::<f64>(baseline, changes, batch_size),
        }
    }

    fn last(&self) -> &Segment {
        &self.segments[self.segments.len() - 1]
    }

    /// The number of samples of a baseline; an error if it is that of another program.
    fn samples_of(&self, baseline: &BaselineActivations) -> Result<usize> {
        let samples = baseline.tiled.first().map_or(0, |image| image.len() / self.segments[0].len());
        let lengths = self.segments.iter().map(|segment| segment.len() * samples);
        if !lengths.eq(baseline.tiled.iter().map(Tensor::len)) {
            return Err(Error::argument("the baseline activations are those of another program"));
        }
        Ok(samples)
    }

    /// An error unless the changes lie within the image and are no larger than compiled for.
    fn check(&self, changes: &[Change], samples: usize) -> Result<()> {
        let Segment { channels, size, .. } = self.segments[0];
        for Change { sample, region, values } in changes {
            let [height, width] = [0, 1].map(|axis| region[axis].len());
            let inside = (0..2).all(|axis| region[axis].end <= size[axis]);
            if !inside || height > self.largest_change[0] || width > self.largest_change[1] {
                return Err(Error::argument(format!(
                    "a change of rows {} to {} and columns {} to {}, expected at most {}×{} of {}×{}",
                    region[0].start,
                    region[0].end,
                    region[1].start,
                    region[1].end,
                    self.largest_change[0],
                    self.largest_change[1],
                    size[0],
                    size[1]
                )));
            }
            if *sample >= samples || values.shape() != [channels, height, width] {
                return Err(Error::shape(format!(
                    "a change of sample {sample} by values of shape {:?}, expected one of {samples} samples and \
                     {channels}×{height}×{width} values",
                    values.shape()
                )));
            }
        }
        Ok(())
    }

    fn run_as<R: Real>(&self, baseline: &BaselineActivations, changes: &[Change]) -> Result<Vec<Tensor>> {
        let activations: Vec<Buffer<R>> = baseline.tiled.iter().map(R::of).collect();
        let mut activations: Vec<Cow<'_, [R]>> =
            activations.iter().map(|activation| Cow::Borrowed(&**activation)).collect();
        let samples: Vec<usize> = changes.iter().map(|change| change.sample).collect();
        let mut rows = self.scratch.take(changes.len() * self.last().len());
        rows.clear();
        self.propagate(changes, &mut activations, &mut rows)?;
        self.run_above(rows, &samples, &baseline.crossing)
    }

    fn run_cumulative_as<R: Real>(
        &self,
        baseline: BaselineActivations,
        changes: &[Change],
        batch_size: usize,
    ) -> Result<Vec<Tensor>> {
        if self.samples_of(&baseline)? != 1 {
            return Err(Error::argument(
                "changes add up in one sample; the baseline activations are those of several",
            ));
        }
        self.check(changes, 1)?;
        let BaselineActivations { tiled, crossing, _held } = baseline;
        let activations =
            tiled.into_iter().map(|tensor| R::from_data(tensor.into_data()).unwrap_or_default());
        let mut activations: Vec<Cow<'_, [R]>> = activations.map(Cow::Owned).collect();
        // The unchanged copy is part of the first batch, and no batch is much smaller than the others.
        let copies = 1 + changes.len();
        let batches = copies.div_ceil(self.copies_at_once(batch_size.max(1)));
        let mut parts = Vec::with_capacity(batches);
        for number in 0..batches {
            let (first, end) = (number * copies / batches, (number + 1) * copies / batches);
            let batch = &changes[first.saturating_sub(1)..end - 1];
            let mut rows = self.scratch.take((end - first) * self.last().len());
            rows.clear();
            if number == 0 {
                rows.extend_from_slice(&activations[activations.len() - 1]);
            }
            self.propagate(batch, &mut activations, &mut rows)?;
            parts.push(self.run_above(rows, &vec![0; end - first], &crossing)?);
        }
        joined(&parts)
    }

    /// Writes the changes into the activations and appends to `rows` the activation of the last segment with each. Changes add up
    /// in owned activations; borrowed ones stay as they are.
    fn propagate<R: Real>(
        &self,
        changes: &[Change],
        activations: &mut [Cow<'_, [R]>],
        rows: &mut Vec<R>,
    ) -> Result<()> {
        self.threads.install(|| {
            let mut all = vec![Tiles::<R>::of_image(changes)];
            all.extend(self.segments[1..].iter().map(|segment| Tiles::of(segment, changes)));
            for (index, segment) in self.segments.iter().enumerate() {
                let (computed, later) = all.split_at_mut(index + 1);
                let tiles = &mut computed[index];
                if index > 0 {
                    self.compute_tiles(index, tiles)?;
                }
                let begun = Instant::now();
                let readers = later.iter_mut().zip(&self.segments[index + 1..]);
                let reads: Vec<TileRead<'_, R>> = match readers.len() {
                    0 => whole_reads(index, segment, changes.len(), rows),
                    _ => readers
                        .flat_map(|(tiles, reader)| tiles.reads_of(reader, index, &self.scratch))
                        .collect(),
                };
                tiles.propagate(segment, &mut activations[index], changes, reads, &self.threads);
                tiles.values = Vec::new();
                self.record_move(segment, changes.len(), begun);
            }
            Ok(())
        })
    }

    /// Computes the tiles of a segment from their inputs, whose memory is used again.
    fn compute_tiles<R: Real>(&self, index: usize, tiles: &mut Tiles<R>) -> Result<()> {
        let segment = &self.segments[index];
        let mut inputs = std::mem::take(&mut tiles.inputs);
        for (shape, (tile, program)) in segment.tile_shapes.iter().zip(&self.tile_programs[index]).enumerate()
        {
            let copies = tiles.count(shape);
            let mut given = Vec::with_capacity(inputs.len());
            for (window, memory) in segment.inputs.iter().zip(&mut inputs) {
                let [channels, height, width] = window.shape(tile.size);
                let memory = std::mem::take(&mut memory[shape]);
                given.push(Tensor::new([copies, channels, height, width], R::into_data(memory.into()))?);
            }
            tiles.values.push(match copies {
                0 => Vec::new().into(),
                _ => R::of(&program.run(&given)?[0]),
            });
            given.into_iter().for_each(|input| self.give_back::<R>(input));
        }
        Ok(())
    }

    /// The outputs for activations of the last segment, one after another; `samples` are those whose copies they belong to.
    fn run_above<R: Real>(
        &self,
        mut rows: Vec<R>,
        samples: &[usize],
        crossing: &[Tensor],
    ) -> Result<Vec<Tensor>> {
        let Segment { channels, size: [height, width], .. } = *self.last();
        let axes = &self.axes[self.segments.len() - 1..];
        let mut samples = samples.to_vec();
        let wanted = samples.len();
        if let (Dim::Fixed(size), Some(&last)) = (self.samples, samples.last()) {
            // A graph of fixed batch size gets its last copy again until a batch is full.
            let full = wanted.next_multiple_of(size.max(1));
            let from = rows.len() - self.last().len();
            (wanted..full).for_each(|_| rows.extend_from_within(from..from + self.last().len()));
            samples.resize(full, last);
        }
        let value = Tensor::new([samples.len(), channels, height, width], R::into_data(rows.into()))?;
        let size = match self.samples {
            Dim::Fixed(size) => size.max(1),
            Dim::Batch(_) => samples.len().max(1),
        };
        let mut parts = Vec::new();
        for start in (0..samples.len()).step_by(size) {
            let batch = start..start + size;
            let mut inputs = vec![rows_of(&value, batch.clone())?];
            for (value, &axis) in crossing.iter().zip(axes) {
                inputs.push(select_samples(value, axis, &samples[batch.clone()])?);
            }
            parts.push(self.above.run(&inputs)?);
        }
        self.give_back::<R>(value);
        joined(&parts)?.iter().map(|output| rows_of(output, 0..wanted)).collect()
    }

    /// Keeps the memory of a tensor that nobody else reads.
    fn give_back<R: Real>(&self, tensor: Tensor) {
        R::from_data(tensor.into_data()).into_iter().for_each(|memory| self.scratch.give_back(memory));
    }

    /// Adds the time since `begun`, in which the tiles of a segment were moved, to the profile, if there is one.
    fn record_move(&self, segment: &Segment, copies: usize, begun: Instant) {
        let Some(profile) = &self.profile else { return };
        let [height, width] = segment.tile_shapes[segment.tile_shapes.len() - 1].size;
        profile.lock().unwrap_or_else(PoisonError::into_inner).nodes.push(NodeTime {
            node: segment.output,
            others: Vec::new(),
            name: segment.name.clone(),
            op: "Tiles",
            shape: vec![copies, segment.channels, height, width],
            kernel: "copy of tiles",
            runs: 1,
            time: begun.elapsed(),
            operations: 0,
            peak: 0.0,
            precision: self.precision,
            instructions: "",
        });
    }
}

/// The graph with these values as its outputs.
fn with_outputs(graph: &Graph, values: &[NodeId]) -> Result<Graph> {
    let mut graph = graph.clone();
    graph.set_outputs(Vec::new());
    for (number, &id) in values.iter().enumerate() {
        let id = match graph.node(id).op {
            Op::Input => graph.add(Op::Identity, &[id])?,
            _ => id,
        };
        graph.output(format!("value {number}"), id);
    }
    graph.pruned()
}

fn any_samples_interact(graph: &Graph) -> bool {
    let mut graph = graph.clone();
    let outputs = graph.outputs().to_vec();
    outputs.into_iter().any(|output| {
        graph.set_outputs(vec![output]);
        samples_interact(&graph)
    })
}

/// The outputs of several batches, one after another.
fn joined(batches: &[Vec<Tensor>]) -> Result<Vec<Tensor>> {
    let outputs = batches.first().map_or(0, Vec::len);
    let output = |at: usize| {
        let parts: Vec<Tensor> = batches.iter().map(|batch| batch[at].clone()).collect();
        stack(&parts, parts[0].kind())
    };
    (0..outputs).map(output).collect()
}
