//! Known architectures from bare weights: torchvision's classifiers, built from a state dict that has tensors
//! but no structure. Layers carry PyTorch's module paths; batch normalisation and dropout stay nodes of their own.

mod adaptive;
mod alexnet;
mod builder;
mod closest;
mod densenet;
mod googlenet;
mod mobilenet;
mod naming;
mod resnet;
mod squeezenet;
mod state_dict;
mod vgg;

use std::sync::LazyLock;

use builder::Builder;
use closest::closest;
use state_dict::{Parameter, StateDict, listed};

use crate::error::{Error, ErrorKind, Result};
use crate::graph::{Graph, NodeId};
use crate::weights::Weights;

/// The longest side of an image an architecture is built for.
const LONGEST_SIDE: usize = 1 << 14;

/// How many names are offered for one that is not known.
const OFFERED: usize = 3;

/// Classes of a network whose weights do not say.
const IMAGENET_CLASSES: usize = 1000;

/// What an architecture leaves open.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArchOptions {
    /// Height and width of the image that enters, 224×224 by default.
    pub input: (usize, usize),
    /// Whether `googlenet` first brings an image from torchvision's normalisation to the `[-1, 1]` its published
    /// weights were trained with. True by default, as in `torchvision.models.googlenet(weights=…)`, and right for
    /// whatever was fine-tuned from those; false for weights trained from scratch. Other architectures ignore it.
    pub transform_input: bool,
    /// Whether tensors the architecture has no use for are an error, as in PyTorch's `load_state_dict`. True by
    /// default: what is left over often says that the weights belong to another architecture.
    pub strict: bool,
}

impl Default for ArchOptions {
    fn default() -> Self {
        ArchOptions { input: (224, 224), transform_input: true, strict: true }
    }
}

impl ArchOptions {
    /// The same for images of this height and width.
    #[must_use]
    pub fn input(self, input: (usize, usize)) -> Self {
        ArchOptions { input, ..self }
    }

    /// The same with or without the first step of `googlenet`.
    #[must_use]
    pub fn transform_input(self, transform_input: bool) -> Self {
        ArchOptions { transform_input, ..self }
    }

    /// The same with tensors that are left over as an error, or not.
    #[must_use]
    pub fn strict(self, strict: bool) -> Self {
        ArchOptions { strict, ..self }
    }
}

/// An architecture.
trait Network: Sync {
    /// The module whose weights have one row per class.
    fn head(&self) -> &'static str;

    /// Prefixes of tensors that evaluation does not read.
    fn training_only(&self) -> &'static [&'static str] {
        &[]
    }

    /// What is done to the image if [`ArchOptions::transform_input`] asks for it.
    fn transform_input(&self, _: &mut Builder, image: NodeId) -> Result<NodeId> {
        Ok(image)
    }

    /// The layers, from the image to the logits.
    fn forward(&self, b: &mut Builder, image: NodeId) -> Result<NodeId>;
}

const FAMILIES: &[&[(&str, &dyn Network)]] = &[
    alexnet::NETWORKS,
    vgg::NETWORKS,
    resnet::NETWORKS,
    squeezenet::NETWORKS,
    densenet::NETWORKS,
    googlenet::NETWORKS,
    mobilenet::NETWORKS,
];

fn networks() -> impl Iterator<Item = (&'static str, &'static dyn Network)> {
    FAMILIES.iter().copied().flatten().copied()
}

/// The names of the architectures, torchvision's.
pub fn names() -> &'static [&'static str] {
    static NAMES: LazyLock<Vec<&str>> = LazyLock::new(|| networks().map(|(name, _)| name).collect());
    &NAMES
}

/// Names and shapes of the tensors architecture `name` reads, in the order of its layers.
pub fn parameters(name: &str, classes: usize) -> Result<Vec<(String, Vec<usize>)>> {
    declared(find(name)?.1, classes)
}

/// Architecture `name` with the given weights; a graph from an image `[N, 3, height, width]` to logits.
///
/// The number of classes is that of the weights' last layer. A prefix that all names share (`model.`,
/// `backbone.`) is dropped, names of older torchvision checkpoints are understood, auxiliary heads are ignored.
///
/// ```
/// use monosplit_graph::{Shape, Tensor, arch, weights::Weights};
///
/// let zeros = |shape: Vec<usize>| Tensor::new(shape.clone(), vec![0f32; shape.iter().product()]);
/// let tensors = arch::parameters("squeezenet1_1", 37)?.into_iter();
/// let weights: Weights = tensors.map(|(name, shape)| Ok((name, zeros(shape)?))).collect::<Result<_, _>>()?;
/// let graph = arch::build("squeezenet1_1", &weights, &arch::ArchOptions::default())?;
/// assert_eq!(graph.node(graph.outputs()[0].node).shape, Shape::batched(&[37]));
/// # Ok::<(), monosplit_graph::Error>(())
/// ```
pub fn build(name: &str, weights: &Weights, options: &ArchOptions) -> Result<Graph> {
    let (name, network) = find(name)?;
    let (height, width) = options.input;
    if !(1..=LONGEST_SIDE).contains(&height) || !(1..=LONGEST_SIDE).contains(&width) {
        return Err(Error::argument(format!(
            "'{name}' was asked for images of {height}×{width}; both sides must be 1 to {LONGEST_SIDE}"
        )));
    }
    let (weights, classes) = fitted(name, network, weights, options.strict)
        .map_err(|complaint| Error::argument(complaint + &advice(weights)))?;
    forward(network, Builder::with_weights(&weights, classes), options)
}

fn find(name: &str) -> Result<(&'static str, &'static dyn Network)> {
    networks().find(|(known, _)| *known == name).ok_or_else(|| {
        let near = listed(&closest(name, names().iter().copied(), OFFERED));
        Error::new(
            ErrorKind::UnknownName,
            format!("there is no architecture '{name}'; the closest are {near}"),
        )
    })
}

fn forward(network: &dyn Network, mut b: Builder, options: &ArchOptions) -> Result<Graph> {
    let mut image = b.image(options);
    if options.transform_input {
        image = network.transform_input(&mut b, image)?;
    }
    let logits = network.forward(&mut b, image)?;
    Ok(b.finish(logits))
}

fn declared(network: &dyn Network, classes: usize) -> Result<Vec<Parameter>> {
    let graph = forward(network, Builder::without_weights(classes), &ArchOptions::default())?;
    let parameters = graph.inputs().iter().skip(1).map(|&id| {
        let node = graph.node(id);
        (node.label.node.clone(), node.shape.at(1).unwrap_or_default())
    });
    Ok(parameters.collect())
}

/// The weights under the architecture's names and the number of classes, or why they do not fit.
fn fitted<'a>(
    name: &'static str,
    network: &dyn Network,
    weights: &'a Weights,
    strict: bool,
) -> Result<(StateDict<'a>, usize), String> {
    let declared = |classes| declared(network, classes).map_err(|error| error.to_string());
    let weights = StateDict::new(name, weights, &declared(IMAGENET_CLASSES)?);
    let classes = weights.rows(&format!("{}.weight", network.head())).unwrap_or(IMAGENET_CLASSES);
    if classes == 0 {
        return Err(format!("the last layer of these weights for '{name}' has no classes"));
    }
    let wanted = declared(classes)?;
    weights.check(&wanted)?;
    if strict {
        weights.check_unused(&wanted, network.training_only())?;
    }
    Ok((weights, classes))
}

/// No architecture has as many tensors.
const MOST_TENSORS: usize = 1 << 12;

/// The architecture the weights do fit, if there is one.
fn advice(weights: &Weights) -> String {
    if weights.len() > MOST_TENSORS {
        return String::new();
    }
    let fits = networks().find(|(name, network)| fitted(name, *network, weights, true).is_ok());
    fits.map_or_else(String::new, |(name, _)| format!("; these are weights of '{name}'"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Op;
    use crate::shape::Shape;
    use crate::tensor::Tensor;

    /// Number of parameters of every architecture with 1000 classes, as torchvision publishes it (`num_params`).
    const PUBLISHED: &[(&str, usize)] = &[
        ("alexnet", 61_100_840),
        ("vgg11", 132_863_336),
        ("vgg11_bn", 132_868_840),
        ("vgg13", 133_047_848),
        ("vgg13_bn", 133_053_736),
        ("vgg16", 138_357_544),
        ("vgg16_bn", 138_365_992),
        ("vgg19", 143_667_240),
        ("vgg19_bn", 143_678_248),
        ("resnet18", 11_689_512),
        ("resnet34", 21_797_672),
        ("resnet50", 25_557_032),
        ("resnet101", 44_549_160),
        ("resnet152", 60_192_808),
        ("wide_resnet50_2", 68_883_240),
        ("wide_resnet101_2", 126_886_696),
        ("resnext50_32x4d", 25_028_904),
        ("resnext101_32x8d", 88_791_336),
        ("resnext101_64x4d", 83_455_272),
        ("squeezenet1_0", 1_248_424),
        ("squeezenet1_1", 1_235_496),
        ("densenet121", 7_978_856),
        ("densenet161", 28_681_000),
        ("densenet169", 14_149_480),
        ("densenet201", 20_013_928),
        ("googlenet", 6_624_904),
        ("mobilenet_v2", 3_504_872),
    ];

    #[test]
    fn parameters_are_as_many_as_published() {
        assert_eq!(names(), PUBLISHED.iter().map(|(name, _)| *name).collect::<Vec<_>>());
        for &(name, published) in PUBLISHED {
            let parameters = parameters(name, 1000).unwrap();
            let learned = parameters.iter().filter(|(name, _)| !name.contains(".running_"));
            let count: usize = learned.map(|(_, shape)| shape.iter().product::<usize>()).sum();
            assert_eq!(count, published, "{name}");
        }
    }

    #[test]
    fn every_architecture_takes_any_image_size() {
        for (name, network) in networks() {
            for input in [(224, 224), (160, 192), (299, 331)] {
                let options = ArchOptions { input, ..ArchOptions::default() };
                let graph = forward(network, Builder::without_weights(5), &options).unwrap();
                assert_eq!(graph.node(graph.inputs()[0]).shape, Shape::batched(&[3, input.0, input.1]));
                assert_eq!(
                    graph.node(graph.outputs()[0].node).shape,
                    Shape::batched(&[5]),
                    "{name} {input:?}"
                );
            }
        }
    }

    fn fabricated(name: &str, classes: usize, rename: impl Fn(&str) -> String) -> Weights {
        let tensor = |shape: &[usize]| Tensor::new(shape, vec![0.5f32; shape.iter().product()]).unwrap();
        let parameters = parameters(name, classes).unwrap();
        parameters.iter().map(|(name, shape)| (rename(name), tensor(shape))).collect()
    }

    fn with(weights: Weights, name: &str, shape: &[usize]) -> Weights {
        let tensor = Tensor::new(shape, vec![0f32; shape.iter().product()]).unwrap();
        weights.into_iter().chain([(name.to_owned(), tensor)]).collect()
    }

    fn refusal(name: &str, weights: &Weights) -> String {
        build(name, weights, &ArchOptions::default()).unwrap_err().to_string()
    }

    fn layers(graph: &Graph) -> Vec<&str> {
        let layers = graph.nodes().filter(|(_, node)| !node.label.module.is_empty());
        layers.map(|(_, node)| node.label.module.as_str()).collect()
    }

    /// What `scripts/make_architecture_layers.py` saw PyTorch run, in that order. What is no module there (additions,
    /// concatenations, functional calls) comes in between here.
    #[test]
    fn modules_names_and_shapes_are_pytorchs() {
        let table = include_str!("../../tests/fixtures/arch/layers.csv");
        let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split(',').collect()).collect();
        let options = ArchOptions { input: (160, 192), ..ArchOptions::default() };
        for expected in rows.chunk_by(|a, b| a[0] == b[0]) {
            let (name, network) = find(expected[0][0]).unwrap();
            let graph = forward(network, Builder::without_weights(1000), &options).unwrap();
            let mut found = graph.nodes();
            for row in expected {
                let (_, node) = found
                    .find(|(_, node)| node.label.module == row[1])
                    .unwrap_or_else(|| panic!("{name} has no {} here", row[1]));
                let shape: Vec<usize> = row[2].split('x').map(|n| n.parse().unwrap()).collect();
                assert_eq!(node.shape, Shape::batched(&shape), "{name} {}", row[1]);
                assert_eq!(node.label.node, node.label.module);
            }
        }
    }

    /// As `torchvision.models.feature_extraction.get_graph_node_names` has them.
    #[test]
    fn what_is_no_module_is_named_by_its_function() {
        for (name, function) in [
            ("resnet18", "layer1.0.add"),
            ("densenet121", "features.denseblock1.denselayer2.cat"),
            ("densenet121", "adaptive_avg_pool2d"),
            ("googlenet", "inception3a.branch2.1.relu"),
            ("mobilenet_v2", "features.3.add"),
            ("squeezenet1_1", "flatten"),
        ] {
            let (_, network) = find(name).unwrap();
            let graph = forward(network, Builder::without_weights(2), &ArchOptions::default()).unwrap();
            assert!(layers(&graph).contains(&function), "{name} {function}");
        }
    }

    #[test]
    fn classes_are_those_of_the_weights() {
        let weights = fabricated("mobilenet_v2", 37, str::to_owned);
        let graph = build("mobilenet_v2", &weights, &ArchOptions::default()).unwrap();
        assert_eq!(graph.node(graph.outputs()[0].node).shape, Shape::batched(&[37]));
    }

    #[test]
    fn prefixes_and_old_densenet_names_are_understood() {
        let old = |name: &str| {
            let name = ["norm1", "norm2", "conv1", "conv2"].iter().fold(name.to_owned(), |name, part| {
                let (kind, number) = part.split_at(4);
                match name.split_once(&format!(".{part}.")) {
                    Some((layer, parameter)) => format!("{layer}.{kind}.{number}.{parameter}"),
                    None => name,
                }
            });
            format!("model.backbone.{name}")
        };
        let weights = fabricated("densenet121", 2, old);
        assert!(weights.get("model.backbone.features.denseblock1.denselayer1.norm.1.weight").is_some());
        build("densenet121", &weights, &ArchOptions::default()).unwrap();
    }

    #[test]
    fn googlenets_extras_are_optional() {
        let weights = with(fabricated("googlenet", 3, str::to_owned), "aux1.fc2.weight", &[3, 1024]);
        let weights = with(weights, "conv1.bn.num_batches_tracked", &[]);
        let transformed = build("googlenet", &weights, &ArchOptions::default()).unwrap();
        assert_eq!(layers(&transformed)[..2], ["transform_input.mul", "transform_input.add"]);
        let plain = ArchOptions { transform_input: false, ..ArchOptions::default() };
        assert_eq!(layers(&build("googlenet", &weights, &plain).unwrap())[0], "conv1.conv");
    }

    #[test]
    fn adaptive_pooling_is_the_identity_at_its_own_size() {
        let pool = |input| {
            let options = ArchOptions { input, ..ArchOptions::default() };
            let (_, network) = find("alexnet").unwrap();
            let graph = forward(network, Builder::without_weights(2), &options).unwrap();
            let (_, node) = graph.nodes().find(|(_, node)| node.label.module == "avgpool").unwrap();
            node.op.name()
        };
        assert_eq!(pool((224, 224)), Op::Identity.name());
        assert_eq!(pool((448, 224)), "AveragePool");
        assert_eq!(pool((160, 192)), "MatMul");
    }

    #[test]
    fn an_unknown_name_answers_with_the_closest() {
        let error = build("resnet-18", &Weights::default(), &ArchOptions::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnknownName);
        assert!(error.to_string().contains("'resnet18'"), "{error}");
    }

    #[test]
    fn a_missing_tensor_is_named_with_its_shape_and_what_is_there() {
        let said = refusal("resnet18", &Weights::default());
        assert!(said.contains("weights for 'resnet18' need 'conv1.weight' [64, 3, 7, 7]"), "{said}");
        assert!(said.contains("no tensors"), "{said}");

        let weights = fabricated("squeezenet1_1", 2, |name| name.replace("features.0.", "features.stem."));
        let said = refusal("squeezenet1_1", &weights);
        assert!(said.contains("need 'features.0.weight' [64, 3, 3, 3]"), "{said}");
        assert!(said.contains("'features.stem.weight'") && said.contains("1 more"), "{said}");

        let wrapped = with(fabricated("squeezenet1_1", 2, |name| format!("net.{name}")), "loss.weight", &[2]);
        let said = refusal("squeezenet1_1", &wrapped);
        assert!(
            said.contains("'net.features.0.weight'") && said.contains("keep only what is under 'net.'"),
            "{said}"
        );
    }

    #[test]
    fn a_misfit_names_both_shapes_and_the_architecture_that_fits() {
        let said = refusal("squeezenet1_0", &fabricated("squeezenet1_1", 2, |name| format!("net.{name}")));
        assert!(said.contains("[96, 3, 7, 7]") && said.contains("[64, 3, 3, 3]"), "{said}");
        assert!(said.contains("these are weights of 'squeezenet1_1'"), "{said}");
    }

    #[test]
    fn tensors_without_a_use_are_refused_unless_told_otherwise() {
        let weights = with(fabricated("squeezenet1_1", 2, str::to_owned), "features.13.squeeze.weight", &[1]);
        let said = refusal("squeezenet1_1", &weights);
        assert!(said.contains("1 tensor(s)") && said.contains("'features.13.squeeze.weight'"), "{said}");
        let lenient = ArchOptions { strict: false, ..ArchOptions::default() };
        build("squeezenet1_1", &weights, &lenient).unwrap();
    }

    #[test]
    fn impossible_images_are_refused() {
        let weights = fabricated("squeezenet1_1", 2, str::to_owned);
        for input in [(0, 224), (224, usize::MAX), (8, 8)] {
            let options = ArchOptions { input, ..ArchOptions::default() };
            assert!(build("squeezenet1_1", &weights, &options).is_err(), "{input:?}");
        }
    }
}
