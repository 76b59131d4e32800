//! An examiner who asks whether maps depend on what the network has learnt: he compares each with the map of a network
//! whose last layers are noise. The less they are alike, the more the map depends on those layers.

use monosplit_graph::{Error, Result};

use crate::candidate::Candidate;
use crate::dataset::Sample;
use crate::examinee::{Examinee, Panel};
use crate::judging::Looked;
use crate::metric::Silence;
use crate::similarity::Similarity;
use crate::sweep::{Examiner, Outcome, Seen};

/// What the paper compares maps by, and the ranks of absolute values beside them.
pub const SIMILARITIES: [Similarity; 4] =
    [Similarity::Hog, Similarity::Spearman, Similarity::SpearmanAbsolute, Similarity::Ssim];

/// Compares the maps of a network with those of one that has forgotten.
pub struct Sanity<'a> {
    trained: &'a Examinee<'a>,
    randomised: &'a Examinee<'a>,
    panels: Option<[Panel; 2]>,
    looked: [Looked; 2],
}

impl<'a> Sanity<'a> {
    /// Compares the maps of `trained` with those of `randomised`.
    pub fn new(trained: &'a Examinee<'a>, randomised: &'a Examinee<'a>) -> Self {
        Sanity { trained, randomised, panels: None, looked: Default::default() }
    }

    /// What a comparison is called in a store.
    pub fn name(similarity: Similarity, layers: usize) -> String {
        format!("randomised-similarity:layers={layers},similarity={}", similarity.name())
    }
}

impl Examiner for Sanity<'_> {
    fn prepare(&mut self, group: &[&Candidate]) -> Result<()> {
        self.panels = Some([self.trained.panel(group)?, self.randomised.panel(group)?]);
        Ok(())
    }

    fn look(&mut self, samples: Vec<Sample>, images: &[Seen]) -> Result<()> {
        let [trained, randomised] =
            self.panels.as_ref().ok_or_else(|| Error::argument("no candidates were prepared"))?;
        self.looked =
            [Looked::at(trained, samples.clone(), images, 0)?, Looked::at(randomised, samples, images, 0)?];
        Ok(())
    }

    fn examine(&mut self, metric: usize, image: usize, candidate: usize) -> Result<Outcome> {
        let panels = self.panels.as_ref().ok_or_else(|| Error::argument("no candidates were prepared"))?;
        let mut maps = Vec::new();
        for (panel, looked) in panels.iter().zip(&self.looked) {
            match looked.map(panel, image, candidate)? {
                Some(map) => maps.push(map),
                None => return Ok(Err(Silence("the image has no mask".into()))),
            }
        }
        let height = maps[0].shape()[0];
        Ok(SIMILARITIES[metric].of(&maps[0].to_f64(), &maps[1].to_f64(), height))
    }
}
