//! `monosplit figure alpha`: one map for several values of α.

use std::io::Write;

use clap::Args;
use monosplit::catalogue::MethodChoice;
use monosplit::explain::Finish;
use monosplit::explain::chosen_layer;
use monosplit::graph::Result;
use monosplit::render::Scene;

use crate::commands::drawing::Draws;
use crate::commands::figure_input::FigureInputArgs;
use crate::commands::method::MethodWords;
use crate::commands::panels::{Panel, Panels};
use crate::failure::Failure;

/// Draws one map for several values of α
#[derive(Args)]
#[command(override_usage = "monosplit figure alpha MODEL PICTURE... [OPTIONS]")]
#[command(long_about = "\
Draws one map for several values of α, from left to right; one row for each picture.

  monosplit figure alpha resnet18.onnx cat.jpg --layer layer3.1.conv2
  monosplit figure alpha resnet18.onnx cat.jpg --method splitgrad --alphas 0,0.25,0.5 -o alpha.pdf

At α = 0 a map shows the true gradient of a stream; at α = 0.5 a multiple of the ordinary gradient.")]
pub(crate) struct AlphaFigure {
    #[command(flatten)]
    pub(super) input: FigureInputArgs,

    /// A method that has an α.
    #[arg(long, value_name = "NAME[:KEY=VALUE,…]", default_value = "splitcam")]
    #[arg(value_parser = MethodWords, hide_possible_values = true)]
    method: String,

    /// The layer the map is read off at [default: the method's own choice].
    #[arg(long, value_name = "NAME[:out]")]
    layer: Option<String>,

    /// The values of α.
    #[arg(long, value_name = "A,B,…", value_delimiter = ',', default_value = "0,0.1,0.2,0.3,0.4,0.5")]
    alphas: Vec<String>,
}

impl Draws for AlphaFigure {
    fn scene(&self, out: &mut dyn Write) -> Result<Scene, Failure> {
        let mut input = self.input.open()?;
        let panel = |alpha: &String| {
            let option = ("alpha".to_owned(), alpha.clone());
            let chosen =
                MethodChoice::parse(&self.method, &[option])?.resolve(&input.bounds, input.model.graph())?;
            let layer = self.layer.clone().or_else(|| {
                let default = chosen_layer(input.model.graph(), chosen.method.default_layer());
                default.map(|layer| layer.name)
            });
            Ok(Panel { chosen, layer, header: format!("α = {alpha}") })
        };
        let panels = self.alphas.iter().map(panel).collect::<Result<Vec<_>>>()?;
        let title = panels.first().map(|panel| match &panel.layer {
            Some(layer) => format!("{} at {layer}", panel.chosen.title),
            None => panel.chosen.title.clone(),
        });
        let engine = self.input.compute.engine()?;
        let panels = Panels::new(&input.model, panels, Finish::default(), &*engine)?;
        let rows = panels.rows(&mut input, out)?;
        Ok(panels.scene(title.unwrap_or_default(), rows, &self.input.drawing.overlay())?)
    }
}
