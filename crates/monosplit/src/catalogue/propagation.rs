//! Relevance propagation, and propagation relative to a baseline.

use monosplit_explain::methods::{Baselines, DeepLift, DeepShap, Lrp, PoolChange, RelevanceSeed};
use monosplit_explain::{Composite, NamedRule, ReferenceImage, Rule};
use monosplit_graph::{Error, Result, Tensor, array_file};

use super::{ConfiguredMethod, MethodEntry, MethodFamily, MethodOption, Options, files, option};

/// The default γ and α of rules.
const GAMMA: f64 = 0.25;
const ALPHA: f64 = 2.0;
/// The largest number of baselines.
const MOST_BASELINES: usize = 10_000;

const POOL: MethodOption = option(
    "pool",
    "change",
    "max pooling: to whom the change is owed (change, which adds up), or to the winner (winner, as a gradient)",
);

pub(super) const ENTRIES: &[MethodEntry] = &[
    MethodEntry {
        name: "deeplift",
        family: MethodFamily::Propagation,
        summary: "what every pixel's difference from a baseline contributed to the score (Rescale rule)",
        citation: "Shrikumar, Greenside, Kundaje: Learning Important Features Through Propagating Activation \
                   Differences, 2017",
        options: &[
            option(
                "baseline",
                "0",
                "what the image is compared with: a number for every element, or a .npy file of one image",
            ),
            POOL,
        ],
        make: deep_lift,
    },
    MethodEntry {
        name: "deepshap",
        family: MethodFamily::Propagation,
        summary: "DeepLIFT averaged over several baselines",
        citation: "Lundberg, Lee: A Unified Approach to Interpreting Model Predictions, 2017",
        options: &[
            option("baselines", "noise", "what the image is compared with: noise, or a .npy file of images"),
            option("count", "8", "how many images of noise"),
            option("seed", "0", "which images of noise"),
            POOL,
        ],
        make: deep_shap,
    },
    MethodEntry {
        name: "lrp",
        family: MethodFamily::Propagation,
        summary: "the score handed down from layer to layer by rules, added up over channels",
        citation: "Bach et al.: On Pixel-Wise Explanations for Non-Linear Classifier Decisions by Layer-Wise \
                   Relevance Propagation, 2015",
        options: &[
            option(
                "composite",
                "epsilon-gamma-box",
                "rules by kind of layer: epsilon-gamma-box, epsilon-plus, epsilon-plus-flat, \
                 epsilon-alpha2-beta1, epsilon-alpha2-beta1-flat; or one rule for all: epsilon, gamma, \
                 generalised-gamma, z-plus, alpha-beta, w-square, flat",
            ),
            option("epsilon", "own", "ε of the rule epsilon; own is the composite's, 1e-6 (epsilon: 1e-9)"),
            option("gamma", "0.25", "γ of the rules gamma"),
            option("alpha", "2", "α of the rule alpha-beta"),
            option("beta", "1", "β of the rule alpha-beta, α − 1"),
            option(
                "low",
                "-3",
                "the least value of the preprocessed image, or one for each channel: a/b/c; of pictures, what \
                 the preprocessing leaves of black and white",
            ),
            option("high", "3", "the greatest, given like low"),
            option("stabiliser", "own", "ε of the other rules; own is 1e-6 (epsilon and gamma: 1e-9)"),
            option(
                "rules",
                "",
                "rules of layers by name: conv1=zbox;layer4.*=gamma(0.1);fc=epsilon(0.01), of epsilon, gamma, \
                 paper-gamma, z-plus, alpha-beta, zbox, w-square, flat, pass",
            ),
            option("seed", "score", "what is handed down: the score, or one"),
        ],
        make: lrp,
    },
    MethodEntry {
        name: "attn-lrp",
        family: MethodFamily::Propagation,
        summary: "LRP that passes attention by the rules of AttnLRP: half of a product to each factor, softmax by \
                  its Taylor expansion, norms with their deviation held",
        citation: "Achtibat et al.: AttnLRP: Attention-Aware Layer-Wise Relevance Propagation for Transformers, \
                   ICML 2024",
        options: &[
            option("gamma", "0", "γ of the rule of convolutions and fully connected layers; 0 is the rule ε"),
            option("epsilon", "1e-6", "ε of all denominators"),
            option("seed", "score", "what is handed down: the score, or one"),
        ],
        make: attention_lrp,
    },
];

fn deep_lift(options: &mut Options) -> Result<ConfiguredMethod> {
    let baseline = match options.text("baseline") {
        None => ReferenceImage::default(),
        Some(text) => match text.parse::<f64>() {
            Ok(value) if value.is_finite() => ReferenceImage::Value(value),
            _ => ReferenceImage::Image(images("deeplift", "baseline", "a number", &text)?),
        },
    };
    Ok(ConfiguredMethod::new(DeepLift { baseline, pool: pool(options)? }, "DeepLIFT"))
}

fn deep_shap(options: &mut Options) -> Result<ConfiguredMethod> {
    let file = options.text("baselines").filter(|text| !text.eq_ignore_ascii_case("noise"));
    let baselines = match file {
        Some(text) => {
            if options.is_given("count") || options.is_given("seed") {
                return Err(Error::argument("count and seed belong to the baselines noise"));
            }
            Baselines::Images(images("deepshap", "baselines", "noise", &text)?)
        }
        None => {
            Baselines::Noise { count: options.count("count", 8, 1..=MOST_BASELINES)?, seed: options.seed()? }
        }
    };
    Ok(ConfiguredMethod::new(DeepShap { baselines, pool: pool(options)? }, "DeepSHAP"))
}

fn pool(options: &mut Options) -> Result<PoolChange> {
    let rules = [("change", PoolChange::Change), ("winner", PoolChange::Winner)];
    options.one_of("pool", PoolChange::Change, &rules)
}

/// The images in a file.
fn images(method: &str, key: &str, other: &str, text: &str) -> Result<Tensor> {
    if !array_file::is_array_name(text) {
        return Err(Error::argument(format!(
            "{method}: option '{key}' is {other} or a .npy file, found '{text}'"
        )));
    }
    files::array(text)
}

fn lrp(options: &mut Options) -> Result<ConfiguredMethod> {
    let numbers = Numbers::read(options)?;
    let composite = composite(options, &numbers)?;
    if let Some(key) = numbers.chosen().find(|key| !composite.rules().any(|rule| reads(rule, key))) {
        return Err(Error::argument(format!(
            "lrp: option '{key}' changes nothing: no rule of the composite {} reads it; leave it out or choose another \
             composite",
            composite.name
        )));
    }
    let title = format!("LRP {}", title(&composite.name));
    handed_down(options, composite, title)
}

fn attention_lrp(options: &mut Options) -> Result<ConfiguredMethod> {
    let gamma = options.number("gamma", 0.0, 0.0..=1e6)?;
    let stabiliser = options.number("epsilon", 1e-6, f64::MIN_POSITIVE..=1e6)?;
    let rule = if gamma > 0.0 { Rule::Gamma { gamma } } else { Rule::Epsilon { epsilon: stabiliser } };
    handed_down(options, Composite { stabiliser, ..Composite::attention(rule) }, "AttnLRP".into())
}

fn handed_down(options: &mut Options, composite: Composite, title: String) -> Result<ConfiguredMethod> {
    let seeds = [("score", RelevanceSeed::Score), ("one", RelevanceSeed::One)];
    let seed = options.one_of("seed", RelevanceSeed::Score, &seeds)?;
    let lrp = Lrp { composite, seed };
    Ok(ConfiguredMethod { relevance: Some(lrp.clone()), ..ConfiguredMethod::new(lrp, title) })
}

/// Whether a rule reads the number of this name.
fn reads(rule: &Rule, key: &str) -> bool {
    match rule {
        Rule::Epsilon { .. } => key == "epsilon",
        Rule::Gamma { .. } | Rule::PaperGamma { .. } => key == "gamma",
        Rule::AlphaBeta { .. } => key == "alpha" || key == "beta",
        _ => false,
    }
}

/// The numbers of the rules.
struct Numbers {
    epsilon: Option<f64>,
    gamma: f64,
    alpha: f64,
    beta: f64,
    low: Vec<f64>,
    high: Vec<f64>,
    stabiliser: Option<f64>,
}

impl Numbers {
    fn read(options: &mut Options) -> Result<Self> {
        let alpha = options.number("alpha", ALPHA, 1.0..=1e6)?;
        Ok(Numbers {
            epsilon: own_or_number(options, "epsilon")?,
            gamma: options.number("gamma", GAMMA, 0.0..=1e6)?,
            alpha,
            beta: options.number("beta", alpha - 1.0, 0.0..=1e6)?,
            low: bounds(options, "low", -3.0)?,
            high: bounds(options, "high", 3.0)?,
            stabiliser: own_or_number(options, "stabiliser")?,
        })
    }

    /// The names of the numbers that differ from their default.
    fn chosen(&self) -> impl Iterator<Item = &'static str> {
        let chosen = [
            ("epsilon", self.epsilon.is_some()),
            ("gamma", self.gamma != GAMMA),
            ("alpha", self.alpha != ALPHA),
            ("beta", self.beta != ALPHA - 1.0),
        ];
        chosen.into_iter().filter(|(_, chosen)| *chosen).map(|(name, _)| name)
    }

    fn alpha_beta(&self) -> Rule {
        Rule::AlphaBeta { alpha: self.alpha, beta: self.beta }
    }

    fn zbox(&self) -> Rule {
        Rule::ZBox { low: self.low.clone(), high: self.high.clone() }
    }

    /// A rule as it is written: `gamma`, `gamma(0.1)`.
    fn rule(&self, text: &str, stabiliser: f64) -> Result<Rule> {
        let (name, number) = match text.trim().split_once('(') {
            None => (text.trim(), None),
            Some((name, rest)) => {
                let number = rest.strip_suffix(')').and_then(|number| number.trim().parse::<f64>().ok());
                let number = number.ok_or_else(|| {
                    Error::argument(format!("lrp: expected a rule as NAME or NAME(NUMBER), found '{text}'"))
                })?;
                (name.trim(), Some(number))
            }
        };
        let rule = match (name, number) {
            ("epsilon", _) => Rule::Epsilon { epsilon: number.or(self.epsilon).unwrap_or(stabiliser) },
            ("gamma", _) => Rule::Gamma { gamma: number.unwrap_or(self.gamma) },
            ("paper-gamma", _) => Rule::PaperGamma { gamma: number.unwrap_or(self.gamma) },
            ("alpha-beta", Some(alpha)) => Rule::AlphaBeta { alpha, beta: alpha - 1.0 },
            ("alpha-beta", None) => self.alpha_beta(),
            ("z-plus", None) => Rule::ZPlus,
            ("zbox", None) => self.zbox(),
            ("w-square", None) => Rule::WSquare,
            ("flat", None) => Rule::Flat,
            ("pass", None) => Rule::Pass,
            _ => {
                return Err(Error::argument(format!(
                    "lrp: there is no rule '{text}'; rules are epsilon(ε), gamma(γ), paper-gamma(γ), z-plus, \
                     alpha-beta(α), zbox, w-square, flat and pass"
                )));
            }
        };
        rule.check()?;
        Ok(rule)
    }
}

fn composite(options: &mut Options, numbers: &Numbers) -> Result<Composite> {
    let (low, high) = (numbers.low.clone(), numbers.high.clone());
    let gamma = Rule::Gamma { gamma: numbers.gamma };
    let paper = Rule::PaperGamma { gamma: numbers.gamma };
    let everywhere = Composite::everywhere;
    let boxed = Composite::epsilon_gamma_box(low, high);
    let alpha_beta = |composite: Composite| Composite { convolution: numbers.alpha_beta(), ..composite };
    let named = |name: &str, composite: Composite| Composite { name: name.into(), ..composite };
    let known = [
        ("epsilon-gamma-box", Composite { convolution: gamma.clone(), ..boxed }),
        ("epsilon-plus", Composite::epsilon_plus()),
        ("epsilon-plus-flat", Composite::epsilon_plus_flat()),
        ("epsilon-alpha2-beta1", alpha_beta(Composite::epsilon_alpha2_beta1())),
        ("epsilon-alpha2-beta1-flat", alpha_beta(Composite::epsilon_alpha2_beta1_flat())),
        ("epsilon", Composite::epsilon()),
        (
            "gamma",
            Composite { stabiliser: Composite::gamma().stabiliser, ..named("gamma", everywhere(paper)) },
        ),
        ("generalised-gamma", named("generalised-gamma", everywhere(gamma))),
        ("z-plus", everywhere(Rule::ZPlus)),
        ("alpha-beta", everywhere(numbers.alpha_beta())),
        ("w-square", everywhere(Rule::WSquare)),
        ("flat", everywhere(Rule::Flat)),
    ];
    let names: Vec<(&str, usize)> = known.iter().enumerate().map(|(i, (name, _))| (*name, i)).collect();
    let mut composite = known[options.one_of("composite", 0, &names)?].1.clone();
    if let Some(epsilon) = numbers.epsilon {
        for rule in [&mut composite.convolution, &mut composite.dense, &mut composite.normalisation] {
            if matches!(rule, Rule::Epsilon { .. }) {
                *rule = Rule::Epsilon { epsilon };
            }
        }
    }
    composite.stabiliser = numbers.stabiliser.unwrap_or(composite.stabiliser);
    for part in options.text("rules").unwrap_or_default().split(';').filter(|part| !part.trim().is_empty()) {
        let (pattern, rule) = part.split_once('=').ok_or_else(|| {
            Error::argument(format!("lrp: expected rules as LAYER=RULE;LAYER=RULE, found '{part}'"))
        })?;
        let rule = numbers.rule(rule, composite.stabiliser)?;
        composite.named.push(NamedRule { pattern: pattern.trim().to_owned(), rule });
    }
    composite.check()?;
    Ok(composite)
}

/// A positive number, or none for `own`.
fn own_or_number(options: &mut Options, key: &str) -> Result<Option<f64>> {
    match options.text(key) {
        Some(text) if !text.eq_ignore_ascii_case("own") => {
            let value = text.parse::<f64>().ok().filter(|value| value.is_finite() && *value > 0.0);
            let value = value.ok_or_else(|| {
                Error::argument(format!(
                    "lrp: option '{key}' is a number greater than 0, or own, found '{text}'"
                ))
            })?;
            Ok(Some(value))
        }
        _ => Ok(None),
    }
}

/// One number, or several between slashes.
fn bounds(options: &mut Options, key: &str, default: f64) -> Result<Vec<f64>> {
    let Some(text) = options.text(key) else { return Ok(vec![default]) };
    let numbers = text.split('/').map(|part| part.trim().parse::<f64>().ok().filter(|v| v.is_finite()));
    numbers.collect::<Option<Vec<f64>>>().ok_or_else(|| {
        Error::argument(format!(
            "lrp: option '{key}' is a number, or one for each channel as a/b/c, found '{text}'"
        ))
    })
}

/// A composite's name in captions.
fn title(name: &str) -> String {
    let greek =
        [("epsilon", "ε"), ("alpha2", "α2"), ("beta1", "β1"), ("alpha", "α"), ("beta", "β"), ("gamma", "γ")];
    let name = greek.iter().fold(name.to_owned(), |name, (word, letter)| name.replace(word, letter));
    name.replace("z-plus", "z⁺").replace("w-square", "w²")
}

#[cfg(test)]
mod tests {
    use super::super::{MethodChoice, ValueBounds, parse};

    #[test]
    fn rules_for_layers_are_read_with_their_numbers() {
        let chosen = parse("lrp:rules=conv1=zbox;layer4.*=gamma(0.1);fc = epsilon(1e-3),low=-1/-2/-3", &[]);
        let chosen = format!("{:?}", chosen.unwrap().method);
        for expected in ["layer4.*", "gamma: 0.1", "epsilon: 0.001", "[-1.0, -2.0, -3.0]"] {
            assert!(chosen.contains(expected), "{expected} in {chosen}");
        }
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for text in ["lrp:rules=conv1", "lrp:rules=conv1=warp", "lrp:rules=a=gamma(x)", "lrp:rules=a=flat(2)"]
        {
            assert!(parse(text, &[]).is_err(), "{text}");
        }
        assert!(parse("lrp:composite=alpha-beta,alpha=2,beta=0", &[]).is_err());
        assert!(parse("lrp:low=4", &[]).is_err());
        assert!(parse("deepshap:baselines=nothing.npy", &[]).is_err());
    }

    #[test]
    fn what_is_known_of_the_images_counts_unless_it_was_given() {
        let options =
            vec![("low", "-1/-2/-3".to_owned()), ("high", "4".to_owned()), ("warp", "9".to_owned())];
        let bounds = ValueBounds { options };
        let chosen = |text: &str| {
            let choice = MethodChoice::parse(text, &[]).unwrap();
            format!("{:?}", choice.resolve(&bounds, &monosplit_graph::Graph::new()).unwrap().method)
        };
        assert!(chosen("lrp").contains("low: [-1.0, -2.0, -3.0], high: [4.0]"));
        assert!(chosen("lrp:low=-5").contains("low: [-5.0], high: [4.0]"));
        assert_eq!(chosen("gradient"), "Gradient");
    }

    #[test]
    fn titles_are_written_as_people_write_them() {
        let title = |text: &str| parse(text, &[]).unwrap().title;
        assert_eq!(title("lrp"), "LRP ε-γ-box");
        assert_eq!(title("lrp:composite=epsilon-alpha2-beta1"), "LRP ε-α2-β1");
        assert_eq!(title("lrp:composite=z-plus"), "LRP z⁺");
    }

    #[test]
    fn a_number_that_no_rule_reads_is_refused() {
        for (text, key) in [("lrp:alpha=3", "alpha"), ("lrp:composite=epsilon,gamma=1", "gamma")] {
            let error = parse(text, &[]).err().unwrap().to_string();
            assert!(error.contains(key) && error.contains("changes nothing"), "{error}");
        }
        for text in ["lrp:composite=alpha-beta,alpha=3", "lrp:rules=fc=alpha-beta,alpha=3"] {
            assert!(parse(text, &[]).is_ok(), "{text}");
        }
    }
}
