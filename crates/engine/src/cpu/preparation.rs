//! Compiling a program: values that depend on no input are computed, and the executor of every step is chosen.

use std::collections::BTreeSet;

use monosplit_graph::op::{AffineLayer, Window};
use monosplit_graph::{Graph, NodeId, Op, Result, Shape, element_count};

use super::fusion::Fusion;
use super::kernels::conv_plan::PlanSettings;
use super::kernels::convolution::ConvolutionNode;
use super::kernels::packed_convolution::PackedWeightCache;
use super::kernels::policy::{self, Kernel};
use super::program::{ChainedConvolution, CpuProgram, Executor, Streams};
use super::real::Real;
use super::unwinding::caught;
use super::value::{Shared, Storage, View, ViewMut};
use crate::footprint::HeldConstants;
use crate::graph_info::element_bytes;
use crate::plan::Step;
use crate::schedule::Partition;

/// How often weights of 3×3 convolutions are held at most, transformed for Winograd's algorithm.
const TRANSFORMED_WEIGHTS: usize = 4;

impl<R: Real> CpuProgram<R> {
    /// The known values each step reads, as often as it does.
    fn constants_read(&self, known: &[bool]) -> Vec<Vec<NodeId>> {
        let of_step = |step: &Step| {
            let mut read: Vec<NodeId> = Vec::new();
            // Products that share a pass over a matrix read the matrix itself where they would read its magnitudes.
            let stream_weights = match &step.partition {
                Partition::StreamProducts(products) => Some(products.weights),
                _ => None,
            };
            for id in step.partition.nodes() {
                let inputs = self.info.values[id.index()].inputs.iter().enumerate();
                read.extend(inputs.map(|(position, &input)| match stream_weights {
                    Some(weights) if position == 1 => weights,
                    _ => input,
                }));
            }
            read.retain(|id| known[id.index()]);
            read
        };
        self.plan.steps.iter().map(of_step).collect()
    }

    /// Computes constants and chooses executors. Weights that kernels have packed are dropped after the last of these kernels.
    /// To be called on a thread of the pool.
    pub(super) fn prepare(&mut self, graph: &Graph, known: &[bool]) -> Result<()> {
        let reads = self.constants_read(known);
        let mut left = vec![0usize; self.info.values.len()];
        reads.iter().flatten().for_each(|id| left[id.index()] += 1);
        let outputs: Vec<NodeId> = self.info.outputs.iter().copied().filter(|id| known[id.index()]).collect();
        outputs.iter().for_each(|id| left[id.index()] += 1);
        self.held = self.held_constants(graph, &reads, &outputs);
        self.check_budget()?;
        let cache = PackedWeightCache::new();
        let packing = (self.settings.convolutions, &cache);
        for (at, read) in reads.iter().enumerate() {
            for &id in read {
                self.provide(graph, id)?;
            }
            let step = &self.plan.steps[at];
            let executor = match &step.partition {
                Partition::Single(id) => Executor::Kernel(self.choose(graph, *id, packing)?),
                Partition::Batched(nodes) => Executor::Kernel(self.choose(graph, nodes[0], packing)?),
                Partition::Elementwise(nodes) => {
                    Executor::Fused(Fusion::new(graph, &self.plan.representative, nodes, &step.outputs)?)
                }
                Partition::Epilogue(nodes) => {
                    let fusion = Fusion::new(graph, &self.plan.representative, &nodes[1..], &step.outputs)?;
                    Executor::WithEpilogue(self.choose(graph, nodes[0], packing)?, fusion)
                }
                Partition::PointwiseDepthwise(nodes, first) => {
                    let (first, then) = nodes.split_at(*first);
                    let links = [self.link(graph, first, packing)?, self.link(graph, then, packing)?];
                    Executor::PointwiseDepthwise(Box::new(links))
                }
                Partition::StreamProducts(products) => {
                    let first = graph.node(products.nodes[0]);
                    Executor::Streams(Streams {
                        weights: products.weights,
                        magnitude: products.magnitude.clone(),
                        transposed: matches!(first.op, Op::MatMul { trans_b: true, .. }),
                    })
                }
                // Schedules for processors have none.
                Partition::Reduction(nodes) => return Err(self.info.unavailable(nodes[0])),
            };
            let holders = match &executor {
                Executor::Kernel(kernel) if kernel.holds_weights => step.partition.nodes().to_vec(),
                Executor::WithEpilogue(kernel, _) if kernel.holds_weights => vec![step.partition.nodes()[0]],
                Executor::PointwiseDepthwise(links) => links.iter().map(|link| link.node).collect(),
                _ => Vec::new(),
            };
            for holder in holders {
                let weights = self.info.values[holder.index()].inputs[1];
                left[weights.index()] -= 1;
                if left[weights.index()] == 0 {
                    self.constants[weights.index()] = None;
                }
            }
            self.executors.push(executor);
        }
        for id in outputs {
            self.provide(graph, id)?;
        }
        // Constants that only other constants were computed from are not needed any more.
        self.constants
            .iter_mut()
            .zip(left)
            .filter(|(_, left)| *left == 0)
            .for_each(|(value, _)| *value = None);
        Ok(())
    }

    /// A convolution with known weights, the first of these nodes, and its epilogue, the others.
    fn link(
        &self,
        graph: &Graph,
        nodes: &[NodeId],
        packing: (PlanSettings, &PackedWeightCache<R>),
    ) -> Result<ChainedConvolution<R>> {
        let (node, epilogue) = (nodes[0], &nodes[1..]);
        let convolution = self.choose(graph, node, packing)?.convolution;
        let fuse = |last: &NodeId| Fusion::new(graph, &self.plan.representative, epilogue, &[*last]);
        Ok(ChainedConvolution {
            node,
            convolution: convolution.ok_or_else(|| self.info.unavailable(node))?,
            fusion: epilogue.last().map(fuse).transpose()?,
        })
    }

    fn choose(
        &self,
        graph: &Graph,
        id: NodeId,
        packing: (PlanSettings, &PackedWeightCache<R>),
    ) -> Result<Kernel<R>> {
        let node = graph.node(id);
        let inputs = &self.info.values[id.index()].inputs;
        let fixed = self.fixed_shapes(inputs);
        let constants: Vec<Option<View<'_, R>>> = (inputs.iter().zip(&fixed))
            .map(|(input, shape)| {
                let data = self.constants[input.index()].as_ref()?.slice();
                Some(View { shape: shape.as_ref()?, data })
            })
            .collect();
        let weights = inputs.get(1).copied().unwrap_or(id);
        let shapes: Vec<&Shape> = inputs.iter().map(|input| &self.info.values[input.index()].shape).collect();
        let convolution = ConvolutionNode {
            node,
            inputs: &shapes,
            weights: constants.get(1).copied().flatten(),
            settings: packing.0,
            cached: (packing.1, weights),
        };
        let name = &self.info.values[id.index()].name;
        let kernel = caught(|| policy::choose(node, &constants, &convolution)).map_err(|e| e.at(name))?;
        log::trace!("{name}: {}", kernel.name(packing.0.batch_size));
        Ok(kernel)
    }

    fn fixed_shapes(&self, ids: &[NodeId]) -> Vec<Option<Vec<usize>>> {
        let fixed = |id: &NodeId| {
            let shape = &self.info.values[id.index()].shape;
            (!shape.is_batched()).then(|| shape.at(1)).flatten()
        };
        ids.iter().map(fixed).collect()
    }

    /// The values that must be computed for these, besides those that were, in the order of the graph.
    fn missing(&self, wanted: impl IntoIterator<Item = NodeId>) -> BTreeSet<NodeId> {
        let mut missing = BTreeSet::new();
        let mut open: Vec<NodeId> = wanted.into_iter().collect();
        while let Some(id) = open.pop() {
            if self.constants[id.index()].is_none() && missing.insert(id) {
                open.extend(&self.info.values[id.index()].inputs);
            }
        }
        missing
    }

    /// What [`CpuProgram::prepare`] computes and packs.
    fn held_constants(&self, graph: &Graph, reads: &[Vec<NodeId>], outputs: &[NodeId]) -> HeldConstants {
        let mut held = HeldConstants::default();
        for id in self.missing(reads.iter().flatten().chain(outputs).copied()) {
            let node = graph.node(id);
            let bytes = element_bytes(node.kind, size_of::<R>());
            match &node.op {
                Op::Constant(tensor) if Shared::<R>::is_given_by(tensor) => {}
                Op::Reshape { .. } => {}
                _ => held.add(graph, id, bytes, 1),
            }
        }
        let mut packed = BTreeSet::new();
        for id in self.plan.steps.iter().flat_map(|step| step.partition.kernels()) {
            let (op, inputs) = (&graph.node(id).op, &self.info.values[id.index()].inputs);
            let copies = match op.affine_layer() {
                Some(AffineLayer::Convolution) => {
                    let transformed = op.window().is_some_and(Window::is_three_by_three)
                        && !self.settings.convolutions.accurate;
                    if transformed { TRANSFORMED_WEIGHTS } else { 1 }
                }
                Some(AffineLayer::Dense) => 1,
                Some(AffineLayer::Normalisation) | None => continue,
            };
            let weights = inputs[1];
            let known = graph.node(weights).is_constant() && !graph.node(weights).shape.is_batched();
            if known && packed.insert((weights, op.name())) {
                held.add(graph, weights, size_of::<R>(), copies);
            }
        }
        held
    }

    /// Computes a value that depends on no input, and what it is made of, unless that was done.
    fn provide(&mut self, graph: &Graph, id: NodeId) -> Result<()> {
        for id in self.missing([id]) {
            let node = graph.node(id);
            let value = match &node.op {
                Op::Constant(tensor) => Shared::of(tensor),
                Op::Reshape { .. } => {
                    let renamed = self.info.values[id.index()].inputs[0];
                    self.constants[renamed.index()].clone().ok_or_else(|| self.info.unavailable(id))?
                }
                _ => self.evaluate(graph, id).map_err(|e| e.at(&self.info.values[id.index()].name))?,
            };
            self.constants[id.index()] = Some(value);
        }
        Ok(())
    }

    fn evaluate(&self, graph: &Graph, id: NodeId) -> Result<Shared<R>> {
        let node = graph.node(id);
        let inputs = &self.info.values[id.index()].inputs;
        let settings = PlanSettings { accurate: true, batch_size: 1 };
        let kernel = self.choose(graph, id, (settings, &PackedWeightCache::new()))?;
        let shape = node.shape.at(1).ok_or_else(|| self.info.unavailable(id))?;
        let count = element_count(&shape).ok_or_else(|| self.info.unavailable(id))?;
        let shapes: Option<Vec<Vec<usize>>> = self.fixed_shapes(inputs).into_iter().collect();
        let shapes = shapes.ok_or_else(|| self.info.unavailable(id))?;
        let mut views = Vec::with_capacity(shapes.len());
        for (input, shape) in inputs.iter().zip(&shapes) {
            let data =
                self.constants[input.index()].as_ref().ok_or_else(|| self.info.unavailable(id))?.slice();
            views.push(View { shape, data });
        }
        let mut storage = Storage::empty(node.kind);
        storage.grow(count)?;
        let mut out = ViewMut { shape: &shape, data: storage.slice_mut(count) };
        if !out.is_empty() {
            caught(|| (kernel.run)(&views, &mut out))?;
        }
        Ok(storage.share(count))
    }
}
