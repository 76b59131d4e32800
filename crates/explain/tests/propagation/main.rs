//! LRP, DeepLIFT and DeepSHAP: what Zennit and Captum found on small networks, and what must hold on any.

mod golden;
mod properties;
