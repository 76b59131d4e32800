//! Maps of what is no picture as figures: tables as bars, series as curves over a band of colours, volumes and videos as strips
//! of slices.

use monosplit_graph::{Result, Tensor};
use monosplit_image::Picture;
use monosplit_render::{
    Bar, Bars, Caption, Grid, GridCell, LinePlot, OverlayOptions, ScalarField, Scene, Series, Slices,
};

use crate::input::Sample;

/// The largest number of bars, curves and strips of a figure.
const MOST_BARS: usize = 40;
const MOST_CURVES: usize = 8;
const MOST_STRIPS: usize = 400;

impl Sample {
    /// A map of this sample as a figure, where both have the axes of a table (`[N, F]`), a series (`[N, C, T]`) or a volume
    /// (`[N, C, D, H, W]`); none for other maps. `values` is the map of the sample without the axis of samples.
    pub fn figure(
        &self,
        values: &Tensor,
        caption: &Caption,
        options: &OverlayOptions,
    ) -> Result<Option<Scene>> {
        let (own, title) = (self.tensor.shape().get(1..).unwrap_or_default(), caption.text());
        match (own, values.shape()) {
            (&[count], &[of_map]) if count == of_map => self.bars(values, title).map(Some),
            (&[channels, length], &[_]) => self.curves(values, (channels, length), title).map(Some),
            (&[channels, depth, height, width], &[_, _, _]) => {
                self.slices(values, [channels, depth, height, width], title, options).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// The same for any map that can be drawn, those of images among them; none for other maps. `of_layer` says that the map is of
    /// a layer, whose units are not the columns of a table even where there are as many.
    pub fn any_figure(
        &self,
        values: &Tensor,
        caption: &Caption,
        of_layer: bool,
        options: &OverlayOptions,
    ) -> Result<Option<Scene>> {
        if let (&[_], 2, true) = (values.shape(), self.tensor.shape().len(), of_layer) {
            return unit_figure(values, caption).map(Some);
        }
        if let Some(scene) = self.figure(values, caption, options)? {
            return Ok(Some(scene));
        }
        let &[height, width] = values.shape() else { return Ok(None) };
        let field = ScalarField::new(width, height, values.to_f32().to_vec())?;
        let cell = match &self.picture {
            Some(picture) => GridCell::overlay(picture, &field, options)?,
            None => {
                GridCell::overlay(&self.blank(&field)?, &field, &OverlayOptions { opacity: 1.0, ..*options })?
            }
        };
        Grid::strip("", [(caption.text(), cell)]).into_scene().map(Some)
    }

    fn bars(&self, values: &Tensor, title: String) -> Result<Scene> {
        let own = self.tensor.to_f64();
        let label = |i: usize| {
            let name = self.features.as_ref().and_then(|names| names.get(i));
            let name = name.cloned().unwrap_or_else(|| format!("feature {i}"));
            format!("{name} = {}", monosplit_render::number(own[i]))
        };
        bars(values, title, label)
    }

    /// The channels of a series as curves, and the map as a band of colours behind them.
    fn curves(
        &self,
        values: &Tensor,
        (channels, length): (usize, usize),
        mut title: String,
    ) -> Result<Scene> {
        let own = self.tensor.to_f64();
        let curve = |channel: usize| {
            let points = (0..length).map(|t| (t as f64, own[channel * length + t]));
            Series { name: format!("channel {channel}"), points: points.collect(), band: Vec::new() }
        };
        if channels > MOST_CURVES {
            title += &format!(" · the first {MOST_CURVES} of {channels} channels");
        }
        let values = values.to_f32();
        let strips = values.len().min(MOST_STRIPS);
        let last = length.saturating_sub(1) as f64;
        let strip = |i: usize| {
            let (from, to) = (i * values.len() / strips, (i + 1) * values.len() / strips);
            let mean = values[from..to].iter().sum::<f32>() / (to - from) as f32;
            // A map of fewer places, as of a layer behind strides, spreads over the series.
            let middle = (from + to) as f64 / 2.0 - 0.5;
            (middle * last / (values.len() as f64 - 1.0).max(1.0), mean)
        };
        let series = (0..channels.min(MOST_CURVES)).map(curve).collect();
        let plot = LinePlot {
            title,
            x_label: "position".into(),
            y_label: "value".into(),
            series,
            heat: (0..strips).map(strip).collect(),
            width: 640.0,
            ..LinePlot::default()
        };
        plot.into_scene()
    }

    /// The slices of a volume in shades of grey with the map over them.
    fn slices(
        &self,
        values: &Tensor,
        [channels, depth, height, width]: [usize; 4],
        title: String,
        options: &OverlayOptions,
    ) -> Result<Scene> {
        let (own, area) = (self.tensor.to_f64(), height * width);
        let grey: Vec<f64> = (0..depth * area)
            .map(|at| (0..channels).map(|c| own[c * depth * area + at]).sum::<f64>())
            .collect();
        let (low, high) = grey.iter().fold((f64::MAX, f64::MIN), |(low, high), &v| (low.min(v), high.max(v)));
        let shade = |v: &f64| [((v - low) / (high - low).max(f64::MIN_POSITIVE) * 255.0).round() as u8; 3];
        let picture = |slice: &[f64]| Picture::new(width, height, slice.iter().flat_map(shade).collect());
        let pictures = grey.chunks(area.max(1)).map(picture).collect::<Result<_>>()?;
        let (numbers, of_slice) = (values.to_f32(), values.shape()[1] * values.shape()[2]);
        let field = |slice: &[f32]| ScalarField::new(values.shape()[2], values.shape()[1], slice.to_vec());
        let maps = numbers.chunks(of_slice.max(1)).map(field).collect::<Result<_>>()?;
        Slices { title, pictures, maps }.into_grid(options)?.into_scene()
    }
}

/// A map of the units of a layer, one number for each, as bars.
pub fn unit_figure(values: &Tensor, caption: &Caption) -> Result<Scene> {
    bars(values, caption.text(), |i| format!("unit {i}"))
}

/// The numbers with the largest magnitudes as bars, in their order.
fn bars(values: &Tensor, mut title: String, label: impl Fn(usize) -> String) -> Result<Scene> {
    let values = values.to_f64();
    let mut chosen: Vec<usize> = (0..values.len()).collect();
    if values.len() > MOST_BARS {
        chosen.sort_by(|&a, &b| values[b].abs().total_cmp(&values[a].abs()));
        chosen.truncate(MOST_BARS);
        chosen.sort_unstable();
        title += &format!(" · the {MOST_BARS} largest of {}", values.len());
    }
    let bar = |i: usize| Bar { label: label(i), value: values[i], interval: None };
    Bars { title, bars: chosen.into_iter().map(bar).collect(), ..Bars::default() }.into_scene()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(shape: &[usize]) -> Sample {
        let count: usize = shape.iter().product();
        let numbers: Vec<f32> = (0..count).map(|i| (i as f32 * 0.7).sin()).collect();
        let tensor = Tensor::new([&[1], shape].concat(), numbers).unwrap();
        Sample { name: "x".into(), tensor, picture: None, features: None }
    }

    fn drawn(own: &[usize], map: &[usize]) -> Option<Scene> {
        let count: usize = map.iter().product();
        let values = Tensor::new(map, (0..count).map(|i| i as f32 - 1.0).collect::<Vec<_>>()).unwrap();
        let caption = Caption { method: "Gradient".into(), ..Caption::default() };
        sample(own).figure(&values, &caption, &OverlayOptions::default()).unwrap()
    }

    #[test]
    fn each_kind_of_sample_has_its_figure() {
        assert!(drawn(&[5], &[5]).unwrap().description().starts_with("Bars: feature 0 = 0"));
        assert!(drawn(&[100], &[100]).unwrap().title().contains("the 40 largest of 100"));
        for (own, map) in [([3, 50], 50), ([1, 2000], 2000), ([12, 64], 7), ([1, 1], 1)] {
            assert!(drawn(&own, &[map]).unwrap().description().starts_with("Curves"));
        }
        assert!(drawn(&[1, 6, 8, 8], &[3, 4, 4]).unwrap().description().starts_with("Pictures in 1 rows"));
        assert!(drawn(&[3, 20, 8, 8], &[20, 8, 8]).is_some());
        // What has other axes is left to others: pictures, and channels that were kept apart.
        assert!(drawn(&[3, 8, 8], &[8, 8]).is_none());
        assert!(drawn(&[3, 50], &[3, 50]).is_none());
        let map = Tensor::new([4, 5], (0..20).map(|i| i as f32).collect::<Vec<_>>()).unwrap();
        let any = |own: &[usize], map: &Tensor, of_layer: bool| {
            let options = OverlayOptions::default();
            sample(own).any_figure(map, &Caption::default(), of_layer, &options).unwrap()
        };
        assert!(any(&[2, 8, 10], &map, true).unwrap().description().starts_with("Pictures in 1 rows"));
        let row = map.reshaped([20]).unwrap();
        assert!(any(&[20], &row, true).unwrap().description().contains("unit 3"));
        assert!(any(&[20], &row, false).unwrap().description().contains("feature 3"));
        assert!(any(&[2, 8, 10], &row, true).is_none());
        let units = unit_figure(&Tensor::new([2], vec![1f32, -2.0]).unwrap(), &Caption::default()).unwrap();
        assert_eq!(units.description(), "Bars: unit 0 1, unit 1 -2.");
    }

    #[test]
    fn a_feature_has_the_name_of_its_column() {
        let mut sample = sample(&[2]);
        sample.features = Some(["age".to_owned(), "income".to_owned()].into());
        let values = Tensor::new([2], vec![1f32, -2.0]).unwrap();
        let scene = sample.figure(&values, &Caption::default(), &OverlayOptions::default()).unwrap().unwrap();
        let said = scene.description();
        assert!(said.contains("age = 0 1") && said.contains("income = 0.644 -2"), "{said}");
    }
}
