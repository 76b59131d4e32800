//! Results become pictures: saliency maps as heatmaps, overlays on the photograph, figures of many of them,
//! curves, pages and drawings in the terminal.
//!
//! This crate knows values, colours and pixels. It does not know how the values were made. Figures are laid
//! out once, as a [`Scene`], and written as PNG, SVG or PDF.
//!
//! ```
//! use monosplit_image::{Picture, encode_png};
//! use monosplit_render::{Caption, ScalarField, OverlayOptions, overlay};
//!
//! # fn main() -> monosplit_graph::Result<()> {
//! let photograph = Picture::new(64, 64, vec![128; 64 * 64 * 3])?;
//! let map = ScalarField::new(2, 2, vec![-1.0, 0.0, 0.5, 2.0])?;
//! let caption = Caption { method: "SplitGrad".into(), alpha: Some(0.4), ..Caption::default() };
//! let drawn = overlay(&photograph, &map, &caption, &OverlayOptions::default())?;
//! assert_eq!(drawn.range, (-1.0, 2.0));
//! assert!(drawn.note.is_none());
//! let png = encode_png(drawn.picture.width(), drawn.picture.height(), (&drawn.picture).into())?;
//! # assert!(!png.is_empty());
//! # Ok(())
//! # }
//! ```
//!
//! Methods beside images as one figure:
//!
//! ```
//! use monosplit_image::Picture;
//! use monosplit_render::{Format, Grid, GridCell, GridRow, OverlayOptions, ScalarField};
//!
//! # fn main() -> monosplit_graph::Result<()> {
//! let photograph = Picture::new(64, 64, vec![128; 64 * 64 * 3])?;
//! let map = ScalarField::new(2, 2, vec![-1.0, 0.0, 0.5, 2.0])?;
//! let overlay = GridCell::overlay(&photograph, &map, &OverlayOptions::default())?;
//! let grid = Grid {
//!     columns: vec!["picture".into(), "SplitGrad".into()],
//!     rows: vec![GridRow {
//!         label: "cat.png".into(),
//!         caption: "Egyptian Mau 87.3%".into(),
//!         cells: vec![Some(GridCell::picture(photograph)), Some(overlay)],
//!     }],
//!     ..Grid::default()
//! };
//! let scene = grid.into_scene()?;
//! assert!(scene.to_svg()?.contains(">SplitGrad</text>"));
//! assert!(scene.encode(Format::Pdf)?.starts_with(b"%PDF"));
//! # Ok(())
//! # }
//! ```

mod axis;
mod bars;
mod base64;
mod colour;
mod colour_bar;
#[cfg(test)]
mod colour_vision;
mod contour;
mod evidence;
mod figure;
mod grid;
mod heatmap;
mod html;
mod key;
mod line_plot;
mod number;
mod overlay;
mod pdf;
mod pdf_font;
mod polytope;
mod raster;
mod scalar_field;
mod scale;
mod scene;
mod shaping;
mod sheet;
mod slices;
mod svg;
mod system_fonts;
mod table;
mod terminal;
mod text;
mod token_text;
mod typeface;
#[cfg(test)]
mod xml;

pub use bars::{Bar, Bars};
pub use colour::{ColourMap, NOT_FINITE, Rgb};
pub use contour::{Contour, MOST_LEVELS, contour_levels, contours};
pub use evidence::evidence;
pub use figure::{FigureOptions, Tile, figure, tile_scene};
pub use grid::{Grid, GridCell, GridRow};
pub use heatmap::{Heatmap, HeatmapOptions, Zero};
pub use html::{Page, PageFigure, escape};
pub use line_plot::{LinePlot, Series};
pub use number::number;
pub use overlay::{
    Blend, Caption, Overlay, OverlayOptions, OverlayPanels, Underlay, blend, overlay, side_by_side,
};
pub use polytope::{Polytope, PolytopeEdge};
pub use scalar_field::ScalarField;
pub use scale::{Note, Palette, Scale};
pub use scene::{Format, Polyline, Scene};
pub use sheet::{Sheet, SheetRow};
pub use slices::Slices;
pub use table::{Best, Table, TableEntry};
pub use terminal::{TerminalColours, terminal_map, terminal_picture, terminal_row};
pub use token_text::TokenText;
