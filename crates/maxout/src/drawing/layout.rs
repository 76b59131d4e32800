//! Layered graph layout (Sugiyama): layers from left to right by longest path, order within a layer by barycentres, heights by
//! least squares that keep the order. Arrows that pass a layer have a position in it.

use monosplit_graph::{Error, Result};

/// Distance between the centres of neighbours in a layer.
const BOX_GAP: f64 = 64.0;
/// The same where one of them is an arrow that passes the layer.
const PASSING_GAP: f64 = 26.0;
const SWEEPS: usize = 24;
/// The largest number of bends.
const MAX_BENDS: usize = 40_000;

/// A position in a layer: a box, or the bend of an arrow that passes.
struct Point {
    layer: usize,
    is_box: bool,
    before: Vec<usize>,
    after: Vec<usize>,
}

/// The positions of boxes and arrows. Layers are numbered from the left; heights grow downwards from zero.
pub(super) struct LayeredLayout {
    /// Layer and height of every box.
    pub(super) boxes: Vec<(usize, f64)>,
    /// Layer and height of every point an arrow passes, both ends included.
    pub(super) ways: Vec<Vec<(usize, f64)>>,
    /// The largest height.
    pub(super) height: f64,
}

impl LayeredLayout {
    /// Lays out `count` boxes, whose arrows lead from lower to higher numbers.
    pub(super) fn new(count: usize, arrows: &[(usize, usize)]) -> Result<Self> {
        let mut points = boxes(count, arrows);
        let ways = with_bends(&mut points, arrows)?;
        let layers = ordered(&points);
        let heights = heights(&points, &layers);
        let place = |&point: &usize| (points[point].layer, heights[point]);
        Ok(LayeredLayout {
            boxes: (0..count).map(|i| place(&i)).collect(),
            ways: ways.iter().map(|way| way.iter().map(place).collect()).collect(),
            height: heights.iter().copied().fold(0.0, f64::max),
        })
    }
}

fn boxes(count: usize, arrows: &[(usize, usize)]) -> Vec<Point> {
    let mut layers = vec![0; count];
    // Arrows are sorted by their end, so the layer of their start is known.
    for &(from, to) in arrows {
        layers[to] = layers[to].max(layers[from] + 1);
    }
    let point = |layer| Point { layer, is_box: true, before: Vec::new(), after: Vec::new() };
    layers.into_iter().map(point).collect()
}

/// Adds a point for every layer an arrow passes, and returns the points of every arrow.
fn with_bends(points: &mut Vec<Point>, arrows: &[(usize, usize)]) -> Result<Vec<Vec<usize>>> {
    let mut ways = Vec::with_capacity(arrows.len());
    for &(from, to) in arrows {
        let mut way = vec![from];
        for layer in points[from].layer + 1..points[to].layer {
            way.push(points.len());
            points.push(Point { layer, is_box: false, before: Vec::new(), after: Vec::new() });
        }
        if points.len() > MAX_BENDS {
            return Err(Error::unsupported("the network is too deep to be drawn; draw a smaller one"));
        }
        way.push(to);
        for pair in way.windows(2) {
            points[pair[0]].after.push(pair[1]);
            points[pair[1]].before.push(pair[0]);
        }
        ways.push(way);
    }
    Ok(ways)
}

/// The points of every layer from top to bottom, of all orders tried the one with the fewest crossings.
fn ordered(points: &[Point]) -> Vec<Vec<usize>> {
    let depth = points.iter().map(|point| point.layer + 1).max().unwrap_or(0);
    let mut layers = vec![Vec::new(); depth];
    points.iter().enumerate().for_each(|(i, point)| layers[point.layer].push(i));
    let mut best = (crossings(points, &layers), layers.clone());
    let mut position = positions(points.len(), &layers);
    for sweep in 0..SWEEPS {
        let forwards = sweep % 2 == 0;
        for step in 0..depth {
            let layer = &mut layers[if forwards { step } else { depth - 1 - step }];
            let centre = |&i: &usize| {
                let neighbours = if forwards { &points[i].before } else { &points[i].after };
                (mean(neighbours.iter().map(|&n| position[n] as f64)).unwrap_or(position[i] as f64), i)
            };
            let mut pulled: Vec<(f64, usize)> = layer.iter().map(centre).collect();
            // The sort is stable: points with equal barycentres stay in order.
            pulled.sort_by(|a, b| a.0.total_cmp(&b.0));
            *layer = pulled.into_iter().map(|(_, i)| i).collect();
            layer.iter().enumerate().for_each(|(at, &i)| position[i] = at);
        }
        let found = crossings(points, &layers);
        if found < best.0 {
            best = (found, layers.clone());
        }
        if best.0 == 0 {
            break;
        }
    }
    best.1
}

fn positions(count: usize, layers: &[Vec<usize>]) -> Vec<usize> {
    let mut position = vec![0; count];
    layers.iter().for_each(|layer| layer.iter().enumerate().for_each(|(at, &i)| position[i] = at));
    position
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

/// Number of pairs of arrows between neighbouring layers that cross.
fn crossings(points: &[Point], layers: &[Vec<usize>]) -> usize {
    let position = positions(points.len(), layers);
    let mut total = 0;
    for (at, layer) in layers.iter().enumerate().skip(1) {
        // Inversions among the right ends, arrows being sorted by their left ends, counted in a binary indexed tree.
        let ends = layers[at - 1].iter().flat_map(|&left| {
            let mut ends: Vec<usize> = points[left].after.iter().map(|&right| position[right]).collect();
            ends.sort_unstable();
            ends
        });
        let mut tree = vec![0usize; layer.len() + 1];
        for (seen, end) in ends.enumerate() {
            let mut before = 0;
            let mut i = end + 1;
            while i > 0 {
                before += tree[i];
                i &= i - 1;
            }
            total += seen - before;
            i = end + 1;
            while i < tree.len() {
                tree[i] += 1;
                i += i & i.wrapping_neg();
            }
        }
    }
    total
}

/// Heights that bring neighbours close without changing the order.
fn heights(points: &[Point], layers: &[Vec<usize>]) -> Vec<f64> {
    let mut heights = vec![0.0; points.len()];
    for layer in layers {
        let offsets = offsets(points, layer);
        let middle = offsets.last().copied().unwrap_or(0.0) / 2.0;
        layer.iter().zip(&offsets).for_each(|(&i, offset)| heights[i] = offset - middle);
    }
    for sweep in 0..SWEEPS {
        for step in 0..layers.len() {
            let layer = &layers[if sweep % 2 == 0 { step } else { layers.len() - 1 - step }];
            let wish = |&i: &usize| {
                let neighbours = points[i].before.iter().chain(&points[i].after);
                mean(neighbours.map(|&n| heights[n])).unwrap_or(heights[i])
            };
            let wishes: Vec<f64> = layer.iter().map(wish).collect();
            let settled = spread(&wishes, &offsets(points, layer));
            layer.iter().zip(settled).for_each(|(&i, height)| heights[i] = height);
        }
    }
    let top = heights.iter().copied().fold(f64::INFINITY, f64::min);
    heights.iter().map(|height| height - top).collect()
}

/// The least height of every point of a layer above that of the first.
fn offsets(points: &[Point], layer: &[usize]) -> Vec<f64> {
    let mut offset = 0.0;
    let mut offsets = Vec::with_capacity(layer.len());
    for (at, &i) in layer.iter().enumerate() {
        if at > 0 {
            offset += if points[i].is_box && points[layer[at - 1]].is_box { BOX_GAP } else { PASSING_GAP };
            // A bend beside a box needs half of each.
            if points[i].is_box != points[layer[at - 1]].is_box {
                offset += (BOX_GAP - PASSING_GAP) / 3.0;
            }
        }
        offsets.push(offset);
    }
    offsets
}

/// The heights nearest to `wishes` that are at least as far apart as `offsets`: isotonic regression by pooling neighbours.
fn spread(wishes: &[f64], offsets: &[f64]) -> Vec<f64> {
    let mut pools: Vec<(f64, usize)> = Vec::new();
    for (wish, offset) in wishes.iter().zip(offsets) {
        let mut pool = (wish - offset, 1usize);
        while let Some(&(above, count)) = pools.last().filter(|above| above.0 > pool.0) {
            pool =
                ((above * count as f64 + pool.0 * pool.1 as f64) / (count + pool.1) as f64, count + pool.1);
            pools.pop();
        }
        pools.push(pool);
    }
    let levels = pools.into_iter().flat_map(|(level, count)| std::iter::repeat_n(level, count));
    levels.zip(offsets).map(|(level, offset)| level + offset).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrows_lead_to_the_right_and_boxes_stay_apart() {
        let arrows = [(0, 2), (1, 2), (0, 3), (2, 3), (1, 4), (3, 4), (0, 4)];
        let layout = LayeredLayout::new(5, &arrows).unwrap();
        for (way, &(from, to)) in layout.ways.iter().zip(&arrows) {
            assert!(way.windows(2).all(|pair| pair[0].0 + 1 == pair[1].0));
            assert_eq!((way[0], way[way.len() - 1]), (layout.boxes[from], layout.boxes[to]));
        }
        for (i, a) in layout.boxes.iter().enumerate() {
            for b in &layout.boxes[..i] {
                assert!(a.0 != b.0 || (a.1 - b.1).abs() >= BOX_GAP - 1e-9);
            }
        }
    }

    #[test]
    fn a_ladder_has_no_crossings() {
        // Two chains whose boxes are numbered crosswise.
        let arrows = [(0, 3), (1, 2), (2, 5), (3, 4)];
        let mut points = boxes(6, &arrows);
        with_bends(&mut points, &arrows).unwrap();
        assert_eq!(crossings(&points, &ordered(&points)), 0);
        assert_eq!(crossings(&points, &[vec![0, 1], vec![2, 3], vec![4, 5]]), 2);
    }

    #[test]
    fn spreading_keeps_order_and_what_already_fits() {
        assert_eq!(spread(&[0.0, 5.0, 20.0], &[0.0, 2.0, 4.0]), [0.0, 5.0, 20.0]);
        assert_eq!(spread(&[3.0, 3.0], &[0.0, 2.0]), [2.0, 4.0]);
    }
}
