//! DeepSHAP as a graph: DeepLIFT for one baseline after the other.

use monosplit_graph::op::Reduction;
use monosplit_graph::{NodeId, Result};

use super::copies::total;
use crate::explanation_builder::ExplanationBuilder;
use crate::method::{Attribution, GraphMethod};
use crate::methods::{DeepLift, DeepShap};
use crate::reference::ReferenceImage;

impl GraphMethod for DeepShap {
    fn write(&self, builder: &mut ExplanationBuilder<'_>, at: NodeId) -> Result<Attribution> {
        let count = self.count()?;
        let image = builder.image();
        let dims = builder.layout(image)?.dims().to_vec();
        let mut sum: Option<NodeId> = None;
        for index in 0..count {
            let baseline = ReferenceImage::Image(self.baselines.image(index, &dims)?);
            let lift = DeepLift { baseline, pool: self.pool }.write(builder, at)?.value.value;
            sum = Some(match sum {
                Some(sum) => builder.graph.plus(sum, lift)?,
                None => lift,
            });
        }
        let mean = builder.graph.scaled(1.0 / count as f64, total(sum)?)?;
        Ok(Attribution::per_element(mean, at, Reduction::Sum))
    }
}
