//! Methods that run the network many times, as one graph: the network behind a value is written again for perturbed copies of
//! that value, which stand along the batch axis. Chunks of bounded size follow each other, so that no more copies exist at a
//! time than a method's batch size. Each file here writes the methods of the file of the same name in [`methods`](crate::methods).

mod ablation_cam;
mod baseline;
mod control;
mod copies;
mod deep_shap;
mod feature_ablation;
mod gradient_shap;
mod integrated_gradients;
mod occlusion;
mod rise;
mod score_cam;
mod smooth_grad;

use copies::CopiedNetwork;
