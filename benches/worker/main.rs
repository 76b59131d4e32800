//! Runs one repeat of a job on each request, so that a parent process can run several programs in turn. A request is a line on
//! standard input, its words separated by tabs (or by spaces if there is no tab); each is answered by one line on standard
//! output.
//!
//! | request | answer |
//! |---|---|
//! | `load forward MODEL key=value…` | `ready`, `missing` (no such method is built) or `error WHY` |
//! | `load method MODEL name=NAME key=value…` | the same |
//! | `load metric MODEL metric=TEXT key=value…` | the same |
//! | `go` | `seconds N` |
//! | `save FOLDER` | `saved`: the results of the last repeat as `.npy` files |
//! | `profile FILE` | `profiled`: the time of every step of one more repeat, longest first, as lines of a table |
//! | `peak` | `peak BYTES`: the peak resident memory of this process |

mod clock;
mod job;
mod method;
mod metric;

use std::io::{BufRead, Write};
use std::path::Path;
use std::time::Duration;

use monosplit::engine::NodeTime;
use monosplit::graph::{Tensor, npy};
use monosplit::{Error, Result};

use clock::Clock;
use job::{DeviceTime, Job};

/// A shorter repeat is run twice and the second run is timed, with warm caches.
const SHORT: Duration = Duration::from_millis(50);
/// Processor time has a resolution of 10 ms. A repeat that takes less than this is the mean of several.
const COARSE: Duration = Duration::from_secs(1);

/// What a repeat computed, by name.
type Results = Vec<(String, Tensor)>;

#[derive(Default)]
struct Worker {
    job: Option<Box<dyn Job>>,
    clock: Clock,
    /// The clock of the GPU, if it is used.
    device: Option<DeviceTime>,
    results: Results,
}

impl Worker {
    fn answer(&mut self, line: &str) -> Result<String> {
        let words: Vec<&str> = match line.contains('\t') {
            true => line.split('\t').collect(),
            false => line.split_whitespace().collect(),
        };
        match words[..] {
            ["load", kind, model, ref options @ ..] => {
                (self.job, self.results) = (None, Results::new());
                self.clock =
                    if options.contains(&"clock=processor") { Clock::Processor } else { Clock::Wall };
                let (job, device) = job::load(kind, model, options)?;
                self.job = job;
                self.device = device.filter(|_| options.contains(&"clock=gpu"));
                Ok(if self.job.is_some() { "ready" } else { "missing" }.to_owned())
            }
            ["go"] => Ok(format!("seconds {:e}", self.repeat()?.as_secs_f64())),
            ["save", folder] => self.save(Path::new(folder)).map(|()| "saved".to_owned()),
            ["profile", file] => self.profile(Path::new(file)).map(|()| "profiled".to_owned()),
            ["peak"] => Ok(format!("peak {}", peak_memory()?)),
            _ => Err(Error::argument("expected load, go, save, profile or peak")),
        }
    }

    fn repeat(&mut self) -> Result<Duration> {
        match self.clock {
            Clock::Wall => {
                let first = self.timed(1)?;
                if first < SHORT { self.timed(1) } else { Ok(first) }
            }
            Clock::Processor => {
                let once = self.timed(1)?.max(Duration::from_millis(10));
                let runs = COARSE.as_nanos().div_ceil(once.as_nanos()) as u32;
                if runs == 1 { Ok(once) } else { self.timed(runs) }
            }
        }
    }

    /// The mean time of `runs` runs.
    fn timed(&mut self, runs: u32) -> Result<Duration> {
        let start = self.now()?;
        let job = self.job.as_mut().ok_or_else(|| Error::argument("nothing is loaded"))?;
        for _ in 0..runs {
            self.results = job.run()?;
        }
        Ok(self.now()?.saturating_sub(start) / runs)
    }

    fn now(&self) -> Result<Duration> {
        self.device.as_ref().map_or_else(|| self.clock.now(), |device| Ok(device()))
    }

    fn profile(&mut self, file: &Path) -> Result<()> {
        let job = self.job.as_mut().ok_or_else(|| Error::argument("nothing is loaded"))?;
        let mut nodes = job.profile()?.nodes;
        nodes.sort_by_key(|node| std::cmp::Reverse(node.time));
        let line = |node: &NodeTime| {
            let milliseconds = 1e3 * node.time.as_secs_f64();
            format!(
                "{milliseconds:.3} {} +{} {:?} {} {}\n",
                node.op,
                node.others.len(),
                node.shape,
                node.kernel,
                node.name
            )
        };
        let text: String = nodes.iter().map(line).collect();
        std::fs::write(file, text).map_err(|cause| Error::io(file, cause))
    }

    fn save(&self, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder).map_err(|cause| Error::io(folder, cause))?;
        for (name, tensor) in &self.results {
            let path = folder.join(format!("{name}.npy"));
            std::fs::write(&path, npy::write(tensor)).map_err(|cause| Error::io(&path, cause))?;
        }
        Ok(())
    }
}

/// The peak resident memory in bytes.
fn peak_memory() -> Result<usize> {
    let path = Path::new("/proc/self/status");
    let status = std::fs::read_to_string(path).map_err(|cause| Error::io(path, cause))?;
    let kilobytes = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = kilobytes.and_then(|rest| rest.split_whitespace().next()?.parse::<usize>().ok());
    kilobytes.map(|n| n * 1024).ok_or_else(|| Error::argument("the system does not report peak memory"))
}

fn main() -> std::io::Result<()> {
    let mut worker = Worker::default();
    for line in std::io::stdin().lock().lines() {
        let answer = worker.answer(&line?).unwrap_or_else(|error| format!("error {error}"));
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", answer.replace('\n', " "))?;
        out.flush()?;
    }
    Ok(())
}
