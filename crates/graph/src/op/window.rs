//! Sliding windows: the geometry that convolutions and pools share.

/// A window sliding over the spatial axes (those after batch and channel).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// Extent per spatial axis.
    pub kernel: Vec<usize>,
    /// Step per spatial axis.
    pub stride: Vec<usize>,
    /// Distance between neighbouring taps per spatial axis.
    pub dilation: Vec<usize>,
    /// Padding before and after each spatial axis.
    pub pad: Vec<(usize, usize)>,
    /// Whether a last, partly covered position counts (pooling only). What it covers past the padding is
    /// never part of a maximum, a sum or a divisor.
    pub ceil: bool,
}

impl Window {
    /// A window of extent `kernel`, stride 1, no dilation, no padding.
    pub fn new(kernel: impl Into<Vec<usize>>) -> Self {
        let kernel = kernel.into();
        let axes = kernel.len();
        Window {
            kernel,
            stride: vec![1; axes],
            dilation: vec![1; axes],
            pad: vec![(0, 0); axes],
            ceil: false,
        }
    }

    /// Number of spatial axes.
    pub fn axes(&self) -> usize {
        self.kernel.len()
    }

    /// Whether it reads exactly the element under it.
    pub fn is_pointwise(&self) -> bool {
        let ones = |v: &[usize]| v.iter().all(|&n| n == 1);
        ones(&self.kernel) && ones(&self.stride) && self.pad.iter().all(|&pad| pad == (0, 0))
    }

    /// Whether it is three by three elements, one or two apart along both axes.
    pub fn is_three_by_three(&self) -> bool {
        self.kernel == [3, 3] && self.dilation == [1, 1] && (self.stride == [1, 1] || self.stride == [2, 2])
    }

    /// What the dilated kernel spans along `axis`.
    pub fn span(&self, axis: usize) -> Option<usize> {
        self.kernel[axis].checked_sub(1)?.checked_mul(self.dilation[axis])?.checked_add(1)
    }

    /// Number of positions along `axis` over an input of length `length`; `None` if there is none.
    pub fn positions(&self, axis: usize, length: usize) -> Option<usize> {
        let (before, after) = self.pad[axis];
        let padded = length.checked_add(before)?.checked_add(after)?;
        let room = padded.checked_sub(self.span(axis)?)?;
        let stride = self.stride[axis];
        if stride == 0 {
            return None;
        }
        let positions = room / stride + 1;
        let partial = self.ceil && !room.is_multiple_of(stride) && positions * stride < length + before;
        Some(positions + usize::from(partial))
    }

    /// What a pool's sum over an input of size `spatial` is divided by at each position along each axis; the divisor is
    /// their product.
    pub(crate) fn divisors(&self, spatial: &[usize], divisor: Divisor) -> Vec<Vec<usize>> {
        let along = |axis: usize| {
            let (before, after) = self.pad[axis];
            let end = match divisor {
                Divisor::Covered => before + spatial[axis],
                Divisor::Padded | Divisor::One => before + spatial[axis] + after,
            };
            let start = if divisor == Divisor::Covered { before } else { 0 };
            let positions = self.positions(axis, spatial[axis]).unwrap_or(0);
            let inside = |p: usize| {
                let taps = (0..self.kernel[axis]).map(|k| p * self.stride[axis] + k * self.dilation[axis]);
                taps.filter(|t| (start..end).contains(t)).count()
            };
            (0..positions).map(inside).collect()
        };
        (0..self.axes()).map(along).collect()
    }
}

/// What an average is divided by where the window hangs over the edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Divisor {
    /// The number of input elements covered.
    Covered,
    /// The number of input and padding elements covered (`count_include_pad`).
    Padded,
    /// One: the pool is a sum.
    One,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_follow_pytorchs_formula() {
        let mut window = Window::new([3]);
        window.stride = vec![2];
        assert_eq!(window.positions(0, 7), Some(3));
        assert_eq!(window.positions(0, 8), Some(3));
        assert_eq!(window.positions(0, 2), None);
        window.ceil = true;
        assert_eq!(window.positions(0, 8), Some(4));
        window.pad = vec![(1, 1)];
        window.kernel = vec![2];
        assert_eq!(window.positions(0, 3), Some(2), "a window may not start in the padding after the input");
    }
}
