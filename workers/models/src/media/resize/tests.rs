use super::*;

fn picture(height: usize, width: usize) -> Picture {
    let value = |i: usize| (i * 37 % 251) as u8;
    Picture {
        height,
        width,
        rgb: (0..height * width * CHANNELS).map(value).collect(),
    }
}

#[test]
fn one_colour_stays_one_colour() {
    for filter in [Filter::Lanczos, Filter::Triangle, Filter::Cubic] {
        for (height, width) in [(1, 1), (3, 50), (90, 7)] {
            let flat = Picture {
                height,
                width,
                rgb: [10, 128, 255].repeat(height * width),
            };
            let resized = resize(flat, 28, 56, filter);
            assert_eq!(
                resized.rgb,
                [10, 128, 255].repeat(28 * 56),
                "{filter:?} from {height} x {width}"
            );
        }
    }
}

#[test]
fn halving_a_row_of_two_takes_the_mean() {
    let two = Picture {
        height: 1,
        width: 2,
        rgb: vec![0, 10, 100, 100, 20, 200],
    };
    assert_eq!(resize(two, 1, 1, Filter::Triangle).rgb, [50, 15, 150]);
}

#[test]
fn the_own_size_changes_nothing() {
    let original = picture(5, 9);
    assert_eq!(resize(original.clone(), 5, 9, Filter::Lanczos), original);
}

#[test]
fn a_mirrored_picture_gives_a_mirrored_result() {
    let original = picture(13, 31);
    let mirror = |picture: &Picture| Picture {
        rgb: picture
            .rgb
            .chunks_exact(picture.width * CHANNELS)
            .flat_map(|row| row.chunks_exact(CHANNELS).rev().flatten().copied())
            .collect(),
        ..picture.clone()
    };
    let there = resize(mirror(&original), 28, 24, Filter::Lanczos);
    let back = mirror(&resize(original, 28, 24, Filter::Lanczos));
    let unlike = there.rgb.iter().zip(&back.rgb).filter(|(a, b)| a.abs_diff(**b) > 1);
    assert_eq!(unlike.count(), 0);
}
