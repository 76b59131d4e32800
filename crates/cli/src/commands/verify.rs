//! `monosplit verify`: the claims of the theory, checked on a network.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use monosplit::engine::{Engine, Precision as EnginePrecision};
use monosplit::explain::{Audit, PairAudit, STABILISERS, Stabiliser, audit, audit_pair};
use monosplit::graph::{Error, Kind, Result};
use monosplit::train::Promise;

use super::compute::ComputeArgs;
use super::network::{NetworkArgs, PiecewiseArgs};
use super::preprocessing::PreprocessingArgs;
use crate::failure::{Failure, text};
use crate::json::Json;
use crate::output_style::is_watched;
use crate::table::{Align, Table};
use monosplit::graph::batch::stack;
use monosplit::{Approximation, Model};

/// The largest error of `g − h`, monotonicity and convexity that rounding may cause, relative to the streams.
const ROUNDING: f64 = 1e-9;
/// The largest negative stream gradient that rounding may cause, relative to the largest gradient.
const GRADIENT_ROUNDING: f64 = 1e-5;
/// The share of relevance that may be lost to rounding.
const RELEVANCE: f64 = 1e-6;

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
    piecewise: PiecewiseArgs,

    /// Check monotonicity and convexity on N pairs of inputs.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    samples: u32,

    /// Print the findings as JSON.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    compute: ComputeArgs,

    #[command(flatten)]
    preprocessing: PreprocessingArgs,
}

/// One claim and what was found.
struct Finding {
    claim: &'static str,
    found: String,
    verdict: Verdict,
}

/// The verdict on a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// It holds, to rounding.
    Holds,
    /// It holds for the piecewise-linear network, and for this one up to the stated error.
    UpToError,
    /// It does not hold.
    Fails,
    /// Rounding hides whether it holds.
    NotChecked,
    /// The theory does not promise it for such a network.
    DoesNotApply,
}

impl Verdict {
    fn of(holds: bool) -> Self {
        if holds { Verdict::Holds } else { Verdict::Fails }
    }

    fn word(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::UpToError => "up to error",
            Verdict::Fails => "FAILS",
            Verdict::NotChecked => "not checked",
            Verdict::DoesNotApply => "does not apply",
        }
    }
}

impl Verify {
    pub(crate) fn execute(&self, out: &mut dyn Write) -> Result<ExitCode, Failure> {
        let (origin, inputs) = match self.files.split_first() {
            Some((model, inputs)) if self.network.arch.is_none() => {
                (self.network.origin(Some(model))?, inputs)
            }
            _ => (self.network.origin(None)?, &self.files[..]),
        };
        let model = self.network.options_for(self.compute.precision()).open(origin)?;
        let sample = match inputs {
            [] => self.preprocessing.one_sample(&model, None)?,
            [input] => self.preprocessing.one_sample(&model, Some(input))?,
            _ => {
                return Err(
                    Error::argument("verify looks at one input; name one picture or .npy array").into()
                );
            }
        };
        let engine = self.compute.engine()?;
        let (model, approximation) = self.piecewise.apply(model, &sample, &*engine)?;
        let image = stack(&vec![sample; model.fixed_batch()?.unwrap_or(1)], Kind::Float)?;
        let double = self.compute.processor().precision(EnginePrecision::F64);
        // Products of streams soon exceed what single precision resolves.
        let auditor: &dyn Engine = if approximation.is_some() { &double } else { &*engine };
        let audit = audit(model.graph(), &image, auditor)?;
        let pair = audit_pair(model.graph(), &image, self.samples as usize, &double, progress);
        let mut findings = findings(&audit, &pair);
        findings.extend(approximation.filter(|a| !a.functions.is_empty()).map(|a| approximation_finding(&a)));
        if let Some(promise) = Promise::check(model.original(), &image, self.samples as usize, &double)? {
            findings.extend(promise_findings(&promise));
        }
        if self.json {
            writeln!(out, "{}", json(&model, &audit, &findings))?;
        } else {
            print(&audit, &findings, out)?;
        }
        let failed = findings.iter().any(|finding| finding.verdict == Verdict::Fails);
        Ok(if failed { ExitCode::from(1) } else { ExitCode::SUCCESS })
    }
}

fn findings(audit: &Audit, pair: &Result<PairAudit>) -> Vec<Finding> {
    let layers = audit.layers.len();
    let largest = |of: fn(&monosplit::explain::LayerAudit) -> f64| {
        audit.layers.iter().map(of).fold(0.0, |most, v| if v > most || v.is_nan() { v } else { most })
    };
    let (forward, backward) = (largest(|l| l.forward_error), largest(|l| l.backward_error));
    let least = audit.layers.iter().map(|l| l.least_sensitivity);
    let least = least.fold(f64::INFINITY, |least, v| if v < least || v.is_nan() { v } else { least });
    let mut findings = pair_findings(pair);
    findings.extend([
        Finding {
            claim: "a⁺ − a⁻ = a at every layer",
            found: format!(
                "their difference is carried as it is: largest error {forward:.1e}, {layers} layers"
            ),
            verdict: Verdict::of(forward == 0.0),
        },
        Finding {
            claim: "δᵍ − δʰ = gradient at every layer",
            found: format!(
                "their difference is carried as it is: largest error {backward:.1e}, {layers} layers"
            ),
            verdict: Verdict::of(backward == 0.0),
        },
        Finding {
            claim: "stream gradients are not negative",
            found: format!("smallest {:.1e} of the largest", least.min(0.0)),
            verdict: Verdict::of(least >= -GRADIENT_ROUNDING),
        },
        relevance_finding(audit, pair.as_ref().is_ok_and(|pair| !pair.products)),
        Finding {
            claim: "predictions are not disturbed",
            found: if audit.same_bits { "same bits".into() } else { "bits differ".into() },
            verdict: Verdict::of(audit.same_bits),
        },
    ]);
    findings
}

/// The findings on the properties that a network written by `monosplit train` states for its own streams.
fn promise_findings(promise: &Promise) -> Vec<Finding> {
    let on = format!("{} pairs of inputs", promise.pairs);
    let mut findings = Vec::new();
    match &promise.smallest {
        Some((least, name)) => findings.push(Finding {
            claim: "trained weights are not negative",
            found: format!("{}: smallest {least:e}, of {name}", promise.restriction),
            verdict: Verdict::of(*least >= 0.0),
        }),
        None if promise.restriction.is_convex() => findings.push(Finding {
            claim: "trained weights are not negative",
            found: format!("{}: no weights have the names that training gave them", promise.restriction),
            verdict: Verdict::NotChecked,
        }),
        None => {}
    }
    if promise.restriction.is_convex() {
        findings.push(Finding {
            claim: "trained streams are convex",
            found: format!("largest excess at a midpoint {:.1e} of their size, {on}", promise.excess),
            verdict: Verdict::of(promise.excess <= ROUNDING),
        });
    }
    if promise.restriction.is_monotone() {
        findings.push(Finding {
            claim: "trained streams never decrease",
            found: format!("largest decrease {:.1e} of their size, {on}", promise.decrease),
            verdict: Verdict::of(promise.decrease <= ROUNDING),
        });
    }
    findings
}

/// The finding on relevance conservation, which the rules for products and smooth nodes do not promise.
fn relevance_finding(audit: &Audit, promised: bool) -> Finding {
    let loss = format!("{:+.1e} between class scores and image", audit.relevance_loss);
    let found = match promised {
        true => format!("{loss} (ε = 1e-6 takes {:.2} %)", -100.0 * audit.stabilised_loss),
        false => format!("{loss}; smooth nodes and products of activations do not promise it"),
    };
    let verdict = match promised {
        true => Verdict::of(audit.relevance_loss.abs() <= RELEVANCE),
        false => Verdict::DoesNotApply,
    };
    Finding { claim: "SplitLRP conserves relevance", found, verdict }
}

fn pair_findings(pair: &Result<PairAudit>) -> Vec<Finding> {
    let pair = match pair {
        Ok(pair) => pair,
        Err(error) => {
            return vec![Finding {
                claim: "f = g − h, monotone, convex",
                found: text(error),
                verdict: Verdict::DoesNotApply,
            }];
        }
    };
    let place = if pair.products { ", none below zero" } else { "" };
    let on = format!("{} pairs of inputs{place}", pair.samples);
    let overflow = !pair.magnitude.is_finite();
    let seen = |holds: bool| if overflow { Verdict::NotChecked } else { Verdict::of(holds) };
    let size = if overflow { "g and h pass what doubles hold; " } else { "" };
    vec![
        Finding {
            claim: "f = g − h",
            found: format!(
                "largest error {:.1e} of the scores, streams lowered after every node, {on}",
                pair.relative_difference
            ),
            verdict: Verdict::of(pair.relative_difference <= ROUNDING),
        },
        plain_finding(pair),
        Finding {
            claim: "g and h never decrease",
            found: format!("{size}largest decrease {:.1e} of their size, {on}", pair.decrease),
            verdict: seen(pair.decrease <= ROUNDING),
        },
        Finding {
            claim: "g and h are convex",
            found: format!("{size}largest excess at a midpoint {:.1e} of their size, {on}", pair.excess),
            verdict: seen(pair.excess <= ROUNDING),
        },
    ]
}

/// The finding on `f = g − h` of the networks that `split` writes. It can be checked only while the scores are larger than the
/// rounding error of `g` and `h`.
fn plain_finding(pair: &PairAudit) -> Finding {
    let claim = "f = g − h, the networks as they are";
    let overflow = !pair.magnitude.is_finite();
    let drowned = pair.magnitude * f64::EPSILON > pair.largest_score
        && pair.plain_difference <= ROUNDING * pair.magnitude;
    if overflow || drowned {
        let found = format!(
            "g and h reach {:.1e}, of which doubles keep 16 digits: nothing is left of their difference",
            pair.magnitude
        );
        return Finding { claim, found, verdict: Verdict::NotChecked };
    }
    let found = format!("largest error {:.1e}; g and h reach {:.1e}", pair.plain_difference, pair.magnitude);
    let verdict = Verdict::of(pair.plain_difference <= ROUNDING * pair.magnitude);
    Finding { claim, found, verdict }
}

/// The finding that the others hold for the piecewise-linear network, with its distance from the given one.
fn approximation_finding(found: &Approximation) -> Finding {
    let functions = found.functions.len();
    let worst = found.worst().map_or(0.0, |worst| worst.error_in_range);
    Finding {
        claim: "all this of the network as it was",
        found: format!(
            "scores move by at most {:.1e} of the largest; {functions} functions, none off by more than {worst:.1e}",
            found.relative()
        ),
        verdict: Verdict::UpToError,
    }
}

fn name(stabiliser: Stabiliser) -> &'static str {
    match stabiliser {
        Stabiliser::None => "none",
        Stabiliser::Scale => "scale",
        Stabiliser::Shift => "shift",
        Stabiliser::Recentre => "recentre",
    }
}

fn print(audit: &Audit, findings: &[Finding], out: &mut dyn Write) -> Result<(), Failure> {
    for finding in findings {
        writeln!(out, "{:<15} {:<36} {}", finding.verdict.word(), finding.claim, finding.found)?;
    }
    writeln!(
        out,
        "\nErrors of a⁺ − a⁻ and δᵍ − δʰ, and the largest element of a⁺ and a⁻ under each stabiliser:"
    )?;
    let mut table = Table::new(&[
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

fn json(model: &Model, audit: &Audit, findings: &[Finding]) -> Json {
    let claims = findings.iter().map(|finding| {
        Json::Object(vec![
            ("claim", finding.claim.into()),
            ("found", finding.found.as_str().into()),
            ("verdict", finding.verdict.word().into()),
        ])
    });
    let layers = audit.layers.iter().map(|layer| {
        Json::Object(vec![
            ("layer", layer.layer.as_str().into()),
            ("forward_error", layer.forward_error.into()),
            ("backward_error", layer.backward_error.into()),
            ("least_sensitivity", layer.least_sensitivity.into()),
            ("log10_none", layer.growth[0].into()),
            ("log10_scale", layer.growth[1].into()),
            ("log10_shift", layer.growth[2].into()),
            ("log10_recentre", layer.growth[3].into()),
        ])
    });
    Json::Object(vec![
        ("network", model.origin().to_string().into()),
        ("claims", claims.collect()),
        ("layers", layers.collect()),
    ])
}

fn progress(done: usize, total: usize) {
    let mut errors = std::io::stderr();
    if is_watched() {
        let end = if done == total { "\r\u{1b}[K" } else { "" };
        let _ = write!(errors, "\rmonosplit: {done} of {total} pairs of inputs\u{1b}[K{end}");
    }
}

#[cfg(test)]
mod tests {
    use monosplit::explain::LayerAudit;

    use super::*;

    fn sound() -> (Audit, PairAudit) {
        let layer = LayerAudit {
            layer: "conv".into(),
            forward_error: 0.0,
            backward_error: 0.0,
            least_sensitivity: -1e-8,
            growth: [0.0; 4],
        };
        let audit =
            Audit { layers: vec![layer], relevance_loss: 1e-15, stabilised_loss: -0.2, same_bits: true };
        let pair = PairAudit { magnitude: 1e3, largest_score: 5.0, samples: 3, ..PairAudit::default() };
        (audit, pair)
    }

    fn verdicts(audit: &Audit, pair: &PairAudit) -> Vec<Verdict> {
        findings(audit, &Ok(*pair)).iter().map(|finding| finding.verdict).collect()
    }

    #[test]
    fn a_sound_network_passes_and_every_single_defect_is_found() {
        let (audit, pair) = sound();
        assert_eq!(verdicts(&audit, &pair), vec![Verdict::Holds; 9]);
        let pairs = [
            PairAudit { relative_difference: 1e-6, ..pair },
            PairAudit { plain_difference: 1e-3, ..pair },
            PairAudit { decrease: 1e-6, ..pair },
            PairAudit { excess: 1e-6, ..pair },
        ];
        let layer = |change: fn(&mut LayerAudit)| {
            let mut changed = audit.clone();
            change(&mut changed.layers[0]);
            changed
        };
        let audits = [
            layer(|layer| layer.forward_error = 1e-9),
            layer(|layer| layer.backward_error = 1e-9),
            layer(|layer| layer.least_sensitivity = -1e-3),
            Audit { relevance_loss: -0.1, ..audit.clone() },
            Audit { same_bits: false, ..audit.clone() },
        ];
        let doctored = pairs.map(|pair| verdicts(&audit, &pair)).into_iter();
        let doctored = doctored.chain(audits.map(|audit| verdicts(&audit, &pair)));
        for (i, verdicts) in doctored.enumerate() {
            assert_eq!(verdicts.iter().position(|&v| v == Verdict::Fails), Some(i));
            assert_eq!(verdicts.iter().filter(|&&v| v == Verdict::Fails).count(), 1);
        }
    }

    #[test]
    fn numbers_that_are_none_do_not_pass() {
        let (mut audit, pair) = sound();
        audit.layers[0].forward_error = f64::NAN;
        audit.layers[0].least_sensitivity = f64::NAN;
        audit.relevance_loss = f64::NAN;
        let pair = PairAudit {
            relative_difference: f64::NAN,
            plain_difference: f64::NAN,
            decrease: f64::NAN,
            excess: f64::NAN,
            ..pair
        };
        let passed =
            findings(&audit, &Ok(pair)).into_iter().filter(|finding| finding.verdict == Verdict::Holds);
        let passed: Vec<&str> = passed.map(|finding| finding.claim).collect();
        assert_eq!(passed, ["δᵍ − δʰ = gradient at every layer", "predictions are not disturbed"]);
    }

    #[test]
    fn a_difference_that_rounding_swallows_is_not_said_to_hold() {
        use Verdict::{Holds, NotChecked};
        let (audit, pair) = sound();
        let drowned = PairAudit { magnitude: 1e31, plain_difference: 5.0, ..pair };
        assert_eq!(verdicts(&audit, &drowned)[..4], [Holds, NotChecked, Holds, Holds]);
        let overflown = PairAudit { magnitude: f64::INFINITY, plain_difference: f64::NAN, ..pair };
        assert_eq!(verdicts(&audit, &overflown)[..4], [Holds, NotChecked, NotChecked, NotChecked]);
    }

    #[test]
    fn relevance_may_end_only_where_nothing_was_promised() {
        let (mut audit, pair) = sound();
        audit.relevance_loss = -0.5;
        assert_eq!(findings(&audit, &Ok(pair))[7].verdict, Verdict::Fails);
        let smooth = findings(&audit, &Err(Error::argument("a smooth node")));
        assert!(smooth.iter().all(|finding| finding.verdict != Verdict::Fails));
        let products = findings(&audit, &Ok(PairAudit { products: true, ..pair }));
        assert_eq!(products[7].verdict, Verdict::DoesNotApply);
    }

    #[test]
    fn large_and_small_numbers_are_readable() {
        assert_eq!(power_of_ten(2.0), "100.000");
        assert_eq!(power_of_ten(18.301_03), "2.0e18");
        assert_eq!(power_of_ten(400.0), "1.0e400");
        assert_eq!(power_of_ten(f64::NEG_INFINITY), "0");
    }
}
