//! Reductions and largest elements as commands: how threads share what is reduced to one depends on how it lies in memory.

use monosplit_graph::op::Reduction;
use monosplit_graph::{Error, Kind, Result};

use super::{Site, Translator, product};
use crate::cuda::command::{Arguments, BLOCK, Command, Launch};
use crate::cuda::elementwise::AT_ONCE;
use crate::cuda::layout::{self, Divisor};

/// Elements that are worth a block of threads.
const LONG: usize = 128;
/// Elements that are worth a column of threads.
const COLUMN: usize = 32;
/// Elements of a part of a long sum.
const PART: usize = 1 << 14;
/// Results whose sums are worth being cut into parts are fewer than these.
pub(super) const FEW_RESULTS: usize = 512;

impl Translator<'_> {
    pub(super) fn reduce(
        &mut self,
        reduction: Reduction,
        gone: &[usize],
        x: &Site,
        out: &Site,
    ) -> Result<()> {
        if x.kind == Kind::Bool {
            return Err(Error::unsupported(format!("{} is not defined for truth values", reduction.name())));
        }
        let table = layout::Reduction::new(layout::number_of(reduction), &x.shape, x.order, gone)?;
        let (results, count) = (out.count(), table.count as usize);
        if layout::are_neighbours(x.order, gone) && x.kind == Kind::Float {
            let (rows, wide) = (table.sharing(), count.is_multiple_of(AT_ONCE));
            let head = Arguments::default().with(x.at).with(out.at).with(results as u32).with(rows);
            let arguments = head.with(u32::from(wide)).with(table);
            return self.launch_blocks(
                "reduce_neighbours",
                (results * rows as usize).div_ceil(BLOCK as usize),
                arguments,
            );
        }
        let columns = table.keeps_neighbours() && count >= COLUMN;
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

    pub(super) fn arg_max(&mut self, axis: usize, x: &Site, out: &Site) -> Result<()> {
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
