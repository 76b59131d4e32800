//! The graph under construction: the network, untouched, and the nodes that methods have added. Walks and streams are kept,
//! so that methods which need the same one share it.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::rc::Rc;

use monosplit_autodiff::{GradientRules, Rules, Walk};
use monosplit_graph::op::Binary;
use monosplit_graph::{Dim, Error, Graph, Kind, NodeId, Op, Result, Shape, Tensor, axis_indices};

use crate::channels::Axes;
use crate::explain_batch::SECOND;
use crate::explanation_graph::{ClassInput, inputs};
use crate::network::Network;
use crate::scaled::Scale;

/// The graph that a method adds its nodes to. It starts as a copy of the network: a value of the network has the same id in
/// both.
pub struct ExplanationBuilder<'a> {
    pub(crate) network: &'a Rc<Network>,
    pub(crate) graph: Graph,
    pub(crate) scale: Scale,
    /// Whether the softmax of the scores are probabilities; scores of a target have none.
    pub(crate) has_probabilities: bool,
    /// The default of the input [`inputs::BASELINE`], where a method reads it.
    pub(crate) baseline: Option<f64>,
    /// How many copies of a sample a method of many passes makes at a time, where that is not its own choice.
    pub(crate) copies: Option<usize>,
    /// Whether the class that was given exists, for each sample, where nothing else checks it.
    pub(crate) class_in_range: Option<NodeId>,
    class: NodeId,
    seed: NodeId,
    shared: SharedValues,
}

/// What has been added to the graph and is asked for again: for each type of keys and values a list of pairs.
#[derive(Default)]
struct SharedValues(HashMap<TypeId, Box<dyn Any>>);

impl SharedValues {
    fn list<K: 'static, V: 'static>(&mut self) -> &mut Vec<(K, V)> {
        type List<K, V> = Vec<(K, V)>;
        let list = self.0.entry(TypeId::of::<List<K, V>>()).or_insert_with(|| Box::new(List::<K, V>::new()));
        list.downcast_mut().expect("the list of a type is kept under that type")
    }

    fn position<K: PartialEq + 'static, V: 'static>(&mut self, key: &K) -> Option<usize> {
        self.list::<K, V>().iter().position(|(known, _)| known == key)
    }
}

impl<'a> ExplanationBuilder<'a> {
    /// The network without its outputs, and in it one at the class of each sample.
    pub(crate) fn new(network: &'a Rc<Network>, class: ClassInput) -> Result<Self> {
        let mut graph = network.graph().clone();
        graph.set_outputs(Vec::new());
        let table = graph.constant(Tensor::vector(axis_indices(network.classes())?));
        let (class, class_in_range) = class_numbers(&mut graph, network, class, table)?;
        let seed = one_hot(&mut graph, class, table)?;
        let scale = Scale::of(network);
        let shared = SharedValues::default();
        let (has_probabilities, baseline, copies) = (true, None, None);
        Ok(ExplanationBuilder {
            network,
            graph,
            scale,
            has_probabilities,
            baseline,
            copies,
            class_in_range,
            class,
            seed,
            shared,
        })
    }

    /// The graph.
    pub fn graph(&mut self) -> &mut Graph {
        &mut self.graph
    }

    /// The explained class of each sample.
    pub fn class(&self) -> NodeId {
        self.class
    }

    /// One at the explained class of each sample, zero elsewhere: where backward walks begin.
    pub fn seed(&self) -> NodeId {
        self.seed
    }

    /// The class scores, `[N, classes]`.
    pub fn scores(&self) -> NodeId {
        self.network.logits()
    }

    /// The image.
    pub fn image(&self) -> NodeId {
        self.network.input()
    }

    /// The ordinary gradient of the explained score with respect to the value `at`.
    pub fn gradient(&mut self, at: NodeId) -> Result<NodeId> {
        self.backward(GradientRules::default(), at)
    }

    /// The message that `rules` carry from the class scores to the value `at`. The message of the class scores is
    /// [`ExplanationBuilder::seed`].
    ///
    /// Equal rule sets share one walk.
    ///
    /// A backward method outside this crate is a set of [`Rules`] and a [`Method`](crate::Method) that names it:
    ///
    /// ```
    /// use monosplit_autodiff::{Edge, GradientRules, Rules};
    /// use monosplit_explain::{Attribution, ExplanationBuilder, GraphMethod, Method, Procedure};
    /// use monosplit_graph::op::{Reduction, Unary};
    /// use monosplit_graph::{Graph, NodeId, Op, Result};
    ///
    /// /// RectGrad with a fixed threshold: at a ReLU with output `a`, a message `r` passes where `a·r` exceeds it.
    /// #[derive(Clone, Copy, Debug, PartialEq)]
    /// struct RectGrad {
    ///     threshold: f64,
    /// }
    ///
    /// impl Rules for RectGrad {
    ///     type Message = NodeId;
    ///
    ///     fn join(&mut self, g: &mut Graph, a: NodeId, b: NodeId) -> Result<NodeId> {
    ///         g.plus(a, b)
    ///     }
    ///
    ///     fn pass(&mut self, g: &mut Graph, edge: &Edge<'_>, r: NodeId) -> Result<Option<NodeId>> {
    ///         if edge.node.op != Op::Unary(Unary::Relu) {
    ///             return GradientRules::default().pass(g, edge, r);
    ///         }
    ///         let importance = g.times(edge.id, r)?;
    ///         let passes = g.more_than(importance, self.threshold)?;
    ///         g.masked(passes, r).map(Some)
    ///     }
    /// }
    ///
    /// impl Method for RectGrad {
    ///     fn name(&self) -> String {
    ///         "rectgrad".to_owned()
    ///     }
    ///
    ///     fn procedure(&self) -> Procedure<'_> {
    ///         Procedure::GraphMethod(self)
    ///     }
    /// }
    ///
    /// impl GraphMethod for RectGrad {
    ///     fn write(&self, builder: &mut ExplanationBuilder<'_>, at: NodeId) -> Result<Attribution> {
    ///         let message = builder.backward(*self, at)?;
    ///         let value = builder.graph().times(message, at)?;
    ///         Ok(Attribution::per_element(value, at, Reduction::Sum))
    ///     }
    /// }
    ///
    /// # fn main() -> Result<()> {
    /// # use monosplit_engine::Cpu;
    /// # use monosplit_explain::{Class, Explainer, MapRequest, Settings};
    /// # use monosplit_graph::{Kind, Shape, Tensor};
    /// # let mut network = Graph::new();
    /// # let image = network.input("image", Shape::batched(&[1, 2, 2]), Kind::Float);
    /// # let rectified = network.unary(Unary::Relu, image)?;
    /// # let scores = network.reshaped(rectified, Shape::batched(&[4]))?;
    /// # network.output("scores", scores);
    /// # let images = Tensor::new([1, 1, 2, 2], vec![1f32, 2.0, 3.0, 4.0])?;
    /// let requests = [MapRequest::at_input(RectGrad { threshold: 3.5 })];
    /// let explainer = Explainer::new(&network, &requests, &Cpu::default())?;
    /// let explanation = explainer.explain(&images, &Class::Top, &Settings::default())?;
    /// # assert_eq!(explanation.classes, [3]);
    /// # assert_eq!(&*explanation.maps[0].values.to_f32(), &[0.0, 0.0, 0.0, 4.0]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn backward<R>(&mut self, rules: R, at: NodeId) -> Result<NodeId>
    where
        R: Rules<Message = NodeId> + Clone + PartialEq + 'static,
    {
        self.message(rules.clone(), at, |builder| Ok(Walk::new(rules, builder.scores(), builder.seed)))
    }

    /// The message of the value `at` in the walk that `key` tells apart from others of its rule set. `begin` starts the walk
    /// where it is first asked for.
    pub(crate) fn message<K: PartialEq + 'static, R: Rules + 'static>(
        &mut self,
        key: K,
        at: NodeId,
        begin: impl FnOnce(&mut Self) -> Result<Walk<R>>,
    ) -> Result<R::Message> {
        self.message_if_any(key, at, begin)?.ok_or_else(|| self.unused_layer(at))
    }

    /// The same; none where the class scores do not depend on the value.
    pub(crate) fn message_if_any<K: PartialEq + 'static, R: Rules + 'static>(
        &mut self,
        key: K,
        at: NodeId,
        begin: impl FnOnce(&mut Self) -> Result<Walk<R>>,
    ) -> Result<Option<R::Message>> {
        let index = match self.shared.position::<K, Walk<R>>(&key) {
            Some(index) => index,
            None => {
                let walk = begin(self)?;
                let walks = self.shared.list();
                walks.push((key, walk));
                walks.len() - 1
            }
        };
        let (_, walk) = &mut self.shared.list::<K, Walk<R>>()[index];
        walk.message(&mut self.graph, self.network, at)
    }

    /// The value cached under `key`; `build` makes it where it is first asked for.
    pub(crate) fn shared<K: PartialEq + 'static, T: 'static>(
        &mut self,
        key: K,
        build: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<Rc<T>> {
        if let Some(index) = self.shared.position::<K, Rc<T>>(&key) {
            return Ok(self.shared.list::<K, Rc<T>>()[index].1.clone());
        }
        let built = Rc::new(build(self)?);
        self.shared.list().push((key, built.clone()));
        Ok(built)
    }

    /// An input of the explanation, added where it is first asked for.
    pub(crate) fn added_input(&mut self, name: &'static str, shape: Shape) -> Result<NodeId> {
        let key = (name, shape.clone());
        let id = self.shared(key, |builder| Ok(builder.graph.input(name, shape, Kind::Float)))?;
        Ok(*id)
    }

    /// Which axes of a value of the network hold channels and which are spatial.
    pub(crate) fn axes(&self, at: NodeId) -> Result<Axes> {
        self.network.axes(at)
    }

    fn unused_layer(&self, at: NodeId) -> Error {
        Error::argument(
            "the layer does not lie between the image and the class scores; name one on the way from the first to the second",
        )
        .at(self.network.graph().node(at).label.display())
    }
}

/// The explained class of each sample, and whether the given one exists where nothing else checks it; `table` holds the
/// numbers of all classes.
fn class_numbers(
    g: &mut Graph,
    network: &Network,
    class: ClassInput,
    table: NodeId,
) -> Result<(NodeId, Option<NodeId>)> {
    let top = |g: &mut Graph| g.add(Op::ArgMax { axis: 1, keep: false }, &[network.logits()]);
    let samples = Shape::new([network.samples()]);
    let numbers = match class {
        ClassInput::Given => g.input(inputs::CLASS, samples, Kind::Int),
        ClassInput::Top => top(g)?,
        ClassInput::Second => {
            let top = top(g)?;
            second(g, network, top, table)?
        }
        ClassInput::GivenOrTop | ClassInput::Broadcast => {
            let length = if class == ClassInput::Broadcast { Shape::fixed(&[1]) } else { samples };
            let given = g.input(inputs::CLASS, length, Kind::Int);
            let top = top(g)?;
            let zero = g.constant(Tensor::scalar(0i64));
            let unset = g.binary(Binary::Less, given, zero)?;
            let picked = g.select(unset, top, given)?;
            if class == ClassInput::Broadcast {
                return within_classes(g, network, picked);
            }
            let (second, asked) = (second(g, network, top, table)?, g.constant(Tensor::scalar(SECOND)));
            let is_asked = g.binary(Binary::Equal, given, asked)?;
            g.select(is_asked, second, picked)?
        }
    };
    Ok((numbers, None))
}

/// The numbers of classes, with the last one in place of those above it, and whether each was left as it is. Nothing checks the
/// inputs of an exported graph, and no ONNX operator raises an error.
fn within_classes(g: &mut Graph, network: &Network, picked: NodeId) -> Result<(NodeId, Option<NodeId>)> {
    let last = g.constant(Tensor::scalar(network.classes() as i64 - 1));
    let exists = g.binary(Binary::LessOrEqual, picked, last)?;
    Ok((g.select(exists, picked, last)?, Some(exists)))
}

/// The class with the highest score but for that of `top`.
fn second(g: &mut Graph, network: &Network, top: NodeId, table: NodeId) -> Result<NodeId> {
    let column = g.reshaped(top, Shape::new([network.samples(), Dim::Fixed(1)]))?;
    let is_top = g.binary(Binary::Equal, column, table)?;
    let least = g.number(f64::NEG_INFINITY);
    let others = g.select(is_top, least, network.logits())?;
    g.add(Op::ArgMax { axis: 1, keep: false }, &[others])
}

/// One at the class of each sample, zero elsewhere; `table` holds the numbers of all classes.
fn one_hot(g: &mut Graph, class: NodeId, table: NodeId) -> Result<NodeId> {
    let samples: Vec<Dim> = g.node(class).shape.dims().to_vec();
    let column = g.reshaped(class, Shape::new([samples[0], Dim::Fixed(1)]))?;
    let is_class = g.binary(Binary::Equal, column, table)?;
    g.add(Op::Cast { to: Kind::Float }, &[is_class])
}

#[cfg(test)]
mod tests {
    use monosplit_autodiff::Edge;
    use monosplit_graph::op::Unary;

    use super::*;

    /// The gradient times a factor at each node.
    #[derive(Clone, Copy, PartialEq)]
    struct Scaled(f64);

    impl Rules for Scaled {
        type Message = NodeId;

        fn join(&mut self, g: &mut Graph, a: NodeId, b: NodeId) -> Result<NodeId> {
            g.plus(a, b)
        }

        fn pass(&mut self, g: &mut Graph, edge: &Edge<'_>, message: NodeId) -> Result<Option<NodeId>> {
            let Some(passed) = GradientRules::default().pass(g, edge, message)? else { return Ok(None) };
            g.scaled(self.0, passed).map(Some)
        }
    }

    #[test]
    fn rule_sets_share_a_walk_if_they_are_equal_and_only_then() {
        let mut graph = Graph::new();
        let image = graph.input("image", Shape::batched(&[3]), Kind::Float);
        let scores = graph.unary(Unary::Relu, image).unwrap();
        graph.output("scores", scores);
        let network = Rc::new(Network::new(&graph).unwrap());
        let mut builder = ExplanationBuilder::new(&network, ClassInput::Top).unwrap();
        let at = builder.image();
        let once = builder.backward(Scaled(1.0), at).unwrap();
        let twice = builder.backward(Scaled(2.0), at).unwrap();
        assert_ne!(once, twice);
        assert_eq!(builder.backward(Scaled(1.0), at).unwrap(), once);
    }
}
