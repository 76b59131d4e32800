//! Huffman codes and the bits they are made of.

use monosplit_graph::Result;

use super::{Reader, corrupt};

const FAST_BITS: u32 = 9;

/// A canonical Huffman code: short codes are looked up, long ones found by their length.
pub(super) struct HuffmanTable {
    /// For each run of `FAST_BITS` bits, the length of the code it starts with and its symbol; length 0 for
    /// longer codes.
    fast: Vec<(u8, u8)>,
    /// For each length, one past the last code of it, aligned to 16 bits.
    limits: [u32; 17],
    /// For each length, what to add to a code to find its symbol.
    offsets: [i32; 17],
    symbols: Vec<u8>,
}

impl HuffmanTable {
    pub(super) fn read(segment: &mut Reader<'_>) -> Result<Self> {
        let counts = segment.take(16)?;
        let total = counts.iter().map(|&n| usize::from(n)).sum();
        if total > 256 {
            return Err(corrupt("a Huffman table has more than 256 codes"));
        }
        let symbols = segment.take(total)?.to_vec();
        let mut table =
            HuffmanTable { fast: vec![(0, 0); 1 << FAST_BITS], limits: [0; 17], offsets: [0; 17], symbols };
        let (mut code, mut index) = (0u32, 0usize);
        for (length, &count) in (1u32..).zip(counts) {
            table.offsets[length as usize] = index as i32 - code as i32;
            for _ in 0..count {
                if code >= 1 << length {
                    return Err(corrupt("a Huffman table has too many codes"));
                }
                if length <= FAST_BITS {
                    let spare = FAST_BITS - length;
                    let first = (code << spare) as usize;
                    table.fast[first..first + (1 << spare)].fill((length as u8, table.symbols[index]));
                }
                code += 1;
                index += 1;
            }
            table.limits[length as usize] = code << (16 - length);
            code <<= 1;
        }
        Ok(table)
    }
}

/// The bits of one scan, most significant first, without the stuffing.
pub(super) struct Bits<'a> {
    bytes: &'a [u8],
    position: usize,
    buffer: u64,
    available: u32,
    /// How many of the bits available were never in the file.
    padding: u32,
}

impl<'a> Bits<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Bits { bytes, position: 0, buffer: 0, available: 0, padding: 0 }
    }

    /// Where the bytes not yet read begin: at the next marker, once the bits before it are used up.
    pub(super) fn position(&self) -> usize {
        self.position
    }

    fn fill(&mut self) {
        while self.available <= 48 {
            let byte = match self.bytes.get(self.position) {
                Some(0xff) if self.bytes.get(self.position + 1) == Some(&0) => {
                    self.position += 2;
                    0xff
                }
                None | Some(0xff) => {
                    self.padding += 8;
                    0
                }
                Some(&byte) => {
                    self.position += 1;
                    byte
                }
            };
            self.buffer = self.buffer << 8 | u64::from(byte);
            self.available += 8;
        }
    }

    fn peek(&mut self, count: u32) -> u32 {
        if self.available < count {
            self.fill();
        }
        (self.buffer >> (self.available - count)) as u32 & ((1 << count) - 1)
    }

    fn skip(&mut self, count: u32) -> Result<()> {
        self.available -= count;
        if self.available < self.padding {
            return Err(corrupt("its pixels end too early"));
        }
        Ok(())
    }

    /// The next `count` bits, at most 16, as a number.
    pub(super) fn take(&mut self, count: u32) -> Result<i32> {
        if count == 0 {
            return Ok(0);
        }
        let value = self.peek(count);
        self.skip(count)?;
        Ok(value as i32)
    }

    /// The next `count` bits as a signed number whose first bit tells the sign.
    pub(super) fn take_signed(&mut self, count: u32) -> Result<i32> {
        let value = self.take(count)?;
        Ok(if count > 0 && value < 1 << (count - 1) { value - (1 << count) + 1 } else { value })
    }

    /// The next symbol of `table`.
    pub(super) fn symbol(&mut self, table: &HuffmanTable) -> Result<u8> {
        let word = self.peek(16);
        let (length, symbol) = table.fast[(word >> (16 - FAST_BITS)) as usize];
        if length > 0 {
            self.skip(u32::from(length))?;
            return Ok(symbol);
        }
        for length in FAST_BITS + 1..=16 {
            if word < table.limits[length as usize] {
                self.skip(length)?;
                let index = (word >> (16 - length)) as i32 + table.offsets[length as usize];
                let symbol = usize::try_from(index).ok().and_then(|index| table.symbols.get(index));
                return symbol.copied().ok_or_else(|| corrupt("its pixels use an unknown code"));
            }
        }
        Err(corrupt("its pixels use an unknown code"))
    }

    /// Drops what is left before the restart marker of this `number` and goes past it.
    pub(super) fn restart(&mut self, number: u8) -> Result<()> {
        let mut reader = Reader { bytes: self.bytes, position: self.position };
        if reader.marker()? != 0xd0 + number % 8 {
            return Err(corrupt("a restart marker is missing"));
        }
        *self = Bits { position: reader.position, ..Bits::new(self.bytes) };
        Ok(())
    }
}
