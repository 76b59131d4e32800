//! Blocks of elementwise programs: where their operands are read, and the registers they are computed in.

use std::ops::Range;

use monosplit_graph::op::Unary;
use monosplit_graph::{Error, Kind, Result};

use super::broadcast::Broadcast;
use super::fused::{Function, Fused, InputElements, Instruction, Operand};
use super::{activation, elementwise};
use crate::cpu::real::{Element, Real};
use crate::cpu::value::{Slice, SliceMut};

/// Rows along which an operand does not change are blocks of their own if they have so many elements.
const MIN_ROW: usize = 64;

/// The operand of an instruction: one element for each of the block, or one for all.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Block<'a, T> {
    Many(&'a [T]),
    One(T),
}

/// How an input is read.
pub(crate) enum Access<'a, R> {
    Dense(Slice<'a, R>),
    One(Slice<'a, R>),
    /// Rows that repeat.
    Rows(Slice<'a, R>, Broadcast<1>),
    Old(usize),
}

pub(crate) fn accesses<'a, R: Real>(
    shape: &[usize],
    sources: &[InputElements<'a, R>],
) -> Result<Vec<Access<'a, R>>> {
    let access = |source: &InputElements<'a, R>| {
        Ok(match *source {
            InputElements::Old(output) => Access::Old(output),
            InputElements::View(view) if view.shape == shape => Access::Dense(view.data),
            InputElements::View(view) if view.shape.iter().all(|&n| n == 1) => Access::One(view.data),
            InputElements::View(view) => Access::Rows(view.data, Broadcast::new(shape, [view.shape])?),
        })
    };
    sources.iter().map(access).collect()
}

pub(crate) fn undefined() -> Error {
    Error::argument("an elementwise function was given a kind of number it is not defined for")
}

/// Where a block of an input that repeats is.
#[derive(Clone, Copy, Debug, Default)]
enum Repetition {
    /// In the input from here on.
    From(usize),
    /// The whole block is the element of the input here.
    One(usize),
    /// In a copy.
    #[default]
    Copied,
}

/// A block of an input that repeats.
#[derive(Clone, Debug, Default)]
pub(crate) struct Repeated<T> {
    elements: Vec<T>,
    repetition: Repetition,
}

impl<T: Element> Repeated<T> {
    /// Reads the elements that stand against those of the result from `first` on.
    fn read(&mut self, x: &[T], rows: &Broadcast<1>, first: usize, length: usize) {
        let [dense] = rows.dense;
        if rows.row - first % rows.row >= length {
            let [from] = rows.offsets_of(first);
            self.repetition = if dense { Repetition::From(from) } else { Repetition::One(from) };
            return;
        }
        self.repetition = Repetition::Copied;
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

    /// Elements that stand against those of the result from `first` on, all of one row.
    pub(crate) fn within_row<'a>(
        x: &'a [T],
        rows: &Broadcast<1>,
        first: usize,
        length: usize,
    ) -> Block<'a, T> {
        let [from] = rows.offsets_of(first);
        if rows.dense[0] { Block::Many(&x[from..from + length]) } else { Block::One(x[from]) }
    }

    fn block<'a>(&'a self, x: &'a [T], length: usize) -> Block<'a, T> {
        match self.repetition {
            Repetition::From(first) => Block::Many(&x[first..first + length]),
            Repetition::One(at) => Block::One(x[at]),
            Repetition::Copied => Block::Many(&self.elements[..length]),
        }
    }
}

/// The memory of one task.
pub(crate) struct Registers<R> {
    reals: Vec<Vec<R>>,
    truths: Vec<Vec<bool>>,
    /// For every input, room for a block of it if it repeats.
    repeated_reals: Vec<Repeated<R>>,
    repeated_truths: Vec<Repeated<bool>>,
    /// The most elements of a block.
    longest: usize,
    /// The shortest of the rows along which an operand does not change, where blocks end.
    row: Option<usize>,
}

impl<R: Real> Registers<R> {
    /// Registers for blocks of at most `longest` elements.
    pub(crate) fn new(program: &Fused, accesses: &[Access<'_, R>], longest: usize) -> Self {
        fn repeated<T: Element>(wanted: bool, length: usize) -> Repeated<T> {
            let length = if wanted { length } else { 0 };
            Repeated { elements: vec![T::default(); length], repetition: Repetition::Copied }
        }
        let repeats = |kind: Kind| {
            let of_kind = program.inputs.iter().map(move |&input| input == kind);
            accesses
                .iter()
                .zip(of_kind)
                .map(|(access, of_kind)| of_kind && matches!(access, Access::Rows(..)))
        };
        let constant_rows = accesses.iter().filter_map(|access| match access {
            Access::Rows(_, rows) if !rows.dense[0] && rows.row >= MIN_ROW => Some(rows.row),
            _ => None,
        });
        Registers {
            reals: vec![vec![R::ZERO; longest]; program.reals],
            truths: vec![vec![false; longest]; program.truths],
            repeated_reals: repeats(Kind::Float).map(|wanted| repeated(wanted, longest)).collect(),
            repeated_truths: repeats(Kind::Bool).map(|wanted| repeated(wanted, longest)).collect(),
            longest,
            row: constant_rows.min(),
        }
    }

    /// The length of the block that begins at element `first`, with `remaining` elements left.
    pub(crate) fn length(&self, first: usize, remaining: usize) -> usize {
        let length = self.longest.min(remaining);
        self.row.map_or(length, |row| length.min(row - first % row))
    }

    /// Reads a block of all inputs that repeat.
    pub(crate) fn read_repeated(&mut self, accesses: &[Access<'_, R>], first: usize, length: usize) {
        for (input, access) in accesses.iter().enumerate() {
            match access {
                Access::Rows(Slice::Real(x), rows) => {
                    self.repeated_reals[input].read(x, rows, first, length);
                }
                Access::Rows(Slice::Bool(x), rows) => {
                    self.repeated_truths[input].read(x, rows, first, length);
                }
                _ => {}
            }
        }
    }

    /// Writes a register to a range of an output.
    pub(crate) fn write(
        &self,
        register: Operand,
        output: &mut SliceMut<'_, R>,
        range: Range<usize>,
    ) -> Result<()> {
        match (output, register) {
            (SliceMut::Real(v), Operand::Real(at)) => {
                let length = range.len();
                v[range].copy_from_slice(&self.reals[at][..length]);
            }
            (SliceMut::Bool(v), Operand::Truth(at)) => {
                let length = range.len();
                v[range].copy_from_slice(&self.truths[at][..length]);
            }
            _ => return Err(undefined()),
        }
        Ok(())
    }
}

/// The operands of one block.
pub(crate) struct BlockOperands<'a, 'o, R> {
    pub(crate) accesses: &'a [Access<'a, R>],
    pub(crate) outputs: &'a [SliceMut<'o, R>],
    /// The index of its first element, and where that is in the outputs.
    pub(crate) first: usize,
    pub(crate) start: usize,
    pub(crate) length: usize,
}

impl<R: Real> BlockOperands<'_, '_, R> {
    fn real<'a>(&'a self, operand: Operand, registers: &'a Registers<R>) -> Result<Block<'a, R>> {
        let (first, length) = (self.first, self.length);
        Ok(match operand {
            Operand::Real(register) => Block::Many(&registers.reals[register][..self.length]),
            Operand::Truth(_) => return Err(undefined()),
            Operand::Input(input) => match &self.accesses[input] {
                Access::Dense(Slice::Real(x)) => Block::Many(&x[first..first + length]),
                Access::One(Slice::Real(x)) => Block::One(x[0]),
                Access::Rows(Slice::Real(x), _) => registers.repeated_reals[input].block(x, length),
                Access::Old(output) => match &self.outputs[*output] {
                    SliceMut::Real(x) => Block::Many(&x[self.start..self.start + self.length]),
                    _ => return Err(undefined()),
                },
                _ => return Err(undefined()),
            },
        })
    }

    fn truth<'a>(&'a self, operand: Operand, registers: &'a Registers<R>) -> Result<Block<'a, bool>> {
        let (first, length) = (self.first, self.length);
        Ok(match operand {
            Operand::Truth(register) => Block::Many(&registers.truths[register][..self.length]),
            Operand::Real(_) => return Err(undefined()),
            Operand::Input(input) => match &self.accesses[input] {
                Access::Dense(Slice::Bool(x)) => Block::Many(&x[first..first + length]),
                Access::One(Slice::Bool(x)) => Block::One(x[0]),
                Access::Rows(Slice::Bool(x), _) => registers.repeated_truths[input].block(x, length),
                Access::Old(output) => match &self.outputs[*output] {
                    SliceMut::Bool(x) => Block::Many(&x[self.start..self.start + self.length]),
                    _ => return Err(undefined()),
                },
                _ => return Err(undefined()),
            },
        })
    }

    pub(crate) fn carry_out(&self, instruction: &Instruction, registers: &mut Registers<R>) -> Result<()> {
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
            Function::Gate(unary) => {
                convert(real(0)?, out, |x| x);
                activation::gate_block(unary, out);
            }
            Function::ErfGate(gate) => {
                let number = |at: usize| match real(at)? {
                    Block::One(x) => Ok(x),
                    Block::Many(x) => x.first().copied().ok_or_else(undefined),
                };
                convert(real(0)?, out, |x| x);
                activation::erf_gate_block(gate, [number(1)?, number(2)?, number(3)?], out);
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
            Function::Gate(_) | Function::ErfGate(_) => return Err(undefined()),
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
