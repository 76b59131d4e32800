//! Evidence for each class and missing evidence: gradients of the streams of a trained network with respect to their inputs
//! (paper, figure "Combined visualization of the inverted-input DIC gradients").

use monosplit_autodiff::gradients;
use monosplit_engine::{Engine, Program, check_memory};
use monosplit_graph::op::Reduction;
use monosplit_graph::{Error, Graph, Kind, Label, Result, Shape, Tensor};

use crate::data::Samples;
use crate::streams::streams;

/// The most elements of the pictures, and of the chosen classes, that are computed at once.
const LARGEST_BATCH: usize = 1 << 22;
/// Copies of one stream's gradients at the peak: the program's output, the rows made of it, and the figure's.
const COPIES: usize = 3;

/// The gradients of an image for every class.
#[derive(Clone, Debug, PartialEq)]
pub struct Counterfactual {
    /// Evidence for a class: `∂g/∂x` of a difference, else the positive part of the gradient. One row per class,
    /// `channels·height·width` numbers each.
    pub present: Vec<Vec<f32>>,
    /// Missing evidence: the gradient of `h` with respect to its input, else the negative part of the gradient.
    pub missing: Vec<Vec<f32>>,
}

/// Computes [`Counterfactual`]s of one network.
pub struct Counterfactuals {
    programs: Vec<Box<dyn Program>>,
    classes: usize,
}

impl Counterfactuals {
    /// Compiles the gradients of a trained network.
    pub fn new(network: &Graph, engine: &dyn Engine) -> Result<Self> {
        let output = network.outputs().first().ok_or_else(|| Error::argument("the network has no output"))?;
        let shape = &network.node(output.node).shape;
        let classes = shape.fixed_at(1).filter(|_| shape.rank() == 2);
        let classes = classes.ok_or_else(|| Error::shape(format!("expected class scores, found {shape}")))?;
        let mut programs = Vec::new();
        for stream in streams(network)? {
            let input = &network.node(stream.input).shape;
            if !input.is_batched() {
                return Err(Error::unsupported(format!(
                    "the network's input has the shape {input}, expected any number of pictures; export it with a batch axis of \
                     open length"
                )));
            }
            let mut graph = stream.alone(network);
            let selected = graph.input("selected class", Shape::batched(&[classes]), Kind::Float);
            let chosen = graph.times(stream.scores, selected)?;
            let sum = graph.reduced(Reduction::Sum, chosen, &[0, 1], false)?;
            *graph.label_mut(sum) = Label::named("selected score");
            let (mut graph, slopes) = gradients(&graph, sum, &[stream.input])?;
            graph.set_outputs(Vec::new());
            graph.output("gradient", slopes[0]);
            programs.push(engine.compile(&graph)?);
        }
        Ok(Counterfactuals { programs, classes })
    }

    /// Number of classes.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// The gradients for all classes of one image `[1, channels, height, width]`.
    pub fn of(&self, image: &Tensor) -> Result<Counterfactual> {
        let pixels = image.to_f32();
        let rest = image.shape().get(1..).unwrap_or(&[]);
        let kept = pixels.len().checked_mul(self.classes).and_then(|count| count.checked_mul(2 * COPIES));
        check_memory(kept, &format!("the evidence of {} classes", self.classes))?;
        let at_once = (LARGEST_BATCH / pixels.len().max(self.classes).max(1)).max(1);
        let rows = |program: &dyn Program| -> Result<Vec<Vec<f32>>> {
            let mut rows = Vec::new();
            for first in (0..self.classes).step_by(at_once) {
                let count = at_once.min(self.classes - first);
                let mut selected = vec![0f32; count * self.classes];
                selected[first..].iter_mut().step_by(self.classes + 1).for_each(|one| *one = 1.0);
                let inputs = [
                    Tensor::new([&[count], rest].concat(), pixels.repeat(count))?,
                    Tensor::new([count, self.classes], selected)?,
                ];
                let outputs = program.run(&inputs)?;
                let slopes = outputs.first().map(Tensor::to_f32).unwrap_or_else(|| Vec::new().into());
                rows.extend(slopes.chunks(pixels.len().max(1)).map(<[f32]>::to_vec));
            }
            Ok(rows)
        };
        match self.programs.as_slice() {
            [g, h] => Ok(Counterfactual { present: rows(&**g)?, missing: rows(&**h)? }),
            [whole] => {
                let slopes = rows(&**whole)?;
                let part = |sign: f32| {
                    let positive = |row: &Vec<f32>| row.iter().map(|v| (sign * v).max(0.0)).collect();
                    slopes.iter().map(positive).collect()
                };
                Ok(Counterfactual { present: part(1.0), missing: part(-1.0) })
            }
            _ => Err(Error::argument("the network has no streams")),
        }
    }
}

/// A mean over images and half the width of its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// The mean.
    pub mean: f64,
    /// Half the width of the interval, from the standard deviation over images; NaN for one image.
    pub half_width: f64,
}

impl Share {
    fn of(shares: &[f64]) -> Self {
        let count = shares.len() as f64;
        let mean = shares.iter().sum::<f64>() / count;
        let variance = shares.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (count - 1.0);
        Share { mean, half_width: 1.96 * (variance / count).sqrt() }
    }
}

/// How well the streams separate present from missing evidence, over many images.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Separation {
    /// Share of the mass of evidence for the true class that lies on strokes.
    pub present_on_strokes: Share,
    /// Share of the mass of missing evidence, over all classes, that lies off strokes.
    pub missing_off_strokes: Share,
    /// Share of the image that is strokes: the expected value for mass spread evenly.
    pub strokes: Share,
    /// Number of pictures.
    pub pictures: usize,
}

impl Separation {
    /// Measures the first `count` pictures. A stroke is where a picture is brighter than half; mass is the positive part
    /// of a gradient, as the figures show it.
    pub fn measure(
        counterfactuals: &Counterfactuals,
        samples: &Samples,
        count: usize,
        mut progress: impl FnMut(usize, usize),
    ) -> Result<Self> {
        let count = count.min(samples.len());
        let (mut on, mut off, mut covered) = (Vec::new(), Vec::new(), Vec::new());
        for index in 0..count {
            progress(index, count);
            let found = counterfactuals.of(&samples.images(&[index])?)?;
            let stroke: Vec<bool> = samples.picture(index).iter().map(|&v| v > 127).collect();
            covered.push(stroke.iter().filter(|&&s| s).count() as f64 / stroke.len().max(1) as f64);
            let own = found.present.get(samples.labels()[index] as usize);
            on.extend(own.and_then(|row| share(std::slice::from_ref(row), &stroke)));
            off.extend(share(&found.missing, &stroke).map(|on| 1.0 - on));
        }
        progress(count, count);
        Ok(Separation {
            present_on_strokes: Share::of(&on),
            missing_off_strokes: Share::of(&off),
            strokes: Share::of(&covered),
            pictures: count,
        })
    }
}

/// The share of the positive mass of `rows` that lies where `stroke` holds; `None` if there is no mass.
fn share(rows: &[Vec<f32>], stroke: &[bool]) -> Option<f64> {
    let (mut on, mut all) = (0.0, 0.0);
    for row in rows {
        for (&v, &s) in row.iter().zip(stroke) {
            let mass = f64::from(v.max(0.0));
            all += mass;
            on += if s { mass } else { 0.0 };
        }
    }
    (all > 0.0).then(|| on / all)
}

#[cfg(test)]
mod tests {
    use monosplit_engine::Cpu;
    use monosplit_graph::Op;

    use super::*;

    /// Scores `w·mean(x)`.
    fn network(weights: Vec<f32>) -> Graph {
        let mut g = Graph::new();
        let x = g.input("x", Shape::batched(&[1, 2, 2]), Kind::Float);
        let mean = g.reduced(Reduction::Mean, x, &[1, 2, 3], false).unwrap();
        let column = g.reshaped(mean, Shape::batched(&[1])).unwrap();
        let weights = g.constant(Tensor::new([1, weights.len()], weights).unwrap());
        let scores = g.add(Op::MatMul { trans_a: false, trans_b: false }, &[column, weights]).unwrap();
        g.output("scores", scores);
        g
    }

    #[test]
    fn classes_that_do_not_fit_into_one_batch_are_all_there() {
        let weights: Vec<f32> = (0..2500).map(|i| (i as f32 - 1000.0) / 8.0).collect();
        assert!(weights.len().pow(2) > LARGEST_BATCH);
        let g = network(weights.clone());
        let found = Counterfactuals::new(&g, &Cpu::default().threads(1)).unwrap();
        let found = found.of(&Tensor::new([1, 1, 2, 2], vec![0.1f32, 0.2, 0.3, 0.4]).unwrap()).unwrap();
        assert_eq!((found.present.len(), found.missing.len()), (weights.len(), weights.len()));
        for ((present, missing), weight) in found.present.iter().zip(&found.missing).zip(&weights) {
            assert_eq!(present, &[weight.max(0.0) / 4.0; 4]);
            assert_eq!(missing, &[(-weight).max(0.0) / 4.0; 4]);
        }
    }

    #[test]
    fn a_fixed_batch_is_refused() {
        let mut g = Graph::new();
        let x = g.input("x", Shape::fixed(&[3, 5]), Kind::Float);
        g.output("scores", x);
        let error = Counterfactuals::new(&g, &Cpu::default()).err().unwrap().to_string();
        assert!(error.contains("batch axis"), "{error}");
    }

    #[test]
    fn shares_count_positive_mass_alone() {
        let rows = [vec![3.0, 1.0, -5.0], vec![0.0, 0.0, 0.0]];
        assert_eq!(share(&rows, &[true, false, true]), Some(0.75));
        assert_eq!(share(&rows[1..], &[true, false, true]), None);
        let spread = Share::of(&[0.0, 1.0, 0.0, 1.0]);
        assert!(
            (spread.mean - 0.5).abs() < 1e-12
                && (spread.half_width - 1.96 * (1.0f64 / 12.0).sqrt()).abs() < 1e-12
        );
    }
}
