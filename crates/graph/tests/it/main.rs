//! Tests of graphs and files through the public interface. The readers of hostile files have a binary of their own, because it counts allocations.

mod shared_models;
mod weights;
