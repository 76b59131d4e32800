//! Linear operations written out as coefficients: which output element takes how much of which input element. Slow
//! and plain on purpose; one sample at a time, the batch axis having length 1.

use monosplit_graph::op::{Coordinates, Divisor, Interpolation, Padding, ResizeAxis, Rounding, Window};

/// Output element, input element, coefficient.
pub(crate) type Entry = (usize, usize, f64);

/// All indices of an array, in order.
pub(crate) fn each(shape: &[usize]) -> Vec<Vec<usize>> {
    let count: usize = shape.iter().product();
    (0..count)
        .map(|mut flat| {
            let mut index = vec![0; shape.len()];
            for axis in (0..shape.len()).rev() {
                index[axis] = flat % shape[axis];
                flat /= shape[axis];
            }
            index
        })
        .collect()
}

pub(crate) fn flat(index: &[usize], shape: &[usize]) -> usize {
    index.iter().zip(shape).fold(0, |at, (i, n)| at * n + i)
}

/// For every element of an array of shape `to`, the element of shape `from` that is broadcast to it.
pub(crate) fn broadcast(from: &[usize], to: &[usize]) -> Vec<usize> {
    let skipped = to.len() - from.len();
    let source = |index: &[usize]| {
        let kept: Vec<usize> =
            index[skipped..].iter().zip(from).map(|(&i, &n)| if n == 1 { 0 } else { i }).collect();
        flat(&kept, from)
    };
    each(to).iter().map(|index| source(index)).collect()
}

/// Entries of the same place added up, so that a coefficient has one sign.
pub(crate) fn merged(mut entries: Vec<Entry>) -> Vec<Entry> {
    entries.sort_by_key(|e| (e.0, e.1));
    entries.dedup_by(|later, kept| {
        let same = (later.0, later.1) == (kept.0, kept.1);
        if same {
            kept.2 += later.2;
        }
        same
    });
    entries
}

/// Where tap `tap` of a window at `place` lies, counted from the first input element.
fn position(window: &Window, axis: usize, place: usize, tap: usize) -> isize {
    (place * window.stride[axis] + tap * window.dilation[axis]) as isize - window.pad[axis].0 as isize
}

/// The element under each tap of the window at `place`; none where it lies outside.
fn under(window: &Window, place: &[usize], spatial: &[usize]) -> Vec<(Vec<usize>, Option<Vec<usize>>)> {
    each(&window.kernel)
        .into_iter()
        .map(|tap| {
            let found = (0..tap.len())
                .map(|axis| {
                    usize::try_from(position(window, axis, place[axis], tap[axis]))
                        .ok()
                        .filter(|&p| p < spatial[axis])
                })
                .collect();
            (tap, found)
        })
        .collect()
}

pub(crate) fn conv(
    window: &Window,
    groups: usize,
    x: &[usize],
    w: (&[f64], &[usize]),
    y: &[usize],
) -> Vec<Entry> {
    let per_group = (x[1] / groups, y[1] / groups);
    let mut entries = Vec::new();
    for out in each(y) {
        for (tap, found) in under(window, &out[2..], &x[2..]) {
            let Some(found) = found else { continue };
            for c in 0..per_group.0 {
                let input = [&[0, out[1] / per_group.1 * per_group.0 + c], &found[..]].concat();
                let weight = w.0[flat(&[&[out[1], c], &tap[..]].concat(), w.1)];
                entries.push((flat(&out, y), flat(&input, x), weight));
            }
        }
    }
    entries
}

pub(crate) fn conv_transpose(
    window: &Window,
    groups: usize,
    x: &[usize],
    w: (&[f64], &[usize]),
    y: &[usize],
) -> Vec<Entry> {
    // Transposed, it is the convolution that reads `y` and has the same kernel.
    conv(window, groups, y, w, x).into_iter().map(|(o, i, w)| (i, o, w)).collect()
}

/// The input elements under the window at every output element.
pub(crate) fn windows(window: &Window, x: &[usize], y: &[usize]) -> Vec<Vec<usize>> {
    each(y)
        .iter()
        .map(|out| {
            let found = under(window, &out[2..], &x[2..]).into_iter().filter_map(|(_, found)| found);
            found.map(|p| flat(&[&out[..2], &p[..]].concat(), x)).collect()
        })
        .collect()
}

pub(crate) fn average_pool(window: &Window, divisor: Divisor, x: &[usize], y: &[usize]) -> Vec<Entry> {
    let padded = |place: &[usize]| {
        let inside = |tap: &Vec<usize>| {
            (0..tap.len())
                .all(|a| position(window, a, place[a], tap[a]) < (x[a + 2] + window.pad[a].1) as isize)
        };
        each(&window.kernel).iter().filter(|tap| inside(tap)).count()
    };
    let mut entries = Vec::new();
    for (o, (out, members)) in each(y).iter().zip(windows(window, x, y)).enumerate() {
        let count = match divisor {
            Divisor::Covered => members.len(),
            Divisor::Padded => padded(&out[2..]),
            Divisor::One => 1,
        };
        entries.extend(members.into_iter().map(|i| (o, i, 1.0 / count as f64)));
    }
    entries
}

/// Reordering: output element `index` reads input element `source(index)`, or nothing.
pub(crate) fn moved(x: &[usize], y: &[usize], source: impl Fn(&[usize]) -> Option<Vec<usize>>) -> Vec<Entry> {
    let places = each(y).into_iter().enumerate();
    places.filter_map(|(o, index)| source(&index).map(|i| (o, flat(&i, x), 1.0))).collect()
}

pub(crate) fn pad(padding: Padding, pads: &[(usize, usize)], x: &[usize], y: &[usize]) -> Vec<Entry> {
    moved(x, y, |index| {
        (0..x.len())
            .map(|axis| {
                let (i, n) = (index[axis] as isize - pads[axis].0 as isize, x[axis] as isize);
                let i = match padding {
                    Padding::Constant(_) if !(0..n).contains(&i) => return None,
                    Padding::Constant(_) => i,
                    Padding::Edge => i.clamp(0, n - 1),
                    Padding::Reflect => (n - 1) - ((n - 1) - i.abs()).abs(),
                };
                Some(i as usize)
            })
            .collect()
    })
}

/// The taps of one output element along a resized axis. The scale is taken to be `to/from` exactly, so that nearest
/// neighbours can be found in whole numbers.
fn taps(
    from: usize,
    to: usize,
    place: usize,
    how: Interpolation,
    coordinates: Coordinates,
) -> Vec<(usize, f64)> {
    let (from, to, place) = (from as i64, to as i64, place as i64);
    let (above, below) = match coordinates {
        Coordinates::HalfPixel => ((2 * place + 1) * from - to, 2 * to),
        Coordinates::PytorchHalfPixel | Coordinates::AlignCorners if to == 1 => (0, 1),
        Coordinates::PytorchHalfPixel => ((2 * place + 1) * from - to, 2 * to),
        Coordinates::AlignCorners => (place * (from - 1), to - 1),
        Coordinates::Asymmetric => (place * from, to),
    };
    let inside = |i: i64| i.clamp(0, from - 1) as usize;
    let floor = |a: i64, b: i64| a.div_euclid(b);
    let ceil = |a: i64, b: i64| -(-a).div_euclid(b);
    let x = above as f64 / below as f64;
    match how {
        Interpolation::Nearest(rounding) => {
            let nearest = match rounding {
                Rounding::Floor => floor(above, below),
                Rounding::Ceil => ceil(above, below),
                Rounding::PreferFloor => ceil(2 * above - below, 2 * below),
                Rounding::PreferCeil => floor(2 * above + below, 2 * below),
            };
            vec![(inside(nearest), 1.0)]
        }
        Interpolation::Linear => {
            let x = x.clamp(0.0, (from - 1) as f64);
            let left = x.floor() as i64;
            vec![(inside(left), 1.0 - (x - left as f64)), (inside(left + 1), x - left as f64)]
        }
        Interpolation::Cubic { coefficient, exclude_outside } => {
            let left = floor(above, below);
            let kept = (left - 1..=left + 2).filter(|i| !exclude_outside || (0..from).contains(i));
            let weights: Vec<(i64, f64)> =
                kept.map(|i| (i, keys((x - i as f64).abs(), coefficient))).collect();
            let total: f64 = if exclude_outside { weights.iter().map(|w| w.1).sum() } else { 1.0 };
            weights.into_iter().map(|(i, w)| (inside(i), w / total)).collect()
        }
    }
}

/// Keys' cubic convolution kernel.
fn keys(t: f64, a: f64) -> f64 {
    match t {
        t if t <= 1.0 => (a + 2.0) * t.powi(3) - (a + 3.0) * t.powi(2) + 1.0,
        t if t < 2.0 => a * t.powi(3) - 5.0 * a * t.powi(2) + 8.0 * a * t - 4.0 * a,
        _ => 0.0,
    }
}

pub(crate) fn resize(
    axes: &[ResizeAxis],
    how: Interpolation,
    coordinates: Coordinates,
    x: &[usize],
    y: &[usize],
) -> Vec<Entry> {
    let mut entries = Vec::new();
    for (o, out) in each(y).into_iter().enumerate() {
        let mut sources = vec![(out.clone(), 1.0)];
        for resized in axes {
            let axis = resized.axis;
            let taps = taps(x[axis], y[axis], out[axis], how, coordinates);
            let extended = |(index, weight): (Vec<usize>, f64)| {
                let at = |&(i, w): &(usize, f64)| {
                    let mut index = index.clone();
                    index[axis] = i;
                    (index, weight * w)
                };
                taps.iter().map(at).collect::<Vec<_>>()
            };
            sources = sources.into_iter().flat_map(extended).collect();
        }
        entries.extend(sources.into_iter().map(|(index, w)| (o, flat(&index, x), w)));
    }
    entries
}

/// For each input element of a reduction, the output element it goes to.
pub(crate) fn reduced(x: &[usize], axes: &[usize]) -> Vec<usize> {
    let kept: Vec<usize> = (0..x.len()).filter(|a| !axes.contains(a)).collect();
    let shape: Vec<usize> = kept.iter().map(|&a| x[a]).collect();
    each(x).iter().map(|index| flat(&kept.iter().map(|&a| index[a]).collect::<Vec<_>>(), &shape)).collect()
}

/// Terms `(out, a, b)` of a matrix product `out = Σ a·b`, shapes broadcast over leading axes.
pub(crate) fn matmul(
    (trans_a, trans_b): (bool, bool),
    a: &[usize],
    b: &[usize],
    y: &[usize],
) -> Vec<(usize, usize, usize)> {
    let lead = |index: &[usize], shape: &[usize]| {
        let batch = &shape[..shape.len() - 2];
        let skipped = index.len() - 2 - batch.len();
        batch
            .iter()
            .enumerate()
            .map(|(k, &n)| if n == 1 { 0 } else { index[skipped + k] })
            .collect::<Vec<_>>()
    };
    let matrix = |transposed: bool, i: usize, j: usize| if transposed { [j, i] } else { [i, j] };
    let inner = a[a.len() - if trans_a { 2 } else { 1 }];
    let mut terms = Vec::new();
    for (o, index) in each(y).into_iter().enumerate() {
        let (row, column) = (index[index.len() - 2], index[index.len() - 1]);
        for k in 0..inner {
            let at_a = [lead(&index, a), matrix(trans_a, row, k).to_vec()].concat();
            let at_b = [lead(&index, b), matrix(trans_b, k, column).to_vec()].concat();
            terms.push((o, flat(&at_a, a), flat(&at_b, b)));
        }
    }
    terms
}
