//! Gradients of one number with respect to any values of a graph, as nodes of that graph: what training needs of a loss.

use monosplit_graph::{Error, Graph, NodeId, Op, Result, Tensor};

use crate::active_graph::ActiveGraph;
use crate::gradient::GradientRules;
use crate::walk::Walk;

/// `graph` with nodes appended that compute `∂ of / ∂ v` for every value `v` in `with_respect_to`, and the nodes that
/// hold these gradients, in that order. The graph's inputs, outputs and labels are those of `graph`; node ids are not.
///
/// `of` must hold one number. A ReLU passes nothing where its input is zero, as in PyTorch; of equal elements a maximum
/// selects the first. A value that `of` does not depend on has the gradient zero.
///
/// ```
/// use monosplit_engine::{Cpu, Engine};
/// use monosplit_autodiff::gradients;
/// use monosplit_graph::op::Reduction;
/// use monosplit_graph::{Graph, Kind, Shape, Tensor};
///
/// # fn main() -> monosplit_graph::Result<()> {
/// let mut graph = Graph::new();
/// let a = graph.input("a", Shape::fixed(&[2]), Kind::Float);
/// let b = graph.input("b", Shape::fixed(&[2]), Kind::Float);
/// let product = graph.times(a, b)?;
/// let sum = graph.reduced(Reduction::Sum, product, &[0], false)?;
/// let (mut graph, slopes) = gradients(&graph, sum, &[a, b])?;
/// graph.output("slope of a", slopes[0]);
/// let inputs = [Tensor::vector(vec![1f32, 2.0]), Tensor::vector(vec![3f32, 4.0])];
/// let outputs = Cpu::default().compile(&graph)?.run(&inputs)?;
/// assert_eq!(&*outputs[0].to_f32(), &[3.0, 4.0]);
/// # Ok(())
/// # }
/// ```
pub fn gradients(graph: &Graph, of: NodeId, with_respect_to: &[NodeId]) -> Result<(Graph, Vec<NodeId>)> {
    let network = ActiveGraph::new(graph, of, with_respect_to)?;
    let of = network.output();
    let mut g = network.graph().clone();
    let node = g.node(of);
    let Some(lengths) =
        node.shape.at(1).filter(|dims| !node.shape.is_batched() && dims.iter().all(|&n| n == 1))
    else {
        let found = &node.shape;
        return Err(Error::shape(format!(
            "gradients are those of one number, found a value of shape {found}"
        ))
        .at(node.label.display()));
    };
    let seed = g.constant(Tensor::new(lengths, vec![1f32])?);
    let mut walk = Walk::new(GradientRules::default(), of, seed);
    let mut slopes = Vec::with_capacity(with_respect_to.len());
    for value in network.inputs() {
        let slope = match walk.message(&mut g, &network, *value)? {
            Some(slope) => slope,
            None => {
                let (zero, shape) = (g.number(0.0), g.node(*value).shape.clone());
                g.add(Op::Expand { shape }, &[zero])?
            }
        };
        slopes.push(slope);
    }
    Ok((g, slopes))
}

#[cfg(test)]
mod tests {
    use monosplit_engine::{Cpu, Engine, Precision};
    use monosplit_graph::op::{Binary, Divisor, Reduction, Unary, Window};
    use monosplit_graph::{Kind, Noise, Shape};

    use super::*;

    type Build = dyn Fn(&mut Graph, &[NodeId]) -> Result<NodeId>;

    /// Compares the gradients of `Σ weight·y` with respect to every input with central differences in double precision.
    fn check(name: &str, shapes: &[&[usize]], build: &Build) {
        let mut g = Graph::new();
        let inputs: Vec<NodeId> = (shapes.iter().enumerate())
            .map(|(i, s)| g.input(format!("v{i}"), Shape::fixed(s), Kind::Float))
            .collect();
        let y = build(&mut g, &inputs).unwrap();
        let shape = g.node(y).shape.at(1).unwrap();
        let noise = Noise::new(1).stream(name);
        let weight = |i: usize| noise.stream("weight").uniform(i as u64) + 0.5;
        let weights = (0..shape.iter().product()).map(weight).collect::<Vec<f64>>();
        let weights = g.constant(Tensor::new(shape.clone(), weights).unwrap());
        let product = g.times(y, weights).unwrap();
        let axes: Vec<usize> = (0..shape.len()).collect();
        let loss = g.reduced(Reduction::Sum, product, &axes, false).unwrap();
        g.output("loss", loss);
        let (mut with, slopes) = gradients(&g, loss, &inputs).unwrap();
        slopes.iter().for_each(|&slope| with.output("slope", slope));
        let program = Cpu::default().precision(Precision::F64).compile(&with).unwrap();
        let values: Vec<Vec<f64>> = (shapes.iter().enumerate())
            .map(|(i, s)| {
                let noise = noise.numbered(i as u64);
                (0..s.iter().product::<usize>() as u64).map(|j| noise.uniform(j) * 2.0 - 0.9).collect()
            })
            .collect();
        let run = |values: &[Vec<f64>]| {
            let tensors = values.iter().zip(shapes).map(|(v, s)| Tensor::new(*s, v.clone()).unwrap());
            program.run(&tensors.collect::<Vec<_>>()).unwrap()
        };
        let found = run(&values);
        let step = 1e-6;
        for (input, shape) in shapes.iter().enumerate() {
            assert_eq!(found[input + 1].shape(), *shape, "{name}: gradient of input {input}");
            let slopes = found[input + 1].to_f64();
            for (index, &slope) in slopes.iter().enumerate() {
                let at = |shift: f64| {
                    let mut moved = values.clone();
                    moved[input][index] += shift;
                    run(&moved)[0].to_f64()[0]
                };
                let expected = (at(step) - at(-step)) / (2.0 * step);
                let error = (slope - expected).abs();
                assert!(error < 1e-7 * (1.0 + expected.abs()), "{name} {input}[{index}]: {slope} {expected}");
            }
        }
    }

    fn window(kernel: [usize; 2], stride: usize, dilation: usize, pad: [(usize, usize); 2]) -> Window {
        let (stride, dilation) = (vec![stride; 2], vec![dilation; 2]);
        Window { kernel: kernel.to_vec(), stride, dilation, pad: pad.to_vec(), ceil: false }
    }

    #[test]
    fn convolutions_equal_central_differences_in_input_kernel_and_bias() {
        for (groups, stride, dilation) in [(1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2), (2, 2, 2), (4, 3, 1)] {
            let window = window([3, 2], stride, dilation, [(1, 1), (0, 1)]);
            let op = Op::Conv { window: window.clone(), groups };
            let kernel = [groups * 2, 4 / groups, 3, 2];
            let shapes: [&[usize]; 3] = [&[3, 4, 7, 6], &kernel, &[groups * 2]];
            check("conv", &shapes, &move |g, v| g.add(op.clone(), v));
            let op = Op::ConvTranspose { window, groups, output_padding: vec![stride - 1, 0] };
            let kernel = [4, 2, 3, 2];
            let shapes: [&[usize]; 3] = [&[2, 4, 4, 3], &kernel, &[groups * 2]];
            check("conv transpose", &shapes, &move |g, v| g.add(op.clone(), v));
        }
        let line = Op::Conv { window: Window::new([3]), groups: 1 };
        check("conv 1d", &[&[2, 3, 6], &[4, 3, 3], &[4]], &move |g, v| g.add(line.clone(), v));
        let point = Op::Conv { window: Window::new([1, 1]), groups: 1 };
        check("conv 1x1", &[&[2, 3, 4, 3], &[5, 3, 1, 1]], &move |g, v| g.add(point.clone(), v));
    }

    #[test]
    fn products_equal_central_differences_in_both_sides_and_bias() {
        for (trans_a, trans_b) in [(false, false), (true, false), (false, true), (true, true)] {
            let a: &[usize] = if trans_a { &[4, 3] } else { &[3, 4] };
            let b: &[usize] = if trans_b { &[5, 4] } else { &[4, 5] };
            let op = Op::MatMul { trans_a, trans_b };
            check("matmul", &[a, b, &[5]], &move |g, v| g.add(op.clone(), v));
        }
    }

    #[test]
    fn elementwise_functions_equal_central_differences() {
        for function in [
            Unary::Relu,
            Unary::Softplus,
            Unary::Exp,
            Unary::Sin,
            Unary::Cos,
            Unary::Abs,
            Unary::Neg,
            Unary::Sigmoid,
        ] {
            check(function.name(), &[&[3, 4]], &move |g, v| g.unary(function, v[0]));
        }
        for function in [Binary::Add, Binary::Sub, Binary::Mul, Binary::Max, Binary::Min] {
            check(function.name(), &[&[3, 4], &[4]], &move |g, v| g.binary(function, v[0], v[1]));
        }
        check("square", &[&[3, 4]], &|g, v| g.times(v[0], v[0]));
        check("quotient", &[&[3, 4], &[4]], &|g, v| {
            let away = g.offset(2.0, v[1])?;
            g.over(v[0], away)
        });
        check("root", &[&[3, 4]], &|g, v| {
            let away = g.offset(2.0, v[0])?;
            g.unary(Unary::Sqrt, away)
        });
    }

    #[test]
    fn pools_reductions_and_softmax_equal_central_differences() {
        let pool = window([2, 2], 2, 1, [(0, 0), (1, 0)]);
        check("max pool", &[&[2, 3, 4, 5]], &{
            let pool = pool.clone();
            move |g, v| g.add(Op::MaxPool(pool.clone()), v)
        });
        let average = Op::AveragePool { window: pool, divisor: Divisor::Covered };
        check("average pool", &[&[2, 3, 4, 5]], &move |g, v| g.add(average.clone(), v));
        for reduction in [Reduction::Sum, Reduction::Mean, Reduction::Max] {
            check(reduction.name(), &[&[2, 3, 4]], &move |g, v| g.reduced(reduction, v[0], &[0, 2], true));
        }
        check("log softmax", &[&[3, 5]], &|g, v| g.add(Op::LogSoftmax { axis: 1 }, v));
        check("softmax", &[&[3, 5]], &|g, v| g.add(Op::Softmax { axis: 1 }, v));
    }

    #[test]
    fn a_value_read_in_several_places_gathers_all_its_gradients() {
        check("shared", &[&[3, 3], &[3, 3]], &|g, v| {
            let first = g.add(Op::MatMul { trans_a: false, trans_b: false }, &[v[0], v[1]])?;
            let second = g.add(Op::MatMul { trans_a: false, trans_b: true }, &[first, v[1]])?;
            g.times(second, v[0])
        });
    }

    #[test]
    fn what_has_no_influence_has_no_gradient_and_what_is_no_number_is_refused() {
        let mut g = Graph::new();
        let a = g.input("a", Shape::fixed(&[2]), Kind::Float);
        let b = g.input("b", Shape::fixed(&[3]), Kind::Float);
        let sum = g.reduced(Reduction::Sum, a, &[0], false).unwrap();
        let (with, slopes) = gradients(&g, sum, &[a, b]).unwrap();
        assert_eq!(with.node(slopes[1]).shape, Shape::fixed(&[3]));
        assert!(gradients(&g, sum, &[b]).is_err());
        assert!(gradients(&g, a, &[a]).is_err());
    }
}
