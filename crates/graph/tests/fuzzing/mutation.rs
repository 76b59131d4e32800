//! Damage as it happens to files and as attackers do it: flipped bits, missing ends, parts of other files,
//! lengths that lie, parts repeated.

use super::protobuf;
use super::random::Random;

/// Damaged files are no longer than this.
const LONGEST: usize = 1 << 20;

/// A file made of one or two of `seeds`.
pub(crate) fn damaged(seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut bytes = random.pick(seeds).cloned().unwrap_or_default();
    for _ in 0..1 + random.below(4) {
        let donor = random.pick(seeds).map_or(&[][..], Vec::as_slice);
        if random.below(2) == 0
            && let Some(edited) = protobuf::edited(&bytes, donor, random)
        {
            bytes = edited;
        } else {
            damage(&mut bytes, donor, random);
        }
        bytes.truncate(LONGEST);
    }
    bytes
}

fn damage(bytes: &mut Vec<u8>, donor: &[u8], random: &mut Random) {
    let at = random.below(bytes.len());
    let end = at + random.below((bytes.len() - at).min(64) + 1);
    match random.below(10) {
        0 => flip(bytes, at, random),
        1 => bytes.truncate(at),
        2 => {
            bytes.truncate(at);
            bytes.extend(&donor[random.below(donor.len())..]);
        }
        3 => drop(bytes.drain(at..end)),
        4 => {
            let most = if random.below(20) == 0 { 2000 } else { 4 };
            let chunk = bytes[at..end].repeat(1 + random.below(most));
            bytes.splice(at..at, chunk);
        }
        5 => {
            let from = random.below(donor.len());
            let to = from + random.below((donor.len() - from).min(64) + 1);
            bytes.splice(at..end, donor[from..to].iter().copied());
        }
        6 => fixed_integer(bytes, at, random),
        7 => varint(bytes, at, random),
        8 => decimal(bytes, at, random),
        _ => drop(bytes.splice(at..end, std::iter::repeat_n(random.next() as u8, end - at))),
    }
}

fn flip(bytes: &mut [u8], at: usize, random: &mut Random) {
    if let Some(byte) = bytes.get_mut(at) {
        *byte ^= 1 << random.below(8);
    }
}

/// An integer of one, two, four or eight bytes, of either byte order.
fn fixed_integer(bytes: &mut [u8], at: usize, random: &mut Random) {
    let width = 1 << random.below(4);
    let Some(place) = bytes.get_mut(at..at + width) else { return };
    let mut wide = [0; 8];
    wide[..width].copy_from_slice(place);
    let mut odd = random.odd_number(u64::from_le_bytes(wide)).to_le_bytes();
    if random.below(2) == 0 {
        odd[..width].reverse();
    }
    place.copy_from_slice(&odd[..width]);
}

/// An integer of seven bits a byte, as protobuf stores lengths.
fn varint(bytes: &mut Vec<u8>, at: usize, random: &mut Random) {
    let Some(length) = bytes[at..].iter().take(10).position(|byte| byte & 0x80 == 0) else { return };
    let mut reader = &bytes[at..];
    let Some(before) = protobuf::varint(&mut reader) else { return };
    let mut odd = Vec::new();
    protobuf::put_varint(&mut odd, random.odd_number(before));
    bytes.splice(at..=at + length, odd);
}

/// A number in digits, as JSON and NumPy's headers have them.
fn decimal(bytes: &mut Vec<u8>, at: usize, random: &mut Random) {
    let Some(first) = bytes[at..].iter().position(u8::is_ascii_digit).map(|skipped| at + skipped) else {
        return;
    };
    let length = bytes[first..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let before = String::from_utf8_lossy(&bytes[first..first + length]).parse().unwrap_or(0);
    let odd = random.odd_number(before).to_string();
    // Mostly of the same width, so that what follows stays in place.
    let odd = if random.below(4) > 0 { format!("{odd:0>length$}")[..length].to_owned() } else { odd };
    bytes.splice(first..first + length, odd.bytes());
}
