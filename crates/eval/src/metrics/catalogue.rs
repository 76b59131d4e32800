//! The catalogue of metrics: their names, options and publications. Texts are parsed into typed options here.

use monosplit_graph::options::closest;
use monosplit_graph::{Error, Options, Result};

use super::insertion_deletion::Direction;
use super::{
    AttributionLocalisation, AverageSensitivity, Completeness, Complexity, EffectiveComplexity,
    FaithfulnessCorrelation, Infidelity, InsertionDeletion, LocalLipschitz, LocalisationAuc, MaxSensitivity,
    Mprt, PixelFlipping, PointingGame, RandomLogit, RegionPerturbation, RelevanceMassAccuracy,
    RelevanceRankAccuracy, Road, Selectivity, Sparseness, TopKIntersection,
};
use crate::metric::{Better, Case, CaseShape, Metric, Undefined};

/// An entry of the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct MetricEntry {
    /// The name in experiments.
    pub name: &'static str,
    /// The property it measures.
    pub family: MetricFamily,
    /// What it measures, in one line.
    pub summary: &'static str,
    /// Where it was published.
    pub citation: &'static str,
    /// The keys of its options.
    pub options: &'static [&'static str],
    make: fn(&mut Options) -> Result<Box<dyn Metric>>,
}

/// The property of a map that metrics measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetricFamily {
    /// Does the network need what the map points at?
    Faithfulness,
    /// Does the map point at the object?
    Localisation,
    /// Does the map stay when the image hardly changes?
    Robustness,
    /// Is the map simple?
    Complexity,
    /// Does the map depend on the network and the class?
    Randomisation,
    /// Does the map add up?
    Axioms,
}

impl MetricFamily {
    /// What it is called.
    pub fn title(self) -> &'static str {
        match self {
            MetricFamily::Faithfulness => "faithfulness",
            MetricFamily::Localisation => "localisation",
            MetricFamily::Robustness => "robustness",
            MetricFamily::Complexity => "complexity",
            MetricFamily::Randomisation => "randomisation",
            MetricFamily::Axioms => "axioms",
        }
    }
}

/// A metric under the text it was parsed from.
struct NamedMetric {
    text: String,
    metric: Box<dyn Metric>,
}

impl Metric for NamedMetric {
    fn name(&self) -> &str {
        &self.text
    }

    fn better(&self) -> Better {
        self.metric.better()
    }

    fn needs_mask(&self) -> bool {
        self.metric.needs_mask()
    }

    fn recomputes_maps(&self) -> bool {
        self.metric.recomputes_maps()
    }

    fn needs_class_scores(&self) -> Option<&'static str> {
        self.metric.needs_class_scores()
    }

    fn check(&self, frame: &CaseShape) -> Result<()> {
        self.metric.check(frame)
    }

    fn measure(&self, case: &Case<'_>) -> Result<std::result::Result<f64, Undefined>> {
        self.metric.measure(case)
    }
}

/// Parses a metric such as `pixel-flipping:auc=5,preset=paper`. Its name is that text with the options in alphabetical
/// order.
pub fn parse(text: &str) -> Result<Box<dyn Metric>> {
    let (name, inline) = text.split_once(':').unwrap_or((text, ""));
    let entry = MetricEntry::find(name)?;
    let given = Options::parse(inline)?.of(entry.name, entry.options.iter().copied());
    let text = match given.to_string() {
        options if options.is_empty() => entry.name.to_owned(),
        options => format!("{}:{options}", entry.name),
    };
    let mut options = given;
    let metric = (entry.make)(&mut options)?;
    options.all_used()?;
    Ok(Box::new(NamedMetric { text, metric }))
}

impl MetricEntry {
    /// The entry of that name, or an error that suggests the closest name.
    pub fn find(name: &str) -> Result<&'static MetricEntry> {
        let wanted = name.trim().to_ascii_lowercase().replace('_', "-");
        all().iter().find(|entry| entry.name == wanted).ok_or_else(|| {
            let names: Vec<&str> = all().iter().map(|entry| entry.name).collect();
            Error::argument(format!(
                "there is no metric '{name}'; {}the metrics are {}",
                closest(&wanted, &names),
                names.join(", ")
            ))
        })
    }
}

/// All metrics, family by family.
pub fn all() -> &'static [MetricEntry] {
    ENTRIES
}

macro_rules! made {
    ($metric:ty) => {
        |options| Ok(Box::new(<$metric>::read(options)?))
    };
}

const ENTRIES: &[MetricEntry] = &[
    MetricEntry {
        name: "pixel-flipping",
        family: MetricFamily::Faithfulness,
        summary: "the area under the curve of the class while pixels are removed, most important first",
        citation: "Bach et al.: On Pixel-Wise Explanations for Non-Linear Classifier Decisions by Layer-Wise Relevance \
                   Propagation, PLoS ONE 2015",
        options: &[
            "abs",
            "auc",
            "baseline",
            "batch",
            "curve",
            "normalise",
            "output",
            "preset",
            "step",
            "unit",
        ],
        make: made!(PixelFlipping),
    },
    MetricEntry {
        name: "selectivity",
        family: MetricFamily::Faithfulness,
        summary: "the area under the curve of the class while patches are removed, most important first",
        citation: "Montavon, Samek, Müller: Methods for Interpreting and Understanding Deep Neural Networks, Digital \
                   Signal Processing 2018",
        options: &["abs", "baseline", "batch", "normalise", "output", "patch", "preset", "tiling"],
        make: made!(Selectivity),
    },
    MetricEntry {
        name: "region-perturbation",
        family: MetricFamily::Faithfulness,
        summary: "how far the class drops while patches are removed, most important first",
        citation: "Samek et al.: Evaluating the Visualization of What a Deep Neural Network Has Learned, IEEE TNNLS 2017",
        options: &[
            "abs",
            "baseline",
            "batch",
            "normalise",
            "order",
            "output",
            "patch",
            "preset",
            "regions",
            "summary",
            "tiling",
        ],
        make: made!(RegionPerturbation),
    },
    MetricEntry {
        name: "insertion",
        family: MetricFamily::Faithfulness,
        summary: "the mean of the class's output while pixels are put back into a blurred image",
        citation: RISE,
        options: RISE_OPTIONS,
        make: |options| Ok(Box::new(InsertionDeletion::read(Direction::Insertion, options)?)),
    },
    MetricEntry {
        name: "deletion",
        family: MetricFamily::Faithfulness,
        summary: "the mean of the class's output while pixels are deleted, most important first",
        citation: RISE,
        options: RISE_OPTIONS,
        make: |options| Ok(Box::new(InsertionDeletion::read(Direction::Deletion, options)?)),
    },
    MetricEntry {
        name: "faithfulness-correlation",
        family: MetricFamily::Faithfulness,
        summary: "the correlation of the map's sum over random pixels with the drop when they are removed",
        citation: BHATT,
        options: &["abs", "baseline", "batch", "normalise", "output", "preset", "runs", "subset", "unit"],
        make: made!(FaithfulnessCorrelation),
    },
    MetricEntry {
        name: "infidelity",
        family: MetricFamily::Faithfulness,
        summary: "the squared error of the map as a linear model of the drop when squares are removed",
        citation: YEH,
        options: &["abs", "baseline", "batch", "normalise", "output", "patch", "preset"],
        make: made!(Infidelity),
    },
    MetricEntry {
        name: "road",
        family: MetricFamily::Faithfulness,
        summary: "how often the decision stays when the most important pixels are filled in from the others",
        citation: "Rong, Leemann, Borisov, Kasneci, Kasneci: A Consistent and Efficient Evaluation Strategy for \
                   Attribution Methods, ICML 2022",
        options: &["abs", "batch", "every", "first", "last", "noise", "normalise", "preset"],
        make: made!(Road),
    },
    MetricEntry {
        name: "attribution-localisation",
        family: MetricFamily::Localisation,
        summary: "the share of the map that lies on the object",
        citation: "Kohlbrenner et al.: Towards Best Practice in Explaining Neural Network Decisions with LRP, IJCNN 2020",
        options: &["abs", "normalise", "positive", "preset", "rule", "stabiliser", "weighted"],
        make: made!(AttributionLocalisation),
    },
    MetricEntry {
        name: "pointing-game",
        family: MetricFamily::Localisation,
        summary: "whether the highest place of the map lies on the object; of several highest ones, whether any does",
        citation: "Zhang, Bargal, Lin, Brandt, Shen, Sclaroff: Top-Down Neural Attention by Excitation Backprop, IJCV 2018",
        options: &["abs", "constant", "normalise", "preset", "weighted"],
        make: made!(PointingGame),
    },
    MetricEntry {
        name: "relevance-rank-accuracy",
        family: MetricFamily::Localisation,
        summary: "the share of the highest places, as many as the object has, that lie on it",
        citation: ARRAS,
        options: &["abs", "normalise", "preset"],
        make: made!(RelevanceRankAccuracy),
    },
    MetricEntry {
        name: "relevance-mass-accuracy",
        family: MetricFamily::Localisation,
        summary: "the share of the signed map that lies on the object",
        citation: ARRAS,
        options: &["abs", "normalise", "preset", "rule"],
        make: made!(RelevanceMassAccuracy),
    },
    MetricEntry {
        name: "top-k-intersection",
        family: MetricFamily::Localisation,
        summary: "the share of the k highest places that lies on the object",
        citation: "Theiner, Müller-Budack, Ewerth: Interpretable Semantic Photo Geolocation, WACV 2022",
        options: &["abs", "concept-influence", "k", "normalise", "preset"],
        make: made!(TopKIntersection),
    },
    MetricEntry {
        name: "auc",
        family: MetricFamily::Localisation,
        summary: "the area under the ROC curve of the map as a detector of the object",
        citation: "Fawcett: An Introduction to ROC Analysis, Pattern Recognition Letters 2006",
        options: &["abs", "normalise", "preset"],
        make: made!(LocalisationAuc),
    },
    MetricEntry {
        name: "max-sensitivity",
        family: MetricFamily::Robustness,
        summary: "the largest relative change of the map near the image",
        citation: YEH,
        options: SENSITIVITY_OPTIONS,
        make: made!(MaxSensitivity),
    },
    MetricEntry {
        name: "average-sensitivity",
        family: MetricFamily::Robustness,
        summary: "the mean relative change of the map near the image",
        citation: YEH,
        options: SENSITIVITY_OPTIONS,
        make: made!(AverageSensitivity),
    },
    MetricEntry {
        name: "local-lipschitz",
        family: MetricFamily::Robustness,
        summary: "the largest change of the map by the change of the image, near the image",
        citation: "Alvarez-Melis, Jaakkola: On the Robustness of Interpretability Methods, 2018",
        options: &["abs", "batch", "deviation", "normalise", "preset", "same-decision", "samples"],
        make: made!(LocalLipschitz),
    },
    MetricEntry {
        name: "sparseness",
        family: MetricFamily::Complexity,
        summary: "the Gini index of the map",
        citation: "Chalasani et al.: Concise Explanations of Neural Networks Using Adversarial Training, ICML 2020",
        options: &["abs", "normalise", "preset"],
        make: made!(Sparseness),
    },
    MetricEntry {
        name: "complexity",
        family: MetricFamily::Complexity,
        summary: "the entropy of the map's shares",
        citation: BHATT,
        options: &["abs", "normalise", "preset", "stabiliser"],
        make: made!(Complexity),
    },
    MetricEntry {
        name: "effective-complexity",
        family: MetricFamily::Complexity,
        summary: "how many places of the map are above a threshold",
        citation: "Nguyen, Martínez: On Quantitative Aspects of Model Interpretability, 2020",
        options: &["abs", "normalise", "preset", "threshold"],
        make: made!(EffectiveComplexity),
    },
    MetricEntry {
        name: "mprt",
        family: MetricFamily::Randomisation,
        summary: "how alike the map stays when layers are re-initialised from the top down",
        citation: "Adebayo et al.: Sanity Checks for Saliency Maps, NeurIPS 2018",
        options: &["abs", "normalise", "preset", "similarity", "summary"],
        make: made!(Mprt),
    },
    MetricEntry {
        name: "random-logit",
        family: MetricFamily::Randomisation,
        summary: "how alike the map is to that of another class",
        citation: "Sixt, Granz, Landgraf: When Explanations Lie: Why Many Modified BP Attributions Fail, ICML 2020",
        options: &["abs", "normalise", "other", "preset", "similarity"],
        make: made!(RandomLogit),
    },
    MetricEntry {
        name: "completeness",
        family: MetricFamily::Axioms,
        summary: "how far the map's sum is from what the class gains over an empty image",
        citation: "Sundararajan, Taly, Yan: Axiomatic Attribution for Deep Networks, ICML 2017",
        options: &["abs", "baseline", "normalise", "output", "preset", "verdict"],
        make: made!(Completeness),
    },
];

const YEH: &str = "Yeh, Hsieh, Suggala, Inouye, Ravikumar: On the (In)fidelity and Sensitivity of Explanations, NeurIPS 2019";
const BHATT: &str =
    "Bhatt, Weller, Moura: Evaluating and Aggregating Feature-Based Model Explanations, IJCAI 2020";
const ARRAS: &str = "Arras, Osman, Samek: CLEVR-XAI: A Benchmark Dataset for the Ground Truth Evaluation of Neural \
                     Network Explanations, Information Fusion 2022";
const RISE: &str =
    "Petsiuk, Das, Saenko: RISE: Randomized Input Sampling for Explanation of Black-Box Models, BMVC 2018";
const RISE_OPTIONS: &[&str] =
    &["abs", "baseline", "batch", "normalise", "output", "preset", "step", "substrate"];
const SENSITIVITY_OPTIONS: &[&str] =
    &["abs", "batch", "normalise", "preset", "radius", "same-decision", "samples"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::MetricPreset;

    #[test]
    fn every_metric_takes_every_preset_and_is_called_what_was_asked_for() {
        for entry in all() {
            assert_eq!(parse(entry.name).unwrap().name(), entry.name);
            for preset in MetricPreset::ALL {
                let text = format!("{}:preset={}", entry.name, preset.name());
                let metric = parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
                assert_eq!(metric.name(), text);
            }
        }
        assert_eq!(parse(" Pixel_Flipping: step = 7, auc=5").unwrap().name(), "pixel-flipping:auc=5,step=7");
    }

    #[test]
    fn what_is_misspelt_is_answered_with_the_closest() {
        let refused = |text: &str| parse(text).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(refused("pixel-fliping").contains("did you mean 'pixel-flipping'?"));
        assert!(refused("selectivity:pach=8").contains("did you mean 'patch'?"));
        assert!(refused("selectivity:patch=0").contains("from 1 to"));
        assert!(refused("selectivity:preset=quantus").contains("quantus-0.6"));
        assert!(refused("pixel-flipping:baseline=grey").contains("running-mean"));
    }
}
