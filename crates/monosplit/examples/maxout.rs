//! A network of three neurons, split in exact arithmetic:
//!
//!     cargo run --release --example maxout

use monosplit::Result;
use monosplit::maxout::{Rational, SplitOptions, parse, split};

fn main() -> Result<()> {
    let f = parse("input x, y\n s = max(x - 2y, 0)\n f = s * y\n output f")?;
    let pair = split(&f, &SplitOptions::default())?;
    for (x, y) in [(3, -1), (1, 1), (7, 2)] {
        let at = [Rational::from(x), Rational::from(y)];
        let (g, h) = (&pair.g.evaluate(&at)?[0], &pair.h.evaluate(&at)?[0]);
        println!("f({x}, {y}) = {} = {g} − {h}", f.evaluate(&at)?[0]);
    }
    Ok(())
}
