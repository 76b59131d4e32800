//! One pass over the picture: which planes, which coefficients, which bits of them.

use monosplit_graph::Result;

use super::entropy::{Bits, HuffmanTable};
use super::frame::{Coding, Component, Frame};
use super::{Reader, Tables, corrupt};

/// Where each coefficient of the file stands in a block.
pub(super) const ZIGZAG: [usize; 64] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7,
    14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39,
    46, 53, 60, 61, 54, 47, 55, 62, 63,
];

/// What a scan's header says.
pub(super) struct Scan {
    planes: Vec<Plane>,
    /// First and last coefficient, in zigzag order.
    first: usize,
    last: usize,
    /// Whether bits are added to coefficients already begun.
    refines: bool,
    /// The bit the scan ends at.
    low_bit: u32,
}

struct Plane {
    component: usize,
    dc: usize,
    ac: usize,
}

/// What carries over from block to block.
#[derive(Default)]
struct Carry {
    predictions: [i32; 4],
    /// Blocks still to come that have nothing more in this scan.
    end_of_band_run: u32,
}

impl Scan {
    pub(super) fn read(segment: &mut Reader<'_>, frame: &Frame) -> Result<Scan> {
        let count = usize::from(segment.u8()?);
        let mut planes: Vec<Plane> = Vec::new();
        for _ in 0..count {
            let (id, tables) = (segment.u8()?, segment.u8()?);
            let component = frame.components.iter().position(|component| component.id == id);
            let component = component.ok_or_else(|| corrupt("a scan is for an unknown colour plane"))?;
            if planes.iter().any(|plane| plane.component == component) || tables >> 4 > 3 || tables & 15 > 3 {
                return Err(corrupt("a scan is described by impossible numbers"));
            }
            planes.push(Plane { component, dc: usize::from(tables >> 4), ac: usize::from(tables & 15) });
        }
        let (first, last, bits) = (usize::from(segment.u8()?), usize::from(segment.u8()?), segment.u8()?);
        let mut scan = Scan { planes, first, last, refines: bits >> 4 != 0, low_bit: u32::from(bits & 15) };
        if frame.coding == Coding::Sequential {
            (scan.first, scan.last, scan.refines, scan.low_bit) = (0, 63, false, 0);
        }
        scan.check(frame)?;
        Ok(scan)
    }

    fn check(&self, frame: &Frame) -> Result<()> {
        let progressive = frame.coding == Coding::Progressive;
        let band = if self.first == 0 { self.last == 0 } else { self.planes.len() == 1 };
        let sampling = |plane: &Plane| frame.components[plane.component].sampling;
        let blocks: usize = self.planes.iter().map(sampling).map(|(across, down)| across * down).sum();
        let sound = !self.planes.is_empty()
            && self.first <= self.last
            && self.last < 64
            && self.low_bit <= 13
            && (band || !progressive)
            && (blocks <= 10 || self.planes.len() == 1);
        if sound { Ok(()) } else { Err(corrupt("a scan is described by impossible numbers")) }
    }

    /// Decodes the scan from the start of `data` into the frame; returns how many bytes it took.
    pub(super) fn decode(&self, data: &[u8], frame: &mut Frame, tables: &Tables) -> Result<usize> {
        for plane in &self.planes {
            let component = &mut frame.components[plane.component];
            if component.quantisation.is_none() {
                component.quantisation = tables.quantisation[component.quantisation_index];
            }
        }
        let mut bits = Bits::new(data);
        let mut carry = Carry::default();
        let (across, down) = self.units(frame);
        let mut restarts = 0u8;
        for unit in 0..across * down {
            if tables.restart_interval > 0 && unit > 0 && unit % tables.restart_interval == 0 {
                bits.restart(restarts)?;
                restarts = restarts.wrapping_add(1);
                carry = Carry::default();
            }
            self.unit(unit / across, unit % across, &mut bits, &mut carry, frame, tables)?;
        }
        Ok(bits.position())
    }

    /// Number of units across and down: blocks where one plane stands alone, else groups of blocks.
    fn units(&self, frame: &Frame) -> (usize, usize) {
        match &self.planes[..] {
            [plane] => {
                let size = frame.components[plane.component].size;
                (size.0.div_ceil(8), size.1.div_ceil(8))
            }
            _ => frame.units,
        }
    }

    fn unit(
        &self,
        row: usize,
        column: usize,
        bits: &mut Bits<'_>,
        carry: &mut Carry,
        frame: &mut Frame,
        tables: &Tables,
    ) -> Result<()> {
        let coding = frame.coding;
        for plane in &self.planes {
            let component = &mut frame.components[plane.component];
            let (across, down) = if self.planes.len() == 1 { (1, 1) } else { component.sampling };
            for y in 0..down {
                for x in 0..across {
                    let (row, column) = (row * down + y, column * across + x);
                    match coding {
                        Coding::Sequential => {
                            let quantisation =
                                component.quantisation.ok_or_else(|| missing("quantisation"))?;
                            let mut block = [0; 64];
                            self.block(&mut block, plane, bits, carry, tables)?;
                            component.put(row, column, &block, &quantisation);
                        }
                        Coding::Progressive => {
                            let block = coefficients(component, row, column);
                            self.block(block, plane, bits, carry, tables)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn block(
        &self,
        block: &mut [i16; 64],
        plane: &Plane,
        bits: &mut Bits<'_>,
        carry: &mut Carry,
        tables: &Tables,
    ) -> Result<()> {
        if self.first == 0 && self.refines {
            block[0] |= (bits.take(1)? << self.low_bit) as i16;
        } else if self.first == 0 {
            let table = tables.dc[plane.dc].as_ref().ok_or_else(|| missing("Huffman"))?;
            let length = bits.symbol(table)?;
            if length > 16 {
                return Err(corrupt("a coefficient is too long"));
            }
            let prediction = &mut carry.predictions[plane.component];
            *prediction = prediction.wrapping_add(bits.take_signed(u32::from(length))?);
            block[0] = (*prediction << self.low_bit) as i16;
        }
        if self.last > 0 {
            let table = tables.ac[plane.ac].as_ref().ok_or_else(|| missing("Huffman"))?;
            match self.refines {
                false => self.begin_band(block, bits, carry, table)?,
                true => self.refine_band(block, bits, carry, table)?,
            }
        }
        Ok(())
    }

    fn begin_band(
        &self,
        block: &mut [i16; 64],
        bits: &mut Bits<'_>,
        carry: &mut Carry,
        table: &HuffmanTable,
    ) -> Result<()> {
        if carry.end_of_band_run > 0 {
            carry.end_of_band_run -= 1;
            return Ok(());
        }
        let mut k = self.first.max(1);
        while k <= self.last {
            let symbol = bits.symbol(table)?;
            let (run, length) = (usize::from(symbol >> 4), u32::from(symbol & 15));
            match (run, length) {
                (15, 0) => k += 16,
                (_, 0) => {
                    carry.end_of_band_run = end_of_band_run(run, bits)? - 1;
                    break;
                }
                _ => {
                    k += run;
                    let position = *ZIGZAG.get(k).ok_or_else(|| corrupt("a block is too long"))?;
                    block[position] = (bits.take_signed(length)? << self.low_bit) as i16;
                    k += 1;
                }
            }
        }
        Ok(())
    }

    fn refine_band(
        &self,
        block: &mut [i16; 64],
        bits: &mut Bits<'_>,
        carry: &mut Carry,
        table: &HuffmanTable,
    ) -> Result<()> {
        let one = 1i16 << self.low_bit;
        let mut k = self.first;
        while k <= self.last && carry.end_of_band_run == 0 {
            let symbol = bits.symbol(table)?;
            let (run, length) = (usize::from(symbol >> 4), symbol & 15);
            let mut value = 0;
            if length > 0 {
                value = if bits.take(1)? == 1 { one } else { -one };
            } else if run < 15 {
                carry.end_of_band_run = end_of_band_run(run, bits)?;
                break;
            }
            k = self.refine(block, bits, k, run)?;
            if k <= self.last && value != 0 {
                block[ZIGZAG[k]] = value;
            }
            k += 1;
        }
        if carry.end_of_band_run > 0 {
            self.refine(block, bits, k, usize::MAX)?;
            carry.end_of_band_run -= 1;
        }
        Ok(())
    }

    /// Adds a bit to each coefficient already begun from `k` on, until `zeros` others have been passed;
    /// returns where the next of those stands.
    fn refine(
        &self,
        block: &mut [i16; 64],
        bits: &mut Bits<'_>,
        mut k: usize,
        mut zeros: usize,
    ) -> Result<usize> {
        let one = 1i16 << self.low_bit;
        while k <= self.last {
            let coefficient = &mut block[ZIGZAG[k]];
            if *coefficient == 0 {
                if zeros == 0 {
                    break;
                }
                zeros -= 1;
            } else if bits.take(1)? == 1 && *coefficient & one == 0 {
                *coefficient = coefficient.wrapping_add(if *coefficient > 0 { one } else { -one });
            }
            k += 1;
        }
        Ok(k)
    }
}

/// Number of blocks, this one included, that have nothing more in this scan. Sequential files know only a
/// run of one.
fn end_of_band_run(exponent: usize, bits: &mut Bits<'_>) -> Result<u32> {
    Ok((1 << exponent) + bits.take(exponent as u32)? as u32)
}

fn coefficients(component: &mut Component, row: usize, column: usize) -> &mut [i16; 64] {
    &mut component.coefficients[row * component.blocks.0 + column]
}

fn missing(table: &str) -> monosplit_graph::Error {
    corrupt(&format!("a {table} table is missing"))
}
