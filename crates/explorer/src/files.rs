//! Results as files: a map as a picture, a drawing or an array, and a network with its maps as ONNX.

use monosplit::graph::{npy, onnx};
use monosplit::image::encode_png;
use monosplit::render::{Caption, Format, OverlayOptions, ScalarField, side_by_side};
use monosplit::{ClassSource, Compilation, Error, RankedClass, Result};
use serde_json::json;

use crate::interruption::Interruption;
use crate::maps::ChosenMap;
use crate::request::{FileFormat, MapChoice, Question, Request};
use crate::response::{Response, Values};
use crate::session::{Session, not_finite};

impl Session {
    pub(crate) fn compile(&mut self, question: &Question, maps: &[MapChoice]) -> Result<Response> {
        if maps.is_empty() || maps.len() > Request::MOST_MAPS {
            return Err(Error::argument(format!("choose one to {} methods", Request::MOST_MAPS)));
        }
        let prepared = self.prepared(&question.subject)?;
        let targeted = self.targeted(question)?;
        let model = &targeted.model;
        let chosen: Vec<ChosenMap> = maps
            .iter()
            .map(|map| ChosenMap::new(map, question.alpha, model, &prepared.preprocess))
            .collect::<Result<_>>()?;
        let requests: Vec<_> = chosen.iter().map(|map| (&map.method, map.request())).collect();
        let source = match (question.rival, question.class) {
            (Some(_), _) => ClassSource::of_target(model),
            (None, Some(class)) => ClassSource::InputOr(class),
            (None, None) => ClassSource::Input,
        };
        let precision = Compilation::own_precision(model, &requests);
        let mut compilation = Compilation::new(model, source, &requests, precision)?;
        if question.rival.is_none() {
            compilation = compilation.labelled(&targeted.labels);
        }
        let bytes = onnx::write(compilation.graph(), &compilation.export_options())?;
        Ok(file("explained.onnx", "application/octet-stream", bytes))
    }

    pub(crate) fn download(
        &mut self,
        question: &Question,
        map: &MapChoice,
        format: FileFormat,
        interruption: Interruption<'_>,
    ) -> Result<Response> {
        let stem = self.file_stem(question)?;
        if format == FileFormat::Picture {
            let prepared = self.prepared(&question.subject)?;
            let picture = prepared.picture()?;
            let bytes = encode_png(picture.width(), picture.height(), picture.into())?;
            return Ok(file(&format!("{stem}.edited.png"), "image/png", bytes));
        }
        let (chosen, found) = self.one_map(question, map, interruption)?;
        let stem = format!("{stem}.{}", chosen.method.name);
        let values = &found.maps[0].values;
        let format = match format {
            FileFormat::Png => Format::Png,
            FileFormat::Svg => Format::Svg,
            FileFormat::Npy | FileFormat::Picture => {
                return Ok(file(&format!("{stem}.npy"), "application/octet-stream", npy::write(values)));
            }
        };
        let prepared = self.prepared(&question.subject)?;
        let targeted = self.targeted(question)?;
        let class = found.classes.first().copied().unwrap_or(0);
        let scores = found.logits.to_f64();
        let ranked = RankedClass::of_class(&scores, class, targeted.score_kind()).ok_or_else(not_finite)?;
        let name = targeted.labels.name(class);
        let is_contrast = question.rival.is_some();
        let alpha = chosen.shift().filter(|_| chosen.method.alpha.is_some());
        let caption = Caption {
            method: chosen.method.title.clone(),
            layer: chosen.layer.clone().unwrap_or_else(|| "the image".to_owned()),
            class: if is_contrast { String::new() } else { name.clone() },
            target: if is_contrast { name } else { String::new() },
            confidence: ranked.probability,
            alpha,
        };
        let field = ScalarField::from_tensor(values, 0)?;
        let (scene, _) = side_by_side(prepared.picture()?, &field, &caption, &OverlayOptions::default())?;
        let (ending, media_type) = match format {
            Format::Svg => ("svg", "image/svg+xml"),
            _ => ("png", "image/png"),
        };
        Ok(file(&format!("{stem}.{ending}"), media_type, scene.encode(format)?))
    }

    /// The picture's name without its ending.
    fn file_stem(&self, question: &Question) -> Result<String> {
        let name = self.picture_name(question.subject.picture)?;
        let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
        let safe = |c: char| if c.is_alphanumeric() || "-_. ".contains(c) { c } else { '_' };
        Ok(stem.chars().map(safe).collect())
    }
}

fn file(name: &str, media_type: &str, bytes: Vec<u8>) -> Response {
    let length = bytes.len();
    Response::new(json!({ "file": name, "mediaType": media_type })).with("file", [length], Values::U8(bytes))
}
