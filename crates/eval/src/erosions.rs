//! What a network says of an image that loses one small area after the other, prepared once for every size of area.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use monosplit_engine::Engine;
use monosplit_explain::Erosion;
use monosplit_graph::{Graph, Result, Tensor};

/// Rows and columns of an image.
pub type Area = [Range<usize>; 2];

/// Changes of an image that add up: number `s` lies within `areas[s]` and is made by `change(s, image)`.
#[derive(Clone, Copy)]
pub struct Changes<'a> {
    /// Where each lies.
    pub areas: &'a [Area],
    /// Makes one of them in the numbers `C·H·W` of the image.
    pub change: &'a dyn Fn(usize, &mut [f32]),
    /// How many images are computed at a time.
    pub batch: usize,
}

/// The sizes of areas a network was prepared for.
#[derive(Default)]
pub struct Erosions {
    prepared: Mutex<HashMap<[usize; 2], Option<Erosion>>>,
}

impl Erosions {
    /// The class scores `[steps, classes]` of an image `[1, C, H, W]` after each change; `None` where computing everything
    /// again is as good.
    pub fn scores(
        &self,
        graph: &Graph,
        engine: &dyn Engine,
        image: &Tensor,
        changes: Changes<'_>,
    ) -> Result<Option<Tensor>> {
        let longest = |axis: usize| changes.areas.iter().map(|area| area[axis].len()).max().unwrap_or(0);
        let size = [longest(0), longest(1)];
        let mut prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        let erosion = match prepared.get(&size) {
            Some(known) => known.clone(),
            None => {
                let made = Erosion::new(graph, size, engine)?;
                prepared.insert(size, made.clone());
                made
            }
        };
        drop(prepared);
        let mut change = |step: usize, image: &mut [f32]| (changes.change)(step, image);
        erosion.map(|erosion| erosion.scores(image, changes.areas, changes.batch, &mut change)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use monosplit_engine::Cpu;
    use monosplit_graph::op::{Reduction, Window};
    use monosplit_graph::{Kind, Noise, Op, Shape};

    use super::*;
    use crate::metric::{Case, Metric, Network};
    use crate::metrics::{Preset, Selectivity};

    /// A network that may or may not be asked for small changes.
    struct Asked<'a> {
        graph: &'a Graph,
        erosions: Option<Erosions>,
    }

    impl Network for Asked<'_> {
        fn scores(&self, images: &Tensor) -> Result<Tensor> {
            Ok(Cpu::default().compile(self.graph)?.run(std::slice::from_ref(images))?.swap_remove(0))
        }

        fn scores_after(&self, image: &Tensor, changes: Changes<'_>) -> Result<Option<Tensor>> {
            let Some(erosions) = &self.erosions else { return Ok(None) };
            let found = erosions.scores(self.graph, &Cpu::default(), image, changes)?;
            assert!(found.is_some());
            Ok(found)
        }

        fn maps(&self, _: &Tensor, _: usize) -> Result<Tensor> {
            Err(monosplit_graph::Error::argument("nobody asks for maps"))
        }
    }

    fn random(shape: &[usize], seed: u64) -> Tensor {
        let noise = Noise::new(seed);
        let count: usize = shape.iter().product();
        Tensor::new(shape, (0..count as u64).map(|i| noise.gaussian(i) as f32).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn a_metric_finds_the_same_either_way() {
        let mut graph = Graph::new();
        let mut x = graph.input("x", Shape::batched(&[3, 64, 64]), Kind::Float);
        for (layer, (from, to)) in [(3, 16), (16, 16), (16, 8)].into_iter().enumerate() {
            let window = Window { pad: vec![(1, 1); 2], ..Window::new([3, 3]) };
            let weights = graph.constant(random(&[to, from, 3, 3], layer as u64));
            let z = graph.add(Op::Conv { window, groups: 1 }, &[x, weights]).unwrap();
            x = graph.rectified(z).unwrap();
        }
        let mean = graph.reduced(Reduction::Mean, x, &[2, 3], false).unwrap();
        let head = graph.constant(random(&[4, 8], 9));
        let scores = graph.add(Op::MatMul { trans_a: false, trans_b: true }, &[mean, head]).unwrap();
        graph.output("scores", scores);
        let (image, map) = (random(&[1, 3, 64, 64], 5), random(&[64, 64], 6));
        let value = |erosions: Option<Erosions>| {
            let network = Asked { graph: &graph, erosions };
            let case = Case { image: &image, class: 2, map: &map, mask: None, network: &network, seed: 0 };
            Selectivity::preset(Preset::Quantus06).measure(&case).unwrap().unwrap()
        };
        let (whole, small) = (value(None), value(Some(Erosions::default())));
        assert!((whole - small).abs() < 1e-5 * whole.abs(), "{whole} {small}");
    }
}
