//! Pictures in: decode a file, preprocess it exactly as torchvision does, hand over an NCHW tensor.
//!
//! This crate knows files and pixels. Of networks it knows only the shape of their input.
//!
//! ```
//! use monosplit_image::{Fit, Picture, Preset};
//!
//! # fn main() -> monosplit_graph::Result<()> {
//! let picture = Picture::new(320, 240, vec![128; 320 * 240 * 3])?;
//! let prepared = Preset::Imagenet.options().fit([3, 128, 128], Fit::default())?.apply(&picture)?;
//! assert_eq!(prepared.tensor.shape(), [1, 3, 128, 128]);
//! assert_eq!((prepared.picture.width(), prepared.picture.height()), (128, 128));
//! # Ok(())
//! # }
//! ```

mod bmp;
mod clipped;
mod cmyk;
mod crop;
mod decoded;
mod encode;
mod folder;
mod format;
mod gif;
mod idx;
mod ifd;
mod jpeg;
mod orientation;
mod palette;
mod picture;
mod png;
mod pnm;
mod preprocess;
mod preprocess_text;
mod preset;
mod resize;
mod tiff;
mod webp;

pub use decoded::{OrientationChoice, ReadOptions};
pub use encode::{Pixels, encode_png, write_png};
pub use folder::PictureFolder;
pub use format::{PictureFormat, is_hidden, is_picture_name};
pub use idx::IdxArray;
pub use picture::{MAX_BYTES, MAX_SIDE, Picture};
pub use preprocess::{Batch, Channels, PixelRange, Prepared, Preprocess, Resize};
pub use preset::{Fit, Preset};
pub use resize::Filter;
