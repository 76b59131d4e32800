//! Milliseconds of a training step, least of several, for each network and restriction given; `scripts/bench_training.py`
//! does the same in PyTorch and has both take turns.
//!
//!     cargo bench -p monosplit-train --bench steps -- mlp_maxout None DICIN [--threads 2] [--profile]
//!
//! With `--turns`, for one network and restriction, it prints the number of its process, and then does a step for every
//! line it reads and prints a line when that is done.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::time::{Duration, Instant};

use monosplit_graph::{Error, Noise, Result};
use monosplit_train::{Architecture, Restriction, Samples, Trainer, TrainingData, TrainingSettings};

const BATCH: usize = 100;
const REPEATS: usize = 10;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let flag = |name: &str| words.iter().any(|word| word == name);
    let threads = words.iter().skip_while(|word| *word != "--threads").nth(1);
    let threads =
        threads.map_or(Ok(2), |n| n.parse().map_err(|_| Error::argument("--threads takes a number")))?;
    let noise = Noise::new(1);
    let pixels = (0..BATCH as u64 * 784).map(|i| (noise.uniform(i) * 255.0) as u8).collect();
    let samples = Samples::new([1, 28, 28], pixels, (0..BATCH as u32).map(|i| i % 10).collect())?;
    let classes = (0..10).map(|c| c.to_string()).collect();
    let data = TrainingData { train: samples.clone(), test: samples, classes };
    let names = words.iter().filter(|w| w.ends_with("_maxout"));
    for name in names {
        for restriction in words.iter().filter_map(|word| word.parse::<Restriction>().ok()) {
            let mut settings = TrainingSettings::new(Architecture::named(name)?, restriction);
            (settings.batch, settings.epochs) = (BATCH, usize::MAX / BATCH);
            let mut trainer = Trainer::new(settings, &data, threads)?;
            if flag("--turns") {
                return take_turns(&mut trainer);
            }
            let least = least_step(&mut trainer)?;
            println!("{name} {restriction}: {:.1} ms a step of {BATCH}", least.as_secs_f64() * 1e3);
            if flag("--profile") {
                print_profile(&trainer)?;
            }
        }
    }
    Ok(())
}

fn take_turns(trainer: &mut Trainer<'_>) -> Result<()> {
    println!("{}", std::process::id());
    for line in std::io::stdin().lock().lines() {
        line.map_err(|cause| Error::argument(format!("the turns cannot be read: {cause}")))?;
        trainer.step()?;
        println!("done");
    }
    Ok(())
}

/// An epoch of one step would also test the network, so only steps are timed.
fn least_step(trainer: &mut Trainer<'_>) -> Result<Duration> {
    let mut least = Duration::MAX;
    for _ in 0..REPEATS {
        let began = Instant::now();
        trainer.step()?;
        least = least.min(began.elapsed());
    }
    Ok(least)
}

fn print_profile(trainer: &Trainer<'_>) -> Result<()> {
    let mut times: BTreeMap<&str, (Duration, usize)> = BTreeMap::new();
    let profile = trainer.profile()?;
    for node in &profile.nodes {
        let entry = times.entry(node.kernel).or_default();
        *entry = (entry.0 + node.time, entry.1 + 1);
    }
    let mut times: Vec<_> = times.into_iter().collect();
    times.sort_by_key(|(_, (time, _))| std::cmp::Reverse(*time));
    for (kernel, (time, count)) in times {
        println!("  {kernel:<24} {count:>4} × {:>8.2} ms", time.as_secs_f64() * 1e3);
    }
    Ok(())
}
