//! The inverse cosine transform, in the integers libjpeg calls "islow": Loeffler, Ligtenberg and
//! Moschytz' eleven multiplications, constants of 13 bits, two more bits kept between the passes.

const CONSTANT_BITS: u32 = 13;
const PASS_BITS: u32 = 2;

/// The 8×8 samples of a block of coefficients in natural order.
pub(super) fn inverse(block: &[i16; 64], quantisation: &[u16; 64]) -> [[u8; 8]; 8] {
    let mut columns = [[0i32; 8]; 8];
    for x in 0..8 {
        let column =
            std::array::from_fn(|y| i32::from(block[y * 8 + x]) * i32::from(quantisation[y * 8 + x]));
        columns[x] = if column[1..] == [0; 7] {
            [column[0] << PASS_BITS; 8]
        } else {
            pass(column, CONSTANT_BITS - PASS_BITS)
        };
    }
    std::array::from_fn(|y| {
        let row = std::array::from_fn(|x| columns[x][y]);
        pass(row, CONSTANT_BITS + PASS_BITS + 3).map(|v| v.saturating_add(128).clamp(0, 255) as u8)
    })
}

/// One dimension of the transform, divided by `2^shift` and rounded. Only a corrupt file can make the
/// arithmetic wrap.
fn pass(input: [i32; 8], shift: u32) -> [i32; 8] {
    let even = even_part(input[0], input[2], input[4], input[6]);
    let odd = odd_part(input[1], input[3], input[5], input[7]);
    let round = |v: i32| v.wrapping_add(1 << (shift - 1)) >> shift;
    std::array::from_fn(|i| match i {
        0..4 => round(even[i].wrapping_add(odd[i])),
        _ => round(even[7 - i].wrapping_sub(odd[7 - i])),
    })
}

fn even_part(c0: i32, c2: i32, c4: i32, c6: i32) -> [i32; 4] {
    let z = c2.wrapping_add(c6).wrapping_mul(4433);
    let low = z.wrapping_sub(c6.wrapping_mul(15137));
    let high = z.wrapping_add(c2.wrapping_mul(6270));
    let sum = c0.wrapping_add(c4).wrapping_shl(CONSTANT_BITS);
    let difference = c0.wrapping_sub(c4).wrapping_shl(CONSTANT_BITS);
    [
        sum.wrapping_add(high),
        difference.wrapping_add(low),
        difference.wrapping_sub(low),
        sum.wrapping_sub(high),
    ]
}

fn odd_part(c1: i32, c3: i32, c5: i32, c7: i32) -> [i32; 4] {
    let z1 = c7.wrapping_add(c1).wrapping_mul(-7373);
    let z2 = c5.wrapping_add(c3).wrapping_mul(-20995);
    let z3 = c7.wrapping_add(c3);
    let z4 = c5.wrapping_add(c1);
    let z5 = z3.wrapping_add(z4).wrapping_mul(9633);
    let z3 = z3.wrapping_mul(-16069).wrapping_add(z5);
    let z4 = z4.wrapping_mul(-3196).wrapping_add(z5);
    [
        c1.wrapping_mul(12299).wrapping_add(z1).wrapping_add(z4),
        c3.wrapping_mul(25172).wrapping_add(z2).wrapping_add(z3),
        c5.wrapping_mul(16819).wrapping_add(z2).wrapping_add(z4),
        c7.wrapping_mul(2446).wrapping_add(z1).wrapping_add(z3),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition, in double precision.
    fn reference(block: &[i16; 64]) -> Vec<f64> {
        let cosine = |x: usize, u: usize| {
            let norm = if u == 0 { 0.125f64.sqrt() } else { 0.5 };
            norm * ((2 * x + 1) as f64 * u as f64 * std::f64::consts::PI / 16.0).cos()
        };
        let sample = |i: usize| {
            let terms = (0..64).map(|k| f64::from(block[k]) * cosine(i / 8, k / 8) * cosine(i % 8, k % 8));
            terms.sum::<f64>() + 128.0
        };
        (0..64).map(sample).collect()
    }

    #[test]
    fn it_is_the_cosine_transform_but_for_rounding() {
        let mut state = 1u32;
        for _ in 0..50 {
            let block = std::array::from_fn(|k| {
                state = state.wrapping_mul(1664525).wrapping_add(1013904223);
                ((state >> 24) as i16 - 128) / (1 + k as i16 / 4)
            });
            for (found, expected) in inverse(&block, &[1; 64]).as_flattened().iter().zip(reference(&block)) {
                assert!((f64::from(*found) - expected.clamp(0.0, 255.0)).abs() < 0.6, "{found} {expected}");
            }
        }
    }

    #[test]
    fn extreme_coefficients_do_not_overflow() {
        for value in [i16::MIN, i16::MAX] {
            inverse(&[value; 64], &[u16::MAX; 64]);
        }
    }
}
