//! Draws maps of every kind over a photograph, to look at:
//!
//!     cargo run -p monosplit-render --example gallery -- FOLDER

use std::fs;
use std::path::Path;

use monosplit_graph::{Error, Result};
use monosplit_image::{Filter, Picture, write_png};
use monosplit_render::{
    Caption, FigureOptions, Heatmap, HeatmapOptions, Layout, Map, OverlayOptions, Tile, Zero, blend, figure,
    overlay,
};

fn main() -> Result<()> {
    let Some(folder) = std::env::args_os().nth(1) else {
        return Err(Error::argument("say which folder to draw into: gallery FOLDER"));
    };
    let folder = Path::new(&folder);
    fs::create_dir_all(folder).map_err(|cause| Error::io(folder, &cause))?;
    let photograph = concat!(env!("CARGO_MANIFEST_DIR"), "/../monosplit/assets/chelsea.png");
    let chelsea = Picture::open(photograph)?;
    let cropped = chelsea.centre_crop(300, 300)?.resize(224, 224, Filter::Bilinear)?;
    let plain = OverlayOptions::default();

    let mut tiles = Vec::new();
    for (name, map) in maps()? {
        let drawn = overlay(&cropped, &map, &caption(name), &plain)?;
        write(folder, name, &drawn.picture)?;
        tiles.push(Tile { label: name.into(), picture: blend(&cropped, &map, &plain)?.picture });
    }
    let options = FigureOptions { title: "Maps of every kind".into(), ..FigureOptions::default() };
    write(folder, "figure", &figure(&tiles, &options)?)?;

    let signed = bumps(28, 28, |v| v)?;
    write(folder, "large", &overlay(&chelsea, &signed, &caption("SplitGrad"), &plain)?.picture)?;
    let clear = OverlayOptions {
        heatmap: HeatmapOptions { clip: Some(95.0), zero: Zero::Transparent },
        opacity: 0.8,
        ..plain
    };
    write(folder, "clipped", &overlay(&chelsea, &signed, &caption("SplitGrad"), &clear)?.picture)?;
    let tiny = cropped.resize(28, 28, Filter::Bilinear)?;
    write(folder, "digit", &overlay(&tiny, &signed, &caption("SplitLRP"), &plain)?.picture)?;
    let single = OverlayOptions { layout: Layout::Single, ..plain };
    let icon = cropped.resize(16, 16, Filter::Bilinear)?;
    write(folder, "icon", &overlay(&icon, &bumps(4, 4, f32::abs)?, &caption("SplitCAM"), &single)?.picture)?;
    let huge = chelsea.resize(1353, 900, Filter::Bicubic)?;
    write(folder, "huge", &overlay(&huge, &signed, &caption("SplitGrad"), &plain)?.picture)?;
    Heatmap::new(&bumps(224, 224, |v| v)?, &HeatmapOptions::default())?.write(folder.join("heatmap.png"))
}

fn maps() -> Result<Vec<(&'static str, Map)>> {
    let holes = bumps(14, 14, |v| if (0.25..0.5).contains(&v) { f32::NAN } else { v })?;
    Ok(vec![
        ("signed", bumps(14, 14, |v| v)?),
        ("positive", bumps(14, 14, |v| v.max(0.0))?),
        ("negative", bumps(14, 14, |v| -1e-5 * v.abs())?),
        ("zero", Map::new(14, 14, vec![0.0; 196])?),
        ("constant", Map::new(14, 14, vec![0.3; 196])?),
        ("not-finite", holes),
        ("tiny-7x7", bumps(7, 7, |v| v.max(0.0) * 1234.5)?),
        ("pixels", bumps(224, 224, |v| v * (v * 97.0).sin())?),
    ])
}

/// A hill over the left eye, a smaller hollow over the nose, turned into something else by `change`.
fn bumps(width: usize, height: usize, change: impl Fn(f32) -> f32) -> Result<Map> {
    let hill = |x: f32, y: f32, column: f32, row: f32, spread: f32| {
        (-((x - column).powi(2) + (y - row).powi(2)) / spread.powi(2)).exp()
    };
    let values = (0..width * height).map(|i| {
        let x = ((i % width) as f32 + 0.5) / width as f32;
        let y = ((i / width) as f32 + 0.5) / height as f32;
        change(hill(x, y, 0.35, 0.35, 0.2) - 0.7 * hill(x, y, 0.62, 0.68, 0.18))
    });
    Map::new(width, height, values.collect())
}

fn caption(method: &str) -> Caption {
    Caption {
        method: method.into(),
        layer: "features.28:out".into(),
        class: "Egyptian Mau".into(),
        confidence: Some(0.8734),
        alpha: Some(0.4),
    }
}

fn write(folder: &Path, name: &str, picture: &Picture) -> Result<()> {
    write_png(folder.join(format!("{name}.png")), picture.width(), picture.height(), picture.into())
}
