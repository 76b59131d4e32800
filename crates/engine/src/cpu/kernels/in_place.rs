//! Elementwise programs whose every instruction changes what the one before it wrote, where it is: most epilogues. They need no
//! registers.

use monosplit_graph::op::{Binary, Unary};

use super::fused::{ErfGate, Function, Fused, Instruction, Operand};
use super::fused_block::{Access, Block, Repeated};
use super::{activation, elementwise};
use crate::cpu::real::Real;
use crate::cpu::value::Slice;

/// Elements of a block.
const BLOCK: usize = 256;

/// Instructions that are carried out one after the other on the same elements.
pub(crate) struct InPlace<'a, R> {
    steps: Vec<Step<'a, R>>,
    /// The shortest of the rows that an operand repeats, where blocks end.
    row: usize,
}

enum Step<'a, R> {
    Unary(Unary),
    Gate(Unary),
    ErfGate(ErfGate, [R; 3]),
    /// A function of the elements and another operand, which comes first if so told.
    Binary(Binary, &'a Access<'a, R>, bool),
}

impl<'a, R: Real> InPlace<'a, R> {
    /// The instructions of a program with one output, if they are such.
    pub(crate) fn new(program: &Fused, accesses: &'a [Access<'a, R>]) -> Option<Self> {
        let mut before = None;
        let mut steps = Vec::with_capacity(program.instructions.len());
        for instruction in &program.instructions {
            steps.push(step(instruction, before, accesses)?);
            before = Some(instruction.target);
        }
        let rows = accesses.iter().filter_map(|access| match access {
            Access::Rows(_, rows) => Some(rows.row),
            _ => None,
        });
        Some(InPlace { steps, row: rows.min().unwrap_or(usize::MAX) })
    }

    /// Changes some elements, of which the first has the index `first`.
    pub(crate) fn carry_out(&self, mut first: usize, mut elements: &mut [R]) {
        while !elements.is_empty() {
            let length = BLOCK.min(self.row - first % self.row).min(elements.len());
            let (block, rest) = elements.split_at_mut(length);
            self.steps.iter().for_each(|step| step.carry_out(first, block));
            (first, elements) = (first + length, rest);
        }
    }
}

/// The step that an instruction is, if it changes the value itself, or `before`, which was written last.
fn step<'a, R: Real>(
    instruction: &Instruction,
    before: Option<Operand>,
    accesses: &'a [Access<'a, R>],
) -> Option<Step<'a, R>> {
    let is_value = |operand: Operand| match (before, operand) {
        (None, Operand::Input(input)) => matches!(accesses[input], Access::Old(_)),
        (before, operand) => before == Some(operand),
    };
    let access = |operand: Operand| match operand {
        Operand::Input(input) if !matches!(accesses[input], Access::Old(_)) => Some(&accesses[input]),
        _ => None,
    };
    let number = |operand: Operand| match access(operand)? {
        Access::One(Slice::Real(x)) => Some(x[0]),
        _ => None,
    };
    match (instruction.function, &instruction.operands[..]) {
        (Function::Unary(unary), &[x]) if is_value(x) => Some(Step::Unary(unary)),
        (Function::Gate(unary), &[x]) if is_value(x) => Some(Step::Gate(unary)),
        (Function::ErfGate(gate), &[x, a, b, c]) if is_value(x) => {
            Some(Step::ErfGate(gate, [number(a)?, number(b)?, number(c)?]))
        }
        (Function::Binary(binary), &[x, y]) if elementwise::is_arithmetic(binary) => {
            match (is_value(x), is_value(y)) {
                (true, false) => Some(Step::Binary(binary, access(y)?, false)),
                (false, true) => Some(Step::Binary(binary, access(x)?, true)),
                _ => None,
            }
        }
        _ => None,
    }
}

impl<R: Real> Step<'_, R> {
    fn carry_out(&self, first: usize, block: &mut [R]) {
        match self {
            Step::Unary(unary) => activation::change_block(*unary, block),
            Step::Gate(unary) => activation::gate_block(*unary, block),
            Step::ErfGate(gate, numbers) => activation::erf_gate_block(*gate, *numbers, block),
            Step::Binary(binary, access, swapped) => {
                let other = match access {
                    Access::Dense(Slice::Real(x)) => Block::Many(&x[first..first + block.len()]),
                    Access::One(Slice::Real(x)) => Block::One(x[0]),
                    Access::Rows(Slice::Real(x), rows) => Repeated::within_row(x, rows, first, block.len()),
                    // The graph has no arithmetic of other kinds.
                    _ => return,
                };
                elementwise::change_block(*binary, block, other, *swapped);
            }
        }
    }
}
