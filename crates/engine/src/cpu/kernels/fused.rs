//! Many elementwise functions in one pass over memory. A list of instructions is carried out block by block,
//! each block small enough to stay in the first cache from the first instruction to the last. The bits are those that the
//! functions give one after the other. Blocks are those of whole values, or, as the epilogue of a convolution or a product, parts of
//! its output while they are in cache.

use std::sync::{Mutex, OnceLock, PoisonError};

use monosplit_graph::op::{Binary, Unary};
use monosplit_graph::{Kind, Result};

use super::broadcast::GRAIN;
use super::epilogue::Epilogue;
use super::fused_block::{Access, BlockOperands, Registers, accesses};
use super::in_place::InPlace;
use crate::cpu::real::Real;
use crate::cpu::thread_pool::{TASKS, parallel_for_chunks};
use crate::cpu::value::{SliceMut, View};

/// Elements of a block.
const BLOCK: usize = 1024;

/// What an instruction does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Function {
    Unary(Unary),
    Binary(Binary),
    /// A comparison of real numbers.
    Compare(Binary),
    /// First operand ? second : third.
    Select,
    /// To the kind of the result.
    Cast,
    /// The operand times a function of it.
    Gate(Unary),
    /// The first operand times an error function of it; the others are numbers.
    ErfGate(ErfGate),
}

/// `x·(erf(x/a) + b)·c`, the GELU as exporters spell it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ErfGate {
    /// Whether `x` is divided by `a`; otherwise it is multiplied with it.
    pub(crate) divides: bool,
    /// Whether `x` is multiplied with `c` first.
    pub(crate) number_first: bool,
}

/// Where an instruction reads. Registers of real numbers and of truth values are numbered separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operand {
    Input(usize),
    Real(usize),
    Truth(usize),
}

/// One elementwise function of real numbers or truth values.
#[derive(Clone, Debug)]
pub(crate) struct Instruction {
    pub(crate) function: Function,
    pub(crate) operands: Vec<Operand>,
    /// The register of its result.
    pub(crate) target: Operand,
}

/// A list of instructions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fused {
    pub(crate) instructions: Vec<Instruction>,
    /// Kinds of the inputs.
    pub(crate) inputs: Vec<Kind>,
    /// The registers in which the outputs are found at the end.
    pub(crate) outputs: Vec<Operand>,
    /// How many registers of real numbers there are.
    pub(crate) reals: usize,
    /// How many registers of truth values there are.
    pub(crate) truths: usize,
}

/// Where the elements of an input are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum InputElements<'a, R> {
    /// In memory of their own.
    View(View<'a, R>),
    /// The elements that this output overwrites.
    Old(usize),
}

/// The part of all outputs that one task writes.
struct Part<'a, R> {
    first: usize,
    length: usize,
    outputs: Vec<SliceMut<'a, R>>,
}

/// The limits that a function clamps to, if that is all it does.
fn limits<R: Real>(function: Unary) -> Option<[R; 2]> {
    match function {
        Unary::Relu => Some([0.0, f64::INFINITY].map(R::from_f64)),
        Unary::Clip { min, max } => Some([min, max].map(R::from_f64)),
        _ => None,
    }
}

/// Cuts all outputs alike into a part for every task.
fn parts<R>(count: usize, outputs: Vec<SliceMut<'_, R>>) -> Vec<Part<'_, R>> {
    let part = |first| Part { first, length: GRAIN.min(count - first), outputs: Vec::new() };
    let mut parts: Vec<Part<'_, R>> = (0..count).step_by(GRAIN).map(part).collect();
    for output in outputs {
        match output {
            SliceMut::Real(v) => {
                parts
                    .iter_mut()
                    .zip(v.chunks_mut(GRAIN))
                    .for_each(|(p, v)| p.outputs.push(SliceMut::Real(v)));
            }
            SliceMut::Int(v) => {
                parts.iter_mut().zip(v.chunks_mut(GRAIN)).for_each(|(p, v)| p.outputs.push(SliceMut::Int(v)));
            }
            SliceMut::Bool(v) => {
                parts
                    .iter_mut()
                    .zip(v.chunks_mut(GRAIN))
                    .for_each(|(p, v)| p.outputs.push(SliceMut::Bool(v)));
            }
        }
    }
    parts
}

impl Fused {
    /// Computes all outputs, each of shape `shape`.
    pub(crate) fn run<R: Real>(
        &self,
        shape: &[usize],
        sources: &[InputElements<'_, R>],
        outputs: Vec<SliceMut<'_, R>>,
    ) -> Result<()> {
        let count: usize = shape.iter().product();
        let accesses = accesses(shape, sources)?;
        let parts = parts(count, outputs);
        let registers = || Registers::new(self, &accesses, BLOCK.min(count));
        let carry_out = |registers: &mut Registers<R>, mut part: Part<'_, R>| {
            self.carry_out(&accesses, registers, part.first..part.first + part.length, &mut part.outputs)
        };
        if let [_] = parts[..] {
            let mut registers = registers();
            return parts.into_iter().try_for_each(|part| carry_out(&mut registers, part));
        }
        let (mut parts, failed) = (parts.into_iter().map(Some).collect::<Vec<_>>(), OnceLock::new());
        let per_task = parts.len().div_ceil(TASKS);
        parallel_for_chunks(&mut parts, per_task, |_, parts| {
            let mut registers = registers();
            let mut parts = parts.iter_mut().filter_map(Option::take);
            if let Err(error) = parts.try_for_each(|part| carry_out(&mut registers, part)) {
                failed.get_or_init(|| error);
            }
        });
        failed.into_inner().map_or(Ok(()), Err)
    }

    /// Calls `run`, which computes a value of shape `shape`, with the instructions as its epilogue. They have one output, which
    /// overwrites the value; the source of the value is [`InputElements::Old`].
    pub(crate) fn with_epilogue<R: Real>(
        &self,
        shape: &[usize],
        sources: &[InputElements<'_, R>],
        run: impl FnOnce(&Epilogue<'_, R>) -> Result<()>,
    ) -> Result<()> {
        let accesses = accesses(shape, sources)?;
        if let [Instruction { function: Function::Unary(function), .. }] = &self.instructions[..]
            && let Some(limits) = limits(*function)
        {
            return run(&Epilogue::Clamp(limits));
        }
        if let Some(in_place) = InPlace::new(self, &accesses) {
            return run(&Epilogue::Map(&|first: usize, piece: &mut [R]| in_place.carry_out(first, piece)));
        }
        // Registers of threads that are done with their piece.
        let (free, failed) = (Mutex::new(Vec::new()), OnceLock::new());
        let free = || free.lock().unwrap_or_else(PoisonError::into_inner);
        run(&Epilogue::Map(&|first: usize, piece: &mut [R]| {
            let held = free().pop();
            let mut registers = held.unwrap_or_else(|| Registers::new(self, &accesses, BLOCK));
            let elements = first..first + piece.len();
            let done = self.carry_out(&accesses, &mut registers, elements, &mut [SliceMut::Real(piece)]);
            if let Err(error) = done {
                failed.get_or_init(|| error);
            }
            free().push(registers);
        }))?;
        failed.into_inner().map_or(Ok(()), Err)
    }

    /// Carries out all instructions for some elements; `outputs` are these elements of every output.
    fn carry_out<R: Real>(
        &self,
        accesses: &[Access<'_, R>],
        registers: &mut Registers<R>,
        elements: std::ops::Range<usize>,
        outputs: &mut [SliceMut<'_, R>],
    ) -> Result<()> {
        let mut first = elements.start;
        while first < elements.end {
            let length = registers.length(first, elements.end - first);
            registers.read_repeated(accesses, first, length);
            let start = first - elements.start;
            for instruction in &self.instructions {
                let operands = BlockOperands { accesses, outputs, first, start, length };
                operands.carry_out(instruction, registers)?;
            }
            for (output, register) in outputs.iter_mut().zip(&self.outputs) {
                registers.write(*register, output, start..start + length)?;
            }
            first += length;
        }
        Ok(())
    }
}
