//! A session: the network, the pictures and the compiled explanations that a page works with.

use std::collections::BTreeMap;
use std::sync::Arc;

use monosplit::engine::{Cpu, Engine};
use monosplit::graph::shortened;
use monosplit::image::{Picture, Preprocess};
use monosplit::{Error, ErrorKind, Inference, Model, RankedClass, Result, Sample};
use serde_json::{Value, json};

use crate::edit::edited;
use crate::interruption::Interruption;
use crate::maps::CompiledMaps;
use crate::network::{Network, SharedNetwork, Targeted, methods};
use crate::recently_used::RecentlyUsed;
use crate::request::{Question, Request, Subject};
use crate::response::{Response, Values};

/// The most edits of a picture.
const MOST_EDITS: usize = 256;
/// The most classes of one answer.
const MOST_CLASSES: usize = 1000;
/// Compiled explanations that are kept. Each holds the packed weights of a network.
const EXPLANATIONS: usize = 6;
/// Pictures that are kept as the network reads them.
const SAMPLES: usize = 12;
/// Networks with a score that are kept.
const TARGETS: usize = 3;
/// The longest name of a file.
const LONGEST_NAME: usize = 200;

/// What a session takes in at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of a network's file.
    pub network_bytes: usize,
    /// Bytes of a picture's file.
    pub picture_bytes: usize,
    /// Pictures that are open at a time; the one opened first is closed when there are more.
    pub pictures: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { network_bytes: 1 << 30, picture_bytes: 64 << 20, pictures: 64 }
    }
}

/// A network, pictures and what was compiled for them.
pub struct Session {
    pub(crate) engine: Arc<dyn Engine>,
    /// Computes what needs double precision.
    pub(crate) processor: Cpu,
    limits: Limits,
    network: Option<SharedNetwork>,
    pictures: BTreeMap<usize, OpenedPicture>,
    next_picture: usize,
    samples: RecentlyUsed<Arc<Prepared>>,
    targets: RecentlyUsed<Arc<Targeted>>,
    pub(crate) explanations: RecentlyUsed<Arc<CompiledMaps>>,
}

/// A picture as it was opened.
struct OpenedPicture {
    name: String,
    picture: Arc<Picture>,
}

/// A picture as the network reads it.
pub(crate) struct Prepared {
    pub(crate) sample: Sample,
    pub(crate) preprocess: Preprocess,
}

impl Prepared {
    /// The picture the network reads.
    pub(crate) fn picture(&self) -> Result<&Picture> {
        self.sample.picture.as_ref().ok_or_else(|| Error::internal("a sample without its picture"))
    }
}

impl Default for Session {
    fn default() -> Self {
        let cpu = Cpu::default();
        Session::new(Arc::new(cpu.clone()), cpu)
    }
}

impl Session {
    /// An empty session. `processor` computes what needs double precision.
    pub fn new(engine: Arc<dyn Engine>, processor: Cpu) -> Self {
        Session {
            engine,
            processor,
            limits: Limits::default(),
            network: None,
            pictures: BTreeMap::new(),
            next_picture: 0,
            samples: RecentlyUsed::new(SAMPLES),
            targets: RecentlyUsed::new(TARGETS),
            explanations: RecentlyUsed::new(EXPLANATIONS),
        }
    }

    /// Takes in other amounts.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Works with a network that is open already.
    pub fn set_network(&mut self, name: impl Into<String>, model: Model) -> Result<()> {
        let network = Network::new(name.into(), model)?;
        self.forget();
        self.network = Some(Arc::new(network));
        Ok(())
    }

    /// Answers a request: JSON, and for requests that open a file its bytes.
    pub fn handle(&mut self, request: &[u8], payload: &[u8]) -> Response {
        self.handle_until(request, payload, Interruption::NEVER)
    }

    /// The same, given up between two steps once nobody waits for the answer. The answer then says `cancelled`.
    pub fn handle_until(
        &mut self,
        request: &[u8],
        payload: &[u8],
        interruption: Interruption<'_>,
    ) -> Response {
        let parsed = serde_json::from_slice::<Request>(request);
        let parsed =
            parsed.map_err(|cause| Error::malformed(format!("the request is not understood: {cause}")));
        let answer = parsed.and_then(|request| self.answer(&request, payload, interruption));
        answer.unwrap_or_else(|error| {
            let mut response = Response::failure(&error);
            response.set("cancelled", error.kind() == ErrorKind::Cancelled);
            response
        })
    }

    fn answer(
        &mut self,
        request: &Request,
        payload: &[u8],
        interruption: Interruption<'_>,
    ) -> Result<Response> {
        interruption.check()?;
        match request {
            Request::State => Ok(self.state()),
            Request::OpenNetwork { name } => self.open_network(name, payload),
            Request::OpenPicture { name } => self.open_picture(name, payload),
            Request::Classes { subject, count, and } => self.classes(subject, *count, and),
            Request::Explain { question, maps, streams } => {
                self.explain(question, maps, *streams, interruption)
            }
            Request::Layers { question, map } => self.layers(question, map, interruption),
            Request::Curves { question, map, steps } => self.curves(question, map, *steps, interruption),
            Request::Shares { question, map } => self.shares(question, map),
            Request::Verify { subject, samples } => self.verify(subject, *samples),
            Request::Compile { question, maps } => self.compile(question, maps),
            Request::Download { question, map, format } => {
                self.download(question, map, *format, interruption)
            }
            Request::Lines { question, map } => self.lines(question, map),
        }
    }

    fn state(&self) -> Response {
        let pictures: Vec<Value> =
            self.pictures.iter().map(|(&id, opened)| described_picture(id, opened)).collect();
        let network = self.network.as_ref().map(|network| network.described());
        Response::new(json!({ "network": network, "pictures": pictures, "methods": methods() }))
    }

    fn open_network(&mut self, name: &str, bytes: &[u8]) -> Result<Response> {
        let name = shortened(name, LONGEST_NAME).into_owned();
        within(bytes, self.limits.network_bytes, &name)?;
        let model = Model::options().read(name.clone(), bytes)?;
        self.set_network(name, model)?;
        Ok(Response::new(self.network()?.described()))
    }

    fn open_picture(&mut self, name: &str, bytes: &[u8]) -> Result<Response> {
        let name = shortened(name, LONGEST_NAME).into_owned();
        within(bytes, self.limits.picture_bytes, &name)?;
        let picture = Picture::decode(bytes).map_err(|error| error.context(&name))?;
        let id = self.next_picture;
        self.next_picture += 1;
        while self.pictures.len() >= self.limits.pictures.max(1) {
            self.pictures.pop_first();
        }
        let opened = OpenedPicture { name, picture: Arc::new(picture) };
        let described = described_picture(id, &opened);
        self.pictures.insert(id, opened);
        Ok(Response::new(described))
    }

    fn classes(&mut self, subject: &Subject, count: usize, and: &[usize]) -> Result<Response> {
        let network = self.network()?;
        let prepared = self.prepared(subject)?;
        let targeted = self.targeted_at(None, None)?;
        let scores = self.scores_of(&targeted)?.scores(&prepared.sample.tensor)?;
        let kind = network.model.score_kind();
        let ranking = RankedClass::best(&scores, scores.len(), kind).ok_or_else(not_finite)?;
        let place = |class: usize| ranking.iter().position(|ranked| ranked.class == class);
        let mut listed: Vec<usize> = (0..ranking.len().min(count.min(MOST_CLASSES))).collect();
        listed.extend(and.iter().filter_map(|&class| place(class)));
        listed.sort_unstable();
        listed.dedup();
        let described = |&place: &usize| {
            let ranked = ranking[place];
            json!({
                "class": ranked.class,
                "name": network.labels.name(ranked.class),
                "score": ranked.score,
                "probability": ranked.probability,
                "place": place,
            })
        };
        let classes: Vec<Value> = listed.iter().map(described).collect();
        let picture = prepared.picture()?;
        let shape = [picture.height(), picture.width(), 3];
        Ok(Response::new(json!({ "classes": classes, "count": scores.len() })).with(
            "picture",
            shape,
            Values::U8(picture.rgb().to_vec()),
        ))
    }

    /// The open network.
    pub(crate) fn network(&self) -> Result<SharedNetwork> {
        self.network.clone().ok_or_else(|| Error::argument("open a network first"))
    }

    /// The name of an open picture.
    pub(crate) fn picture_name(&self, id: usize) -> Result<&str> {
        Ok(&self.opened(id)?.name)
    }

    fn opened(&self, id: usize) -> Result<&OpenedPicture> {
        self.pictures
            .get(&id)
            .ok_or_else(|| Error::argument("that picture is not open (any more); open it again"))
    }

    /// A picture with its edits as the network reads it.
    pub(crate) fn prepared(&mut self, subject: &Subject) -> Result<Arc<Prepared>> {
        if subject.edits.len() > MOST_EDITS {
            return Err(Error::argument(format!("a picture has at most {MOST_EDITS} edits")));
        }
        let network = self.network()?;
        let opened = self.opened(subject.picture)?.picture.clone();
        let preprocess = network.preprocess(subject.preset.as_deref())?;
        let pictures = &self.pictures;
        self.samples.get(format!("{subject:?}"), || {
            let sample = network.sample(&opened, &preprocess)?;
            let sample = subject.edits.iter().try_fold(sample, |sample, edit| {
                let picture = sample.picture.as_ref().ok_or_else(not_finite)?;
                let other = match edit.with.and_then(|id| pictures.get(&id)) {
                    Some(other) => network.sample(&other.picture, &preprocess)?.picture,
                    None => None,
                };
                // An edited picture has the network's size, and is taken as it is.
                network.sample(&edited(picture, edit, other.as_ref())?, &preprocess)
            })?;
            Ok(Arc::new(Prepared { sample, preprocess: preprocess.clone() }))
        })
    }

    /// The network with the score that is asked about.
    pub(crate) fn targeted(&mut self, question: &Question) -> Result<Arc<Targeted>> {
        self.targeted_at(question.class, question.rival)
    }

    fn targeted_at(&mut self, class: Option<usize>, rival: Option<usize>) -> Result<Arc<Targeted>> {
        let network = self.network()?;
        let engine = self.engine.clone();
        let key = format!("{class:?} {rival:?}");
        let make = || network.targeted(class, rival, &*engine).map(Arc::new);
        self.targets.get(key, make)
    }

    /// A targeted network, to be run on changed pictures.
    pub(crate) fn inference(&self, targeted: &Targeted) -> Result<Inference> {
        Inference::new(&targeted.model, &*self.engine)
    }

    fn forget(&mut self) {
        self.samples.clear();
        self.targets.clear();
        self.explanations.clear();
    }
}

fn described_picture(id: usize, opened: &OpenedPicture) -> Value {
    json!({
        "picture": id,
        "name": opened.name,
        "width": opened.picture.width(),
        "height": opened.picture.height(),
    })
}

/// The error of scores that are no numbers.
pub(crate) fn not_finite() -> Error {
    Error::argument("the network returned numbers that are not finite; another preprocessing may help")
}

/// An error if a file is larger than `most` bytes.
fn within(bytes: &[u8], most: usize, name: &str) -> Result<()> {
    match bytes.len() {
        0 => Err(Error::malformed(format!("{name}: the file is empty"))),
        length if length > most => Err(Error::unsupported(format!(
            "{name}: the file has {} MiB; at most {} MiB are taken in",
            length >> 20,
            most >> 20
        ))),
        _ => Ok(()),
    }
}
