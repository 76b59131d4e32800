//! The resolution stages of a network: one value for each spatial size it computes at, from fine to coarse. They are found by
//! shapes alone, without labels, masks or names.

use monosplit_graph::{Graph, Node, NodeId, Op};

/// What enters the last convolution of each spatial size, from fine to coarse. Convolutions with kernels larger than 1×1 are
/// preferred: others count only if there are none.
///
/// The size is that of what is read. The last convolution that reads a size is often the one that reduces it, so that its input
/// is the last and most abstract map at that size.
pub(crate) fn resolution_stages(graph: &Graph, image: NodeId, scores: NodeId) -> Vec<NodeId> {
    let (reaches, depends) = (graph.ancestors([scores]), graph.descendants([image]));
    let of = |wanted: &dyn Fn(&Op) -> bool| {
        let mut stages: Vec<(Vec<_>, NodeId)> = Vec::new();
        let between = graph.nodes().filter(|(id, _)| reaches[id.index()] && depends[id.index()]);
        for (_, Node { inputs, .. }) in between.filter(|(_, node)| wanted(&node.op)) {
            let dims = graph.node(inputs[0]).shape.dims();
            let sizes = dims.get(2..).map(<[_]>::to_vec).unwrap_or_default();
            if sizes.iter().any(|size| size.fixed() != Some(1)) {
                stages.retain(|(known, _)| *known != sizes);
                stages.push((sizes, inputs[0]));
            }
        }
        stages.into_iter().map(|(_, value)| value).collect::<Vec<_>>()
    };
    let wide =
        of(&|op| matches!(op, Op::Conv { window, .. } if window.kernel.iter().any(|&length| length > 1)));
    if wide.is_empty() { of(&|op| matches!(op, Op::Conv { .. })) } else { wide }
}

#[cfg(test)]
mod tests {
    use monosplit_graph::op::Window;
    use monosplit_graph::{Kind, Shape, Tensor};

    use super::*;

    fn convolution(g: &mut Graph, x: NodeId, kernel: usize, stride: usize) -> NodeId {
        let weights = vec![0.1f32; 4 * kernel * kernel];
        let w = g.constant(Tensor::new([2, 2, kernel, kernel], weights).unwrap());
        let mut window = Window::new([kernel, kernel]);
        window.pad = vec![(kernel / 2, kernel / 2); 2];
        window.stride = vec![stride, stride];
        g.add(Op::Conv { window, groups: 1 }, &[x, w]).unwrap()
    }

    #[test]
    fn each_size_is_read_at_the_last_convolution_that_is_wider_than_a_pixel() {
        let mut g = Graph::new();
        let image = g.input("x", Shape::batched(&[2, 8, 8]), Kind::Float);
        let first = convolution(&mut g, image, 3, 1);
        let reduced = convolution(&mut g, first, 3, 2);
        let pixelwise = convolution(&mut g, reduced, 1, 1);
        let last = convolution(&mut g, pixelwise, 3, 1);
        let scores = g.reduced(monosplit_graph::op::Reduction::Mean, last, &[2, 3], false).unwrap();
        g.output("scores", scores);
        assert_eq!(resolution_stages(&g, image, scores), [first, pixelwise]);
    }

    #[test]
    fn without_wider_ones_convolutions_of_a_pixel_count() {
        let mut g = Graph::new();
        let image = g.input("x", Shape::batched(&[2, 4, 4]), Kind::Float);
        let first = convolution(&mut g, image, 1, 1);
        let last = convolution(&mut g, first, 1, 1);
        let scores = g.reduced(monosplit_graph::op::Reduction::Mean, last, &[2, 3], false).unwrap();
        g.output("scores", scores);
        assert_eq!(resolution_stages(&g, image, scores), [first]);
    }
}
