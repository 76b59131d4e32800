//! Every metric against values computed by Quantus, scikit-image, SciPy or NumPy (`scripts/make_metric_fixtures.py`), and
//! against degenerate maps.

use monosplit_graph::weights::Weights;
use monosplit_graph::{Error, Result, Tensor};

use crate::case_arrays::measured;
use crate::metrics::{
    self, AverageSensitivity, FaithfulnessCorrelation, LocalLipschitz, MaxSensitivity, MetricPreset,
};
use crate::{Case, ExplainedNetwork, Similarity, Undefined};

/// A network of two linear layers that is explained by gradient times input, in double precision.
struct Small {
    first: (Vec<f64>, Vec<f64>),
    last: (Vec<f64>, Vec<f64>),
    randomised: Vec<Tensor>,
}

impl Small {
    fn hidden(&self, image: &[f64]) -> Vec<f64> {
        let (weights, bias) = &self.first;
        weights.chunks(image.len()).zip(bias).map(|(row, bias)| dot(row, image) + bias).collect()
    }

    fn row(&self, class: usize) -> &[f64] {
        let hidden = self.first.1.len();
        &self.last.0[class * hidden..][..hidden]
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

impl ExplainedNetwork for Small {
    fn scores(&self, images: &Tensor) -> Result<Tensor> {
        let (values, samples) = (images.to_f64(), images.shape()[0]);
        let classes = self.last.1.len();
        let mut scores = Vec::new();
        for image in values.chunks(values.len() / samples) {
            let hidden: Vec<f64> = self.hidden(image).into_iter().map(|value| value.max(0.0)).collect();
            scores.extend((0..classes).map(|class| dot(self.row(class), &hidden) + self.last.1[class]));
        }
        Tensor::new([samples, classes], scores)
    }

    fn maps(&self, images: &Tensor, class: usize) -> Result<Tensor> {
        let &[samples, channels, height, width] = images.shape() else { panic!("images have four axes") };
        if class >= self.last.1.len() {
            return Err(Error::argument("there is no such class"));
        }
        let (values, pixels) = (images.to_f64(), height * width);
        let mut maps = Vec::new();
        for image in values.chunks(channels * pixels) {
            let mut gradient = vec![0.0; image.len()];
            for (unit, _) in self.hidden(image).into_iter().enumerate().filter(|(_, value)| *value > 0.0) {
                let weights = &self.first.0[unit * image.len()..][..image.len()];
                gradient.iter_mut().zip(weights).for_each(|(g, w)| *g += self.row(class)[unit] * w);
            }
            let place =
                |p: usize| (0..channels).map(|c| gradient[c * pixels + p] * image[c * pixels + p]).sum();
            maps.extend((0..pixels).map(place).collect::<Vec<f64>>());
        }
        Tensor::new([samples, height, width], maps)
    }

    fn randomised_maps(&self, _: &Tensor, _: usize, _: u64) -> Result<Option<Vec<Tensor>>> {
        Ok((!self.randomised.is_empty()).then(|| self.randomised.clone()))
    }
}

/// A fixture: arrays by name.
fn fixture(name: &str) -> Weights {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/");
    Weights::open(format!("{path}{name}.safetensors")).unwrap()
}

fn numbers(file: &Weights, name: &str) -> Vec<f64> {
    file.get(name).unwrap_or_else(|| panic!("{name}")).to_f64().to_vec()
}

/// The image `c1` or `c3` of a fixture with everything that belongs to it.
struct Example {
    network: Small,
    image: Tensor,
    map: Tensor,
    mask: Vec<bool>,
    class: usize,
}

impl Example {
    fn new(file: &Weights, name: &str) -> Self {
        let of = |part: &str| numbers(file, &format!("{name}.{part}"));
        Example {
            network: Small {
                first: (of("w1"), of("b1")),
                last: (of("w2"), of("b2")),
                randomised: Vec::new(),
            },
            image: file.get(&format!("{name}.x")).unwrap().clone(),
            map: file.get(&format!("{name}.map")).unwrap().clone(),
            mask: of("mask").into_iter().map(|value| value > 0.0).collect(),
            class: of("class")[0] as usize,
        }
    }

    fn case(&self) -> Case<'_> {
        Case {
            image: &self.image,
            class: self.class,
            map: &self.map,
            mask: Some(&self.mask),
            network: &self.network,
            seed: 1,
        }
    }
}

/// The value of a metric for a case, with what was drawn at random where it is known.
fn value(text: &str, case: &Case<'_>, drawn: Option<&Tensor>) -> std::result::Result<f64, Undefined> {
    let (name, inline) = text.split_once(':').unwrap_or((text, ""));
    let mut options = monosplit_graph::Options::parse(inline).unwrap();
    let Some(drawn) = drawn.filter(|_| name != "mprt") else {
        return metrics::parse(text).unwrap().measure(case).unwrap();
    };
    let samples = drawn.shape()[0];
    let values = drawn.to_f32();
    let copy = |sample: usize, copy: &mut [f32]| {
        copy.copy_from_slice(&values[sample * copy.len()..][..copy.len()]);
    };
    options.set("samples", &samples.to_string());
    options.set("batch", "2");
    let options = &mut options;
    let found = match name {
        "max-sensitivity" => MaxSensitivity::read(options).unwrap().value(case, &copy),
        "average-sensitivity" => AverageSensitivity::read(options).unwrap().value(case, &copy),
        "local-lipschitz" => LocalLipschitz::read(options).unwrap().value(case, &copy),
        "faithfulness-correlation" => {
            let places: Vec<usize> = drawn.to_i64().unwrap().iter().map(|&place| place as usize).collect();
            let subsets: Vec<Vec<usize>> = places.chunks(drawn.shape()[1]).map(<[usize]>::to_vec).collect();
            FaithfulnessCorrelation::read(options).unwrap().value(case, Some(&subsets))
        }
        _ => panic!("{name} draws nothing"),
    };
    measured(found).unwrap()
}

fn agrees_with(file: &str) {
    let file = fixture(file);
    let mut compared = 0;
    for (key, expected) in file.iter() {
        let words: Vec<&str> = key.split('|').collect();
        let [example, text] = words[..] else { continue };
        let mut example = Example::new(&file, example);
        let drawn = file.get(&format!("{key}|drawn"));
        if let Some(maps) = drawn.filter(|_| text.starts_with("mprt")) {
            let pixels = example.map.len();
            let map = |map: &[f64]| Tensor::new(example.map.shape(), map.to_vec()).unwrap();
            example.network.randomised = maps.to_f64().chunks(pixels).map(map).collect();
        }
        let expected = expected.to_f64()[0];
        let found = value(text, &example.case(), drawn);
        let close = match &found {
            Ok(found) => (found - expected).abs() <= 1e-5 * expected.abs().max(1.0),
            Err(_) => expected.is_nan(),
        };
        assert!(close, "{key}: expected {expected}, found {found:?}");
        compared += 1;
    }
    assert!(compared > 15, "{compared} values compared");
}

#[test]
fn metrics_agree_with_quantus_0_6() {
    agrees_with("quantus-0.6");
}

#[test]
fn metrics_agree_with_quantus_0_5() {
    agrees_with("quantus-0.5");
}

#[test]
fn metrics_agree_with_the_words_of_their_papers() {
    agrees_with("others");
}

#[test]
fn similarities_agree_with_scikit_image_and_scipy() {
    let file = fixture("others");
    for pair in ["smooth", "ties", "noise"] {
        let shape = file.get(&format!("{pair}.a")).unwrap().shape().to_vec();
        let [a, b] = ["a", "b"].map(|side| numbers(&file, &format!("{pair}.{side}")));
        for similarity in Similarity::ALL {
            let expected = numbers(&file, &format!("{pair}.{}", similarity.name()))[0];
            let found = similarity.of(&a, &b, shape[0]).unwrap();
            assert!((found - expected).abs() < 1e-6, "{pair} {similarity:?}: {expected} {found}");
        }
        let features = crate::similarity::Hog::default().features(&a, shape[0], shape[1]).unwrap();
        let expected = numbers(&file, &format!("{pair}.features"));
        assert_eq!(features.len(), expected.len());
        for (found, expected) in features.iter().zip(&expected) {
            assert!((found - expected).abs() < 1e-6, "{pair}: {expected} {found}");
        }
    }
}

#[test]
fn removed_pixels_are_filled_in_as_by_quantus() {
    let file = fixture("others");
    let removed = file.get("imputed.removed").unwrap().to_i64().unwrap();
    let removed: Vec<usize> = removed.iter().map(|&place| place as usize).collect();
    let expected = numbers(&file, "imputed");
    let mut image = numbers(&file, "c3.x");
    let imputation = metrics::imputation::Imputation::new(removed, 12, 12);
    image.chunks_mut(144).for_each(|plane| imputation.fill(plane));
    for (found, expected) in image.iter().zip(&expected) {
        assert!((found - expected).abs() < 1e-7);
    }
}

#[test]
fn the_size_of_a_batch_does_not_matter() {
    let file = fixture("others");
    let example = Example::new(&file, "c3");
    for name in
        ["pixel-flipping:step=5", "selectivity:patch=3", "insertion", "road", "max-sensitivity:samples=7"]
    {
        let with = |batch: usize| {
            let separator = if name.contains(':') { ',' } else { ':' };
            value(&format!("{name}{separator}batch={batch}"), &example.case(), None).unwrap().to_bits()
        };
        assert!([2, 3, 50].map(with).iter().all(|&bits| bits == with(1)), "{name}");
    }
}

#[test]
fn degenerate_maps_are_undefined_or_errors() {
    let file = fixture("others");
    let example = Example::new(&file, "c3");
    let zeros = vec![0.0; 144];
    let with = |place: usize, value: f64| {
        let mut map = zeros.clone();
        map[place] = value;
        map
    };
    let maps = [
        zeros.clone(),
        vec![1.0; 144],
        vec![-3.0; 144],
        vec![f64::NAN; 144],
        with(3, f64::NAN),
        with(4, f64::INFINITY),
        with(5, f64::NEG_INFINITY),
        with(6, 1e308),
        with(7, 1e-320),
    ];
    let masks = [None, Some(vec![false; 144]), Some(vec![true; 144]), Some(vec![true; 7])];
    for entry in metrics::all() {
        let pairs = maps.iter().flat_map(|map| masks.iter().map(move |mask| (map, mask)));
        for ((map, mask), preset) in pairs.zip(MetricPreset::ALL.into_iter().cycle()) {
            let metric = metrics::parse(&format!("{}:preset={}", entry.name, preset.name())).unwrap();
            let map = Tensor::new([12, 12], map.clone()).unwrap();
            let case = Case { map: &map, mask: mask.as_deref(), ..example.case() };
            if let Ok(Ok(value)) = metric.measure(&case) {
                assert!(value.is_finite(), "{}: {value}", entry.name);
                assert!(!map.to_f64().iter().any(|v| !v.is_finite()), "{}", entry.name);
            }
        }
    }
}

#[test]
fn an_image_of_one_pixel_is_no_reason_to_panic() {
    let network = Small {
        first: (vec![1.0, -1.0], vec![0.5, 0.5]),
        last: (vec![1.0, 0.0, 0.0, 1.0], vec![0.0, 0.0]),
        randomised: vec![Tensor::new([1, 1], vec![2.0]).unwrap()],
    };
    let image = Tensor::new([1, 1, 1, 1], vec![0.25f32]).unwrap();
    let map = Tensor::new([1, 1], vec![1.0]).unwrap();
    for (entry, preset) in
        metrics::all().iter().flat_map(|entry| MetricPreset::ALL.map(|preset| (entry, preset)))
    {
        let metric = metrics::parse(&format!("{}:preset={}", entry.name, preset.name())).unwrap();
        for class in [0, 1, 9] {
            let case =
                Case { image: &image, class, map: &map, mask: Some(&[true]), network: &network, seed: 0 };
            let _ = metric.measure(&case);
        }
    }
}
