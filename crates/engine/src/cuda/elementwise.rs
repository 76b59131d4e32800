//! Generates the source of fused elementwise kernels: every element is read once, passes through all nodes in registers, and
//! is written once, or reduced without being written. The source does not depend on lengths, except on whether the number of
//! reduced channels is a multiple of four, so that the layers of a network share kernels.

use std::collections::HashMap;
use std::fmt::Write;

use monosplit_graph::{Dim, Error, Graph, Kind, Node, NodeId, Op, Result, Shape};

use super::expression::expression;
use super::kernel_parameters;

/// Adjacent elements that one thread loads at once, where all operands allow it.
pub(super) const VECTOR_WIDTH: usize = 4;

/// How an operand is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OperandAccess {
    /// Each element at its own index.
    Contiguous,
    /// One element for all indices.
    Scalar,
    /// Broadcast along some axes.
    Broadcast,
}

/// The source of a kernel and its operands.
pub(super) struct KernelSource {
    /// The function, under the name [`KernelSource::NAME`].
    pub(super) text: String,
    /// The values it reads, and how.
    pub(super) inputs: Vec<(NodeId, OperandAccess)>,
    /// The axis that the kernel reduces over, if it does.
    pub(super) reduced: Option<ReducedAxis>,
}

/// An axis that is reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReducedAxis {
    pub(super) axis: usize,
    /// Whether its elements are adjacent in memory.
    pub(super) adjacent: bool,
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Float => "real",
        Kind::Int => "long long",
        Kind::Bool => "u8",
    }
}

impl KernelSource {
    /// The name of the function.
    pub(super) const NAME: &'static str = "elementwise";

    /// The kernel that computes `nodes`, which are elementwise, of one shape and in topological order, and writes `outputs`.
    /// `same` maps every node to the first that computes the same value.
    pub(super) fn new(graph: &Graph, same: &[NodeId], nodes: &[NodeId], outputs: &[NodeId]) -> Result<Self> {
        let (mut text, names) = Text::new(graph, same, nodes)?;
        for (position, output) in outputs.iter().enumerate() {
            let name = names.get(output).ok_or_else(|| Error::argument("an output is not computed"))?;
            let kind = kind_name(graph.node(*output).kind);
            let _ = write!(text.parameters, ", {kind} *q{position}");
            let _ = writeln!(text.arrays, "      Four<{kind}> w{position};");
            let _ = writeln!(text.keeps, "        w{position}.at[k] = {name};");
            let _ = writeln!(text.stores, "      four(q{position}, i) = w{position};");
            let _ = writeln!(text.writes, "      q{position}[i] = {name};");
        }
        Ok(text.finish())
    }

    /// The kernel that computes `nodes` and writes only the results of `reductions`. All of them reduce the same axis, which
    /// is not the last, but may be adjacent in memory.
    pub(super) fn reduced(
        graph: &Graph,
        same: &[NodeId],
        nodes: &[NodeId],
        reductions: &[NodeId],
        adjacent: bool,
    ) -> Result<Self> {
        let (mut text, names) = Text::new(graph, same, nodes)?;
        let (mut reduced, mut axis) = (Reduced::default(), 0);
        for (position, id) in reductions.iter().enumerate() {
            let node = graph.node(*id);
            let (Op::Reduce { reduction, axes, .. }, Some(name)) =
                (&node.op, names.get(&same[node.inputs[0].index()]))
            else {
                return Err(Error::argument("a value is not reduced"));
            };
            reduced.add(position, kernel_parameters::number_of(*reduction), name);
            let _ = write!(text.parameters, ", real *q{position}");
            axis = axes.first().copied().unwrap_or(0);
        }
        Ok(match adjacent {
            true => text.finish_adjacent(&reduced, axis, graph.node(nodes[0])),
            false => text.finish_reduced(&reduced, axis),
        })
    }
}

/// The parts of a reduction that are repeated for each of its results.
#[derive(Default)]
struct Reduced {
    begins: String,
    adds: String,
    shares: String,
    joins: String,
    writes: String,
    /// The same within a warp.
    warps: String,
    ends: String,
}

impl Reduced {
    /// Adds a result: the value `name` reduced by `how`.
    fn add(&mut self, position: usize, how: i32, name: &str) {
        let join = |a: &str, b: &str| format!("joined<real, double>({how}, {a}, {b})");
        let (found, column) = (format!("f{position}"), format!("shared[{position}]"));
        let _ = writeln!(
            self.begins,
            "    double {found} = nothing<double>({how}, -(double)INFINITY, (double)INFINITY);"
        );
        let _ = writeln!(self.adds, "        {found} = {};", join(&found, &format!("(double){name}")));
        let _ = writeln!(self.shares, "    {column}[threadIdx.x] = {found};");
        let both = join(&format!("{column}[threadIdx.x]"), &format!("{column}[threadIdx.x + half * width]"));
        let _ = writeln!(self.joins, "        {column}[threadIdx.x] = {both};");
        let mean = if how == kernel_parameters::MEAN { " / (double)r.count" } else { "" };
        let _ = writeln!(self.writes, "      q{position}[j] = (real)({column}[lane]{mean});");
        let _ = writeln!(self.warps, "    {found} = joined_rows<real, double>({how}, {found}, rows);");
        let _ = writeln!(self.ends, "      q{position}[j] = (real)({found}{mean});");
    }
}

/// A kernel being written.
#[derive(Default)]
struct Text {
    inputs: Vec<(NodeId, OperandAccess)>,
    parameters: String,
    /// Vectors of adjacent elements: their declarations, how they are loaded, and how one element is taken.
    arrays: String,
    loads: String,
    takes: String,
    /// How one element is loaded alone.
    single: String,
    /// Pointers along the reduced axis, and how one element is loaded.
    ends: String,
    steps: String,
    body: String,
    /// How one of several adjacent results is kept, how they are stored, and how one is stored alone.
    keeps: String,
    stores: String,
    writes: String,
}

impl Text {
    /// The computation of `nodes`, and the variable of each.
    fn new(graph: &Graph, same: &[NodeId], nodes: &[NodeId]) -> Result<(Self, HashMap<NodeId, String>)> {
        let shape = &graph.node(nodes[0]).shape;
        let mut names: HashMap<NodeId, String> = HashMap::new();
        let mut text = Text::default();
        for &id in nodes {
            let node = graph.node(id);
            let mut operands = Vec::with_capacity(node.inputs.len());
            for input in node.inputs.iter().map(|input| same[input.index()]) {
                let read = graph.node(input);
                let name = match names.get(&input) {
                    Some(name) => name.clone(),
                    None => text.read(input, read, shape),
                };
                names.insert(input, name.clone());
                operands.push((name, read.kind));
            }
            let name = format!("v{}", names.len());
            let value = expression(&node.op, &operands, node.kind)?;
            let _ = writeln!(text.body, "        {} {name} = {value};", kind_name(node.kind));
            names.insert(id, name);
        }
        Ok((text, names))
    }

    /// Adds an operand and returns its variable.
    fn read(&mut self, input: NodeId, read: &Node, shape: &Shape) -> String {
        let access = match read.shape.count() {
            _ if read.shape == *shape => OperandAccess::Contiguous,
            Some(Dim::Fixed(1)) => OperandAccess::Scalar,
            _ => OperandAccess::Broadcast,
        };
        let (kind, number) = (kind_name(read.kind), self.inputs.len());
        let (load, take, single) = match access {
            OperandAccess::Contiguous => (
                format!("Four<{kind}> l{number} = four(p{number}, i);"),
                format!("l{number}.at[k]"),
                format!("p{number}[i]"),
            ),
            OperandAccess::Scalar => {
                (format!("{kind} l{number} = p{number}[0];"), format!("l{number}"), format!("p{number}[0]"))
            }
            OperandAccess::Broadcast => (
                format!("Four<{kind}> l{number} = repeated(p{number}, i, axes, s{number});"),
                format!("l{number}.at[k]"),
                format!("p{number}[place(i, axes, s{number})]"),
            ),
        };
        // Along one axis every operand has one stride.
        let (end, step) = match access {
            OperandAccess::Contiguous => (format!("e{number} = p{number} + start"), "c * step".into()),
            OperandAccess::Scalar => (format!("e{number} = p{number}"), "0".into()),
            OperandAccess::Broadcast => {
                (format!("e{number} = p{number} + place(start, axes, s{number})"), format!("c * d{number}"))
            }
        };
        let _ = writeln!(self.ends, "      const {kind} *{end};");
        if access == OperandAccess::Broadcast {
            let _ = writeln!(self.ends, "      u32 d{number} = (u32)place(step, axes, s{number});");
        }
        let _ = writeln!(self.steps, "        {kind} x{number} = e{number}[{step}];");
        let _ = write!(self.parameters, ", const {kind} *p{number}");
        let _ = writeln!(self.loads, "      {load}");
        let _ = writeln!(self.takes, "        {kind} x{number} = {take};");
        let _ = writeln!(self.single, "        {kind} x{number} = {single};");
        self.inputs.push((input, access));
        format!("x{number}")
    }

    /// The parameters of broadcast operands, which come last.
    fn repeated(&self) -> String {
        let of = |(number, (_, access)): (usize, &(NodeId, OperandAccess))| {
            (*access == OperandAccess::Broadcast).then(|| format!(", Strides s{number}"))
        };
        let strides: String = self.inputs.iter().enumerate().filter_map(of).collect();
        if strides.is_empty() { strides } else { format!(", Axes axes{strides}") }
    }

    fn finish(self) -> KernelSource {
        let repeated = self.repeated();
        let Text { inputs, parameters, arrays, loads, takes, single, body, keeps, stores, writes, .. } = self;
        let text = format!(
            "extern \"C\" __global__ void {name}(u32 n, u32 wide{parameters}{repeated}) {{\n  \
             if (wide) {{\n    \
             for (EACH(q, n / {VECTOR_WIDTH})) {{\n      u32 i = q * {VECTOR_WIDTH};\n{loads}{arrays}      \
             #pragma unroll\n      \
             for (u32 k = 0; k < {VECTOR_WIDTH}; ++k) {{\n{takes}{body}{keeps}      }}\n{stores}    }}\n    \
             return;\n  }}\n  \
             for (EACH(i, n)) {{\n{single}{body}{writes}  }}\n}}\n",
            name = KernelSource::NAME,
        );
        KernelSource { text, inputs, reduced: None }
    }

    /// Elements that are adjacent in the result are adjacent in the input: a row of threads reads them together. If there are
    /// few results, several rows reduce each.
    fn finish_reduced(self, reduced: &Reduced, axis: usize) -> KernelSource {
        let repeated = self.repeated();
        let Text { inputs, parameters, ends, steps, body, .. } = self;
        let Reduced { begins, adds, shares, joins, writes, .. } = reduced;
        let results = shares.lines().count();
        let text = format!(
            "extern \"C\" __global__ void {name}(u32 n, u32 rows, Reduction r{parameters}{repeated}) {{\n  \
             __shared__ double shared[{results}][{threads}];\n  \
             u32 width = blockDim.x / rows, lane = threadIdx.x % width, row = threadIdx.x / width;\n  \
             for (u32 first = blockIdx.x * width; first < n; first += gridDim.x * width) {{\n    \
             u32 j = first + lane;\n{begins}    \
             if (j < n) {{\n      u32 step = (u32)r.of_reduced.along[0], start = (u32)place(j, r.kept, r.of_kept);\n{ends}      \
             #pragma unroll 4\n      \
             for (u32 c = row; c < r.count; c += rows) {{\n{steps}{body}{adds}      }}\n    }}\n{shares}    \
             __syncthreads();\n    \
             for (u32 half = rows / 2; half > 0; half /= 2) {{\n      if (row < half) {{\n{joins}      }}\n      \
             __syncthreads();\n    }}\n    \
             if (row == 0 && j < n) {{\n{writes}    }}\n    __syncthreads();\n  }}\n}}\n",
            name = KernelSource::NAME,
            threads = kernel_parameters::MOST_THREADS,
        );
        KernelSource { text, inputs, reduced: Some(ReducedAxis { axis, adjacent: false }) }
    }

    /// The elements of one result are adjacent: threads of a warp reduce them, several at a time if their number allows it.
    fn finish_adjacent(self, reduced: &Reduced, axis: usize, node: &Node) -> KernelSource {
        let repeated = self.repeated();
        let Text { inputs, parameters, loads, takes, single, body, .. } = self;
        let Reduced { begins, adds, warps, ends, .. } = reduced;
        let wide = node.shape.fixed_at(axis).is_some_and(|count| count.is_multiple_of(VECTOR_WIDTH));
        let each = match wide {
            true => format!(
                "      for (u32 c = row * {VECTOR_WIDTH}; c < r.count; c += rows * {VECTOR_WIDTH}) {{\n      u32 i = start + c;\n{loads}      \
                 #pragma unroll\n      \
                 for (u32 k = 0; k < {VECTOR_WIDTH}; ++k) {{\n{takes}{body}{adds}      }}\n      }}\n"
            ),
            false => format!(
                "      for (u32 c = row; c < r.count; c += rows) {{\n      u32 i = start + c;\n{single}{body}{adds}      }}\n"
            ),
        };
        let text = format!(
            "extern \"C\" __global__ void {name}(u32 n, u32 rows, Reduction r{parameters}{repeated}) {{\n  \
             u32 width = blockDim.x / rows, row = threadIdx.x % rows;\n  \
             for (u32 first = blockIdx.x * width; first < n; first += gridDim.x * width) {{\n    \
             u32 j = first + threadIdx.x / rows;\n{begins}    \
             if (j < n) {{\n      u32 start = (u32)place(j, r.kept, r.of_kept);\n{each}    }}\n{warps}    \
             if (row == 0 && j < n) {{\n{ends}    }}\n  }}\n}}\n",
            name = KernelSource::NAME,
        );
        KernelSource { text, inputs, reduced: Some(ReducedAxis { axis, adjacent: true }) }
    }
}

#[cfg(test)]
mod tests {
    use monosplit_graph::op::Reduction;

    use super::*;

    #[test]
    fn layers_of_different_sizes_share_a_kernel() {
        let text = |channels: usize| {
            let mut graph = Graph::new();
            let x = graph.input("x", Shape::batched(&[channels, 4, 4]), Kind::Float);
            let bias = graph.input("bias", Shape::fixed(&[channels, 1, 1]), Kind::Float);
            let sum = graph.plus(x, bias).unwrap();
            let y = graph.rectified(sum).unwrap();
            let same: Vec<NodeId> = graph.nodes().map(|(id, _)| id).collect();
            let source = KernelSource::new(&graph, &same, &[sum, y], &[y]).unwrap();
            let accesses: Vec<OperandAccess> = source.inputs.iter().map(|(_, access)| *access).collect();
            assert_eq!(accesses, [OperandAccess::Contiguous, OperandAccess::Broadcast]);
            source.text
        };
        assert_eq!(text(3), text(64));
    }

    #[test]
    fn values_that_are_only_reduced_are_not_written() {
        let mut graph = Graph::new();
        let x = graph.input("x", Shape::batched(&[3, 4, 4]), Kind::Float);
        let scale = graph.input("scale", Shape::fixed(&[3, 1, 1]), Kind::Float);
        let scaled = graph.times(x, scale).unwrap();
        let squared = graph.times(scaled, scaled).unwrap();
        let reduce = |reduction| Op::Reduce { reduction, axes: vec![1], keep: false };
        let sum = graph.add(reduce(Reduction::Sum), &[squared]).unwrap();
        let mean = graph.add(reduce(Reduction::Mean), &[scaled]).unwrap();
        let same: Vec<NodeId> = graph.nodes().map(|(id, _)| id).collect();
        for adjacent in [false, true] {
            let source =
                KernelSource::reduced(&graph, &same, &[scaled, squared], &[sum, mean], adjacent).unwrap();
            assert_eq!(source.reduced, Some(ReducedAxis { axis: 1, adjacent }));
            assert!(source.text.contains("real *q0, real *q1") && !source.text.contains("q0[i]"));
            assert!(source.text.contains("/ (double)r.count"), "the mean is divided");
        }
    }
}
