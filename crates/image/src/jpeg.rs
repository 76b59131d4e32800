//! JPEG files in, to the same bytes libjpeg-turbo and so Pillow gives.
//!
//! The standard leaves the inverse transform, the enlarging of the colour planes and the rounding of
//! colours to the decoder; a network's answer should not depend on that, so here they follow libjpeg-turbo's
//! defaults exactly. Baseline, extended and progressive Huffman files of 8 bits are read: grey, YCbCr,
//! RGB, CMYK and YCCK. Arithmetic coding, lossless and 12-bit files are refused.

mod colour;
mod entropy;
mod frame;
mod scan;
mod transform;
mod upsample;

use monosplit_graph::{Error, Result};

use crate::decoded::Decoded;
use crate::orientation::Orientation;
use entropy::HuffmanTable;
use frame::{Coding, Frame};
use scan::Scan;

/// Far more scans than any encoder writes; a hostile file could otherwise ask for endless passes.
const MAX_SCANS: usize = 128;

/// How a segment that holds XMP begins.
const XMP_PREFIX: &[u8] = b"http://ns.adobe.com/xap/1.0/\0";

/// Decodes a JPEG file.
pub(crate) fn decode(bytes: &[u8]) -> Result<Decoded> {
    let mut decoder = Decoder { reader: Reader { bytes, position: 2 }, ..Decoder::default() };
    decoder.read()?;
    let Some(mut frame) = decoder.frame else { return Err(corrupt("it holds no picture")) };
    frame.finish()?;
    let decoded = colour::decoded(&frame, decoder.jfif, decoder.adobe);
    Ok(decoded.oriented(decoder.exif.or(decoder.xmp)))
}

fn corrupt(what: &str) -> Error {
    Error::malformed(format!("the JPEG is truncated or corrupt: {what}"))
}

/// Bytes read in order; running out is an error.
#[derive(Default)]
struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        let taken = rest.get(..length).ok_or_else(|| corrupt("it ends too early"))?;
        self.position += length;
        Ok(taken)
    }

    fn u8(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    fn u16(&mut self) -> Result<u16> {
        let pair = self.take(2)?;
        Ok(u16::from_be_bytes([pair[0], pair[1]]))
    }

    fn is_empty(&self) -> bool {
        self.position >= self.bytes.len()
    }

    /// The next marker, past anything that stands before it.
    fn marker(&mut self) -> Result<u8> {
        loop {
            while self.u8()? != 0xff {}
            let mut code = self.u8()?;
            while code == 0xff {
                code = self.u8()?;
            }
            if code != 0 {
                return Ok(code);
            }
        }
    }

    /// The bytes that belong to the marker just read.
    fn segment(&mut self) -> Result<Reader<'a>> {
        let length = usize::from(self.u16()?);
        let length = length.checked_sub(2).ok_or_else(|| corrupt("a segment has no length"))?;
        Ok(Reader { bytes: self.take(length)?, position: 0 })
    }
}

/// The tables that markers set and scans use.
#[derive(Default)]
struct Tables {
    quantisation: [Option<[u16; 64]>; 4],
    dc: [Option<HuffmanTable>; 4],
    ac: [Option<HuffmanTable>; 4],
    restart_interval: usize,
}

#[derive(Default)]
struct Decoder<'a> {
    reader: Reader<'a>,
    tables: Tables,
    frame: Option<Frame>,
    jfif: bool,
    adobe: Option<u8>,
    /// The orientation, as EXIF has it and as XMP has it.
    exif: Option<Orientation>,
    xmp: Option<Orientation>,
}

impl Decoder<'_> {
    fn read(&mut self) -> Result<()> {
        let mut scans = 0;
        loop {
            match self.reader.marker()? {
                0xd9 => return Ok(()),
                0xda => {
                    scans += 1;
                    if scans > MAX_SCANS {
                        return Err(Error::unsupported(format!("a JPEG of more than {MAX_SCANS} scans")));
                    }
                    self.scan()?;
                }
                0x01 | 0xd0..=0xd8 => {}
                marker => self.segment(marker)?,
            }
        }
    }

    fn segment(&mut self, marker: u8) -> Result<()> {
        let mut segment = self.reader.segment()?;
        match marker {
            0xc0..=0xc2 => {
                if self.frame.is_some() {
                    return Err(corrupt("it holds two pictures"));
                }
                let coding = if marker == 0xc2 { Coding::Progressive } else { Coding::Sequential };
                let frame = self.frame.insert(Frame::read(&mut segment, coding)?);
                frame.allocate(self.reader.bytes.len() - self.reader.position)?;
            }
            0xc3 | 0xc5..=0xc7 | 0xc9..=0xcf => {
                return Err(Error::unsupported(
                    "the JPEG is lossless, hierarchical or arithmetically coded; save it again as a baseline JPEG",
                ));
            }
            0xc4 => self.huffman_tables(&mut segment)?,
            0xdb => self.quantisation_tables(&mut segment)?,
            0xdd => self.tables.restart_interval = usize::from(segment.u16()?),
            0xe0 => self.jfif |= segment.bytes.starts_with(b"JFIF\0"),
            0xe1 if segment.bytes.starts_with(b"Exif\0\0") => {
                self.exif = self.exif.or_else(|| Orientation::of_exif(segment.bytes));
            }
            0xe1 if segment.bytes.starts_with(XMP_PREFIX) => {
                self.xmp = self.xmp.or_else(|| Orientation::of_xmp(segment.bytes));
            }
            0xee if segment.bytes.starts_with(b"Adobe") => {
                self.adobe = segment.bytes.get(11).copied().or(self.adobe);
            }
            _ => {}
        }
        Ok(())
    }

    fn huffman_tables(&mut self, segment: &mut Reader<'_>) -> Result<()> {
        while !segment.is_empty() {
            let which = segment.u8()?;
            let table = HuffmanTable::read(segment)?;
            let class = match which >> 4 {
                0 => &mut self.tables.dc,
                1 => &mut self.tables.ac,
                _ => return Err(corrupt("a Huffman table is of no known class")),
            };
            let slot = class.get_mut(usize::from(which & 15));
            *slot.ok_or_else(|| corrupt("a Huffman table has a number above 3"))? = Some(table);
        }
        Ok(())
    }

    fn quantisation_tables(&mut self, segment: &mut Reader<'_>) -> Result<()> {
        while !segment.is_empty() {
            let which = segment.u8()?;
            let mut table = [0; 64];
            for &position in &scan::ZIGZAG {
                table[position] = if which >> 4 == 0 { u16::from(segment.u8()?) } else { segment.u16()? };
            }
            let slot = self.tables.quantisation.get_mut(usize::from(which & 15));
            *slot.ok_or_else(|| corrupt("a quantisation table has a number above 3"))? = Some(table);
        }
        Ok(())
    }

    fn scan(&mut self) -> Result<()> {
        let mut segment = self.reader.segment()?;
        let frame = self.frame.as_mut().ok_or_else(|| corrupt("its pixels come before its size"))?;
        let scan = Scan::read(&mut segment, frame)?;
        let data = &self.reader.bytes[self.reader.position..];
        self.reader.position += scan.decode(data, frame, &self.tables)?;
        Ok(())
    }
}
