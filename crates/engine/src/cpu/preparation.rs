//! What is done once, when a graph is compiled: values that depend on no input are computed, and what carries out each step
//! is chosen.

use std::collections::BTreeSet;

use monosplit_graph::{Graph, NodeId, Op, Result, element_count};

use super::fusion::Fusion;
use super::kernels::policy::{self, Kernel};
use super::kernels::prepared::Shelf;
use super::program::{CpuProgram, Executor, Link, Streams};
use super::real::Real;
use super::value::{Shared, Storage, View, ViewMut};
use crate::outline::element_bytes;
use crate::plan::Step;
use crate::schedule::{Work, stream_weights};

impl<R: Real> CpuProgram<R> {
    fn streams(&self, graph: &Graph, known: &[bool], nodes: &[NodeId]) -> Result<Executor<R>> {
        let of = |id: NodeId| {
            let read = stream_weights(graph, &self.plan.same, known, graph.node(id));
            read.ok_or_else(|| self.outline.lost(id))
        };
        let magnitude = nodes.iter().map(|&id| Ok(of(id)?.1)).collect::<Result<_>>()?;
        let transposed = matches!(graph.node(nodes[0]).op, Op::MatMul { trans_b: true, .. });
        Ok(Executor::Streams(Streams { weights: of(nodes[0])?.0, magnitude, transposed }))
    }

    /// The known values each step reads, as often as it does.
    fn constants_read(&self, graph: &Graph, known: &[bool]) -> Vec<Vec<NodeId>> {
        let of_step = |step: &Step| {
            let mut read: Vec<NodeId> = Vec::new();
            for id in step.work.nodes() {
                let weights = match step.work {
                    Work::Streams(_) => stream_weights(graph, &self.plan.same, known, graph.node(*id)),
                    _ => None,
                };
                let inputs = self.outline.values[id.index()].inputs.iter().enumerate();
                read.extend(inputs.map(|(position, &input)| match weights {
                    Some((weights, _)) if position == 1 => weights,
                    _ => input,
                }));
            }
            read.retain(|id| known[id.index()]);
            read
        };
        self.plan.steps.iter().map(of_step).collect()
    }

    /// Computes what is known and chooses what carries out the steps. Weights that kernels keep in a layout of their
    /// own are let go as soon as the last of these has them. To be called on a thread of the pool.
    pub(super) fn prepare(&mut self, graph: &Graph, known: &[bool]) -> Result<()> {
        let reads = self.constants_read(graph, known);
        let mut left = vec![0usize; self.outline.values.len()];
        reads.iter().flatten().for_each(|id| left[id.index()] += 1);
        let outputs: Vec<NodeId> =
            self.outline.outputs.iter().copied().filter(|id| known[id.index()]).collect();
        outputs.iter().for_each(|id| left[id.index()] += 1);
        let mut bytes = 0;
        let shelf = Shelf::new(self.limits.accurate, self.limits.samples);
        for (at, read) in reads.iter().enumerate() {
            for &id in read {
                self.provide(graph, id, &mut bytes)?;
            }
            let step = &self.plan.steps[at];
            let executor = match &step.work {
                Work::One(id) => Executor::Kernel(self.choose(graph, *id, &shelf)?),
                Work::Batched(nodes) => Executor::Kernel(self.choose(graph, nodes[0], &shelf)?),
                Work::Fused(nodes) => {
                    Executor::Fused(Fusion::new(graph, &self.plan.same, nodes, &step.outputs)?)
                }
                Work::Finished(nodes) => {
                    let fusion = Fusion::new(graph, &self.plan.same, &nodes[1..], &step.outputs)?;
                    Executor::Finished(self.choose(graph, nodes[0], &shelf)?, fusion)
                }
                Work::Chained(nodes, first) => {
                    let (first, then) = nodes.split_at(*first);
                    let links = [self.link(graph, first, &shelf)?, self.link(graph, then, &shelf)?];
                    Executor::Chained(Box::new(links))
                }
                Work::Streams(nodes) => self.streams(graph, known, nodes)?,
                // Processors do not choose to have it.
                Work::Reduced(nodes) => return Err(self.outline.lost(nodes[0])),
            };
            let holders = match &executor {
                Executor::Kernel(kernel) if kernel.holds_weights => step.work.nodes().to_vec(),
                Executor::Finished(kernel, _) if kernel.holds_weights => vec![step.work.nodes()[0]],
                Executor::Chained(links) => links.iter().map(|link| link.node).collect(),
                _ => Vec::new(),
            };
            for holder in holders {
                let weights = self.outline.values[holder.index()].inputs[1];
                left[weights.index()] -= 1;
                if left[weights.index()] == 0 {
                    self.constants[weights.index()] = None;
                }
            }
            self.executors.push(executor);
        }
        for id in outputs {
            self.provide(graph, id, &mut bytes)?;
        }
        // What only other constants were made of is of no use any more.
        self.constants
            .iter_mut()
            .zip(left)
            .filter(|(_, left)| *left == 0)
            .for_each(|(value, _)| *value = None);
        Ok(())
    }

    /// A convolution with known weights, the first of these nodes, and the others that finish it.
    fn link(&self, graph: &Graph, nodes: &[NodeId], shelf: &Shelf<R>) -> Result<Link<R>> {
        let (node, finishing) = (nodes[0], &nodes[1..]);
        let convolution = self.choose(graph, node, shelf)?.convolution;
        let fuse = |last: &NodeId| Fusion::new(graph, &self.plan.same, finishing, &[*last]);
        Ok(Link {
            node,
            convolution: convolution.ok_or_else(|| self.outline.lost(node))?,
            fusion: finishing.last().map(fuse).transpose()?,
        })
    }

    fn choose(&self, graph: &Graph, id: NodeId, shelf: &Shelf<R>) -> Result<Kernel<R>> {
        let node = graph.node(id);
        let inputs = &self.outline.values[id.index()].inputs;
        let shapes = self.fixed_shapes(inputs);
        let constants: Vec<Option<View<'_, R>>> = (inputs.iter().zip(&shapes))
            .map(|(input, shape)| {
                let data = self.constants[input.index()].as_ref()?.slice();
                Some(View { shape: shape.as_ref()?, data })
            })
            .collect();
        let weights = inputs.get(1).copied().unwrap_or(id);
        policy::choose(node, &constants, &shelf.of(weights))
            .map_err(|e| e.at(&self.outline.values[id.index()].name))
    }

    fn fixed_shapes(&self, ids: &[NodeId]) -> Vec<Option<Vec<usize>>> {
        let fixed = |id: &NodeId| {
            let shape = &self.outline.values[id.index()].shape;
            (!shape.is_batched()).then(|| shape.at(1)).flatten()
        };
        ids.iter().map(fixed).collect()
    }

    /// Computes a value that depends on no input, and what it is made of, unless that was done; `bytes` is what all
    /// computed so far took.
    fn provide(&mut self, graph: &Graph, id: NodeId, bytes: &mut usize) -> Result<()> {
        let mut missing = BTreeSet::new();
        let mut open = vec![id];
        while let Some(id) = open.pop() {
            if self.constants[id.index()].is_none() && missing.insert(id) {
                open.extend(&self.outline.values[id.index()].inputs);
            }
        }
        for id in missing {
            let node = graph.node(id);
            let value = match &node.op {
                Op::Constant(tensor) => Shared::of(tensor),
                Op::Reshape { .. } => {
                    let renamed = self.outline.values[id.index()].inputs[0];
                    self.constants[renamed.index()].clone().ok_or_else(|| self.outline.lost(id))?
                }
                _ => {
                    let count = node.shape.at(1).and_then(|shape| element_count(&shape));
                    *bytes = count
                        .and_then(|n| {
                            n.checked_mul(element_bytes(node.kind, size_of::<R>()))?.checked_add(*bytes)
                        })
                        .filter(|&bytes| bytes <= self.limits.memory)
                        .ok_or_else(|| self.outline.too_large(id, self.limits.memory))?;
                    self.evaluate(graph, id).map_err(|e| e.at(&self.outline.values[id.index()].name))?
                }
            };
            self.constants[id.index()] = Some(value);
        }
        Ok(())
    }

    fn evaluate(&self, graph: &Graph, id: NodeId) -> Result<Shared<R>> {
        let node = graph.node(id);
        let inputs = &self.outline.values[id.index()].inputs;
        let kernel = self.choose(graph, id, &Shelf::new(true, 1))?;
        let shape = node.shape.at(1).ok_or_else(|| self.outline.too_large(id, self.limits.memory))?;
        let count = element_count(&shape).ok_or_else(|| self.outline.too_large(id, self.limits.memory))?;
        let shapes: Option<Vec<Vec<usize>>> = self.fixed_shapes(inputs).into_iter().collect();
        let shapes = shapes.ok_or_else(|| self.outline.lost(id))?;
        let mut views = Vec::with_capacity(shapes.len());
        for (input, shape) in inputs.iter().zip(&shapes) {
            let data = self.constants[input.index()].as_ref().ok_or_else(|| self.outline.lost(id))?.slice();
            views.push(View { shape, data });
        }
        let mut storage = Storage::empty(node.kind);
        storage.grow(count)?;
        let mut out = ViewMut { shape: &shape, data: storage.slice_mut(count) };
        if !out.is_empty() {
            (kernel.run)(&views, &mut out)?;
        }
        Ok(storage.share(count))
    }
}
