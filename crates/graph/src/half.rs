//! Sixteen-bit floating point numbers, converted from and to single precision. Files store them and casts round to
//! them; nothing computes with them.

/// The IEEE 754 half-precision number with these bits, exactly.
pub(crate) fn f16_to_f32(bits: u16) -> f32 {
    let sign = u32::from(bits & 0x8000) << 16;
    let exponent = u32::from(bits >> 10 & 0x1f);
    let fraction = u32::from(bits & 0x03ff);
    match exponent {
        0 => {
            let magnitude = fraction as f32 * f32::from_bits(0x3380_0000);
            f32::from_bits(sign | magnitude.to_bits())
        }
        0x1f => f32::from_bits(sign | 0x7f80_0000 | fraction << 13),
        _ => f32::from_bits(sign | (exponent + 112) << 23 | fraction << 13),
    }
}

/// The bfloat16 number with these bits, exactly.
pub(crate) fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The half-precision number nearest to `value`, ties to the even one; what is too large becomes infinite.
pub(crate) fn f32_to_f16(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = (bits >> 16 & 0x8000) as u16;
    let magnitude = bits & 0x7fff_ffff;
    if magnitude > 0x7f80_0000 {
        // The quiet bit keeps a NaN a NaN when its payload does not survive.
        return sign | 0x7e00 | (magnitude >> 13 & 0x03ff) as u16;
    }
    let exponent = (magnitude >> 23) as i32 - 112;
    if exponent >= 0x1f {
        return sign | 0x7c00;
    }
    let (significand, dropped) = if exponent > 0 {
        (magnitude - (112 << 23), 13)
    } else if exponent >= -10 {
        (magnitude & 0x007f_ffff | 0x0080_0000, (14 - exponent) as u32)
    } else {
        return sign;
    };
    let kept = significand >> dropped;
    let rest = significand & ((1 << dropped) - 1);
    let half = 1 << (dropped - 1);
    // A carry out of the fraction is right as it is: it lands in the exponent, up to infinity.
    let up = rest > half || (rest == half && kept & 1 == 1);
    sign | (kept + u32::from(up)) as u16
}

/// The half-precision number nearest to `value`, ties to the even one.
pub fn round_to_half(value: f32) -> f32 {
    f16_to_f32(f32_to_f16(value))
}

/// The bfloat16 number nearest to `value`, ties to the even one.
pub fn round_to_bfloat16(value: f32) -> f32 {
    if value.is_nan() {
        return value;
    }
    let bits = value.to_bits();
    // A carry out of the fraction lands in the exponent, up to infinity.
    bf16_to_f32((bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_follows_the_formula_of_ieee_754() {
        for bits in 0..=u16::MAX {
            let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
            let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023) / 1024.0);
            let value = f16_to_f32(bits);
            match exponent {
                31 if fraction == 0.0 => assert_eq!(f64::from(value), sign * f64::INFINITY),
                31 => assert!(value.is_nan()),
                0 => assert_eq!(f64::from(value), sign * fraction * 2f64.powi(-14)),
                _ => assert_eq!(f64::from(value), sign * (1.0 + fraction) * 2f64.powi(exponent - 15)),
            }
            assert_eq!(value.is_sign_negative(), sign < 0.0);
        }
    }

    #[test]
    fn rounding_gives_back_every_half() {
        for bits in 0..=u16::MAX {
            let value = f16_to_f32(bits);
            if value.is_nan() {
                assert!(f16_to_f32(f32_to_f16(value)).is_nan());
            } else {
                assert_eq!(f32_to_f16(value), bits);
            }
        }
    }

    #[test]
    fn between_neighbours_the_nearest_wins_and_ties_go_to_even() {
        for low in 0..0x7bffu16 {
            let middle = (f16_to_f32(low) + f16_to_f32(low + 1)) / 2.0;
            assert_eq!(f32_to_f16(middle), low + (low & 1), "tie above {low:#06x}");
            assert_eq!(f32_to_f16(middle.next_down()), low);
            assert_eq!(f32_to_f16(middle.next_up()), low + 1);
            assert_eq!(f32_to_f16(-middle.next_up()), 0x8000 | (low + 1));
        }
        assert_eq!(f32_to_f16(65520f32.next_down()), 0x7bff);
        assert_eq!(f32_to_f16(65520.0), 0x7c00);
        assert_eq!(f32_to_f16(f32::MAX), 0x7c00);
        assert_eq!(f32_to_f16(f32::MIN_POSITIVE), 0);
    }

    #[test]
    fn bfloat16_rounds_to_the_nearest_and_ties_to_even() {
        for low in 0..0x7f7fu16 {
            let (below, above) = (bf16_to_f32(low), bf16_to_f32(low + 1));
            let middle = f32::from_bits(u32::from(low) << 16 | 0x8000);
            assert_eq!(round_to_bfloat16(middle), if low & 1 == 0 { below } else { above });
            assert_eq!(round_to_bfloat16(middle.next_down()), below);
            assert_eq!(round_to_bfloat16(-middle.next_up()), -above);
        }
        assert_eq!(round_to_bfloat16(f32::MAX), f32::INFINITY);
        assert!(round_to_bfloat16(f32::from_bits(0x7f80_0001)).is_nan());
    }

    #[test]
    fn bfloat16_is_the_upper_half_of_single_precision() {
        assert_eq!(bf16_to_f32(0x3f80), 1.0);
        assert_eq!(bf16_to_f32(0xc0a0), -5.0);
        assert!(bf16_to_f32(0x7fc0).is_nan());
    }
}
