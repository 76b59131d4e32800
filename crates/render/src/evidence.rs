//! A picture with what speaks for a class in red and what is missing for it in blue. Colours follow ranks: values are
//! ordered by magnitude and brightness decays exponentially along the order, as in the paper's figures.

use monosplit_graph::{Error, Result};
use monosplit_image::Picture;

/// How brightness decays: the last pixel shown has this share of the first one's.
const FAINTEST: f64 = 0.1;
/// The share of its own brightness the picture keeps below the colours.
const UNDERLAY: f64 = 0.35;

/// Draws one class. `present` and `missing` hold one number per pixel; those above `thresholds.0` and `thresholds.1` are
/// shown.
pub fn evidence(
    picture: &Picture,
    (present, missing): (&[f32], &[f32]),
    thresholds: (f32, f32),
) -> Result<Picture> {
    let count = picture.width() * picture.height();
    if present.len() != count || missing.len() != count {
        return Err(Error::argument(format!(
            "a picture of {count} pixels cannot be coloured by {} and {} numbers",
            present.len(),
            missing.len()
        )));
    }
    let (red, blue) = (brightness(present, thresholds.0), brightness(missing, thresholds.1));
    let mut rgb = Vec::with_capacity(count * 3);
    for (index, pixel) in picture.rgb().chunks_exact(3).enumerate() {
        let under = pixel.iter().map(|&v| f64::from(v)).sum::<f64>() / 3.0 * UNDERLAY;
        let rest = under * (1.0 - red[index].max(blue[index]));
        let level = |share: f64| (rest + 255.0 * share).min(255.0) as u8;
        rgb.extend([level(red[index]), level(0.25 * red[index].min(blue[index])), level(blue[index])]);
    }
    Picture::new(picture.width(), picture.height(), rgb)
}

/// For every value above the threshold, how bright its rank is; 0 for the rest.
fn brightness(values: &[f32], threshold: f32) -> Vec<f64> {
    let mut shown: Vec<usize> = (0..values.len()).filter(|&i| values[i] > threshold).collect();
    shown.sort_by(|&a, &b| values[b].total_cmp(&values[a]).then(a.cmp(&b)));
    let mut bright = vec![0.0; values.len()];
    let last = shown.len().saturating_sub(1).max(1) as f64;
    for (rank, index) in shown.into_iter().enumerate() {
        bright[index] = FAINTEST.powf(rank as f64 / last);
    }
    bright
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brightness_falls_with_rank_and_stops_at_the_threshold() {
        let bright = brightness(&[0.5, 0.1, 3.0, 0.2, f32::NAN], 0.2);
        assert_eq!(bright[2], 1.0);
        assert!((bright[0] - FAINTEST).abs() < 1e-12);
        assert_eq!([bright[1], bright[3], bright[4]], [0.0; 3]);
    }

    #[test]
    fn what_is_present_is_red_and_what_is_missing_blue() {
        let picture = Picture::new(3, 1, vec![200; 9]).unwrap();
        let drawn = evidence(&picture, (&[1.0, 0.0, 0.0], &[0.0, 1.0, 0.0]), (0.5, 0.5)).unwrap();
        assert_eq!(drawn.rgb(), [255, 0, 0, 0, 0, 255, 70, 70, 70]);
        assert!(evidence(&picture, (&[1.0], &[0.0]), (0.5, 0.5)).is_err());
    }
}
