//! The methods, one file each, with their options.

mod gradient;
mod split_cam;
mod split_grad;
mod split_lrp;

pub use gradient::Gradient;
pub use split_cam::SplitCam;
pub use split_grad::SplitGrad;
pub use split_lrp::{RelevanceMap, SplitLrp};
