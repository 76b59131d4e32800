//! An evaluator for tests: every op by its definition, in double precision, one element at a time. It shares nothing
//! with the engine, and speed is no concern.

use crate::graph::{Graph, Node};
use crate::op::{Binary, Divisor, Op, Padding, Reduction, Window};
use crate::tensor::Tensor;

/// The batch size everything is evaluated at.
pub(crate) const BATCH: usize = 2;

/// Reproducible numbers in `[-2, 2)`.
pub(crate) struct SampleNumbers(u64);

impl SampleNumbers {
    pub(crate) fn new(seed: u64) -> Self {
        SampleNumbers(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64 * 4.0 - 2.0
    }

    pub(crate) fn tensor(&mut self, shape: &[usize]) -> Tensor {
        let count: usize = shape.iter().product();
        Tensor::new(shape, (0..count).map(|_| self.next()).collect::<Vec<f64>>()).unwrap()
    }
}

/// How many nodes have this op.
pub(crate) fn count(graph: &Graph, op: &str) -> usize {
    graph.nodes().filter(|(_, node)| node.op.name() == op).count()
}

/// The outputs on reproducible noise, scaled to `[-2·spread, 2·spread)`.
pub(crate) fn run(graph: &Graph, spread: f64) -> Vec<Tensor> {
    let mut noise = SampleNumbers::new(3);
    let inputs: Vec<Tensor> = graph
        .inputs()
        .iter()
        .map(|&id| {
            let shape = graph.node(id).shape.at(BATCH).unwrap();
            let values: Vec<f64> = noise.tensor(&shape).to_f64().iter().map(|v| v * spread).collect();
            Tensor::new(shape, values).unwrap()
        })
        .collect();
    evaluate(graph, &inputs)
}

/// Two graphs give the same numbers.
pub(crate) fn agree(a: &Graph, b: &Graph, tolerance: f64) {
    for spread in [1.0, 6.0] {
        for (x, y) in run(a, spread).iter().zip(run(b, spread)) {
            assert_eq!(x.shape(), y.shape());
            for (p, q) in x.to_f64().iter().zip(&*y.to_f64()) {
                assert!((p - q).abs() <= tolerance * (1.0 + p.abs()), "{p} is not {q}");
            }
        }
    }
}

/// The outputs on `inputs`.
pub(crate) fn evaluate(graph: &Graph, inputs: &[Tensor]) -> Vec<Tensor> {
    let mut values: Vec<Array> = Vec::new();
    let mut given = inputs.iter();
    for (_, node) in graph.nodes() {
        let operands: Vec<&Array> = node.inputs.iter().map(|id| &values[id.index()]).collect();
        let value = match &node.op {
            Op::Input => Array::of(given.next().unwrap()),
            Op::Constant(tensor) => Array::of(tensor),
            op => apply(op, node, &operands),
        };
        assert_eq!(Some(&value.shape), node.shape.at(BATCH).as_ref(), "{}", node.op.name());
        values.push(value);
    }
    let tensor = |a: &Array| Tensor::new(a.shape.clone(), a.data.clone()).unwrap();
    graph.outputs().iter().map(|o| tensor(&values[o.node.index()])).collect()
}

struct Array {
    shape: Vec<usize>,
    data: Vec<f64>,
}

impl Array {
    fn of(tensor: &Tensor) -> Self {
        Array { shape: tensor.shape().to_vec(), data: tensor.to_f64().to_vec() }
    }

    fn build(shape: Vec<usize>, element: impl FnMut(&[usize]) -> f64) -> Self {
        let data = positions(&shape).iter().map(|p| p.as_slice()).map(element).collect();
        Array { shape, data }
    }

    fn at(&self, position: &[usize]) -> f64 {
        self.data[position.iter().zip(&self.shape).fold(0, |i, (&p, &n)| i * n + p)]
    }

    /// The element a broadcast position falls on.
    fn broadcast(&self, position: &[usize]) -> f64 {
        let skipped = position.len() - self.shape.len();
        let own: Vec<usize> =
            position[skipped..].iter().zip(&self.shape).map(|(&p, &n)| p.min(n - 1)).collect();
        self.at(&own)
    }
}

fn positions(shape: &[usize]) -> Vec<Vec<usize>> {
    shape.iter().fold(vec![Vec::new()], |all, &n| {
        all.iter().flat_map(|p| (0..n).map(move |i| [p.as_slice(), &[i]].concat())).collect()
    })
}

/// The elements under a window at `out`, each with its tap.
fn covered(window: &Window, out: &[usize], spatial: &[usize]) -> Vec<(Vec<usize>, Vec<usize>)> {
    let place = |tap: Vec<usize>| {
        let at: Option<Vec<usize>> = (0..tap.len())
            .map(|i| {
                let p =
                    (out[i] * window.stride[i] + tap[i] * window.dilation[i]).checked_sub(window.pad[i].0)?;
                (p < spatial[i]).then_some(p)
            })
            .collect();
        at.map(|at| (tap, at))
    };
    positions(&window.kernel).into_iter().filter_map(place).collect()
}

fn apply(op: &Op, node: &Node, x: &[&Array]) -> Array {
    let shape = node.shape.at(BATCH).unwrap();
    let first = x[0];
    match op {
        Op::Unary(f) => Array::build(shape, |p| f.eval(first.at(p)).unwrap()),
        Op::Binary(f) => Array::build(shape, |p| f.eval(first.broadcast(p), x[1].broadcast(p)).unwrap()),
        Op::Identity | Op::Dropout { .. } | Op::Cast { .. } | Op::Reshape { .. } => {
            Array { shape, data: first.data.clone() }
        }
        Op::Expand { .. } => Array::build(shape, |p| first.broadcast(p)),
        Op::Transpose { axes } => Array::build(shape, |p| {
            let mut source = vec![0; p.len()];
            axes.iter().zip(p).for_each(|(&axis, &i)| source[axis] = i);
            first.at(&source)
        }),
        Op::Slice { axis, start, step, .. } => Array::build(shape, |p| {
            let mut source = p.to_vec();
            source[*axis] = (*start as isize + p[*axis] as isize * step) as usize;
            first.at(&source)
        }),
        Op::Pad { padding: Padding::Constant(outside), pads } => Array::build(shape, |p| {
            let source: Option<Vec<usize>> =
                (0..p.len()).map(|i| p[i].checked_sub(pads[i].0).filter(|&q| q < first.shape[i])).collect();
            source.map_or(*outside, |s| first.at(&s))
        }),
        Op::Concat { axis } => Array::build(shape, |p| {
            let mut source = p.to_vec();
            for part in x {
                if source[*axis] < part.shape[*axis] {
                    return part.at(&source);
                }
                source[*axis] -= part.shape[*axis];
            }
            unreachable!()
        }),
        Op::Conv { window, groups } => Array::build(shape.clone(), |p| {
            let (inputs, outputs) = (x[1].shape[1], shape[1] / groups);
            let mut sum = x.get(2).map_or(0.0, |b| b.at(&p[1..2]));
            for (tap, at) in covered(window, &p[2..], &first.shape[2..]) {
                for c in 0..inputs {
                    let source = [&[p[0], p[1] / outputs * inputs + c], &at[..]].concat();
                    sum += first.at(&source) * x[1].at(&[&[p[1], c], &tap[..]].concat());
                }
            }
            sum
        }),
        Op::ConvTranspose { window, groups, .. } => conv_transpose(window, *groups, shape, x),
        Op::MatMul { trans_a, trans_b } => Array::build(shape, |p| {
            let (batch, row, column) = (&p[..p.len() - 2], p[p.len() - 2], p[p.len() - 1]);
            let read = |m: &Array, i: usize, j: usize, transposed: bool| {
                m.broadcast(&[batch, &if transposed { [j, i] } else { [i, j] }].concat())
            };
            let inner = first.shape[first.shape.len() - if *trans_a { 2 } else { 1 }];
            let product = |k| read(first, row, k, *trans_a) * read(x[1], k, column, *trans_b);
            (0..inner).map(product).sum::<f64>() + x.get(2).map_or(0.0, |b| b.broadcast(p))
        }),
        Op::BatchNorm { epsilon } => Array::build(shape, |p| {
            let [scale, bias, mean, variance] = [1, 2, 3, 4].map(|i| x[i].at(&p[1..2]));
            (first.at(p) - mean) / (variance + epsilon).sqrt() * scale + bias
        }),
        Op::LayerNorm { axis, epsilon } => Array::build(shape, |p| {
            let group = |q: &[usize]| q[..*axis] == p[..*axis];
            let bias = x.get(2).map_or(0.0, |b| b.broadcast(&p[*axis..]));
            normalised(first, p, group, *epsilon) * x[1].broadcast(&p[*axis..]) + bias
        }),
        Op::GroupNorm { groups, epsilon } => Array::build(shape.clone(), |p| {
            let each = shape[1] / groups;
            let group = |q: &[usize]| q[0] == p[0] && q[1] / each == p[1] / each;
            normalised(first, p, group, *epsilon) * x[1].at(&p[1..2]) + x[2].at(&p[1..2])
        }),
        Op::LocalResponseNorm { size, alpha, beta, bias } => Array::build(shape.clone(), |p| {
            let (from, to) = (p[1].saturating_sub((size - 1) / 2), (p[1] + size / 2).min(shape[1] - 1));
            let square = |c: usize| first.at(&[&[p[0], c], &p[2..]].concat()).powi(2);
            first.at(p) / (bias + alpha / *size as f64 * (from..=to).map(square).sum::<f64>()).powf(*beta)
        }),
        Op::Softmax { axis } | Op::LogSoftmax { axis } => Array::build(shape.clone(), |p| {
            let exp = |i: usize| first.at(&[&p[..*axis], &[i], &p[axis + 1..]].concat()).exp();
            let share = exp(p[*axis]) / (0..shape[*axis]).map(exp).sum::<f64>();
            if matches!(op, Op::Softmax { .. }) { share } else { share.ln() }
        }),
        Op::MaxPool(window) => Array::build(shape, |p| {
            let under = covered(window, &p[2..], &first.shape[2..]);
            under.iter().map(|(_, at)| first.at(&[&p[..2], at].concat())).fold(f64::NEG_INFINITY, f64::max)
        }),
        Op::AveragePool { window, divisor: Divisor::One } => Array::build(shape, |p| {
            let under = covered(window, &p[2..], &first.shape[2..]);
            under.iter().map(|(_, at)| first.at(&[&p[..2], at].concat())).sum()
        }),
        Op::Reduce { reduction, axes, keep } => reduce(*reduction, axes, *keep, shape, first),
        other => panic!("the reference does not know {}", other.name()),
    }
}

fn conv_transpose(window: &Window, groups: usize, shape: Vec<usize>, x: &[&Array]) -> Array {
    let (inputs, outputs) = (x[0].shape[1] / groups, x[1].shape[1]);
    let mut sum = Array::build(shape.clone(), |p| x.get(2).map_or(0.0, |b| b.at(&p[1..2])));
    for q in positions(&x[0].shape) {
        for (tap, at) in covered(window, &q[2..], &shape[2..]) {
            for o in 0..outputs {
                let target = [&[q[0], q[1] / inputs * outputs + o], &at[..]].concat();
                let index = target.iter().zip(&shape).fold(0, |i, (&p, &n)| i * n + p);
                sum.data[index] += x[0].at(&q) * x[1].at(&[&[q[1], o], &tap[..]].concat());
            }
        }
    }
    sum
}

fn normalised(x: &Array, p: &[usize], group: impl Fn(&[usize]) -> bool, epsilon: f64) -> f64 {
    let members: Vec<f64> = positions(&x.shape).iter().filter(|q| group(q)).map(|q| x.at(q)).collect();
    let mean = members.iter().sum::<f64>() / members.len() as f64;
    let variance = members.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / members.len() as f64;
    (x.at(p) - mean) / (variance + epsilon).sqrt()
}

fn reduce(reduction: Reduction, axes: &[usize], keep: bool, shape: Vec<usize>, x: &Array) -> Array {
    let lands = |q: &[usize]| -> Vec<usize> {
        let kept = q.iter().enumerate().filter(|(i, _)| keep || !axes.contains(i));
        kept.map(|(i, &p)| if axes.contains(&i) { 0 } else { p }).collect()
    };
    let from: Vec<(Vec<usize>, f64)> = positions(&x.shape).iter().map(|q| (lands(q), x.at(q))).collect();
    Array::build(shape, |p| {
        let members: Vec<f64> = from.iter().filter(|(q, _)| q == p).map(|(_, v)| *v).collect();
        match reduction {
            Reduction::Sum => members.iter().sum(),
            Reduction::Mean => members.iter().sum::<f64>() / members.len() as f64,
            Reduction::Max => members.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            Reduction::Min => members.iter().copied().fold(f64::INFINITY, f64::min),
            Reduction::Product => members.iter().product(),
        }
    })
}

/// Whether the graph is built of affine maps, sums, ReLUs and shape changes alone.
pub(crate) fn is_relu_network(graph: &Graph) -> bool {
    graph.nodes().all(|(_, node)| match &node.op {
        Op::Input | Op::Constant(_) | Op::Conv { .. } | Op::Reshape { .. } => true,
        Op::Unary(function) => function.name() == "Relu",
        Op::Binary(Binary::Add) => true,
        _ => false,
    })
}
