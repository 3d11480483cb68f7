use super::*;

#[test]
fn a_code_is_the_nearest_of_255_steps() {
    let x: [f32; BLOCK] = std::array::from_fn(|i| (i as f32 * 0.7).sin() * 3.0 - 1.0);
    let line = quantize(&x);
    for (x, code) in x.iter().zip(&line.codes) {
        assert!(
            (x - line.scale * f32::from(*code)).abs() <= line.scale * 0.500_01,
            "{x} became {code}"
        );
    }
    assert_eq!(line.codes.iter().map(|code| code.unsigned_abs()).max(), Some(127));
    assert_eq!(line.sum, line.codes.iter().map(|code| i32::from(*code)).sum::<i32>());
    assert_eq!(line.sums[0] + line.sums[1], line.sum);
    assert_eq!(line.total, line.scale * line.sum as f32);
}

#[test]
fn zeros_stay_zero_and_what_is_no_number_is_not_hidden() {
    assert_eq!(quantize(&[0.0; BLOCK]), Line::ZERO);
    let mut x = [1.0; BLOCK];
    x[17] = f32::NAN;
    assert!(quantize(&x).scale.is_nan());
}
