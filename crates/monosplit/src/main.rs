//! monosplit.
fn main() {}
