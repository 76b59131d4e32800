//! An axis: a range of round numbers that holds the data, and its ticks.

/// Data beyond this would overflow when its range is taken.
const FARTHEST: f64 = 1e300;

/// A range from one round number to another and the ticks between.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Axis {
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) ticks: Vec<Tick>,
}

/// A value and how it is written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tick {
    pub(crate) value: f64,
    pub(crate) label: String,
}

impl Axis {
    /// The axis that holds every finite one of `values` with about `wanted` ticks.
    pub(crate) fn spanning(values: impl IntoIterator<Item = f64>, wanted: usize) -> Self {
        let finite = values.into_iter().filter(|v| v.is_finite()).map(|v| v.clamp(-FARTHEST, FARTHEST));
        let (low, high) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
        let (low, high) = if low <= high { (low, high) } else { (0.0, 1.0) };
        // Numbers that agree in nine digits are one number on paper.
        let least = (low.abs().max(high.abs()) * 1e-9).max(f64::MIN_POSITIVE * 1e16);
        let (low, high) = match high - low {
            span if span > least => (low, high),
            _ if low == 0.0 => (0.0, 1.0),
            _ => (low - 0.5 * low.abs(), high + 0.5 * high.abs()),
        };
        let step = round_step((high - low) / wanted.max(1) as f64);
        let (first, last) = ((low / step).floor(), (high / step).ceil());
        let count = (last - first).clamp(1.0, 4.0 * wanted.max(1) as f64) as usize;
        let largest = (first * step).abs().max((last * step).abs());
        let tick = |i: usize| {
            let value = (first + i as f64) * step;
            Tick { value, label: written(value, step, largest) }
        };
        Axis { low: first * step, high: last * step, ticks: (0..=count).map(tick).collect() }
    }

    /// How far along the axis `value` lies, 0 to 1.
    pub(crate) fn share(&self, value: f64) -> f64 {
        (value.clamp(-FARTHEST, FARTHEST) - self.low) / (self.high - self.low)
    }
}

/// The smallest of 1, 2 and 5 times a power of ten that is not below `step`.
fn round_step(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    [1.0, 2.0, 5.0]
        .into_iter()
        .map(|times| times * power)
        .find(|&round| round >= step)
        .unwrap_or(10.0 * power)
}

/// `value` with as many digits as it takes to tell it from its neighbours `step` away.
fn written(value: f64, step: f64, largest: f64) -> String {
    let place = |v: f64| (v.log10() + 1e-9).floor() as i32;
    let text = if value == 0.0 {
        "0".to_string()
    } else if (1e-3..1e5).contains(&largest) {
        let digits = usize::try_from(-place(step)).unwrap_or(0).min(12);
        format!("{value:.digits$}")
    } else {
        let digits = usize::try_from(place(value.abs()) - place(step)).unwrap_or(0).min(12);
        format!("{value:.digits$e}")
    };
    text.replace('-', "−")
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGES: [(f64, f64); 12] = [
        (0.0, 1.0),
        (-0.013, 0.027),
        (3.0, 3.0),
        (0.0, 0.0),
        (-5.0, -5.0),
        (1e-12, 3e-12),
        (-2e30, 7e31),
        (-f64::MAX, f64::MAX),
        (1e9, 1e9 + 7.0),
        (0.999, 1.001),
        (0.0, f64::MIN_POSITIVE),
        (17.0, 93215.0),
    ];

    #[test]
    fn every_axis_holds_its_data_with_a_few_different_ticks() {
        for (low, high) in RANGES {
            let axis = Axis::spanning([low, high, f64::NAN, f64::INFINITY], 5);
            for value in [low, high] {
                let share = axis.share(value);
                assert!((-1e-9..=1.0 + 1e-9).contains(&share), "{low} {high}: {axis:?}");
            }
            assert!((2..=12).contains(&axis.ticks.len()), "{low} {high}: {axis:?}");
            for pair in axis.ticks.windows(2) {
                assert!(pair[0].value < pair[1].value, "{axis:?}");
                assert_ne!(pair[0].label, pair[1].label, "{axis:?}");
            }
        }
    }

    #[test]
    fn labels_say_the_values() {
        for (low, high) in RANGES {
            let axis = Axis::spanning([low, high], 5);
            let step = axis.ticks[1].value - axis.ticks[0].value;
            for tick in &axis.ticks {
                let read: f64 = tick.label.replace('−', "-").parse().unwrap();
                assert!((read - tick.value).abs() <= 1e-6 * step, "{axis:?}");
            }
        }
        let labels: Vec<String> = Axis::spanning([0.0, 1.0], 5).ticks.into_iter().map(|t| t.label).collect();
        assert_eq!(labels, ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
    }

    #[test]
    fn without_data_there_is_still_an_axis() {
        assert_eq!(Axis::spanning([], 5), Axis::spanning([0.0, 1.0], 5));
        assert_eq!(Axis::spanning([f64::NAN], 5), Axis::spanning([0.0, 1.0], 5));
    }
}
