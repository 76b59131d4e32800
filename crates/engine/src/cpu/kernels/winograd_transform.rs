//! The transforms of Winograd's convolutions F(2×2, 3×3) and F(4×4, 3×3), many tiles at a time.
//!
//! F(2×2) interpolates at 0, 1, −1, ∞ and F(4×4) at 0, 1, −1, ½, −2, ∞, which rounds less than the customary
//! ±2. Tiles overlap by two elements; neighbouring tiles are neighbouring elements of a vector.
//!
//! Both sets of points map onto themselves under `p → −1/p`, and the rows of `G` are scaled alike for it. The
//! transform of a kernel rotated by 180° and with every other sign changed is therefore the transform of the
//! kernel itself with its positions exchanged, so that a convolution and its transpose share one: every other
//! input and output changes its sign instead. For F(2×2), whose points map onto themselves under `p → 1/p`
//! too, no sign changes.
#![allow(unsafe_code)]

use super::simd_lanes::Lanes;
use super::simd_level::simd_dispatch;
use super::winograd_tiles::{ROWS, STRIP, Strips, TileVector};
use crate::cpu::real::Real;

/// The side of an output tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum TileSize {
    /// F(2×2, 3×3)
    Two,
    /// F(4×4, 3×3)
    Four,
}

impl TileSize {
    /// Side of an output tile.
    pub(crate) fn step(self) -> usize {
        match self {
            TileSize::Two => 2,
            TileSize::Four => 4,
        }
    }

    /// Side of an input tile.
    pub(crate) fn side(self) -> usize {
        self.step() + 2
    }

    /// Elements of an input tile, called positions.
    pub(crate) fn positions(self) -> usize {
        self.side() * self.side()
    }

    /// The rows of `G`.
    fn kernel_rows(self) -> &'static [[f64; 3]] {
        match self {
            TileSize::Two => &[[1.0, 0.0, 0.0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0.0, 0.0, 1.0]],
            TileSize::Four => &[
                [1.0, 0.0, 0.0],
                [1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0],
                [1.0 / 3.0, -1.0 / 3.0, 1.0 / 3.0],
                [8.0 / 15.0, 4.0 / 15.0, 2.0 / 15.0],
                [2.0 / 15.0, -4.0 / 15.0, 8.0 / 15.0],
                [0.0, 0.0, 1.0],
            ],
        }
    }

    /// `Gᵀ m G` of the sums at the positions of a tile: the gradient of a kernel.
    pub(crate) fn kernel_gradient(self, m: &[f64; 36]) -> [f64; 9] {
        let rows = self.kernel_rows();
        let mut out = [0.0; 9];
        for (vertical, m) in rows.iter().zip(m.chunks(rows.len())) {
            for b in 0..3 {
                let line: f64 = rows.iter().zip(m).map(|(horizontal, m)| horizontal[b] * m).sum();
                (0..3).for_each(|a| out[3 * a + b] += vertical[a] * line);
            }
        }
        out
    }

    /// `G g Gᵀ` of a 3×3 kernel, row by row.
    pub(crate) fn kernel(self, g: &[f64; 9]) -> [f64; 36] {
        let rows = self.kernel_rows();
        let dot = |a: &[f64; 3], b: [f64; 3]| a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
        let mut out = [0.0; 36];
        for (vertical, out) in rows.iter().zip(out.chunks_mut(rows.len())) {
            let column = |j: usize| dot(vertical, [g[j], g[3 + j], g[6 + j]]);
            let line = [column(0), column(1), column(2)];
            out.iter_mut().zip(rows).for_each(|(out, horizontal)| *out = dot(horizontal, line));
        }
        out
    }
}

/// `Bᵀd` for F(4, 3); if rotated, of `d` with every other sign changed, positions exchanged.
///
/// # Safety
/// The machine has the instructions of `L`.
#[inline(always)]
unsafe fn input_four<L: Lanes>(d: [L; 6], rotated: bool) -> [L; 6]
where
    L::Scalar: Real,
{
    // SAFETY: the caller vouches for the instructions.
    unsafe {
        let constant = |v: f64| L::splat(L::Scalar::from_f64(v));
        let (p, q) = (d[3].minus(d[1]), d[4].minus(d[2]));
        let outer = d[0].minus(d[2]).plus(q);
        if rotated {
            let (r, s) =
                (constant(-1.5).multiply_add(d[3], q), constant(1.5).multiply_add(d[2], d[1].minus(d[3])));
            [
                constant(1.5).multiply_add(q, d[3].minus(d[5]).plus(p)),
                r.minus(s),
                r.plus(s),
                constant(0.5).multiply_add(p, q),
                constant(-2.0).multiply_add(p, q),
                constant(-1.5).multiply_add(p, outer),
            ]
        } else {
            let (r, s) = (constant(1.5).multiply_add(d[3], q), constant(1.5).multiply_add(d[2], p));
            [
                constant(1.5).multiply_add(p, outer),
                r.plus(s),
                r.minus(s),
                constant(2.0).multiply_add(p, q),
                constant(-0.5).multiply_add(p, q),
                constant(1.5).multiply_add(q, d[5].minus(d[3]).minus(p)),
            ]
        }
    }
}

/// `Bᵀd` for F(2, 3); if rotated, positions exchanged.
///
/// # Safety
/// The machine has the instructions of `L`.
#[inline(always)]
unsafe fn input_two<L: Lanes>(d: [L; 4], rotated: bool) -> [L; 4] {
    // SAFETY: the caller vouches for the instructions.
    unsafe {
        let (first, last) = (d[0].minus(d[2]), d[3].minus(d[1]));
        let inner = (d[1].plus(d[2]), d[2].minus(d[1]));
        if rotated { [last, inner.0, inner.1, first] } else { [first, inner.0, inner.1, last] }
    }
}

/// `Aᵀm` for F(4, 3); if rotated, of `m` with positions exchanged, every other sign changed.
///
/// # Safety
/// The machine has the instructions of `L`.
#[inline(always)]
unsafe fn output_four<L: Lanes>(m: [L; 6], rotated: bool) -> [L; 4]
where
    L::Scalar: Real,
{
    // SAFETY: the caller vouches for the instructions.
    unsafe {
        let constant = |v: f64| L::splat(L::Scalar::from_f64(v));
        let m = if rotated { [m[5], m[2], m[1], m[4], m[3], m[0]] } else { m };
        let (difference, sum) = (m[1].minus(m[2]), m[1].plus(m[2]));
        let weighted = |base: L, third: f64, fourth: f64| {
            constant(fourth).multiply_add(m[4], constant(third).multiply_add(m[3], base))
        };
        let (even, other) =
            ([weighted(m[0].plus(difference), -2.0, 0.5), weighted(difference, -0.5, 2.0)], m[3].plus(m[4]));
        if rotated {
            let last = constant(4.0).multiply_add(
                m[4],
                constant(0.25).multiply_add(m[3], L::splat(L::Scalar::ZERO).minus(m[5]).minus(sum)),
            );
            [even[0], other.minus(sum), even[1], last]
        } else {
            [even[0], sum.minus(other), even[1], weighted(sum.plus(m[5]), -0.25, -4.0)]
        }
    }
}

/// `Aᵀm` for F(2, 3); if rotated, of `m` with positions exchanged.
///
/// # Safety
/// The machine has the instructions of `L`.
#[inline(always)]
unsafe fn output_two<L: Lanes>(m: [L; 4], rotated: bool) -> [L; 2] {
    // SAFETY: the caller vouches for the instructions.
    unsafe {
        let (first, last) = if rotated { (m[3], m[0]) } else { (m[0], m[3]) };
        [first.plus(m[1]).plus(m[2]), m[1].minus(m[2]).plus(last)]
    }
}

/// `A d` for F(4, 3), the transpose of what [`output_four`] does.
///
/// # Safety
/// The machine has the instructions of `L`.
#[inline(always)]
unsafe fn spread_four<L: Lanes>(d: [L; 4]) -> [L; 6]
where
    L::Scalar: Real,
{
    // SAFETY: the caller vouches for the instructions.
    unsafe {
        let constant = |v: f64| L::splat(L::Scalar::from_f64(v));
        let (even, odd) = (d[0].plus(d[2]), d[1].plus(d[3]));
        let weighted = |base: L, factors: [f64; 3], of: [L; 3]| {
            of.into_iter().zip(factors).fold(base, |sum, (d, f)| constant(f).multiply_add(d, sum))
        };
        let nothing = constant(0.0);
        let third = weighted(nothing.minus(d[1]), [-2.0, -0.5, -0.25], [d[0], d[2], d[3]]);
        let fourth = weighted(nothing.minus(d[1]), [0.5, 2.0, -4.0], [d[0], d[2], d[3]]);
        [d[0], even.plus(odd), odd.minus(even), third, fourth, d[3]]
    }
}

/// `A d` for F(2, 3), the transpose of what [`output_two`] does.
///
/// # Safety
/// The machine has the instructions of `L`.
#[inline(always)]
unsafe fn spread_two<L: Lanes>(d: [L; 2]) -> [L; 4] {
    // SAFETY: the caller vouches for the instructions.
    unsafe { [d[0], d[0].plus(d[1]), d[0].minus(d[1]), d[1]] }
}

/// The transpose of transforming back: spreads a vector of tiles of outputs over the positions of input tiles; the number of
/// tile `t` at position `i` goes to `to[i·stride + t]`.
///
/// # Safety
/// As for [`input_tiles`].
#[inline(always)]
unsafe fn spread_tiles<L: Lanes>(
    tiles: &TileVector<'_>,
    planes: *const L::Scalar,
    strips: &mut Strips<L::Scalar>,
    to: *mut L::Scalar,
    stride: usize,
) where
    L::Scalar: Real,
{
    let (size, strip) = (tiles.size, strips.0.as_mut_ptr());
    // SAFETY: the caller vouches for every access; a row of a strip has room for a whole vector of tiles, and a strip for the
    // rows of an input tile.
    unsafe {
        tiles.load_tiles::<L>(planes, [size.step(), 0, 0], strip);
        for at in (0..size.step()).map(|vector| strip.add(vector * L::WIDTH)) {
            match size {
                TileSize::Four => {
                    let rows = spread_four(std::array::from_fn(|i| L::load(at.add(i * STRIP))));
                    rows.into_iter().enumerate().for_each(|(i, row)| row.store(at.add(i * STRIP)));
                }
                TileSize::Two => {
                    let rows = spread_two(std::array::from_fn(|i| L::load(at.add(i * STRIP))));
                    rows.into_iter().enumerate().for_each(|(i, row)| row.store(at.add(i * STRIP)));
                }
            }
        }
        for row in 0..size.side() {
            let (at, to) = (strip.add(row * STRIP), to.add(row * size.side() * stride));
            match size {
                TileSize::Four => {
                    let row = spread_four(L::deinterleave::<4>(at));
                    row.into_iter().enumerate().for_each(|(j, v)| v.store(to.add(j * stride)));
                }
                TileSize::Two => {
                    let row = spread_two(L::deinterleave::<2>(at));
                    row.into_iter().enumerate().for_each(|(j, v)| v.store(to.add(j * stride)));
                }
            }
        }
    }
}

/// Transforms a vector of tiles: the number of tile `t` at position `i` of its tile goes to `to[i·stride + t]`.
///
/// # Safety
/// The machine has the instructions of `L`; [`TileVector::extent`] numbers can be read at `planes`; `to` can take a vector at every
/// position of a tile.
#[inline(always)]
unsafe fn input_tiles<L: Lanes>(
    rotated: bool,
    tiles: &TileVector<'_>,
    planes: *const L::Scalar,
    strips: &mut Strips<L::Scalar>,
    to: *mut L::Scalar,
    stride: usize,
) where
    L::Scalar: Real,
{
    let (size, strip) = (tiles.size, strips.0.as_mut_ptr());
    let (step, side) = (size.step(), size.side());
    // SAFETY: the caller vouches for every access; a row of a strip has room for what a whole vector of tiles reads.
    unsafe {
        let (beyond, laid_out) = if tiles.is_row() {
            tiles.load_tiles::<L>(planes, [side, 0, 2], strip);
            (strip.add(step), [0..step + 1, 0..0])
        } else {
            let second = strip.add(ROWS);
            tiles.load_tiles::<L>(planes, [side, 0, 0], strip);
            tiles.load_tiles::<L>(planes, [side, step, 0], second);
            (second, [0..step, 0..step])
        };
        for (strip, vectors) in [strip, strip.add(ROWS)].into_iter().zip(laid_out) {
            for at in vectors.map(|vector| strip.add(vector * L::WIDTH)) {
                match size {
                    TileSize::Four => {
                        let rows = input_four(std::array::from_fn(|i| L::load(at.add(i * STRIP))), rotated);
                        rows.into_iter().enumerate().for_each(|(i, row)| row.store(at.add(i * STRIP)));
                    }
                    TileSize::Two => {
                        let rows = input_two(std::array::from_fn(|i| L::load(at.add(i * STRIP))), rotated);
                        rows.into_iter().enumerate().for_each(|(i, row)| row.store(at.add(i * STRIP)));
                    }
                }
            }
        }
        for row in 0..side {
            let (at, beyond) = (strip.add(row * STRIP), beyond.add(row * STRIP));
            let to = to.add(row * side * stride);
            match size {
                TileSize::Four => {
                    let [a, b, c, d] = L::deinterleave::<4>(at);
                    let [e, f, _, _] = L::deinterleave::<4>(beyond);
                    let row = input_four([a, b, c, d, e, f], rotated);
                    row.into_iter().enumerate().for_each(|(j, v)| v.store(to.add(j * stride)));
                }
                TileSize::Two => {
                    let [a, b] = L::deinterleave::<2>(at);
                    let [c, d] = L::deinterleave::<2>(beyond);
                    let row = input_two([a, b, c, d], rotated);
                    row.into_iter().enumerate().for_each(|(j, v)| v.store(to.add(j * stride)));
                }
            }
        }
    }
}

/// Transforms a vector of tiles back, adds `bias`, clamps to limits, and stores the outputs.
///
/// # Safety
/// The machine has the instructions of `L`; a vector can be read at `from[i·stride]` for every position `i` of an input
/// tile; [`TileVector::extent`] numbers can be written at `planes`.
#[inline(always)]
unsafe fn output_tiles<L: Lanes>(
    rotated: bool,
    tiles: &TileVector<'_>,
    (from, stride): (*const L::Scalar, usize),
    (bias, limits): (L::Scalar, [L::Scalar; 2]),
    strips: &mut Strips<L::Scalar>,
    planes: *mut L::Scalar,
) where
    L::Scalar: Real,
{
    let strip = strips.0.as_mut_ptr();
    // SAFETY: the caller vouches for every access; a row of a strip holds four vectors.
    unsafe {
        let (bias, [least, most]) = (L::splat(bias), limits.map(|limit| L::splat(limit)));
        match tiles.size {
            TileSize::Four => {
                let mut columns = [[bias; 4]; 6];
                for (j, column) in columns.iter_mut().enumerate() {
                    let column_of = std::array::from_fn(|i| L::load(from.add((i * 6 + j) * stride)));
                    *column = output_four(column_of, rotated);
                }
                for i in 0..4usize {
                    let mut row = output_four(columns.map(|column| column[i]), rotated);
                    for v in &mut row {
                        *v = v.plus(bias).limited(least, most);
                    }
                    L::interleave::<4>(row, strip.add(i * STRIP));
                }
            }
            TileSize::Two => {
                let mut columns = [[bias; 2]; 4];
                for (j, column) in columns.iter_mut().enumerate() {
                    let column_of = std::array::from_fn(|i| L::load(from.add((i * 4 + j) * stride)));
                    *column = output_two(column_of, rotated);
                }
                for i in 0..2usize {
                    let mut row = output_two(columns.map(|column| column[i]), rotated);
                    for v in &mut row {
                        *v = v.plus(bias).limited(least, most);
                    }
                    L::interleave::<2>(row, strip.add(i * STRIP));
                }
            }
        }
        tiles.store_tiles::<L>(strip, planes);
    }
}

simd_dispatch!(
    transform_input<R: Real>(
        rotated: bool,
        tiles: &TileVector<'_>,
        planes: *const R,
        strips: &mut Strips<R>,
        to: *mut R,
        stride: usize,
    ),
    input_tiles
);
simd_dispatch!(
    spread_output<R: Real>(tiles: &TileVector<'_>, planes: *const R, strips: &mut Strips<R>, to: *mut R, stride: usize),
    spread_tiles
);
simd_dispatch!(
    transform_output<R: Real>(
        rotated: bool,
        tiles: &TileVector<'_>,
        from: (*const R, usize),
        end: (R, [R; 2]),
        strips: &mut Strips<R>,
        planes: *mut R,
    ),
    output_tiles
);
