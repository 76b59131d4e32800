//! Maps that were made elsewhere: one for each image, read from files and measured like those of a method. A map covers what the
//! network sees of its image. One of another size is resized bilinearly. All maps are read and checked before anything is
//! computed, and stay in memory.

mod files;
mod resize;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use monosplit_graph::options::closest;
use monosplit_graph::{Error, Result, Tensor, shown};

use crate::dataset::DataSet;
use files::MapFiles;
use resize::resized;

/// The largest number of values in all maps of one method.
const MAX_VALUES: usize = 1 << 30;

/// Maps by the ids of their images.
#[derive(Clone, Debug, Default)]
pub struct GivenMaps(Arc<HashMap<i64, Tensor>>);

/// The images of one part of a data set that need a map.
pub struct MappedImages<'a> {
    /// The part as maps name it.
    pub part: Option<&'a str>,
    /// The data set.
    pub data: &'a DataSet,
    /// The id of each image and its index in the data set.
    pub images: Vec<(i64, usize)>,
}

/// A folder, a `.npz` or a `.npy` file of maps.
#[derive(Debug)]
pub struct MapSource {
    files: MapFiles,
    /// Identifies the maps in a store: the name of the file and a part of the hash of all its maps.
    pub identity: String,
    /// The name of the file without its ending.
    pub title: String,
}

impl MapSource {
    /// Opens the maps at `path`.
    pub fn open(path: &Path) -> Result<Self> {
        let (files, hash) = MapFiles::open(path)?;
        let text = |part: Option<&std::ffi::OsStr>| {
            part.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
        };
        let hash = hash.get(..12).unwrap_or(&hash);
        let identity = format!("{}#{hash}", text(path.file_name()));
        Ok(MapSource { files, identity, title: text(path.file_stem()) })
    }

    /// Reads and checks the maps of some images at the size of the network's input, `[height, width]`. Returns them with
    /// remarks on maps of no image: neither of these parts nor of `others`, whose maps are not needed.
    pub fn read(
        &self,
        parts: &[MappedImages<'_>],
        others: &[MappedImages<'_>],
        size: [usize; 2],
    ) -> Result<(GivenMaps, Vec<String>)> {
        let mut maps = HashMap::new();
        let mut values = 0usize;
        let found = self.assigned(parts)?;
        for (id, name, place) in &found {
            let about = |error: Error| error.context(format!("the map of image '{name}'"));
            let map = self.files.map(*place).and_then(plane).map_err(about)?;
            let &[height, width] = map.shape() else { return Err(about(Error::shape("expected two axes"))) };
            values = values.saturating_add(size[0].saturating_mul(size[1]));
            if values > MAX_VALUES {
                return Err(Error::memory(format!(
                    "{} maps of {}×{} values do not fit; at most {MAX_VALUES} values are held, so take fewer images",
                    found.len(),
                    size[0],
                    size[1]
                )));
            }
            check_proportions([height, width], size).map_err(about)?;
            if map.to_f64().iter().any(|value| !value.is_finite()) {
                return Err(about(Error::argument("some values are infinite or not numbers")));
            }
            maps.insert(*id, resized(map, size)?);
        }
        Ok((GivenMaps(Arc::new(maps)), self.unmatched(parts, others)))
    }

    /// For each image its id, its name, and the place of its map in the files.
    fn assigned<'a>(&self, parts: &'a [MappedImages<'_>]) -> Result<Vec<(i64, &'a str, usize)>> {
        let mut found: Vec<(i64, &str, usize)> = Vec::new();
        let mut taken: HashMap<usize, (i64, &str)> = HashMap::new();
        let (mut missing, mut images) = (Vec::new(), 0);
        for MappedImages { part, data, images: own } in parts {
            let wanted = data.original_len();
            if let Some(count) = self.files.ordered().filter(|&count| count != wanted) {
                return Err(Error::argument(format!(
                    "the array holds {count} maps, but there are {wanted} images; expected one map for each image of the part, \
                     in the order of their names, or maps by the names of images (.npz or a folder)"
                )));
            }
            for &(id, index) in own {
                let name = data.name(index);
                images += 1;
                let place = match self.files.ordered() {
                    Some(_) => Some(data.original_index(index)),
                    None => keys(*part, name).iter().find_map(|key| self.files.place(key)),
                };
                let Some(place) = place else {
                    missing.push((*part, name));
                    continue;
                };
                // The same image may be in two parts.
                let other = taken.insert(place, (id, name)).filter(|(other, _)| *other != id);
                if let Some((_, other)) = other {
                    return Err(Error::argument(format!(
                        "the map '{}' would be that of two images, '{other}' and '{name}'; name maps by the part and the full \
                         name of their image, such as '{}'",
                        self.files.name(place),
                        keys(*part, name)[0]
                    )));
                }
                found.push((id, name, place));
            }
        }
        match missing.first() {
            None => Ok(found),
            Some((part, name)) => {
                let keys = keys(*part, name);
                let close = closest(&keys[keys.len() - 1], &self.files.names());
                Err(Error::argument(format!(
                    "{} of {images} images have no map, '{name}' first; {close}expected a map called '{}'",
                    missing.len(),
                    keys.join("', '")
                )))
            }
        }
    }

    /// A remark on maps whose names are those of no image in the parts of the experiment.
    fn unmatched(&self, parts: &[MappedImages<'_>], others: &[MappedImages<'_>]) -> Vec<String> {
        if self.files.ordered().is_some() {
            return Vec::new();
        }
        let known: std::collections::HashSet<String> = parts
            .iter()
            .chain(others)
            .flat_map(|part| part.data.original_names().iter().flat_map(|name| keys(part.part, name)))
            .collect();
        let names = self.files.names();
        let strays: Vec<&&str> = names.iter().filter(|name| !known.contains(**name)).collect();
        match strays.first() {
            None => Vec::new(),
            Some(first) => vec![format!(
                "{} of {} maps have the name of no image in the parts of this experiment, '{}' first; they are not read",
                strays.len(),
                names.len(),
                shown(first)
            )],
        }
    }
}

impl GivenMaps {
    /// The map `[H, W]` of an image.
    pub(crate) fn of(&self, image: i64) -> Result<Tensor> {
        self.0.get(&image).cloned().ok_or_else(|| Error::argument("the image has no given map"))
    }
}

/// The names by which the map of an image is looked for: its name in the data set and the same without its ending, both also
/// behind the name of the part.
fn keys(part: Option<&str>, name: &str) -> Vec<String> {
    let folder = name.rfind('/').map_or(0, |at| at + 1);
    let stem = match name[folder..].rfind('.') {
        Some(dot) if dot > 0 => &name[..folder + dot],
        _ => name,
    };
    let mut keys: Vec<String> =
        part.iter().flat_map(|part| [format!("{part}/{name}"), format!("{part}/{stem}")]).collect();
    keys.extend([name.to_owned(), stem.to_owned()]);
    keys.dedup();
    keys
}

/// A map without leading axes of length 1.
fn plane(map: Tensor) -> Result<Tensor> {
    let shape = map.shape().to_vec();
    match shape[..] {
        [height, width] if height > 0 && width > 0 => Ok(map),
        [1, .., height, width] if map.len() == height * width && !map.is_empty() => {
            map.reshaped([height, width])
        }
        [.., channels, _, _] if channels > 1 => Err(Error::shape(format!(
            "expected [height, width], found {shape:?}; add up or average the channels first"
        ))),
        _ => Err(Error::shape(format!("expected [height, width], found {shape:?}"))),
    }
}

/// An error if a map cannot be resized to `size` without changing its proportions by a pixel of its own or more.
fn check_proportions([height, width]: [usize; 2], size: [usize; 2]) -> Result<()> {
    let [rows, columns] = size.map(|side| side as f64);
    let fits = |side: usize, other: usize, ratio: f64| (side as f64 - other as f64 * ratio).abs() < 1.0;
    match fits(height, width, rows / columns) || fits(width, height, columns / rows) {
        true => Ok(()),
        false => Err(Error::shape(format!(
            "it has {height}×{width} values, which does not cover the network's input of {}×{}: a map is resized, but not \
             distorted; scale and crop it as the image was",
            size[0], size[1]
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_looked_for_by_part_name_and_stem() {
        assert_eq!(keys(Some("test"), "a.b.jpg"), ["test/a.b.jpg", "test/a.b", "a.b.jpg", "a.b"]);
        assert_eq!(keys(None, "n01440764/x.JPEG"), ["n01440764/x.JPEG", "n01440764/x"]);
        assert_eq!(keys(None, "test[3]"), ["test[3]"]);
    }

    #[test]
    fn a_map_may_be_smaller_or_larger_but_not_of_other_proportions() {
        for side in [[7, 7], [224, 224], [448, 448], [1, 1]] {
            assert!(check_proportions(side, [224, 224]).is_ok(), "{side:?}");
        }
        assert!(check_proportions([7, 10], [224, 320]).is_ok());
        for side in [[375, 500], [7, 14], [224, 1]] {
            assert!(check_proportions(side, [224, 224]).is_err(), "{side:?}");
        }
    }

    #[test]
    fn a_map_has_two_axes_that_count() {
        let of = |shape: &[usize]| plane(Tensor::new(shape, vec![0f32; shape.iter().product()]).unwrap());
        for shape in [&[2, 3][..], &[1, 2, 3], &[1, 1, 2, 3]] {
            assert_eq!(of(shape).unwrap().shape(), [2, 3]);
        }
        for shape in [&[][..], &[6], &[0, 3], &[3, 2, 2], &[1, 3, 2, 2], &[1, 0, 0]] {
            assert!(of(shape).is_err(), "{shape:?}");
        }
        assert!(of(&[3, 2, 2]).unwrap_err().to_string().contains("channels"));
    }
}
