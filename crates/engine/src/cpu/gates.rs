//! Several elementwise nodes that are one instruction: `x·f(x)`, and the GELU that exporters spell out with the error function. The
//! instruction computes what the nodes compute, in the same order, so that the bits are theirs.

use std::collections::HashMap;

use monosplit_graph::op::{Binary, Unary};
use monosplit_graph::{Dim, Graph, Kind, NodeId, Op};

use super::kernels::fused::{ErfGate, Function};

/// Finds nodes that are one instruction among those of one pass over memory.
pub(super) struct Gates<'a> {
    graph: &'a Graph,
    /// For every node the one that stands for it.
    same: &'a [NodeId],
    nodes: &'a [NodeId],
    /// How often every node is read within the pass.
    reads: HashMap<NodeId, usize>,
    outputs: &'a [NodeId],
}

/// An instruction, what it reads, and the nodes within it that need no instruction of their own.
pub(super) struct Gate {
    pub(super) function: Function,
    pub(super) operands: Vec<NodeId>,
    pub(super) within: Vec<NodeId>,
}

impl<'a> Gates<'a> {
    pub(super) fn new(
        graph: &'a Graph,
        same: &'a [NodeId],
        nodes: &'a [NodeId],
        outputs: &'a [NodeId],
    ) -> Self {
        let mut reads = HashMap::new();
        for input in nodes.iter().flat_map(|&id| &graph.node(id).inputs) {
            *reads.entry(same[input.index()]).or_insert(0) += 1;
        }
        Gates { graph, same, nodes, reads, outputs }
    }

    /// The gate that ends with this node.
    pub(super) fn ending_with(&self, id: NodeId) -> Option<Gate> {
        self.erf_gate(id).or_else(|| self.gate(id))
    }

    /// `x·f(x)`
    fn gate(&self, id: NodeId) -> Option<Gate> {
        self.either_way(self.binary(id, Binary::Mul)?, |x, gate| {
            let Op::Unary(unary) = self.inner(gate)? else { return None };
            let fits = self.input(gate, 0) == x && self.is_real(x);
            fits.then(|| Gate { function: Function::Gate(*unary), operands: vec![x], within: vec![gate] })
        })
    }

    /// `x·(erf(x/a) + b)·c`, the factors in any order, or with a product instead of the quotient.
    fn erf_gate(&self, id: NodeId) -> Option<Gate> {
        self.either_way(self.binary(id, Binary::Mul)?, |first, last| {
            let inner = self.either_way(self.inner_binary(first, Binary::Mul)?, |x, other| {
                // x·(…) times a number, or x times a number times (…).
                let (sum, number, number_first) =
                    if self.is_number(last) { (other, last, false) } else { (last, other, true) };
                self.erf_sum(x, sum, number, number_first)
            })?;
            Some(Gate { within: [inner.within, vec![first]].concat(), ..inner })
        })
    }

    /// The gate `x·sum·number`, if the sum is `erf(x/a) + b`.
    fn erf_sum(&self, x: NodeId, sum: NodeId, number: NodeId, number_first: bool) -> Option<Gate> {
        let (erf, one) = self.either_way(self.inner_binary(sum, Binary::Add)?, |erf, one| {
            Some((erf, one)).filter(|_| self.is_number(one))
        })?;
        let Op::Unary(Unary::Erf) = self.inner(erf)? else { return None };
        let scaled = self.input(erf, 0);
        let quotient = self.inner_binary(scaled, Binary::Div);
        let divides = quotient.is_some();
        let [of, scale] = match quotient {
            Some(quotient) => quotient,
            None => self.either_way(self.inner_binary(scaled, Binary::Mul)?, |of, scale| {
                Some([of, scale]).filter(|_| of == x)
            })?,
        };
        let fits = of == x && self.is_real(x) && self.is_number(scale) && self.is_number(number);
        fits.then(|| Gate {
            function: Function::ErfGate(ErfGate { divides, number_first }),
            operands: vec![x, scale, one, number],
            within: vec![scaled, erf, sum],
        })
    }

    /// Calls `find` with two operands in their order, and in the other if it finds nothing.
    fn either_way<T>(&self, [a, b]: [NodeId; 2], find: impl Fn(NodeId, NodeId) -> Option<T>) -> Option<T> {
        find(a, b).or_else(|| find(b, a))
    }

    fn input(&self, id: NodeId, position: usize) -> NodeId {
        self.same[self.graph.node(id).inputs[position].index()]
    }

    /// The operands of a node that is this function of real numbers.
    fn binary(&self, id: NodeId, binary: Binary) -> Option<[NodeId; 2]> {
        let node = self.graph.node(id);
        let fits = node.op == Op::Binary(binary) && node.kind == Kind::Float;
        fits.then(|| [self.input(id, 0), self.input(id, 1)])
    }

    /// The op of a node of the pass that is read once, by another one of it.
    fn inner(&self, id: NodeId) -> Option<&'a Op> {
        let alone = self.reads.get(&id) == Some(&1) && !self.outputs.contains(&id);
        (alone && self.nodes.contains(&id)).then(|| &self.graph.node(id).op)
    }

    fn inner_binary(&self, id: NodeId, binary: Binary) -> Option<[NodeId; 2]> {
        self.inner(id).and_then(|_| self.binary(id, binary))
    }

    fn is_real(&self, id: NodeId) -> bool {
        self.graph.node(id).kind == Kind::Float
    }

    /// Whether a value is a single real number that the pass reads.
    fn is_number(&self, id: NodeId) -> bool {
        self.graph.node(id).shape.count() == Some(Dim::Fixed(1))
            && self.is_real(id)
            && !self.nodes.contains(&id)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use monosplit_graph::op::Window;
    use monosplit_graph::{Result, Shape, Tensor};

    use super::*;
    use crate::Program;
    use crate::cpu::Settings;
    use crate::cpu::kernels::conv_plan::PlanSettings;
    use crate::cpu::kernels::testing::Random;
    use crate::cpu::program::CpuProgram;
    use crate::cpu::real::Real;
    use crate::cpu::thread_pool::ThreadPool;
    use crate::schedule::{Optimisations, Partition};

    /// A value of shape `[N, 20, 7, 9]` before the functions: that of a convolution, of a depthwise one, or of a product.
    fn computed(g: &mut Graph, random: &mut Random, kind: usize) -> Result<NodeId> {
        let x = g.input("x", Shape::batched(&[20, 7, 9]), Kind::Float);
        let mut constant = |shape: Vec<usize>| {
            let count = shape.iter().product();
            g.constant(Tensor::new(shape, random.reals::<f32>(count)).unwrap())
        };
        let (wide, deep, square) =
            (constant(vec![20, 20, 1, 1]), constant(vec![20, 1, 5, 5]), constant(vec![9, 9]));
        match kind {
            0 => g.add(Op::Conv { window: Window::new([1, 1]), groups: 1 }, &[x, wide]),
            1 => {
                let window = Window { pad: vec![(2, 2); 2], ..Window::new([5, 5]) };
                g.add(Op::Conv { window, groups: 20 }, &[x, deep])
            }
            _ => g.add(Op::MatMul { trans_a: false, trans_b: false }, &[x, square]),
        }
    }

    /// Bias, SiLU, GELU in the spellings of exporters, a factor per channel and a residual, read as networks read them.
    fn functions(g: &mut Graph, random: &mut Random, y: NodeId, spelling: usize) -> Result<NodeId> {
        let mut constant = |shape: &[usize]| {
            let count = shape.iter().product();
            g.constant(Tensor::new(shape.to_vec(), random.reals::<f32>(count)).unwrap())
        };
        let (bias, scale) = (constant(&[9]), constant(&[20, 1, 1]));
        let [root, one, half] = [std::f32::consts::SQRT_2, 1.0, 0.5].map(|v| g.constant(Tensor::scalar(v)));
        let residual = g.input("r", Shape::batched(&[20, 7, 9]), Kind::Float);
        let y = g.plus(bias, y)?;
        let erf = |g: &mut Graph, x: NodeId| {
            let scaled = match spelling % 2 {
                0 => g.binary(Binary::Div, x, root)?,
                _ => g.times(root, x)?,
            };
            let erf = g.unary(Unary::Erf, scaled)?;
            g.plus(erf, one)
        };
        let y = match spelling {
            0 | 1 => {
                let sum = erf(g, y)?;
                let product = g.times(y, sum)?;
                g.times(product, half)?
            }
            2 | 3 => {
                let sum = erf(g, y)?;
                let product = g.times(half, y)?;
                g.times(product, sum)?
            }
            _ => {
                let gate = g.unary([Unary::Sigmoid, Unary::HardSwish, Unary::Tanh][spelling % 3], y)?;
                g.times(gate, y)?
            }
        };
        let y = g.times(scale, y)?;
        g.plus(residual, y)
    }

    fn program<R: Real>(graph: &Graph, options: Optimisations) -> CpuProgram<R> {
        let convolutions = PlanSettings { accurate: false, batch_size: 1 };
        let pool = Arc::new(ThreadPool::start(2, false).unwrap());
        let settings = Settings { memory_limit: Some(1 << 30), convolutions };
        CpuProgram::compile_with(graph, pool, settings, Arc::default(), options).unwrap()
    }

    /// As epilogues, in one pass over memory and node by node, functions have the same bits, in both precisions.
    #[test]
    fn functions_that_are_one_instruction_keep_their_bits() {
        let mut random = Random::new(91);
        for case in 0..21 {
            let (kind, spelling) = (case / 7, case % 7);
            let mut graph = Graph::new();
            let y = computed(&mut graph, &mut random, kind).unwrap();
            let y = functions(&mut graph, &mut random, y, spelling).unwrap();
            graph.output("y", y);
            let inputs: Vec<Tensor> =
                (0..2).map(|_| Tensor::new([3, 20, 7, 9], random.reals::<f32>(3 * 1260)).unwrap()).collect();
            fn compared<R: Real>(graph: &Graph, inputs: &[Tensor]) {
                let all: CpuProgram<R> = program(graph, Optimisations::CPU);
                let epilogue = |step: &crate::plan::Step| matches!(step.partition, Partition::Epilogue(_));
                assert!(all.plan.steps.iter().any(epilogue), "the functions are no epilogue");
                let apart: CpuProgram<R> = program(graph, Optimisations::without(1 << 4 | 1 << 6));
                let plain: CpuProgram<R> = program(graph, Optimisations::without(0x7F));
                let [all, apart, plain] =
                    [all, apart, plain].map(|program| program.run(inputs).unwrap()[0].to_f64().to_vec());
                assert_eq!(all, plain, "{:?}", R::PRECISION);
                assert_eq!(apart, plain, "{:?}", R::PRECISION);
            }
            compared::<f32>(&graph, &inputs);
            compared::<f64>(&graph, &inputs);
        }
    }

    #[test]
    fn a_value_that_others_read_is_no_part_of_a_gate() {
        let mut graph = Graph::new();
        let x = graph.input("x", Shape::fixed(&[4]), Kind::Float);
        let gate = graph.unary(Unary::Sigmoid, x).unwrap();
        let y = graph.times(x, gate).unwrap();
        let same: Vec<NodeId> = graph.nodes().map(|(id, _)| id).collect();
        let nodes = [gate, y];
        assert!(Gates::new(&graph, &same, &nodes, &[y]).ending_with(y).is_some());
        assert!(Gates::new(&graph, &same, &nodes, &[gate, y]).ending_with(y).is_none());
        assert!(Gates::new(&graph, &same, &[y], &[y]).ending_with(y).is_none());
    }
}
