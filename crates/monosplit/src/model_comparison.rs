//! Two networks on the same inputs: their scores, their maps, and how far these are apart. What is compared may be a network
//! before and after training, in single and half precision, or whole and pruned.

use monosplit_engine::Engine;
use monosplit_eval::Similarity;
use monosplit_explain::{BatchPosition, Class, Explanation, Finish, NoProgress, Progress, SaliencyMap};
use monosplit_graph::{Error, Hint, Result, Tensor};
use monosplit_render::ScalarField;

use crate::catalogue::ConfiguredMethod;
use crate::inputs_explainer::InputsExplainer;
use crate::method_set::MethodSet;
use crate::model::Model;
use crate::prediction::{RankedClass, ScoreKind};

/// Two networks with the maps that are compared, compiled.
///
/// ```
/// use monosplit::catalogue::{MethodChoice, ValueBounds};
/// use monosplit::explain::{BatchPosition, Class, Finish, NoProgress};
/// use monosplit::{DifferenceMeasure, Model, ModelComparison};
///
/// # fn main() -> monosplit::Result<()> {
/// # std::env::set_current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/assets")).unwrap();
/// let model = Model::open("pets-small.onnx")?;
/// let method = MethodChoice::parse("gradcam", &[])?.resolve(&ValueBounds::default(), model.graph())?;
/// let maps = [(&method, Some("layer3.2.conv2"))];
/// let engine = monosplit::engine::Cpu::default();
/// let comparison = ModelComparison::new([&model, &model], [&maps, &maps], Finish::default(), &engine)?;
/// let image = model.pattern_sample()?;
/// let position = BatchPosition::default();
/// let found = comparison.compare([&image, &image], &Class::Top, position, || Box::new(NoProgress))?;
/// assert_eq!(DifferenceMeasure::Map.of(&found), Some(0.0));
/// # Ok(())
/// # }
/// ```
pub struct ModelComparison {
    methods: Methods,
    score_kinds: [ScoreKind; 2],
}

/// The methods of both networks.
enum Methods {
    /// Several at layers of the only input.
    Layers(Box<[MethodSet; 2]>),
    /// One of inputs by name.
    Inputs(Box<[InputsExplainer; 2]>),
}

/// How far two networks are apart on one sample.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SampleDifference {
    /// The explained class, the same for both.
    pub class: usize,
    /// The scores of each network.
    pub scores: [Vec<f64>; 2],
    /// The class with the highest score of each network; none where a score is not finite.
    pub predicted: [Option<usize>; 2],
    /// The maps, in the order they were asked for.
    pub maps: Vec<MapDifference>,
}

/// How far the maps of two networks are apart.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MapDifference {
    /// The map of each network, `[1, H, W]` for layers with spatial axes. The second is scaled to the size of the first.
    pub maps: [Tensor; 2],
    /// The power of two that both are to be multiplied by.
    pub exponent: i32,
    /// `‖a − b‖₂ / max(‖a‖₂, ‖b‖₂)`, from 0 for equal maps to 2 for opposite ones.
    pub relative: f64,
    /// The correlation of the ranks; none where a map is constant and the other is not the same.
    pub spearman: Option<f64>,
    /// The structural similarity; none for maps smaller than its window of 7×7, and for maps without two axes.
    pub ssim: Option<f64>,
}

/// A number that says how far two networks are apart on a sample: 0 where they agree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DifferenceMeasure {
    /// The relative difference of the maps, `‖a − b‖₂ / max(‖a‖₂, ‖b‖₂)`.
    #[default]
    Map,
    /// The largest difference of a score over the largest magnitude of a score.
    Score,
    /// 1 less the rank correlation of the maps.
    Spearman,
    /// 1 less the structural similarity of the maps.
    Ssim,
    /// 1 where the predicted classes differ.
    Class,
}

impl DifferenceMeasure {
    /// All of them.
    pub const ALL: [DifferenceMeasure; 5] = [
        DifferenceMeasure::Map,
        DifferenceMeasure::Score,
        DifferenceMeasure::Spearman,
        DifferenceMeasure::Ssim,
        DifferenceMeasure::Class,
    ];

    /// Its name in options.
    pub fn name(self) -> &'static str {
        match self {
            DifferenceMeasure::Map => "map",
            DifferenceMeasure::Score => "score",
            DifferenceMeasure::Spearman => "spearman",
            DifferenceMeasure::Ssim => "ssim",
            DifferenceMeasure::Class => "class",
        }
    }

    /// The measure of a sample, of several maps that of the worst; none where it is undefined for one of them.
    pub fn of(self, sample: &SampleDifference) -> Option<f64> {
        let worst = |measure: &dyn Fn(&MapDifference) -> Option<f64>| {
            sample.maps.iter().try_fold(0f64, |most, map| measure(map).map(|value| most.max(value)))
        };
        let found = match self {
            DifferenceMeasure::Map => worst(&|map| Some(map.relative).filter(|value| value.is_finite())),
            DifferenceMeasure::Spearman => worst(&|map| map.spearman.map(|rho| 1.0 - rho)),
            DifferenceMeasure::Ssim => worst(&|map| map.ssim.map(|index| 1.0 - index)),
            DifferenceMeasure::Score => Some(score_difference(&sample.scores)),
            DifferenceMeasure::Class => match sample.predicted {
                [Some(first), Some(second)] => Some(if first == second { 0.0 } else { 1.0 }),
                _ => None,
            },
        };
        found.filter(|value| value.is_finite())
    }
}

impl ModelComparison {
    /// Compiles the maps of two networks, each a method at a layer (none is the image), in the same order for both. Both
    /// networks must have the same number of scores.
    pub fn new(
        models: [&Model; 2],
        maps: [&[(&ConfiguredMethod, Option<&str>)]; 2],
        finish: Finish,
        engine: &dyn Engine,
    ) -> Result<Self> {
        check_scores(models)?;
        if maps[0].len() != maps[1].len() {
            return Err(Error::argument(format!(
                "{} maps of one network cannot be compared with {} of the other; name as many layers of both",
                maps[0].len(),
                maps[1].len()
            )));
        }
        let methods = |side: usize| {
            let compiled = MethodSet::new(models[side], maps[side], finish, engine);
            compiled.map_err(|error| error.context(models[side].origin()))
        };
        let score_kinds = models.map(Model::score_kind);
        Ok(ModelComparison { methods: Methods::Layers(Box::new([methods(0)?, methods(1)?])), score_kinds })
    }

    /// Compiles the maps of the inputs `of` by a method; both networks have inputs of these names. Token ids have one number
    /// for each token.
    pub fn of_inputs(
        models: [&Model; 2],
        methods: [ConfiguredMethod; 2],
        of: &[&str],
        finish: Finish,
        engine: &dyn Engine,
    ) -> Result<Self> {
        check_scores(models)?;
        let [first, second] = methods;
        let compiled = |model: &Model, method| {
            let compiled = model.configured_inputs_explainer(method, of, finish, engine);
            compiled.map_err(|error| error.about(model.origin()))
        };
        let methods = Box::new([compiled(models[0], first)?, compiled(models[1], second)?]);
        Ok(ModelComparison { methods: Methods::Inputs(methods), score_kinds: models.map(Model::score_kind) })
    }

    /// For each map whether it is of token ids.
    pub fn texts(&self) -> Vec<bool> {
        match &self.methods {
            Methods::Layers(_) => Vec::new(),
            Methods::Inputs(methods) => methods[0].tokens().map(|tokens| tokens.is_some()).collect(),
        }
    }

    /// Compares the networks on one sample, given as each of them reads it. A class that is chosen by its score is chosen by
    /// that of the first network.
    pub fn compare(
        &self,
        images: [&Tensor; 2],
        class: &Class,
        position: BatchPosition,
        progress: impl Fn() -> Box<dyn Progress>,
    ) -> Result<SampleDifference> {
        if let Some(image) = images.iter().find(|image| image.shape().first() != Some(&1)) {
            return Err(Error::shape(format!("expected one sample, found the shape {:?}", image.shape())));
        }
        let Methods::Layers(methods) = &self.methods else {
            return Err(Error::argument("the maps are of inputs by name; give the values of all inputs"));
        };
        let first = methods[0].explain(images[0], class, position, &progress)?;
        let same = Class::PerSample(first.classes.clone());
        let second = methods[1].explain(images[1], &same, position, &progress)?;
        self.difference(&first, &second)
    }

    /// The same for inputs by name: one sample of every input of each network.
    pub fn compare_inputs(
        &self,
        values: [&[(&str, Tensor)]; 2],
        class: &Class,
        position: BatchPosition,
    ) -> Result<SampleDifference> {
        let Methods::Inputs(methods) = &self.methods else {
            return Err(Error::argument("the maps are of layers; give one sample of the only input"));
        };
        let explain = |side: usize, class: &Class| -> Result<Explanation> {
            let found = methods[side].explain_at(values[side], class, position, &NoProgress)?;
            let maps = found.maps.into_iter().map(|map| map.map).collect();
            Ok(Explanation { logits: found.logits, classes: found.classes, maps })
        };
        let first = explain(0, class)?;
        if first.classes.len() != 1 {
            let count = first.classes.len();
            return Err(Error::shape(format!("expected one sample of every input, found {count}")));
        }
        let second = explain(1, &Class::PerSample(first.classes.clone()))?;
        self.difference(&first, &second)
    }

    fn difference(&self, first: &Explanation, second: &Explanation) -> Result<SampleDifference> {
        let scores = |explained: &Explanation| explained.logits.to_f64().into_vec();
        let scores = [scores(first), scores(second)];
        let predicted = |side: usize| {
            let best = RankedClass::best(&scores[side], 1, self.score_kinds[side]);
            best.and_then(|best| best.first().map(|ranked| ranked.class))
        };
        let maps = first.maps.iter().zip(&second.maps).map(|(a, b)| MapDifference::new([a, b]));
        Ok(SampleDifference {
            class: first.classes.first().copied().unwrap_or(0),
            predicted: [predicted(0), predicted(1)],
            maps: maps.collect::<Result<_>>()?,
            scores,
        })
    }
}

/// An error if the networks have different numbers of scores.
fn check_scores([first, second]: [&Model; 2]) -> Result<()> {
    let classes = [first.expect_classes()?, second.expect_classes()?];
    if classes[0] == classes[1] {
        return Ok(());
    }
    Err(Error::shape(format!(
        "{} has {} scores and {} has {}; networks are compared by scores, or by a target, that both have",
        first.origin(),
        classes[0],
        second.origin(),
        classes[1]
    ))
    .hint(Hint::new("outputs", "the outputs of a graph list them")))
}

impl MapDifference {
    fn new(maps: [&SaliencyMap; 2]) -> Result<Self> {
        let shape = maps[0].values.shape().to_vec();
        let second = match (&shape[..], maps[1].values.shape()) {
            (first, second) if first == second => maps[1].values.clone(),
            (&[_, height, width], [_, _, _]) => {
                let scaled = ScalarField::from_tensor(&maps[1].values, 0)?.resized(width, height)?;
                Tensor::new([1, height, width], scaled.values().to_vec())?
            }
            (first, second) => {
                return Err(Error::shape(format!(
                    "maps of the shapes {first:?} and {second:?} cannot be compared; name layers of the same shape"
                )));
            }
        };
        let exponents = maps.map(|map| map.exponents.first().copied().unwrap_or(0));
        let exponent = exponents[0].max(exponents[1]);
        let scaled = |values: &Tensor, own: i32| -> Vec<f64> {
            values.to_f64().iter().map(|value| value * f64::from(own - exponent).exp2()).collect()
        };
        let (a, b) = (scaled(&maps[0].values, exponents[0]), scaled(&second, exponents[1]));
        let height = if shape.len() == 3 { Some(shape[1]) } else { None };
        let similar = |similarity: Similarity, height: usize| match a == b {
            // A map is similar to itself where the index has no value, as of constant maps.
            true => Some(1.0),
            false => similarity.of(&a, &b, height).ok(),
        };
        Ok(MapDifference {
            relative: relative_difference(&a, &b),
            spearman: similar(Similarity::Spearman, 1),
            ssim: height.and_then(|height| similar(Similarity::Ssim, height)),
            exponent,
            maps: [Tensor::new(shape.clone(), a)?, Tensor::new(shape, b)?],
        })
    }

    /// The map of the first network less that of the second.
    pub fn difference(&self) -> Result<Tensor> {
        let [a, b] = &self.maps;
        let values: Vec<f64> = a.to_f64().iter().zip(b.to_f64().iter()).map(|(a, b)| a - b).collect();
        Tensor::new(a.shape().to_vec(), values)
    }
}

/// `‖a − b‖₂ / max(‖a‖₂, ‖b‖₂)`; 0 where both are zero.
fn relative_difference(a: &[f64], b: &[f64]) -> f64 {
    // Squares of numbers near the ends of the range would be lost.
    let largest = a.iter().chain(b).fold(0f64, |most, value| most.max(value.abs()));
    if largest == 0.0 {
        return 0.0;
    }
    let norm = |values: &mut dyn Iterator<Item = f64>| {
        values.map(|value| (value / largest).powi(2)).sum::<f64>().sqrt()
    };
    let sizes = [a, b].map(|map| norm(&mut map.iter().copied()));
    norm(&mut a.iter().zip(b).map(|(a, b)| a - b)) / sizes[0].max(sizes[1])
}

/// The largest difference of two scores over the largest magnitude of any; 0 where all are zero, NaN where one is not finite.
fn score_difference([a, b]: &[Vec<f64>; 2]) -> f64 {
    if a.iter().chain(b).any(|score| !score.is_finite()) {
        return f64::NAN;
    }
    let largest = a.iter().chain(b).fold(0f64, |most, score| most.max(score.abs()));
    let apart = a.iter().zip(b).fold(0f64, |most, (a, b)| most.max((a - b).abs()));
    if largest == 0.0 { 0.0 } else { apart / largest }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(height: usize, width: usize, values: Vec<f64>, exponent: i32) -> SaliencyMap {
        let values = Tensor::new([1, height, width], values).unwrap();
        SaliencyMap { values, exponents: vec![exponent], diagnostics: Vec::new() }
    }

    fn ramp(factor: f64) -> Vec<f64> {
        (0..64).map(|i| factor * f64::from(i * i - 900)).collect()
    }

    #[test]
    fn equal_maps_are_not_apart_and_opposite_ones_as_far_as_can_be() {
        let a = map(8, 8, ramp(1.0), 0);
        let same = MapDifference::new([&a, &a]).unwrap();
        assert_eq!((same.relative, same.spearman, same.ssim), (0.0, Some(1.0), Some(1.0)));
        let opposite = MapDifference::new([&a, &map(8, 8, ramp(-1.0), 0)]).unwrap();
        assert_eq!((opposite.relative, opposite.spearman), (2.0, Some(-1.0)));
        assert!(opposite.ssim.unwrap() < 1.0);
        let difference = opposite.difference().unwrap();
        assert!(difference.to_f64().iter().zip(ramp(2.0)).all(|(found, expected)| *found == expected));
    }

    #[test]
    fn a_factor_changes_the_difference_and_no_rank() {
        let found = MapDifference::new([&map(8, 8, ramp(1.0), 0), &map(8, 8, ramp(0.75), 0)]).unwrap();
        assert_eq!((found.relative, found.spearman), (0.25, Some(1.0)));
    }

    #[test]
    fn powers_of_two_that_were_taken_out_count() {
        let found = MapDifference::new([&map(8, 8, ramp(1.0), 3), &map(8, 8, ramp(8.0), 0)]).unwrap();
        assert_eq!((found.relative, found.exponent), (0.0, 3));
        let huge = MapDifference::new([&map(1, 1, vec![1e300], 0), &map(1, 1, vec![5e299], 0)]).unwrap();
        assert_eq!(huge.relative, 0.5);
    }

    #[test]
    fn constant_maps_are_equal_or_cannot_be_ranked() {
        let (zero, one) = (map(8, 8, vec![0.0; 64], 0), map(8, 8, vec![1.0; 64], 0));
        let same = MapDifference::new([&zero, &zero]).unwrap();
        assert_eq!((same.relative, same.spearman, same.ssim), (0.0, Some(1.0), Some(1.0)));
        let other = MapDifference::new([&zero, &one]).unwrap();
        assert_eq!((other.relative, other.spearman), (1.0, None));
    }

    #[test]
    fn maps_of_two_sizes_are_compared_at_the_size_of_the_first() {
        let found = MapDifference::new([&map(8, 8, vec![2.0; 64], 0), &map(4, 4, vec![2.0; 16], 0)]).unwrap();
        assert_eq!(found.relative, 0.0);
        let keeps = |shape: [usize; 4]| SaliencyMap {
            values: Tensor::new(shape, vec![1f32; shape.iter().product()]).unwrap(),
            exponents: vec![0],
            diagnostics: Vec::new(),
        };
        let error = MapDifference::new([&keeps([1, 2, 3, 3]), &keeps([1, 4, 3, 3])]).unwrap_err().to_string();
        assert!(error.contains("[1, 2, 3, 3] and [1, 4, 3, 3]"), "{error}");
    }

    #[test]
    fn measures_are_those_of_the_worst_map_and_undefined_where_scores_are() {
        let (a, b) = (map(8, 8, ramp(1.0), 0), map(8, 8, ramp(0.5), 0));
        let maps = vec![MapDifference::new([&a, &a]).unwrap(), MapDifference::new([&a, &b]).unwrap()];
        let scores = [vec![4.0, -8.0], vec![5.0, -8.0]];
        let mut sample = SampleDifference { class: 0, scores, predicted: [Some(0), Some(1)], maps };
        let all = |sample: &SampleDifference| DifferenceMeasure::ALL.map(|measure| measure.of(sample));
        let ssim = sample.maps[1].ssim.map(|index| 1.0 - index);
        assert_eq!(all(&sample), [Some(0.5), Some(0.125), Some(0.0), ssim, Some(1.0)]);
        sample.scores[1][0] = f64::NAN;
        sample.predicted[1] = None;
        assert_eq!(all(&sample), [Some(0.5), None, Some(0.0), ssim, None]);
    }
}
