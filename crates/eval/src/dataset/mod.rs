//! Data sets: images with labels and object masks, in common folder layouts. Missing and unreadable files are reported, and
//! skipped or fatal as the options say.

mod folder;
mod idx;
mod imagenet_s;
mod sample;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use monosplit_graph::{Error, Noise, Result};
use monosplit_image::{OrientationChoice, Picture, PictureFolder, PictureFormat, ReadOptions};

use crate::path_suggestion::suggest_path;
use crate::sha256::Sha256;

pub use sample::DatasetSample;

/// The folder layout of a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FolderLayout {
    /// `images/NAME.jpg`, `masks/NAME.png` (white on the object) and `labels.csv`; masks and labels may be missing.
    Folder,
    /// ImageNet-S as it is distributed: `validation/n01440764/NAME.JPEG` and the same under `validation-segmentation`,
    /// whose colours are class numbers.
    ImagenetS,
    /// The idx files of MNIST and its relatives.
    Idx,
}

impl FolderLayout {
    /// All layouts with their names.
    pub const NAMED: [(&'static str, FolderLayout); 3] = [
        ("folder", FolderLayout::Folder),
        ("imagenet-s", FolderLayout::ImagenetS),
        ("idx", FolderLayout::Idx),
    ];
}

/// What happens to an image without a mask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MissingMask {
    /// It is evaluated. Metrics that need a mask are undefined.
    #[default]
    Keep,
    /// It is excluded and counted.
    Skip,
    /// The evaluation fails at its start.
    Fail,
}

/// What happens to an image that cannot be read, or whose mask has another size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Unreadable {
    /// It is excluded and counted.
    Skip,
    /// The evaluation fails at its start.
    #[default]
    Fail,
}

/// How a data set is opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataOptions {
    /// The layout; detected from the files if not given.
    pub layout: Option<FolderLayout>,
    /// The column of `labels.csv` with the class index of the network.
    pub label_column: Option<String>,
    /// What happens to images without a mask.
    pub missing_mask: MissingMask,
    /// What happens to images that cannot be used.
    pub unreadable: Unreadable,
    /// Which way up images are. Masks are always turned as they say themselves.
    pub orientation: OrientationChoice,
}

/// What is wrong with an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ImageIssue {
    /// The image, or its mask, cannot be decoded.
    Unreadable,
    /// There is no mask.
    MissingMask,
    /// Image and mask have different sizes.
    SizesDiffer,
    /// The mask has no object pixel.
    EmptyMask,
    /// Another image has the same pixels, mask and class.
    Repeated,
}

impl fmt::Display for ImageIssue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ImageIssue::Unreadable => "cannot be read",
            ImageIssue::MissingMask => "has no mask",
            ImageIssue::SizesDiffer => "has a mask of another size",
            ImageIssue::EmptyMask => "has an empty mask",
            ImageIssue::Repeated => "repeats another image",
        })
    }
}

/// An image that was excluded, or whose mask cannot be used, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExcludedImage {
    /// The image.
    pub name: String,
    /// What is wrong with it.
    pub issue: ImageIssue,
    /// Details.
    pub detail: String,
}

impl fmt::Display for ExcludedImage {
    /// The issue without the name of the image.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.detail.as_str() {
            "" => write!(f, "{}", self.issue),
            detail => write!(f, "{} ({detail})", self.issue),
        }
    }
}

/// An image of a data set, not yet read.
#[derive(Clone, Debug)]
struct Entry {
    name: String,
    pixels: Pixels,
    label: Option<usize>,
    /// The group of the image when a subset is drawn.
    stratum: String,
    mask: Mask,
}

#[derive(Clone, Debug)]
enum Pixels {
    File(PathBuf),
    Held(Picture),
}

#[derive(Clone, Debug)]
enum Mask {
    Absent,
    /// The mask; white on the object.
    File(PathBuf),
    /// The object is where the colour is this class index.
    Coded(PathBuf, u32),
}

/// An image that was read.
#[derive(Clone, Debug)]
pub struct Photograph {
    /// Its name in the data set.
    pub name: String,
    /// The class it is labelled with.
    pub label: Option<usize>,
    /// The pixels as they are in the file.
    pub picture: Picture,
    /// The mask; white on the object.
    pub mask: Option<Picture>,
    /// SHA-256 of pixels and mask.
    pub hash: String,
}

/// Images with labels and masks.
#[derive(Clone, Debug)]
pub struct DataSet {
    entries: Vec<Entry>,
    options: DataOptions,
    /// The names of all images when the data set was opened.
    original: Arc<[String]>,
    /// For each image its index among those.
    positions: Vec<usize>,
    /// Files that look like images but cannot be read.
    pub remarks: Vec<String>,
}

impl DataSet {
    /// Opens `part` (`val`, `test`, …) of the data set in `folder`, or all of it.
    pub fn open(folder: &Path, part: Option<&str>, options: &DataOptions) -> Result<Self> {
        if !folder.is_dir() {
            let (close, folder) = (suggest_path(folder), folder.display());
            return Err(Error::argument(format!(
                "{close}expected the folder of a data set, found none at {folder}"
            )));
        }
        let layout = options.layout.unwrap_or_else(|| layout_of(folder));
        let (entries, remarks) = match layout {
            FolderLayout::Folder => folder::entries(folder, part, options.label_column.as_deref())?,
            FolderLayout::ImagenetS => (imagenet_s::entries(folder, part)?, Vec::new()),
            FolderLayout::Idx => (idx::entries(folder, part)?, Vec::new()),
        };
        if entries.is_empty() {
            let folder = part.map_or_else(|| folder.to_owned(), |part| folder.join(part));
            let expected = match layout {
                FolderLayout::ImagenetS => {
                    "folders called by WordNet ids, such as n01440764, with images,".to_owned()
                }
                FolderLayout::Folder | FolderLayout::Idx => {
                    format!("images ({}) in it or in its folder 'images',", PictureFormat::NAMES)
                }
            };
            return Err(Error::argument(format!("expected {expected} found none at {}", folder.display())));
        }
        let original = entries.iter().map(|entry| entry.name.clone()).collect();
        let positions = (0..entries.len()).collect();
        Ok(DataSet { entries, options: options.clone(), original, positions, remarks })
    }

    /// Number of images.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the data set is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The name of an image.
    pub fn name(&self, index: usize) -> &str {
        &self.entries[index].name
    }

    /// The file of an image, where it has one of its own.
    pub fn path(&self, index: usize) -> Option<&Path> {
        match &self.entries[index].pixels {
            Pixels::File(path) => Some(path),
            Pixels::Held(_) => None,
        }
    }

    /// The names of all images when the data set was opened, before a subset was taken.
    pub fn original_names(&self) -> &[String] {
        &self.original
    }

    /// How many images the data set was opened with.
    pub fn original_len(&self) -> usize {
        self.original.len()
    }

    /// The index of an image among those the data set was opened with.
    pub fn original_index(&self, index: usize) -> usize {
        self.positions[index]
    }

    /// A random subset, spread over the classes as evenly as possible. The same seed gives the same subset.
    #[must_use]
    pub fn thinned(self, count: usize, seed: u64) -> Self {
        let rounds = self.rounds(seed);
        let mut chosen: Vec<usize> = rounds.into_iter().flatten().take(count).collect();
        chosen.sort_unstable();
        self.only(&chosen)
    }

    /// Two data sets: `per_class` random images of each class, and the others.
    pub fn split(self, per_class: usize, seed: u64) -> (Self, Self) {
        let rounds = self.rounds(seed);
        let mut first: Vec<usize> = rounds.into_iter().take(per_class).flatten().collect();
        first.sort_unstable();
        let others: Vec<usize> =
            (0..self.len()).filter(|index| first.binary_search(index).is_err()).collect();
        (self.clone().only(&first), self.only(&others))
    }

    /// A random order that takes one image of every class in turn.
    fn rounds(&self, seed: u64) -> Vec<Vec<usize>> {
        let noise = Noise::new(seed).stream("choice of images");
        let mut order = noise.permutation(self.len());
        // A stable sort by class keeps the random order within each.
        order.sort_by(|&a, &b| self.entries[a].stratum.cmp(&self.entries[b].stratum));
        let mut rounds: Vec<Vec<usize>> = Vec::new();
        let strata = order.chunk_by(|&a, &b| self.entries[a].stratum == self.entries[b].stratum);
        for stratum in strata {
            for (round, &index) in stratum.iter().enumerate() {
                if rounds.len() == round {
                    rounds.push(Vec::new());
                }
                rounds[round].push(index);
            }
        }
        for (number, round) in rounds.iter_mut().enumerate() {
            let shuffled = noise.numbered(number as u64).permutation(round.len());
            *round = shuffled.into_iter().map(|at| round[at]).collect();
        }
        rounds
    }

    fn only(mut self, chosen: &[usize]) -> Self {
        self.entries = chosen.iter().map(|&index| self.entries[index].clone()).collect();
        self.positions = chosen.iter().map(|&index| self.positions[index]).collect();
        self
    }

    /// Reads an image. The inner error says why it is excluded.
    pub fn load(&self, index: usize) -> Result<std::result::Result<Photograph, ExcludedImage>> {
        let entry = &self.entries[index];
        let issue = match entry.read(self.options.orientation) {
            Ok(found) if found.mask.is_none() && self.options.missing_mask != MissingMask::Keep => {
                ExcludedImage {
                    name: entry.name.clone(),
                    issue: ImageIssue::MissingMask,
                    detail: String::new(),
                }
            }
            Ok(found) => return Ok(Ok(found)),
            Err((issue, detail)) => ExcludedImage { name: entry.name.clone(), issue, detail },
        };
        let fatal = match issue.issue {
            ImageIssue::MissingMask => self.options.missing_mask == MissingMask::Fail,
            _ => self.options.unreadable == Unreadable::Fail,
        };
        if !fatal {
            return Ok(Err(issue));
        }
        let key = if issue.issue == ImageIssue::MissingMask { "missing-mask" } else { "unreadable" };
        Err(Error::malformed(format!(
            "image '{}' {issue}; set data.{key} to \"skip\" to go on without such images",
            issue.name
        )))
    }
}

/// The layout detected from the files; a folder of images if no other is recognised.
fn layout_of(folder: &Path) -> FolderLayout {
    if folder.join("validation-segmentation").is_dir() || folder.join("train-semi-segmentation").is_dir() {
        FolderLayout::ImagenetS
    } else if idx::is_one(folder) {
        FolderLayout::Idx
    } else {
        FolderLayout::Folder
    }
}

impl Photograph {
    /// Why metrics that need a mask are undefined for this image.
    pub fn mask_issue(&self) -> Option<ImageIssue> {
        match &self.mask {
            None => Some(ImageIssue::MissingMask),
            Some(mask) if mask.rgb().chunks_exact(3).all(|pixel| pixel[0] < sample::WHITE) => {
                Some(ImageIssue::EmptyMask)
            }
            Some(_) => None,
        }
    }
}

impl Entry {
    fn read(&self, orientation: OrientationChoice) -> std::result::Result<Photograph, (ImageIssue, String)> {
        let unreadable = |what: &str, path: &Path, error: Error| {
            let detail = error.to_string();
            // The caller adds the name of the image.
            let detail = detail.strip_prefix(&format!("{}: ", path.display())).unwrap_or(&detail);
            (ImageIssue::Unreadable, format!("{what}{detail}"))
        };
        let picture = match &self.pixels {
            Pixels::File(path) => {
                let options = ReadOptions::default().orientation(orientation);
                Picture::open_with(path, &options).map_err(|error| unreadable("", path, error))?
            }
            Pixels::Held(picture) => picture.clone(),
        };
        let mask = match &self.mask {
            Mask::Absent => None,
            Mask::File(path) | Mask::Coded(path, _) => {
                let failed = |error| unreadable("its mask: ", path, error);
                let mask = Picture::open(path).map_err(failed)?;
                Some(match self.mask {
                    Mask::Coded(_, class) => imagenet_s::object(&mask, class).map_err(failed)?,
                    _ => whitened(mask).map_err(failed)?,
                })
            }
        };
        let size = |picture: &Picture| (picture.width(), picture.height());
        if let Some(mask) = mask.as_ref().filter(|mask| size(mask) != size(&picture)) {
            let ((w, h), (mask_w, mask_h)) = (size(&picture), size(mask));
            return Err((ImageIssue::SizesDiffer, format!("{w}×{h} and {mask_w}×{mask_h} pixels")));
        }
        let mut hash = Sha256::default();
        for picture in std::iter::once(&picture).chain(&mask) {
            hash.update(&(picture.width() as u64).to_le_bytes());
            hash.update(picture.rgb());
        }
        let (name, label) = (self.name.clone(), self.label);
        Ok(Photograph { name, label, picture, mask, hash: hash.finish() })
    }
}

/// A mask with ones turned to white: many masks are stored as zeros and ones.
fn whitened(mask: Picture) -> Result<Picture> {
    match mask.rgb().iter().max() {
        Some(1) => Picture::new(mask.width(), mask.height(), mask.rgb().iter().map(|&v| v * 255).collect()),
        _ => Ok(mask),
    }
}

/// The pictures in a folder, sorted by name.
fn pictures(folder: &Path) -> Result<Vec<PathBuf>> {
    Ok(PictureFolder::list(folder, false)?.pictures)
}

/// The last part of a path as text.
fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
