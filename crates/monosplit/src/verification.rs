//! The claims of the theory, checked on a network: the verdicts on what an [`Audit`] measured.

use monosplit_engine::{Cpu, Engine, Precision};
use monosplit_explain::{
    Audit, AxisIndex, Cells, Class, Explainer, LayerAudit, PairAudit, Parameters, RelevanceSize, Settings,
    Target, audit, audit_pair, class_scores, settled,
};
use monosplit_graph::{Error, Graph, Result, Tensor};
#[cfg(feature = "train")]
use monosplit_train::PropertyCheck;

use crate::model::{Approximation, Model};

/// The largest error of `g − h`, monotonicity and convexity that rounding may cause, relative to the streams.
const ROUNDING: f64 = 1e-9;
/// The largest negative stream gradient that rounding may cause, relative to the largest gradient.
const GRADIENT_ROUNDING: f64 = 1e-5;
/// The share of relevance that may be lost to rounding.
const RELEVANCE: f64 = 1e-6;
/// The power of ten above which it is said how large relevance is.
const LARGE_RELEVANCE: f64 = 6.0;
/// The power of ten above which it is said that maps grow.
const LARGE_GAIN: f64 = 3.0;

/// One claim and what was found.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The claim.
    pub claim: &'static str,
    /// What was measured.
    pub found: String,
    /// The verdict.
    pub verdict: Verdict,
    /// The error that kept the claim from being checked, whose text is `found`.
    pub error: Option<Error>,
}

impl Finding {
    fn new(claim: &'static str, found: String, verdict: Verdict) -> Self {
        Finding { claim, found, verdict, error: None }
    }
}

/// The verdict on a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
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

    /// The verdict in words.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::UpToError => "up to error",
            Verdict::Fails => "FAILS",
            Verdict::NotChecked => "not checked",
            Verdict::DoesNotApply => "does not apply",
        }
    }
}

/// A checked network.
#[derive(Clone, Debug)]
pub struct Verification {
    /// The measurements, layer by layer.
    pub audit: Audit,
    /// The verdicts on the claims.
    pub findings: Vec<Finding>,
}

impl Verification {
    /// Checks a network at `image`, a batch of the network's batch size, and on `samples` pairs of inputs around it. Pairs are
    /// computed by `processor` in double precision; `progress` hears of each. `approximation` is the error of a network whose
    /// smooth functions were replaced.
    pub fn new(
        model: &Model,
        image: &Tensor,
        samples: usize,
        approximation: Option<&Approximation>,
        (engine, processor): (&dyn Engine, &Cpu),
        progress: impl Fn(usize, usize),
    ) -> Result<Self> {
        model.expect_classes()?;
        let double = processor.clone().precision(Precision::F64);
        // Products of streams soon exceed what single precision resolves.
        let auditor: &dyn Engine = if approximation.is_some() { &double } else { engine };
        let graph = explained_alone(model, image, &double)?;
        let audit = audit(&graph, image, auditor)?;
        let pair = audit_pair(&graph, image, samples, &double, progress);
        let mut findings = findings(&audit, model.holds_inputs, &pair);
        let approximation = approximation.filter(|a| !a.functions.is_empty());
        findings.extend(approximation.map(approximation_finding));
        #[cfg(feature = "train")]
        if let Some(promise) = PropertyCheck::check(model.original(), image, samples, &double)? {
            findings.extend(promise_findings(&promise));
        }
        Ok(Verification { audit, findings })
    }

    /// Whether a claim fails.
    pub fn fails(&self) -> bool {
        self.findings.iter().any(|finding| finding.verdict == Verdict::Fails)
    }
}

/// The network whose only score is the one that its target explains, with the choices settled that it makes for `image`. A
/// network without a target stays as it is.
fn explained_alone(model: &Model, image: &Tensor, engine: &dyn Engine) -> Result<Graph> {
    let graph = settled(model.graph(), image, engine)?;
    let class = match model.explained_class() {
        Class::Index(class) => class,
        Class::Second => {
            let explained = Explainer::new(&graph, &[], engine)?;
            let found = explained.explain(image, &Class::Second, &Settings::default())?;
            found.classes.first().copied().unwrap_or(0)
        }
        _ => return Ok(graph),
    };
    let cells = Cells::Each(vec![AxisIndex::At(class as i64)]);
    let alone = Target::Cell { output: None, cells };
    Ok(alone.graft(&class_scores(&graph)?, Parameters::Constant)?.graph)
}

fn findings(audit: &Audit, holds_inputs: bool, pair: &Result<PairAudit>) -> Vec<Finding> {
    let layers = audit.layers.len();
    let largest = |of: fn(&LayerAudit) -> f64| {
        audit.layers.iter().map(of).fold(0.0, |most, v| if v > most || v.is_nan() { v } else { most })
    };
    let (forward, backward) = (largest(|l| l.forward_error), largest(|l| l.backward_error));
    let least = audit.layers.iter().map(|l| l.least_sensitivity);
    let least = least.fold(f64::INFINITY, |least, v| if v < least || v.is_nan() { v } else { least });
    let mut findings = pair_findings(pair);
    let seen = |holds: bool| if audit.finite { Verdict::of(holds) } else { Verdict::NotChecked };
    let overflow = if audit.finite { "" } else { "the network's own values or gradients are not finite; " };
    findings.extend([
        Finding::new(
            "a⁺ − a⁻ = a at every layer",
            format!("{overflow}their difference is carried as it is: largest error {forward:.1e}, {layers} layers"),
            seen(forward == 0.0),
        ),
        Finding::new(
            "δᵍ − δʰ = gradient at every layer",
            format!("{overflow}their difference is carried as it is: largest error {backward:.1e}, {layers} layers"),
            seen(backward == 0.0),
        ),
        Finding::new(
            "stream gradients are not negative",
            format!("{overflow}smallest {:.1e} of the largest", least.min(0.0)),
            seen(least >= -GRADIENT_ROUNDING),
        ),
        relevance_finding(audit, holds_inputs, pair.as_ref().is_ok_and(|pair| !pair.products)),
        Finding::new(
            "predictions are not disturbed",
            if audit.same_bits { "same bits".into() } else { "bits differ".into() },
            Verdict::of(audit.same_bits),
        ),
    ]);
    findings
}

/// The findings on the properties that a network written by `monosplit train` states for its own streams.
#[cfg(feature = "train")]
fn promise_findings(promise: &PropertyCheck) -> Vec<Finding> {
    let on = format!("{} pairs of inputs", promise.pairs);
    let mut findings = Vec::new();
    match &promise.smallest {
        Some((least, name)) => findings.push(Finding::new(
            "trained weights are not negative",
            format!("{}: smallest {least:e}, of {name}", promise.restriction),
            Verdict::of(*least >= 0.0),
        )),
        None if promise.restriction.is_convex() => findings.push(Finding::new(
            "trained weights are not negative",
            format!("{}: no weights have the names that training gave them", promise.restriction),
            Verdict::NotChecked,
        )),
        None => {}
    }
    if promise.restriction.is_convex() {
        findings.push(Finding::new(
            "trained streams are convex",
            format!("largest excess at a midpoint {:.1e} of their size, {on}", promise.excess),
            Verdict::of(promise.excess <= ROUNDING),
        ));
    }
    if promise.restriction.is_monotone() {
        findings.push(Finding::new(
            "trained streams never decrease",
            format!("largest decrease {:.1e} of their size, {on}", promise.decrease),
            Verdict::of(promise.decrease <= ROUNDING),
        ));
    }
    findings
}

/// The finding on relevance conservation, which the rules for products and smooth nodes do not promise, and of which inputs that
/// are held fixed have a part.
fn relevance_finding(audit: &Audit, holds_inputs: bool, promised: bool) -> Finding {
    let loss = format!("{:+.1e} between class scores and image", audit.relevance_loss);
    let mut found = match promised {
        _ if holds_inputs => format!("{loss}; the inputs that are held fixed have the rest"),
        true => format!("{loss} (ε = 1e-6 takes {:.2} %)", -100.0 * audit.stabilised_loss),
        false => format!("{loss}; smooth nodes and products of activations do not promise it"),
    };
    let RelevanceSize { handed_down, default_gain, .. } = audit.relevance;
    if handed_down > LARGE_RELEVANCE {
        found += &format!(", of a⁺ = 1e{handed_down:.0} of the top class");
    }
    if default_gain > LARGE_GAIN {
        found += &format!(
            "; by default, with the stabiliser 'scale', maps grow 1e{default_gain:.0}-fold: prefer 'recentre'"
        );
    }
    let verdict = match promised && !holds_inputs {
        true if !audit.finite => Verdict::NotChecked,
        true => Verdict::of(audit.relevance_loss.abs() <= RELEVANCE),
        false => Verdict::DoesNotApply,
    };
    Finding::new("SplitLRP conserves relevance", found, verdict)
}

fn pair_findings(pair: &Result<PairAudit>) -> Vec<Finding> {
    let pair = match pair {
        Ok(pair) => pair,
        Err(error) => {
            let (claim, found) = ("f = g − h, monotone, convex", error.to_string());
            let finding = Finding::new(claim, found, Verdict::DoesNotApply);
            return vec![Finding { error: Some(error.clone()), ..finding }];
        }
    };
    let place = if pair.products { ", none below zero" } else { "" };
    let rounding = match pair.rounding_dropped {
        0 => String::new(),
        count => format!(", the network taken without the rounding of activations ({count} nodes)"),
    };
    let on = format!("{} pairs of inputs{place}", pair.samples);
    let overflow = !pair.magnitude.is_finite();
    let scored = pair.largest_score.is_finite();
    let scores = match scored {
        false => "the network's own scores are not finite; ".to_owned(),
        true if is_lost_beside_clip_bound(pair) => {
            format!("a clip is bounded by {:.1e}, beside which doubles lose the scores; ", pair.largest_bound)
        }
        true => String::new(),
    };
    let seen = |holds: bool| if overflow { Verdict::NotChecked } else { Verdict::of(holds) };
    let size = if overflow { "g and h pass what doubles hold; " } else { "" };
    vec![
        Finding::new(
            "f = g − h",
            format!(
                "{scores}largest error {:.1e} of the scores, streams lowered after every node, {on}{rounding}",
                pair.relative_difference
            ),
            match pair.relative_difference <= ROUNDING {
                _ if !scored => Verdict::NotChecked,
                false if is_lost_beside_clip_bound(pair) => Verdict::NotChecked,
                holds => Verdict::of(holds),
            },
        ),
        plain_finding(pair),
        Finding::new(
            "g and h never decrease",
            format!("{size}largest decrease {:.1e} of their size, {on}", pair.decrease),
            seen(pair.decrease <= ROUNDING),
        ),
        Finding::new(
            "g and h are convex",
            format!("{size}largest excess at a midpoint {:.1e} of their size, {on}", pair.excess),
            seen(pair.excess <= ROUNDING),
        ),
    ]
}

/// Whether the rounding error of a clip's bound, which both streams take up, is all that keeps them from the scores.
fn is_lost_beside_clip_bound(pair: &PairAudit) -> bool {
    pair.relative_difference > ROUNDING
        && pair.difference <= ROUNDING * pair.largest_bound
        && pair.largest_bound * f64::EPSILON * 64.0 > ROUNDING * pair.largest_score
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
        return Finding::new(claim, found, Verdict::NotChecked);
    }
    let found = format!("largest error {:.1e}; g and h reach {:.1e}", pair.plain_difference, pair.magnitude);
    if !pair.largest_score.is_finite() {
        let found = format!("the network's own scores are not finite; {found}");
        return Finding::new(claim, found, Verdict::NotChecked);
    }
    let verdict = Verdict::of(pair.plain_difference <= ROUNDING * pair.magnitude);
    Finding::new(claim, found, verdict)
}

/// The finding that the others hold for the piecewise-linear network, with its distance from the given one.
fn approximation_finding(found: &Approximation) -> Finding {
    let functions = found.functions.len();
    let worst = found.worst().map_or(0.0, |worst| worst.error_in_range);
    Finding::new(
        "all this of the network as it was",
        format!(
            "scores move by at most {:.1e} of the largest; {functions} functions, none off by more than {worst:.1e}",
            found.relative()
        ),
        Verdict::UpToError,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound() -> (Audit, PairAudit) {
        let layer = LayerAudit {
            layer: "conv".into(),
            forward_error: 0.0,
            backward_error: 0.0,
            least_sensitivity: -1e-8,
            growth: [0.0; 4],
        };
        let audit = Audit {
            layers: vec![layer],
            relevance_loss: 1e-15,
            stabilised_loss: -0.2,
            relevance: RelevanceSize::default(),
            same_bits: true,
            finite: true,
        };
        let pair = PairAudit { magnitude: 1e3, largest_score: 5.0, samples: 3, ..PairAudit::default() };
        (audit, pair)
    }

    fn verdicts(audit: &Audit, pair: &PairAudit) -> Vec<Verdict> {
        findings(audit, false, &Ok(*pair)).iter().map(|finding| finding.verdict).collect()
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
        let passed = findings(&audit, false, &Ok(pair))
            .into_iter()
            .filter(|finding| finding.verdict == Verdict::Holds);
        let passed: Vec<&str> = passed.map(|finding| finding.claim).collect();
        assert_eq!(passed, ["δᵍ − δʰ = gradient at every layer", "predictions are not disturbed"]);
    }

    #[test]
    fn issue_35_a_network_whose_own_values_overflow_is_not_said_to_fail() {
        let (mut audit, pair) = sound();
        audit.finite = false;
        audit.layers[0].forward_error = f64::NAN;
        audit.layers[0].backward_error = f64::NAN;
        audit.layers[0].least_sensitivity = f64::NAN;
        audit.relevance_loss = f64::NAN;
        let pair = PairAudit {
            largest_score: f64::INFINITY,
            magnitude: f64::INFINITY,
            relative_difference: f64::NAN,
            plain_difference: f64::NAN,
            ..pair
        };
        let mut expected = vec![Verdict::NotChecked; 8];
        expected.push(Verdict::Holds);
        assert_eq!(verdicts(&audit, &pair), expected);
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
    fn issue_35_scores_that_are_not_finite_are_compared_with_no_pair() {
        let (audit, pair) = sound();
        let infinite = PairAudit {
            largest_score: f64::INFINITY,
            plain_difference: f64::NAN,
            relative_difference: f64::NAN,
            ..pair
        };
        assert_eq!(verdicts(&audit, &infinite)[..2], [Verdict::NotChecked; 2]);
    }

    #[test]
    fn issue_35_what_a_huge_bound_of_a_clip_hides_is_not_said_to_fail() {
        let (audit, pair) = sound();
        let lost = PairAudit { relative_difference: 1.0, difference: 5.0, ..pair };
        assert_eq!(verdicts(&audit, &lost)[0], Verdict::Fails);
        let bounded = |largest_bound| verdicts(&audit, &PairAudit { largest_bound, ..lost })[0];
        assert_eq!([6.0, 1e4, 1e30].map(bounded), [Verdict::Fails, Verdict::Fails, Verdict::NotChecked]);
    }

    #[test]
    fn relevance_may_end_only_where_nothing_was_promised() {
        let (mut audit, pair) = sound();
        audit.relevance_loss = -0.5;
        assert_eq!(findings(&audit, false, &Ok(pair))[7].verdict, Verdict::Fails);
        let smooth = findings(&audit, false, &Err(Error::argument("a smooth node")));
        assert!(smooth.iter().all(|finding| finding.verdict != Verdict::Fails));
        let products = findings(&audit, false, &Ok(PairAudit { products: true, ..pair }));
        assert_eq!(products[7].verdict, Verdict::DoesNotApply);
    }
}
