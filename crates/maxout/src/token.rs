//! The tokens of the text format and their locations.

use monosplit_graph::{Error, ErrorKind, Result};

use crate::network::{MAX_NAME, is_name_character};
use crate::rational::Rational;

/// The largest length of a number, in characters.
const MAX_DIGITS: usize = 400;
/// Powers of ten from minus this to this.
const MAX_POWER_OF_TEN: i32 = 400;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token {
    Name(String),
    Number(Rational),
    Equals,
    Plus,
    Minus,
    Times,
    Power,
    Comma,
    Open,
    Close,
    /// The end of a line that is not inside parentheses.
    Line,
    End,
}

/// Line and column, both counted from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SourceLocation {
    line: usize,
    column: usize,
}

impl SourceLocation {
    pub(crate) fn error(self, message: impl AsRef<str>) -> Error {
        Error::malformed(format!("line {}, column {}: {}", self.line, self.column, message.as_ref()))
    }

    pub(crate) fn expected(self, wanted: &str, found: &Token) -> Error {
        self.error(format!("expected {wanted}, found {}", describe(found)))
    }

    /// An error of building the network, with the location where the neuron is defined.
    pub(crate) fn wrap(self, cause: &Error) -> Error {
        let kind = if cause.kind() == ErrorKind::Argument { ErrorKind::Malformed } else { cause.kind() };
        Error::new(kind, format!("line {}, column {}: {cause}", self.line, self.column))
    }
}

fn describe(token: &Token) -> String {
    let sign = match token {
        Token::Name(name) => return format!("'{name}'"),
        Token::Number(_) => return "a number".to_owned(),
        Token::Line => return "the end of the line".to_owned(),
        Token::End => return "the end of the text".to_owned(),
        Token::Equals => "=",
        Token::Plus => "+",
        Token::Minus => "-",
        Token::Times => "*",
        Token::Power => "^",
        Token::Comma => ",",
        Token::Open => "(",
        Token::Close => ")",
    };
    format!("'{sign}'")
}

/// The tokens of a text, read one after the other.
pub(crate) struct Tokens {
    all: Vec<(Token, SourceLocation)>,
    at: usize,
}

impl Tokens {
    fn get(&self, at: usize) -> &(Token, SourceLocation) {
        // The last token is the end of the text, which is returned again and again.
        &self.all[at.min(self.all.len() - 1)]
    }

    pub(crate) fn next(&mut self) -> (Token, SourceLocation) {
        let token = self.get(self.at).clone();
        self.at += 1;
        token
    }

    pub(crate) fn peek(&self) -> &Token {
        &self.get(self.at).0
    }

    pub(crate) fn second(&self) -> &Token {
        &self.get(self.at + 1).0
    }

    /// Reads the next token if it is `token`, and returns whether it was.
    pub(crate) fn take(&mut self, token: &Token) -> bool {
        let found = self.peek() == token;
        self.at += usize::from(found);
        found
    }
}

/// Splits a text into tokens.
pub(crate) fn tokens(text: &str) -> Result<Tokens> {
    let mut all = Vec::new();
    let mut depth = 0usize;
    let mut end = SourceLocation { line: 1, column: 1 };
    for (number, line) in text.lines().enumerate() {
        let line: Vec<char> = line.split('#').next().unwrap_or("").chars().collect();
        let mut at = 0;
        while at < line.len() {
            let location = SourceLocation { line: number + 1, column: at + 1 };
            if line[at].is_whitespace() || line[at] == '\u{feff}' {
                at += 1;
                continue;
            }
            let (token, length) = token(&line[at..], location)?;
            match token {
                Token::Open => depth += 1,
                Token::Close => depth = depth.saturating_sub(1),
                _ => {}
            }
            all.push((token, location));
            at += length;
        }
        end = SourceLocation { line: number + 1, column: line.len() + 1 };
        if depth == 0 {
            all.push((Token::Line, end));
        }
    }
    all.push((Token::End, end));
    Ok(Tokens { all, at: 0 })
}

fn token(rest: &[char], location: SourceLocation) -> Result<(Token, usize)> {
    let sign = match rest[0] {
        '=' => Token::Equals,
        '+' => Token::Plus,
        '-' | '−' => Token::Minus,
        '*' | '·' => Token::Times,
        '^' => Token::Power,
        ',' => Token::Comma,
        '(' => Token::Open,
        ')' => Token::Close,
        c if c.is_ascii_digit() || c == '.' => return number(rest, location),
        c if is_name_character(c, true) => return name(rest, location),
        c => {
            let shown: String = c.escape_debug().collect();
            return Err(
                location.error(format!("'{shown}' means nothing here, expected a name, a number or a sign"))
            );
        }
    };
    Ok((sign, 1))
}

fn name(rest: &[char], location: SourceLocation) -> Result<(Token, usize)> {
    let length = rest.iter().take_while(|&&c| is_name_character(c, false)).count();
    if length > MAX_NAME {
        return Err(location.error(format!("this name has {length} characters, expected at most {MAX_NAME}")));
    }
    Ok((Token::Name(rest[..length].iter().collect()), length))
}

/// Digits with a point and an exponent, or a fraction of two whole numbers.
fn number(rest: &[char], location: SourceLocation) -> Result<(Token, usize)> {
    let bad = || location.error("expected a number like 3, 0.25, 1e-3 or 2/3");
    let mut at = 0;
    let mut digits = run_of_digits(rest, &mut at);
    let mut exponent = 0i32;
    if rest.get(at) == Some(&'.') {
        at += 1;
        let fraction = run_of_digits(rest, &mut at);
        exponent = -i32::try_from(fraction.len()).map_err(|_| bad())?;
        digits.extend(fraction);
    }
    if digits.is_empty() {
        return Err(bad());
    }
    check_length(digits.len(), location)?;
    if let Some((power, length)) = power_of_ten(&rest[at..]) {
        let power = power.filter(|power| power.abs() <= MAX_POWER_OF_TEN).ok_or_else(|| {
            location.error(format!("expected a power of ten from -{MAX_POWER_OF_TEN} to {MAX_POWER_OF_TEN}"))
        })?;
        (exponent, at) = (exponent + power, at + length);
    }
    let value = Rational::from_decimal(&digits, exponent);
    if rest.get(at) != Some(&'/') {
        return Ok((Token::Number(value), at));
    }
    at += 1;
    let below = run_of_digits(rest, &mut at);
    if below.is_empty() {
        return Err(location.error("expected a whole number after '/', as in 2/3"));
    }
    check_length(below.len(), location)?;
    let value = value.over(&Rational::from_decimal(&below, 0));
    Ok((Token::Number(value.ok_or_else(|| location.error("this number is divided by zero"))?), at))
}

fn run_of_digits(rest: &[char], at: &mut usize) -> Vec<u8> {
    let digits = rest[*at..].iter().take_while(|c| c.is_ascii_digit());
    let digits: Vec<u8> = digits.map(|&c| c as u8).collect();
    *at += digits.len();
    digits
}

fn check_length(digits: usize, location: SourceLocation) -> Result<()> {
    match digits <= MAX_DIGITS {
        true => Ok(()),
        false => {
            Err(location.error(format!("this number has {digits} digits, expected at most {MAX_DIGITS}")))
        }
    }
}

/// `e`, a sign or none, digits: the power (`None` if it is absurd) and its length. An `e` without digits begins a name.
fn power_of_ten(rest: &[char]) -> Option<(Option<i32>, usize)> {
    if !matches!(rest.first(), Some('e' | 'E')) {
        return None;
    }
    let negative = rest.get(1) == Some(&'-');
    let mut at = 1 + usize::from(matches!(rest.get(1), Some('+' | '-')));
    let digits = run_of_digits(rest, &mut at);
    if digits.is_empty() {
        return None;
    }
    let size: Option<i32> = String::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
    Some((size.map(|size| if negative { -size } else { size }), at))
}
