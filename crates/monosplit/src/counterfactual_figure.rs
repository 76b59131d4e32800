//! The figure of a counterfactual: the picture, and for each class what is present and what is missing.

use monosplit_graph::{Error, Result, Tensor};
use monosplit_image::Picture;
use monosplit_render::{Tile, evidence};
use monosplit_train::Counterfactual;

use crate::labels::Labels;

/// The tiles of the figure in two rows: the picture `image` first, then a tile for each class. Gradients above `threshold` are
/// shown, as a share of the largest gradient of their colour over all classes.
pub fn counterfactual_tiles(
    image: &Tensor,
    found: &Counterfactual,
    labels: &Labels,
    threshold: f32,
) -> Result<Vec<Tile>> {
    let picture = grey(image)?;
    let limit = |rows: &[Vec<f32>]| rows.iter().flatten().copied().fold(0f32, f32::max) * threshold;
    let planes = image.shape().get(1).copied().unwrap_or(1).max(1);
    let (present, missing) = (summed(&found.present, planes), summed(&found.missing, planes));
    let limits = (limit(&present), limit(&missing));
    let class = |(index, (present, missing)): (usize, (&Vec<f32>, &Vec<f32>))| {
        let name = labels.named(index).unwrap_or_else(|| index.to_string());
        let picture = evidence(&picture, (present, missing), limits)?;
        Ok(Tile { label: format!("Logit {name}"), picture })
    };
    let classes: Result<Vec<Tile>> = present.iter().zip(&missing).enumerate().map(class).collect();
    let mut tiles = classes?;
    let second_row = tiles.len().div_ceil(2);
    let blank = Picture::new(picture.width(), picture.height(), vec![255; picture.rgb().len()])?;
    tiles.insert(second_row, Tile { label: String::new(), picture: blank });
    tiles.insert(0, Tile { label: "Original".to_owned(), picture });
    Ok(tiles)
}

/// Gradients summed over channels.
fn summed(rows: &[Vec<f32>], planes: usize) -> Vec<Vec<f32>> {
    let sum = |row: &Vec<f32>| {
        let pixels = row.len() / planes;
        (0..pixels).map(|i| row.iter().skip(i).step_by(pixels.max(1)).sum()).collect()
    };
    rows.iter().map(sum).collect()
}

/// A sample with values from 0 to 1 as a picture in shades of grey.
fn grey(image: &Tensor) -> Result<Picture> {
    let &[1, planes, height, width] = image.shape() else {
        return Err(Error::shape(format!(
            "expected one picture, found a value of shape {:?}",
            image.shape()
        )));
    };
    let (values, pixels) = (image.to_f32(), height * width);
    let shade = |i: usize| {
        let sum: f32 = values.iter().skip(i).step_by(pixels.max(1)).sum();
        (sum / planes.max(1) as f32 * 255.0).clamp(0.0, 255.0) as u8
    };
    Picture::new(width, height, (0..pixels).flat_map(|i| [shade(i); 3]).collect())
}
