//! Folders of pictures: one sub-folder per class, or all in one with a `labels.csv` of file names and classes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use monosplit_graph::{CsvRecord, Error, Noise, Result, open_csv};
use monosplit_image::{Picture, is_hidden, is_picture_name};

use super::{Samples, TrainingData};

/// One in this many pictures is a test sample if the folder does not say which are.
const TEST_FRACTION: usize = 10;
/// The largest size of all pictures in memory.
const MAX_BYTES: usize = 8 << 30;

/// Reads a folder of pictures. The test samples are in the sub-folder `test` beside `train`, or else a random tenth of the
/// pictures.
pub(super) fn open(folder: &Path) -> Result<TrainingData> {
    let (train, test) = (folder.join("train"), folder.join("test"));
    let parts = if train.is_dir() && test.is_dir() {
        vec![entries(&train)?, entries(&test)?]
    } else {
        let all = entries(folder)?;
        let order = Noise::new(0).stream("test pictures").permutation(all.len());
        let tested = all.len() / TEST_FRACTION;
        let pick = |chosen: &[usize]| chosen.iter().map(|&i| all[i].clone()).collect::<Vec<_>>();
        vec![pick(&order[tested..]), pick(&order[..tested])]
    };
    let names = parts.iter().flatten().map(|(_, class)| class.clone());
    let classes: BTreeMap<String, u32> =
        names.collect::<std::collections::BTreeSet<_>>().into_iter().zip(0..).collect();
    if classes.len() < 2 || parts.iter().any(Vec::is_empty) {
        return Err(Error::argument(format!(
            "{}: expected pictures of at least two classes, in one sub-folder per class or named in labels.csv, and \
             enough to keep a tenth for testing",
            folder.display()
        )));
    }
    let (mut shape, mut coloured) = (None, false);
    let mut samples = Vec::new();
    for part in &parts {
        samples.push(read(part, &classes, &mut shape, &mut coloured)?);
    }
    let (Some(test), Some(train)) = (samples.pop(), samples.pop()) else {
        return Err(Error::argument("there are no pictures"));
    };
    let (train, test) = if coloured { (train, test) } else { (first_plane(&train)?, first_plane(&test)?) };
    Ok(TrainingData { train, test, classes: classes.into_keys().collect() })
}

/// Greyscale pictures reduced to one plane.
fn first_plane(samples: &Samples) -> Result<Samples> {
    let [_, height, width] = samples.shape();
    let planes = (0..samples.len()).flat_map(|index| &samples.picture(index)[..height * width]);
    Samples::new([1, height, width], planes.copied().collect(), samples.labels().to_vec())
}

/// The pictures of a folder and their classes, in order of their names.
fn entries(folder: &Path) -> Result<Vec<(PathBuf, String)>> {
    let listed = folder.join("labels.csv");
    if listed.exists() {
        return labelled(folder, &listed);
    }
    let mut entries = Vec::new();
    for class in sorted(folder)?.into_iter().filter(|path| path.is_dir() && !is_hidden(path)) {
        let name = class.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let pictures = sorted(&class)?.into_iter().filter(|path| path.is_file() && is_picture_name(path));
        entries.extend(pictures.map(|path| (path, name.clone())));
    }
    Ok(entries)
}

fn labelled(folder: &Path, list: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut entries = Vec::new();
    for (index, CsvRecord { line, cells }) in open_csv(list)?.into_iter().enumerate() {
        let [file, class, ..] = &*cells else {
            return Err(Error::malformed(format!("{}: line {line} is not 'FILE,CLASS'", list.display())));
        };
        let path = [folder.join(file), folder.join("images").join(file)];
        match path.into_iter().find(|path| path.is_file()) {
            Some(path) => entries.push((path, class.clone())),
            // The first line may name the columns.
            None if index == 0 && !is_picture_name(Path::new(file)) => {}
            None => {
                return Err(Error::argument(format!(
                    "{}: line {line} names '{file}', which is not there",
                    list.display()
                )));
            }
        }
    }
    Ok(entries)
}

fn sorted(folder: &Path) -> Result<Vec<PathBuf>> {
    let failed = |cause| Error::io(folder, cause);
    let entries: std::io::Result<Vec<_>> = std::fs::read_dir(folder).map_err(failed)?.collect();
    let mut paths: Vec<PathBuf> = entries.map_err(failed)?.into_iter().map(|entry| entry.path()).collect();
    paths.sort();
    Ok(paths)
}

fn read(
    entries: &[(PathBuf, String)],
    classes: &BTreeMap<String, u32>,
    shape: &mut Option<[usize; 3]>,
    coloured: &mut bool,
) -> Result<Samples> {
    let mut pixels = Vec::new();
    let mut labels = Vec::new();
    for (path, class) in entries {
        let picture = Picture::open(path)?;
        let (width, height, rgb) = (picture.width(), picture.height(), picture.rgb());
        *coloured |= rgb.chunks_exact(3).any(|pixel| pixel[0] != pixel[1] || pixel[1] != pixel[2]);
        let expected = *shape.get_or_insert([3, height, width]);
        if expected[1..] != [height, width] {
            return Err(Error::argument(format!(
                "{}: expected a picture of {}×{} pixels like the first, found {width}×{height}; scale them to one size",
                path.display(),
                expected[2],
                expected[1]
            )));
        }
        for channel in 0..3 {
            pixels.extend(rgb.iter().skip(channel).step_by(3));
        }
        if pixels.len() > MAX_BYTES {
            return Err(Error::argument(format!("the pictures take more than {} GiB", MAX_BYTES >> 30)));
        }
        labels.push(classes.get(class).copied().unwrap_or(0));
    }
    Samples::new(shape.unwrap_or([1, 1, 1]), pixels, labels)
}

#[cfg(test)]
mod tests {
    use monosplit_image::{Pixels, write_png};

    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("monosplit-train-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn draw(path: &Path, shade: u8, side: usize) {
        write_png(path, side, side, Pixels::Grey(&vec![shade; side * side])).unwrap();
    }

    #[test]
    fn sub_folders_are_classes() {
        let folder = scratch("classes");
        for (class, shade) in [("cat", 10), ("dog", 200)] {
            std::fs::create_dir(folder.join(class)).unwrap();
            (0..10).for_each(|i| draw(&folder.join(class).join(format!("{i}.png")), shade, 4));
        }
        let data = TrainingData::open(&folder).unwrap();
        assert_eq!(
            (data.classes, data.train.len(), data.test.len()),
            (vec!["cat".into(), "dog".into()], 18, 2)
        );
        assert_eq!(data.train.shape(), [1, 4, 4]);
        for i in 0..18 {
            assert_eq!(data.train.picture(i)[0], [10, 200][data.train.labels()[i] as usize]);
        }
        let red = Picture::new(4, 4, [200, 0, 0].repeat(16)).unwrap();
        write_png(folder.join("dog/red.png"), 4, 4, (&red).into()).unwrap();
        assert_eq!(TrainingData::open(&folder).unwrap().train.shape(), [3, 4, 4], "one is coloured");
        draw(&folder.join("dog/large.png"), 0, 5);
        assert!(TrainingData::open(&folder).unwrap_err().to_string().contains("5×5"));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_list_names_classes() {
        let folder = scratch("list");
        let mut list = "file,class\n".to_owned();
        for i in 0..20 {
            draw(&folder.join(format!("{i}.png")), i, 3);
            list.push_str(&format!("{i}.png,{}\n", if i < 10 { "dark" } else { "light" }));
        }
        std::fs::write(folder.join("labels.csv"), &list).unwrap();
        let data = TrainingData::open(&folder).unwrap();
        assert_eq!((data.train.len(), data.test.len(), data.classes.len()), (18, 2, 2));
        std::fs::write(folder.join("labels.csv"), list.replace("light", "\"light, almost \"\"white\"\"\""))
            .unwrap();
        assert_eq!(TrainingData::open(&folder).unwrap().classes, ["dark", "light, almost \"white\""]);
        std::fs::write(folder.join("labels.csv"), format!("{list}absent.png,dark\n")).unwrap();
        assert!(TrainingData::open(&folder).unwrap_err().to_string().contains("absent.png"));
        std::fs::write(folder.join("labels.csv"), list.replacen("file,class", "absent.png,dark", 1)).unwrap();
        assert!(TrainingData::open(&folder).unwrap_err().to_string().contains("line 1"));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
