//! The polytope of a class: a stream is the largest of many linear functions, and its gradients at several pictures are
//! vertices of one polytope.

use monosplit_graph::{Error, Result};
use monosplit_image::Picture;
use monosplit_render::{Blend, GridCell, OverlayOptions, Polytope, PolytopeEdge, ScalarField, blend};

/// White pixels between a picture and its gradient.
const GAP: usize = 2;

/// A picture and the gradient of a stream there.
#[derive(Clone, Debug)]
pub struct GradientVertex {
    /// The label above the picture.
    pub label: String,
    /// The picture.
    pub picture: Picture,
    /// The gradient.
    pub gradient: ScalarField,
}

/// The figure of the polytope with these vertices, without a title. Edges have the cosine of their gradients; three vertices
/// and more have their mean in the middle.
pub fn gradient_polytope(vertices: &[GradientVertex], options: &OverlayOptions) -> Result<Polytope> {
    let gradients: Vec<Vec<f64>> = vertices.iter().map(|vertex| unit(vertex.gradient.values())).collect();
    let count = vertices.len();
    let edges = (0..count).flat_map(|from| (from + 1..count).map(move |to| (from, to)));
    let edge = |(from, to): (usize, usize)| {
        let cosine = gradients[from].iter().zip(&gradients[to]).map(|(a, b)| a * b).sum();
        PolytopeEdge { from, to, similarity: Some(cosine) }
    };
    let edges: Vec<PolytopeEdge> = edges.map(edge).collect();
    let centre = if count > 2 { Some(mean(vertices, &gradients)?.cell(options)?) } else { None };
    let cells = vertices.iter().map(|vertex| vertex.cell(options)).collect::<Result<Vec<_>>>()?;
    Ok(Polytope { title: String::new(), vertices: cells, centre, edges, least_side: 128 })
}

impl GradientVertex {
    /// The picture beside the gradient.
    fn cell(&self, options: &OverlayOptions) -> Result<GridCell> {
        let Blend { picture, scale, .. } = blend(&self.picture, &self.gradient, options)?;
        let beside = beside(&self.picture, &picture)?;
        Ok(GridCell { scale: Some(scale), ..GridCell::picture(beside).labelled(self.label.clone()) })
    }
}

/// The values divided by their length; zeros stay zero.
fn unit(values: &[f32]) -> Vec<f64> {
    let length = values.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>().sqrt();
    let factor = if length > 0.0 { 1.0 / length } else { 0.0 };
    values.iter().map(|&v| f64::from(v) * factor).collect()
}

/// The mean picture and the mean of the gradients of length one.
fn mean(vertices: &[GradientVertex], gradients: &[Vec<f64>]) -> Result<GradientVertex> {
    let count = vertices.len() as f64;
    let Some(first) = vertices.first() else { return Err(Error::argument("name at least one picture")) };
    let pixel = |i: usize| {
        let sum: f64 = vertices.iter().filter_map(|v| v.picture.rgb().get(i)).map(|&b| f64::from(b)).sum();
        (sum / count).round() as u8
    };
    let rgb = (0..first.picture.rgb().len()).map(pixel).collect();
    let picture = Picture::new(first.picture.width(), first.picture.height(), rgb)?;
    let value = |i: usize| (gradients.iter().filter_map(|g| g.get(i)).sum::<f64>() / count) as f32;
    let values = (0..first.gradient.values().len()).map(value).collect();
    let gradient = ScalarField::new(first.gradient.width(), first.gradient.height(), values)?;
    Ok(GradientVertex { label: "their mean".into(), picture, gradient })
}

/// Two pictures of one height in one.
fn beside(left: &Picture, right: &Picture) -> Result<Picture> {
    let width = left.width() + GAP + right.width();
    let height = left.height().min(right.height());
    let mut rgb = Vec::with_capacity(width * height * 3);
    let rows = left.rgb().chunks_exact(3 * left.width()).zip(right.rgb().chunks_exact(3 * right.width()));
    for (left, right) in rows {
        rgb.extend_from_slice(left);
        rgb.extend([255; 3 * GAP]);
        rgb.extend_from_slice(right);
    }
    Picture::new(width, height, rgb)
}
