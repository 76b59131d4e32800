//! The paper's theorems on thousands of random networks, in exact rational arithmetic: a claim holds or it does not.

use crate::random::{Random, Recipe, network};
use monosplit_maxout::{
    Bound, Counts, DecomposedNetwork, Expansion, Inputs, MaxoutNetwork, ProductDecomposition, Rational,
    SplitOptions, Variables, parse, split,
};

const NETWORKS: u64 = 2000;
const C: i64 = 3;

fn shifted() -> Inputs {
    Inputs::Shifted(Rational::from(C))
}

/// Every way to split.
fn ways() -> Vec<SplitOptions> {
    let inputs = [Inputs::Rectified, Inputs::Streams, Inputs::Shifted(Rational::zero()), shifted()];
    let both = |inputs: Inputs| {
        [ProductDecomposition::Binomial, ProductDecomposition::Powers]
            .map(|products| SplitOptions::default().inputs(inputs.clone()).products(products))
    };
    inputs.into_iter().flat_map(both).collect()
}

/// Random networks with a source of more randomness for each.
fn networks(recipe: Recipe) -> impl Iterator<Item = (MaxoutNetwork, Random)> {
    (0..NETWORKS).map(move |seed| {
        let mut random = Random::new(seed);
        (network(&mut random, recipe), random)
    })
}

/// What the split networks read where the network reads `x`.
fn given(options: &SplitOptions, x: &[Rational]) -> Vec<Rational> {
    match options.inputs {
        Inputs::Streams => x.iter().flat_map(|x| [x.positive_part(), (-x).positive_part()]).collect(),
        _ => x.to_vec(),
    }
}

fn streams(pair: &DecomposedNetwork, at: &[Rational]) -> Vec<Rational> {
    [&pair.g, &pair.h].iter().flat_map(|stream| stream.evaluate(at).unwrap()).collect()
}

fn midpoint(x: &[Rational], y: &[Rational]) -> Vec<Rational> {
    let half = Rational::ratio(1, 2).unwrap();
    x.iter().zip(y).map(|(x, y)| &(x + y) * &half).collect()
}

fn assert_convex_between(
    pair: &DecomposedNetwork,
    x: &[Rational],
    y: &[Rational],
    text: &dyn std::fmt::Display,
) {
    let ends = midpoint(&streams(pair, x), &streams(pair, y));
    for (between, mean) in streams(pair, &midpoint(x, y)).iter().zip(&ends) {
        assert!(between <= mean, "between {x:?} and {y:?}\n{text}");
    }
}

#[test]
fn slow_f_is_g_minus_h_exactly() {
    for (f, mut random) in networks(Recipe::default()) {
        for options in ways() {
            let pair = split(&f, &options).unwrap();
            for _ in 0..3 {
                let x = random.point(f.inputs().len(), -4);
                let at = given(&options, &x);
                let [g, h] = [&pair.g, &pair.h].map(|stream| stream.evaluate(&at).unwrap());
                let difference: Vec<Rational> = g.iter().zip(&h).map(|(g, h)| g - h).collect();
                assert_eq!(difference, f.evaluate(&x).unwrap(), "{options:?}\n{f}");
                let both = pair.both.evaluate(&at).unwrap();
                let joined: Vec<Rational> = g.into_iter().zip(h).flat_map(|(g, h)| [g, h]).collect();
                assert_eq!(both, joined);
            }
        }
    }
}

/// The difference does not depend on which numbers ≥ 0 the streams are, as long as theirs is `x`.
#[test]
fn any_pair_of_streams_will_do() {
    for (f, mut random) in networks(Recipe::default()) {
        for products in [ProductDecomposition::Binomial, ProductDecomposition::Powers] {
            let pair =
                split(&f, &SplitOptions::default().inputs(Inputs::Streams).products(products)).unwrap();
            let at = random.point(2 * f.inputs().len(), 0);
            let x: Vec<Rational> = at.chunks(2).map(|pair| &pair[0] - &pair[1]).collect();
            let both = pair.both.evaluate(&at).unwrap();
            let difference: Vec<Rational> = both.chunks(2).map(|pair| &pair[0] - &pair[1]).collect();
            assert_eq!(difference, f.evaluate(&x).unwrap(), "{f}");
        }
    }
}

#[test]
fn slow_no_weight_but_those_of_inputs_is_negative() {
    for (f, _) in networks(Recipe::default()) {
        for options in ways() {
            let pair = split(&f, &options).unwrap();
            for part in [&pair.both, &pair.g, &pair.h] {
                let kept = if options.inputs == Inputs::Rectified {
                    part.is_input_convex()
                } else {
                    part.is_monotone()
                };
                assert!(kept, "{options:?}\n{part}");
            }
        }
    }
}

/// The theorem's claim of convexity, in full, for products that became powers.
#[test]
fn slow_powers_are_convex_between_any_two_points() {
    for (f, mut random) in networks(Recipe::default()) {
        for (inputs, least) in [(Inputs::Rectified, -4), (shifted(), -C)] {
            let options = SplitOptions::default().inputs(inputs).products(ProductDecomposition::Powers);
            let pair = split(&f, &options).unwrap();
            for _ in 0..4 {
                let [x, y] = [0; 2].map(|_| random.point(f.inputs().len(), least));
                assert_convex_between(&pair, &x, &y, &f);
            }
        }
    }
}

/// Multiplied out as in the paper, the streams are convex in all directions if no product mixes two inputs.
#[test]
fn products_of_one_input_are_convex_between_any_two_points() {
    for (f, mut random) in networks(Recipe { mixing: false, ..Recipe::default() }) {
        for (inputs, least) in [(Inputs::Rectified, -4), (shifted(), -C)] {
            let pair = split(&f, &SplitOptions::default().inputs(inputs)).unwrap();
            for _ in 0..4 {
                let [x, y] = [0; 2].map(|_| random.point(f.inputs().len(), least));
                assert_convex_between(&pair, &x, &y, &f);
            }
        }
    }
}

/// Whatever they mix, they are convex along lines on which all variables grow.
#[test]
fn posynomials_are_convex_where_all_variables_grow() {
    for (f, mut random) in networks(Recipe::default()) {
        let length = f.inputs().len();
        let pair = split(&f, &SplitOptions::default().inputs(shifted())).unwrap();
        let rectified = split(&f, &SplitOptions::default()).unwrap();
        for _ in 0..4 {
            let (x, more) = (random.point(length, -C), random.point(length, 0));
            let y: Vec<Rational> = x.iter().zip(&more).map(|(x, m)| x + m).collect();
            assert_convex_between(&pair, &x, &y, &f);
            // On the side of zero where an input is, its streams grow with its size.
            let sides: Vec<Rational> =
                (0..length).map(|_| Rational::from(1 - 2 * random.below(2) as i64)).collect();
            let near: Vec<Rational> =
                random.point(length, 0).iter().zip(&sides).map(|(n, s)| n * s).collect();
            let far: Vec<Rational> =
                near.iter().zip(&more).zip(&sides).map(|((n, m), s)| n + &(m * s)).collect();
            assert_convex_between(&rectified, &near, &far, &f);
        }
    }
}

/// And they are convex on logarithmic axes: `g(√(xy))² ≤ g(x)·g(y)`, which squares make exact.
#[test]
fn posynomials_are_convex_on_logarithmic_axes() {
    for (f, mut random) in networks(Recipe { degree: 4, ..Recipe::default() }) {
        let pair = split(&f, &SplitOptions::default().inputs(Inputs::Streams)).unwrap();
        let [x, y] = [0; 2].map(|_| random.point(2 * f.inputs().len(), 0));
        let product = |a: &[Rational], b: &[Rational]| -> Vec<Rational> {
            a.iter().zip(b).map(|(a, b)| a * b).collect()
        };
        let ends = product(&streams(&pair, &product(&x, &x)), &streams(&pair, &product(&y, &y)));
        for (between, ends) in streams(&pair, &product(&x, &y)).iter().zip(&ends) {
            assert!(between.power(2) <= *ends, "{f}");
        }
    }
}

/// Why that is all that can be said: the first stream of `x·y` is `x·y` where both are positive.
#[test]
fn the_papers_split_of_a_product_is_not_convex() {
    let f = parse("input x, y\nf = x * y\noutput f").unwrap();
    let [x, y] = [[2, 0], [0, 2]].map(|point| point.map(Rational::from));
    let value = |products: ProductDecomposition, at: &[Rational]| {
        let pair = split(&f, &SplitOptions::default().products(products)).unwrap();
        pair.g.evaluate(at).unwrap()[0].clone()
    };
    let ends = |products| midpoint(&[value(products, &x)], &[value(products, &y)])[0].clone();
    let between = |products| value(products, &midpoint(&x, &y));
    assert!(between(ProductDecomposition::Binomial) > ends(ProductDecomposition::Binomial));
    assert!(between(ProductDecomposition::Powers) <= ends(ProductDecomposition::Powers));
}

/// Signs of weights alone do not make a network the largest of polynomials, or convex: a product of `−x` and a maximum is a
/// minimum where `x` is positive. In a split it is different, since what follows its inputs is never negative.
#[test]
fn a_negative_factor_turns_a_maximum_into_a_minimum() {
    let f = parse("input x, a, b\nn = -x\nm = max(a, b)\np = n * m\noutput p").unwrap();
    assert!(f.is_input_convex());
    for a in 0..4i64 {
        for b in 0..4i64 {
            let found = f.evaluate(&[2, a, b].map(Rational::from)).unwrap();
            assert_eq!(found, [Rational::from((-2 * a).min(-2 * b))]);
        }
    }
}

#[test]
fn slow_streams_never_decrease_above_minus_c() {
    for (f, mut random) in networks(Recipe::default()) {
        for products in [ProductDecomposition::Binomial, ProductDecomposition::Powers] {
            let pair = split(&f, &SplitOptions::default().inputs(shifted()).products(products)).unwrap();
            for _ in 0..4 {
                let x = random.point(f.inputs().len(), -C);
                let y: Vec<Rational> =
                    random.point(x.len(), 0).iter().zip(&x).map(|(more, x)| x + more).collect();
                let (low, high) = (streams(&pair, &x), streams(&pair, &y));
                assert!(low.iter().zip(&high).all(|(low, high)| low <= high), "{f}");
                assert!(low.iter().all(|value| !value.is_negative()), "{f}");
            }
        }
    }
}

#[test]
fn slow_sizes_stay_below_the_bound() {
    let mut reached = 0;
    for (f, _) in networks(Recipe { neurons: 12, degree: 8, ..Recipe::default() }) {
        let before = Counts::of(&f);
        for options in ways().into_iter().filter(|options| options.inputs != Inputs::Streams) {
            let pair = split(&f, &options).unwrap();
            let (bound, after) = (Bound::of(&f, &options), Counts::of(&pair.both));
            assert!(bound.holds(&after), "{options:?}: {after:?} is more than {bound:?}\n{f}\n{}", pair.both);
            // A shift may add the neuron of biases.
            assert!(bound.neurons <= bound.factor * (before.neurons() + 1));
            assert!(Counts::of(&pair.g).neurons() <= after.neurons());
            assert!(after.rank <= before.rank.max(2));
            reached += usize::from(after.neurons() == bound.neurons);
        }
    }
    assert!(reached > 0, "the bound is reached by some network, so it is not loose");
}

#[test]
fn slow_the_posynomials_are_the_network() {
    let mut expanded = 0;
    for (f, mut random) in networks(Recipe { neurons: 4, degree: 3, ..Recipe::default() }) {
        for products in [ProductDecomposition::Binomial, ProductDecomposition::Powers] {
            let pair =
                split(&f, &SplitOptions::default().inputs(Inputs::Streams).products(products)).unwrap();
            for variables in [Variables::Free, Variables::Streams] {
                // Some lists are too long, which is an answer too.
                let Ok(expansion) = Expansion::of(&pair.both, variables) else { continue };
                expanded += 1;
                let x = random.point(f.inputs().len(), -4);
                let at = match variables {
                    Variables::Free => random.point(2 * x.len(), 0),
                    Variables::Streams => {
                        x.iter().flat_map(|x| [x.positive_part(), (-x).positive_part()]).collect()
                    }
                };
                assert_eq!(expansion.evaluate(&at).unwrap(), pair.both.evaluate(&at).unwrap(), "{f}");
            }
        }
    }
    assert!(expanded as u64 > 2 * NETWORKS, "{expanded}");
}

#[test]
fn monotone_networks_are_the_largest_of_posynomials() {
    let mut expanded = 0;
    for (f, mut random) in networks(Recipe { signed: false, degree: 4, ..Recipe::default() }) {
        let Ok(expansion) = Expansion::of(&f, Variables::Free) else { continue };
        expanded += 1;
        for _ in 0..3 {
            let x = random.point(f.inputs().len(), 0);
            assert_eq!(expansion.evaluate(&x).unwrap(), f.evaluate(&x).unwrap(), "{f}");
        }
    }
    assert!(expanded as u64 > NETWORKS / 2, "{expanded}");
}

#[test]
fn slow_text_is_read_as_it_was_written() {
    for (f, _) in networks(Recipe { neurons: 12, ..Recipe::default() }).step_by(4) {
        assert_eq!(parse(&f.to_string()).unwrap(), f, "{f}");
        for options in ways() {
            let both = split(&f, &options).unwrap().both;
            assert_eq!(parse(&both.to_string()).unwrap(), both, "{both}");
        }
    }
}

#[test]
fn doubles_agree_with_rationals() {
    for (f, mut random) in networks(Recipe::default()) {
        let x = random.point(f.inputs().len(), -4);
        let doubles: Vec<f64> = x.iter().map(Rational::to_f64).collect();
        let activations = f.activations(&doubles).unwrap();
        let size = activations.iter().fold(1f64, |most, a| most.max(a.abs()));
        for (double, exact) in activations.iter().zip(f.activations(&x).unwrap()) {
            assert!((double - exact.to_f64()).abs() <= 1e-12 * size * size, "{f}");
        }
    }
}
