//! Reductions and argmax as commands. The memory layout decides how many threads reduce one result.

use monosplit_graph::op::Reduction;
use monosplit_graph::{Error, Kind, Result};

use super::{DeviceTensor, Translator, product};
use crate::cuda::command::{Arguments, BLOCK, Command, Launch};
use crate::cuda::elementwise::VECTOR_WIDTH;
use crate::cuda::kernel_parameters::{self, Divisor};

/// Elements from which on a block of threads reduces one result.
const LONG: usize = 128;
/// Elements from which on a column of threads reduces one result.
const COLUMN: usize = 32;
/// Elements of one part of a long reduction.
const PART: usize = 1 << 14;
/// Below this number of results a long reduction is split into parts.
pub(super) const FEW_RESULTS: usize = 512;

impl Translator<'_> {
    pub(super) fn reduce(
        &mut self,
        reduction: Reduction,
        axes: &[usize],
        x: &DeviceTensor,
        out: &DeviceTensor,
    ) -> Result<()> {
        if x.kind == Kind::Bool {
            return Err(Error::unsupported(format!("{} is not defined for truth values", reduction.name())));
        }
        let table = kernel_parameters::Reduction::new(
            kernel_parameters::number_of(reduction),
            &x.shape,
            x.format,
            axes,
        )?;
        let (results, count) = (out.count(), table.count as usize);
        if kernel_parameters::are_adjacent(x.format, axes) && x.kind == Kind::Float {
            let (rows, wide) = (table.threads_per_result(), count.is_multiple_of(VECTOR_WIDTH));
            let head = Arguments::default().with(x.at).with(out.at).with(results as u32).with(rows);
            let arguments = head.with(u32::from(wide)).with(table);
            return self.launch_blocks(
                "reduce_neighbours",
                (results * rows as usize).div_ceil(BLOCK as usize),
                arguments,
            );
        }
        let columns = table.keeps_adjacency() && count >= COLUMN;
        let blocks = count >= LONG && !columns;
        let parts = match blocks {
            true if results < FEW_RESULTS => count.div_ceil(PART).min(4096 / results.max(1)).max(1),
            _ => 1,
        };
        let table = table.in_parts(parts);
        let (suffix, head) = (x.suffix(), Arguments::default().with(x.at));
        if columns {
            let (rows, width) = table.rows(results);
            let arguments = head.with(out.at).with(results as u32).with(rows).with(table);
            let function = self.device.function(self.kernels, &format!("reduce_columns_{suffix}"))?;
            let launch = Launch::of(function, results.div_ceil(width as usize), width * rows, arguments);
            self.commands.push(Command::Launch(launch));
            return Ok(());
        }
        if !blocks {
            let arguments = head.with(out.at).with(results as u32).with(table);
            return self.launch(&format!("reduce_each_{suffix}"), results, arguments);
        }
        let (partial, counters) = match parts {
            1 => (0, 0),
            _ => (self.scratch(results * parts * 8)?, self.counters()?),
        };
        let arguments = head.with(partial).with(counters).with(out.at).with(results as u32).with(table);
        self.launch_blocks(&format!("reduce_block_{suffix}"), results * parts, arguments)
    }

    pub(super) fn arg_max(&mut self, axis: usize, x: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
        let inner = product(&x.shape[axis + 1..]);
        let arguments = Arguments::default()
            .with(x.at)
            .with(out.at)
            .with(out.count() as u32)
            .with(x.shape[axis] as u32)
            .with(Divisor::new(inner));
        self.launch_blocks(&format!("arg_max_{}", x.suffix()), out.count(), arguments)
    }
}
