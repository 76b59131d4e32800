//! Networks as text, for people to write and read.
//!
//! ```text
//! # A gate: x where 2x − y is large, nothing where it is small.
//! input x, y
//! s = max(2x - y + 1/2, 0)     # addition neuron of rank 2
//! t = 0.5 s - 3                # of rank 1, also called simple
//! p = x^2 * t                  # multiplication neuron
//! output p
//! ```
//!
//! One statement a line; `#` begins a comment; inside parentheses lines may be broken. A name is defined before it is used,
//! which is why no network can have a cycle. Numbers are whole (`3`), decimal (`0.25`, `1e-3`) or fractions (`2/3`) and are
//! taken exactly. A number without a name is a bias.

use std::collections::HashSet;
use std::fmt;

use monosplit_graph::{Error, Result};

use crate::network::{MAX_RANK, Network, RESERVED};
use crate::neuron::{Form, Neuron, NeuronId, add_term};
use crate::rational::Rational;
use crate::token::{Place, Token, Tokens, tokens};

/// A text may have this many bytes.
pub const MAX_TEXT: usize = 1 << 24;
/// The largest exponent of one factor.
const MAX_EXPONENT: u32 = 64;

/// Reads a network.
pub fn parse(text: &str) -> Result<Network> {
    if text.len() > MAX_TEXT {
        let found = text.len();
        return Err(Error::malformed(format!("the text has {found} bytes, expected at most {MAX_TEXT}")));
    }
    let mut reader = Reader { tokens: tokens(text)?, network: None, inputs: Vec::new(), outputs: Vec::new() };
    while reader.statement()? {}
    reader.finish()
}

/// Reads a number: `3`, `-0.25`, `1e-3` or `2/3`.
pub fn parse_number(text: &str) -> Option<Rational> {
    let mut words = tokens(text).ok()?;
    let negative = words.take(&Token::Minus);
    let (Token::Number(number), _) = words.next() else { return None };
    let rest = [words.next().0, words.next().0];
    (rest == [Token::Line, Token::End]).then(|| if negative { -&number } else { number })
}

struct Reader {
    tokens: Tokens,
    /// What was read; not there before the first neuron that is no input, since inputs come first.
    network: Option<Network>,
    inputs: Vec<String>,
    outputs: Vec<NeuronId>,
}

impl Reader {
    /// Reads one statement; false at the end.
    fn statement(&mut self) -> Result<bool> {
        let (token, place) = self.tokens.next();
        match token {
            Token::End => return Ok(false),
            Token::Line => {}
            Token::Name(word) if word == "input" => self.input_names(place)?,
            Token::Name(word) if word == "output" => self.output_names()?,
            Token::Name(name) => self.definition(name, place)?,
            other => return Err(place.expected("'input', 'output' or the name of a neuron", &other)),
        }
        Ok(true)
    }

    fn network(&mut self) -> Result<&mut Network> {
        if self.network.is_none() {
            self.network = Some(Network::new(std::mem::take(&mut self.inputs))?);
        }
        self.network.as_mut().ok_or_else(|| Error::malformed("there is no network"))
    }

    fn end_of_line(&mut self, instead: &str) -> Result<()> {
        match self.tokens.next() {
            (Token::Line | Token::End, _) => Ok(()),
            (other, place) => Err(place.expected(instead, &other)),
        }
    }

    /// A list of names; `take` is given each.
    fn names(&mut self, mut take: impl FnMut(&mut Self, String, Place) -> Result<()>) -> Result<()> {
        loop {
            match self.tokens.next() {
                (Token::Name(name), place) => take(self, name, place)?,
                (other, place) => return Err(place.expected("the name of a neuron", &other)),
            }
            if !self.tokens.take(&Token::Comma) {
                return self.end_of_line("',' or the end of the line");
            }
        }
    }

    fn input_names(&mut self, place: Place) -> Result<()> {
        if self.network.is_some() {
            return Err(place.error("this input comes after other neurons, expected all inputs before them"));
        }
        let mut known: HashSet<String> = self.inputs.iter().cloned().collect();
        self.names(|reader, name, place| {
            if RESERVED.contains(&name.as_str()) || !known.insert(name.clone()) {
                return Err(place.error(format!("'{name}' cannot be an input: the word is taken")));
            }
            reader.inputs.push(name);
            Ok(())
        })
    }

    fn output_names(&mut self) -> Result<()> {
        self.names(|reader, name, place| {
            let neuron = reader.known(&name, place)?;
            reader.outputs.push(neuron);
            Ok(())
        })
    }

    fn known(&mut self, name: &str, place: Place) -> Result<NeuronId> {
        self.network()?.find(name).ok_or_else(|| {
            place.error(format!(
                "'{name}' is not known, expected the name of an input or of a neuron defined above"
            ))
        })
    }

    fn definition(&mut self, name: String, place: Place) -> Result<()> {
        match self.tokens.next() {
            (Token::Equals, _) => {}
            (other, place) => return Err(place.expected(&format!("'=' after '{name}'"), &other)),
        }
        if self.network()?.find(&name).is_some() {
            return Err(place.error(format!("'{name}' is defined twice, expected another name")));
        }
        let is_maximum = matches!(self.tokens.peek(), Token::Name(word) if word == "max");
        let added = if is_maximum {
            let rows = self.maximum()?;
            self.network()?.addition(name, &rows)
        } else if self.begins_product() {
            let factors = self.product()?;
            self.network()?.multiplication(name, &factors)
        } else {
            let row = self.form()?;
            self.end_of_line("'+', '-' or the end of the line")?;
            self.network()?.addition(name, &[row])
        };
        added.map(drop).map_err(|error| place.said(&error))
    }

    fn begins_product(&self) -> bool {
        matches!(self.tokens.peek(), Token::Name(_))
            && matches!(self.tokens.second(), Token::Times | Token::Power)
    }

    /// `max(form, form, …)`
    fn maximum(&mut self) -> Result<Vec<Form>> {
        let (_, place) = self.tokens.next();
        match self.tokens.next() {
            (Token::Open, _) => {}
            (other, place) => return Err(place.expected("'(' after 'max'", &other)),
        }
        let mut rows = Vec::new();
        loop {
            rows.push(self.form()?);
            if rows.len() > MAX_RANK {
                return Err(place.error(format!("this is the largest of more than {MAX_RANK} sums")));
            }
            match self.tokens.next() {
                (Token::Comma, _) => {}
                (Token::Close, _) => break,
                (other, place) => return Err(place.expected("'+', '-', ',' or ')'", &other)),
            }
        }
        self.end_of_line("the end of the line after ')'; a maximum is a neuron of its own")?;
        Ok(rows)
    }

    /// `name^n * name * …`
    fn product(&mut self) -> Result<Vec<(NeuronId, u32)>> {
        let mut factors = Vec::new();
        loop {
            let source = match self.tokens.next() {
                (Token::Name(name), place) => self.known(&name, place)?,
                (other, place) => return Err(place.expected("the name of a neuron", &other)),
            };
            let exponent = if self.tokens.take(&Token::Power) { self.exponent()? } else { 1 };
            factors.push((source, exponent));
            if !self.tokens.take(&Token::Times) {
                break;
            }
        }
        self.end_of_line("'*' or the end of the line; a product is a neuron of its own, its weight is given where it is read")?;
        Ok(factors)
    }

    fn exponent(&mut self) -> Result<u32> {
        let wanted = format!("a whole exponent from 1 to {MAX_EXPONENT}");
        match self.tokens.next() {
            (Token::Number(number), place) => (1..=MAX_EXPONENT)
                .find(|&n| Rational::from(i64::from(n)) == number)
                .ok_or_else(|| place.error(format!("the exponent is {}, expected {wanted}", short(&number)))),
            (other, place) => Err(place.expected(&wanted, &other)),
        }
    }

    /// `2x - y/… + 0.5`
    fn form(&mut self) -> Result<Form> {
        let mut form = Form::new();
        let mut negative = self.sign();
        loop {
            let (neuron, weight) = self.term()?;
            add_term(&mut form, neuron, &if negative { -&weight } else { weight });
            negative = match self.tokens.peek() {
                Token::Plus => false,
                Token::Minus => true,
                _ => return Ok(form),
            };
            self.tokens.next();
        }
    }

    fn sign(&mut self) -> bool {
        if self.tokens.take(&Token::Minus) {
            return true;
        }
        self.tokens.take(&Token::Plus);
        false
    }

    /// A number, a name, or a number and a name with or without `*` between them.
    fn term(&mut self) -> Result<(NeuronId, Rational)> {
        let weight = match self.tokens.next() {
            (Token::Name(name), place) => return Ok((self.operand(&name, place)?, Rational::one())),
            (Token::Number(number), _) => number,
            (other, place) => return Err(place.expected("a number or the name of a neuron", &other)),
        };
        let must = self.tokens.take(&Token::Times);
        match self.tokens.peek() {
            Token::Name(_) => {}
            _ if !must => return Ok((NeuronId::UNIT, weight)),
            _ => {
                let (other, place) = self.tokens.next();
                return Err(place.expected("the name of a neuron after '*'", &other));
            }
        }
        match self.tokens.next() {
            (Token::Name(name), place) => Ok((self.operand(&name, place)?, weight)),
            (other, place) => Err(place.expected("the name of a neuron", &other)),
        }
    }

    fn operand(&mut self, name: &str, place: Place) -> Result<NeuronId> {
        if matches!(self.tokens.peek(), Token::Times | Token::Power) {
            return Err(place.error(format!(
                "'{name}' is multiplied inside a sum, expected a product to be a neuron of its own; give it a name on a line above"
            )));
        }
        self.known(name, place)
    }

    fn finish(mut self) -> Result<Network> {
        if self.outputs.is_empty() {
            return Err(Error::malformed("the text names no output, expected a line like 'output f'"));
        }
        let outputs = std::mem::take(&mut self.outputs);
        let network = self.network()?;
        outputs.into_iter().try_for_each(|output| network.output(output))?;
        self.network.ok_or_else(|| Error::malformed("there is no network"))
    }
}

/// A number as it can stand in a message.
fn short(number: &Rational) -> String {
    let text = number.to_string();
    if text.len() > 20 { format!("{}…", &text[..20]) } else { text }
}

/// The network in the form that [`parse`] reads, exact to the last digit.
impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |ids: &mut dyn Iterator<Item = NeuronId>| {
            ids.map(|id| self.name(id)).collect::<Vec<_>>().join(", ")
        };
        if self.inputs().len() > 0 {
            writeln!(f, "input {}", list(&mut self.inputs()))?;
        }
        for (id, neuron) in self.neurons() {
            match neuron {
                Neuron::Unit | Neuron::Input => continue,
                Neuron::Addition(addition) => {
                    let rows: Vec<String> = addition.rows().iter().map(|row| self.written(row)).collect();
                    match &rows[..] {
                        [only] => writeln!(f, "{} = {only}", self.name(id))?,
                        several => writeln!(f, "{} = max({})", self.name(id), several.join(", "))?,
                    }
                }
                Neuron::Multiplication(product) => {
                    let single = product.factors().len() == 1;
                    let factor = |&(u, n): &(NeuronId, u32)| match n == 1 && !single {
                        true => self.name(u).to_owned(),
                        false => format!("{}^{n}", self.name(u)),
                    };
                    let factors: Vec<String> = product.factors().iter().map(factor).collect();
                    writeln!(f, "{} = {}", self.name(id), factors.join(" * "))?;
                }
            }
        }
        writeln!(f, "output {}", list(&mut self.outputs().iter().copied()))
    }
}

impl Network {
    /// A sum as text; biases come last.
    fn written(&self, row: &Form) -> String {
        let bias = row.get_key_value(&NeuronId::UNIT);
        let named = row.iter().filter(|(neuron, _)| **neuron != NeuronId::UNIT);
        let mut text = String::new();
        for (&neuron, weight) in named.chain(bias) {
            text += match (text.is_empty(), weight.is_negative()) {
                (true, false) => "",
                (true, true) => "-",
                (false, false) => " + ",
                (false, true) => " - ",
            };
            let size = weight.magnitude();
            match (neuron == NeuronId::UNIT, size.is_one()) {
                (true, _) => text += &size.to_string(),
                (false, true) => text += self.name(neuron),
                (false, false) => text += &format!("{size} {}", self.name(neuron)),
            }
        }
        if text.is_empty() { "0".to_owned() } else { text }
    }
}
