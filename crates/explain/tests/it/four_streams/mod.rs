//! The split against an independent implementation: the paper's four-stream algorithm to the letter, in double
//! precision, on random small networks. Nothing here uses the sum/difference form. `MONOSPLIT_CASES` sets how many
//! networks are tried.

mod agreement;
mod backward;
mod batch_statistics;
mod coefficients;
mod deep;
mod layer_alphas;
mod literal;
mod literal_map;
mod multiplicative;
mod network;
mod noise;
mod pair;
mod properties;
mod relevance;
mod rule;
mod smooth;
