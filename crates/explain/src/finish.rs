//! Post-processing of attributions into maps: reduction of channels, absolute values, scale and resolution.

use monosplit_graph::op::{Binary, Coordinates, Interpolation, Reduction, ResizeAxis, Rounding, Unary};
use monosplit_graph::{Dim, Error, Graph, NodeId, Op, Result, Shape};

use crate::channels::Axes;
use crate::patch_grid::Grid;
use crate::scaled::{Scale, Scaled};

/// How channels are reduced to one number for each position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ChannelReduction {
    /// As the method defines.
    #[default]
    Own,
    /// They are kept: the map has the shape of the layer.
    Keep,
    /// Their sum.
    Sum,
    /// Their mean.
    Mean,
    /// Their maximum.
    Max,
    /// The root of the sum of their squares.
    L2,
    /// The sum of those above zero.
    Positive,
}

/// Where the absolute value is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Absolute {
    /// Not taken: maps keep their signs.
    #[default]
    None,
    /// Of the finished map.
    Map,
    /// Of every channel, before they are reduced.
    Channels,
}

/// How the values of a map are scaled, sample by sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Normalise {
    /// Not at all.
    #[default]
    None,
    /// The minimum becomes 0, the maximum 1.
    MinMax,
    /// The largest magnitude becomes 1.
    Max,
}

/// The resolution of a map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Size {
    /// That of the layer.
    #[default]
    Layer,
    /// That of the network's input.
    Input,
}

/// How a map is upsampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Upsampling {
    /// The nearest element.
    Nearest,
    /// Bilinear interpolation with half-pixel centres.
    #[default]
    Bilinear,
}

/// The post-processing of an attribution into a map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Finish {
    /// How channels are reduced to one number for each position.
    pub channels: ChannelReduction,
    /// Where the absolute value is taken.
    pub absolute: Absolute,
    /// Whether negative values of the map are set to zero.
    pub rectified: bool,
    /// How values are scaled. This is the last step.
    pub normalise: Normalise,
    /// The map's resolution.
    pub size: Size,
    /// How a map is brought to the size of the input.
    pub upsampling: Upsampling,
}

impl Finish {
    /// The map of an attribution. `own` is the reduction of channels that the method defines; none if it has no channel axis.
    pub(crate) fn write(
        &self,
        g: &mut Graph,
        scale: &Scale,
        value: Scaled,
        own: Option<Reduction>,
        axes: Axes,
        image: &Shape,
    ) -> Result<Scaled> {
        let mut map = value.value;
        if self.absolute == Absolute::Channels {
            map = g.magnitude(map)?;
        }
        if let (Some(own), Some(axis)) = (own, axes.channels) {
            map = self.channels.reduced(g, map, axis, own)?;
        }
        if axes.channels.is_some() {
            map = on_patches(g, map, image, axes.image_channels)?;
        }
        if self.absolute == Absolute::Map {
            map = g.magnitude(map)?;
        }
        if self.rectified {
            map = g.rectified(map)?;
        }
        if self.size == Size::Input {
            map = resized(g, map, image, axes.image_channels, self.upsampling)?;
        }
        match self.normalise {
            Normalise::None => scale.settled(g, Scaled { value: map, ..value }),
            other => Ok(Scaled::plain(normalised(g, map, other)?, 0.0)),
        }
    }
}

impl ChannelReduction {
    /// The channels of a value, along `axis`, as one number for each position; `own` is what the method defines.
    fn reduced(self, g: &mut Graph, value: NodeId, axis: usize, own: Reduction) -> Result<NodeId> {
        let reduction = match self {
            ChannelReduction::Own => own,
            ChannelReduction::Keep => return Ok(value),
            ChannelReduction::Sum => Reduction::Sum,
            ChannelReduction::Mean => Reduction::Mean,
            ChannelReduction::Max => Reduction::Max,
            ChannelReduction::L2 => return euclidean_norm(g, value, axis),
            ChannelReduction::Positive => {
                let positive = g.rectified(value)?;
                return g.reduced(Reduction::Sum, positive, &[axis], false);
            }
        };
        g.reduced(reduction, value, &[axis], false)
    }
}

/// The root of the sum of squares along an axis. The largest magnitude is divided out first, so that no square overflows.
fn euclidean_norm(g: &mut Graph, value: NodeId, axis: usize) -> Result<NodeId> {
    let size = g.magnitude(value)?;
    let largest = g.reduced(Reduction::Max, size, &[axis], true)?;
    let tiny = g.number(f64::from(f32::MIN_POSITIVE));
    let divisor = g.binary(Binary::Max, largest, tiny)?;
    let ratio = g.over(size, divisor)?;
    let square = g.times(ratio, ratio)?;
    let sum = g.reduced(Reduction::Sum, square, &[axis], false)?;
    let root = g.unary(Unary::Sqrt, sum)?;
    let largest = g.reduced(Reduction::Max, size, &[axis], false)?;
    g.times(root, largest)
}

/// A map with each sample scaled on its own. Constant maps become zero.
fn normalised(g: &mut Graph, map: NodeId, how: Normalise) -> Result<NodeId> {
    let axes: Vec<usize> = (1..g.node(map).shape.rank()).collect();
    let size = if how == Normalise::Max { g.magnitude(map)? } else { map };
    let greatest = g.reduced(Reduction::Max, size, &axes, true)?;
    let (shifted, span) = match how {
        Normalise::MinMax => {
            let least = g.reduced(Reduction::Min, map, &axes, true)?;
            (g.minus(map, least)?, g.minus(greatest, least)?)
        }
        _ => (map, greatest),
    };
    let tiny = g.number(f64::from(f32::MIN_POSITIVE));
    let span = g.binary(Binary::Max, span, tiny)?;
    g.over(shifted, span)
}

/// Rearranges a map over tokens `[N, T]` into the grid of patches `[N, rows, columns]`, without the class token and other extra
/// tokens. Other maps stay as they are.
pub(crate) fn on_patches(g: &mut Graph, map: NodeId, image: &Shape, image_channels: usize) -> Result<NodeId> {
    let shape = g.node(map).shape.clone();
    let (Some(tokens), 2) = (shape.fixed_at(1), shape.rank()) else { return Ok(map) };
    let Some(Grid { dropped, rows, columns }) = Grid::of(image, image_channels, tokens) else {
        return Ok(map);
    };
    let mut patches = map;
    if dropped > 0 {
        let op = Op::Slice { axis: 1, start: dropped, step: 1, length: rows * columns };
        patches = g.add(op, &[patches])?;
    }
    g.reshaped(patches, Shape::new(vec![shape.dims()[0], Dim::Fixed(rows), Dim::Fixed(columns)]))
}

/// A map `[N, H, W]` at the spatial size of the image.
pub(crate) fn resized(
    g: &mut Graph,
    map: NodeId,
    image: &Shape,
    image_channels: usize,
    upsampling: Upsampling,
) -> Result<NodeId> {
    let shape = g.node(map).shape.clone();
    let spatial = image.dims().iter().enumerate().skip(1).filter(|(axis, _)| *axis != image_channels);
    let spatial: Vec<Dim> = spatial.map(|(_, &dim)| dim).collect();
    let bad = || {
        Error::argument(match shape.rank() == spatial.len() + 2 {
            true => format!(
                "a map that keeps its channels, of shape {shape}, is not brought to the size of the input; add its channels \
                 up, or ask for the layer's own size"
            ),
            false => format!(
                "a map of shape {shape} cannot be brought to the size of an input of shape {image}; ask for the layer's own \
                 size, or for a method that has one"
            ),
        })
    };
    if shape.rank() != spatial.len() + 1 || spatial.is_empty() {
        return Err(bad());
    }
    let mut axes = Vec::new();
    for (i, target) in spatial.iter().enumerate() {
        let (from, to) = (shape.fixed_at(i + 1).ok_or_else(bad)?, target.fixed().ok_or_else(bad)?);
        if from != to {
            axes.push(ResizeAxis { axis: i + 2, length: to, scale: to as f64 / from as f64 });
        }
    }
    if axes.is_empty() {
        return Ok(map);
    }
    let with_channel = |dims: &[Dim]| Shape::new([&dims[..1], &[Dim::Fixed(1)], &dims[1..]].concat());
    let channelled = g.reshaped(map, with_channel(shape.dims()))?;
    let (interpolation, coordinates) = match upsampling {
        Upsampling::Bilinear => (Interpolation::Linear, Coordinates::HalfPixel),
        Upsampling::Nearest => (Interpolation::Nearest(Rounding::Floor), Coordinates::Asymmetric),
    };
    let op = Op::Resize { axes, interpolation, coordinates };
    let resized = g.add(op, &[channelled])?;
    g.reshaped(resized, Shape::new([&shape.dims()[..1], &spatial].concat()))
}

#[cfg(test)]
mod tests {
    use monosplit_engine::{Cpu, Engine};
    use monosplit_graph::{Kind, Tensor};

    use super::*;

    /// The map of `tokens` numbers for an image of this height and width.
    fn placed(tokens: usize, height: usize, width: usize) -> Tensor {
        let mut g = Graph::new();
        let x = g.input("x", Shape::batched(&[tokens]), Kind::Float);
        let y = on_patches(&mut g, x, &Shape::batched(&[3, height, width]), 1).unwrap();
        let y = g.scaled(1.0, y).unwrap();
        g.output("y", y);
        let numbers: Vec<f32> = (0..2 * tokens).map(|i| i as f32).collect();
        let program = Cpu::default().compile(&g).unwrap();
        program.run(&[Tensor::new([2, tokens], numbers).unwrap()]).unwrap().remove(0)
    }

    #[test]
    fn tokens_return_to_their_places_without_the_class_token() {
        let map = placed(7, 8, 12);
        assert_eq!(map.shape(), [2, 2, 3]);
        assert_eq!(*map.to_f64(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0]);
        assert_eq!(placed(6, 8, 12).shape(), [2, 2, 3]);
        assert_eq!(placed(197, 224, 224).shape(), [2, 14, 14]);
        assert_eq!(placed(3136, 224, 224).shape(), [2, 56, 56]);
    }

    #[test]
    fn numbers_that_are_no_patches_stay_where_they_were() {
        for tokens in [1, 2, 5, 8, 512] {
            assert_eq!(placed(tokens, 8, 12).shape(), [2, tokens]);
        }
    }

    /// A map of the values `[1, 2, 2, 2]`, finished for an image of 4 by 4 places.
    fn finished(finish: Finish, values: [f32; 8]) -> Vec<f64> {
        let mut g = Graph::new();
        let x = g.input("x", Shape::batched(&[2, 2, 2]), Kind::Float);
        let axes = Axes { channels: Some(1), image_channels: 1 };
        let scale = Scale::per_sample_of(Dim::Batch(1));
        let value = Scaled::plain(x, 0.0);
        let image = Shape::batched(&[3, 4, 4]);
        let map = finish.write(&mut g, &scale, value, Some(Reduction::Sum), axes, &image).unwrap();
        g.output("map", map.value);
        let program = Cpu::default().compile(&g).unwrap();
        program
            .run(&[Tensor::new([1, 2, 2, 2], values.to_vec()).unwrap()])
            .unwrap()
            .remove(0)
            .to_f64()
            .to_vec()
    }

    const VALUES: [f32; 8] = [3.0, -1.0, 0.0, 2.0, -4.0, -2.0, 0.0, 5.0];

    #[test]
    fn channels_become_one_number_as_the_finish_says() {
        let of = |channels| finished(Finish { channels, ..Finish::default() }, VALUES);
        assert_eq!(of(ChannelReduction::Own), [-1.0, -3.0, 0.0, 7.0]);
        assert_eq!(of(ChannelReduction::Mean), [-0.5, -1.5, 0.0, 3.5]);
        assert_eq!(of(ChannelReduction::Max), [3.0, -1.0, 0.0, 5.0]);
        assert_eq!(of(ChannelReduction::Positive), [3.0, 0.0, 0.0, 7.0]);
        let expected = [5.0, 5f64.sqrt(), 0.0, 29f64.sqrt()];
        assert!(of(ChannelReduction::L2).iter().zip(expected).all(|(found, e)| (found - e).abs() < 1e-6));
    }

    #[test]
    fn squares_of_large_numbers_do_not_overflow() {
        let large = VALUES.map(|value| value * 1e30);
        let found = finished(Finish { channels: ChannelReduction::L2, ..Finish::default() }, large);
        assert!((found[0] / 5e30 - 1.0).abs() < 1e-6, "{found:?}");
    }

    #[test]
    fn the_nearest_element_fills_a_block_and_bilinear_maps_blend() {
        let of = |upsampling| finished(Finish { size: Size::Input, upsampling, ..Finish::default() }, VALUES);
        let (a, b, c, d) = (-1.0, -3.0, 0.0, 7.0);
        assert_eq!(of(Upsampling::Nearest), [a, a, b, b, a, a, b, b, c, c, d, d, c, c, d, d]);
        let bilinear = of(Upsampling::Bilinear);
        assert_eq!((bilinear[0], bilinear[3], bilinear[15]), (a, b, d));
        assert_eq!(bilinear[1], 0.75 * a + 0.25 * b);
    }

    #[test]
    fn the_absolute_value_comes_before_or_after_the_channels() {
        let of = |absolute| finished(Finish { absolute, ..Finish::default() }, VALUES);
        assert_eq!(of(Absolute::Map), [1.0, 3.0, 0.0, 7.0]);
        assert_eq!(of(Absolute::Channels), [7.0, 3.0, 0.0, 7.0]);
    }
}
