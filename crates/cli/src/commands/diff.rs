//! `monosplit diff`: two networks on the same pictures.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use monosplit::catalogue::{ConfiguredMethod, ValueBounds};
use monosplit::engine::Engine;
use monosplit::explain::{BatchPosition, chosen_layer};
use monosplit::graph::{Error, Result};
use monosplit::{
    DifferenceMeasure, InputFile, Model, ModelComparison, Origin, Sample, SampleReader, TargetChoice,
};

use super::class::{ClassArgs, Classes};
use super::compute::ComputeArgs;
use super::diff_page;
use super::diff_result::{Compared, DiffContext, Limit};
use super::explain_named::words;
use super::inputs::remember_skipped;
use super::method::MethodArgs;
use super::named_inputs::{ExplainedInputArgs, GivenInputArgs, InputValues, NamedInputs, TokenArgs};
use super::network::NetworkArgs;
use super::network_input;
use super::preprocessing::PreprocessingArgs;
use super::progress::Bar;
use super::run::{check_writable, scores_remark};
use super::target::opened_for;
use crate::exit_status::ExitStatus;
use crate::failure::{Failure, note};

/// What is said where there is nothing to compare on.
const NOTHING: &str = "expected two networks and something to compare them on: A.onnx B.onnx PICTURE";

/// Compares two networks on the same pictures: scores and maps
#[derive(Args)]
#[command(override_usage = "monosplit diff A.onnx B.onnx INPUT... [OPTIONS]
       monosplit diff --arch NAME --weights A.pth B INPUT... [OPTIONS]")]
#[command(long_about = "\
Compares two networks on the same pictures: before and after fine-tuning, in single and in half
precision, whole and pruned.

  monosplit diff before.onnx after.onnx photos/
  monosplit diff full.onnx half.onnx photos/ --method gradcam -o diff.html
  monosplit diff full.onnx pruned.onnx photos/ --fail-above 0.1 --fail-above score=0.01
  monosplit diff bert.onnx tuned.onnx ids.npy --input mask=mask.npy --tokens vocab.txt -o diff.html

Both networks explain the same class, the one with the highest score of A unless --class or
--target says otherwise. The picture they are furthest apart on comes first. The columns are 0 where
the networks agree:

  score     the largest difference of a score, over the largest magnitude of a score
  map       ‖a − b‖ / max(‖a‖, ‖b‖) of the two maps a and b: 2 where they are opposite
  spearman  1 less the correlation of the maps' ranks
  ssim      1 less the structural similarity of the maps

The structural similarity is undefined (–) for maps smaller than its window of 7×7. Of several
layers, the worst counts. With --arch, B may be other weights of the same architecture.
With --fail-above the exit code is 1 if a picture is above the limit or cannot be measured.")]
pub(crate) struct Diff {
    /// Two networks, ONNX files, then what they are compared on: pictures, folders of pictures,
    /// .npy and .npz batches, or - for one of these on standard input.
    #[arg(value_name = "A B INPUT", verbatim_doc_comment)]
    files: Vec<PathBuf>,

    #[command(flatten)]
    network: NetworkArgs,

    #[command(flatten)]
    method: MethodArgs,

    /// The layer of the second network, where it has another name there than --layer says. As
    /// often as --layer.
    #[arg(long = "other-layer", value_name = "NAME[:out]", verbatim_doc_comment)]
    other_layers: Vec<String>,

    #[command(flatten)]
    class: ClassArgs,

    /// The column that says which picture is worst: map, score, spearman, ssim, or class (1
    /// where the predicted classes differ).
    #[arg(long, value_name = "COLUMN", value_enum, default_value_t, hide_possible_values = true)]
    #[arg(verbatim_doc_comment)]
    by: MeasureName,

    /// Exit with code 1 if a number of the column --by, or of the named one, is larger than X.
    /// May be given several times.
    #[arg(long, value_name = "[COLUMN=]X", verbatim_doc_comment)]
    fail_above: Vec<String>,

    /// Show the N worst pictures [default: 20]. JSON has all.
    #[arg(long, value_name = "N", default_value_t = 20, hide_default_value = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=64))]
    worst: u32,

    /// Write a page with both maps and their difference of the worst pictures.
    #[arg(short, long, value_name = "FILE.html")]
    out: Option<PathBuf>,

    /// Print JSON, for programs.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    given: GivenInputArgs,

    #[command(flatten)]
    of: ExplainedInputArgs,

    #[command(flatten)]
    tokens: TokenArgs,

    #[command(flatten)]
    compute: ComputeArgs,

    #[command(flatten)]
    preprocessing: PreprocessingArgs,
}

/// The measures by name.
#[derive(Clone, Copy, Default, ValueEnum)]
enum MeasureName {
    #[default]
    Map,
    Score,
    Spearman,
    Ssim,
    Class,
}

impl From<MeasureName> for DifferenceMeasure {
    fn from(name: MeasureName) -> Self {
        match name {
            MeasureName::Map => DifferenceMeasure::Map,
            MeasureName::Score => DifferenceMeasure::Score,
            MeasureName::Spearman => DifferenceMeasure::Spearman,
            MeasureName::Ssim => DifferenceMeasure::Ssim,
            MeasureName::Class => DifferenceMeasure::Class,
        }
    }
}

/// One of the two networks with its own reader of the inputs.
struct Side {
    model: Model,
    reader: SampleReader,
    method: ConfiguredMethod,
    layers: Vec<Option<String>>,
}

impl Diff {
    pub(crate) fn execute(&self, out: &mut dyn Write) -> Result<ExitStatus, Failure> {
        let by = DifferenceMeasure::from(self.by);
        let limits = self.fail_above.iter().map(|text| limit(text, by)).collect::<Result<Vec<_>>>()?;
        if let Some(path) = &self.out {
            check_writable(path)?;
        }
        let (origins, inputs) = self.files()?;
        let sources = self.preprocessing.inputs.list(inputs)?;
        let target = self.class.target.choice()?;
        let engine = self.compute.engine()?;
        let other_layers = match &self.other_layers[..] {
            [] => self.method.layers(),
            others if others.len() == self.method.layers().len() => others,
            others => {
                return Err(Error::argument(format!(
                    "--other-layer was given {} times and --layer {} times; give each as often",
                    others.len(),
                    self.method.layers().len()
                ))
                .into());
            }
        };
        let [first, second] = origins;
        let opened = |origin| -> Result<Model> {
            let options = opened_for(self.network.options_for(self.compute.precision()), target.as_ref());
            let inputs_of = (&self.given, &self.preprocessing);
            Ok(network_input::open_for(&options, origin, inputs_of, &sources)?.model)
        };
        let (first, second) = (opened(first)?, opened(second)?);
        if let Some(named) = self.of.chosen(&first, &self.given, inputs)? {
            let compared = self.compare_named(&named, [first, second], &sources, limits, &*engine)?;
            return self.conclude(&compared, out);
        }
        self.tokens.refuse(&first)?;
        if inputs.is_empty() {
            return Err(Error::argument(NOTHING).into());
        }
        let mut first = self.side(first, self.method.layers(), &sources, target.as_ref(), &*engine)?;
        let mut second = self.side(second, other_layers, &sources, target.as_ref(), &*engine)?;
        scores_remark(&first.model).iter().for_each(|remark| note(remark));
        let comparison = ModelComparison::new(
            [&first.model, &second.model],
            [&first.maps(), &second.maps()],
            self.method.finish(),
            &*engine,
        )?;
        let (labels, _) = self.class.labels(&first.model)?;
        let classes = self.class.classes(&first.model, &labels)?;
        let context = DiffContext {
            networks: [&first, &second].map(|side| side.model.origin().to_string()),
            target: first.model.target().map(ToString::to_string),
            method: first.method.name,
            title: first.method.title.clone(),
            is_of_inputs: false,
            layers: first.layers.iter().cloned().zip(second.layers.iter().cloned()).collect(),
            labels,
            named_class: first.model.named_class(),
            by,
            limits,
            worst: self.worst as usize,
        };
        let compared = self.compare_all((&mut first, &mut second), &comparison, &classes, &context)?;
        self.conclude(&(context, compared), out)
    }

    /// Writes the page and the numbers.
    fn conclude(
        &self,
        (context, compared): &(DiffContext, Vec<Compared>),
        out: &mut dyn Write,
    ) -> Result<ExitStatus, Failure> {
        if let Some(path) = &self.out {
            diff_page::write(path, context, compared)?;
        }
        match self.json {
            true => context.print_json(compared, self.out.as_deref(), out)?,
            false => context.print(compared, self.out.as_deref(), out)?,
        }
        Ok(if context.is_above(compared) { ExitStatus::from(1) } else { ExitStatus::SUCCESS })
    }

    /// Compares the maps of inputs by name.
    fn compare_named(
        &self,
        named: &NamedInputs,
        models: [Model; 2],
        sources: &[InputFile],
        limits: Vec<Limit>,
        engine: &dyn Engine,
    ) -> Result<(DiffContext, Vec<Compared>), Failure> {
        if !self.method.layers().is_empty() {
            return Err(models[0]
                .unfit(format!(
                    "the maps of {} are of inputs by name, which --layer does not apply to; leave it out",
                    named.of.join(", ")
                ))
                .into());
        }
        let target = self.class.target.choice()?;
        let choice = self.method.choice()?;
        let ready = |model: Model| -> Result<(Model, ConfiguredMethod, InputValues)> {
            let values = named.values(&model, &self.given, sources, &self.preprocessing)?;
            let preprocess = self.preprocessing.known(&model);
            let model = self.class.with_target(model, target.as_ref(), preprocess.as_ref(), engine)?;
            let method = choice.resolve(&ValueBounds::of_inputs(&model, None)?, model.graph())?;
            Ok((model, method, values))
        };
        let [first, second] = models;
        let ((first, method, values), (second, other, other_values)) = (ready(first)?, ready(second)?);
        scores_remark(&first).iter().for_each(|remark| note(remark));
        let (labels, _) = self.class.labels(&first)?;
        let classes = self.class.classes(&first, &labels)?;
        let place = |input: &String| (Some(input.clone()), Some(input.clone()));
        let context = DiffContext {
            networks: [&first, &second].map(|model| model.origin().to_string()),
            target: first.target().map(ToString::to_string),
            method: method.name,
            title: method.title.clone(),
            is_of_inputs: true,
            layers: named.of.iter().map(place).collect(),
            labels,
            named_class: first.named_class(),
            by: self.by.into(),
            limits,
            worst: self.worst as usize,
        };
        let of: Vec<&str> = named.of.iter().map(String::as_str).collect();
        let comparison = ModelComparison::of_inputs(
            [&first, &second],
            [method, other],
            &of,
            self.method.finish(),
            engine,
        )?;
        let texts = comparison.texts();
        let vocabulary = self.tokens.vocabulary(&first, texts.contains(&true))?;
        let (mut found, bar) = (Vec::new(), Bar::counting("inputs"));
        for row in 0..values.count {
            let class = classes.of(row, 1)?;
            let position = BatchPosition { offset: row, is_last: row + 1 == values.count };
            let (a, b) = (values.row(row)?, other_values.row(row)?);
            let difference = comparison.compare_inputs([&a, &b], &class, position)?;
            let samples: Vec<Sample> =
                (0..of.len()).filter_map(|at| values.sample(at, row)).cloned().collect();
            let word =
                |(sample, is_text): (&Sample, &bool)| is_text.then(|| words(&vocabulary, &sample.tensor));
            let words = samples.iter().zip(&texts).map(word).collect();
            found.push(Compared::of_inputs(row, samples, words, difference, &context));
            context.forget_all_but_the_worst(&mut found);
            bar.show(row + 1, values.count);
        }
        classes.all_used(found.len())?;
        context.sort(&mut found);
        Ok((context, found))
    }

    /// The two networks and their inputs.
    fn files(&self) -> Result<([Origin; 2], &[PathBuf])> {
        let (first, rest) = self.network.split(&self.files, NOTHING)?;
        let [second, inputs @ ..] = rest else { return Err(Error::argument(NOTHING)) };
        if inputs.is_empty() && !self.given.are_given() {
            return Err(Error::argument(NOTHING));
        }
        let is_onnx =
            |path: &Path| path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("onnx"));
        let second = match &self.network.arch {
            Some(name) if !is_onnx(second) => Origin::architecture(name, second),
            _ => Origin::onnx(second),
        };
        Ok(([first, second], inputs))
    }

    /// One of the networks with its inputs.
    fn side(
        &self,
        model: Model,
        layers: &[String],
        sources: &[InputFile],
        target: Option<&TargetChoice>,
        engine: &dyn Engine,
    ) -> Result<Side> {
        let model = self.given.held(model, &self.preprocessing)?;
        let preprocess = self.preprocessing.for_sources(&model, sources)?;
        let model = self.class.with_target(model, target, preprocess.as_ref(), engine)?;
        let bounds = ValueBounds::of_inputs(&model, preprocess.as_ref())?;
        let method = self.method.choice()?.resolve(&bounds, model.graph())?;
        let layers = match layers {
            [] => vec![chosen_layer(model.graph(), method.method.default_layer()).map(|layer| layer.name)],
            layers => layers.iter().cloned().map(Some).collect(),
        };
        let reader = self.class.fitting(self.preprocessing.reader(&model, sources.to_vec(), preprocess)?);
        Ok(Side { model, reader, method, layers })
    }

    /// Compares the networks on all inputs; the worst come first, and they alone keep their maps.
    fn compare_all(
        &self,
        (first, second): (&mut Side, &mut Side),
        comparison: &ModelComparison,
        classes: &Classes,
        context: &DiffContext,
    ) -> Result<Vec<Compared>, Failure> {
        let mut found: Vec<Compared> = Vec::new();
        let bar = Bar::counting("inputs");
        let mut next = next_pair(first, second)?;
        while let Some([a, b]) = next {
            next = next_pair(first, second)?;
            let offset = found.len();
            let position = BatchPosition { offset, is_last: next.is_none() };
            let class = classes.of(offset, 1)?;
            let progress = || Box::new(monosplit::explain::NoProgress) as Box<_>;
            let difference = comparison.compare([&a.tensor, &b.tensor], &class, position, progress)?;
            found.push(Compared::new(offset, a, difference, context));
            context.forget_all_but_the_worst(&mut found);
            bar.show(first.reader.opened(), first.reader.total());
        }
        classes.all_used(found.len())?;
        remember_skipped(&first.reader);
        context.sort(&mut found);
        Ok(found)
    }
}

impl Side {
    /// The maps that are compared.
    fn maps(&self) -> Vec<(&ConfiguredMethod, Option<&str>)> {
        self.layers.iter().map(|layer| (&self.method, layer.as_deref())).collect()
    }
}

/// The next sample as each network reads it; none at the end.
fn next_pair(first: &mut Side, second: &mut Side) -> Result<Option<[Sample; 2]>> {
    match (first.reader.take(1)?.pop(), second.reader.take(1)?.pop()) {
        (None, None) => Ok(None),
        (Some(a), Some(b)) if a.name == b.name => Ok(Some([a, b])),
        // Files that both refuse are skipped by both readers.
        _ => {
            let refused = |side: &Side| side.reader.skipped().last().map(|skipped| skipped.error.clone());
            let error = refused(second).or_else(|| refused(first));
            let error = error.unwrap_or_else(|| Error::argument("the networks read different samples"));
            Err(error.context("one of the networks alone can read an input"))
        }
    }
}

/// A limit as it is written: `X`, or `COLUMN=X`.
fn limit(text: &str, by: DifferenceMeasure) -> Result<Limit> {
    let (measure, number) = match text.split_once('=') {
        Some((name, number)) => {
            let measure = DifferenceMeasure::ALL.into_iter().find(|measure| measure.name() == name.trim());
            let measure = measure.ok_or_else(|| {
                let names = DifferenceMeasure::ALL.map(DifferenceMeasure::name).join(", ");
                Error::argument(format!("--fail-above: there is no column '{name}'; there are {names}"))
            })?;
            (measure, number)
        }
        None => (by, text),
    };
    match number.trim().parse::<f64>() {
        Ok(most) if most.is_finite() && most >= 0.0 => Ok(Limit { measure, most }),
        _ => Err(Error::argument(format!(
            "--fail-above: expected a number from 0 on, such as 0.1 or score=0.01, found '{text}'"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_of_a_column_or_of_the_one_that_sorts() {
        let read = |text: &str| limit(text, DifferenceMeasure::Ssim).map(|limit| (limit.measure, limit.most));
        assert_eq!(read("0.25").unwrap(), (DifferenceMeasure::Ssim, 0.25));
        assert_eq!(read("score=1e-3").unwrap(), (DifferenceMeasure::Score, 1e-3));
        for (wrong, words) in
            [("score=", "from 0 on"), ("-1", "from 0 on"), ("NaN", "from 0 on"), ("maps=1", "map, score")]
        {
            let error = read(wrong).unwrap_err().to_string();
            assert!(error.contains(words), "{wrong}: {error}");
        }
    }
}
