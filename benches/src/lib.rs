//! What the micro-benchmarks share: the machine's peak, the layers that are timed, and how a program is timed.
//! Only the engine's public interface is timed, never a kernel alone.

mod layers;
mod measure;
mod peak;

pub use layers::{Convolution, NETWORKS, Network};
pub use measure::{Options, Table, single_node, speed, values};
pub use peak::{Peak, fused_multiply_add_peak};
