//! Data sets with everything that can be wrong with them.

use std::path::Path;

use monosplit_eval::dataset::{DataOptions, DataSet, ImageIssue, MissingMask, Unreadable};
use monosplit_image::{Pixels, write_png};
use monosplit_testing::ScratchFolder;

struct Folder(ScratchFolder);

impl Folder {
    fn new() -> Self {
        Folder(ScratchFolder::new())
    }

    fn picture(&self, path: &str, side: usize, rgb: [u8; 3]) {
        let path = self.0.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        write_png(path, side, side, Pixels::Rgb(&rgb.repeat(side * side))).unwrap();
    }

    fn text(&self, path: &str, text: &str) {
        std::fs::write(self.0.path(path), text).unwrap();
    }
}

/// Four images: whole, without a mask, with a mask of another size, and broken.
fn folder_with_issues() -> Folder {
    let folder = Folder::new();
    for name in ["whole", "bare", "uneven"] {
        folder.picture(&format!("images/{name}.png"), 8, [9, 9, 9]);
    }
    folder.picture("masks/whole.png", 8, [255; 3]);
    folder.picture("masks/uneven.png", 4, [255; 3]);
    folder.text("images/broken.png", "this is no picture");
    folder.text("labels.csv", "file,class\nwhole.png,1\nbare.png,2\nuneven.png,3\nbroken.png,4\n");
    folder
}

fn issues(folder: &Path, options: &DataOptions) -> Result<Vec<(String, ImageIssue)>, String> {
    let data = DataSet::open(folder, None, options).unwrap();
    let mut found = Vec::new();
    for index in 0..data.len() {
        if let Err(out) = data.load(index).map_err(|error| error.to_string())? {
            found.push((out.name, out.issue));
        }
    }
    Ok(found)
}

#[test]
fn what_is_wrong_is_named_and_skipped_or_fatal_as_asked() {
    let folder = folder_with_issues();
    let skip = DataOptions { unreadable: Unreadable::Skip, ..DataOptions::default() };
    let broken = ("broken.png".to_owned(), ImageIssue::Unreadable);
    let uneven = ("uneven.png".to_owned(), ImageIssue::SizesDiffer);
    assert_eq!(issues(folder.0.root(), &skip).unwrap(), [broken.clone(), uneven.clone()]);
    let strict = DataOptions { missing_mask: MissingMask::Skip, ..skip.clone() };
    let bare = ("bare.png".to_owned(), ImageIssue::MissingMask);
    assert_eq!(issues(folder.0.root(), &strict).unwrap(), [bare, broken, uneven]);
    let fatal = DataOptions { missing_mask: MissingMask::Fail, ..skip };
    let message = issues(folder.0.root(), &fatal).unwrap_err();
    assert!(message.contains("bare.png") && message.contains("data.missing-mask"), "{message}");
    let message = issues(folder.0.root(), &DataOptions::default()).unwrap_err();
    assert!(message.contains("broken.png") && message.contains("data.unreadable"), "{message}");
}

#[test]
fn an_image_without_a_line_in_the_list_is_named() {
    let folder = folder_with_issues();
    folder.picture("images/new.png", 8, [0; 3]);
    let message = DataSet::open(folder.0.root(), None, &DataOptions::default()).unwrap_err().to_string();
    assert!(message.contains("new.png"), "{message}");
}

#[test]
fn a_folder_of_pictures_alone_is_a_data_set_without_labels() {
    let folder = Folder::new();
    folder.picture("b.png", 4, [1; 3]);
    folder.picture("a.png", 4, [2; 3]);
    let data = DataSet::open(folder.0.root(), None, &DataOptions::default()).unwrap();
    assert_eq!((data.len(), data.name(0)), (2, "a.png"));
    let photograph = data.load(0).unwrap().unwrap();
    assert!(photograph.label.is_none() && photograph.mask.is_none());
    assert_ne!(photograph.hash, data.load(1).unwrap().unwrap().hash);
}

#[test]
fn imagenet_s_is_read_as_it_is_distributed() {
    let folder = Folder::new();
    // Tench and great white shark: classes 0 and 2 of ImageNet, 1 and 2 of this data set.
    for (synset, file) in [("n01440764", "a"), ("n01484850", "b")] {
        folder.picture(&format!("validation/{synset}/{file}.png"), 6, [50, 60, 70]);
    }
    folder.picture("validation-segmentation/n01440764/a.png", 6, [1, 0, 0]);
    folder.picture("validation-segmentation/n01484850/b.png", 6, [1, 0, 0]);
    let data = DataSet::open(folder.0.root(), None, &DataOptions::default()).unwrap();
    let read: Vec<_> = (0..data.len()).map(|index| data.load(index).unwrap().unwrap()).collect();
    let labels: Vec<Option<usize>> = read.iter().map(|photograph| photograph.label).collect();
    assert_eq!(labels, [Some(0), Some(2)]);
    let white = |at: usize| read[at].mask.as_ref().unwrap().rgb().iter().all(|&v| v == 255);
    assert!(white(0) && !white(1), "only the class of the folder is the object");
    assert_eq!(read[0].name, "n01440764/a.png");
}

#[test]
fn images_are_chosen_evenly_over_classes_and_the_same_every_time() {
    let folder = Folder::new();
    let mut list = "file,class\n".to_owned();
    for number in 0..12 {
        folder.picture(&format!("images/{number:02}.png"), 2, [number as u8; 3]);
        list.push_str(&format!("{number:02}.png,{}\n", number / 4));
    }
    folder.text("labels.csv", &list);
    let data = DataSet::open(folder.0.root(), None, &DataOptions::default()).unwrap();
    let names = |data: &DataSet| (0..data.len()).map(|i| data.name(i).to_owned()).collect::<Vec<_>>();
    let classes = |data: &DataSet| {
        let mut counts = [0; 3];
        (0..data.len()).for_each(|i| counts[data.load(i).unwrap().unwrap().label.unwrap()] += 1);
        counts
    };
    let thinned = data.clone().thinned(6, 5);
    assert_eq!(classes(&thinned), [2, 2, 2]);
    assert_eq!(names(&thinned), names(&data.clone().thinned(6, 5)));
    assert_ne!(names(&thinned), names(&data.clone().thinned(6, 6)));
    let (validation, test) = data.clone().split(1, 0);
    assert_eq!((classes(&validation), classes(&test)), ([1, 1, 1], [3, 3, 3]));
    assert!(names(&validation).iter().all(|name| !names(&test).contains(name)));
}
