//! A hash that detects changed data. It is not cryptographic: an adversary can find collisions.

/// FNV-1a over 64 bits, of bytes that are added one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint(u64);

impl Default for Fingerprint {
    fn default() -> Self {
        Fingerprint(0xcbf2_9ce4_8422_2325)
    }
}

impl Fingerprint {
    /// The hash of some bytes.
    pub fn of(bytes: &[u8]) -> u64 {
        let mut fingerprint = Fingerprint::default();
        fingerprint.add(bytes);
        fingerprint.number()
    }

    /// Adds bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    /// The hash of all bytes added.
    pub fn number(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of the function's authors.
    #[test]
    fn known_texts_have_known_numbers() {
        assert_eq!(Fingerprint::of(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(Fingerprint::of(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(Fingerprint::of(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn pieces_are_one_text() {
        let mut pieces = Fingerprint::default();
        pieces.add(b"foo");
        pieces.add(b"bar");
        assert_eq!(pieces.number(), Fingerprint::of(b"foobar"));
    }
}
