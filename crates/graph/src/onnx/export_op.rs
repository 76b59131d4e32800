//! The ONNX operators that each op is written as: elementwise functions, products, reductions and every op with one
//! counterpart.

use super::export::{Exporter, flag, float, int, list};
use crate::element::Element;
use crate::error::Result;
use crate::graph::Node;
use crate::op::{Binary, Op, Reduction, Unary};
use crate::tensor::{Kind, Tensor};

impl Exporter<'_> {
    /// Writes the node for an op.
    pub(crate) fn op(&mut self, op: &Op, node: &Node) -> Result<()> {
        let names = self.inputs(node);
        let inputs: Vec<&str> = names.iter().map(String::as_str).collect();
        match op {
            // The exporter writes these itself.
            Op::Input | Op::Constant(_) | Op::Slice { .. } => {}
            Op::Conv { window, groups } => self.conv(window, *groups, &inputs),
            Op::ConvTranspose { window, groups, output_padding } => {
                self.conv_transpose(window, *groups, output_padding, &inputs)
            }
            Op::MatMul { trans_a, trans_b } => self.matmul(node, *trans_a, *trans_b, &inputs),
            Op::BatchNorm { epsilon } => {
                self.finish("BatchNormalization", &inputs, &[("epsilon", float(*epsilon))])
            }
            Op::LayerNorm { axis, epsilon } => self.layer_norm(node, *axis, *epsilon, &inputs)?,
            Op::GroupNorm { groups, epsilon } => self.group_norm(node, *groups, *epsilon, &inputs)?,
            Op::LocalResponseNorm { size, alpha, beta, bias } => self.finish(
                "LRN",
                &inputs,
                &[
                    ("size", int(*size)),
                    ("alpha", float(*alpha)),
                    ("beta", float(*beta)),
                    ("bias", float(*bias)),
                ],
            ),
            Op::Unary(function) => self.unary(*function, node.kind, inputs[0])?,
            Op::Binary(Binary::PRelu) if self.double => {
                let (above, below) = self.parts(inputs[0])?;
                let below = self.emit("Mul", &[&below, inputs[1]], &[]);
                self.finish("Add", &[&above, &below], &[]);
            }
            Op::Binary(function) => self.finish(function.name(), &inputs, &[]),
            Op::Where => self.finish("Where", &inputs, &[]),
            Op::Softmax { axis } => self.finish("Softmax", &inputs, &[("axis", int(*axis))]),
            Op::LogSoftmax { axis } => self.finish("LogSoftmax", &inputs, &[("axis", int(*axis))]),
            Op::MaxPool(window) => self.max_pool(node, window, &inputs)?,
            Op::AveragePool { window, divisor } => self.average_pool(node, window, *divisor, inputs[0])?,
            Op::AveragePoolTranspose { window, divisor, spatial } => {
                self.average_pool_transpose(node, window, *divisor, spatial, inputs[0])?
            }
            Op::WinnerGather(window) => self.winner_gather(node, window, &inputs)?,
            Op::WinnerScatter(window) => self.winner_scatter(node, window, &inputs)?,
            Op::Reduce { reduction, axes, keep } => self.reduce(*reduction, axes, *keep, inputs[0])?,
            Op::ArgMax { axis, keep } => {
                self.finish("ArgMax", &inputs, &[("axis", int(*axis)), ("keepdims", flag(*keep))])
            }
            Op::Concat { axis } => self.finish("Concat", &inputs, &[("axis", int(*axis))]),
            Op::Gather { axis } => self.finish("Gather", &inputs, &[("axis", int(*axis))]),
            Op::Cast { to } => self.finish("Cast", &inputs, &[("to", int(self.data_type(*to)))]),
            Op::Identity => self.finish("Identity", &inputs, &[]),
            Op::Dropout { ratio } => {
                let ratio = self.float("ratio", *ratio)?;
                self.finish("Dropout", &[inputs[0], &ratio], &[]);
            }
            Op::Pad { padding, pads } => self.pad(*padding, pads, node.kind, inputs[0])?,
            Op::Reshape { .. } => self.reshape(node, inputs[0])?,
            Op::Transpose { axes } => {
                self.finish("Transpose", &inputs, &[("perm", list(axes.iter().copied()))])
            }
            Op::Expand { shape } => self.expand(shape, inputs[0])?,
            Op::Resize { axes, interpolation, coordinates } => {
                self.resize(node, axes, *interpolation, *coordinates, inputs[0])?
            }
        }
        Ok(())
    }

    fn unary(&mut self, function: Unary, kind: Kind, x: &str) -> Result<()> {
        match function {
            _ if self.double && self.spelled_out(function, x)? => {}
            Unary::HardSigmoid { alpha, beta } if self.double => {
                let line = self.line(x, alpha, beta)?;
                self.clip(0.0, 1.0, kind, &line)?;
            }
            Unary::HardSwish if self.double => {
                let line = self.line(x, 1.0 / 6.0, 0.5)?;
                let (zero, one) = (self.float("zero", 0.0)?, self.float("one", 1.0)?);
                let rectified = self.emit("Max", &[&line, &zero], &[]);
                let gate = self.emit("Min", &[&rectified, &one], &[]);
                self.finish("Mul", &[x, &gate], &[]);
            }
            Unary::HardSwish if self.opset < 14 => {
                let gate =
                    self.emit("HardSigmoid", &[x], &[("alpha", float(1.0 / 6.0)), ("beta", float(0.5))]);
                self.finish("Mul", &[x, &gate], &[]);
            }
            Unary::Silu => {
                let gate = self.emit("Sigmoid", &[x], &[]);
                self.finish("Mul", &[x, &gate], &[]);
            }
            Unary::Mish if self.opset < 18 => {
                let soft = self.emit("Softplus", &[x], &[]);
                let gate = self.emit("Tanh", &[&soft], &[]);
                self.finish("Mul", &[x, &gate], &[]);
            }
            Unary::Gelu if self.opset < 20 => self.gelu(x)?,
            Unary::GeluTanh if self.opset < 20 => self.gelu_tanh(x)?,
            Unary::GeluTanh => self.finish("Gelu", &[x], &[("approximate", super::export::text("tanh"))]),
            Unary::Clip { min, max } => self.clip(min, max, kind, x)?,
            Unary::Quantise { step, min, max } => {
                let step = self.float("step", step)?;
                let steps = self.emit("Div", &[x, &step], &[]);
                let rounded = self.emit("Round", &[&steps], &[]);
                let real = self.emit("Mul", &[&rounded, &step], &[]);
                self.clip(min, max, kind, &real)?;
            }
            Unary::Half => self.through(Element::F16, kind, x),
            Unary::Bfloat16 => self.through(Element::BF16, kind, x),
            Unary::Wrap { min, max } => self.through(Element::of_range(min, max)?, kind, x),
            // Integers came to Relu with operator set 14.
            Unary::Relu if kind == Kind::Int && self.opset < 14 => {
                let zero = self.constant("zero", &Tensor::scalar(0i64))?;
                self.finish("Max", &[x, &zero], &[]);
            }
            // The rest is written as the table of functions has it.
            _ => {
                let attributes: Vec<_> =
                    function.attributes().into_iter().map(|(name, value)| (name, float(value))).collect();
                self.finish(function.name(), &[x], &attributes);
            }
        }
        Ok(())
    }

    /// A number as another type holds it.
    fn through(&mut self, element: Element, kind: Kind, x: &str) {
        let narrow = self.emit("Cast", &[x], &[("to", int(element.onnx()))]);
        self.finish("Cast", &[&narrow], &[("to", int(self.data_type(kind)))]);
    }

    /// An activation that ONNX Runtime has in single precision only, or at some operator sets only, in terms of what it
    /// always has in double precision; whether it is one.
    fn spelled_out(&mut self, function: Unary, x: &str) -> Result<bool> {
        match function {
            Unary::LeakyRelu { slope } => {
                let (above, below) = self.parts(x)?;
                let slope = self.float("slope", slope)?;
                let below = self.emit("Mul", &[&below, &slope], &[]);
                self.finish("Add", &[&above, &below], &[]);
            }
            Unary::Elu { alpha } => {
                let (above, curve) = self.bend(x, 1.0, alpha)?;
                self.finish("Add", &[&above, &curve], &[]);
            }
            Unary::Celu { alpha } => {
                let (above, curve) = self.bend(x, alpha, alpha)?;
                self.finish("Add", &[&above, &curve], &[]);
            }
            Unary::Selu { alpha, gamma } => {
                let (above, curve) = self.bend(x, 1.0, alpha)?;
                let sum = self.emit("Add", &[&above, &curve], &[]);
                let gamma = self.float("gamma", gamma)?;
                self.finish("Mul", &[&sum, &gamma], &[]);
            }
            Unary::Softplus => {
                let (above, tail) = self.soft_parts(x)?;
                self.finish("Add", &[&above, &tail], &[]);
            }
            Unary::Mish => {
                let (above, tail) = self.soft_parts(x)?;
                let soft = self.emit("Add", &[&above, &tail], &[]);
                let gate = self.emit("Tanh", &[&soft], &[]);
                self.finish("Mul", &[x, &gate], &[]);
            }
            Unary::Erf => {
                let (step, bell) = self.error_parts(x)?;
                self.finish("Sub", &[&step, &bell], &[]);
            }
            Unary::Gelu => {
                let root = self.float("root", std::f64::consts::SQRT_2)?;
                let scaled = self.emit("Div", &[x, &root], &[]);
                let (step, bell) = self.error_parts(&scaled)?;
                let erf = self.emit("Sub", &[&step, &bell], &[]);
                self.gated(x, &erf)?;
            }
            Unary::GeluTanh => self.gelu_tanh(x)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// `max(x, 0)` and `min(x, 0)`.
    fn parts(&mut self, x: &str) -> Result<(String, String)> {
        let zero = self.float("zero", 0.0)?;
        Ok((self.emit("Max", &[x, &zero], &[]), self.emit("Min", &[x, &zero], &[])))
    }

    /// `max(x, 0)` and `height·(exp(min(x/width, 0)) − 1)`.
    fn bend(&mut self, x: &str, width: f64, height: f64) -> Result<(String, String)> {
        let zero = self.float("zero", 0.0)?;
        let above = self.emit("Max", &[x, &zero], &[]);
        let width = self.float("width", width)?;
        let scaled = self.emit("Div", &[x, &width], &[]);
        let below = self.emit("Min", &[&scaled, &zero], &[]);
        let (one, height) = (self.float("one", 1.0)?, self.float("height", height)?);
        let power = self.emit("Exp", &[&below], &[]);
        let curve = self.emit("Sub", &[&power, &one], &[]);
        Ok((above, self.emit("Mul", &[&curve, &height], &[])))
    }

    /// `max(x, 0)` and `log(1 + exp(−|x|))`, which neither overflows.
    fn soft_parts(&mut self, x: &str) -> Result<(String, String)> {
        let (zero, one) = (self.float("zero", 0.0)?, self.float("one", 1.0)?);
        let above = self.emit("Max", &[x, &zero], &[]);
        let size = self.emit("Abs", &[x], &[]);
        let down = self.emit("Neg", &[&size], &[]);
        let power = self.emit("Exp", &[&down], &[]);
        let sum = self.emit("Add", &[&power, &one], &[]);
        Ok((above, self.emit("Log", &[&sum], &[])))
    }

    /// `slope·x + height`.
    fn line(&mut self, x: &str, slope: f64, height: f64) -> Result<String> {
        let (slope, height) = (self.float("slope", slope)?, self.float("height", height)?);
        let scaled = self.emit("Mul", &[x, &slope], &[]);
        Ok(self.emit("Add", &[&scaled, &height], &[]))
    }

    /// `½·x·(1 + erf(x/√2))`.
    fn gelu(&mut self, x: &str) -> Result<()> {
        let root = self.float("root", std::f64::consts::SQRT_2)?;
        let scaled = self.emit("Div", &[x, &root], &[]);
        let erf = self.emit("Erf", &[&scaled], &[]);
        self.gated(x, &erf)
    }

    /// `½·x·(1 + gate)`.
    fn gated(&mut self, x: &str, gate: &str) -> Result<()> {
        let (one, half) = (self.float("one", 1.0)?, self.float("half", 0.5)?);
        let gate = self.emit("Add", &[gate, &one], &[]);
        let product = self.emit("Mul", &[x, &gate], &[]);
        self.finish("Mul", &[&product, &half], &[]);
        Ok(())
    }

    /// `tanh(πx/h)` and `x·e^(−x²)·Σ 2h/π·e^(−a)/(x² + a)` over `a = (h/2)², (3h/2)², …`, whose difference is the error function:
    /// the integral `erfc(x) = 2x·e^(−x²)/π·∫ e^(−t²)/(x² + t²) dt` over `t > 0` by the midpoint rule of step `h`, and what its pole adds
    /// (Chiarella and Reichel, Mathematics of Computation 22, 1968). What is left is of the size of `e^(−π²/h²)`.
    fn error_parts(&mut self, x: &str) -> Result<(String, String)> {
        const STEP: f64 = 0.5;
        const TERMS: usize = 12;
        // Beyond it is 1 to the last bit, and infinity times zero would be no number.
        let (least, most) = (self.float("least", -6.0)?, self.float("most", 6.0)?);
        let x = self.emit("Max", &[x, &least], &[]);
        let x = self.emit("Min", &[&x, &most], &[]);
        let slope = self.float("slope", std::f64::consts::PI / STEP)?;
        let steep = self.emit("Mul", &[&x, &slope], &[]);
        let step = self.emit("Tanh", &[&steep], &[]);
        let square = self.emit("Mul", &[&x, &x], &[]);
        let mut sum: Option<String> = None;
        for term in (0..TERMS).rev() {
            let place = ((term as f64 + 0.5) * STEP).powi(2);
            let height = self.float("height", 2.0 * STEP / std::f64::consts::PI * (-place).exp())?;
            let place = self.float("place", place)?;
            let raised = self.emit("Add", &[&square, &place], &[]);
            let share = self.emit("Div", &[&height, &raised], &[]);
            sum = Some(match sum {
                Some(earlier) => self.emit("Add", &[&earlier, &share], &[]),
                None => share,
            });
        }
        let down = self.emit("Neg", &[&square], &[]);
        let bell = self.emit("Exp", &[&down], &[]);
        let bell = self.emit("Mul", &[&x, &bell], &[]);
        let sum = sum.unwrap_or_default();
        Ok((step, self.emit("Mul", &[&bell, &sum], &[])))
    }

    /// `½·x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))`.
    fn gelu_tanh(&mut self, x: &str) -> Result<()> {
        let cubic = self.float("cubic", 0.044715)?;
        let root = self.float("root", (2.0 / std::f64::consts::PI).sqrt())?;
        let square = self.emit("Mul", &[x, x], &[]);
        let cube = self.emit("Mul", &[&square, x], &[]);
        let small = self.emit("Mul", &[&cube, &cubic], &[]);
        let sum = self.emit("Add", &[x, &small], &[]);
        let scaled = self.emit("Mul", &[&sum, &root], &[]);
        let tanh = self.emit("Tanh", &[&scaled], &[]);
        self.gated(x, &tanh)
    }

    fn clip(&mut self, min: f64, max: f64, kind: Kind, x: &str) -> Result<()> {
        let mut bound = |role: &str, value: f64, open: f64| match kind {
            _ if value == open => Ok(String::new()),
            Kind::Int => self.constant(role, &Tensor::scalar(value as i64)),
            _ => self.float(role, value),
        };
        let (min, max) = (bound("min", min, f64::NEG_INFINITY)?, bound("max", max, f64::INFINITY)?);
        self.finish("Clip", &[x, &min, &max], &[]);
        Ok(())
    }

    fn matmul(&mut self, node: &Node, trans_a: bool, trans_b: bool, inputs: &[&str]) {
        let rank = |i: usize| self.input_shape(node, i).rank();
        let bias = inputs.get(2).copied();
        let plain = !trans_a && !trans_b && bias.is_none();
        if plain {
            return self.finish("MatMul", inputs, &[]);
        }
        if rank(0) == 2 && rank(1) == 2 {
            return self.finish("Gemm", inputs, &[("transA", flag(trans_a)), ("transB", flag(trans_b))]);
        }
        let (rank_a, rank_b) = (rank(0), rank(1));
        let a = self.transposed(inputs[0], rank_a, trans_a);
        let b = self.transposed(inputs[1], rank_b, trans_b);
        match bias {
            None => self.finish("MatMul", &[&a, &b], &[]),
            Some(bias) => {
                let product = self.emit("MatMul", &[&a, &b], &[]);
                self.finish("Add", &[&product, bias], &[]);
            }
        }
    }

    fn transposed(&mut self, x: &str, rank: usize, wanted: bool) -> String {
        if !wanted {
            return x.to_owned();
        }
        let mut axes: Vec<usize> = (0..rank).collect();
        axes.swap(rank - 1, rank - 2);
        self.emit("Transpose", &[x], &[("perm", super::export::list(axes))])
    }

    fn reduce(&mut self, reduction: Reduction, axes: &[usize], keep: bool, x: &str) -> Result<()> {
        let keep = ("keepdims", flag(keep));
        // No axes means all of them to ONNX.
        if axes.is_empty() {
            self.finish("Identity", &[x], &[]);
            return Ok(());
        }
        if self.opset >= 18 || (reduction == Reduction::Sum && self.opset >= 13) {
            let axes = self.ints("axes", axes.iter().map(|&a| a as i64).collect())?;
            self.finish(reduction.name(), &[x, &axes], &[keep]);
        } else {
            let axes = ("axes", super::export::list(axes.iter().copied()));
            self.finish(reduction.name(), &[x], &[axes, keep]);
        }
        Ok(())
    }
}
