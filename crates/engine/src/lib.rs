//! Runs graphs.
