//! Draws maps of every kind over a photograph, to look at:
//!
//!     cargo run -p monosplit-render --example gallery -- FOLDER

use std::fs;
use std::path::Path;

use monosplit_graph::{Error, Result, write_atomically};
use monosplit_image::{Filter, Picture, write_png};
use monosplit_render::{
    Bar, Bars, Best, Caption, Cell, Edge, Entry, FigureOptions, Grid, Heatmap, HeatmapOptions, LinePlot,
    OverlayOptions, OverlayPanels, Page, PageFigure, Polytope, Row, ScalarField, Scale, Scene, Series, Table,
    TerminalColours, Tile, Zero, blend, figure, overlay, side_by_side, terminal_map, terminal_picture,
};

fn main() -> Result<()> {
    let Some(folder) = std::env::args_os().nth(1) else {
        return Err(Error::argument("say which folder to draw into: gallery FOLDER"));
    };
    let folder = Path::new(&folder);
    fs::create_dir_all(folder).map_err(|cause| Error::io(folder, cause))?;
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
    let single = OverlayOptions { panels: OverlayPanels::Single, ..plain };
    let icon = cropped.resize(16, 16, Filter::Bilinear)?;
    write(folder, "icon", &overlay(&icon, &bumps(4, 4, f32::abs)?, &caption("SplitCAM"), &single)?.picture)?;
    let huge = chelsea.resize(1353, 900, Filter::Bicubic)?;
    write(folder, "huge", &overlay(&huge, &signed, &caption("SplitGrad"), &plain)?.picture)?;
    Heatmap::new(&bumps(224, 224, |v| v)?, &HeatmapOptions::default())?.write(folder.join("heatmap.png"))?;
    drawings(folder, &chelsea, &cropped)
}

/// Figures in every format.
fn drawings(folder: &Path, chelsea: &Picture, cropped: &Picture) -> Result<()> {
    let lines = OverlayOptions { contours: 3, ..OverlayOptions::default() };
    let signed = bumps(14, 14, |v| v)?;
    let (scene, _) = side_by_side(chelsea, &signed, &caption("SplitGrad"), &lines)?;
    write_all(folder, "drawing-contours", &scene)?;
    write_all(folder, "drawing-grid", &grid(cropped)?.into_scene()?)?;
    let strip = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5].map(|alpha: f32| {
        let map = bumps(14, 14, |v| (v - alpha).max(0.0))?;
        Ok((format!("α = {alpha}"), Cell::overlay(cropped, &map, &OverlayOptions::default())?))
    });
    let strip = strip.into_iter().collect::<Result<Vec<_>>>()?;
    let alpha = Grid::strip("SplitCAM from α = 0 to 0.5", strip).into_scene()?;
    write_all(folder, "drawing-alpha", &alpha)?;
    write_all(folder, "drawing-polytope", &polytope(cropped)?.into_scene()?)?;
    let curves = curves().into_scene()?;
    write_all(folder, "drawing-curves", &curves)?;
    write_all(folder, "drawing-bars", &bars().into_scene()?)?;

    let page = Page::new("Pictures of every kind")
        .paragraph("Maps over a photograph, figures made of them, and a table, as a page shows them.")
        .heading("Figures")
        .figure(PageFigure::drawing(&scene)?.caption("Contours over an overlay.").command(
            "monosplit explain pets-small.onnx chelsea.png --method splitgrad --layer features.28 --alpha 0.4 --contours 3",
        ))
        .figure(PageFigure::drawing(&curves)?.caption("How a score depends on the layer."))
        .figure(PageFigure::picture(cropped, "A cat")?.caption("The photograph itself.").command("cat chelsea.png"))
        .figure(PageFigure::drawing(&alpha)?.caption("From α = 0 to 0.5.").command("monosplit figure alpha"))
        .heading("Numbers")
        .table(&table())
        .finish();
    write_atomically(folder.join("page.html"), page.as_bytes())?;

    let scale = Scale::new(&signed, None)?;
    for colours in [TerminalColours::True, TerminalColours::Indexed, TerminalColours::None] {
        println!("{}", terminal_picture(cropped, 48, colours)?);
        println!("{}", terminal_map(&signed, &scale, 28, colours)?);
    }
    Ok(())
}

fn polytope(cropped: &Picture) -> Result<Polytope> {
    let vertices = (0..5).map(|i| {
        let map = bumps(14, 14, |v| v + 0.1 * i as f32)?;
        Ok(Cell::overlay(cropped, &map, &OverlayOptions::default())?.labelled(format!("image {i}: 87.3%")))
    });
    let edges = (0..5).flat_map(|from| (from + 1..5).map(move |to| (from, to)));
    let edge = |(from, to)| Edge { from, to, similarity: Some((to as f64 - from as f64) / 5.0) };
    Ok(Polytope {
        title: "Gradients of g for the class Egyptian Mau".into(),
        vertices: vertices.collect::<Result<_>>()?,
        centre: Some(Cell::picture(cropped.clone()).labelled("mean")),
        edges: edges.map(edge).collect(),
        least_side: 160,
    })
}

fn curves() -> LinePlot {
    let curve = |(i, name): (usize, &str)| {
        let points: Vec<(f64, f64)> = (0..17)
            .map(|x| (f64::from(x), 0.3 + 0.1 * i as f64 + 0.15 * (f64::from(x) / 3.0 + i as f64).sin()))
            .collect();
        let band = points.iter().map(|(x, y)| (y - 0.02 - 0.002 * x, y + 0.02 + 0.002 * x)).collect();
        Series { name: name.into(), points, band }
    };
    let names = ["SplitCAM g", "SplitCAM h", "LayerCAM", "GradCAM", "Guided Backpropagation", "LRP ε-γ-box"];
    LinePlot {
        title: "Pixel flipping by layer".into(),
        x_label: "layer".into(),
        y_label: "area under the curve (lower is better)".into(),
        series: names.into_iter().enumerate().map(curve).collect(),
        x_names: (0..17).map(|x| (f64::from(x), format!("features.{x}"))).collect(),
        ..LinePlot::default()
    }
}

fn bars() -> Bars {
    let values =
        [("SplitCAM", 0.42), ("LayerCAM", 0.35), ("random", -0.07), ("a method with a very long name", 0.2)];
    let bar = |(label, value): (&str, f64)| Bar {
        label: label.into(),
        value,
        interval: Some((value - 0.04, value + 0.04)),
    };
    Bars { title: "Faithfulness".into(), bars: values.map(bar).to_vec(), ..Bars::default() }
}

fn table() -> Table {
    let row = |name: &str, values: [f64; 3]| {
        let mut row = vec![Entry::Words(name.into())];
        row.extend(values.map(|value| Entry::Interval(value, 0.012)));
        row
    };
    Table {
        caption: "The best of each column is underlined.".into(),
        columns: vec![
            ("method".into(), Best::None),
            ("pixel flipping".into(), Best::Lowest),
            ("pointing game".into(), Best::Highest),
            ("randomisation".into(), Best::Lowest),
        ],
        rows: vec![
            row("SplitCAM", [0.21, 0.93, 0.05]),
            row("LayerCAM", [0.24, 0.93, 0.11]),
            vec![Entry::Words("RISE".into()), Entry::Number(0.3), Entry::Absent, Entry::Number(f64::NAN)],
        ],
        ..Table::default()
    }
}

/// Methods beside images, one place left empty.
fn grid(cropped: &Picture) -> Result<Grid> {
    let options = OverlayOptions::default();
    let mut rows = Vec::new();
    for (label, caption) in
        [("chelsea.png", "Egyptian Mau 87.3%"), ("the-same-picture-again.png", "Abyssinian 3.1%")]
    {
        let cells = maps()?.into_iter().take(4).map(|(_, map)| Cell::overlay(cropped, &map, &options));
        let mut cells = cells.map(|cell| cell.map(Some)).collect::<Result<Vec<_>>>()?;
        cells.insert(0, Some(Cell::picture(cropped.clone())));
        if label.len() > 20 {
            cells[2] = None;
        }
        rows.push(Row { label: label.into(), caption: caption.into(), cells });
    }
    let columns = ["picture", "SplitGrad", "LRP", "Guided Backpropagation at the last layer", "RISE"];
    let columns = columns.map(String::from).to_vec();
    Ok(Grid { title: "Methods beside images".into(), columns, rows, ..Grid::default() })
}

fn maps() -> Result<Vec<(&'static str, ScalarField)>> {
    let holes = bumps(14, 14, |v| if (0.25..0.5).contains(&v) { f32::NAN } else { v })?;
    Ok(vec![
        ("signed", bumps(14, 14, |v| v)?),
        ("positive", bumps(14, 14, |v| v.max(0.0))?),
        ("negative", bumps(14, 14, |v| -1e-5 * v.abs())?),
        ("zero", ScalarField::new(14, 14, vec![0.0; 196])?),
        ("constant", ScalarField::new(14, 14, vec![0.3; 196])?),
        ("not-finite", holes),
        ("tiny-7x7", bumps(7, 7, |v| v.max(0.0) * 1234.5)?),
        ("pixels", bumps(224, 224, |v| v * (v * 97.0).sin())?),
    ])
}

/// A hill over the left eye, a smaller hollow over the nose, turned into something else by `change`.
fn bumps(width: usize, height: usize, change: impl Fn(f32) -> f32) -> Result<ScalarField> {
    let hill = |x: f32, y: f32, column: f32, row: f32, spread: f32| {
        (-((x - column).powi(2) + (y - row).powi(2)) / spread.powi(2)).exp()
    };
    let values = (0..width * height).map(|i| {
        let x = ((i % width) as f32 + 0.5) / width as f32;
        let y = ((i / width) as f32 + 0.5) / height as f32;
        change(hill(x, y, 0.35, 0.35, 0.2) - 0.7 * hill(x, y, 0.62, 0.68, 0.18))
    });
    ScalarField::new(width, height, values.collect())
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

fn write_all(folder: &Path, name: &str, scene: &Scene) -> Result<()> {
    ["png", "svg", "pdf"].iter().try_for_each(|ending| scene.write(folder.join(format!("{name}.{ending}"))))
}
