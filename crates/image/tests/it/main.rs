//! Tests of pictures through the public interface. The reader of hostile files has a binary of its own, because it counts allocations.

mod bad_files;
mod pillow;
