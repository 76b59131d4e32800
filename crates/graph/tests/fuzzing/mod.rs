//! A bounded fuzz test: one reader is given thousands of damaged files, the same ones every time. It must come back from
//! each without a panic, soon, and without taking more memory than the size of the file allows.

mod allocation;
mod mutation;
mod protobuf;
mod random;

use std::fmt;
use std::fs;
use std::io::{self, Seek, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use random::Random;

/// The longest one file may keep the processor, in code that is not optimised; an honest one of this size takes some milliseconds,
/// and the slowest of the seeds, which unfolds into 600 nodes, four seconds where two threads share a core.
const LONGEST: Duration = Duration::from_secs(10);

/// After this long without an answer a reader counts as hung.
const HUNG: Duration = Duration::from_secs(60);

/// What a reader is tried with and what it may use.
pub(crate) struct FuzzTest {
    /// Its name in `fuzz/seeds.txt`.
    pub(crate) name: &'static str,
    /// Number of damaged files; the environment variable `MONOSPLIT_FUZZ_ITERATIONS` overrules it, and for every
    /// `MONOSPLIT_FUZZ_FIRST` they are others.
    pub(crate) iterations: usize,
    /// Bytes of memory it may take whatever the size of the file.
    pub(crate) memory: usize,
    /// Bytes of memory it may take for every byte of the file.
    pub(crate) memory_per_byte: usize,
}

impl FuzzTest {
    /// Gives `read` every seed as it is and then damaged ones; `read` says whether it accepted the file.
    pub(crate) fn run(&self, read: impl Fn(&[u8]) -> bool) {
        let seeds = seeds(self.name);
        let variable = |name: &str| std::env::var(name).ok().and_then(|n| n.parse().ok());
        let iterations = variable("MONOSPLIT_FUZZ_ITERATIONS").unwrap_or(self.iterations);
        let first = variable("MONOSPLIT_FUZZ_FIRST").unwrap_or(0);
        let file = Kept::new(self.name);
        let progress = Progress::watched(file.path.clone());
        let done = seeds.len() + iterations;

        let mut random = Random::new(1 + first as u64);
        let mut accepted = 0;
        for index in 0..done {
            let bytes = match seeds.get(index) {
                Some(seed) => seed.clone(),
                None => mutation::damaged(&seeds, &mut random),
            };
            accepted += usize::from(self.check(&bytes, &file, &read));
            progress.0.store(index, Ordering::Relaxed);
        }
        let _ = fs::remove_file(&file.path);
        println!("{}: {accepted} of {done} files were accepted", self.name);
        assert!(accepted > 0 && accepted < done, "{accepted} of {done} files were accepted");
    }

    fn check(&self, bytes: &[u8], file: &Kept, read: &impl Fn(&[u8]) -> bool) -> bool {
        file.keep(bytes).unwrap();
        let allowed = self.memory + self.memory_per_byte * bytes.len();
        let start = time_taken();
        let (result, peak) = allocation::peak(|| catch_unwind(AssertUnwindSafe(|| read(bytes))));
        let duration = time_taken().saturating_sub(start);
        let accepted = result.unwrap_or_else(|_| panic!("panicked; {file}"));
        assert!(peak <= allowed, "took {peak} bytes of memory, {allowed} are allowed; {file}");
        assert!(duration <= LONGEST, "took {duration:?}; {file}");
        accepted
    }
}

/// The time this thread has been running; on a system that does not say, since a fixed moment.
fn time_taken() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    let start = START.get_or_init(Instant::now);
    let schedule = fs::read_to_string("/proc/thread-self/schedstat").ok();
    let running = schedule.and_then(|text| text.split_whitespace().next()?.parse().ok());
    running.map_or_else(|| start.elapsed(), Duration::from_nanos)
}

/// The file being read, written before it is read so that it is there even if the process dies of it.
struct Kept {
    path: PathBuf,
    file: fs::File,
}

impl Kept {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("hostile-{name}-{}", std::process::id()));
        let file = fs::File::create(&path).unwrap();
        Kept { path, file }
    }

    fn keep(&self, bytes: &[u8]) -> io::Result<()> {
        let mut file = &self.file;
        file.rewind()?;
        file.write_all(bytes)?;
        file.set_len(bytes.len() as u64)
    }
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the file is kept as {}", self.path.display())
    }
}

/// The number of the file being read, watched by a thread that ends the process with a message should it stay
/// the same for too long.
struct Progress(Arc<AtomicUsize>);

/// What the number is when the test is over.
const OVER: usize = usize::MAX;

impl Progress {
    fn watched(file: PathBuf) -> Self {
        let progress = Arc::new(AtomicUsize::new(0));
        let watched = Arc::clone(&progress);
        std::thread::spawn(move || {
            let (mut seen, mut since) = (0, Instant::now());
            while seen != OVER {
                std::thread::sleep(Duration::from_secs(1));
                let now = watched.load(Ordering::Relaxed);
                if now != seen {
                    (seen, since) = (now, Instant::now());
                } else if since.elapsed() > HUNG {
                    eprintln!("no answer for {HUNG:?}; the file is kept as {}", file.display());
                    std::process::abort();
                }
            }
        });
        Progress(progress)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.store(OVER, Ordering::Relaxed);
    }
}

/// The files `fuzz/seeds.txt` lists for a reader, in the order of their paths.
fn seeds(reader: &str) -> Vec<Vec<u8>> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let list = fs::read_to_string(repository.join("fuzz/seeds.txt")).unwrap();
    let mut paths = Vec::new();
    for line in list.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        if words.next() == Some(reader) {
            words.for_each(|pattern| paths.extend(matching(&repository, pattern)));
        }
    }
    paths.sort();
    assert!(!paths.is_empty(), "fuzz/seeds.txt lists no files for {reader}");
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// The files whose path is like `pattern`, in which a part may begin with a `*`.
fn matching(folder: &Path, pattern: &str) -> Vec<PathBuf> {
    let (part, rest) = match pattern.split_once('/') {
        Some((part, rest)) => (part, Some(rest)),
        None => (pattern, None),
    };
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let paths = entries.map(|entry| entry.unwrap().path()).filter(|path| {
        let name = path.file_name().unwrap().to_string_lossy();
        part.strip_prefix('*').map_or(name == part, |end| name.ends_with(end))
    });
    match rest {
        None => paths.filter(|path| path.is_file()).collect(),
        Some(rest) => paths.filter(|path| path.is_dir()).flat_map(|path| matching(&path, rest)).collect(),
    }
}
