//! Enlarging reduced colour planes to the size of the picture, as libjpeg-turbo's "fancy upsampling" does:
//! planes halved across, down or both are interpolated between sample centres with weights ¾ and ¼;
//! any other reduction is undone by repeating samples.

use super::frame::Component;

/// Writes row `y` of the picture, at least `out.len()` wide, from a plane of possibly fewer samples.
pub(super) fn row(component: &Component, y: usize, out: &mut [u8]) {
    let wide = component.size.0 > 2;
    match component.step {
        (1, 1) => out.copy_from_slice(&component.row(y)[..out.len()]),
        (2, 1) if wide => across(component.row(y), out),
        (2, 2) if wide => across_and_down(component.row(y / 2), neighbour(component, y), out),
        (1, 2) => down(component.row(y / 2), neighbour(component, y), y % 2, out),
        (columns, rows) => {
            let samples = component.row(y / rows);
            for (x, value) in out.iter_mut().enumerate() {
                *value = samples[x / columns];
            }
        }
    }
}

/// The row of samples next nearest to row `y` of the picture; at the rim, the nearest itself.
fn neighbour(component: &Component, y: usize) -> &[u8] {
    let nearest = y / 2;
    match y % 2 {
        0 => component.row(nearest.saturating_sub(1)),
        _ => component.row((nearest + 1).min(component.size.1 - 1)),
    }
}

fn across(samples: &[u8], out: &mut [u8]) {
    let at = |x: usize| u32::from(samples[x]);
    for (x, value) in out.iter_mut().enumerate() {
        let near = x / 2;
        *value = match x % 2 {
            0 if near == 0 => samples[0],
            0 => ((3 * at(near) + at(near - 1) + 1) >> 2) as u8,
            _ if near + 1 == samples.len() => samples[near],
            _ => ((3 * at(near) + at(near + 1) + 2) >> 2) as u8,
        };
    }
}

fn across_and_down(nearest: &[u8], next: &[u8], out: &mut [u8]) {
    let at = |x: usize| 3 * u32::from(nearest[x]) + u32::from(next[x]);
    for (x, value) in out.iter_mut().enumerate() {
        let near = x / 2;
        let sum = match x % 2 {
            0 if near == 0 => 4 * at(0) + 8,
            0 => 3 * at(near) + at(near - 1) + 8,
            _ if near + 1 == nearest.len() => 4 * at(near) + 7,
            _ => 3 * at(near) + at(near + 1) + 7,
        };
        *value = (sum >> 4) as u8;
    }
}

fn down(nearest: &[u8], next: &[u8], parity: usize, out: &mut [u8]) {
    let bias = 1 + parity as u32;
    for ((value, &near), &far) in out.iter_mut().zip(nearest).zip(next) {
        *value = ((3 * u32::from(near) + u32::from(far) + bias) >> 2) as u8;
    }
}
