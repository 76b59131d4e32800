//! Attributions by Zennit and Captum in double precision (`scripts/make_propagation_fixtures.py`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use monosplit_engine::{Cpu, Engine, Precision};
use monosplit_explain::methods::{Baselines, DeepLift, DeepShap, Lrp, PoolChange, RelevanceSeed};
use monosplit_explain::{
    ChannelReduction, Class, Composite, Explainer, Finish, MapRequest, Method, ReferenceImage, Rule, Settings,
};
use monosplit_graph::batch::rows;
use monosplit_graph::onnx::{self, ImportOptions};
use monosplit_graph::passes::{CanonicalOptions, Stored, canonicalise};
use monosplit_graph::{Graph, Tensor, npy};

const NETWORKS: [&str; 5] = ["plain", "residual", "joined", "reused", "scaled"];

struct Fixture {
    folder: PathBuf,
    network: Graph,
}

impl Fixture {
    fn open(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/propagation").join(name);
        let graph = onnx::open(&folder.join("network.onnx"), &ImportOptions::default()).unwrap();
        let double = Cpu::default().precision(Precision::F64);
        let evaluate = |g: &Graph| double.compile(g)?.run(&[]);
        let options = CanonicalOptions::default().stored(Stored::Double);
        let network = canonicalise(&graph, options, &evaluate).unwrap().0;
        Fixture { folder, network }
    }

    fn array(&self, name: &str) -> Tensor {
        npy::read(&std::fs::read(self.folder.join(name)).unwrap()).unwrap()
    }

    fn lines(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.folder.join(name)).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    fn method(&self, case: &str) -> Arc<dyn Method> {
        let lrp = |composite: Composite| Arc::new(Lrp { composite, seed: RelevanceSeed::Score });
        let everywhere = |rule: Rule| lrp(Composite::everywhere(rule));
        let lift = |baseline: ReferenceImage| Arc::new(DeepLift { baseline, ..DeepLift::default() });
        match case {
            "epsilon-gamma-box" => lrp(Composite::epsilon_gamma_box(vec![-2.5], vec![2.75; 3])),
            "epsilon-plus" => lrp(Composite::epsilon_plus()),
            "epsilon-plus-flat" => lrp(Composite::epsilon_plus_flat()),
            "epsilon-alpha2-beta1" => lrp(Composite::epsilon_alpha2_beta1()),
            "epsilon-alpha2-beta1-flat" => lrp(Composite::epsilon_alpha2_beta1_flat()),
            "zennit-epsilon" => everywhere(Rule::Epsilon { epsilon: 1e-6 }),
            "generalised-gamma" => everywhere(Rule::Gamma { gamma: 0.25 }),
            "z-plus" => everywhere(Rule::ZPlus),
            "alpha-beta" => everywhere(Rule::AlphaBeta { alpha: 2.0, beta: 1.0 }),
            "w-square" => everywhere(Rule::WSquare),
            "epsilon" => lrp(Composite::epsilon()),
            "gamma" => lrp(Composite::gamma()),
            "deeplift 0" => lift(ReferenceImage::default()),
            "deeplift 0.3" => lift(ReferenceImage::Value(0.3)),
            "deeplift image" => {
                lift(ReferenceImage::Image(rows(&self.array("baselines.npy"), 0..1).unwrap()))
            }
            "deepshap" => Arc::new(DeepShap {
                baselines: Baselines::Images(self.array("baselines.npy")),
                ..DeepShap::default()
            }),
            "deeplift winner" => {
                let baseline = ReferenceImage::Image(rows(&self.array("baselines.npy"), 0..1).unwrap());
                Arc::new(DeepLift { baseline, pool: PoolChange::Winner })
            }
            other => panic!("no method for {other}"),
        }
    }

    fn attribution(&self, method: Arc<dyn Method>, layer: Option<String>, precision: Precision) -> Vec<f64> {
        let finish = Finish { channels: ChannelReduction::Keep, ..Finish::default() };
        let request = MapRequest::of(method, layer).finish(finish);
        let engine = Cpu::default().precision(precision);
        let explainer = Explainer::new(&self.network, &[request], &engine).unwrap();
        let classes = self.array("classes.npy").to_i64().unwrap().iter().map(|&c| c as usize).collect();
        let class = Class::PerSample(classes);
        let found = explainer.explain(&self.array("x.npy"), &class, &Settings::default()).unwrap();
        found.maps[0].values.to_f64().into_vec()
    }
}

fn relative_error(found: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
    norm(&mut found.iter().zip(expected).map(|(a, b)| a - b)) / norm(&mut expected.iter().copied())
}

fn agree(precision: Precision, tolerance: impl Fn(&str, &str) -> f64) {
    let mut failures = Vec::new();
    for name in NETWORKS {
        let fixture = Fixture::open(name);
        let expected = fixture.array("expected.npy").to_f64();
        let cases = fixture.lines("cases.txt");
        let each = expected.len() / cases.len();
        for (i, case) in cases.iter().enumerate() {
            let found = fixture.attribution(fixture.method(case), None, precision);
            let error = relative_error(&found, &expected[i * each..(i + 1) * each]);
            if error.is_nan() || error > tolerance(name, case) {
                failures.push(format!("{name}, {case}: {error:.2e}"));
            }
        }
    }
    assert!(failures.is_empty(), "relative errors are too large:\n{}", failures.join("\n"));
}

#[test]
fn attributions_are_those_of_zennit_and_captum() {
    agree(Precision::F64, |_, _| 1e-8);
}

#[test]
fn single_precision_loses_little() {
    // Where a smooth activation hardly changed, the quotient of the two changes keeps few of their digits.
    let smooth = |name: &str, case: &str| name == "reused" && case.starts_with("deep");
    agree(Precision::F32, |name, case| if smooth(name, case) { 5e-3 } else { 1e-3 });
}

#[test]
fn relevance_can_be_read_at_any_layer() {
    for name in NETWORKS {
        let fixture = Fixture::open(name);
        let layer = format!("{}:out", fixture.lines("hidden.txt")[0]);
        let method = fixture.method("epsilon-plus");
        let found = fixture.attribution(method, Some(layer), Precision::F64);
        let error = relative_error(&found, &fixture.array("hidden.npy").to_f64());
        assert!(error < 1e-8, "{name}: {error:.2e}");
    }
}
