//! The text format of networks.
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

use crate::network::{MAX_RANK, MaxoutNetwork, RESERVED};
use crate::neuron::{Form, Neuron, NeuronId, add_term};
use crate::rational::Rational;
use crate::token::{SourceLocation, Token, Tokens, tokens};

/// The largest size of a text, in bytes.
pub const MAX_TEXT: usize = 1 << 24;
/// The largest exponent of one factor.
const MAX_EXPONENT: u32 = 64;

/// Reads a network.
pub fn parse(text: &str) -> Result<MaxoutNetwork> {
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
    /// The network so far; none before the first neuron that is not an input, because inputs come first.
    network: Option<MaxoutNetwork>,
    inputs: Vec<String>,
    outputs: Vec<NeuronId>,
}

impl Reader {
    /// Reads one statement; false at the end.
    fn statement(&mut self) -> Result<bool> {
        let (token, location) = self.tokens.next();
        match token {
            Token::End => return Ok(false),
            Token::Line => {}
            Token::Name(word) if word == "input" => self.input_names(location)?,
            Token::Name(word) if word == "output" => self.output_names()?,
            Token::Name(name) => self.definition(name, location)?,
            other => return Err(location.expected("'input', 'output' or the name of a neuron", &other)),
        }
        Ok(true)
    }

    fn network(&mut self) -> Result<&mut MaxoutNetwork> {
        if self.network.is_none() {
            self.network = Some(MaxoutNetwork::new(std::mem::take(&mut self.inputs))?);
        }
        self.network.as_mut().ok_or_else(|| Error::malformed("there is no network"))
    }

    fn end_of_line(&mut self, instead: &str) -> Result<()> {
        match self.tokens.next() {
            (Token::Line | Token::End, _) => Ok(()),
            (other, location) => Err(location.expected(instead, &other)),
        }
    }

    /// A list of names; `take` is given each.
    fn names(&mut self, mut take: impl FnMut(&mut Self, String, SourceLocation) -> Result<()>) -> Result<()> {
        loop {
            match self.tokens.next() {
                (Token::Name(name), location) => take(self, name, location)?,
                (other, location) => return Err(location.expected("the name of a neuron", &other)),
            }
            if !self.tokens.take(&Token::Comma) {
                return self.end_of_line("',' or the end of the line");
            }
        }
    }

    fn input_names(&mut self, location: SourceLocation) -> Result<()> {
        if self.network.is_some() {
            return Err(
                location.error("this input comes after other neurons, expected all inputs before them")
            );
        }
        let mut known: HashSet<String> = self.inputs.iter().cloned().collect();
        self.names(|reader, name, location| {
            if RESERVED.contains(&name.as_str()) || !known.insert(name.clone()) {
                return Err(location.error(format!("'{name}' cannot be an input: the word is taken")));
            }
            reader.inputs.push(name);
            Ok(())
        })
    }

    fn output_names(&mut self) -> Result<()> {
        self.names(|reader, name, location| {
            let neuron = reader.known(&name, location)?;
            reader.outputs.push(neuron);
            Ok(())
        })
    }

    fn known(&mut self, name: &str, location: SourceLocation) -> Result<NeuronId> {
        self.network()?.find(name).ok_or_else(|| {
            location.error(format!(
                "'{name}' is not known, expected the name of an input or of a neuron defined above"
            ))
        })
    }

    fn definition(&mut self, name: String, location: SourceLocation) -> Result<()> {
        match self.tokens.next() {
            (Token::Equals, _) => {}
            (other, location) => return Err(location.expected(&format!("'=' after '{name}'"), &other)),
        }
        if self.network()?.find(&name).is_some() {
            return Err(location.error(format!("'{name}' is defined twice, expected another name")));
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
        added.map(drop).map_err(|error| location.wrap(&error))
    }

    fn begins_product(&self) -> bool {
        matches!(self.tokens.peek(), Token::Name(_))
            && matches!(self.tokens.second(), Token::Times | Token::Power)
    }

    /// `max(form, form, …)`
    fn maximum(&mut self) -> Result<Vec<Form>> {
        let (_, location) = self.tokens.next();
        match self.tokens.next() {
            (Token::Open, _) => {}
            (other, location) => return Err(location.expected("'(' after 'max'", &other)),
        }
        let mut rows = Vec::new();
        loop {
            rows.push(self.form()?);
            if rows.len() > MAX_RANK {
                return Err(location.error(format!("this is the largest of more than {MAX_RANK} sums")));
            }
            match self.tokens.next() {
                (Token::Comma, _) => {}
                (Token::Close, _) => break,
                (other, location) => return Err(location.expected("'+', '-', ',' or ')'", &other)),
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
                (Token::Name(name), location) => self.known(&name, location)?,
                (other, location) => return Err(location.expected("the name of a neuron", &other)),
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
            (Token::Number(number), location) => {
                (1..=MAX_EXPONENT).find(|&n| Rational::from(i64::from(n)) == number).ok_or_else(|| {
                    location.error(format!("the exponent is {}, expected {wanted}", short(&number)))
                })
            }
            (other, location) => Err(location.expected(&wanted, &other)),
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
            (Token::Name(name), location) => return Ok((self.operand(&name, location)?, Rational::one())),
            (Token::Number(number), _) => number,
            (other, location) => return Err(location.expected("a number or the name of a neuron", &other)),
        };
        let must = self.tokens.take(&Token::Times);
        match self.tokens.peek() {
            Token::Name(word) if !RESERVED.contains(&word.as_str()) => {}
            _ if !must => return Ok((NeuronId::UNIT, weight)),
            _ => {
                let (other, location) = self.tokens.next();
                return Err(location.expected("the name of a neuron after '*'", &other));
            }
        }
        match self.tokens.next() {
            (Token::Name(name), location) => Ok((self.operand(&name, location)?, weight)),
            (other, location) => Err(location.expected("the name of a neuron", &other)),
        }
    }

    fn operand(&mut self, name: &str, location: SourceLocation) -> Result<NeuronId> {
        if name == "max" {
            return Err(location.error("'max' stands inside a sum, expected a maximum to be a neuron of its own; give it a name on a line above"));
        }
        if matches!(self.tokens.peek(), Token::Times | Token::Power) {
            return Err(location.error(format!(
                "'{name}' is multiplied inside a sum, expected a product to be a neuron of its own; give it a name on a line above"
            )));
        }
        self.known(name, location)
    }

    fn finish(mut self) -> Result<MaxoutNetwork> {
        if self.outputs.is_empty() {
            return Err(Error::malformed("the text names no output, expected a line like 'output f'"));
        }
        let outputs = std::mem::take(&mut self.outputs);
        let network = self.network()?;
        outputs.into_iter().try_for_each(|output| network.output(output))?;
        self.network.ok_or_else(|| Error::malformed("there is no network"))
    }
}

/// A number for a message, shortened if it is long.
fn short(number: &Rational) -> String {
    let text = number.to_string();
    if text.len() > 20 { format!("{}…", &text[..20]) } else { text }
}

/// The network in the form that [`parse`] reads, exact to the last digit.
impl fmt::Display for MaxoutNetwork {
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

impl MaxoutNetwork {
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

#[cfg(test)]
mod tests {
    use super::*;
    use monosplit_graph::ErrorKind;

    fn refused(text: &str, words: &[&str]) {
        let error = parse(text).unwrap_err();
        let message = error.to_string();
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
        assert!(matches!(error.kind(), ErrorKind::Malformed | ErrorKind::Unsupported), "{message}");
    }

    #[test]
    fn every_form_of_the_language_is_understood() {
        let text = "# a gate\n\ninput x, y\ninput z\ns = max(2x - 1/3*y,\n  +0.25, 1e-1 z - x - x) # broken\nt = -s + 4·z − .5\np = x^2 * t * x\nq = t^1\noutput p, q\n";
        let network = parse(text).unwrap();
        let written = "input x, y, z\ns = max(2 x - 1/3 y, 0.25, -2 x + 0.1 z)\nt = 4 z - s - 0.5\np = x^3 * t\nq = t^1\noutput p, q\n";
        assert_eq!(network.to_string(), written);
        assert_eq!(parse(written).unwrap(), network);
    }

    #[test]
    fn an_empty_text() {
        refused("", &["no output"]);
        refused("\n# nothing\n", &["no output"]);
        refused("input x\n", &["no output"]);
    }

    #[test]
    fn a_sign_that_means_nothing() {
        refused("input x\ny = x ? 2\noutput y", &["line 2, column 7", "'?'"]);
        refused("input x\ny = x \u{1b}[2J\noutput y", &["line 2, column 7", "u{1b}"]);
    }

    #[test]
    fn a_name_that_is_not_known() {
        refused("input x\ny = 2 x + w\noutput y", &["line 2, column 11", "'w' is not known"]);
        refused("input x\noutput y", &["line 2, column 8", "'y'"]);
    }

    #[test]
    fn a_neuron_that_reads_itself_or_what_comes_later() {
        refused("input x\ny = x + y\noutput y", &["line 2, column 9", "defined above"]);
        refused("input x\ny = x + z\nz = y\noutput z", &["line 2, column 9", "defined above"]);
    }

    #[test]
    fn a_name_that_is_there_twice() {
        refused("input x, x\noutput x", &["line 1, column 10", "'x'"]);
        refused("input x\nx = 2 x\noutput x", &["line 2, column 1", "twice"]);
        refused("input max\noutput max", &["line 1, column 7"]);
        refused("input x\nmax = x\noutput x", &["line 2", "'max' cannot be the name"]);
    }

    #[test]
    fn an_input_after_other_neurons() {
        refused("input x\ny = x\ninput z\noutput y", &["line 3, column 1", "before"]);
    }

    #[test]
    fn a_product_inside_a_sum() {
        refused("input x, y\nz = 2 x * y\noutput z", &["line 2, column 7", "neuron of its own"]);
        refused("input x, y\nz = y + x^2\noutput z", &["line 2, column 9", "neuron of its own"]);
        refused("input x, y\nz = x * y + 1\noutput z", &["line 2, column 11", "neuron of its own"]);
        refused("input x, y\nz = x * 2\noutput z", &["line 2, column 9", "expected the name of a neuron"]);
    }

    #[test]
    fn a_maximum_inside_a_sum() {
        refused("input x\nz = 1 + max(x, 0)\noutput z", &["line 2, column 9", "neuron of its own"]);
        refused("input x\nz = max(x, 0) + 1\noutput z", &["line 2, column 15", "neuron of its own"]);
    }

    #[test]
    fn parentheses_that_do_not_close() {
        refused("input x\nz = max(x, 0\noutput z", &["line 3, column 1", "expected '+', '-', ',' or ')'"]);
        refused("input x\nz = max(x, ", &["the end of the text"]);
        refused("input x\nz = max x", &["'(' after 'max'"]);
        refused("input x\nz = max()\noutput z", &["line 2, column 9"]);
        refused("input x\nz = x)\noutput z", &["line 2, column 6"]);
    }

    #[test]
    fn numbers_that_are_none() {
        refused("input x\nz = 1/0 x\noutput z", &["line 2, column 5", "divided by zero"]);
        refused("input x\nz = 1/ x\noutput z", &["line 2, column 5", "after '/'"]);
        refused("input x\nz = . x\noutput z", &["line 2, column 5"]);
        refused("input x\nz = 1e999 x\noutput z", &["line 2, column 5", "power of ten"]);
        refused("input x\nz = 1e99999999999 x\noutput z", &["power of ten"]);
        refused(&format!("input x\nz = {} x\noutput z", "9".repeat(401)), &["401 digits"]);
    }

    #[test]
    fn exponents_that_are_none() {
        for exponent in ["0", "65", "1.5", "-1", "x", ""] {
            refused(
                &format!("input x\nz = x^{exponent}\noutput z"),
                &["line 2, column", "exponent from 1 to 64"],
            );
        }
        refused("input x, y\nz = x^60 * y^60\noutput z", &["line 2, column 1", "120"]);
    }

    #[test]
    fn what_is_too_large() {
        let wide = format!("input x\nz = max({}x)\noutput z", "x,".repeat(MAX_RANK));
        refused(&wide, &["line 2, column 5", "more than 4096"]);
        refused(&format!("input {}\n", "x".repeat(300)), &["300 characters"]);
        refused(&" ".repeat(MAX_TEXT + 1), &["bytes"]);
        let many: String = (0..1 << 17).map(|i| format!("x{i}=1\n")).collect();
        refused(&many, &["too large"]);
        // Every row reads another neuron: a short text with many weights.
        let names: Vec<String> = (0..2000).map(|i| format!("x{i}")).collect();
        refused(&format!("input {0}\nz = max({0})\noutput z", names.join(",")), &["line 2", "too large"]);
    }

    #[test]
    fn text_that_ends_anywhere_is_refused_or_read() {
        let text = "input x, y\ns = max(2x - y + 1/2, 0)\np = x^2 * s\noutput p";
        for (end, _) in text.char_indices() {
            let _ = parse(&text[..end]);
        }
    }

    #[test]
    fn numbers_alone() {
        let read = ["3", "-0.25", "2/3", " 1e2 "].map(|text| parse_number(text).unwrap().to_string());
        assert_eq!(read, ["3", "-0.25", "2/3", "100"]);
        assert!(["", "x", "1 2", "--1", "1/0", "1 x"].iter().all(|text| parse_number(text).is_none()));
    }
}
