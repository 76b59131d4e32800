//! RISE as a graph. What is stored of a mask is which cells of its grid are open and how far it is shifted; masks are enlarged
//! in the graph.

use std::ops::Range;

use monosplit_graph::{Graph, NodeId, Op, Result, Shape, Tensor};

use super::CopiedNetwork;
use super::copies::{add_up, as_factors, one_copy, over_channels, total};
use crate::bilinear::enlarged;
use crate::explanation_builder::ExplanationBuilder;
use crate::method::{Attribution, GraphMethod};
use crate::methods::{DrawnMask, Measure, Rise};
use crate::sample_layout::SampleLayout;

impl GraphMethod for Rise {
    fn write(&self, builder: &mut ExplanationBuilder<'_>, at: NodeId) -> Result<Attribution> {
        let layout = builder.layout(at)?;
        self.check(&layout)?;
        let mut network = CopiedNetwork::scores(builder, at, self.batch)?;
        let replacement = builder.replacement(&self.baseline, at)?;
        let channels = builder.axes(at)?.channels;
        let g = &mut builder.graph;
        let way = g.minus(at, replacement)?;
        let (start, way) = (one_copy_of(g, replacement, at)?, one_copy(g, way)?);
        let mut sum = None;
        for chunk in network.chunks(self.samples)? {
            let g = &mut builder.graph;
            let masks = self.masks(g, chunk, &layout)?;
            let open = over_channels(g, masks, channels)?;
            let shown = g.times(open, way)?;
            let copies = g.plus(start, shown)?;
            let outputs = network.run(builder, copies)?;
            let measured = match self.measure {
                Measure::Score => outputs.score(builder)?,
                Measure::Probability => outputs.probability(builder)?,
            };
            let g = &mut builder.graph;
            let weights = as_factors(g, measured, layout.spatial_dims().len() + 1)?;
            let weighted = g.times(weights, masks)?;
            sum = add_up(g, sum, weighted)?;
        }
        let share = 1.0 / (self.samples as f64 * self.probability);
        let value = builder.graph.scaled(share, total(sum)?)?;
        Ok(Attribution::per_position(value, at))
    }
}

/// A replacement, which may be one number, as one copy.
fn one_copy_of(g: &mut Graph, replacement: NodeId, at: NodeId) -> Result<NodeId> {
    match g.node(replacement).shape.rank() == g.node(at).shape.rank() {
        true => one_copy(g, replacement),
        false => Ok(replacement),
    }
}

impl Rise {
    /// These masks, `[K, 1, …]`: along each axis the grid is enlarged by a matrix that begins where the shift of the mask says.
    fn masks(&self, g: &mut Graph, chunk: Range<usize>, layout: &SampleLayout) -> Result<NodeId> {
        let count = chunk.len();
        let (grid, lengths) = (self.cells_along(layout), layout.spatial_dims());
        let drawn: Vec<_> = chunk.map(|number| self.drawn(number, layout)).collect();
        let cells: Vec<f64> = drawn.iter().flat_map(|mask| mask.cells.iter().copied()).collect();
        let mut masks = g.constant(Tensor::new([&[count], &*grid].concat(), cells)?);
        if !layout.is_table() {
            let mut dims = grid.clone();
            for (axis, &length) in lengths.iter().enumerate() {
                // The product moves the axis behind the others: after all of them the axes are in their order again.
                let others = dims[1..].iter().product();
                masks = g.reshaped(masks, Shape::fixed(&[count, dims[0], others]))?;
                let larger = self.enlarging_matrices(g, &drawn, axis, length)?;
                masks = g.add(Op::MatMul { trans_a: true, trans_b: true }, &[masks, larger])?;
                dims.rotate_left(1);
                if let Some(last) = dims.last_mut() {
                    *last = length;
                }
            }
        }
        g.reshaped(masks, Shape::fixed(&[&[count, 1], lengths].concat()))
    }

    /// For each mask the matrix from the cells along an axis to the positions, `[K, length, cells]`.
    fn enlarging_matrices(
        &self,
        g: &mut Graph,
        drawn: &[DrawnMask],
        axis: usize,
        length: usize,
    ) -> Result<NodeId> {
        let taps = self.enlarged_axis(length);
        let unit = |i: usize| (0..self.grid).map(move |j| if i == j { 1.0 } else { 0.0 });
        let columns: Vec<Vec<f64>> = (0..self.grid)
            .map(|cell| {
                enlarged(&unit(cell).collect::<Vec<f64>>(), &[self.grid], std::slice::from_ref(&taps))
            })
            .collect();
        let rows = (0..taps.len())
            .flat_map(|row| columns.iter().map(move |column| column[row]))
            .collect::<Vec<f64>>();
        let rows = g.constant(Tensor::new([taps.len(), self.grid], rows)?);
        let shifts = drawn.iter().flat_map(|mask| (0..length).map(|i| (mask.shifts[axis] + i) as i64));
        let shifts = g.constant(Tensor::new([drawn.len(), length], shifts.collect::<Vec<i64>>())?);
        g.add(Op::Gather { axis: 0 }, &[rows, shifts])
    }
}
