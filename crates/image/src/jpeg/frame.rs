//! What a JPEG's header says of the picture, and the planes its scans fill.

use monosplit_graph::{Error, Result};

use super::{Reader, corrupt, transform};
use crate::picture::checked_area;

/// How the coefficients are spread over scans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    /// Each block whole, in one scan.
    Sequential,
    /// Each block refined by several scans.
    Progressive,
}

/// The picture being decoded.
pub(super) struct Frame {
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) coding: Coding,
    pub(super) components: Vec<Component>,
    /// Number of interleaved units across and down.
    pub(super) units: (usize, usize),
}

/// One colour plane.
pub(super) struct Component {
    pub(super) id: u8,
    /// How many blocks of an interleaved unit are this plane's, across and down.
    pub(super) sampling: (usize, usize),
    /// How many pixels of the picture one sample stands for, across and down.
    pub(super) step: (usize, usize),
    pub(super) quantisation_index: usize,
    /// The table in force when the plane's first scan began.
    pub(super) quantisation: Option<[u16; 64]>,
    /// Sides in samples, without padding.
    pub(super) size: (usize, usize),
    /// Sides in blocks, padded to whole interleaved units.
    pub(super) blocks: (usize, usize),
    /// Coefficients of each block; empty in sequential files, whose blocks are transformed at once.
    pub(super) coefficients: Vec<[i16; 64]>,
    /// Samples, in rows of `blocks.0 * 8`.
    pub(super) samples: Vec<u8>,
}

impl Frame {
    pub(super) fn read(segment: &mut Reader<'_>, coding: Coding) -> Result<Frame> {
        if segment.u8()? != 8 {
            return Err(Error::unsupported("the JPEG has more than 8 bits a sample; save it with 8"));
        }
        let (height, width) = (usize::from(segment.u16()?), usize::from(segment.u16()?));
        checked_area(width, height, 3)?;
        let count = segment.u8()?;
        if !matches!(count, 1 | 3 | 4) {
            return Err(Error::unsupported(format!("a JPEG of {count} colour planes; expected 1, 3 or 4")));
        }
        let mut headers = Vec::new();
        for _ in 0..count {
            let (id, sampling, table) = (segment.u8()?, segment.u8()?, segment.u8()?);
            let sampling = (usize::from(sampling >> 4), usize::from(sampling & 15));
            if !(1..=4).contains(&sampling.0) || !(1..=4).contains(&sampling.1) || table > 3 {
                return Err(corrupt("its colour planes are described by impossible numbers"));
            }
            headers.push((id, sampling, usize::from(table)));
        }
        let across = headers.iter().map(|header| header.1.0).max().unwrap_or(1);
        let down = headers.iter().map(|header| header.1.1).max().unwrap_or(1);
        if headers.iter().any(|header| across % header.1.0 != 0 || down % header.1.1 != 0) {
            return Err(Error::unsupported("the JPEG's colour planes are reduced by a fraction"));
        }
        let units = (width.div_ceil(8 * across), height.div_ceil(8 * down));
        let mut frame = Frame { width, height, coding, components: Vec::new(), units };
        frame.components = headers
            .into_iter()
            .map(|(id, sampling, table)| Component {
                id,
                sampling,
                step: (across / sampling.0, down / sampling.1),
                quantisation_index: table,
                quantisation: None,
                size: ((width * sampling.0).div_ceil(across), (height * sampling.1).div_ceil(down)),
                blocks: (units.0 * sampling.0, units.1 * sampling.1),
                coefficients: Vec::new(),
                samples: Vec::new(),
            })
            .collect();
        Ok(frame)
    }

    /// Makes room for the planes. Every block takes at least one bit of the `available` bytes, so that a header
    /// alone cannot ask for memory.
    pub(super) fn allocate(&mut self, available: usize) -> Result<()> {
        let coded = |c: &Component| c.size.0.div_ceil(8) * c.size.1.div_ceil(8);
        if self.components.iter().map(coded).sum::<usize>() / 8 > available {
            return Err(corrupt("it is too short for a picture of its size"));
        }
        let bytes_per_sample = match self.coding {
            Coding::Sequential => 1,
            Coding::Progressive => 3,
        };
        let samples: usize = self.components.iter().map(|c| c.blocks.0 * c.blocks.1 * 64).sum();
        // Padding can make a thin picture much larger, so the planes are counted by themselves.
        if samples.saturating_mul(bytes_per_sample) > crate::picture::MAX_BYTES {
            return Err(Error::unsupported(format!(
                "a JPEG of {}×{} pixels takes too much memory to decode; scale it down first",
                self.width, self.height
            )));
        }
        for component in &mut self.components {
            let blocks = component.blocks.0 * component.blocks.1;
            component.samples = vec![0; blocks * 64];
            if self.coding == Coding::Progressive {
                component.coefficients = vec![[0; 64]; blocks];
            }
        }
        Ok(())
    }

    /// Turns the coefficients gathered by a progressive file's scans into samples.
    pub(super) fn finish(&mut self) -> Result<()> {
        for component in &mut self.components {
            let Some(quantisation) = component.quantisation else {
                return Err(corrupt("a colour plane is missing"));
            };
            for (index, coefficients) in std::mem::take(&mut component.coefficients).iter().enumerate() {
                let (row, column) = (index / component.blocks.0, index % component.blocks.0);
                component.put(row, column, coefficients, &quantisation);
            }
        }
        Ok(())
    }
}

impl Component {
    /// Transforms one block to its samples.
    pub(super) fn put(&mut self, row: usize, column: usize, block: &[i16; 64], quantisation: &[u16; 64]) {
        let stride = self.blocks.0 * 8;
        let samples = transform::inverse(block, quantisation);
        let start = row * 8 * stride + column * 8;
        for (y, line) in samples.iter().enumerate() {
            self.samples[start + y * stride..][..8].copy_from_slice(line);
        }
    }

    /// The samples of one row, without padding.
    pub(super) fn row(&self, y: usize) -> &[u8] {
        &self.samples[y * self.blocks.0 * 8..][..self.size.0]
    }
}
