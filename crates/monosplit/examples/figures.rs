//! Draws the figures of the documentation, all of one picture and one class:
//!
//!     cargo run --release --example figures -- MODEL.onnx PICTURE FOLDER

use std::path::Path;

use monosplit::engine::Cpu;
use monosplit::explain::{Class, Explainer, MapRequest};
use monosplit::image::{Filter, Fit, Picture, Prepared, Preset, write_png};
use monosplit::render::{
    FigureOptions, Heatmap, HeatmapOptions, OverlayOptions, ScalarField, Tile, blend, figure, number,
};
use monosplit::{Error, Model, Result, catalogue, default_layer};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [network, picture, folder] = &arguments[..] else {
        return Err(Error::argument("name a network, a picture and a folder: figures MODEL PICTURE FOLDER"));
    };
    let model = Model::open(network)?;
    let size = model.picture_input()?.size;
    let prepared = Preset::Imagenet.options().fit(size, Fit::Squash)?;
    let prepared = prepared.filter(Filter::Bicubic).apply(&Picture::open(picture)?)?;
    let last = default_layer(model.graph()).unwrap_or_default();
    let last = last.as_str();
    let figures = Figures { model, prepared, folder: Path::new(folder) };
    let middle = "layer3.2.conv2";
    let early = "layer2.1.conv2";

    let layers = ["layer1.0.conv1", "layer2.1.conv2", "layer3.2.conv2", last];
    figures.overlays("layers", 4, &layers.map(|layer| panel(layer, "splitcam", layer)))?;

    let alphas = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5].map(number);
    let alphas =
        alphas.map(|alpha| panel(&format!("α = {alpha}"), &format!("splitcam:alpha={alpha}"), middle));
    figures.heatmaps("alpha", 6, &alphas)?;

    let streams = [
        panel("g, layer4.2.conv2, α = 0.4", "splitcam", last),
        panel("h, layer4.2.conv2, α = 0.4", "splitcam:stream=h", last),
        panel("g, layer2.1.conv2, α = 0.3", "splitcam:alpha=0.3", early),
        panel("h, layer2.1.conv2, α = 0.3", "splitcam:stream=h,alpha=0.3", early),
    ];
    figures.overlays("streams", 4, &streams)?;

    let pooling = [
        panel("convex", "splitcam:alpha=0.3", early),
        panel("winner takes all", "splitcam:alpha=0.3,pool=wta", early),
    ];
    figures.overlays("pooling", 2, &pooling)?;

    let methods = [
        panel("gradient", "gradient", early),
        panel("SplitGrad g", "splitgrad:alpha=0.3", early),
        panel("SplitLRP pos", "splitlrp:map=pos", middle),
        panel("SplitLRP comb", "splitlrp", middle),
    ];
    figures.overlays("methods", 4, &methods)
}

/// A label, a method with its options, and a layer.
struct Panel {
    label: String,
    method: String,
    layer: String,
}

fn panel(label: &str, method: &str, layer: &str) -> Panel {
    Panel { label: label.to_owned(), method: method.to_owned(), layer: layer.to_owned() }
}

struct Figures<'a> {
    model: Model,
    prepared: Prepared,
    folder: &'a Path,
}

impl Figures<'_> {
    fn overlays(&self, name: &str, columns: usize, panels: &[Panel]) -> Result<()> {
        self.draw(name, columns, panels, |map| {
            Ok(blend(&self.prepared.picture, map, &OverlayOptions::default())?.picture)
        })
    }

    fn heatmaps(&self, name: &str, columns: usize, panels: &[Panel]) -> Result<()> {
        let (width, height) = (self.prepared.picture.width(), self.prepared.picture.height());
        self.draw(name, columns, panels, |map| {
            let heatmap = Heatmap::new(&map.resized(width, height)?, &HeatmapOptions::default())?;
            let opaque: Vec<u8> = heatmap.rgba.chunks_exact(4).flat_map(|p| [p[0], p[1], p[2]]).collect();
            Picture::new(width, height, opaque)
        })
    }

    fn draw(
        &self,
        name: &str,
        columns: usize,
        panels: &[Panel],
        drawn: impl Fn(&ScalarField) -> Result<Picture>,
    ) -> Result<()> {
        let mut tiles = Vec::with_capacity(panels.len());
        for Panel { label, method, layer } in panels {
            let chosen = catalogue::parse(method, &[])?;
            let request = MapRequest::of(chosen.method, Some(layer.clone()));
            let explainer = Explainer::new(self.model.graph(), &[request], &Cpu::default())?;
            let explained = explainer.explain(&self.prepared.tensor, &Class::Top, &chosen.settings)?;
            let map = ScalarField::from_tensor(&explained.maps[0].values, 0)?;
            let least = map.values().iter().copied().fold(f32::INFINITY, f32::min);
            let most = map.values().iter().copied().fold(f32::NEG_INFINITY, f32::max);
            println!("{name}: {label}: {} to {}", number(f64::from(least)), number(f64::from(most)));
            tiles.push(Tile { label: label.clone(), picture: drawn(&map)? });
        }
        let options = FigureOptions { columns: Some(columns), least_side: 256, ..FigureOptions::default() };
        let page = figure(&tiles, &options)?;
        let path = self.folder.join(name).with_extension("png");
        write_png(path, page.width(), page.height(), (&page).into())
    }
}
