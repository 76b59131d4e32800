//! Pictures in.
