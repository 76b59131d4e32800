//! Targets that fit a network, told by the shapes of its outputs.

use monosplit_explain::{AxisIndex, Cells, Mask, Parameters, Rival, Summary, Target, target_output};
use monosplit_graph::Dim;

use crate::model::Model;

/// The targets that suit one output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuggestedTargets {
    /// The output.
    pub output: String,
    /// The texts of targets, the most usual first. All of them can be explained.
    pub targets: Vec<String>,
}

impl Model {
    /// Targets for each output of the network, by its shape. Each was grafted, so that it works.
    pub fn suggested_targets(&self) -> Vec<SuggestedTargets> {
        if self.target().is_some() {
            return Vec::new();
        }
        let outputs = self.graph().outputs().iter().enumerate();
        let each = outputs.map(|(index, output)| {
            let dims = self.graph().node(output.node).shape.dims().get(1..).unwrap_or_default();
            let candidates = candidates(&output.name, index == 0, dims);
            let fits = |(_, target): &(String, Target)| {
                target_output(self.graph(), target.output()).is_ok()
                    && target.graft(self.graph(), Parameters::Constant).is_ok()
            };
            let targets = candidates.into_iter().filter(fits).map(|(text, _)| text).collect();
            SuggestedTargets { output: output.name.clone(), targets }
        });
        each.collect()
    }
}

/// Targets that such an output may have, as texts and as what they come to.
fn candidates(name: &str, is_first: bool, dims: &[Dim]) -> Vec<(String, Target)> {
    let output = || Some(name.to_owned());
    let lengths: Vec<usize> = dims.iter().filter_map(|dim| dim.fixed()).collect();
    let summary =
        |word: &str, summary| (format!("{word}:{name}"), Target::Summary { output: output(), summary });
    let cell = |indices: Vec<AxisIndex>| {
        let cells = Cells::Each(indices);
        (format!("cell:{name}[{cells}]"), Target::Cell { output: output(), cells })
    };
    let best = || {
        let cells = Cells::BestOf(0);
        (format!("cell:{name}[{cells}]"), Target::Cell { output: output(), cells })
    };
    let places = lengths.iter().skip(1).filter(|&&length| length > 1).count();
    match lengths.len() {
        _ if lengths.len() < dims.len() => Vec::new(),
        // The scores of classes are those of the first output; an output is put first by another option.
        1.. if places == 0 && lengths[0] > 1 => {
            let mut found = Vec::new();
            if is_first {
                found.push(("class:top".to_owned(), Target::Class { output: None }));
                let contrast = Target::Contrast { output: None, class: None, against: Rival::Second };
                found.push(("contrast:top,top2".to_owned(), contrast));
            }
            found.push(cell(vec![AxisIndex::At(0); lengths.len()]));
            found.push(summary("norm", Summary::Norm));
            found
        }
        0.. if places == 0 => vec![summary("sum", Summary::Sum)],
        2 => vec![best(), cell(vec![AxisIndex::At(0); 2]), summary("sum", Summary::Sum)],
        _ => {
            let text = if is_first { "region:auto".to_owned() } else { format!("region:auto,output={name}") };
            let region = Target::Region { output: output(), mask: Mask::Predicted, class: None };
            vec![(text, region), best(), summary("mean", Summary::Mean), summary("norm", Summary::Norm)]
        }
    }
}
