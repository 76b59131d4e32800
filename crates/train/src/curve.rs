//! The course of a training as a drawing: losses and errors over epochs, on logarithmic scales.

use std::fmt::Write;

use crate::state::Epoch;

const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 240.0;
const MARGIN: f64 = 48.0;

/// One line of a plot.
struct Line {
    name: &'static str,
    colour: &'static str,
    values: Vec<f64>,
}

/// An SVG of two plots side by side: loss, and share of samples got wrong.
pub(crate) fn curves(title: &str, epochs: &[Epoch]) -> String {
    let of = |value: fn(&Epoch) -> f64| epochs.iter().map(value).collect::<Vec<f64>>();
    let loss = [
        Line { name: "training", colour: "#8a8a8a", values: of(|e| e.train_loss) },
        Line { name: "validation", colour: "#d08020", values: of(|e| e.validation_loss) },
        Line { name: "test", colour: "#2060c0", values: of(|e| e.test_loss) },
    ];
    let error = [
        Line { name: "training", colour: "#8a8a8a", values: of(|e| 100.0 * (1.0 - e.train_accuracy)) },
        Line { name: "test", colour: "#2060c0", values: of(|e| 100.0 * (1.0 - e.test_accuracy)) },
    ];
    let (width, height) = (2.0 * (WIDTH + MARGIN) + MARGIN, HEIGHT + 2.0 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n\
         <text x=\"{MARGIN}\" y=\"20\" font-size=\"14\">{}</text>\n",
        escaped(title)
    );
    plot(&mut svg, MARGIN, "loss", &loss);
    plot(&mut svg, 2.0 * MARGIN + WIDTH, "error in %", &error);
    svg.push_str("</svg>\n");
    svg
}

fn plot(svg: &mut String, left: f64, title: &str, lines: &[Line]) {
    let shown = || lines.iter().flat_map(|line| &line.values).copied().filter(|v| v.is_finite() && *v > 0.0);
    let low = shown().fold(f64::INFINITY, f64::min);
    let high = shown().fold(0.0, f64::max);
    let (low, high) = if low < high { (low.log10(), high.log10()) } else { (-1.0, 1.0) };
    let count = lines.iter().map(|line| line.values.len()).max().unwrap_or(1);
    let x = |index: usize| left + WIDTH * index as f64 / (count.max(2) - 1) as f64;
    let y = |value: f64| MARGIN + HEIGHT * (1.0 - (value.log10() - low) / (high - low));
    let _ = writeln!(
        svg,
        "<rect x=\"{left}\" y=\"{MARGIN}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"none\" stroke=\"#c0c0c0\"/>\n\
         <text x=\"{left}\" y=\"{}\">{title}</text>\n<text x=\"{}\" y=\"{}\" text-anchor=\"end\">epoch {count}</text>",
        MARGIN - 6.0,
        left + WIDTH,
        MARGIN + HEIGHT + 16.0,
    );
    for exponent in low.floor() as i32..=high.ceil() as i32 {
        for digit in [1.0, 2.0, 5.0] {
            let value = digit * 10f64.powi(exponent);
            if (low..=high).contains(&value.log10()) {
                let (at, end) = (y(value), left + WIDTH);
                let _ = writeln!(
                    svg,
                    "<path d=\"M{left} {at:.1}H{end}\" stroke=\"#e8e8e8\"/><text x=\"{}\" y=\"{:.1}\" \
                     text-anchor=\"end\">{value}</text>",
                    left - 4.0,
                    at + 4.0
                );
            }
        }
    }
    for (row, line) in lines.iter().filter(|line| line.values.iter().any(|v| v.is_finite())).enumerate() {
        let points = line.values.iter().enumerate().filter(|(_, v)| v.is_finite() && **v > 0.0);
        let points: Vec<String> = points.map(|(i, &v)| format!("{:.1},{:.1}", x(i), y(v))).collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\"/>\n\
             <text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"{}\">{}</text>",
            points.join(" "),
            line.colour,
            left + WIDTH - 8.0,
            MARGIN + 16.0 + 14.0 * row as f64,
            line.colour,
            line.name
        );
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_epoch_is_a_point_and_what_is_no_number_is_left_out() {
        let epoch = Epoch {
            train_loss: 0.5,
            train_accuracy: 0.9,
            validation_loss: f64::NAN,
            test_loss: 0.25,
            test_accuracy: 1.0,
            seconds: 1.0,
        };
        let svg = curves("a < b", &[epoch, Epoch { train_loss: 0.125, ..epoch }]);
        assert!(svg.contains("a &lt; b") && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        assert_eq!(svg.matches("<polyline").count(), 4);
        assert!(!curves("", &[]).contains("NaN"));
    }
}
