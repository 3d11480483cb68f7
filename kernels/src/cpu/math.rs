//! e^x for sixteen lanes, the same bits on every instruction set.

use super::lanes::Lanes;

/// Below it e^x is taken as zero; it is close to the smallest normal number.
const LOWEST: f32 = -87.0;
/// Above it e^x is held at e^88, so that it stays finite.
const HIGHEST: f32 = 88.0;
/// Adding and subtracting it rounds to the nearest whole number.
const ROUND: f32 = 12_582_912.0;
/// ln 2, of which the first part has so few bits that n times it is exact.
const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = -2.121_944_4e-4;
/// (e^r - 1 - r) / r², fitted on |r| ≤ ln(2)/2; the highest power first.
const POLYNOMIAL: [f32; 6] = [
    1.987_569_1e-4,
    1.398_2e-3,
    8.333_452e-3,
    4.166_579_6e-2,
    1.666_666_5e-1,
    5e-1,
];

/// e^x with a relative error of about 1e-7; exactly 1 at 0 and exactly 0 below -87..
#[inline(always)]
pub(crate) fn exp<L: Lanes>(l: L, x: L::F) -> L::F {
    let held = l.select_less(l.splat(HIGHEST), x, l.splat(HIGHEST), x);
    // The order matters: `max` passes on its second operand when there is no number.
    let held = l.max(l.splat(LOWEST), held);
    let n = l.sub(
        l.fma(held, l.splat(std::f32::consts::LOG2_E), l.splat(ROUND)),
        l.splat(ROUND),
    );
    let r = l.fma(n, l.splat(-LN2_HIGH), held);
    let r = l.fma(n, l.splat(-LN2_LOW), r);
    let mut p = l.splat(POLYNOMIAL[0]);
    for coefficient in &POLYNOMIAL[1..] {
        p = l.fma(p, r, l.splat(*coefficient));
    }
    let e = l.add(l.fma(p, l.mul(r, r), r), l.splat(1.0));
    l.select_less(x, l.splat(LOWEST), l.splat(0.0), l.mul(e, l.power_of_two(n)))
}

/// 1 / (1 + e^-x)
#[inline(always)]
pub(crate) fn sigmoid<L: Lanes>(l: L, x: L::F) -> L::F {
    let e = exp(l, l.sub(l.splat(0.0), x));
    l.div(l.splat(1.0), l.add(l.splat(1.0), e))
}
