//! Deletion and insertion: how the explained score falls as the pixels that a map ranks highest are greyed, and how it rises as
//! they are put back into a blurred picture. Beside them the same for chance: the map with its values shuffled, so that only
//! the order differs and not the shape of what is removed.

use monosplit::graph::{Noise, Tensor};
use monosplit::image::Picture;
use monosplit::render::ScalarField;
use monosplit::{Error, Inference, RankedClass, Result};
use serde_json::{Value, json};

use crate::edit::{GREY, blurred_picture};
use crate::interruption::Interruption;
use crate::network::{Network, Targeted};
use crate::request::{MapChoice, Question};
use crate::response::Response;
use crate::session::{Prepared, Session, not_finite};

/// The most steps of a curve.
const MOST_STEPS: usize = 100;
/// How many shuffled maps stand for chance.
const SHUFFLED: u64 = 2;
/// Pictures that are computed at once.
const BATCH: usize = 4;

/// Computes the explained score of changed pictures.
struct Scored<'a> {
    network: &'a Network,
    targeted: &'a Targeted,
    prepared: &'a Prepared,
    inference: Inference,
    class: usize,
    interruption: Interruption<'a>,
}

impl Session {
    pub(crate) fn curves(
        &mut self,
        question: &Question,
        map: &MapChoice,
        steps: usize,
        interruption: Interruption<'_>,
    ) -> Result<Response> {
        if !(1..=MOST_STEPS).contains(&steps) {
            return Err(Error::argument(format!("a curve has 1 to {MOST_STEPS} steps")));
        }
        let (chosen, found) = self.one_map(question, map, interruption)?;
        let network = self.network()?;
        let prepared = self.prepared(&question.subject)?;
        let targeted = self.targeted(question)?;
        let class = found.classes.first().copied().unwrap_or(0);
        let inference = self.inference(&targeted)?;
        let mut scored = Scored {
            network: &network,
            targeted: &targeted,
            prepared: &prepared,
            inference,
            class,
            interruption,
        };
        let field = ScalarField::from_tensor(&found.maps[0].values, 0)?;
        let picture = prepared.picture()?;
        let grey = Picture::new(picture.width(), picture.height(), vec![GREY; picture.rgb().len()])?;
        let blurred = blurred_picture(picture)?;
        let mut curves = |field: &ScalarField| -> Result<[Vec<f64>; 2]> {
            let order = ranked(&field.resized(picture.width(), picture.height())?);
            Ok([
                scored.curve(picture, &grey, &order, steps)?,
                scored.curve(&blurred, picture, &order, steps)?,
            ])
        };
        let own = curves(&field)?;
        let mut chance = [vec![0.0; steps + 1], vec![0.0; steps + 1]];
        for seed in 0..SHUFFLED {
            for (mean, curve) in chance.iter_mut().zip(curves(&shuffled(&field, seed)?)?) {
                mean.iter_mut().zip(curve).for_each(|(mean, value)| *mean += value / SHUFFLED as f64);
            }
        }
        let [deletion, insertion] = own;
        let [random_deletion, random_insertion] = chance;
        let shares: Vec<f64> = (0..=steps).map(|step| step as f64 / steps as f64).collect();
        let described = |curve: Vec<f64>| json!({ "area": area(&curve), "scores": curve });
        Ok(Response::new(json!({
            "title": chosen.method.title,
            "measure": measure(&targeted),
            "shares": shares,
            "deletion": described(deletion),
            "insertion": described(insertion),
            "randomDeletion": described(random_deletion),
            "randomInsertion": described(random_insertion),
        })))
    }
}

impl Scored<'_> {
    /// The scores as more and more pixels of `from` become those of `to`, in this order.
    fn curve(&mut self, from: &Picture, to: &Picture, order: &[u32], steps: usize) -> Result<Vec<f64>> {
        let mut scores = Vec::with_capacity(steps + 1);
        let mut changed = from.rgb().to_vec();
        let mut done = 0;
        let mut batch = Vec::new();
        for step in 0..=steps {
            let end = step * order.len() / steps;
            for &at in &order[done..end] {
                let pixel = 3 * at as usize..3 * at as usize + 3;
                changed[pixel.clone()].copy_from_slice(&to.rgb()[pixel]);
            }
            done = end;
            let picture = Picture::new(from.width(), from.height(), changed.clone())?;
            batch.push(self.network.sample(&picture, &self.prepared.preprocess)?.tensor);
            if batch.len() == BATCH || step == steps {
                scores.extend(self.scores(&std::mem::take(&mut batch))?);
            }
        }
        Ok(scores)
    }

    fn scores(&mut self, batch: &[Tensor]) -> Result<Vec<f64>> {
        self.interruption.check()?;
        let found = self.inference.run(batch)?.to_f64();
        let kind = self.targeted.score_kind();
        let rows = found.chunks_exact(found.len() / batch.len().max(1));
        rows.map(|scores| {
            let ranked = RankedClass::of_class(scores, self.class, kind).ok_or_else(not_finite)?;
            Ok(ranked.probability.unwrap_or(ranked.score))
        })
        .collect()
    }
}

/// What the scores of curves are.
fn measure(targeted: &Targeted) -> Value {
    let is_score = targeted.score_kind() == monosplit::ScoreKind::Score;
    Value::from(if is_score { "score" } else { "probability" })
}

/// The positions of a map, the one with the highest value first; those of equal values by position.
fn ranked(field: &ScalarField) -> Vec<u32> {
    let values = field.values();
    let mut order: Vec<u32> = (0..values.len() as u32).collect();
    order.sort_by(|&a, &b| values[b as usize].total_cmp(&values[a as usize]).then(a.cmp(&b)));
    order
}

/// The map with its values in another order.
fn shuffled(field: &ScalarField, seed: u64) -> Result<ScalarField> {
    let order = Noise::new(seed).stream("chance").permutation(field.values().len());
    let values = order.iter().map(|&at| field.values()[at]).collect();
    ScalarField::new(field.width(), field.height(), values)
}

/// The area under a curve over shares from 0 to 1, by the trapezoidal rule.
fn area(curve: &[f64]) -> f64 {
    let between: f64 = curve.windows(2).map(|pair| (pair[0] + pair[1]) / 2.0).sum();
    between / (curve.len().max(2) - 1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_area_of_a_straight_line_is_its_middle() {
        let line: Vec<f64> = (0..=10).map(|step| 3.0 - 0.2 * f64::from(step)).collect();
        assert!((area(&line) - 2.0).abs() < 1e-12);
    }

    #[test]
    fn high_values_come_first_and_equal_ones_in_their_order() {
        let field = ScalarField::new(3, 2, vec![0.5, -1.0, 2.0, 0.5, 9.0, -1.0]).unwrap();
        assert_eq!(ranked(&field), [4, 2, 0, 3, 1, 5]);
    }

    #[test]
    fn a_shuffled_map_has_the_same_values_in_another_order() {
        let field = ScalarField::new(8, 8, (0..64).map(|v| v as f32).collect()).unwrap();
        let other = shuffled(&field, 0).unwrap();
        assert_ne!(other, field);
        let mut values = other.values().to_vec();
        values.sort_by(f32::total_cmp);
        assert_eq!(values, field.values());
    }
}
