//! What tokens attend to.

use monosplit_explain::methods::{Attention, AttentionLayers};

use super::{ConfiguredMethod, MethodEntry, MethodFamily};

pub(super) const ENTRIES: &[MethodEntry] = &[
    MethodEntry {
        name: "attention",
        family: MethodFamily::Attention,
        summary: "attention from the class token in the last layer, averaged over heads; knows no class",
        citation: "Dosovitskiy et al.: An Image is Worth 16x16 Words, ICLR 2021",
        options: &[],
        make: |_| Ok(ConfiguredMethod::new(Attention { over: AttentionLayers::Last }, "Attention")),
    },
    MethodEntry {
        name: "attention-rollout",
        family: MethodFamily::Attention,
        summary: "attention multiplied from layer to layer, half of it the tokens themselves; knows no class",
        citation: "Abnar, Zuidema: Quantifying Attention Flow in Transformers, ACL 2020",
        options: &[],
        make: |_| {
            Ok(ConfiguredMethod::new(Attention { over: AttentionLayers::Rollout }, "Attention Rollout"))
        },
    },
    MethodEntry {
        name: "attention-x-gradient",
        family: MethodFamily::Attention,
        summary: "attention times its gradient where positive, handed on from layer to layer",
        citation: "Chefer, Gur, Wolf: Generic Attention-model Explainability, ICCV 2021",
        options: &[],
        make: |_| {
            Ok(ConfiguredMethod::new(
                Attention { over: AttentionLayers::TimesGradient },
                "Attention × Gradient",
            ))
        },
    },
];
