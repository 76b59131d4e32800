//! What a node of a network does, reduced to the few forms the four-stream algorithm distinguishes.

use monosplit_graph::op::{Binary, Padding, Reduction, Unary};
use monosplit_graph::{Graph, NodeId, Op};

use super::coefficients::{self, Entry, broadcast, each, flat, merged};

pub(crate) enum Rule {
    /// Nothing that depends on the image.
    Constant,
    Input,
    /// `bias + Σ W a` over the operands (numbered) that depend on the image.
    Linear {
        maps: Vec<(usize, Vec<Entry>)>,
        bias: Vec<f64>,
    },
    /// A slope for negative values, per element.
    Rectifier {
        slope: Vec<f64>,
    },
    Absolute,
    Clip {
        low: f64,
        high: f64,
    },
    /// For each output element its contestants, by operand and element.
    Contest {
        windows: Vec<Vec<(usize, usize)>>,
        minimum: bool,
    },
    /// Terms `(out, i, j)` of products of the two operands.
    Product {
        terms: Vec<(usize, usize, usize)>,
    },
    /// Any other function of one element.
    Smooth(Unary),
}

pub(crate) fn shape(graph: &Graph, id: NodeId) -> Vec<usize> {
    graph.node(id).shape.at(1).unwrap()
}

fn constant(graph: &Graph, id: NodeId) -> Vec<f64> {
    graph.constant_value(id).expect("the generator stores all constants").to_f64().to_vec()
}

struct Operands<'a> {
    graph: &'a Graph,
    inputs: &'a [NodeId],
    x: Vec<usize>,
    y: Vec<usize>,
}

impl Operands<'_> {
    fn active(&self, i: usize) -> bool {
        !self.graph.node(self.inputs[i]).is_constant()
    }

    fn one(&self, entries: Vec<Entry>) -> Rule {
        self.biased(entries, vec![0.0; self.y.iter().product()])
    }

    fn biased(&self, entries: Vec<Entry>, bias: Vec<f64>) -> Rule {
        Rule::Linear { maps: vec![(0, merged(entries))], bias }
    }

    /// Operand `i` of broadcast shape, times a number per output element.
    fn spread(&self, i: usize, factor: impl Fn(usize) -> f64) -> Vec<Entry> {
        let from = broadcast(&shape(self.graph, self.inputs[i]), &self.y);
        from.into_iter().enumerate().map(|(o, i)| (o, i, factor(o))).collect()
    }

    /// A constant operand at every output element.
    fn constant_spread(&self, i: usize) -> Vec<f64> {
        let values = constant(self.graph, self.inputs[i]);
        broadcast(&shape(self.graph, self.inputs[i]), &self.y).into_iter().map(|at| values[at]).collect()
    }

    fn weight(&self) -> (Vec<f64>, Vec<usize>) {
        (constant(self.graph, self.inputs[1]), shape(self.graph, self.inputs[1]))
    }

    /// A number per channel at every output element; zero if there is none.
    fn per_channel(&self, i: usize) -> Vec<f64> {
        let Some(&id) = self.inputs.get(i) else { return vec![0.0; self.y.iter().product()] };
        let values = constant(self.graph, id);
        each(&self.y).iter().map(|index| values[index[1]]).collect()
    }

    fn sum(&self, sign: f64) -> Rule {
        let mut maps = Vec::new();
        let mut bias = vec![0.0; self.y.iter().product()];
        for (i, factor) in [(0, 1.0), (1, sign)] {
            if self.active(i) {
                maps.push((i, merged(self.spread(i, |_| factor))));
            } else {
                let values = self.constant_spread(i);
                bias.iter_mut().zip(values).for_each(|(b, v)| *b += factor * v);
            }
        }
        Rule::Linear { maps, bias }
    }

    fn product(&self) -> Rule {
        let none = vec![0.0; self.y.iter().product()];
        match (self.active(0), self.active(1)) {
            (true, true) => {
                let pairs = self.spread(0, |_| 1.0).into_iter().zip(self.spread(1, |_| 1.0));
                Rule::Product { terms: pairs.map(|(a, b)| (a.0, a.1, b.1)).collect() }
            }
            (first, _) => {
                let (active, other) = if first { (0, 1) } else { (1, 0) };
                let factors = self.constant_spread(other);
                Rule::Linear { maps: vec![(active, self.spread(active, |o| factors[o]))], bias: none }
            }
        }
    }

    fn matmul(&self, flags: (bool, bool)) -> Rule {
        let b = shape(self.graph, self.inputs[1]);
        let terms = coefficients::matmul(flags, &self.x, &b, &self.y);
        let bias =
            if self.inputs.len() > 2 { self.constant_spread(2) } else { vec![0.0; self.y.iter().product()] };
        match (self.active(0), self.active(1)) {
            (true, true) => Rule::Product { terms },
            (true, false) => {
                let w = constant(self.graph, self.inputs[1]);
                self.biased(terms.into_iter().map(|(o, i, j)| (o, i, w[j])).collect(), bias)
            }
            _ => {
                let w = constant(self.graph, self.inputs[0]);
                let entries = terms.into_iter().map(|(o, i, j)| (o, j, w[i])).collect();
                Rule::Linear { maps: vec![(1, merged(entries))], bias }
            }
        }
    }

    fn batch_norm(&self, epsilon: f64) -> Rule {
        let [scale, bias, mean, variance] = [1, 2, 3, 4].map(|i| self.per_channel(i));
        let factor = |o: usize| scale[o] / (variance[o] + epsilon).sqrt();
        let bias = (0..bias.len()).map(|o| bias[o] - mean[o] * factor(o)).collect();
        self.biased(self.spread(0, factor), bias)
    }

    fn joined(&self, axis: usize) -> Rule {
        let mut maps = Vec::new();
        let mut bias = vec![0.0; self.y.iter().product()];
        let mut start = 0;
        for (i, &id) in self.inputs.iter().enumerate() {
            let part = shape(self.graph, id);
            let entries = coefficients::moved(&part, &self.y, |index| {
                let at = index[axis].checked_sub(start).filter(|&at| at < part[axis])?;
                let mut index = index.to_vec();
                index[axis] = at;
                Some(index)
            });
            if self.active(i) {
                maps.push((i, entries));
            } else {
                let values = constant(self.graph, id);
                entries.iter().for_each(|&(o, i, _)| bias[o] = values[i]);
            }
            start += part[axis];
        }
        Rule::Linear { maps, bias }
    }

    fn pad(&self, padding: Padding, pads: &[(usize, usize)]) -> Rule {
        let entries = coefficients::pad(padding, pads, &self.x, &self.y);
        let mut bias = vec![0.0; self.y.iter().product()];
        if let Padding::Constant(fill) = padding {
            bias.fill(fill);
            entries.iter().for_each(|&(o, _, _)| bias[o] = 0.0);
        }
        self.biased(entries, bias)
    }

    fn reduction(&self, reduction: Reduction, axes: &[usize]) -> Rule {
        let to = coefficients::reduced(&self.x, axes);
        let count: usize = axes.iter().map(|&a| self.x[a]).product();
        let weighted = |w: f64| to.iter().enumerate().map(|(i, &o)| (o, i, w)).collect();
        match reduction {
            Reduction::Sum => self.one(weighted(1.0)),
            Reduction::Mean => self.one(weighted(1.0 / count as f64)),
            Reduction::Product => panic!("the generator makes none"),
            Reduction::Max | Reduction::Min => {
                let mut windows = vec![Vec::new(); self.y.iter().product()];
                to.iter().enumerate().for_each(|(i, &o)| windows[o].push((0, i)));
                Rule::Contest { windows, minimum: reduction == Reduction::Min }
            }
        }
    }

    fn extremum(&self, minimum: bool) -> Rule {
        let pairs = self.spread(0, |_| 1.0).into_iter().zip(self.spread(1, |_| 1.0));
        Rule::Contest { windows: pairs.map(|(a, b)| vec![(0, a.1), (1, b.1)]).collect(), minimum }
    }
}

pub(crate) fn rule(graph: &Graph, id: NodeId) -> Rule {
    let node = graph.node(id);
    if node.is_constant() {
        return Rule::Constant;
    }
    let Some(&first) = node.inputs.first() else { return Rule::Input };
    let o = Operands { graph, inputs: &node.inputs, x: shape(graph, first), y: shape(graph, id) };
    let count: usize = o.y.iter().product();
    match &node.op {
        Op::Conv { window, groups } => {
            let (w, shape) = o.weight();
            let entries = coefficients::conv(window, *groups, &o.x, (&w, &shape), &o.y);
            o.biased(entries, o.per_channel(2))
        }
        Op::ConvTranspose { window, groups, .. } => {
            let (w, shape) = o.weight();
            let entries = coefficients::conv_transpose(window, *groups, &o.x, (&w, &shape), &o.y);
            o.biased(entries, o.per_channel(2))
        }
        Op::MatMul { trans_a, trans_b } => o.matmul((*trans_a, *trans_b)),
        Op::BatchNorm { epsilon } => o.batch_norm(*epsilon),
        Op::Binary(Binary::Add) => o.sum(1.0),
        Op::Binary(Binary::Sub) => o.sum(-1.0),
        Op::Binary(Binary::Mul) => o.product(),
        Op::Binary(Binary::Div) => {
            let divisor = o.constant_spread(1);
            o.one(o.spread(0, |at| 1.0 / divisor[at]))
        }
        Op::Binary(Binary::PRelu) => Rule::Rectifier { slope: o.constant_spread(1) },
        Op::Binary(binary @ (Binary::Max | Binary::Min)) => o.extremum(*binary == Binary::Min),
        Op::Unary(Unary::Relu) => Rule::Rectifier { slope: vec![0.0; count] },
        Op::Unary(Unary::LeakyRelu { slope }) => Rule::Rectifier { slope: vec![*slope; count] },
        Op::Unary(Unary::Abs) => Rule::Absolute,
        Op::Unary(Unary::Clip { min, max }) => Rule::Clip { low: *min, high: *max },
        Op::Unary(Unary::Neg) => o.one(o.spread(0, |_| -1.0)),
        Op::Unary(function) => Rule::Smooth(*function),
        Op::MaxPool(window) => {
            let windows = coefficients::windows(window, &o.x, &o.y);
            let windows = windows.into_iter().map(|w| w.into_iter().map(|i| (0, i)).collect()).collect();
            Rule::Contest { windows, minimum: false }
        }
        Op::AveragePool { window, divisor } => {
            o.one(coefficients::average_pool(window, *divisor, &o.x, &o.y))
        }
        Op::Reduce { reduction, axes, .. } => o.reduction(*reduction, axes),
        Op::Concat { axis } => o.joined(*axis),
        Op::Slice { axis, start, step, .. } => o.one(coefficients::moved(&o.x, &o.y, |index| {
            let mut index = index.to_vec();
            index[*axis] = (*start as isize + index[*axis] as isize * step) as usize;
            Some(index)
        })),
        Op::Pad { padding, pads } => o.pad(*padding, pads),
        Op::Transpose { axes } => o.one(coefficients::moved(&o.x, &o.y, |index| {
            let mut source = vec![0; axes.len()];
            axes.iter().enumerate().for_each(|(to, &from)| source[from] = index[to]);
            Some(source)
        })),
        Op::Gather { axis } => {
            let picks = graph.constant_value(node.inputs[1]).and_then(|t| t.to_i64()).unwrap();
            o.one(coefficients::moved(&o.x, &o.y, |index| {
                let mut index = index.to_vec();
                index[*axis] = picks[index[*axis]].rem_euclid(o.x[*axis] as i64) as usize;
                Some(index)
            }))
        }
        Op::Expand { .. } | Op::Identity | Op::Dropout { .. } => o.one(o.spread(0, |_| 1.0)),
        Op::Reshape { .. } => o.one((0..count).map(|i| (i, i, 1.0)).collect()),
        Op::Resize { axes, interpolation, coordinates } => {
            o.one(coefficients::resize(axes, *interpolation, *coordinates, &o.x, &o.y))
        }
        op => panic!("the generator makes no {}", op.name()),
    }
}

/// Nodes that only move elements or flip their sign: neither stabilised nor counted.
pub(crate) fn is_shape_node(op: &Op) -> bool {
    let moves =
        ["Reshape", "Transpose", "Slice", "Concat", "Pad", "Expand", "Gather", "Identity", "Dropout", "Neg"];
    moves.contains(&op.name())
}

/// Convolutions, linear layers, batch norms, and sums or products with a constant.
pub(crate) fn is_affine(graph: &Graph, id: NodeId) -> bool {
    let node = graph.node(id);
    let active = node.inputs.iter().filter(|&&i| !graph.node(i).is_constant()).count();
    let always = ["Conv", "ConvTranspose", "BatchNormalization"].contains(&node.op.name());
    always || (active == 1 && ["MatMul", "Add", "Sub", "Mul", "Div"].contains(&node.op.name()))
}

/// The position in `shape` reduced over its channel axis, for every element; the element itself below rank 3.
pub(crate) fn map_positions(shape: &[usize]) -> (Vec<usize>, usize) {
    if shape.len() < 3 {
        return ((0..shape.iter().product()).collect(), 1);
    }
    let spatial = [&shape[..1], &shape[2..]].concat();
    let to = each(shape).iter().map(|index| flat(&[&index[..1], &index[2..]].concat(), &spatial)).collect();
    (to, shape[1])
}
