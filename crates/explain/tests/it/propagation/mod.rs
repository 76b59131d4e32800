//! LRP, DeepLIFT and DeepSHAP: what Zennit, Captum and a transcription found on small networks, and what must hold on any.

mod attention;
mod golden;
mod properties;
