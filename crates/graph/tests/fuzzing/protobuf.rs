//! Edits to a protobuf message that leave it well-formed: fields changed, repeated, removed, exchanged or taken
//! from another message, the lengths around them right. So damage gets past the decoder to what reads it.

use super::random::Random;

const DEEPEST: usize = 12;

#[derive(Clone)]
enum Content {
    Integer(u64),
    Fixed(Vec<u8>),
    Bytes(Vec<u8>),
    Message(Vec<Field>),
}

#[derive(Clone)]
struct Field {
    key: u64,
    content: Content,
}

/// `bytes` with one field edited, if they are a message; `donor` may give parts.
pub(crate) fn edited(bytes: &[u8], donor: &[u8], random: &mut Random) -> Option<Vec<u8>> {
    let mut fields = parse(bytes, DEEPEST).filter(|fields| !fields.is_empty())?;
    let mut donors = Vec::new();
    collect(&fields, &mut donors);
    if random.below(3) == 0
        && let Some(other) = parse(donor, DEEPEST)
    {
        collect(&other, &mut donors);
    }
    let mut target = random.below(count(&fields));
    edit(&mut fields, &mut target, &donors, random);
    Some(encode(&fields))
}

/// Reads an integer of seven bits a byte.
pub(crate) fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Writes an integer of seven bits a byte.
pub(crate) fn put_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn parse(mut bytes: &[u8], depth: usize) -> Option<Vec<Field>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let content = match key & 7 {
            0 => Content::Integer(varint(&mut bytes)?),
            wire @ (1 | 5) => {
                let (fixed, rest) = bytes.split_at_checked(if wire == 1 { 8 } else { 4 })?;
                bytes = rest;
                Content::Fixed(fixed.to_vec())
            }
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).ok()?;
                let (inner, rest) = bytes.split_at_checked(length)?;
                bytes = rest;
                // What could be text is taken for text: names matter more than messages that look like them.
                let text = inner.iter().all(|byte| (0x20..0x7f).contains(byte));
                match parse(inner, depth.saturating_sub(1)).filter(|_| depth > 0 && !text) {
                    Some(fields) => Content::Message(fields),
                    None => Content::Bytes(inner.to_vec()),
                }
            }
            _ => return None,
        };
        if key >> 3 == 0 {
            return None;
        }
        fields.push(Field { key, content });
    }
    Some(fields)
}

fn encode(fields: &[Field]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for field in fields {
        put_varint(&mut bytes, field.key);
        let inner = match &field.content {
            Content::Integer(value) => {
                put_varint(&mut bytes, *value);
                continue;
            }
            Content::Fixed(fixed) => {
                bytes.extend(fixed);
                continue;
            }
            Content::Bytes(inner) => inner.clone(),
            Content::Message(fields) => encode(fields),
        };
        put_varint(&mut bytes, inner.len() as u64);
        bytes.extend(inner);
    }
    bytes
}

fn count(fields: &[Field]) -> usize {
    let inner = |field: &Field| match &field.content {
        Content::Message(fields) => count(fields),
        _ => 0,
    };
    fields.iter().map(|field| 1 + inner(field)).sum()
}

fn collect(fields: &[Field], into: &mut Vec<Field>) {
    for field in fields {
        into.push(field.clone());
        if let Content::Message(inner) = &field.content {
            collect(inner, into);
        }
    }
}

/// Edits the field that is `target` fields on, counted through all messages.
fn edit(fields: &mut Vec<Field>, target: &mut usize, donors: &[Field], random: &mut Random) -> bool {
    for index in 0..fields.len() {
        if *target == 0 {
            edit_field(fields, index, donors, random);
            return true;
        }
        *target -= 1;
        if let Content::Message(inner) = &mut fields[index].content
            && edit(inner, target, donors, random)
        {
            return true;
        }
    }
    false
}

fn edit_field(fields: &mut Vec<Field>, index: usize, donors: &[Field], random: &mut Random) {
    match random.below(8) {
        0 => drop(fields.remove(index)),
        1 => {
            let other = random.below(fields.len());
            fields.swap(index, other);
        }
        2 => {
            let copies = if random.below(20) == 0 { 300 } else { 1 };
            let copy = fields[index].clone();
            fields.splice(index..index, std::iter::repeat_n(copy, copies));
        }
        3 => fields.insert(index, random.pick(donors).unwrap_or(&fields[index]).clone()),
        _ => replace_content(&mut fields[index], donors, random),
    }
}

fn replace_content(field: &mut Field, donors: &[Field], random: &mut Random) {
    match &mut field.content {
        Content::Integer(value) => *value = random.odd_number(*value),
        Content::Fixed(bytes) => {
            let place = random.below(bytes.len());
            bytes[place] ^= 1 << random.below(8);
        }
        Content::Bytes(bytes) => {
            // A name becomes another name of the file: cycles, twins and dangling ends.
            let alike: Vec<&Vec<u8>> = donors.iter().filter_map(Field::bytes).collect();
            match random.pick(&alike) {
                Some(&other) if random.below(4) > 0 => *bytes = other.clone(),
                _ => bytes.truncate(random.below(bytes.len())),
            }
        }
        Content::Message(inner) => {
            let alike: Vec<&Field> = donors.iter().filter(|donor| donor.key == field.key).collect();
            match random.pick(&alike) {
                Some(Field { content: Content::Message(other), .. }) => *inner = other.clone(),
                _ => inner.clear(),
            }
        }
    }
}

impl Field {
    fn bytes(&self) -> Option<&Vec<u8>> {
        match &self.content {
            Content::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }
}
