//! Changes of parts of a picture: greyed, blurred, or taken from another.

use monosplit::image::Picture;
use monosplit::{Error, Result};

use crate::request::{Becomes, Edit, Part};

/// The value of all channels of a pixel that is greyed.
pub(crate) const GREY: u8 = 128;
/// The most points of a stroke, twice.
const MOST_NUMBERS: usize = 1 << 14;
/// The standard deviation of the blur, of the longer side.
const BLUR: f64 = 0.06;

/// A picture with one part changed. `other` is the picture that a part is taken from.
pub(crate) fn edited(picture: &Picture, edit: &Edit, other: Option<&Picture>) -> Result<Picture> {
    let (width, height) = (picture.width(), picture.height());
    let inside = covered(&edit.part, width, height)?;
    let blurred;
    let source = match edit.becomes {
        Becomes::Grey => None,
        Becomes::Blur => {
            blurred = blurred_picture(picture)?;
            Some(&blurred)
        }
        Becomes::Swap => {
            let other =
                other.ok_or_else(|| Error::argument("choose the picture that the part is taken from"))?;
            if (other.width(), other.height()) != (width, height) {
                return Err(Error::argument("the two pictures are not of the same size"));
            }
            Some(other)
        }
    };
    let mut rgb = picture.rgb().to_vec();
    for (at, pixel) in rgb.chunks_exact_mut(3).enumerate().filter(|(at, _)| inside[*at]) {
        match source {
            None => pixel.fill(GREY),
            Some(source) => pixel.copy_from_slice(&source.rgb()[3 * at..3 * at + 3]),
        }
    }
    Picture::new(width, height, rgb)
}

/// Which pixels a part covers.
fn covered(part: &Part, width: usize, height: usize) -> Result<Vec<bool>> {
    let mut inside = vec![false; width * height];
    let mut mark = |left: f64, top: f64, right: f64, bottom: f64, holds: &dyn Fn(f64, f64) -> bool| {
        let clip = |value: f64, length: usize| value.clamp(0.0, length as f64) as usize;
        for y in clip(top.floor(), height)..clip(bottom.ceil(), height) {
            for x in clip(left.floor(), width)..clip(right.ceil(), width) {
                inside[y * width + x] |= holds(x as f64 + 0.5, y as f64 + 0.5);
            }
        }
    };
    match part {
        Part::Rectangle([left, top, right, bottom]) => {
            let [left, top, right, bottom] = [left, top, right, bottom].map(|&side| side as f64);
            mark(left, top, right, bottom, &|_, _| true);
        }
        Part::Stroke { radius, points } => {
            let radius = *radius;
            if points.len() > MOST_NUMBERS || !(radius > 0.0 && radius.is_finite()) {
                return Err(Error::argument("a stroke has a radius above 0 and at most 8192 points"));
            }
            let points: Vec<[f64; 2]> = points.chunks_exact(2).map(|point| [point[0], point[1]]).collect();
            let single = points.first().map(|&point| [point, point]);
            let pieces = points.windows(2).map(|pair| [pair[0], pair[1]]);
            for [from, to] in single.into_iter().chain(pieces) {
                let low = [0, 1].map(|axis| from[axis].min(to[axis]) - radius);
                let high = [0, 1].map(|axis| from[axis].max(to[axis]) + radius);
                mark(low[0], low[1], high[0], high[1], &|x, y| distance(from, to, [x, y]) <= radius);
            }
        }
    }
    Ok(inside)
}

/// The distance of a point from a line segment.
fn distance(from: [f64; 2], to: [f64; 2], point: [f64; 2]) -> f64 {
    let along = [to[0] - from[0], to[1] - from[1]];
    let away = [point[0] - from[0], point[1] - from[1]];
    let length = along[0] * along[0] + along[1] * along[1];
    let share = if length > 0.0 { (along[0] * away[0] + along[1] * away[1]) / length } else { 0.0 };
    let share = share.clamp(0.0, 1.0);
    (away[0] - share * along[0]).hypot(away[1] - share * along[1])
}

/// A picture under a Gaussian blur, its edge pixels repeated outside.
pub(crate) fn blurred_picture(picture: &Picture) -> Result<Picture> {
    let (width, height) = (picture.width(), picture.height());
    let deviation = (BLUR * width.max(height) as f64).max(1.0);
    let radius = (3.0 * deviation).ceil() as i64;
    let weights: Vec<f64> =
        (-radius..=radius).map(|at| (-0.5 * (at as f64 / deviation).powi(2)).exp()).collect();
    let total: f64 = weights.iter().sum();
    let weights: Vec<f32> = weights.iter().map(|weight| (weight / total) as f32).collect();
    let values: Vec<f32> = picture.rgb().iter().map(|&value| f32::from(value)).collect();
    let rows = along(&values, (width, height), (3, 3 * width), &weights);
    let both = along(&rows, (height, width), (3 * width, 3), &weights);
    Picture::new(width, height, both.iter().map(|value| value.round().clamp(0.0, 255.0) as u8).collect())
}

/// A weighted sum along one axis of `length` elements a `step` apart, of which there are `lines` a `next` apart.
fn along(
    values: &[f32],
    (length, lines): (usize, usize),
    (step, next): (usize, usize),
    weights: &[f32],
) -> Vec<f32> {
    let mut result = vec![0.0; values.len()];
    let radius = weights.len() as i64 / 2;
    for line in 0..lines {
        for at in 0..length {
            for channel in 0..3 {
                let start = line * next + channel;
                let read = |offset: i64| {
                    let index = (at as i64 + offset - radius).clamp(0, length as i64 - 1) as usize;
                    values[start + index * step]
                };
                let sum =
                    weights.iter().enumerate().map(|(offset, weight)| weight * read(offset as i64)).sum();
                result[start + at * step] = sum;
            }
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gradient(width: usize, height: usize) -> Picture {
        let rgb = (0..width * height).flat_map(|at| [(at % width) as u8 * 4, (at / width) as u8 * 4, 7]);
        Picture::new(width, height, rgb.collect()).unwrap()
    }

    fn edit(becomes: Becomes, part: Part) -> Edit {
        Edit { becomes, with: None, part }
    }

    #[test]
    fn a_rectangle_is_greyed_and_nothing_else() {
        let picture = gradient(20, 10);
        let grey = edited(&picture, &edit(Becomes::Grey, Part::Rectangle([-5, 2, 3, 4])), None).unwrap();
        for (at, (before, after)) in picture.rgb().chunks(3).zip(grey.rgb().chunks(3)).enumerate() {
            let is_inside = at % 20 < 3 && (2..4).contains(&(at / 20));
            assert_eq!(after, if is_inside { &[GREY; 3] } else { before }, "pixel {at}");
        }
    }

    /// The pixels within the radius of a straight stroke are those between two half discs: `2rl + πr²`.
    #[test]
    fn a_stroke_covers_its_area() {
        let part = Part::Stroke { radius: 10.0, points: vec![30.0, 40.0, 90.0, 40.0] };
        let count = covered(&part, 200, 100).unwrap().into_iter().filter(|&inside| inside).count() as f64;
        let area = 2.0 * 10.0 * 60.0 + std::f64::consts::PI * 100.0;
        assert!((count - area).abs() < 0.02 * area, "{count} pixels, expected about {area}");
    }

    #[test]
    fn a_blur_keeps_the_mean_and_what_is_constant() {
        let flat = Picture::new(30, 20, vec![90; 1800]).unwrap();
        assert_eq!(blurred_picture(&flat).unwrap(), flat);
        // A single bright pixel far from the borders is spread and not lost.
        let mut rgb = vec![0; 3 * 64 * 64];
        for y in 28..36 {
            for x in 28..36 {
                rgb[3 * (y * 64 + x)] = 255;
            }
        }
        let spread = blurred_picture(&Picture::new(64, 64, rgb).unwrap()).unwrap();
        let total: u64 = spread.rgb().iter().map(|&value| u64::from(value)).sum();
        let before = 64.0 * 255.0;
        assert!((total as f64 - before).abs() < 0.05 * before, "{total} of {before}");
        assert!(spread.rgb()[3 * (32 * 64 + 32)] < 200);
    }

    #[test]
    fn a_part_of_another_picture_needs_that_picture() {
        let picture = gradient(8, 8);
        let swap = edit(Becomes::Swap, Part::Rectangle([0, 0, 4, 8]));
        assert!(edited(&picture, &swap, None).unwrap_err().to_string().contains("choose the picture"));
        let other = Picture::new(8, 8, vec![200; 192]).unwrap();
        let swapped = edited(&picture, &swap, Some(&other)).unwrap();
        assert_eq!((swapped.rgb()[0], swapped.rgb()[21]), (200, picture.rgb()[21]));
    }
}
