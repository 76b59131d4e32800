//! `monosplit verify`: the claims of the theory, checked on a network.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use monosplit::explain::{STABILISERS, Stabiliser};
use monosplit::graph::batch::repeated;
use monosplit::graph::{Error, Result};
use monosplit::{Finding, Model, Verification};
use serde::Serialize;

use super::compute::ComputeArgs;
use super::named_inputs::{ExplainedInputArgs, GivenInputArgs};
use super::network::{NetworkArgs, PiecewiseArgs};
use super::network_input;
use super::preprocessing::PreprocessingArgs;
use super::progress::Bar;
use super::run::scores_remark;
use super::target::{TargetArgs, opened_for, with_target};
use crate::exit_status::ExitStatus;
use crate::failure::{Failure, note, text};
use crate::json;
use crate::table::{Align, TextTable};

/// Checks on your own network that the theory holds
#[derive(Args)]
#[command(override_usage = "monosplit verify MODEL [INPUT] [OPTIONS]
       monosplit verify --arch NAME --weights FILE [INPUT] [OPTIONS]")]
#[command(long_about = "\
Checks on your own network that the theory holds.

  monosplit verify resnet18.onnx cat.jpg
  monosplit verify resnet18.onnx

The network f is split into g and h. Checked are: that f = g − h, that g and h never decrease and
are convex (on sampled pairs of inputs, through the two networks themselves, in double precision);
that at every layer the streams differ by exactly the network's activation and the sensitivities by
exactly its gradient; that no stream gradient is negative; that SplitLRP conserves relevance; that
the prediction has the same bits with and without an explanation. What the theory does not promise
for such a network is said not to apply, what rounding hides not to be checked. A table shows how
large the streams grow, layer by layer, under each stabiliser.

The theory covers affine maps, ReLUs, maxima and products. --piecewise N brings a network of smooth
functions, softmax and norms into that form; every claim is then checked on the new network, and the
last line says how far that is from the one you gave.

A network written by `monosplit train` is also held to what it promises itself: its weights, its
convexity, its monotonicity.

INPUT is a picture or a .npy array; without one, a fixed pattern of pseudo-random numbers is used.
The exit code is 1 if anything fails.")]
pub(crate) struct Verify {
    /// The network (an ONNX file, unless --arch and --weights are given), then a picture or .npy
    /// array.
    #[arg(value_name = "MODEL INPUT", verbatim_doc_comment)]
    files: Vec<PathBuf>,

    #[command(flatten)]
    network: NetworkArgs,

    #[command(flatten)]
    target: TargetArgs,

    #[command(flatten)]
    piecewise: PiecewiseArgs,

    /// Check monotonicity and convexity on N pairs of inputs.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    samples: u32,

    /// Print the findings as JSON.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    given: GivenInputArgs,

    #[command(flatten)]
    of: ExplainedInputArgs,

    #[command(flatten)]
    compute: ComputeArgs,

    #[command(flatten)]
    preprocessing: PreprocessingArgs,
}

impl Verify {
    pub(crate) fn execute(&self, out: &mut dyn Write) -> Result<ExitStatus, Failure> {
        let (origin, inputs) = match self.files.split_first() {
            Some((model, inputs)) if self.network.arch.is_none() => {
                (self.network.origin(Some(model))?, inputs)
            }
            _ => (self.network.origin(None)?, &self.files[..]),
        };
        let target = self.target.choice()?;
        let options = opened_for(self.network.options_for(self.compute.precision()), target.as_ref());
        let sources = self.preprocessing.inputs.list(inputs)?;
        let inputs_of = (&self.given, &self.preprocessing);
        let model = network_input::open_for(&options, origin, inputs_of, &sources)?.model;
        scores_remark(&model).iter().for_each(|remark| note(remark));
        if inputs.len() > 1 {
            return Err(Error::argument("verify looks at one input; name one picture or array").into());
        }
        let engine = self.compute.engine()?;
        let preprocess = self.preprocessing.known(&model);
        let (model, sample) = match self.of.chosen(&model, &self.given, inputs)? {
            None => {
                let model = self.given.first_held(model, &self.preprocessing)?;
                let sample = self.preprocessing.first_sample(&model, inputs.first(), sources)?;
                (with_target(model, target.as_ref(), (None, preprocess.as_ref()), &*engine)?, sample)
            }
            Some(named) => {
                let values = named.values(&model, &self.given, &sources, &self.preprocessing)?;
                let model = with_target(model, target.as_ref(), (None, preprocess.as_ref()), &*engine)?;
                named.first(&model, &values, &*engine)?
            }
        };
        let (model, approximation) = self.piecewise.apply(model, &sample, &*engine)?;
        let image = repeated(&sample, model.fixed_batch()?.unwrap_or(1))?;
        let engines = (&*engine, &self.compute.processor());
        let samples = self.samples as usize;
        let bar = Bar::counting("pairs of inputs");
        let progress = |done, total| bar.show(done, total);
        let found = Verification::new(&model, &image, samples, approximation.as_ref(), engines, progress)?;
        if self.json {
            json::print(&VerifyOutput::of(&model, &found), out)?;
        } else {
            print(&found, out)?;
        }
        Ok(if found.fails() { ExitStatus::from(1) } else { ExitStatus::SUCCESS })
    }
}

/// What was found, with hints in terms of options.
fn found(finding: &Finding) -> String {
    finding.error.as_ref().map_or_else(|| finding.found.clone(), text)
}

fn name(stabiliser: Stabiliser) -> &'static str {
    match stabiliser {
        Stabiliser::None => "none",
        Stabiliser::Scale => "scale",
        Stabiliser::Shift => "shift",
        Stabiliser::Recentre => "recentre",
    }
}

fn print(Verification { audit, findings }: &Verification, out: &mut dyn Write) -> Result<(), Failure> {
    for finding in findings {
        writeln!(out, "{:<15} {:<36} {}", finding.verdict.word(), finding.claim, found(finding))?;
    }
    writeln!(
        out,
        "\nErrors of a⁺ − a⁻ and δᵍ − δʰ, and the largest element of a⁺ and a⁻ under each stabiliser:"
    )?;
    let mut table = TextTable::new(&[
        ("layer", Align::Left, 40),
        ("a⁺ − a⁻", Align::Right, 8),
        ("δᵍ − δʰ", Align::Right, 8),
        (name(STABILISERS[0]), Align::Right, 10),
        (name(STABILISERS[1]), Align::Right, 10),
        (name(STABILISERS[2]), Align::Right, 10),
        (name(STABILISERS[3]), Align::Right, 10),
    ]);
    for layer in &audit.layers {
        let cell = |i: usize| power_of_ten(layer.growth[i]);
        let error = |v: f64| if v == 0.0 { "0".to_owned() } else { format!("{v:.0e}") };
        let (forward, backward) = (error(layer.forward_error), error(layer.backward_error));
        table.row([layer.layer.clone(), forward, backward, cell(0), cell(1), cell(2), cell(3)]);
    }
    for line in table.lines() {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// `10^x` in short notation, however large.
fn power_of_ten(x: f64) -> String {
    if !x.is_finite() {
        return "0".to_owned();
    }
    let exponent = x.floor();
    if (-2.0..4.0).contains(&exponent) {
        return format!("{:.3}", 10f64.powf(x));
    }
    format!("{:.1}e{exponent:.0}", 10f64.powf(x - exponent))
}

/// The findings for programs.
#[derive(Serialize)]
struct VerifyOutput<'a> {
    network: String,
    claims: Vec<ClaimOutput<'a>>,
    layers: Vec<LayerOutput<'a>>,
}

#[derive(Serialize)]
struct ClaimOutput<'a> {
    claim: &'a str,
    found: String,
    verdict: &'a str,
}

#[derive(Serialize)]
struct LayerOutput<'a> {
    layer: &'a str,
    forward_error: f64,
    backward_error: f64,
    least_sensitivity: f64,
    log10_none: f64,
    log10_scale: f64,
    log10_shift: f64,
    log10_recentre: f64,
}

impl<'a> VerifyOutput<'a> {
    fn of(model: &Model, Verification { audit, findings }: &'a Verification) -> Self {
        let claim = |finding: &'a Finding| ClaimOutput {
            claim: finding.claim,
            found: found(finding),
            verdict: finding.verdict.word(),
        };
        let layer = |layer: &'a monosplit::explain::LayerAudit| {
            let [log10_none, log10_scale, log10_shift, log10_recentre] = layer.growth;
            LayerOutput {
                layer: &layer.layer,
                forward_error: layer.forward_error,
                backward_error: layer.backward_error,
                least_sensitivity: layer.least_sensitivity,
                log10_none,
                log10_scale,
                log10_shift,
                log10_recentre,
            }
        };
        VerifyOutput {
            network: model.origin().to_string(),
            claims: findings.iter().map(claim).collect(),
            layers: audit.layers.iter().map(layer).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_and_small_numbers_are_readable() {
        assert_eq!(power_of_ten(2.0), "100.000");
        assert_eq!(power_of_ten(18.301_03), "2.0e18");
        assert_eq!(power_of_ten(400.0), "1.0e400");
        assert_eq!(power_of_ten(f64::NEG_INFINITY), "0");
    }
}
