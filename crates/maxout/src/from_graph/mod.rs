//! Small graphs as networks of neurons: every element of every tensor becomes a weighted sum of neurons, and a neuron of its
//! own only where a maximum or a product needs one. Weights are taken exactly as the file holds them.

mod array;
mod window;

use std::rc::Rc;

use monosplit_graph::op::{Binary, Reduction, Unary};
use monosplit_graph::passes::max_form;
use monosplit_graph::{Error, Graph, Node, Op, Result};

use array::{Array, accumulate, check_count, constant, finished, number, positions};

use crate::network::{MAX_DEGREE, MAX_RANK, MaxoutNetwork, is_name_character};
use crate::neuron::{Form, NeuronId};
use crate::rational::Rational;

/// The largest number of products of a weight and a sum.
const MAX_WORK: usize = 1 << 21;

/// The network that a graph of affine maps, maxima and products is, for one sample.
pub fn from_graph(graph: &Graph) -> Result<MaxoutNetwork> {
    let graph = max_form(&graph.pruned()?)?;
    let mut builder = Builder::new(&graph)?;
    let mut values: Vec<Array> = Vec::with_capacity(graph.len());
    for (id, node) in graph.nodes() {
        let operands: Vec<&Array> = node.inputs.iter().map(|input| &values[input.index()]).collect();
        let named = match node.label.display() {
            "" => format!("{} {}", node.op.name(), id.index()),
            name => name.to_owned(),
        };
        values.push(builder.value(node, &named, &operands).map_err(|error| error.at(named))?);
    }
    for output in graph.outputs() {
        let array = values[output.node.index()].clone();
        for (i, form) in array.elements.iter().enumerate() {
            let name = element_name(&output.name, i, array.elements.len());
            let neuron = builder.neuron(form, &name)?;
            builder.network.output(neuron)?;
        }
    }
    Ok(builder.network)
}

/// `name`, with its position if there are others, in letters that a network allows.
fn element_name(name: &str, position: usize, count: usize) -> String {
    let allowed = |(i, c): (usize, char)| match is_name_character(c, i == 0) {
        true => c,
        false => '_',
    };
    let name = name.trim_start_matches(|c| !is_name_character(c, true));
    let stem: String = name.chars().take(100).enumerate().map(allowed).collect();
    let stem =
        if stem.is_empty() || crate::network::RESERVED.contains(&&*stem) { format!("{stem}_") } else { stem };
    if count == 1 { stem } else { format!("{stem}.{position}") }
}

fn lengths(node: &Node) -> Result<Vec<usize>> {
    let shape = node.shape.at(1).ok_or_else(|| Error::shape("its shape overflows"))?;
    check_count(&shape)?;
    Ok(shape)
}

struct Builder {
    network: MaxoutNetwork,
    given: std::vec::IntoIter<Array>,
    work: usize,
}

impl Builder {
    fn new(graph: &Graph) -> Result<Self> {
        let mut names: Vec<String> = Vec::new();
        let mut shapes = Vec::new();
        for &input in graph.inputs() {
            let shape =
                lengths(graph.node(input)).map_err(|error| error.at(graph.node(input).label.display()))?;
            let count = check_count(&shape)?;
            let label = &graph.node(input).label.tensor;
            names.extend((0..count).map(|i| element_name(label, i, count)));
            check_count(&[names.len()])?;
            shapes.push(shape);
        }
        let network = MaxoutNetwork::new(names)?;
        let mut neurons = network.inputs();
        let mut arrays = Vec::new();
        for shape in shapes {
            let one = |neuron| Rc::new(Form::from([(neuron, Rational::one())]));
            let elements = neurons.by_ref().take(check_count(&shape)?).map(one).collect();
            arrays.push(Array::new(shape, elements));
        }
        Ok(Builder { network, given: arrays.into_iter(), work: 0 })
    }

    fn spend(&mut self, terms: usize) -> Result<()> {
        self.work = self.work.saturating_add(terms);
        if self.work <= MAX_WORK {
            return Ok(());
        }
        Err(Error::unsupported(format!(
            "the network is too large to be looked at neuron by neuron, expected at most {MAX_WORK} weights times inputs"
        )))
    }

    /// A sum as a neuron; one that is a neuron already stays what it is.
    fn neuron(&mut self, form: &Form, name: &str) -> Result<NeuronId> {
        match form.first_key_value() {
            Some((&neuron, weight)) if form.len() == 1 && weight.is_one() && neuron != NeuronId::UNIT => {
                Ok(neuron)
            }
            _ => self.largest(std::slice::from_ref(form), name),
        }
    }

    fn largest(&mut self, rows: &[Form], name: &str) -> Result<NeuronId> {
        let name = self.network.free_name(name);
        self.network.addition(name, rows)
    }

    /// `sum + factor·form`, counted.
    fn add(&mut self, sum: &mut Form, factor: &Rational, form: &Form) -> Result<()> {
        self.spend(form.len() + 1)?;
        accumulate(sum, factor, form);
        Ok(())
    }

    fn value(&mut self, node: &Node, name: &str, x: &[&Array]) -> Result<Array> {
        let shape = lengths(node)?;
        match &node.op {
            Op::Input => self.given.next().ok_or_else(|| Error::argument("an input is missing")),
            Op::Constant(tensor) => Array::constant(tensor),
            Op::Identity | Op::Dropout { .. } | Op::Reshape { .. } => {
                Ok(Array::new(shape, x[0].elements.clone()))
            }
            Op::Transpose { axes } => Array::build(&shape, |p| {
                let mut from = vec![0; p.len()];
                axes.iter().zip(p).for_each(|(&axis, &p)| from[axis] = p);
                Ok(x[0].at(&from).clone())
            }),
            Op::Expand { .. } => Array::build(&shape, |p| Ok(x[0].broadcast(p).clone())),
            Op::Slice { axis, start, step, .. } => Array::build(&shape, |p| {
                let mut from = p.to_vec();
                from[*axis] = (*start as isize + p[*axis] as isize * step) as usize;
                Ok(x[0].at(&from).clone())
            }),
            Op::Gather { axis } => Array::build(&shape, |p| gathered(x[0], x[1], *axis, p)),
            Op::Concat { axis } => Array::build(&shape, |p| Ok(concatenated(x, *axis, p))),
            Op::Conv { window, groups } => self.convolution(window, *groups, &shape, x),
            Op::MatMul { trans_a, trans_b } => self.matrix_product([*trans_a, *trans_b], &shape, name, x),
            Op::Unary(function) => self.unary(*function, &shape, name, x[0]),
            Op::Binary(function) => self.binary(*function, &shape, name, x[0], x[1]),
            Op::MaxPool(window) => self.max_pool(window, &shape, name, x[0]),
            Op::AveragePool { window, divisor } => self.average_pool(window, *divisor, &shape, x[0]),
            Op::Reduce { reduction, axes, keep } => self.reduce(*reduction, axes, *keep, &shape, name, x[0]),
            other => Err(unsupported(other.name())),
        }
    }

    fn matrix_product(
        &mut self,
        transposed: [bool; 2],
        shape: &[usize],
        name: &str,
        x: &[&Array],
    ) -> Result<Array> {
        let rank = |array: &Array| array.shape.len();
        let inner = x[0].shape[rank(x[0]) - 1 - usize::from(transposed[0])];
        let count = check_count(shape)?;
        let mut index = 0;
        Array::build(shape, |p| {
            let (batch, [row, column]) = (&p[..p.len() - 2], [p[p.len() - 2], p[p.len() - 1]]);
            let mut sum = Form::new();
            for k in 0..inner {
                let place = |pair: [usize; 2], flip: bool| if flip { [pair[1], pair[0]] } else { pair };
                let a = x[0].broadcast(&[batch, &place([row, k], transposed[0])].concat()).clone();
                let b = x[1].broadcast(&[batch, &place([k, column], transposed[1])].concat()).clone();
                let product = self.product(&a, &b, &format!("{}.{k}", element_name(name, index, count)))?;
                self.add(&mut sum, &Rational::one(), &product)?;
            }
            if let Some(bias) = x.get(2) {
                accumulate(&mut sum, &Rational::one(), bias.broadcast(p));
            }
            index += 1;
            Ok(finished(sum))
        })
    }

    /// The product of two sums: scaled if one is a number, otherwise a multiplication neuron.
    fn product(&mut self, a: &Rc<Form>, b: &Rc<Form>, name: &str) -> Result<Rc<Form>> {
        for (one, other) in [(a, b), (b, a)] {
            if let Some(factor) = number(one) {
                let mut scaled = Form::new();
                self.add(&mut scaled, &factor, other)?;
                return Ok(finished(scaled));
            }
        }
        let [a, b] = [self.neuron(a, &format!("{name}.a"))?, self.neuron(b, &format!("{name}.b"))?];
        let name = self.network.free_name(name);
        let neuron = self.network.multiplication(name, &[(a, 1), (b, 1)])?;
        Ok(Rc::new(Form::from([(neuron, Rational::one())])))
    }

    /// A maximum as a sum of one neuron; a maximum of numbers is a number.
    fn maximum(&mut self, rows: &[Rc<Form>], name: &str) -> Result<Rc<Form>> {
        let mut distinct: Vec<Form> = Vec::new();
        for row in rows {
            self.spend(row.len() + distinct.len())?;
            if !distinct.contains(row) {
                distinct.push((**row).clone());
            }
        }
        if let [only] = &distinct[..] {
            return Ok(Rc::new(only.clone()));
        }
        let numbers: Option<Vec<Rational>> = distinct.iter().map(number).collect();
        if let Some(most) = numbers.and_then(|numbers| numbers.into_iter().max()) {
            return Ok(Rc::new(constant(most)));
        }
        if distinct.len() > MAX_RANK {
            let found = distinct.len();
            return Err(Error::unsupported(format!(
                "this is the largest of {found} values, expected at most {MAX_RANK}"
            )));
        }
        let neuron = self.largest(&distinct, name)?;
        Ok(Rc::new(Form::from([(neuron, Rational::one())])))
    }

    fn unary(&mut self, function: Unary, shape: &[usize], name: &str, x: &Array) -> Result<Array> {
        let scale = match function {
            Unary::Relu => Some(Rational::zero()),
            Unary::LeakyRelu { slope } => Rational::from_f64(slope),
            Unary::Neg => None,
            other => return Err(unsupported(other.name())),
        };
        let count = x.elements.len();
        let mut elements = Vec::with_capacity(count);
        for (i, form) in x.elements.iter().enumerate() {
            let mut other = Form::new();
            self.add(&mut other, scale.as_ref().unwrap_or(&Rational::from(-1)), form)?;
            let other = finished(other);
            elements.push(match scale {
                None => other,
                Some(_) => self.maximum(&[form.clone(), other], &element_name(name, i, count))?,
            });
        }
        Ok(Array::new(shape.to_vec(), elements))
    }

    fn binary(
        &mut self,
        function: Binary,
        shape: &[usize],
        name: &str,
        a: &Array,
        b: &Array,
    ) -> Result<Array> {
        let count = check_count(shape)?;
        let mut index = 0;
        Array::build(shape, |p| {
            let (a, b) = (a.broadcast(p), b.broadcast(p));
            let name = element_name(name, index, count);
            index += 1;
            match function {
                Binary::Add | Binary::Sub => {
                    let mut sum = (**a).clone();
                    self.add(&mut sum, &Rational::from(if function == Binary::Add { 1 } else { -1 }), b)?;
                    Ok(finished(sum))
                }
                Binary::Mul => self.product(a, b, &name),
                Binary::Max => self.maximum(&[a.clone(), b.clone()], &name),
                Binary::Div => {
                    let inverse = number(b).and_then(|divisor| Rational::one().over(&divisor));
                    let inverse = inverse.ok_or_else(|| unsupported("Div by what is no constant"))?;
                    self.product(a, &Rc::new(constant(inverse)), &name)
                }
                Binary::Pow => self.power(a, b, &name),
                other => Err(unsupported(other.name())),
            }
        })
    }

    fn power(&mut self, base: &Rc<Form>, exponent: &Rc<Form>, name: &str) -> Result<Rc<Form>> {
        let exponent = number(exponent)
            .and_then(|exponent| (1..=MAX_DEGREE as u32).find(|&n| Rational::from(i64::from(n)) == exponent));
        let exponent =
            exponent.ok_or_else(|| unsupported("Pow with an exponent that is no small natural number"))?;
        if exponent == 1 {
            return Ok(base.clone());
        }
        let base = self.neuron(base, &format!("{name}.a"))?;
        let name = self.network.free_name(name);
        let neuron = self.network.multiplication(name, &[(base, exponent)])?;
        Ok(Rc::new(Form::from([(neuron, Rational::one())])))
    }

    fn reduce(
        &mut self,
        reduction: Reduction,
        axes: &[usize],
        keep: bool,
        shape: &[usize],
        name: &str,
        x: &Array,
    ) -> Result<Array> {
        let members: Vec<usize> = axes.iter().map(|&axis| x.shape[axis]).collect();
        let inside = positions(&members)?;
        let count = check_count(shape)?;
        let mut index = 0;
        Array::build(shape, |p| {
            let element = |q: &Vec<usize>| {
                let mut outer = p.iter().copied();
                let mut inner = q.iter().copied();
                let from: Vec<usize> = (0..x.shape.len())
                    .map(|axis| {
                        let reduced = axes.contains(&axis);
                        let kept = if keep || !reduced { outer.next() } else { None };
                        if reduced { inner.next() } else { kept }.unwrap_or(0)
                    })
                    .collect();
                x.at(&from).clone()
            };
            let rows: Vec<Rc<Form>> = inside.iter().map(element).collect();
            let name = element_name(name, index, count);
            index += 1;
            match reduction {
                Reduction::Max => self.maximum(&rows, &name),
                Reduction::Sum | Reduction::Mean => {
                    let parts = if reduction == Reduction::Sum { 1 } else { rows.len() as u64 };
                    let share =
                        Rational::ratio(1, parts).ok_or_else(|| unsupported("the mean of nothing"))?;
                    let mut sum = Form::new();
                    rows.iter().try_for_each(|row| self.add(&mut sum, &share, row))?;
                    Ok(finished(sum))
                }
                Reduction::Min | Reduction::Product => Err(unsupported(reduction.name())),
            }
        })
    }
}

fn unsupported(op: &str) -> Error {
    Error::unsupported(format!(
        "{op} is not made of sums, maxima and products; expected MatMul, Conv, Relu, LeakyRelu, Max, MaxPool, AveragePool, Add, Sub, Mul, \
         Pow by a natural number, or nodes that move elements (a smooth activation can be made piecewise linear first)"
    ))
}

/// The element at position `p` of slices of `x` along an axis, picked by indices that are known.
fn gathered(x: &Array, indices: &Array, axis: usize, p: &[usize]) -> Result<Rc<Form>> {
    let end = axis + indices.shape.len();
    let index =
        number(indices.at(&p[axis..end])).ok_or_else(|| unsupported("Gather by what is no constant"))?;
    let length = x.shape[axis] as i64;
    let is = |&place: &i64| index == Rational::from(place) || index == Rational::from(place - length);
    let place =
        (0..length).find(is).ok_or_else(|| Error::argument("an index lies outside of what it picks from"))?;
    let from = [&p[..axis], &[place as usize], &p[end..]].concat();
    Ok(x.at(&from).clone())
}

fn concatenated(x: &[&Array], axis: usize, position: &[usize]) -> Rc<Form> {
    let mut from = position.to_vec();
    for part in x {
        if from[axis] < part.shape[axis] {
            return part.at(&from).clone();
        }
        from[axis] -= part.shape[axis];
    }
    Rc::new(Form::new())
}
