//! The methods, one file each, with their options.

mod deconvolution;
mod deep_lift;
mod deep_shap;
mod eigen_cam;
mod grad_cam;
mod grad_cam_plus_plus;
mod gradient;
mod guided_backprop;
mod guided_cam;
mod hires_cam;
mod input_x_gradient;
mod layer_cam;
mod lrp;
mod saliency;
mod split_cam;
mod split_grad;
mod split_lrp;
mod xgrad_cam;

pub use deconvolution::Deconvolution;
pub use deep_lift::DeepLift;
pub use deep_shap::{Baselines, DeepShap};
pub use eigen_cam::EigenCam;
pub use grad_cam::GradCam;
pub use grad_cam_plus_plus::GradCamPlusPlus;
pub use gradient::Gradient;
pub use guided_backprop::GuidedBackprop;
pub use guided_cam::{CoarseMap, GuidedCam};
pub use hires_cam::HiResCam;
pub use input_x_gradient::InputXGradient;
pub use layer_cam::LayerCam;
pub use lrp::{Lrp, RelevanceSeed};
pub use saliency::Saliency;
pub use split_cam::SplitCam;
pub use split_grad::SplitGrad;
pub use split_lrp::{RelevanceMap, SplitLrp};
pub use xgrad_cam::XGradCam;
