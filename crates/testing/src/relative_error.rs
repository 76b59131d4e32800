//! How far computed numbers are from expected ones.

/// The largest difference over the largest expected magnitude. Infinite where lengths differ, where one number is finite and
/// the other is not, and where infinities differ.
pub fn relative_error(found: &[f64], expected: &[f64]) -> f64 {
    if found.len() != expected.len() {
        return f64::INFINITY;
    }
    let finite = expected.iter().filter(|v| v.is_finite());
    let scale = finite.fold(0f64, |most, v| most.max(v.abs())).max(f64::MIN_POSITIVE);
    let differences = found.iter().zip(expected).map(|(f, e)| match (f.is_finite(), e.is_finite()) {
        (true, true) => (f - e).abs() / scale,
        _ if f == e || (f.is_nan() && e.is_nan()) => 0.0,
        _ => f64::INFINITY,
    });
    differences.fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_relative_to_the_largest_expected_number() {
        assert_eq!(relative_error(&[1.0, -4.0], &[2.0, -4.0]), 0.25);
        assert_eq!(relative_error(&[], &[]), 0.0);
    }

    #[test]
    fn what_is_not_finite_must_be_the_same() {
        let (nan, infinity) = (f64::NAN, f64::INFINITY);
        assert_eq!(relative_error(&[nan, infinity, 1.0], &[nan, infinity, 1.0]), 0.0);
        for (found, expected) in [(nan, 1.0), (1.0, nan), (infinity, -infinity), (nan, infinity)] {
            assert_eq!(relative_error(&[found], &[expected]), infinity, "{found} {expected}");
        }
        assert_eq!(relative_error(&[1.0], &[1.0, 1.0]), infinity);
    }
}
