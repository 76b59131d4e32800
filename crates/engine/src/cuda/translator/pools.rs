//! Pools, transposed pools, and gathers from and scatters to the maxima of pools, as commands.

use monosplit_graph::Result;
use monosplit_graph::op::{Divisor, Window};

use super::{DeviceTensor, Translator};
use crate::cuda::command::Arguments;
use crate::cuda::kernel_parameters::{POOLS, Pool, compiled_for};

impl Translator<'_> {
    pub(super) fn pool(
        &mut self,
        kernel: &str,
        window: &Window,
        divisor: Option<Divisor>,
        inputs: &[DeviceTensor],
        out: &DeviceTensor,
        transposed: bool,
    ) -> Result<()> {
        // A transposed pool writes what a pool reads.
        let (large, small) = match (transposed, inputs) {
            (false, _) => (&inputs[0], out),
            (true, _) => (out, &inputs[inputs.len() - 1]),
        };
        let adjacent = out.format.adjacent_channels(&out.shape);
        let pool = Pool::new(window, &large.shape[2..], &small.shape[2..], divisor, adjacent)?;
        let mut arguments = Arguments::default();
        for tensor in inputs.iter().chain([out]) {
            arguments = arguments.with(tensor.at);
        }
        let arguments = arguments.with(out.count() as u32).with(pool);
        self.launch(&compiled_for(kernel, &POOLS, window), out.count(), arguments)
    }

    pub(super) fn scatter(
        &mut self,
        window: &Window,
        a: &DeviceTensor,
        y: &DeviceTensor,
        out: &DeviceTensor,
    ) -> Result<()> {
        let adjacent = out.format.adjacent_channels(&out.shape);
        let pool = Pool::new(window, &a.shape[2..], &y.shape[2..], None, adjacent)?;
        let (windows, elements) = (y.count() as u32, out.count() as u32);
        let tiled = (2..a.shape.len()).all(|axis| a.shape[axis] == 2 * y.shape[axis]);
        let pairs = window.kernel == [2; 2] && window.stride == [2; 2] && window.dilation == [1; 2];
        if pairs && tiled && window.pad.iter().all(|&pad| pad == (0, 0)) {
            let arguments = Arguments::default().with(a.at).with(y.at).with(out.at).with(windows).with(pool);
            return self.launch("winner_scatter_tiles", y.count(), arguments);
        }
        // Windows overlap: the maximum of each is found once, before its position is looked up by all elements it covers.
        let index = self.scratch(y.count() * size_of::<i32>())?;
        let arguments = Arguments::default().with(a.at).with(index).with(windows).with(pool);
        self.launch(&compiled_for("winner_index", &POOLS, window), y.count(), arguments)?;
        let arguments = Arguments::default().with(index).with(y.at).with(out.at).with(elements).with(pool);
        self.launch(&compiled_for("winner_scatter", &POOLS, window), out.count(), arguments)
    }
}
