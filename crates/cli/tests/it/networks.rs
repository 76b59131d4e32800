//! Small networks put together for what the fixtures do not show, saved as ONNX files.

use std::path::PathBuf;

use monosplit::Tensor;
use monosplit::graph::onnx::{self, ExportOptions};
use monosplit::graph::op::{Reduction, Unary, Window};
use monosplit::graph::{Dim, Graph, Kind, Label, NodeId, Op, Shape, npy};
use monosplit_testing::ScratchFolder;

pub(crate) const CLASSES: usize = 5;
pub(crate) const SIDE: usize = 8;

/// Numbers between −1 and 1 that follow no pattern a network would notice.
pub(crate) fn numbers(shape: &[usize], seed: usize) -> Tensor {
    let count: usize = shape.iter().product();
    let number = |i: usize| (((i + seed) * 7919 + 104_729 * seed) % 2003) as f32 / 1001.0 - 1.0;
    Tensor::new(shape.to_vec(), (0..count).map(number).collect::<Vec<_>>()).unwrap()
}

/// A convolution, a ReLU, the mean over all places and a dense layer.
pub(crate) struct Small {
    /// The length of the sample axis.
    pub(crate) samples: Dim,
    /// The biases of the convolution.
    pub(crate) bias: f32,
    /// The weights of the dense layer, `[4, CLASSES]`.
    pub(crate) dense: Tensor,
    /// Whether the ReLU is there.
    pub(crate) rectified: bool,
    /// Whether a branch leads to a second output.
    pub(crate) branch: bool,
    /// What is done to the scores at the end.
    pub(crate) end: Option<Op>,
    /// What its input is called.
    pub(crate) input: &'static str,
}

impl Default for Small {
    fn default() -> Self {
        Small {
            samples: Dim::Batch(1),
            bias: 0.1,
            dense: numbers(&[4, CLASSES], 3),
            rectified: true,
            branch: false,
            end: None,
            input: "x",
        }
    }
}

impl Small {
    pub(crate) fn save(&self, folder: &ScratchFolder, name: &str) -> String {
        let mut g = Graph::new();
        let lengths = [self.samples, Dim::Fixed(3), Dim::Fixed(SIDE), Dim::Fixed(SIDE)];
        let x = g.input(self.input, Shape::new(lengths), Kind::Float);
        let (w, b) = (g.constant(numbers(&[4, 3, 3, 3], 1)), g.constant(Tensor::vector(vec![self.bias; 4])));
        let mut window = Window::new([3, 3]);
        window.pad = vec![(1, 1); 2];
        let mut z = named(&mut g, "conv", Op::Conv { window, groups: 1 }, &[x, w, b]);
        if self.rectified {
            z = named(&mut g, "relu", Op::Unary(Unary::Relu), &[z]);
        }
        let mean = Op::Reduce { reduction: Reduction::Mean, axes: vec![2, 3], keep: false };
        let mean = named(&mut g, "mean", mean, &[z]);
        let w = g.constant(self.dense.clone());
        let mut scores = named(&mut g, "dense", Op::MatMul { trans_a: false, trans_b: false }, &[mean, w]);
        if let Some(end) = &self.end {
            scores = named(&mut g, "end", end.clone(), &[scores]);
        }
        g.output("y", scores);
        if self.branch {
            let aside = named(&mut g, "aside", Op::Unary(Unary::Tanh), &[z]);
            g.output("aside", aside);
        }
        let path: PathBuf = folder.path(name);
        onnx::save(&g, &path, &ExportOptions::default()).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

fn named(g: &mut Graph, name: &str, op: Op, inputs: &[NodeId]) -> NodeId {
    g.add_named(Label::named(name), op, inputs).unwrap()
}

/// A batch of images for such a network.
pub(crate) fn images(folder: &ScratchFolder, count: usize) -> String {
    let path = folder.write("x.npy", npy::write(&numbers(&[count, 3, SIDE, SIDE], 11)));
    path.to_str().unwrap().to_owned()
}
