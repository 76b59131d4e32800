//! Training of differences of convex and of monotone networks.
//!
//! The loss and its gradient are a graph, made by `monosplit-autodiff` and run by an engine. A trained network is an ordinary
//! graph.
//!
//! ```
//! use monosplit_graph::Noise;
//! use monosplit_train::{Architecture, Restriction, Samples, Trainer, TrainingData, TrainingSettings};
//!
//! # fn main() -> monosplit_graph::Result<()> {
//! // Pictures of 2×2 pixels that are bright at the top (class 0) or at the bottom (class 1).
//! let noise = Noise::new(1);
//! let draw = |i: u64| [200, 210, 5, 10].map(|v| v + (noise.uniform(i) * 40.0) as u8);
//! let pixels = (0..40).flat_map(|i| if i % 2 == 0 { draw(i) } else { let p = draw(i); [p[2], p[3], p[0], p[1]] });
//! let samples = Samples::new([1, 2, 2], pixels.collect(), (0..40).map(|i| i % 2).collect())?;
//! let data = TrainingData { train: samples.clone(), test: samples, classes: vec!["top".into(), "bottom".into()] };
//!
//! let architecture: Architecture = "dense 8; norm; maxout 2; scores".parse()?;
//! let mut settings = TrainingSettings::new(architecture, Restriction::DifferenceConvexInverted);
//! (settings.batch, settings.epochs, settings.rate) = (10, 40, 0.02);
//! let mut trainer = Trainer::new(settings, &data, 1)?;
//! while !trainer.is_finished() {
//!     trainer.advance()?;
//! }
//! assert!(trainer.epochs()[39].test_accuracy > 0.9);
//! let network = trainer.network()?;
//! assert_eq!(network.outputs()[0].name, "logits");
//! # Ok(())
//! # }
//! ```

mod accuracy_table;
mod architecture;
mod counterfactual;
mod data;
mod export;
mod in_place;
mod network;
mod optimiser;
mod property_check;
mod resident;
mod restriction;
mod score;
mod settings;
mod state;
mod step;
mod streams;
mod trainer;
mod training_run;

pub use accuracy_table::{AccuracyCell, files_in, paper_median};
pub use architecture::{Architecture, LayerSpec, NAMED};
pub use counterfactual::{Counterfactual, Counterfactuals, Separation, Share};
pub use data::{Samples, TrainingData};
pub use export::RESTRICTION;
pub use monosplit_graph::metadata::STREAMS;
pub use optimiser::{Optimiser, Schedule, UpdateRule};
pub use property_check::PropertyCheck;
pub use restriction::{Positivity, Restriction};
pub use score::{Score, score};
pub use settings::TrainingSettings;
pub use state::Epoch;
pub use streams::restriction_of;
pub use trainer::{Trainer, TrainingProgress};
pub use training_run::{Files, TrainingResult, TrainingRun};
