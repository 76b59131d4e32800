//! The methods, one file each, with their options.

mod ablation_cam;
mod control;
mod feature_ablation;
mod gradient;
mod gradient_shap;
mod integrated_gradients;
mod kernel_shap;
mod lime;
mod occlusion;
mod rise;
mod score_cam;
mod smooth_grad;
mod split_cam;
mod split_grad;
mod split_lrp;

pub use ablation_cam::{Ablated, AblationCam};
pub use control::{GroundTruth, ImageItself, RandomMap};
pub use feature_ablation::FeatureAblation;
pub use gradient::Gradient;
pub use gradient_shap::GradientShap;
pub use integrated_gradients::IntegratedGradients;
pub use kernel_shap::KernelShap;
pub use lime::Lime;
pub use occlusion::Occlusion;
pub use rise::{Measure, Rise};
pub use score_cam::{Definition, ScoreCam};
pub use smooth_grad::{SmoothGrad, Smoothed, Strength, VarGrad};
pub use split_cam::SplitCam;
pub use split_grad::SplitGrad;
pub use split_lrp::{RelevanceMap, SplitLrp};
