//! Linear upsampling of maps along any number of axes, in the coordinate conventions of the methods that use it.

/// Two neighbouring elements and the weight of the second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tap {
    first: usize,
    second: usize,
    share: f64,
}

/// The taps of an axis of length `to` on one of length `from`; `at` maps the index of an element to a coordinate.
fn taps(from: usize, to: usize, at: impl Fn(usize) -> f64) -> Vec<Tap> {
    let last = from.saturating_sub(1);
    let tap = |i| {
        let position = at(i).clamp(0.0, last as f64);
        let first = (position as usize).min(last);
        Tap { first, second: (first + 1).min(last), share: position - first as f64 }
    };
    (0..to).map(tap).collect()
}

/// `align_corners`: the first and last elements of both axes coincide.
pub(crate) fn corners(from: usize, to: usize) -> Vec<Tap> {
    let scale = if to > 1 { from.saturating_sub(1) as f64 / (to - 1) as f64 } else { 0.0 };
    taps(from, to, |i| i as f64 * scale)
}

/// Half-pixel centres: the borders of both axes coincide. Beyond the outermost centres the edge is repeated.
pub(crate) fn half_pixel(from: usize, to: usize) -> Vec<Tap> {
    taps(from, to, |i| (i as f64 + 0.5) * from as f64 / to as f64 - 0.5)
}

/// Like [`half_pixel`], with reflection instead of repetition beyond the outermost centres.
pub(crate) fn mirrored(from: usize, to: usize) -> Vec<Tap> {
    let last = from.saturating_sub(1) as f64;
    taps(from, to, |i| {
        let position = ((i as f64 + 0.5) * from as f64 / to as f64 - 0.5).abs();
        if position > last { 2.0 * last - position } else { position }
    })
}

/// The upsampled map of one with these lengths, row-major; there are taps for each axis.
pub(crate) fn enlarged(map: &[f64], lengths: &[usize], taps: &[Vec<Tap>]) -> Vec<f64> {
    let (Some((_, lengths)), Some((first, taps))) = (lengths.split_first(), taps.split_first()) else {
        return map.to_vec();
    };
    let blend = |a: f64, b: f64, share: f64| a + share * (b - a);
    let size: usize = lengths.iter().product();
    let slice = |at: usize| &map[at * size..(at + 1) * size];
    let mut larger = Vec::with_capacity(first.len() * taps.iter().map(Vec::len).product::<usize>());
    for tap in first {
        let pairs = slice(tap.first).iter().zip(slice(tap.second));
        let between: Vec<f64> = pairs.map(|(&a, &b)| blend(a, b, tap.share)).collect();
        larger.extend(enlarged(&between, lengths, taps));
    }
    larger
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(taps: &[Tap], map: &[f64]) -> Vec<f64> {
        enlarged(map, &[map.len()], &[taps.to_vec()])
    }

    fn close(found: &[f64], expected: &[f64]) {
        assert_eq!(found.len(), expected.len());
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{found:?}");
    }

    #[test]
    fn both_conventions_are_pytorchs() {
        // torch.nn.functional.interpolate([1, 3, 2], size=5, mode='linear', align_corners=True and False)
        close(&line(&corners(3, 5), &[1.0, 3.0, 2.0]), &[1.0, 2.0, 3.0, 2.5, 2.0]);
        close(&line(&half_pixel(3, 5), &[1.0, 3.0, 2.0]), &[1.0, 1.8, 3.0, 2.4, 2.0]);
    }

    #[test]
    fn the_mirrored_convention_is_that_of_scikit_image() {
        // skimage.transform.resize(np.array([[0., 1.], [0., 1.]]), (2, 8), order=1, mode='reflect',
        // anti_aliasing=False)[0]
        let found = line(&mirrored(2, 8), &[0.0, 1.0]);
        close(&found, &[0.375, 0.125, 0.125, 0.375, 0.625, 0.875, 0.875, 0.625]);
    }
}
