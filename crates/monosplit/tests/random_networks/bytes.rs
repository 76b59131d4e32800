//! Choices and numbers read from bytes; when they have run out, everything is zero.

use monosplit::graph::Tensor;

/// Numbers that arithmetic stumbles over.
const ODD: [f32; 12] = [
    0.0,
    -0.0,
    1.0,
    1e30,
    -1e30,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
    1e-40,
    f32::MIN_POSITIVE,
    f32::MAX,
    f32::EPSILON,
];

/// The bytes, and how far they have been read.
pub(crate) struct Bytes<'a> {
    rest: &'a [u8],
    /// What numbers are drawn from: two bytes would be too few for a tensor each.
    state: u64,
}

impl<'a> Bytes<'a> {
    pub(crate) fn new(rest: &'a [u8]) -> Self {
        let seed = |state: u64, byte: &u8| (state ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        Bytes { rest, state: rest.iter().fold(0xcbf2_9ce4_8422_2325, seed) | 1 }
    }

    fn next(&mut self) -> u8 {
        let Some((&first, rest)) = self.rest.split_first() else { return 0 };
        self.rest = rest;
        first
    }

    /// A number below `count`.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        usize::from(self.next()) % count.max(1)
    }

    pub(crate) fn flag(&mut self) -> bool {
        self.next() & 1 == 1
    }

    /// A number, mostly an ordinary one.
    pub(crate) fn number(&mut self) -> f64 {
        match self.below(4) {
            0 => f64::from(ODD[self.below(ODD.len())]),
            _ => f64::from(self.drawn()),
        }
    }

    /// A tensor of ordinary numbers, with odd ones among them where a byte says so.
    pub(crate) fn tensor(&mut self, shape: &[usize]) -> Tensor {
        let mut values: Vec<f32> = (0..shape.iter().product()).map(|_| self.drawn()).collect();
        match self.below(12) {
            0 => values.fill(ODD[self.below(ODD.len())]),
            1 | 2 if !values.is_empty() => {
                let at = self.below(values.len());
                values[at] = ODD[self.below(ODD.len())];
            }
            _ => {}
        }
        Tensor::new(shape, values).expect("as many numbers as the shape has elements")
    }

    /// Between −2 and 2.
    fn drawn(&mut self) -> f32 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 40) as f32 / (1u64 << 22) as f32 - 2.0
    }
}
