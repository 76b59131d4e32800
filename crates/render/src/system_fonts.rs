//! Typefaces of the machine, for letters that the bundled one lacks.
//!
//! Which face is taken depends on the letters and on the fonts there are, never on what was drawn before, so that a picture is the
//! same each time. Letters that no face has are drawn as empty boxes; `Scene` says so.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::typeface::Typeface;

/// Folders within folders that are searched.
const DEEPEST: usize = 8;
/// Files that are looked at.
const MOST_FILES: usize = 20_000;
/// Faces of a collection that are looked at.
const MOST_FACES: u32 = 64;

/// The faces to choose from, best first, and what was chosen.
pub(crate) struct SystemFonts {
    faces: Vec<Arc<Typeface>>,
    chosen: HashMap<String, Option<Arc<Typeface>>>,
}

impl SystemFonts {
    /// The best face of the machine that has all of `letters`.
    pub(crate) fn find(letters: &str) -> Option<Arc<Typeface>> {
        static FONTS: OnceLock<Mutex<SystemFonts>> = OnceLock::new();
        let fonts = FONTS.get_or_init(|| Mutex::new(SystemFonts::within(&folders())));
        fonts.lock().unwrap_or_else(PoisonError::into_inner).choose(letters)
    }

    /// The faces in `folders` and the folders within.
    pub(crate) fn within(folders: &[PathBuf]) -> Self {
        let mut files = Vec::new();
        folders.iter().for_each(|folder| collect(folder, DEEPEST, &mut files));
        files.sort();
        files.dedup();
        let faces = |file: &PathBuf| (0..MOST_FACES).map_while(|index| Typeface::open(file, index)).collect();
        let mut faces: Vec<Typeface> =
            files.iter().flat_map(|file| -> Vec<Typeface> { faces(file) }).collect();
        // Files come in the order of their names, which a stable sort keeps among faces of one kind.
        faces.sort_by_cached_key(Typeface::plainness);
        SystemFonts { faces: faces.into_iter().map(Arc::new).collect(), chosen: HashMap::new() }
    }

    pub(crate) fn choose(&mut self, letters: &str) -> Option<Arc<Typeface>> {
        if let Some(chosen) = self.chosen.get(letters) {
            return chosen.clone();
        }
        let has_all = |face: &&Arc<Typeface>| {
            letters.chars().all(|letter| face.covers(letter)) && face.can_be_embedded()
        };
        let chosen = self.faces.iter().find(has_all).cloned();
        self.chosen.insert(letters.to_owned(), chosen.clone());
        chosen
    }
}

/// Where systems keep fonts: for everyone, then for the user.
fn folders() -> Vec<PathBuf> {
    let below = |variable: &str, folders: &[&str]| -> Vec<PathBuf> {
        let base = std::env::var_os(variable).map(PathBuf::from);
        base.map(|base| folders.iter().map(|folder| base.join(folder)).collect()).unwrap_or_default()
    };
    let fixed = |folders: &[&str]| -> Vec<PathBuf> { folders.iter().map(PathBuf::from).collect() };
    let (shared, own) = if cfg!(windows) {
        (below("SYSTEMROOT", &["Fonts"]), below("LOCALAPPDATA", &["Microsoft/Windows/Fonts"]))
    } else if cfg!(target_os = "macos") {
        (fixed(&["/System/Library/Fonts", "/Library/Fonts"]), below("HOME", &["Library/Fonts"]))
    } else {
        let shared = fixed(&["/usr/share/fonts", "/usr/local/share/fonts"]);
        (shared, below("HOME", &[".fonts", ".local/share/fonts"]))
    };
    [shared, own].concat()
}

fn collect(folder: &Path, deeper: usize, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        let ending = path.extension().map(|ending| ending.to_ascii_lowercase());
        if ending.is_some_and(|ending| ["ttf", "otf", "ttc", "otc"].iter().any(|font| ending == *font)) {
            if files.len() < MOST_FILES {
                files.push(path);
            }
        } else if deeper > 0 && path.is_dir() {
            collect(&path, deeper - 1, files);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixtures() -> Vec<PathBuf> {
        vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")]
    }

    #[test]
    fn the_face_that_has_the_letters_is_chosen() {
        let mut fonts = SystemFonts::within(&fixtures());
        for (letters, name) in [("ब", "TestDevanagari"), ("طق", "TestArabic"), ("猫", "TestHan")] {
            assert_eq!(fonts.choose(letters).map(|face| face.name()).as_deref(), Some(name), "{letters}");
        }
        assert!(fonts.choose("ब猫").is_none(), "no face has both");
        assert!(fonts.choose("𓀀").is_none());
    }

    #[test]
    fn the_choice_does_not_depend_on_what_was_chosen_before() {
        let (mut forwards, mut backwards) =
            (SystemFonts::within(&fixtures()), SystemFonts::within(&fixtures()));
        let letters = [" ", "ब", "猫", "ط", "x"];
        let name = |face: Option<Arc<Typeface>>| face.map(|face| face.name());
        let one: Vec<_> = letters.iter().map(|text| name(forwards.choose(text))).collect();
        let mut other: Vec<_> = letters.iter().rev().map(|text| name(backwards.choose(text))).collect();
        other.reverse();
        assert_eq!(one, other);
    }

    #[test]
    fn folders_that_are_absent_or_hold_other_files_are_no_obstacle() {
        let scratch = monosplit_testing::ScratchFolder::new();
        scratch.write("broken.ttf", b"not a font");
        std::fs::create_dir_all(scratch.path("folder.ttf")).unwrap();
        let mut fonts = SystemFonts::within(&[scratch.root().into(), scratch.path("nowhere")]);
        assert!(fonts.choose("x").is_none());
    }
}
