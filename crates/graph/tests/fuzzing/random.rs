//! Numbers that look random and are the same in every run.

pub(crate) struct Random(u64);

/// Numbers at which counters, lengths and signs turn over.
const TURNING_POINTS: [u64; 20] = [
    0,
    1,
    2,
    3,
    7,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0x8000,
    0xffff,
    1 << 20,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 40,
    i64::MAX as u64,
    i64::MIN as u64,
    u64::MAX - 1,
    u64::MAX,
];

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// The next number, by splitmix64.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number less than `bound`; 0 if there is none.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    /// One of `items`, if there are any.
    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.below(items.len()))
    }

    /// A number that a reader may stumble over.
    pub(crate) fn odd_number(&mut self, before: u64) -> u64 {
        match self.below(4) {
            0 => before.wrapping_add(1),
            1 => before.wrapping_sub(1),
            2 => before.wrapping_mul(self.next() & 0xff),
            _ => TURNING_POINTS[self.below(TURNING_POINTS.len())],
        }
    }
}
