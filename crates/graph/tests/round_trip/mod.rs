//! Everything that is done with an ONNX file before anything runs: read, reported, written again, brought into
//! canonical form.

use monosplit_graph::onnx::{self, ExportOptions, ImportOptions};
use monosplit_graph::passes::{self, Stored};
use monosplit_graph::{Error, Graph};

/// Takes a file through all of it; whether it could be read.
///
/// # Panics
/// If the two ways of reading disagree, or if what is written cannot be read.
pub(crate) fn read_and_write(bytes: &[u8]) -> bool {
    let options = ImportOptions::default();
    let read = onnx::read(bytes, None, &options);
    let reported = onnx::import_report(bytes, None, &options).map(|report| report.graph);
    match (&read, &reported) {
        (Ok(_), Ok(Some(_))) | (Err(_), Ok(None) | Err(_)) => {}
        _ => panic!("read: {:?}; reported: {:?}", outcome(&read), outcome(&reported)),
    }
    let Ok(graph) = read else { return false };
    for layer in graph.layers() {
        std::hint::black_box(layer);
    }
    if let Ok(written) = onnx::write(&graph, &ExportOptions::default()) {
        let again = onnx::read(&written, None, &options);
        assert!(again.is_ok(), "what was written cannot be read: {}", outcome(&again));
    }
    // A pass may refuse a graph, but it must come back.
    let _ = canonical(&graph);
    true
}

fn outcome<T>(result: &Result<T, Error>) -> String {
    result.as_ref().map_or_else(Error::to_string, |_| "no error".to_owned())
}

fn canonical(graph: &Graph) -> Result<(), Error> {
    let graph = passes::drop_identities(&graph.pruned()?)?;
    let graph = passes::fold_batch_norm(&graph, Stored::AsBefore)?;
    let (graph, _) = passes::strip_probabilities(&graph, false, false)?;
    let graph = passes::recognise_activations(&graph)?;
    passes::max_form(&graph)?;
    passes::decompose(&graph)?;
    Ok(())
}
