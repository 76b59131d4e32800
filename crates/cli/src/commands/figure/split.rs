//! `monosplit figure split`: what g sees, what h sees, and f = g − h in numbers.

use std::io::Write;

use clap::Args;
use monosplit::catalogue::MethodChoice;
use monosplit::explain::{Explanation, Finish, SaliencyMap};
use monosplit::graph::{Error, Graph, Result};
use monosplit::render::{GridRow, Scene};
use monosplit::{RankedClass, default_layer};

use crate::commands::drawing::Draws;
use crate::commands::figure_input::{FigureInput, FigureInputArgs};
use crate::commands::panels::{Panel, Panels, row, scene};
use crate::failure::Failure;
use crate::table::printable;

/// Draws what g sees, what h sees, and f = g − h
#[derive(Args)]
#[command(override_usage = "monosplit figure split MODEL PICTURE... [OPTIONS]")]
#[command(long_about = "\
Draws what each network of the pair sees: g speaks for the class, h against it; one row for each
picture.

  monosplit figure split resnet18.onnx cat.jpg
  monosplit figure split resnet18.onnx cat.jpg --layer layer3.1.conv2 --alpha 0.3 -o split.pdf

The maps are SplitCAM of g, SplitCAM of h and, what is left of them when h is taken from g, the
activations weighted by the ordinary gradient (HiResCAM). The scores of the best classes are
printed as the differences they are, f = g − h. Both streams are kept small on the way (the
stabiliser 'scale'), which changes g and h but not their difference.")]
pub(crate) struct SplitFigure {
    #[command(flatten)]
    pub(super) input: FigureInputArgs,

    /// The layer the maps are read off at [default: what enters the last
    /// layer that mixes places].
    #[arg(long, value_name = "NAME[:out]")]
    layer: Option<String>,

    /// How far sensitivities are shifted, from 0 to 0.5.
    #[arg(long, value_name = "A", default_value = "0.4")]
    alpha: String,

    /// Print the numbers of the N best classes.
    #[arg(long, value_name = "N", default_value_t = 3)]
    top: usize,
}

/// What the numbers of g and h are, and are not; the title of the figure says it in fewer words.
const KEPT_SMALL: &str =
    "both streams kept small: the difference is f's, g and h are moved by the stabiliser";

/// A class score and the two it is the difference of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Difference {
    pub(crate) class: usize,
    pub(crate) f: f64,
    pub(crate) g: f64,
    pub(crate) h: f64,
}

/// Prepares maps of both streams and the class scores of both; the scores are the last two maps.
fn panels(figure: &SplitFigure, input: &FigureInput) -> Result<Panels> {
    let graph = input.model.graph();
    let layer = figure.layer.clone().or_else(|| default_layer(graph));
    let scores = scores(graph)?;
    let panel = |method: &str, layer: &Option<String>, header: &str| -> Result<Panel> {
        let option = ("alpha".to_owned(), figure.alpha.clone());
        let options = if method.starts_with("splitcam") { vec![option] } else { Vec::new() };
        let chosen = MethodChoice::parse(method, &options)?.resolve(&input.bounds, graph)?;
        Ok(Panel { chosen, layer: layer.clone(), header: header.to_owned() })
    };
    let columns = vec![
        panel("splitcam:stream=g", &layer, "g: for it (SplitCAM g)")?,
        panel("splitcam:stream=h", &layer, "h: against it (SplitCAM h)")?,
        panel("hirescam", &layer, "f = g − h (HiResCAM)")?,
        panel("splitstream:part=plus", &scores, "")?,
        panel("splitstream:part=minus", &scores, "")?,
    ];
    Panels::new(&input.model, columns, Finish::default(), &*figure.input.compute.engine()?)
}

/// Where the class scores are.
fn scores(graph: &Graph) -> Result<Option<String>> {
    let name = graph.outputs().first().map(|output| graph.node(output.node).label.display());
    match name {
        Some(name) if !name.is_empty() => Ok(Some(format!("{name}:out"))),
        _ => Err(Error::argument("the class scores have no name by which they could be read")),
    }
}

/// The scores of the best classes, as differences.
fn differences(explained: &Explanation, input: &FigureInput, top: usize) -> Vec<Difference> {
    let stream = |map: Option<&SaliencyMap>| -> Vec<f64> {
        let scaled = |map: &SaliencyMap| {
            let factor = f64::from(map.exponents[0]).exp2();
            map.values.to_f64().iter().map(|value| value * factor).collect()
        };
        map.map(scaled).unwrap_or_default()
    };
    let count = explained.maps.len();
    let (g, h) = (stream(explained.maps.get(count - 2)), stream(explained.maps.get(count - 1)));
    let best = RankedClass::best(&explained.logits.to_f64(), top, input.score_kind).unwrap_or_default();
    let number = |stream: &[f64], class: usize| stream.get(class).copied().unwrap_or(f64::NAN);
    best.iter()
        .map(|r| Difference { class: r.class, f: r.score, g: number(&g, r.class), h: number(&h, r.class) })
        .collect()
}

impl SplitFigure {
    fn row(
        &self,
        panels: &Panels,
        input: &mut FigureInput,
        index: usize,
        out: &mut dyn Write,
    ) -> Result<Option<GridRow>, Failure> {
        input.check_rows()?;
        let Some(sample) = input.next_sample()? else { return Ok(None) };
        let explained = panels.of(&sample, &input.classes.of(index, 1)?)?;
        let caption = input.named(&explained);
        writeln!(out, "{}: {}", printable(&sample.name), printable(&caption))?;
        for Difference { class, f, g, h } in differences(&explained, input, self.top) {
            let name = input.labels.name(class);
            // Two signs in a row are read as one.
            let h = if h < 0.0 { format!("({h:.4})") } else { format!("{h:.4}") };
            writeln!(out, "  {f:>9.4} = {g:.4} − {h}  {}", printable(&name))?;
        }
        let maps = &explained.maps[..explained.maps.len() - 2];
        Ok(Some(row(&sample, caption, maps, &self.input.drawing.overlay())?))
    }
}

impl Draws for SplitFigure {
    fn scene(&self, out: &mut dyn Write) -> Result<Scene, Failure> {
        let mut input = self.input.open()?;
        let panels = panels(self, &input)?;
        let mut rows = Vec::new();
        while let Some(row) = self.row(&panels, &mut input, rows.len(), out)? {
            rows.push(row);
        }
        input.classes.all_used(rows.len())?;
        if self.top > 0 {
            writeln!(out, "  ({KEPT_SMALL})")?;
        }
        let mut columns = panels.headers();
        columns.truncate(4);
        Ok(scene("f = g − h (g and h kept small; their difference is f's)".to_owned(), columns, rows)?)
    }
}
