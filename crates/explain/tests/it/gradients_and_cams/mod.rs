//! Gradients, modified backpropagation and class activation maps: what Captum and grad-cam found on small networks, and
//! what must hold on any.

mod golden;
mod properties;
