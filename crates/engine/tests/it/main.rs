//! Tests of the engines through their public interface, in one binary because each binary links all crates.

mod axis_order;
mod known_operands;
mod memory;
mod networks;
mod operators;
mod portable;
mod sizes;
mod threads;
