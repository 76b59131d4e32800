//! SHA-256 in hexadecimal, which identifies models and images by their bytes.

use sha2::Digest;

/// An incremental hash.
#[derive(Clone, Debug, Default)]
pub struct Sha256(sha2::Sha256);

impl Sha256 {
    /// The hash of some bytes, in hexadecimal.
    pub fn of(bytes: &[u8]) -> String {
        let mut hash = Sha256::default();
        hash.update(bytes);
        hash.finish()
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The hash in hexadecimal.
    pub fn finish(self) -> String {
        self.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vectors_of_the_standard() {
        for (bytes, hash) in [
            ("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
            ("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            (
                "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
            ),
        ] {
            assert_eq!(Sha256::of(bytes.as_bytes()), hash);
        }
        let million = "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0";
        assert_eq!(Sha256::of(&[b'a'; 1_000_000]), million);
    }

    #[test]
    fn bytes_may_come_in_pieces() {
        let bytes: Vec<u8> = (0..1000u32).map(|v| (v * 7) as u8).collect();
        for size in [1, 3, 55, 56, 63, 64, 65, 999] {
            let mut hash = Sha256::default();
            bytes.chunks(size).for_each(|piece| hash.update(piece));
            assert_eq!(hash.finish(), Sha256::of(&bytes), "{size}");
        }
    }
}
