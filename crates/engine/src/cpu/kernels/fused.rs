//! Many elementwise functions in one pass over memory. A list of instructions is carried out block by block,
//! each block small enough to stay in the first cache from the first instruction to the last. The bits are those that the
//! functions give one after the other. Blocks are those of whole values, or, as the epilogue of a convolution, parts of its output
//! while they are in cache.

use std::sync::OnceLock;

use monosplit_graph::op::{Binary, Unary};
use monosplit_graph::{Error, Kind, Result};

use super::broadcast::{Broadcast, GRAIN};
use super::epilogue::Epilogue;
use super::{activation, elementwise, row_loops};
use crate::cpu::real::{Element, Real};
use crate::cpu::thread_pool::{TASKS, parallel_for_chunks};
use crate::cpu::unwinding::filled;
use crate::cpu::value::{Slice, SliceMut, View};

/// Elements of a block.
const BLOCK: usize = 1024;

/// Elements of a block that is changed in place.
const PIECE: usize = 256;

/// The operand of an instruction: one element for each of the block, or one for all.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Block<'a, T> {
    Many(&'a [T]),
    One(T),
}

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
pub(crate) enum Source<'a, R> {
    /// In memory of their own.
    View(View<'a, R>),
    /// The elements that this output overwrites.
    Old(usize),
}

/// How an input is read.
enum Access<'a, R> {
    Dense(Slice<'a, R>),
    One(Slice<'a, R>),
    /// Rows that repeat.
    Rows(Slice<'a, R>, Broadcast<1>),
    Old(usize),
}

/// A block of an input that repeats.
#[derive(Clone, Debug, Default)]
struct Repeated<T> {
    elements: Vec<T>,
    /// Whether the whole block is the first element.
    uniform: bool,
}

impl<T: Element> Repeated<T> {
    /// Reads the elements that stand against those of the result from `first` on.
    fn read(&mut self, x: &[T], rows: &Broadcast<1>, first: usize, length: usize) {
        let [dense] = rows.dense;
        self.uniform = !dense && rows.row - first % rows.row >= length;
        if self.uniform {
            self.elements[0] = x[rows.offsets_of(first)[0]];
            return;
        }
        let mut done = 0;
        while done < length {
            let at = first + done;
            let run = (rows.row - at % rows.row).min(length - done);
            let [from] = rows.offsets_of(at);
            let room = &mut self.elements[done..done + run];
            match dense {
                true => room.copy_from_slice(&x[from..from + run]),
                false => room.fill(x[from]),
            }
            done += run;
        }
    }

    fn block(&self, length: usize) -> Block<'_, T> {
        if self.uniform { Block::One(self.elements[0]) } else { Block::Many(&self.elements[..length]) }
    }
}

/// The memory of one task.
struct Registers<R> {
    reals: Vec<Vec<R>>,
    truths: Vec<Vec<bool>>,
    /// For every input, room for a block of it if it repeats.
    repeated_reals: Vec<Repeated<R>>,
    repeated_truths: Vec<Repeated<bool>>,
}

/// The part of all outputs that one task writes.
struct Part<'a, R> {
    first: usize,
    length: usize,
    outputs: Vec<SliceMut<'a, R>>,
}

fn accesses<'a, R: Real>(shape: &[usize], sources: &[Source<'a, R>]) -> Result<Vec<Access<'a, R>>> {
    let access = |source: &Source<'a, R>| {
        Ok(match *source {
            Source::Old(output) => Access::Old(output),
            Source::View(view) if view.shape == shape => Access::Dense(view.data),
            Source::View(view) if view.shape.iter().all(|&n| n == 1) => Access::One(view.data),
            Source::View(view) => Access::Rows(view.data, Broadcast::new(shape, [view.shape])?),
        })
    };
    sources.iter().map(access).collect()
}

fn undefined() -> Error {
    Error::argument("an elementwise function was given a kind of number it is not defined for")
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
        sources: &[Source<'_, R>],
        outputs: Vec<SliceMut<'_, R>>,
    ) -> Result<()> {
        let count: usize = shape.iter().product();
        let accesses = accesses(shape, sources)?;
        let parts = parts(count, outputs);
        let registers = || self.registers(&accesses, BLOCK.min(count));
        if let [_] = parts[..] {
            let mut registers = registers();
            return parts.into_iter().try_for_each(|part| self.part(&accesses, &mut registers, part));
        }
        let (mut parts, failed) = (parts.into_iter().map(Some).collect::<Vec<_>>(), OnceLock::new());
        let per_task = parts.len().div_ceil(TASKS);
        parallel_for_chunks(&mut parts, per_task, |_, parts| {
            let mut registers = registers();
            let mut parts = parts.iter_mut().filter_map(Option::take);
            if let Err(error) = parts.try_for_each(|part| self.part(&accesses, &mut registers, part)) {
                failed.get_or_init(|| error);
            }
        });
        failed.into_inner().map_or(Ok(()), Err)
    }

    /// Calls `run`, which computes a value of shape `shape`, with the instructions as its epilogue. They overwrite the value. Every
    /// instruction reads what the one before it wrote; the source of the value is [`Source::Old`].
    pub(crate) fn with_epilogue<R: Real>(
        &self,
        shape: &[usize],
        sources: &[Source<'_, R>],
        run: impl FnOnce(&Epilogue<'_, R>) -> Result<()>,
    ) -> Result<()> {
        if let [Instruction { function: Function::Unary(function), .. }] = &self.instructions[..]
            && let Some(limits) = limits(*function)
        {
            return run(&Epilogue::Clamp(limits));
        }
        let (accesses, failed) = (accesses(shape, sources)?, OnceLock::new());
        run(&Epilogue::Map(&|first: usize, piece: &mut [R]| {
            for (index, block) in piece.chunks_mut(PIECE).enumerate() {
                let epilogue = EpilogueBlock { accesses: &accesses, first: first + index * PIECE };
                let done = self.instructions.iter().try_for_each(|step| epilogue.carry_out(step, block));
                if let Err(error) = done {
                    failed.get_or_init(|| error);
                }
            }
        }))?;
        failed.into_inner().map_or(Ok(()), Err)
    }

    fn registers<R: Real>(&self, accesses: &[Access<'_, R>], length: usize) -> Registers<R> {
        fn repeated<T: Element>(wanted: bool, length: usize) -> Repeated<T> {
            let length = if wanted { length } else { 0 };
            Repeated { elements: filled(T::default(), length), uniform: false }
        }
        let repeats = |kind: Kind| {
            let of_kind = self.inputs.iter().map(move |&input| input == kind);
            accesses
                .iter()
                .zip(of_kind)
                .map(|(access, of_kind)| of_kind && matches!(access, Access::Rows(..)))
        };
        Registers {
            reals: vec![vec![R::ZERO; length]; self.reals],
            truths: vec![vec![false; length]; self.truths],
            repeated_reals: repeats(Kind::Float).map(|wanted| repeated(wanted, length)).collect(),
            repeated_truths: repeats(Kind::Bool).map(|wanted| repeated(wanted, length)).collect(),
        }
    }

    fn part<R: Real>(
        &self,
        accesses: &[Access<'_, R>],
        registers: &mut Registers<R>,
        mut part: Part<'_, R>,
    ) -> Result<()> {
        for start in (0..part.length).step_by(BLOCK) {
            let length = BLOCK.min(part.length - start);
            for (input, access) in accesses.iter().enumerate() {
                let first = part.first + start;
                match access {
                    Access::Rows(Slice::Real(x), rows) => {
                        registers.repeated_reals[input].read(x, rows, first, length);
                    }
                    Access::Rows(Slice::Bool(x), rows) => {
                        registers.repeated_truths[input].read(x, rows, first, length);
                    }
                    _ => {}
                }
            }
            for instruction in &self.instructions {
                BlockOperands { accesses, part: &part, start, length }.carry_out(instruction, registers)?;
            }
            for (output, register) in part.outputs.iter_mut().zip(&self.outputs) {
                let range = start..start + length;
                match (output, *register) {
                    (SliceMut::Real(v), Operand::Real(at)) => {
                        v[range].copy_from_slice(&registers.reals[at][..length]);
                    }
                    (SliceMut::Bool(v), Operand::Truth(at)) => {
                        v[range].copy_from_slice(&registers.truths[at][..length]);
                    }
                    _ => return Err(undefined()),
                }
            }
        }
        Ok(())
    }
}

/// A block, from element `first` on, of a value that instructions change in place.
struct EpilogueBlock<'a, R> {
    accesses: &'a [Access<'a, R>],
    first: usize,
}

impl<'a, R: Real> EpilogueBlock<'a, R> {
    fn carry_out(&self, instruction: &Instruction, block: &mut [R]) -> Result<()> {
        if self.carry_out_at_once(instruction, block) {
            return Ok(());
        }
        let mut copy = [R::ZERO; PIECE];
        let old = &mut copy[..block.len()];
        old.copy_from_slice(block);
        self.compute(instruction, old, block)
    }

    /// The most common epilogues of convolutions.
    fn carry_out_at_once(&self, instruction: &Instruction, block: &mut [R]) -> bool {
        let other = |at: usize| self.other(instruction.operands[at], block.len());
        match instruction.function {
            Function::Unary(Unary::Relu) => row_loops::relu(block),
            Function::Unary(Unary::Clip { min, max }) => {
                row_loops::clamp(block, R::from_f64(min), R::from_f64(max));
            }
            Function::Binary(Binary::Add) => match (other(0), other(1)) {
                (Some(Block::Many(x)), None) | (None, Some(Block::Many(x))) => row_loops::add(block, x),
                _ => return false,
            },
            _ => return false,
        }
        true
    }

    /// Real numbers that are not those of the value itself.
    fn other(&self, operand: Operand, length: usize) -> Option<Block<'a, R>> {
        let Operand::Input(input) = operand else { return None };
        match &self.accesses[input] {
            Access::Dense(Slice::Real(x)) => Some(Block::Many(&x[self.first..self.first + length])),
            Access::One(Slice::Real(x)) => Some(Block::One(x[0])),
            _ => None,
        }
    }

    fn compute(&self, instruction: &Instruction, old: &[R], out: &mut [R]) -> Result<()> {
        let real = |at: usize| self.other(instruction.operands[at], old.len()).unwrap_or(Block::Many(old));
        let truth = |at: usize| match instruction.operands[at] {
            Operand::Input(input) => match &self.accesses[input] {
                Access::Dense(Slice::Bool(x)) => Ok(Block::Many(&x[self.first..self.first + old.len()])),
                Access::One(Slice::Bool(x)) => Ok(Block::One(x[0])),
                _ => Err(undefined()),
            },
            _ => Err(undefined()),
        };
        match instruction.function {
            Function::Unary(unary) => activation::real_block(unary, real(0), out),
            Function::Binary(binary) => elementwise::real_block(binary, real(0), real(1), out)?,
            Function::Select => select(truth(0)?, real(1), real(2), out),
            Function::Compare(_) | Function::Cast => return Err(undefined()),
        }
        Ok(())
    }
}

/// The operands of one block.
struct BlockOperands<'a, R> {
    accesses: &'a [Access<'a, R>],
    part: &'a Part<'a, R>,
    start: usize,
    length: usize,
}

impl<R: Real> BlockOperands<'_, R> {
    fn real<'a>(&'a self, operand: Operand, registers: &'a Registers<R>) -> Result<Block<'a, R>> {
        let first = self.part.first + self.start;
        Ok(match operand {
            Operand::Real(register) => Block::Many(&registers.reals[register][..self.length]),
            Operand::Truth(_) => return Err(undefined()),
            Operand::Input(input) => match &self.accesses[input] {
                Access::Dense(Slice::Real(x)) => Block::Many(&x[first..first + self.length]),
                Access::One(Slice::Real(x)) => Block::One(x[0]),
                Access::Rows(Slice::Real(_), _) => registers.repeated_reals[input].block(self.length),
                Access::Old(output) => match &self.part.outputs[*output] {
                    SliceMut::Real(x) => Block::Many(&x[self.start..self.start + self.length]),
                    _ => return Err(undefined()),
                },
                _ => return Err(undefined()),
            },
        })
    }

    fn truth<'a>(&'a self, operand: Operand, registers: &'a Registers<R>) -> Result<Block<'a, bool>> {
        let first = self.part.first + self.start;
        Ok(match operand {
            Operand::Truth(register) => Block::Many(&registers.truths[register][..self.length]),
            Operand::Real(_) => return Err(undefined()),
            Operand::Input(input) => match &self.accesses[input] {
                Access::Dense(Slice::Bool(x)) => Block::Many(&x[first..first + self.length]),
                Access::One(Slice::Bool(x)) => Block::One(x[0]),
                Access::Rows(Slice::Bool(_), _) => registers.repeated_truths[input].block(self.length),
                Access::Old(output) => match &self.part.outputs[*output] {
                    SliceMut::Bool(x) => Block::Many(&x[self.start..self.start + self.length]),
                    _ => return Err(undefined()),
                },
                _ => return Err(undefined()),
            },
        })
    }

    fn carry_out(&self, instruction: &Instruction, registers: &mut Registers<R>) -> Result<()> {
        // The target is taken out while the others are read: no instruction reads what it writes.
        match instruction.target {
            Operand::Real(target) => {
                let mut result = std::mem::take(&mut registers.reals[target]);
                let done = self.to_real(instruction, registers, &mut result[..self.length]);
                registers.reals[target] = result;
                done
            }
            Operand::Truth(target) => {
                let mut result = std::mem::take(&mut registers.truths[target]);
                let done = self.to_truth(instruction, registers, &mut result[..self.length]);
                registers.truths[target] = result;
                done
            }
            Operand::Input(_) => Err(undefined()),
        }
    }

    fn to_real(&self, instruction: &Instruction, registers: &Registers<R>, out: &mut [R]) -> Result<()> {
        let real = |at: usize| self.real(instruction.operands[at], registers);
        match instruction.function {
            Function::Unary(unary) => activation::real_block(unary, real(0)?, out),
            Function::Binary(binary) => elementwise::real_block(binary, real(0)?, real(1)?, out)?,
            Function::Compare(_) => return Err(undefined()),
            Function::Select => {
                select(self.truth(instruction.operands[0], registers)?, real(1)?, real(2)?, out)
            }
            Function::Cast => {
                let number = |x: bool| if x { R::ONE } else { R::ZERO };
                convert(self.truth(instruction.operands[0], registers)?, out, number);
            }
        }
        Ok(())
    }

    fn to_truth(&self, instruction: &Instruction, registers: &Registers<R>, out: &mut [bool]) -> Result<()> {
        let operands = &instruction.operands;
        let truth = |at: usize| self.truth(operands[at], registers);
        match instruction.function {
            Function::Unary(Unary::Not) => convert(truth(0)?, out, |x| !x),
            Function::Unary(_) => return Err(undefined()),
            Function::Binary(binary) => elementwise::logic_block(binary, truth(0)?, truth(1)?, out)?,
            Function::Compare(binary) => {
                let (a, b) = (self.real(operands[0], registers)?, self.real(operands[1], registers)?);
                elementwise::compare_block(binary, a, b, out)?;
            }
            Function::Select => select(truth(0)?, truth(1)?, truth(2)?, out),
            Function::Cast => convert(self.real(operands[0], registers)?, out, |x| x != R::ZERO),
        }
        Ok(())
    }
}

fn convert<A: Element, B: Element>(x: Block<'_, A>, out: &mut [B], f: impl Fn(A) -> B) {
    match x {
        Block::Many(x) => out.iter_mut().zip(x).for_each(|(o, &x)| *o = f(x)),
        Block::One(x) => out.fill(f(x)),
    }
}

fn select<T: Element>(condition: Block<'_, bool>, a: Block<'_, T>, b: Block<'_, T>, out: &mut [T]) {
    match (condition, a, b) {
        (Block::Many(c), Block::Many(a), Block::Many(b)) => {
            for (((o, &c), &a), &b) in out.iter_mut().zip(c).zip(a).zip(b) {
                *o = if c { a } else { b };
            }
        }
        (Block::Many(c), Block::Many(a), Block::One(b)) => {
            for ((o, &c), &a) in out.iter_mut().zip(c).zip(a) {
                *o = if c { a } else { b };
            }
        }
        (Block::Many(c), Block::One(a), Block::Many(b)) => {
            for ((o, &c), &b) in out.iter_mut().zip(c).zip(b) {
                *o = if c { a } else { b };
            }
        }
        (Block::Many(c), Block::One(a), Block::One(b)) => {
            out.iter_mut().zip(c).for_each(|(o, &c)| *o = if c { a } else { b });
        }
        (Block::One(true), chosen, _) | (Block::One(false), _, chosen) => convert(chosen, out, |x| x),
    }
}
