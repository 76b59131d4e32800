//! Maxima over windows: max pooling, and reductions by maximum or minimum, which are max pooling over one long window.
//! Where several elements are equal, the first is selected.

use monosplit_graph::op::{Binary, Divisor, Reduction, Window};
use monosplit_graph::{Dim, Graph, Node, NodeId, Op, Result, Shape};

/// The maximum (or minimum) of the elements under each position of a window.
pub struct WindowMax {
    candidates: NodeId,
    window: Window,
    view: Option<PoolingView>,
    /// Whether the smallest element is selected.
    pub minimum: bool,
}

/// A reduction seen as pooling: the reduced axes come last and are flattened into one, all others are flattened into
/// another.
struct PoolingView {
    axes: Vec<usize>,
    permuted: Shape,
    flat: Shape,
    result: Shape,
}

impl WindowMax {
    /// The maximum that a node computes; `None` for other ops.
    pub fn of(g: &mut Graph, node: &Node) -> Result<Option<Self>> {
        let (axes, minimum) = match &node.op {
            Op::MaxPool(window) => {
                let (candidates, window) = (node.inputs[0], window.clone());
                return Ok(Some(WindowMax { candidates, window, view: None, minimum: false }));
            }
            Op::Reduce { reduction: Reduction::Max, axes, .. } => (axes, false),
            Op::Reduce { reduction: Reduction::Min, axes, .. } => (axes, true),
            _ => return Ok(None),
        };
        let view = PoolingView::new(&g.node(node.inputs[0]).shape, axes, node.shape.clone())?;
        let window = Window::new([view.flat.fixed_at(2).unwrap_or(1)]);
        let flat = view.to_pooled(g, node.inputs[0])?;
        let candidates = if minimum { g.negated(flat)? } else { flat };
        Ok(Some(WindowMax { candidates, window, view: Some(view), minimum }))
    }

    /// The number of elements under the window.
    pub fn window_size(&self) -> usize {
        self.window.kernel.iter().product()
    }

    /// The elements of `value` at the positions of the selected elements.
    pub fn select(&self, g: &mut Graph, value: NodeId) -> Result<NodeId> {
        let value = self.to_pooled(g, value)?;
        let won = g.add(Op::WinnerGather(self.window.clone()), &[self.candidates, value])?;
        self.result(g, won)
    }

    /// The transpose of [`WindowMax::select`]: `y` at the positions of the selected elements, zero elsewhere.
    pub fn select_transposed(&self, g: &mut Graph, y: NodeId) -> Result<NodeId> {
        let y = self.to_pooled_result(g, y)?;
        let scattered = g.add(Op::WinnerScatter(self.window.clone()), &[self.candidates, y])?;
        self.undo_pooling_view(g, scattered)
    }

    /// The sum of `value` over each window.
    pub fn sum(&self, g: &mut Graph, value: NodeId) -> Result<NodeId> {
        let value = self.to_pooled(g, value)?;
        let op = Op::AveragePool { window: self.window.clone(), divisor: Divisor::One };
        let total = g.add(op, &[value])?;
        self.result(g, total)
    }

    /// The transpose of [`WindowMax::sum`].
    pub fn sum_transposed(&self, g: &mut Graph, y: NodeId) -> Result<NodeId> {
        let y = self.to_pooled_result(g, y)?;
        let spatial = g.node(self.candidates).shape.dims()[2..].iter().filter_map(|d| d.fixed()).collect();
        let op = Op::AveragePoolTranspose { window: self.window.clone(), divisor: Divisor::One, spatial };
        let spread = g.add(op, &[y])?;
        self.undo_pooling_view(g, spread)
    }

    fn to_pooled(&self, g: &mut Graph, value: NodeId) -> Result<NodeId> {
        self.view.as_ref().map_or(Ok(value), |view| view.to_pooled(g, value))
    }

    fn undo_pooling_view(&self, g: &mut Graph, value: NodeId) -> Result<NodeId> {
        let Some(view) = &self.view else { return Ok(value) };
        let permuted = g.reshaped(value, view.permuted.clone())?;
        let mut inverse = vec![0; view.axes.len()];
        view.axes.iter().enumerate().for_each(|(to, &from)| inverse[from] = to);
        g.add(Op::Transpose { axes: inverse }, &[permuted])
    }

    fn result(&self, g: &mut Graph, value: NodeId) -> Result<NodeId> {
        self.view.as_ref().map_or(Ok(value), |view| g.reshaped(value, view.result.clone()))
    }

    fn to_pooled_result(&self, g: &mut Graph, value: NodeId) -> Result<NodeId> {
        let Some(view) = &self.view else { return Ok(value) };
        let dims = view.flat.dims();
        g.reshaped(value, Shape::new([dims[0], dims[1], Dim::Fixed(1)]))
    }
}

impl PoolingView {
    fn new(shape: &Shape, reduced: &[usize], result: Shape) -> Result<Self> {
        let kept = (0..shape.rank()).filter(|axis| !reduced.contains(axis));
        let axes: Vec<usize> = kept.chain(reduced.iter().copied()).collect();
        let permuted = Shape::new(axes.iter().map(|&a| shape.dims()[a]).collect::<Vec<_>>());
        let split = shape.rank() - reduced.len();
        let product = |dims: &[Dim]| Shape::new(dims).count().unwrap_or(Dim::Fixed(0));
        let (lead, window) = permuted.dims().split_at(split);
        let flat = Shape::new([product(lead), Dim::Fixed(1), product(window)]);
        Ok(PoolingView { axes, permuted, flat, result })
    }

    fn to_pooled(&self, g: &mut Graph, value: NodeId) -> Result<NodeId> {
        let permuted = g.add(Op::Transpose { axes: self.axes.clone() }, &[value])?;
        g.reshaped(permuted, self.flat.clone())
    }
}

/// Where an elementwise maximum or minimum selects its first operand, which it does for equal elements.
pub fn selects_first(g: &mut Graph, node: &Node, binary: Binary) -> Result<NodeId> {
    let better = if binary == Binary::Max { Binary::GreaterOrEqual } else { Binary::LessOrEqual };
    g.binary(better, node.inputs[0], node.inputs[1])
}
