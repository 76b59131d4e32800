//! Python pickles as data. Every value goes into one flat list and refers to others by position, so that
//! nesting and cycles cost nothing; a call is kept as a record of what would have been called.

use std::collections::HashMap;

use super::global::Global;
use crate::{Error, Result};

/// Opcodes one pickle may hold: far more than any model needs, few enough to be read in a moment.
const MAX_OPERATIONS: usize = 1 << 23;

/// Position of a value in its pickle.
pub(super) type Id = u32;

/// One value of a pickle.
#[derive(Debug, PartialEq)]
pub(super) enum PickleValue<'a> {
    None,
    Int(i64),
    /// An integer of more than 64 bits, its bytes little-endian.
    Long(&'a [u8]),
    Text(&'a str),
    List(Vec<Id>),
    Tuple(Vec<Id>),
    Dictionary(Vec<(Id, Id)>),
    Global(Global),
    /// What a call of a function with a tuple of arguments would have made.
    Call(Global, Id),
    /// A reference to something outside of the pickle: a storage.
    Persistent(Id),
    /// A value no tensor is made of: a real number, a truth value, bytes, a set.
    Inert,
}

/// A pickle that has been read to its end.
#[derive(Debug)]
pub(super) struct Pickle<'a> {
    values: Vec<PickleValue<'a>>,
    root: Id,
    length: usize,
}

impl<'a> Pickle<'a> {
    /// Reads the pickle `bytes` starts with.
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self> {
        let mut machine = Machine { bytes, ..Machine::default() };
        for _ in 0..MAX_OPERATIONS {
            let at = machine.at;
            let step = machine.step().map_err(|error| {
                if error.kind() == crate::ErrorKind::Malformed {
                    Error::malformed(format!("the pickle is malformed at byte {at}: {error}"))
                } else {
                    error
                }
            })?;
            if let Some(root) = step {
                return Ok(Pickle { values: machine.values, root, length: machine.at });
            }
        }
        Err(Error::malformed(format!("the pickle holds more than {MAX_OPERATIONS} operations")))
    }

    /// The value at `id`.
    pub(super) fn value(&self, id: Id) -> &PickleValue<'a> {
        &self.values[id as usize]
    }

    /// The value the pickle was made of.
    pub(super) fn root(&self) -> &PickleValue<'a> {
        self.value(self.root)
    }

    /// Every value, in the order of their making.
    pub(super) fn values(&self) -> impl Iterator<Item = &PickleValue<'a>> {
        self.values.iter()
    }

    /// Bytes the pickle took.
    pub(super) fn length(&self) -> usize {
        self.length
    }
}

#[derive(Default)]
struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    values: Vec<PickleValue<'a>>,
    stack: Vec<Id>,
    marks: Vec<usize>,
    memo: HashMap<u32, Id>,
}

impl<'a> Machine<'a> {
    /// Carries out one opcode; the root if it was the last.
    fn step(&mut self) -> Result<Option<Id>> {
        let opcode = self.byte()?;
        match opcode {
            b'.' => return self.pop().map(Some),
            0x80 => self.protocol()?,
            0x95 => drop(self.take(8)?),
            b'(' => self.marks.push(self.stack.len()),
            b'0' => self.discard()?,
            b'1' => drop(self.pop_to_mark()?),
            b'2' => {
                let top = self.top()?;
                self.stack.push(top);
            }
            b'N' => self.push(PickleValue::None),
            b'J' | b'K' | b'M' | 0x8a | 0x8b => self.integer(opcode)?,
            b'G' => self.inert_bytes(8)?,
            0x88 | 0x89 | 0x8f => self.push(PickleValue::Inert),
            b'X' | 0x8c | 0x8d | b'T' | b'U' => self.text(opcode)?,
            b'B' | b'C' | 0x8e => self.inert(opcode)?,
            b']' => self.push(PickleValue::List(Vec::new())),
            b'}' => self.push(PickleValue::Dictionary(Vec::new())),
            b')' => self.push(PickleValue::Tuple(Vec::new())),
            b'l' | b't' | b'd' | 0x91 => self.collect(opcode)?,
            0x85..=0x87 => self.short_tuple(usize::from(opcode - 0x84))?,
            b'a' | b'e' | b's' | b'u' | 0x90 => self.extend(opcode)?,
            b'c' | 0x93 => self.global(opcode)?,
            b'R' | 0x81 => self.call()?,
            b'b' => drop(self.pop()?),
            b'Q' => {
                let id = self.pop()?;
                self.push(PickleValue::Persistent(id));
            }
            b'q' | b'r' | 0x94 => self.remember(opcode)?,
            b'h' | b'j' => self.recall(opcode)?,
            _ => {
                return Err(Error::unsupported(format!(
                    "the pickle uses opcode {opcode:#04x}, which torch.save does not write"
                )));
            }
        }
        Ok(None)
    }

    fn protocol(&mut self) -> Result<()> {
        match self.byte()? {
            2..=5 => Ok(()),
            other => Err(Error::unsupported(format!("pickle protocol {other}: protocols 2 to 5 are read"))),
        }
    }

    fn integer(&mut self, opcode: u8) -> Result<()> {
        let value = match opcode {
            b'J' => PickleValue::Int(i32::from_le_bytes(self.array()?).into()),
            b'K' => PickleValue::Int(self.byte()?.into()),
            b'M' => PickleValue::Int(u16::from_le_bytes(self.array()?).into()),
            _ => {
                let length = if opcode == 0x8a { u64::from(self.byte()?) } else { self.u32()?.into() };
                let digits = self.take(length)?;
                if digits.len() > 8 {
                    PickleValue::Long(digits)
                } else {
                    let negative = digits.last().is_some_and(|&last| last >= 0x80);
                    let mut word = [if negative { 0xff } else { 0 }; 8];
                    word[..digits.len()].copy_from_slice(digits);
                    PickleValue::Int(i64::from_le_bytes(word))
                }
            }
        };
        self.push(value);
        Ok(())
    }

    fn text(&mut self, opcode: u8) -> Result<()> {
        let length = match opcode {
            0x8c | b'U' => u64::from(self.byte()?),
            0x8d => self.u64()?,
            _ => self.u32()?.into(),
        };
        let bytes = self.take(length)?;
        let value = match std::str::from_utf8(bytes) {
            Ok(text) => PickleValue::Text(text),
            // Python 2 kept raw bytes in strings.
            Err(_) if matches!(opcode, b'T' | b'U') => PickleValue::Inert,
            Err(_) => return Err(Error::malformed("a text is not UTF-8")),
        };
        self.push(value);
        Ok(())
    }

    fn inert(&mut self, opcode: u8) -> Result<()> {
        let length = match opcode {
            b'C' => u64::from(self.byte()?),
            b'B' => self.u32()?.into(),
            _ => self.u64()?,
        };
        self.inert_bytes(length)
    }

    fn inert_bytes(&mut self, length: u64) -> Result<()> {
        self.take(length)?;
        self.push(PickleValue::Inert);
        Ok(())
    }

    fn collect(&mut self, opcode: u8) -> Result<()> {
        let items = self.pop_to_mark()?;
        let value = match opcode {
            b'l' => PickleValue::List(items),
            b't' => PickleValue::Tuple(items),
            b'd' => PickleValue::Dictionary(pairs(&items)?),
            _ => PickleValue::Inert,
        };
        self.push(value);
        Ok(())
    }

    fn short_tuple(&mut self, length: usize) -> Result<()> {
        let mut items = Vec::with_capacity(length);
        for _ in 0..length {
            items.push(self.pop()?);
        }
        items.reverse();
        self.push(PickleValue::Tuple(items));
        Ok(())
    }

    /// Adds items to the list or dictionary beneath them, which stays on the stack.
    fn extend(&mut self, opcode: u8) -> Result<()> {
        let items = match opcode {
            b'a' => vec![self.pop()?],
            b's' => {
                let value = self.pop()?;
                vec![self.pop()?, value]
            }
            _ => self.pop_to_mark()?,
        };
        let target = self.top()? as usize;
        match (&mut self.values[target], opcode) {
            (PickleValue::List(list), b'a' | b'e') => list.extend(items),
            (PickleValue::Dictionary(entries), b's' | b'u') => entries.extend(pairs(&items)?),
            (PickleValue::Inert, _) => {}
            _ => return Err(Error::malformed("items are added to something that is no container")),
        }
        Ok(())
    }

    fn global(&mut self, opcode: u8) -> Result<()> {
        let global = if opcode == b'c' {
            let module = self.line()?;
            let name = self.line()?;
            Global::named(module, name)?
        } else {
            let (name, module) = (self.pop()? as usize, self.pop()? as usize);
            match (&self.values[module], &self.values[name]) {
                (PickleValue::Text(module), PickleValue::Text(name)) => Global::named(module, name)?,
                _ => return Err(Error::malformed("a global is not named by two texts")),
            }
        };
        self.push(PickleValue::Global(global));
        Ok(())
    }

    fn call(&mut self) -> Result<()> {
        let (arguments, function) = (self.pop()?, self.pop()?);
        let PickleValue::Tuple(given) = &self.values[arguments as usize] else {
            return Err(Error::malformed("the arguments of a call are no tuple"));
        };
        let made = match self.values[function as usize] {
            PickleValue::Global(Global::Size) => match given[..] {
                [] => PickleValue::Tuple(Vec::new()),
                [tuple] => {
                    self.stack.push(tuple);
                    return Ok(());
                }
                _ => return Err(Error::malformed("torch.Size takes one tuple")),
            },
            PickleValue::Global(Global::Dictionary) => return self.dictionary(arguments),
            PickleValue::Global(Global::Inert) => PickleValue::Inert,
            PickleValue::Global(
                function
                @ (Global::Tensor | Global::TensorOfType | Global::TensorOfClass | Global::Parameter),
            ) => PickleValue::Call(function, arguments),
            _ => return Err(Error::malformed("something that is no function is called")),
        };
        self.push(made);
        Ok(())
    }

    /// A dictionary class called without arguments, with the factory of its default, or, as Python 2 did,
    /// with a list of pairs. The list is given up to the dictionary, so that no call can multiply it.
    fn dictionary(&mut self, arguments: Id) -> Result<()> {
        let source = match &self.values[arguments as usize] {
            PickleValue::Tuple(given) => given.first().copied(),
            _ => None,
        };
        let Some(source) = source else {
            self.push(PickleValue::Dictionary(Vec::new()));
            return Ok(());
        };
        let made = match &mut self.values[source as usize] {
            PickleValue::Dictionary(_) => {
                self.stack.push(source);
                return Ok(());
            }
            PickleValue::List(list) => std::mem::take(list),
            _ => Vec::new(),
        };
        let entries = made.into_iter().map(|pair| match &self.values[pair as usize] {
            PickleValue::List(pair) | PickleValue::Tuple(pair) if pair.len() == 2 => Ok((pair[0], pair[1])),
            _ => Err(Error::malformed("a dictionary is made of something else than pairs")),
        });
        let entries = entries.collect::<Result<_>>()?;
        self.push(PickleValue::Dictionary(entries));
        Ok(())
    }

    fn remember(&mut self, opcode: u8) -> Result<()> {
        let slot = match opcode {
            b'q' => self.byte()?.into(),
            b'r' => self.u32()?,
            _ => self.memo.len() as u32,
        };
        let top = self.top()?;
        self.memo.insert(slot, top);
        Ok(())
    }

    fn recall(&mut self, opcode: u8) -> Result<()> {
        let slot = if opcode == b'h' { self.byte()?.into() } else { self.u32()? };
        let id =
            self.memo.get(&slot).ok_or_else(|| Error::malformed("a value is recalled that never was"))?;
        self.stack.push(*id);
        Ok(())
    }

    fn push(&mut self, value: PickleValue<'a>) {
        // At most one value is made by an operation, and there are far less than 2^32 of them.
        self.stack.push(self.values.len() as Id);
        self.values.push(value);
    }

    /// Values below the innermost mark are out of reach, as they are in Python.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn top(&self) -> Result<Id> {
        let top = self.stack.get(self.floor()..).and_then(|reachable| reachable.last());
        top.copied().ok_or_else(|| Error::malformed("a value is missing from the stack"))
    }

    fn pop(&mut self) -> Result<Id> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    fn pop_to_mark(&mut self) -> Result<Vec<Id>> {
        let mark = self.marks.pop().ok_or_else(|| Error::malformed("a mark is missing from the stack"))?;
        Ok(self.stack.split_off(mark.min(self.stack.len())))
    }

    fn discard(&mut self) -> Result<()> {
        if self.marks.last() == Some(&self.stack.len()) {
            self.marks.pop();
            return Ok(());
        }
        self.pop().map(drop)
    }

    fn line(&mut self) -> Result<&'a str> {
        let rest = &self.bytes[self.at..];
        let length = rest.iter().position(|&byte| byte == b'\n').ok_or_else(truncated)?;
        self.at += length + 1;
        std::str::from_utf8(&rest[..length]).map_err(|_| Error::malformed("a name is not UTF-8"))
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        let taken =
            usize::try_from(length).ok().and_then(|length| rest.get(..length)).ok_or_else(truncated)?;
        self.at += taken.len();
        Ok(taken)
    }

    fn array<const LENGTH: usize>(&mut self) -> Result<[u8; LENGTH]> {
        let array = self.bytes[self.at..].first_chunk().copied().ok_or_else(truncated)?;
        self.at += LENGTH;
        Ok(array)
    }

    fn byte(&mut self) -> Result<u8> {
        self.array().map(|[byte]| byte)
    }

    fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }
}

fn pairs(items: &[Id]) -> Result<Vec<(Id, Id)>> {
    match items.as_chunks() {
        (pairs, []) => Ok(pairs.iter().map(|&[key, value]| (key, value)).collect()),
        _ => Err(Error::malformed("a dictionary has a key without a value")),
    }
}

fn truncated() -> Error {
    Error::malformed("the file is truncated")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(bytes: &[u8]) -> String {
        Pickle::read(bytes).unwrap_err().to_string()
    }

    #[test]
    fn callables_outside_of_the_list_are_never_even_made() {
        let system = b"\x80\x02cos\nsystem\nX\x06\x00\x00\x00reboot\x85R.";
        assert!(refusal(system).contains("'os.system'"));
        let eval = b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93\x8c\x011\x85R.";
        assert!(refusal(eval).contains("'builtins.eval'"));
        let instance = b"\x80\x02(X\x06\x00\x00\x00rebootios\nsystem\n.";
        assert!(refusal(instance).contains("opcode 0x69"));
        let extension = b"\x80\x02\x82\x01)R.";
        assert!(refusal(extension).contains("opcode 0x82"));
    }

    #[test]
    fn a_list_that_holds_itself_ends() {
        let pickle = Pickle::read(b"\x80\x02]q\x00h\x00a.").unwrap();
        assert_eq!(pickle.root(), &PickleValue::List(vec![0]));
    }

    #[test]
    fn nesting_a_million_deep_needs_no_stack() {
        // Miri takes minutes for a million.
        let depth = if cfg!(miri) { 1 << 10 } else { 1 << 20 };
        let mut bytes = b"\x80\x02N".to_vec();
        bytes.extend([0x85].repeat(depth));
        bytes.push(b'.');
        assert!(matches!(Pickle::read(&bytes).unwrap().root(), PickleValue::Tuple(_)));
    }

    #[test]
    fn doubling_through_the_memo_stays_as_small_as_the_file() {
        let mut bytes = b"\x80\x02]q\x00".to_vec();
        for level in 0..200u8 {
            bytes.extend([b'(', b'h', level, b'h', level, b'l', b'q', level + 1]);
        }
        bytes.push(b'.');
        assert!(Pickle::read(&bytes).unwrap().values().count() < 300);
        let list = b"\x80\x02]q\x00(NN\x86e0ccollections\nOrderedDict\nq\x01";
        let mut bytes = list.to_vec();
        bytes.extend(b"h\x01h\x00\x85R0".repeat(if cfg!(miri) { 50 } else { 1000 }));
        bytes.extend(b"N.");
        Pickle::read(&bytes).unwrap();
    }

    #[test]
    fn lengths_beyond_the_file_are_refused_before_anything_is_allocated() {
        for bytes in [
            &b"\x80\x02X\xff\xff\xff\xff"[..],
            b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xff",
            b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7f",
            b"\x80\x02\x8b\xff\xff\xff\x7f",
            b"\x80\x02B\xff\xff\xff\xff",
        ] {
            assert!(refusal(bytes).contains("truncated"));
        }
    }

    #[test]
    fn a_stack_that_does_not_hold_what_is_asked_is_malformed() {
        for bytes in [
            &b"\x80\x02."[..],
            b"\x80\x02e.",
            b"\x80\x02N(a.",
            b"\x80\x02R.",
            b"\x80\x02NNR.",
            b"\x80\x02N)R.",
            b"\x80\x02}(Nu.",
            b"\x80\x02Nh\x07.",
            b"\x80\x02NNs.",
            b"\x80\x020.",
            b"\x80\x02\x94.",
            b"\x80\x09N.",
        ] {
            assert!(Pickle::read(bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn integers_keep_their_sign() {
        for (bytes, expected) in [
            (&b"\x80\x02J\xfe\xff\xff\xff."[..], -2),
            (b"\x80\x02K\xff.", 255),
            (b"\x80\x02M\xff\xff.", 65535),
            (b"\x80\x02\x8a\x00.", 0),
            (b"\x80\x02\x8a\x01\xff.", -1),
            (b"\x80\x02\x8a\x02\xff\x00.", 255),
        ] {
            assert_eq!(Pickle::read(bytes).unwrap().root(), &PickleValue::Int(expected));
        }
    }
}
