//! The statements of the theory, checked on the open network.

use monosplit::graph::batch::repeated;
use monosplit::{Error, Result, Verdict, Verification};
use serde_json::{Value, json};

use crate::request::Subject;
use crate::response::Response;
use crate::session::Session;

/// The most pairs of inputs.
const MOST_SAMPLES: usize = 100;

impl Session {
    pub(crate) fn verify(&mut self, subject: &Subject, samples: usize) -> Result<Response> {
        if !(1..=MOST_SAMPLES).contains(&samples) {
            return Err(Error::argument(format!("1 to {MOST_SAMPLES} pairs of inputs are tried")));
        }
        let network = self.network()?;
        let prepared = self.prepared(subject)?;
        let image = repeated(&prepared.sample.tensor, network.model.fixed_batch()?.unwrap_or(1))?;
        let engines = (&*self.engine, &self.processor);
        let found = Verification::new(&network.model, &image, samples, None, engines, |_, _| {})?;
        let findings: Vec<Value> = found
            .findings
            .iter()
            .map(|finding| {
                json!({
                    "claim": finding.claim,
                    "found": finding.found,
                    "verdict": finding.verdict.word(),
                    "holds": matches!(finding.verdict, Verdict::Holds | Verdict::UpToError),
                    "fails": finding.verdict == Verdict::Fails,
                })
            })
            .collect();
        Ok(Response::new(json!({ "findings": findings })))
    }
}
