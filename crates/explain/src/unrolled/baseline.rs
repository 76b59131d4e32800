//! Baselines as nodes. A number at the image is an input of the graph, so that another number or another image may be given at
//! run time.

use monosplit_graph::op::Reduction;
use monosplit_graph::{Dim, Error, NodeId, Op, Result, Shape};

use crate::baseline::Baseline;
use crate::explanation_builder::ExplanationBuilder;
use crate::explanation_graph::inputs;
use crate::reference::Reference;
use crate::sample_layout::SampleLayout;

impl ExplanationBuilder<'_> {
    /// The baseline image of each sample, `[N, …]`.
    pub(super) fn baseline_image(&mut self, baseline: &Baseline) -> Result<NodeId> {
        let image = self.image();
        let shape = self.graph.node(image).shape.clone();
        let one = match baseline {
            Baseline::Value(number) => self.baseline_input(*number, shape.rank())?,
            Baseline::Mean => self.channel_means(image)?,
            Baseline::Images(_) => {
                let given = baseline.given(&self.layout(image)?)?;
                let given = given.filter(|images| images.shape()[0] == 1).ok_or_else(|| {
                    Error::argument(
                        "a file has one baseline image for all samples, and several were given; give one, or a number",
                    )
                })?;
                self.graph.constant(given)
            }
        };
        self.graph.add(Op::Expand { shape }, &[one])
    }

    /// The input with the baseline, which is this number by default.
    fn baseline_input(&mut self, number: f64, rank: usize) -> Result<NodeId> {
        let known = *self.baseline.get_or_insert(number);
        if known != number {
            return Err(Error::argument(format!(
                "the baseline is one input of the file, which all its methods share, but another method takes it to be \
                 {known} and this one {number}; give both the same, or compile two files"
            )));
        }
        self.added_input(inputs::BASELINE, Shape::new(vec![Dim::Fixed(1); rank]))
    }

    /// The value of `at` on the baseline image of each sample.
    pub(super) fn baseline_value(&mut self, baseline: &Baseline, at: NodeId) -> Result<NodeId> {
        if at == self.image() {
            return self.baseline_image(baseline);
        }
        let reference = self.shared(baseline.clone(), |builder| {
            let image = builder.baseline_image(baseline)?;
            let network = builder.network.clone();
            Reference::build(&mut builder.graph, &network, image)
        })?;
        Ok(reference.at(at))
    }

    /// What replaces removed elements of the value `at`: a number and a mean are those of the value itself.
    pub(super) fn replacement(&mut self, baseline: &Baseline, at: NodeId) -> Result<NodeId> {
        match baseline {
            Baseline::Value(number) if at != self.image() => Ok(self.graph.number(*number)),
            Baseline::Mean => self.channel_means(at),
            _ => self.baseline_value(baseline, at),
        }
    }

    /// How the elements of a value are laid out.
    pub(super) fn layout(&self, at: NodeId) -> Result<SampleLayout> {
        SampleLayout::new(&self.graph.node(at).shape, self.axes(at)?)
    }

    /// The mean of each channel of each sample, with axes of length one for all others.
    fn channel_means(&mut self, at: NodeId) -> Result<NodeId> {
        let channels = self.axes(at)?.channels;
        let rank = self.graph.node(at).shape.rank();
        let axes: Vec<usize> = (1..rank).filter(|axis| Some(*axis) != channels).collect();
        self.graph.reduced(Reduction::Mean, at, &axes, true)
    }
}
