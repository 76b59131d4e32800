//! The same numbers as the peers'.

use monosplit_explain::methods::{
    AblationCam, FeatureAblation, GradientShap, IntegratedGradients, KernelShap, Occlusion, ScoreCam,
    SmoothGrad, Strength, VarGrad,
};
use monosplit_explain::{Baseline, Features, MapRequest, Quadrature};
use monosplit_graph::Tensor;

use super::{apart, double, kept, map, network};

/// Kept arrays are rounded to single precision, and Captum rounds the weights of its quadratures so.
const TIGHT: f64 = 1e-6;

fn quadratures() -> [(&'static str, Quadrature); 5] {
    [
        ("gausslegendre", Quadrature::GaussLegendre),
        ("riemann_left", Quadrature::RiemannLeft),
        ("riemann_right", Quadrature::RiemannRight),
        ("riemann_middle", Quadrature::RiemannMiddle),
        ("riemann_trapezoid", Quadrature::Trapezoid),
    ]
}

#[test]
fn integrated_gradients_and_their_gap_are_captums_under_every_quadrature() {
    let steps = 7;
    for (name, quadrature) in quadratures() {
        let method = IntegratedGradients {
            steps,
            quadrature,
            baseline: Baseline::Images(kept("baseline")),
            ..IntegratedGradients::default()
        };
        let found = map(&network(), method, None, &double(), &kept("images"));
        // Captum's trapezoid counts n points as if they were n intervals apart, not n − 1: it sums to 1 − 1/n.
        let scale = if quadrature == Quadrature::Trapezoid { steps as f64 / (steps - 1) as f64 } else { 1.0 };
        let expected: Vec<f64> =
            kept(&format!("integrated-gradients-{name}")).to_f64().iter().map(|v| v * scale).collect();
        let expected = Tensor::vector(expected);
        assert!(apart(&found.values, &expected) < TIGHT, "{name}: {}", apart(&found.values, &expected));
        let gaps = kept(&format!("integrated-gradients-{name}-gap")).to_f64();
        assert_eq!(found.diagnostics[0].name, "completeness gap");
        if quadrature != Quadrature::Trapezoid {
            for (found, expected) in found.diagnostics[0].values.iter().zip(&*gaps) {
                assert!((found - expected).abs() < 1e-5, "{name}: {found} {expected}");
            }
        }
    }
}

#[test]
fn integrated_gradients_at_a_layer_with_a_path_past_it_are_captums() {
    let method = IntegratedGradients {
        steps: 7,
        baseline: Baseline::Images(kept("baseline")),
        ..IntegratedGradients::default()
    };
    let found = map(&network(), method, Some("second:out"), &double(), &kept("images"));
    let expected = kept("integrated-gradients-second");
    assert!(apart(&found.values, &expected) < TIGHT, "{}", apart(&found.values, &expected));
}

#[test]
fn occlusion_is_captums_with_windows_that_overlap_and_windows_that_end_with_the_image() {
    for (name, window, stride) in [("overlapping", [4, 3], [3, 2]), ("disjoint", [5, 4], [5, 4])] {
        let method = Occlusion {
            window: Some(window.to_vec()),
            stride: Some(stride.to_vec()),
            baseline: Baseline::Value(f64::from(0.3f32)),
            batch: 5,
        };
        let found = map(&network(), method, None, &double(), &kept("images"));
        assert_eq!(found.values.shape(), [2, 12, 10]);
        let expected = kept(&format!("occlusion-{name}"));
        assert!(apart(&found.values, &expected) < TIGHT, "{name}: {}", apart(&found.values, &expected));
    }
}

#[test]
fn feature_ablation_is_captums_with_parts_of_places_and_parts_of_elements() {
    let ablation = |mask: &str| FeatureAblation {
        features: Features::Mask(kept(mask)),
        baseline: Baseline::Images(kept("baseline")),
        ..FeatureAblation::default()
    };
    let found = map(&network(), ablation("mask-elements"), None, &double(), &kept("images"));
    assert!(apart(&found.values, &kept("feature-ablation-elements")) < TIGHT);
    let found = map(&network(), ablation("mask-places"), None, &double(), &kept("images"));
    let all = kept("feature-ablation-places").to_f64();
    let expected: Vec<f64> = all.chunks(3 * 120).flat_map(|image| image[..120].to_vec()).collect();
    assert!(apart(&found.values, &Tensor::vector(expected)) < TIGHT);
}

#[test]
fn kernel_shap_over_all_sets_gives_captums_shapley_values() {
    let method = KernelShap {
        samples: 32,
        features: Features::Mask(kept("mask-elements")),
        baseline: Baseline::Images(kept("baseline")),
        ..KernelShap::default()
    };
    let found = map(&network(), method, None, &double(), &kept("images"));
    let expected = kept("shapley-elements");
    assert!(apart(&found.values, &expected) < TIGHT, "{}", apart(&found.values, &expected));
}

#[test]
fn ablationcam_and_scorecam_are_those_of_grad_cam() {
    let requests = [
        MapRequest::new(AblationCam { rectified: false, ..AblationCam::default() }, "last:out"),
        MapRequest::new(ScoreCam { rectified: false, ..ScoreCam::default() }, "last:out"),
    ];
    let explainer = monosplit_explain::Explainer::new(&network(), &requests, &double()).unwrap();
    let class = monosplit_explain::Class::PerSample(super::CLASSES.to_vec());
    let found = explainer.explain(&kept("images"), &class, &monosplit_explain::Settings::default()).unwrap();
    for (map, name) in found.maps.iter().zip(["ablationcam", "scorecam"]) {
        // grad-cam computes in single precision, and AblationCAM divides small differences.
        assert!(apart(&map.values, &kept(name)) < 2e-5, "{name}: {}", apart(&map.values, &kept(name)));
    }
}

/// The mean square of the distances in units of their standard error, which is 1 where both are means of the same.
fn standardised(found: &Tensor, mean: &Tensor, error: &Tensor, times: f64) -> f64 {
    let (found, mean, error) = (found.to_f64(), mean.to_f64(), error.to_f64());
    let each = found.iter().zip(&*mean).zip(&*error).filter(|(_, error)| **error > 1e-9);
    let squares: Vec<f64> = each.map(|((a, b), error)| (a - b).powi(2) / (error * error * times)).collect();
    squares.iter().sum::<f64>() / squares.len() as f64
}

#[test]
fn sampled_gradients_have_the_means_and_variances_of_captums() {
    // Captum's means are of 4000 draws, ours of 2000: the variance of their difference is 1 + 2 times Captum's.
    let strength = Strength::Deviation(0.4);
    let smooth = SmoothGrad { samples: 2000, strength, batch: 64, ..SmoothGrad::default() };
    let found = map(&network(), smooth, None, &double(), &kept("images"));
    let ratio = standardised(&found.values, &kept("smoothgrad-mean"), &kept("smoothgrad-error"), 3.0);
    assert!((0.6..1.6).contains(&ratio), "smoothgrad {ratio}");

    let variance = VarGrad { samples: 2000, strength, batch: 64, ..VarGrad::default() };
    let found = map(&network(), variance, None, &double(), &kept("images"));
    assert!(apart(&found.values, &kept("vargrad")) < 0.1, "{}", apart(&found.values, &kept("vargrad")));

    let shap = GradientShap {
        samples: 2000,
        strength: Strength::Deviation(0.2),
        baseline: Baseline::Images(kept("baselines")),
        batch: 64,
        ..GradientShap::default()
    };
    let found = map(&network(), shap, None, &double(), &kept("images"));
    let ratio = standardised(&found.values, &kept("gradientshap-mean"), &kept("gradientshap-error"), 3.0);
    assert!((0.6..1.6).contains(&ratio), "gradientshap {ratio}");
}
