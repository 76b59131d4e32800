//! What is promised of every method that asks many times: bounded batches, the same bits in any company, and sensible
//! refusals.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use monosplit_engine::{
    CompileOptions, Cpu, Engine, IncrementalProgram, Precision, Profile, Program, StatefulProgram,
};
use monosplit_explain::methods::{
    AblationCam, FeatureAblation, GradientShap, GroundTruth, ImageItself, IntegratedGradients, KernelShap,
    Lime, Occlusion, RandomMap, Rise, ScoreCam, SmoothGrad, VarGrad,
};
use monosplit_explain::{
    ChannelReduction, Class, ExplainBatch, Explainer, Features, Finish, MapRequest, Method, Progress,
    Settings,
};
use monosplit_graph::batch::rows;
use monosplit_graph::{Error, ErrorKind, Graph, Result, Tensor};

use super::{kept, network};

/// Every method with a batch size, and small enough.
fn methods(batch: usize) -> Vec<Arc<dyn Method>> {
    let features = Features::Grid(4);
    vec![
        Arc::new(IntegratedGradients { steps: 9, batch, ..IntegratedGradients::default() }),
        Arc::new(SmoothGrad { batch, ..SmoothGrad::default() }),
        Arc::new(VarGrad { batch, ..VarGrad::default() }),
        Arc::new(GradientShap { batch, ..GradientShap::default() }),
        Arc::new(Occlusion { batch, ..Occlusion::default() }),
        Arc::new(FeatureAblation { features: Features::default(), batch, ..FeatureAblation::default() }),
        Arc::new(Rise { samples: 40, batch, ..Rise::default() }),
        Arc::new(Lime { samples: 40, features: features.clone(), batch, ..Lime::default() }),
        Arc::new(KernelShap { samples: 40, features, batch, ..KernelShap::default() }),
        Arc::new(ScoreCam { batch, ..ScoreCam::default() }),
        Arc::new(AblationCam { batch, ..AblationCam::default() }),
    ]
}

fn request(method: Arc<dyn Method>) -> MapRequest {
    let cam = method.name().ends_with("cam");
    MapRequest::of(method, cam.then(|| "last:out".to_owned()))
}

fn maps(graph: &Graph, requests: &[MapRequest], engine: &dyn Engine, images: &Tensor) -> Vec<Tensor> {
    let explainer = Explainer::new(graph, requests, engine).unwrap();
    let class = Class::Index(1);
    let explained = explainer.explain(images, &class, &Settings::default()).unwrap();
    explained.maps.into_iter().map(|map| map.values).collect()
}

/// Remembers the largest batch it was given.
struct Counting {
    engine: Cpu,
    largest: Arc<AtomicUsize>,
}

struct CountingProgram {
    program: Box<dyn Program>,
    largest: Arc<AtomicUsize>,
}

impl Engine for Counting {
    fn native_precision(&self) -> Precision {
        self.engine.native_precision()
    }

    fn compile_with(&self, graph: &Graph, options: &CompileOptions) -> Result<Box<dyn Program>> {
        let program = self.engine.compile_with(graph, options)?;
        Ok(Box::new(CountingProgram { program, largest: self.largest.clone() }))
    }

    fn compile_incremental(
        &self,
        graph: &Graph,
        largest_change: [usize; 2],
        batch_size: usize,
    ) -> Result<Option<IncrementalProgram>> {
        let counting = |program| Box::new(CountingProgram { program, largest: self.largest.clone() }) as _;
        let program = self.engine.compile_incremental(graph, largest_change, batch_size)?;
        Ok(program.map(|program| program.map_programs(counting)))
    }
}

impl Program for CountingProgram {
    fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let batch = inputs.first().and_then(|input| input.shape().first()).copied().unwrap_or(0);
        self.largest.fetch_max(batch, Ordering::Relaxed);
        self.program.run(inputs)
    }

    fn run_profiled(&self, inputs: &[Tensor]) -> Result<(Vec<Tensor>, Profile)> {
        self.program.run_profiled(inputs)
    }

    fn into_stateful(self: Box<Self>, state: Vec<Tensor>) -> Result<Box<dyn StatefulProgram>> {
        self.program.into_stateful(state)
    }
}

#[test]
fn no_more_copies_than_a_batch_ever_reach_the_network() {
    for method in methods(3) {
        let largest = Arc::new(AtomicUsize::new(0));
        let engine = Counting { engine: Cpu::default(), largest: largest.clone() };
        let name = method.name();
        maps(&network(), &[request(method)], &engine, &kept("images"));
        assert_eq!(largest.load(Ordering::Relaxed), 3, "{name}");
    }
}

#[test]
fn the_bits_are_the_same_at_any_batch_size_number_of_threads_and_in_any_company() {
    let images = kept("images");
    let second = rows(&images, [1].into_iter()).unwrap();
    let requests = |batch| methods(batch).into_iter().map(request).collect::<Vec<_>>();
    let engine = Cpu::default().threads(1);
    let together = maps(&network(), &requests(5), &engine, &images);
    let alone = maps(&network(), &requests(16), &Cpu::default().threads(3), &second);
    for ((together, alone), request) in together.iter().zip(&alone).zip(requests(1)) {
        let together = rows(together, [1].into_iter()).unwrap();
        assert_eq!(&together, alone, "{}", request.method.name());
    }
}

#[test]
fn a_network_of_fixed_batch_size_gives_the_same_maps() {
    let images = kept("images");
    let fixed = fixed(&network(), 4);
    let requests: Vec<MapRequest> = methods(16).into_iter().map(request).collect();
    let free = maps(&network(), &requests, &Cpu::default(), &images);
    let bound = maps(&fixed, &requests, &Cpu::default(), &images);
    for ((free, bound), request) in free.iter().zip(&bound).zip(requests) {
        assert!(super::apart(bound, free) < 1e-5, "{}", request.method.name());
    }
}

#[test]
fn issue_29_copies_keep_the_place_of_their_sample_where_places_differ() {
    let images = kept("images");
    let factors: [f32; 4] = [1.0, 0.5, 1.5, 0.75];
    let requests: Vec<MapRequest> = methods(16).into_iter().map(request).collect();
    let known = |factors: &[f32]| Tensor::new([factors.len(), 1, 1, 1], factors.to_vec()).unwrap();
    let bound = maps(&scaled(&fixed(&network(), 4), known(&factors)), &requests, &Cpu::default(), &images);
    for sample in 0..images.shape()[0] {
        let alone = rows(&images, [sample].into_iter()).unwrap();
        let network = scaled(&network(), known(&[factors[sample % 4]]));
        let expected = maps(&network, &requests, &Cpu::default(), &alone);
        for ((bound, expected), request) in bound.iter().zip(&expected).zip(&requests) {
            let found = rows(bound, [sample].into_iter()).unwrap();
            assert!(super::apart(&found, expected) < 1e-5, "{} of sample {sample}", request.method.name());
        }
    }
}

/// The network behind a product of its input with a known value.
fn scaled(graph: &Graph, factor: Tensor) -> Graph {
    let mut target = Graph::new();
    let mut map: Vec<monosplit_graph::NodeId> = Vec::new();
    for (_, node) in graph.nodes() {
        let inputs: Vec<_> = node.inputs.iter().map(|input| map[input.index()]).collect();
        let mut id = target.add_copy(node, &inputs).unwrap();
        if let monosplit_graph::Op::Input = node.op {
            let factor = target.constant(factor.clone());
            id = target.times(id, factor).unwrap();
        }
        map.push(id);
    }
    for output in graph.outputs() {
        target.output(output.name.clone(), map[output.node.index()]);
    }
    target
}

/// The same network for batches of one size.
fn fixed(graph: &Graph, size: usize) -> Graph {
    use monosplit_graph::{Dim, Op, Shape};
    let mut target = Graph::new();
    let mut map = Vec::new();
    for (_, node) in graph.nodes() {
        let inputs: Vec<_> =
            node.inputs.iter().map(|input: &monosplit_graph::NodeId| map[input.index()]).collect();
        let mut node = node.clone();
        let settle = |dim: &Dim| Dim::Fixed(dim.at(size).unwrap());
        if let Op::Input = node.op {
            node.shape = Shape::new(node.shape.dims().iter().map(settle).collect::<Vec<_>>());
        }
        if let Op::Reshape { shape } = &mut node.op {
            *shape = Shape::new(shape.dims().iter().map(settle).collect::<Vec<_>>());
        }
        map.push(target.add_copy(&node, &inputs).unwrap());
    }
    for output in graph.outputs() {
        target.output(output.name.clone(), map[output.node.index()]);
    }
    target
}

#[derive(Default)]
struct Heard(AtomicUsize, AtomicUsize);

impl Progress for Heard {
    fn advance(&self, done: usize, total: usize) -> Result<()> {
        assert!(done > self.0.swap(done, Ordering::Relaxed) && done <= total);
        self.1.store(total, Ordering::Relaxed);
        Ok(())
    }
}

/// Ends a computation after the first batch.
struct Ending(AtomicUsize);

impl Progress for Ending {
    fn advance(&self, _done: usize, _total: usize) -> Result<()> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Err(Error::new(ErrorKind::Cancelled, "enough"))
    }
}

#[test]
fn progress_is_heard_after_every_batch() {
    let heard = Heard::default();
    let request = MapRequest::at_input(SmoothGrad { samples: 10, batch: 4, ..SmoothGrad::default() });
    let explainer = Explainer::new(&network(), &[request], &Cpu::default()).unwrap();
    let (images, class, settings) = (kept("images"), Class::Top, Settings::default());
    let batch = ExplainBatch { progress: &heard, ..ExplainBatch::new(&images, &class, &settings) };
    explainer.explain_batch(&batch).unwrap();
    assert_eq!((heard.0.into_inner(), heard.1.into_inner()), (20, 20));
}

#[test]
fn an_error_of_the_listener_ends_the_computation() {
    let ending = Ending(AtomicUsize::new(0));
    let request = MapRequest::at_input(SmoothGrad { samples: 10, batch: 4, ..SmoothGrad::default() });
    let explainer = Explainer::new(&network(), &[request], &Cpu::default()).unwrap();
    let (images, class, settings) = (kept("images"), Class::Top, Settings::default());
    let batch = ExplainBatch { progress: &ending, ..ExplainBatch::new(&images, &class, &settings) };
    assert_eq!(explainer.explain_batch(&batch).unwrap_err().kind(), ErrorKind::Cancelled);
    assert_eq!(ending.0.into_inner(), 1);
}

#[test]
fn maps_that_differ_in_their_finish_alone_share_the_passes() {
    let heard = Heard::default();
    let own = MapRequest::at_input(SmoothGrad { samples: 10, batch: 4, ..SmoothGrad::default() });
    let kept_channels = own.clone().finish(Finish { channels: ChannelReduction::Keep, ..Finish::default() });
    let (images, class, settings) = (kept("images"), Class::Top, Settings::default());
    let requests = [own, kept_channels];
    let both = Explainer::new(&network(), &requests, &Cpu::default()).unwrap();
    // `Heard` refuses a count that starts again: a second pass over the samples would fail.
    let batch = ExplainBatch { progress: &heard, ..ExplainBatch::new(&images, &class, &settings) };
    let together = both.explain_batch(&batch).unwrap();
    for (request, map) in requests.iter().zip(&together.maps) {
        let alone = Explainer::new(&network(), std::slice::from_ref(request), &Cpu::default()).unwrap();
        assert_eq!(alone.explain(&images, &class, &settings).unwrap().maps[0], *map);
    }
}

#[test]
fn options_out_of_range_are_refused() {
    let refused: Vec<Arc<dyn Method>> = vec![
        Arc::new(IntegratedGradients { steps: 10_001, ..IntegratedGradients::default() }),
        Arc::new(IntegratedGradients { batch: 0, ..IntegratedGradients::default() }),
        Arc::new(SmoothGrad { samples: 0, ..SmoothGrad::default() }),
        Arc::new(Occlusion { window: Some(vec![13, 1]), ..Occlusion::default() }),
        Arc::new(FeatureAblation { features: Features::Grid(0), ..FeatureAblation::default() }),
        Arc::new(Rise { probability: 0.0, ..Rise::default() }),
        Arc::new(Rise { grid: 0, ..Rise::default() }),
        Arc::new(Lime { width: 0.0, ..Lime::default() }),
        Arc::new(KernelShap { samples: 0, ..KernelShap::default() }),
        Arc::new(GroundTruth::default()),
        Arc::new(GroundTruth { masks: Some(Tensor::vector(vec![1f32])) }),
    ];
    for method in refused {
        let name = format!("{method:?}");
        assert!(
            Explainer::new(&network(), &[MapRequest::of(method, None)], &Cpu::default()).is_err(),
            "{name}"
        );
    }
    let unknown = MapRequest::new(AblationCam::default(), "nowhere");
    assert!(Explainer::new(&network(), &[unknown], &Cpu::default()).is_err());
}

#[test]
fn controls_show_chance_the_image_and_the_mask() {
    let images = kept("images");
    let mask = Tensor::new([2, 2], vec![1f32, 0.0, 0.0, 2.0]).unwrap();
    let requests = [
        MapRequest::at_input(RandomMap::default()),
        MapRequest::at_input(RandomMap { seed: 1 }),
        MapRequest::at_input(ImageItself),
        MapRequest::at_input(GroundTruth { masks: Some(mask) }),
    ];
    let found = maps(&network(), &requests, &Cpu::default(), &images);
    assert!(found.iter().all(|map| map.shape() == [2, 12, 10]));
    assert_ne!(found[0], found[1]);
    let random = found[0].to_f32();
    assert_ne!(random[..120], random[120..]);
    assert!((random.iter().sum::<f32>() / 240.0 - 0.5).abs() < 0.1);
    let (image, mean) = (images.to_f32(), found[2].to_f32());
    for place in 0..120 {
        let expected = (image[place] + image[place + 120] + image[place + 240]) / 3.0;
        assert!((mean[place] - expected).abs() < 1e-6);
    }
    let marked = found[3].to_f32();
    assert_eq!((marked[0], marked[9], marked[110], marked[119]), (1.0, 0.0, 0.0, 2.0));
    assert_eq!(marked[..120].iter().sum::<f32>(), 90.0);
    let second = rows(&images, [1].into_iter()).unwrap();
    let alone = maps(&network(), &requests[..1], &Cpu::default(), &second);
    assert_eq!(alone[0].to_f32()[..], random[120..]);
}
