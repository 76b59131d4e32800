//! From colour planes to RGB, with libjpeg's 16-bit constants and, for printing inks, Pillow's formula.

use super::frame::Frame;
use super::upsample;
use crate::cmyk;
use crate::decoded::{Decoded, DecodedPixels};

/// What the planes of a JPEG mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Space {
    Grey,
    Rgb,
    YCbCr,
    Cmyk,
    Ycck,
}

/// Libjpeg's guess, in the absence of anything in the format that would say.
fn space(ids: &[u8], jfif: bool, adobe: Option<u8>) -> Space {
    match (ids, adobe) {
        ([_], _) => Space::Grey,
        ([_, _, _], _) if jfif => Space::YCbCr,
        ([_, _, _], Some(0)) => Space::Rgb,
        ([_, _, _], Some(_)) => Space::YCbCr,
        (b"RGB", None) => Space::Rgb,
        ([_, _, _], None) => Space::YCbCr,
        (_, None | Some(0)) => Space::Cmyk,
        (_, Some(_)) => Space::Ycck,
    }
}

/// The pixels of a finished frame.
pub(super) fn decoded(frame: &Frame, jfif: bool, adobe: Option<u8>) -> Decoded {
    let ids: Vec<u8> = frame.components.iter().map(|component| component.id).collect();
    let space = space(&ids, jfif, adobe);
    let mut planes = vec![vec![0; frame.width]; ids.len()];
    let mut rgb = Vec::with_capacity(frame.width * frame.height * 3);
    for y in 0..frame.height {
        for (component, plane) in frame.components.iter().zip(&mut planes) {
            upsample::row(component, y, plane);
        }
        match (&planes[..], space) {
            ([grey], _) => rgb.extend(grey.iter().flat_map(|&v| [v; 3])),
            ([a, b, c, rest @ ..], _) => {
                for x in 0..frame.width {
                    let first = match space {
                        Space::YCbCr | Space::Ycck => ycc_to_rgb(a[x], b[x], c[x]),
                        _ => [a[x], b[x], c[x]],
                    };
                    rgb.extend(match rest.first() {
                        Some(black) => inks_to_rgb(first, black[x], space),
                        None => first,
                    });
                }
            }
            _ => {}
        }
    }
    Decoded::new(frame.width, frame.height, DecodedPixels::Rgb(rgb))
}

fn ycc_to_rgb(y: u8, cb: u8, cr: u8) -> [u8; 3] {
    const HALF: i32 = 1 << 15;
    let (y, cb, cr) = (i32::from(y), i32::from(cb) - 128, i32::from(cr) - 128);
    let red = y + ((91881 * cr + HALF) >> 16);
    let green = y + ((-22554 * cb - 46802 * cr + HALF) >> 16);
    let blue = y + ((116130 * cb + HALF) >> 16);
    [red, green, blue].map(|v| v.clamp(0, 255) as u8)
}

/// Inks are stored inverted, as Adobe does and Pillow assumes of every file. In YCCK the colours were
/// inverted once more on their way to YCC.
fn inks_to_rgb(colours: [u8; 3], black: u8, space: Space) -> [u8; 3] {
    let inks = colours.map(|stored| if space == Space::Ycck { stored } else { 255 - stored });
    cmyk::to_rgb(inks, 255 - black)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_planes_mean_what_libjpeg_takes_them_for() {
        assert_eq!(space(&[1], true, None), Space::Grey);
        assert_eq!(space(&[1, 2, 3], false, None), Space::YCbCr);
        assert_eq!(space(b"RGB", false, None), Space::Rgb);
        assert_eq!(space(b"RGB", true, None), Space::YCbCr);
        assert_eq!(space(&[1, 2, 3], false, Some(0)), Space::Rgb);
        assert_eq!(space(&[1, 2, 3, 4], false, Some(2)), Space::Ycck);
        assert_eq!(space(&[1, 2, 3, 4], false, None), Space::Cmyk);
    }
}
