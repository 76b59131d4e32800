//! How people see a colour, for the tests of colours: lightness as CIELAB has it, differences as OKLab has
//! them, and both through eyes that lack the cones for green or red.

use crate::colour::Rgb;

/// What an eye makes of linear-light red, green and blue.
pub(crate) type Eye = [[f64; 3]; 3];

pub(crate) const FULL_SIGHT: Eye = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];

/// Full sight, then deuteranopia and protanopia as Machado, Oliveira and Fernandes (2009, severity 1) and as
/// Viénot, Brettel and Mollon (1999) simulate them.
pub(crate) const EYES: [Eye; 5] = [
    FULL_SIGHT,
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    [[0.29275, 0.70725, 0.0], [0.29275, 0.70725, 0.0], [-0.02234, 0.02234, 1.0]],
    [[0.11238, 0.88762, 0.0], [0.11238, 0.88762, 0.0], [0.00401, -0.00401, 1.0]],
];

/// OKLab of `rgb` as `eye` sees it.
pub(crate) fn seen(rgb: Rgb, eye: &Eye) -> [f64; 3] {
    let light = decoded(rgb);
    oklab(eye.map(|row| (0..3).map(|i| row[i] * light[i]).sum::<f64>().clamp(0.0, 1.0)))
}

/// CIELAB under daylight (D65).
pub(crate) fn cielab(rgb: Rgb) -> [f64; 3] {
    let light = decoded(rgb);
    let row = |weights: [f64; 3], white: f64| {
        let share = (0..3).map(|i| weights[i] * light[i]).sum::<f64>() / white;
        if share > 216.0 / 24389.0 { share.cbrt() } else { (24389.0 / 27.0 * share + 16.0) / 116.0 }
    };
    let x = row([0.4124564, 0.3575761, 0.1804375], 0.9504700);
    let y = row([0.2126729, 0.7151522, 0.0721750], 1.0);
    let z = row([0.0193339, 0.1191920, 0.9503041], 1.0888300);
    [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
}

fn decoded(rgb: Rgb) -> [f64; 3] {
    rgb.map(|byte| {
        let v = f64::from(byte) / 255.0;
        if v <= 0.04045 { v / 12.92 } else { ((v + 0.055) / 1.055).powf(2.4) }
    })
}

fn oklab([r, g, b]: [f64; 3]) -> [f64; 3] {
    let l = (0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b).cbrt();
    let m = (0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b).cbrt();
    let s = (0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b).cbrt();
    [
        0.2104542553 * l + 0.7936177850 * m - 0.0040720468 * s,
        1.9779984951 * l - 2.4285922050 * m + 0.4505937099 * s,
        0.0259040371 * l + 0.7827717662 * m - 0.8086757660 * s,
    ]
}
