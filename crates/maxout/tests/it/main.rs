//! Tests of Maxout networks through the public interface.

mod graphs;
mod random;
mod theorem;
