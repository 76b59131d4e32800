//! Nodes in which the largest (or smallest) of several elements wins: max pooling, and reductions by maximum or
//! minimum, which are seen as pooling over one long window.

use monosplit_graph::op::{Binary, Divisor, Reduction, Window};
use monosplit_graph::{Dim, Graph, Node, NodeId, Op, Result, Shape};

/// A maximum among the elements under a window.
pub struct WindowMax {
    contestants: NodeId,
    window: Window,
    view: Option<View>,
    /// Whether the smallest element wins.
    pub minimum: bool,
}

/// How a reduction is laid out as a pool: contestants last, everything else first.
struct View {
    axes: Vec<usize>,
    permuted: Shape,
    flat: Shape,
    result: Shape,
}

impl WindowMax {
    /// The maximum a node holds, if it holds one.
    pub fn of(g: &mut Graph, node: &Node) -> Result<Option<Self>> {
        let (axes, minimum) = match &node.op {
            Op::MaxPool(window) => {
                let (contestants, window) = (node.inputs[0], window.clone());
                return Ok(Some(WindowMax { contestants, window, view: None, minimum: false }));
            }
            Op::Reduce { reduction: Reduction::Max, axes, .. } => (axes, false),
            Op::Reduce { reduction: Reduction::Min, axes, .. } => (axes, true),
            _ => return Ok(None),
        };
        let view = View::new(&g.node(node.inputs[0]).shape, axes, node.shape.clone())?;
        let window = Window::new([view.flat.fixed_at(2).unwrap_or(1)]);
        let flat = view.lay_out(g, node.inputs[0])?;
        let contestants = if minimum { g.negated(flat)? } else { flat };
        Ok(Some(WindowMax { contestants, window, view: Some(view), minimum }))
    }

    /// Number of elements under the window.
    pub fn size(&self) -> usize {
        self.window.kernel.iter().product()
    }

    /// `value` at the winners.
    pub fn gather(&self, g: &mut Graph, value: NodeId) -> Result<NodeId> {
        let value = self.lay_out(g, value)?;
        let won = g.add(Op::WinnerGather(self.window.clone()), &[self.contestants, value])?;
        self.result(g, won)
    }

    /// The transpose of [`WindowMax::gather`].
    pub fn scatter(&self, g: &mut Graph, y: NodeId) -> Result<NodeId> {
        let y = self.as_result(g, y)?;
        let scattered = g.add(Op::WinnerScatter(self.window.clone()), &[self.contestants, y])?;
        self.put_back(g, scattered)
    }

    /// `value` summed over the contestants of each window.
    pub fn total(&self, g: &mut Graph, value: NodeId) -> Result<NodeId> {
        let value = self.lay_out(g, value)?;
        let op = Op::AveragePool { window: self.window.clone(), divisor: Divisor::One };
        let total = g.add(op, &[value])?;
        self.result(g, total)
    }

    /// The transpose of [`WindowMax::total`].
    pub fn spread(&self, g: &mut Graph, y: NodeId) -> Result<NodeId> {
        let y = self.as_result(g, y)?;
        let spatial = g.node(self.contestants).shape.dims()[2..].iter().filter_map(|d| d.fixed()).collect();
        let op = Op::AveragePoolTranspose { window: self.window.clone(), divisor: Divisor::One, spatial };
        let spread = g.add(op, &[y])?;
        self.put_back(g, spread)
    }

    fn lay_out(&self, g: &mut Graph, value: NodeId) -> Result<NodeId> {
        self.view.as_ref().map_or(Ok(value), |view| view.lay_out(g, value))
    }

    fn put_back(&self, g: &mut Graph, value: NodeId) -> Result<NodeId> {
        let Some(view) = &self.view else { return Ok(value) };
        let permuted = g.reshaped(value, view.permuted.clone())?;
        let mut inverse = vec![0; view.axes.len()];
        view.axes.iter().enumerate().for_each(|(to, &from)| inverse[from] = to);
        g.add(Op::Transpose { axes: inverse }, &[permuted])
    }

    fn result(&self, g: &mut Graph, value: NodeId) -> Result<NodeId> {
        self.view.as_ref().map_or(Ok(value), |view| g.reshaped(value, view.result.clone()))
    }

    fn as_result(&self, g: &mut Graph, value: NodeId) -> Result<NodeId> {
        let Some(view) = &self.view else { return Ok(value) };
        let dims = view.flat.dims();
        g.reshaped(value, Shape::new([dims[0], dims[1], Dim::Fixed(1)]))
    }
}

impl View {
    fn new(shape: &Shape, reduced: &[usize], result: Shape) -> Result<Self> {
        let kept = (0..shape.rank()).filter(|axis| !reduced.contains(axis));
        let axes: Vec<usize> = kept.chain(reduced.iter().copied()).collect();
        let permuted = Shape::new(axes.iter().map(|&a| shape.dims()[a]).collect::<Vec<_>>());
        let split = shape.rank() - reduced.len();
        let product = |dims: &[Dim]| Shape::new(dims).count().unwrap_or(Dim::Fixed(0));
        let (lead, window) = permuted.dims().split_at(split);
        let flat = Shape::new([product(lead), Dim::Fixed(1), product(window)]);
        Ok(View { axes, permuted, flat, result })
    }

    fn lay_out(&self, g: &mut Graph, value: NodeId) -> Result<NodeId> {
        let permuted = g.add(Op::Transpose { axes: self.axes.clone() }, &[value])?;
        g.reshaped(permuted, self.flat.clone())
    }
}

/// Where the first of two contestants wins; it wins ties.
pub fn first_wins(g: &mut Graph, node: &Node, binary: Binary) -> Result<NodeId> {
    let better = if binary == Binary::Max { Binary::GreaterOrEqual } else { Binary::LessOrEqual };
    g.binary(better, node.inputs[0], node.inputs[1])
}
