//! Numbers in short form, as on a colour bar.

/// `value` with three significant digits and nothing needless: `0.3`, `-12.5`, `1.2e-5`.
pub fn number(value: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    if !value.is_finite() {
        return value.to_string();
    }
    // Rounding first tells how many digits stand before the point: 0.9996 becomes 1.
    let scientific = format!("{value:.2e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    match exponent {
        -3..=1 => trimmed(&format!("{value:.*}", (2 - exponent) as usize)).into(),
        2..=4 => format!("{value:.0}"),
        _ => format!("{}e{exponent}", trimmed(mantissa)),
    }
}

fn trimmed(decimal: &str) -> &str {
    if decimal.contains('.') { decimal.trim_end_matches('0').trim_end_matches('.') } else { decimal }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_back_as_they_were_to_three_digits() {
        for value in
            [0.3, -12.5, 1.2e-5, 0.9996, 99999.0, 1e30, -0.00123, 123.4, 5e-324, f64::from(f32::MAX), 0.001]
        {
            let read: f64 = number(value).parse().unwrap();
            assert!((read - value).abs() <= 0.005 * value.abs(), "{value} {}", number(value));
            assert!(number(value).chars().count() <= 9, "{}", number(value));
        }
    }

    #[test]
    fn round_numbers_are_written_short() {
        let written = [0.0, -0.0, 0.3, 1.0, 100.0, -2.5, 1e-9].map(number);
        assert_eq!(written, ["0", "0", "0.3", "1", "100", "-2.5", "1e-9"]);
    }
}
