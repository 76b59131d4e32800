//! The program of an incremental run.

use std::sync::{Arc, Mutex};

use monosplit_graph::batch::{rows as rows_of, sample_axis, samples_interact, select_samples, stack};
use monosplit_graph::{Buffer, Cut, Data, Dim, Error, Graph, NodeId, Op, Result, Tensor};

use super::scratch::TileBuffers;
use super::segment::{InputWindow, Segment};
use super::tiles::{Destination, TilePosition, TileRead, Tiles};
use super::tiling::TilingPlanner;
use super::{BaselineActivations, Change, IncrementalProgram};
use crate::cpu::real::Real;
use crate::cpu::thread_pool::ThreadPool;
use crate::{CompileOptions, Engine, Precision, Program, run_in_fixed_batches};

/// Computes tiles up to an activation, and everything above it.
pub(crate) struct TiledProgram {
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
    scratch: Mutex<Vec<Data>>,
}

impl TiledProgram {
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
        TiledProgram::up_to(last, &planner, batch_size, engine, threads)
    }

    /// Computes tiles up to the node `last`; `None` if that cannot be.
    fn up_to(
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
        Ok(Some(TiledProgram {
            tile_programs,
            baseline: engine.compile(&with_outputs(graph, &wanted)?)?,
            axes,
            above: compile(&cut.above(graph)?, batch_size)?,
            samples,
            largest_change: planner.largest_change,
            precision: engine.native_precision(),
            threads,
            scratch: Mutex::default(),
            segments,
        }))
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
                    "a change of rows {:?} and columns {:?}, expected at most {:?} of {size:?}",
                    region[0], region[1], self.largest_change
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
        let samples: Vec<usize> = changes.iter().map(|change| change.sample).collect();
        let mut scratch = TileBuffers::<R>::new(&self.scratch);
        let mut rows = scratch.take(changes.len() * self.last().len());
        rows.clear();
        self.propagate(
            changes,
            &mut Destination::PerSample(&activations, &samples),
            &mut rows,
            &mut scratch,
        )?;
        self.run_above(rows, &samples, &baseline.crossing, &mut scratch)
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
        let BaselineActivations { tiled, crossing } = baseline;
        let activations =
            tiled.into_iter().map(|tensor| R::from_data(tensor.into_data()).unwrap_or_default());
        let mut activations: Vec<Vec<R>> = activations.collect();
        let mut scratch = TileBuffers::<R>::new(&self.scratch);
        // The unchanged copy is part of the first batch, and no batch is much smaller than the others.
        let copies = 1 + changes.len();
        let batches = copies.div_ceil(batch_size.max(1));
        let mut parts = Vec::with_capacity(batches);
        for number in 0..batches {
            let (first, end) = (number * copies / batches, (number + 1) * copies / batches);
            let batch = &changes[first.saturating_sub(1)..end - 1];
            let mut rows = scratch.take((end - first) * self.last().len());
            rows.clear();
            if number == 0 {
                rows.extend_from_slice(&activations[activations.len() - 1]);
            }
            self.propagate(batch, &mut Destination::Shared(&mut activations), &mut rows, &mut scratch)?;
            let outputs = self.run_above(rows, &vec![0; end - first], &crossing, &mut scratch)?;
            parts.push(outputs);
        }
        joined(&parts)
    }

    /// Writes the changes into the destination and appends to `rows` the activation of the last segment with each.
    fn propagate<R: Real>(
        &self,
        changes: &[Change],
        destination: &mut Destination<'_, R>,
        rows: &mut Vec<R>,
        scratch: &mut TileBuffers<'_, R>,
    ) -> Result<()> {
        self.threads.install(|| {
            let mut positions = vec![changed_positions(changes)];
            for segment in &self.segments[1..] {
                positions.push(segment.positions(changes.iter().map(|change| &change.region)));
            }
            let mut inputs: Vec<TileInputs<R>> = self.segments.iter().map(empty_inputs).collect();
            let changed: Vec<R> = changes.iter().flat_map(|change| R::of(&change.values).to_vec()).collect();
            let mut values = vec![changed.into()];
            for (index, segment) in self.segments.iter().enumerate() {
                if index > 0 {
                    values = self.compute_tiles(index, std::mem::take(&mut inputs[index]), scratch)?;
                }
                let values = std::mem::take(&mut values);
                let tiles = Tiles { segment, index, positions: &positions[index], values };
                if index + 1 < self.segments.len() {
                    self.read_inputs(&tiles, destination, &positions, &mut inputs, scratch);
                } else {
                    self.read_whole(&tiles, destination, rows);
                }
            }
            Ok(())
        })
    }

    /// The tiles of a segment by their shapes.
    fn compute_tiles<R: Real>(
        &self,
        index: usize,
        inputs: TileInputs<R>,
        scratch: &mut TileBuffers<'_, R>,
    ) -> Result<Vec<Buffer<R>>> {
        let segment = &self.segments[index];
        let mut computed = Vec::with_capacity(segment.tile_shapes.len());
        for ((&tile, program), inputs) in
            segment.tile_shapes.iter().zip(&self.tile_programs[index]).zip(inputs)
        {
            let shapes = segment.input_shapes(tile);
            let copies = inputs[0].len() / shapes[0].iter().product::<usize>();
            let inputs = shapes.iter().zip(inputs);
            let inputs =
                inputs.map(|(shape, input)| Tensor::new(batched(copies, shape), R::into_data(input.into())));
            let inputs = inputs.collect::<Result<Vec<_>>>()?;
            computed.push(match copies {
                0 => Vec::new().into(),
                _ => R::of(&program.run(&inputs)?[0]),
            });
            inputs.into_iter().for_each(|input| scratch.give_back(input));
        }
        Ok(computed)
    }

    /// Writes tiles and reads the inputs of later tiles.
    fn read_inputs<R: Real>(
        &self,
        tiles: &Tiles<'_, R>,
        destination: &mut Destination<'_, R>,
        positions: &[Vec<TilePosition>],
        inputs: &mut [TileInputs<R>],
        scratch: &mut TileBuffers<'_, R>,
    ) {
        let segments = self.segments.iter().enumerate();
        let readers = segments.flat_map(|(reader, segment)| {
            let read = segment.inputs.iter().enumerate().filter(|(_, input)| input.segment == tiles.index);
            read.map(move |(slot, input)| (reader, slot, input.window))
        });
        let readers: Vec<(usize, usize, InputWindow)> = readers.collect();
        for &(reader, slot, _) in &readers {
            let segment = &self.segments[reader];
            for (shape, &tile) in segment.tile_shapes.iter().enumerate() {
                let copies = positions[reader].iter().filter(|position| position.shape == shape).count();
                let length = copies * segment.input_shapes(tile)[slot].iter().product::<usize>();
                inputs[reader][shape][slot] = scratch.take(length);
            }
        }
        let mut memory: Vec<Vec<Vec<R>>> = readers
            .iter()
            .map(|&(reader, slot, _)| {
                inputs[reader].iter_mut().map(|shape| std::mem::take(&mut shape[slot])).collect()
            })
            .collect();
        let mut reads = Vec::with_capacity(readers.len());
        for (&(reader, _, window), memory) in readers.iter().zip(&mut memory) {
            let sizes = self.segments[reader].tile_shapes.iter().map(|tile| window.size(tile.size));
            let targets = sizes.zip(memory.iter_mut().map(Vec::as_mut_slice)).collect();
            reads.push(TileRead { window, positions: &positions[reader], targets });
        }
        tiles.propagate(destination, reads, &self.threads);
        for (&(reader, slot, _), memory) in readers.iter().zip(memory) {
            for (shape, memory) in inputs[reader].iter_mut().zip(memory) {
                shape[slot] = memory;
            }
        }
    }

    /// Writes the tiles of the last segment and appends its whole activation with each.
    fn read_whole<R: Real>(
        &self,
        tiles: &Tiles<'_, R>,
        destination: &mut Destination<'_, R>,
        rows: &mut Vec<R>,
    ) {
        let (copies, before, size) = (tiles.positions.len(), rows.len(), tiles.segment.size);
        rows.resize(before + copies * tiles.segment.len(), R::ZERO);
        let positions = vec![TilePosition { start: [0, 0], size, shape: 0, offset: 0 }; copies];
        let targets = vec![(size, &mut rows[before..])];
        let read = TileRead { window: InputWindow::IDENTITY, positions: &positions, targets };
        tiles.propagate(destination, vec![read], &self.threads);
    }

    /// The outputs for activations of the last segment, one after another; `samples` are those whose copies they belong to.
    fn run_above<R: Real>(
        &self,
        mut rows: Vec<R>,
        samples: &[usize],
        crossing: &[Tensor],
        scratch: &mut TileBuffers<'_, R>,
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
        scratch.give_back(value);
        joined(&parts)?.iter().map(|output| rows_of(output, 0..wanted)).collect()
    }
}

impl IncrementalProgram for TiledProgram {
    fn baseline(&self, inputs: &[Tensor]) -> Result<BaselineActivations> {
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
        Ok(BaselineActivations { tiled, crossing })
    }

    fn run(&self, baseline: &BaselineActivations, changes: &[Change]) -> Result<Vec<Tensor>> {
        if changes.is_empty() {
            return Err(Error::argument("expected at least one change"));
        }
        self.check(changes, self.samples_of(baseline)?)?;
        match self.precision {
            Precision::F32 => self.run_as::<f32>(baseline, changes),
            Precision::F64 => self.run_as::<f64>(baseline, changes),
        }
    }

    fn run_cumulative(
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
}

/// The inputs of a segment's tiles, by tile shape and input.
type TileInputs<R> = Vec<Vec<Vec<R>>>;

fn empty_inputs<R>(segment: &Segment) -> TileInputs<R> {
    let inputs = || segment.inputs.iter().map(|_| Vec::new()).collect();
    segment.tile_shapes.iter().map(|_| inputs()).collect()
}

/// Where the changes themselves lie. They are the tiles of the image, each of its own size.
fn changed_positions(changes: &[Change]) -> Vec<TilePosition> {
    let mut offset = 0;
    let position = |Change { region: [rows, columns], values, .. }: &Change| {
        offset += values.len();
        TilePosition {
            start: [rows.start, columns.start],
            size: [rows.len(), columns.len()],
            shape: 0,
            offset: offset - values.len(),
        }
    };
    changes.iter().map(position).collect()
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

fn batched(copies: usize, dims: &[usize]) -> Vec<usize> {
    std::iter::once(copies).chain(dims.iter().copied()).collect()
}

#[cfg(test)]
mod tests {
    use monosplit_graph::op::{Binary, Divisor, Reduction, Unary, Window};
    use monosplit_graph::{Kind, Noise, Shape};

    use super::*;
    use crate::Cpu;

    const SIZE: [usize; 2] = [61, 47];

    fn random(shape: &[usize], seed: u64) -> Tensor {
        let noise = Noise::new(seed);
        let values: Vec<f64> =
            (0..shape.iter().product::<usize>() as u64).map(|i| 0.4 * noise.gaussian(i)).collect();
        Tensor::new(shape, values).unwrap()
    }

    fn window(kernel: usize, stride: usize, pad: (usize, usize)) -> Window {
        Window { stride: vec![stride; 2], pad: vec![pad; 2], ..Window::new([kernel; 2]) }
    }

    fn conv(g: &mut Graph, x: NodeId, from: usize, to: usize, window: Window) -> NodeId {
        let w = g.constant(random(&[to, from, window.kernel[0], window.kernel[1]], from as u64));
        let b = g.constant(random(&[to], 9));
        let y = g.add(Op::Conv { window, groups: 1 }, &[x, w, b]).unwrap();
        g.add(Op::Unary(Unary::Softplus), &[y]).unwrap()
    }

    /// Convolutions with strides and uneven pads, a residual sum, branches that are joined, pools that end beyond the image, and
    /// a padded pool with averages by this divisor.
    fn features(g: &mut Graph, x: NodeId, divisor: Divisor) -> NodeId {
        let a = conv(g, x, 2, 6, window(5, 2, (2, 1)));
        let inner = conv(g, a, 6, 6, window(3, 1, (1, 1)));
        let a = g.add(Op::Binary(Binary::Add), &[a, inner]).unwrap();
        let pool = Window { ceil: true, ..window(3, 2, (0, 0)) };
        let a = g.add(Op::MaxPool(pool), &[a]).unwrap();
        let left = conv(g, a, 6, 4, window(1, 1, (0, 0)));
        let average = Op::AveragePool { window: window(3, 1, (1, 1)), divisor };
        let right = g.add(average, &[a]).unwrap();
        let a = g.add(Op::Concat { axis: 1 }, &[left, right]).unwrap();
        conv(g, a, 10, 5, window(3, 1, (1, 1)))
    }

    fn scores(g: &mut Graph, features: NodeId) -> NodeId {
        let mean = g.reduced(Reduction::Mean, features, &[2, 3], false).unwrap();
        let head = g.constant(random(&[3, 5], 4));
        g.add(Op::MatMul { trans_a: false, trans_b: true }, &[mean, head]).unwrap()
    }

    fn network(divisor: Divisor) -> Graph {
        let mut g = Graph::new();
        let x = g.input("image", Shape::batched(&[2, SIZE[0], SIZE[1]]), Kind::Float);
        let features = features(&mut g, x, divisor);
        let scores = scores(&mut g, features);
        g.output("scores", scores);
        g
    }

    fn engine() -> Cpu {
        Cpu::default().precision(Precision::F64)
    }

    /// Sets a region of a sample to a number.
    fn filled(sample: usize, [top, left]: [usize; 2], [height, width]: [usize; 2], value: f64) -> Change {
        let values = Tensor::new([2, height, width], vec![value; 2 * height * width]).unwrap();
        Change { sample, region: [top..top + height, left..left + width], values }
    }

    /// Makes a change in images of two channels.
    fn apply(change: &Change, images: &mut [f64]) {
        let Change { sample, region: [rows, columns], values } = change;
        for (plane, values) in values.to_f64().chunks(rows.len() * columns.len()).enumerate() {
            for (row, values) in rows.clone().zip(values.chunks(columns.len())) {
                let line = ((sample * 2 + plane) * SIZE[0] + row) * SIZE[1];
                images[line + columns.start..line + columns.end].copy_from_slice(values);
            }
        }
    }

    fn images(values: Vec<f64>) -> Tensor {
        Tensor::new([values.len() / (2 * SIZE[0] * SIZE[1]), 2, SIZE[0], SIZE[1]], values).unwrap()
    }

    fn distance(a: &Tensor, b: &Tensor) -> f64 {
        assert_eq!(a.shape(), b.shape());
        a.to_f64().iter().zip(&*b.to_f64()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
    }

    #[test]
    fn at_every_node_a_change_leaves_what_computing_everything_again_leaves() {
        let counts = [Divisor::Padded, Divisor::Covered].map(|divisor| {
            let graph = network(divisor);
            graph.nodes().filter(|&(id, _)| id > graph.inputs()[0] && tiles_are_right(&graph, id)).count()
        });
        // An average over covered positions cannot be computed at the border from a tile.
        assert_eq!(counts, [12, 8]);
    }

    /// Whether a node can be computed tile by tile; panics unless the tiles give what computing everything again gives.
    fn tiles_are_right(graph: &Graph, last: NodeId) -> bool {
        let mut graph = graph.clone();
        let output = graph.add(Op::Identity, &[last]).unwrap();
        graph.set_outputs(Vec::new());
        graph.output("value", output);
        let (engine, largest) = (engine(), [5, 4]);
        let planner = TilingPlanner::new(&graph, graph.inputs()[0], largest);
        let threads = engine.pool().unwrap();
        let program = TiledProgram::up_to(last, &planner, 8, &engine, threads).unwrap();
        let Some(program) = program else { return false };
        let whole = engine.compile(&graph).unwrap();
        let unchanged = random(&[2, 2, SIZE[0], SIZE[1]], 7);
        let baseline = program.baseline(std::slice::from_ref(&unchanged)).unwrap();
        for at in [[0, 0], [56, 43], [0, 43], [56, 0], [20, 17], [31, 30], [55, 41], [3, 1]] {
            let changes = [0, 1].map(|sample| filled(sample, at, largest, 3.0));
            let mut changed = unchanged.to_f64().to_vec();
            changes.iter().for_each(|change| apply(change, &mut changed));
            let found = program.run(&baseline, &changes).unwrap().remove(0);
            let apart = distance(&found, &whole.run(&[images(changed)]).unwrap()[0]);
            assert!(apart < 1e-12, "{last:?} {at:?}: {apart}");
            assert!(distance(&found, &whole.run(std::slice::from_ref(&unchanged)).unwrap()[0]) > 1e-6);
        }
        true
    }

    /// Groups, dilation, padded pools, a stride beyond the kernel, sums instead of averages, a value with itself, and a channel
    /// scaled by what is everywhere in it.
    #[test]
    fn unusual_windows_are_tiled_and_what_is_scaled_by_everything_is_not() {
        let mut g = Graph::new();
        let x = g.input("image", Shape::batched(&[2, SIZE[0], SIZE[1]]), Kind::Float);
        let grouped = Window { dilation: vec![2; 2], ..window(3, 1, (2, 5)) };
        let w = g.constant(random(&[4, 1, 3, 3], 1));
        let a = g.add(Op::Conv { window: grouped, groups: 2 }, &[x, w]).unwrap();
        let a = g.add(Op::MaxPool(Window { ceil: true, ..window(3, 2, (1, 1)) }), &[a]).unwrap();
        let a = g.add(Op::Binary(Binary::Mul), &[a, a]).unwrap();
        let w = g.constant(random(&[5, 4, 1, 1], 2));
        let a = g.add(Op::Conv { window: window(1, 2, (0, 0)), groups: 1 }, &[a, w]).unwrap();
        let sums = Op::AveragePool { window: window(2, 1, (1, 0)), divisor: Divisor::One };
        let a = g.add(sums, &[a]).unwrap();
        let [height, width] = [2, 3].map(|axis| g.node(a).shape.fixed_at(axis).unwrap());
        let all = Op::AveragePool { window: Window::new([height, width]), divisor: Divisor::Covered };
        let scale = g.add(all, &[a]).unwrap();
        let scaled = g.add(Op::Binary(Binary::Mul), &[a, scale]).unwrap();
        let mean = g.reduced(Reduction::Mean, scaled, &[2, 3], false).unwrap();
        g.output("scores", mean);
        let nodes = g.nodes().filter(|&(id, _)| id > x && tiles_are_right(&g, id));
        let names: Vec<&str> = nodes.map(|(_, node)| node.op.name()).collect();
        assert_eq!(names, ["Conv", "MaxPool", "Mul", "Conv", "SumPool", "AveragePool"]);
    }

    #[test]
    fn changes_that_add_up_leave_what_computing_everything_again_leaves() {
        let (graph, engine) = (network(Divisor::Padded), engine());
        let program = engine.compile_incremental(&graph, [5, 4], 64).unwrap().unwrap();
        let image = random(&[1, 2, SIZE[0], SIZE[1]], 7);
        let corners =
            [[0, 0], [3, 2], [56, 43], [20, 17], [22, 19], [31, 30], [55, 41], [3, 1], [0, 0], [30, 7]];
        let sized = |step: usize| if step % 3 == 2 { [2, 3] } else { [5, 4] };
        let changes = corners.iter().enumerate().map(|(step, &at)| filled(0, at, sized(step), step as f64));
        let changes: Vec<Change> = changes.collect();
        let whole = engine.compile(&graph).unwrap();
        let mut changed = image.to_f64().to_vec();
        let mut expected = whole.run(std::slice::from_ref(&image)).unwrap();
        for change in &changes {
            apply(change, &mut changed);
            expected.push(whole.run(&[images(changed.clone())]).unwrap().remove(0));
        }
        let expected = stack(&expected, Kind::Float).unwrap();
        for batch_size in [1, 2, 4, 20] {
            let baseline = program.baseline(std::slice::from_ref(&image)).unwrap();
            let found = program.run_cumulative(baseline, &changes, batch_size).unwrap().remove(0);
            let apart = distance(&found, &expected);
            assert!(apart < 1e-12, "batch size {batch_size}: {apart}");
        }
    }

    /// Every output is computed, values of other inputs that pass the tiles by are those of the changed sample, and a fixed
    /// batch size is filled up.
    #[test]
    fn graphs_with_other_inputs_several_outputs_or_a_fixed_batch_size_are_computed_too() {
        for samples in [Dim::Batch(1), Dim::Fixed(2)] {
            let mut g = Graph::new();
            let dims = |rest: &[usize]| {
                Shape::new([&[samples], &*rest.iter().map(|&n| Dim::Fixed(n)).collect::<Vec<_>>()].concat())
            };
            let x = g.input("image", dims(&[2, SIZE[0], SIZE[1]]), Kind::Float);
            let shift = g.input("shift", dims(&[3]), Kind::Float);
            let features = features(&mut g, x, Divisor::Padded);
            let scores = scores(&mut g, features);
            let shifted = g.plus(scores, shift).unwrap();
            g.output("shifted", shifted);
            g.output("scores", scores);
            let engine = engine();
            let program = engine.compile_incremental(&g, [5, 4], 4).unwrap().unwrap();
            let (unchanged, shifts) = (random(&[2, 2, SIZE[0], SIZE[1]], 7), random(&[2, 3], 8));
            let baseline = program.baseline(&[unchanged.clone(), shifts.clone()]).unwrap();
            let changes = [
                filled(1, [2, 3], [5, 4], 1.0),
                filled(0, [40, 30], [4, 4], 2.0),
                filled(1, [9, 9], [1, 1], 3.0),
            ];
            let found = program.run(&baseline, &changes).unwrap();
            let whole = engine.compile(&g).unwrap();
            for (row, change) in changes.iter().enumerate() {
                let mut changed = unchanged.to_f64().to_vec();
                apply(change, &mut changed);
                let expected = whole.run(&[images(changed), shifts.clone()]).unwrap();
                for (found, expected) in found.iter().zip(&expected) {
                    let expected = rows_of(expected, [change.sample].into_iter()).unwrap();
                    assert!(distance(&rows_of(found, [row].into_iter()).unwrap(), &expected) < 1e-12);
                }
            }
            assert_eq!(
                found.iter().map(|output| output.shape().to_vec()).collect::<Vec<_>>(),
                [[3, 3], [3, 3]]
            );
        }
    }

    #[test]
    fn bits_do_not_depend_on_the_number_of_threads() {
        let graph = network(Divisor::Padded);
        let changes = [[0, 0], [30, 20], [56, 43]].map(|at| filled(0, at, [5, 4], 1.0));
        let [one, three] = [1, 3].map(|threads| {
            let program =
                Cpu::default().threads(threads).compile_incremental(&graph, [5, 4], 3).unwrap().unwrap();
            let baseline = program.baseline(&[random(&[1, 2, SIZE[0], SIZE[1]], 7)]).unwrap();
            program.run(&baseline, &changes).unwrap()
        });
        assert_eq!(one, three);
    }

    #[test]
    fn a_change_of_almost_everything_is_computed_as_a_whole() {
        assert!(
            Cpu::default().compile_incremental(&network(Divisor::Padded), [60, 46], 8).unwrap().is_none()
        );
    }

    #[test]
    fn changes_that_do_not_fit_are_refused() {
        let program = engine().compile_incremental(&network(Divisor::Padded), [5, 4], 2).unwrap().unwrap();
        let baseline = program.baseline(&[random(&[1, 2, SIZE[0], SIZE[1]], 7)]).unwrap();
        let short = Change {
            values: Tensor::new([2, 1, 1], vec![0.0; 2]).unwrap(),
            ..filled(0, [0, 0], [2, 2], 0.0)
        };
        for change in [
            filled(0, [0, 0], [6, 4], 0.0),
            filled(0, [58, 0], [5, 4], 0.0),
            filled(1, [0, 0], [5, 4], 0.0),
            short,
        ] {
            assert!(program.run(&baseline, std::slice::from_ref(&change)).is_err(), "{change:?}");
            assert!(program.run_cumulative(baseline.clone(), &[change], 2).is_err());
        }
        assert!(program.run(&baseline, &[]).is_err());
    }
}
