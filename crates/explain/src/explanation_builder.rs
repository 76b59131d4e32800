//! The graph under construction: the network, untouched, and beside it what methods have added. Walks and streams are
//! kept, so that methods which need the same one share it.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt::Debug;
use std::rc::Rc;

use monosplit_autodiff::{Gradient, Rules, Walk};
use monosplit_graph::op::Binary;
use monosplit_graph::{Dim, Error, Graph, Kind, NodeId, Op, Result, Shape, Tensor};

use crate::channels::Axes;
use crate::explanation_graph::{ClassInput, inputs};
use crate::network::Network;
use crate::scaled::Scale;

/// A graph that starts as a copy of the network, so that a value of the network has the same id in it.
pub struct ExplanationBuilder<'a> {
    pub(crate) network: &'a Rc<Network>,
    pub(crate) graph: Graph,
    pub(crate) scale: Scale,
    class: NodeId,
    seed: NodeId,
    shared: HashMap<(TypeId, String), Box<dyn Any>>,
}

impl<'a> ExplanationBuilder<'a> {
    /// The network without its outputs, and in it one at the class of each sample.
    pub(crate) fn new(network: &'a Rc<Network>, class: ClassInput) -> Result<Self> {
        let mut graph = network.graph().clone();
        graph.set_outputs(Vec::new());
        let numbers: Vec<i64> = (0..network.classes() as i64).collect();
        let table = graph.constant(Tensor::vector(numbers));
        let class = class_numbers(&mut graph, network, class, table)?;
        let seed = one_hot(&mut graph, class, table)?;
        let scale = Scale::of(network);
        Ok(ExplanationBuilder { network, graph, scale, class, seed, shared: HashMap::new() })
    }

    /// The graph, to be added to.
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
        self.backward(Gradient::default(), at)
    }

    /// A gradient with rules of its own for some nodes.
    pub(crate) fn backward(&mut self, rules: Gradient, at: NodeId) -> Result<NodeId> {
        self.message(&rules, at, |builder| Ok(Walk::new(rules, builder.scores(), builder.seed)))
    }

    /// The message of the value `at` in the walk that `key` tells apart from others of its rule set, begun where it
    /// is first asked for.
    pub(crate) fn message<R: Rules + 'static>(
        &mut self,
        key: &dyn Debug,
        at: NodeId,
        begin: impl FnOnce(&mut Self) -> Result<Walk<R>>,
    ) -> Result<R::Message> {
        self.message_if_any(key, at, begin)?.ok_or_else(|| self.unreached(at))
    }

    /// The same; none where the walk does not come by.
    pub(crate) fn message_if_any<R: Rules + 'static>(
        &mut self,
        key: &dyn Debug,
        at: NodeId,
        begin: impl FnOnce(&mut Self) -> Result<Walk<R>>,
    ) -> Result<Option<R::Message>> {
        let key = (TypeId::of::<Walk<R>>(), format!("{key:?}"));
        let mut walk = match self.shared.remove(&key).and_then(|known| known.downcast::<Walk<R>>().ok()) {
            Some(walk) => walk,
            None => Box::new(begin(self)?),
        };
        let message = walk.message(&mut self.graph, self.network, at)?;
        self.shared.insert(key, walk);
        Ok(message)
    }

    /// What `key` names, built where it is first asked for.
    pub(crate) fn shared<T: 'static>(
        &mut self,
        key: &dyn Debug,
        build: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<Rc<T>> {
        let key = (TypeId::of::<Rc<T>>(), format!("{key:?}"));
        if let Some(known) = self.shared.get(&key).and_then(|known| known.downcast_ref::<Rc<T>>()) {
            return Ok(known.clone());
        }
        let built = Rc::new(build(self)?);
        self.shared.insert(key, Box::new(built.clone()));
        Ok(built)
    }

    /// An input of the explanation's own, added where it is first asked for.
    pub(crate) fn added_input(&mut self, name: &'static str, shape: Shape) -> Result<NodeId> {
        let key = (name, shape.clone());
        let id = self.shared(&key, |builder| Ok(builder.graph.input(name, shape, Kind::Float)))?;
        Ok(*id)
    }

    /// The axes of a value of the network that a map is made of.
    pub(crate) fn axes(&self, at: NodeId) -> Result<Axes> {
        self.network.axes(at)
    }

    fn unreached(&self, at: NodeId) -> Error {
        Error::argument(
            "the layer does not lie between the image and the class scores; name one on the way from the first to the second",
        )
        .at(self.network.graph().node(at).label.display())
    }
}

/// The explained class of each sample, from wherever it comes; `table` has the numbers of all classes.
fn class_numbers(g: &mut Graph, network: &Network, class: ClassInput, table: NodeId) -> Result<NodeId> {
    let top = |g: &mut Graph| g.add(Op::ArgMax { axis: 1, keep: false }, &[network.logits()]);
    let samples = Shape::new([network.samples()]);
    match class {
        ClassInput::Given => Ok(g.input(inputs::CLASS, samples, Kind::Int)),
        ClassInput::Top => top(g),
        ClassInput::GivenOrTop | ClassInput::Broadcast => {
            let length = if class == ClassInput::Broadcast { Shape::fixed(&[1]) } else { samples };
            let given = g.input(inputs::CLASS, length, Kind::Int);
            let top = top(g)?;
            let zero = g.constant(Tensor::scalar(0i64));
            let unset = g.binary(Binary::Less, given, zero)?;
            let picked = g.select(unset, top, given)?;
            if class == ClassInput::GivenOrTop {
                return Ok(picked);
            }
            // Nobody checks what a file is given, but a runtime checks what is looked up in a table.
            g.add(Op::Gather { axis: 0 }, &[table, picked])
        }
    }
}

/// One at the class of each sample, zero elsewhere; `table` has the numbers of all classes.
fn one_hot(g: &mut Graph, class: NodeId, table: NodeId) -> Result<NodeId> {
    let samples: Vec<Dim> = g.node(class).shape.dims().to_vec();
    let column = g.reshaped(class, Shape::new([samples[0], Dim::Fixed(1)]))?;
    let is_class = g.binary(Binary::Equal, column, table)?;
    g.add(Op::Cast { to: Kind::Float }, &[is_class])
}
