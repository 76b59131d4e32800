//! Draws the figures of the documentation, all of one picture and one class:
//!
//!     cargo run --release --example figures -- MODEL.onnx PICTURE FOLDER

use std::path::Path;

use monosplit::engine::Cpu;
use monosplit::explain::{
    Class, Explainer, Method, Part, Pooling, RelevanceMap, Request, Settings, Split, Stream,
};
use monosplit::image::{Filter, Fit, Picture, Prepared, Preset, write_png};
use monosplit::render::{
    FigureOptions, Heatmap, HeatmapOptions, Map, OverlayOptions, Tile, blend, figure, number,
};
use monosplit::{Error, Model, ModelOptions, Origin, Result, default_layer};

const CAM: Method = Method::SplitCam(Stream::G, Part::Combined);

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [network, picture, folder] = &arguments[..] else {
        return Err(Error::argument("name a network, a picture and a folder: figures MODEL PICTURE FOLDER"));
    };
    let model = Model::open(Origin::onnx(network), &ModelOptions::default())?;
    let size = model.picture_input()?.size;
    let prepared = Preset::Imagenet.options().fit(size, Fit::Squash)?;
    let prepared = prepared.filter(Filter::Bicubic).apply(&Picture::open(picture)?)?;
    let last = default_layer(model.graph()).unwrap_or_default();
    let last = last.as_str();
    let figures = Figures { model, prepared, folder: Path::new(folder) };
    let split = Split::default();

    let layers = ["layer1.0.conv1", "layer2.1.conv2", "layer3.2.conv2", last];
    let requests = layers.map(|layer| (layer.to_owned(), split, Request::new(CAM, layer), 0.4));
    figures.overlays("layers", 4, &requests)?;

    let middle = "layer3.2.conv2";
    let requests = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]
        .map(|alpha| (format!("α = {}", number(alpha)), split, Request::new(CAM, middle), alpha));
    figures.heatmaps("alpha", 6, &requests)?;

    let early = "layer2.1.conv2";
    let other = Method::SplitCam(Stream::H, Part::Combined);
    let streams = [
        ("g, layer4.2.conv2, α = 0.4", split, Request::new(CAM, last), 0.4),
        ("h, layer4.2.conv2, α = 0.4", split, Request::new(other, last), 0.4),
        ("g, layer2.1.conv2, α = 0.3", split, Request::new(CAM, early), 0.3),
        ("h, layer2.1.conv2, α = 0.3", split, Request::new(other, early), 0.3),
    ];
    figures.overlays("streams", 4, &streams.map(named))?;

    let winner = split.pooling(Pooling::Winner);
    let pooling = [
        ("convex", split, Request::new(CAM, early), 0.3),
        ("winner takes all", winner, Request::new(CAM, early), 0.3),
    ];
    figures.overlays("pooling", 2, &pooling.map(named))?;

    let grad = Method::SplitGrad(Stream::G, Part::Combined);
    let methods = [
        ("gradient", Request::new(Method::Gradient, early)),
        ("SplitGrad g", Request::new(grad, early)),
        ("SplitLRP pos", Request::new(Method::SplitLrp(RelevanceMap::Pos), middle)),
        ("SplitLRP comb", Request::new(Method::SplitLrp(RelevanceMap::Comb), middle)),
    ];
    figures.overlays("methods", 4, &methods.map(|(label, request)| named((label, split, request, 0.3))))
}

/// A label, the split, what is asked of it, and α.
type Panel = (String, Split, Request, f64);

fn named((label, split, request, alpha): (&str, Split, Request, f64)) -> Panel {
    (label.to_owned(), split, request, alpha)
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
        drawn: impl Fn(&Map) -> Result<Picture>,
    ) -> Result<()> {
        let mut tiles = Vec::with_capacity(panels.len());
        for (label, split, request, alpha) in panels {
            let explainer =
                Explainer::new(self.model.graph(), split, std::slice::from_ref(request), &Cpu::default())?;
            let settings = Settings::default().alpha(*alpha);
            let explained = explainer.explain(&self.prepared.tensor, &Class::Top, &settings)?;
            let map = Map::from_tensor(&explained.maps[0].values, 0)?;
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
