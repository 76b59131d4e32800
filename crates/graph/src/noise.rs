//! Pseudo-random numbers by counter: number `i` of a stream is a function of the seed, the stream and `i` alone. So
//! the numbers of a step are available without drawing those before it, with the same bits on any machine.

/// A stream of pseudo-random numbers.
///
/// ```
/// use monosplit_graph::Noise;
///
/// let noise = Noise::new(7).stream("weights");
/// assert_eq!(noise.uniform(1000), Noise::new(7).stream("weights").uniform(1000));
/// assert_ne!(noise.uniform(1000), noise.stream("first").uniform(1000));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noise(u64);

/// The odd number closest to 2⁶⁴ over the golden ratio: multiples of it are spread evenly.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finaliser of SplitMix64 (Steele, Lea and Flood 2014).
fn mixed(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Noise {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        Noise(mixed(seed.wrapping_add(GOLDEN)))
    }

    /// A stream of its own for whatever goes by this name.
    pub fn stream(self, name: &str) -> Self {
        let key = name.bytes().fold(self.0, |key, byte| mixed(key ^ u64::from(byte)).wrapping_add(GOLDEN));
        Noise(mixed(key))
    }

    /// A stream of its own for a number: an epoch, a sample.
    pub fn numbered(self, number: u64) -> Self {
        Noise(mixed(self.0 ^ mixed(number.wrapping_add(GOLDEN))))
    }

    /// 64 random bits.
    pub fn bits(self, index: u64) -> u64 {
        mixed(self.0.wrapping_add(index.wrapping_add(1).wrapping_mul(GOLDEN)))
    }

    /// A number between 0 and 1, 1 excluded.
    pub fn uniform(self, index: u64) -> f64 {
        (self.bits(index) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number from the normal distribution of mean 0 and variance 1, by Box and Muller.
    pub fn gaussian(self, index: u64) -> f64 {
        let (radius, angle) = (self.uniform(index.wrapping_mul(2)), self.uniform(index.wrapping_mul(2) + 1));
        (-2.0 * (1.0 - radius).ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
    }

    /// The numbers below `count` in random order.
    pub fn permutation(self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        for last in (1..count).rev() {
            let range = last as u128 + 1;
            let pick = (u128::from(self.bits(last as u64)) * range) >> 64;
            order.swap(last, pick as usize);
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_of_the_distributions() {
        let noise = Noise::new(3);
        let count = 200_000u64;
        let mean = |f: &dyn Fn(u64) -> f64| (0..count).map(f).sum::<f64>() / count as f64;
        assert!((mean(&|i| noise.uniform(i)) - 0.5).abs() < 3e-3);
        assert!((mean(&|i| noise.uniform(i).powi(2)) - 1.0 / 3.0).abs() < 3e-3);
        assert!(mean(&|i| noise.gaussian(i)).abs() < 1e-2);
        assert!((mean(&|i| noise.gaussian(i).powi(2)) - 1.0).abs() < 2e-2);
        assert!((mean(&|i| noise.gaussian(i).powi(4)) - 3.0).abs() < 1e-1);
    }

    #[test]
    fn neighbouring_numbers_and_streams_are_uncorrelated() {
        let noise = Noise::new(0);
        let pairs = [
            |n: Noise, i: u64| (n.uniform(i), n.uniform(i + 1)),
            |n: Noise, i: u64| (n.uniform(i), n.stream("other").uniform(i)),
            |n: Noise, i: u64| (n.numbered(i).uniform(0), n.numbered(i + 1).uniform(0)),
            |_, i: u64| (Noise::new(i).uniform(0), Noise::new(i + 1).uniform(0)),
        ];
        for pair in pairs {
            let product = |i| {
                let (a, b) = pair(noise, i);
                (a - 0.5) * (b - 0.5) * 12.0
            };
            let correlation = (0..100_000).map(product).sum::<f64>() / 1e5;
            assert!(correlation.abs() < 0.02, "{correlation}");
        }
    }

    #[test]
    fn a_permutation_holds_every_number_once_and_every_place_alike() {
        let mut order = Noise::new(5).permutation(1000);
        assert_ne!(order, (0..1000).collect::<Vec<_>>());
        order.sort_unstable();
        assert_eq!(order, (0..1000).collect::<Vec<_>>());
        let mut counts = [[0; 4]; 4];
        for trial in 0..4000 {
            for (place, value) in Noise::new(9).numbered(trial).permutation(4).into_iter().enumerate() {
                counts[place][value] += 1;
            }
        }
        assert!(counts.iter().flatten().all(|count| (880..1120).contains(count)), "{counts:?}");
    }
}
