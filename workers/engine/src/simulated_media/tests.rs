use super::*;

fn model() -> SimulatedMedia {
    SimulatedMedia::new(SimulatedMediaConfig {
        width: 8,
        patch: 4,
        samples: 10,
        rows_max: 6,
        seed: 1,
        cost: MediaCost {
            batch_us: 100,
            row_ns: 2000,
        },
    })
}

fn picture(rgb: &[u8]) -> Decoded<'_> {
    Decoded::Image {
        width: 5,
        height: (rgb.len() / 15) as u32,
        rgb,
    }
}

#[test]
fn rules_and_rows_agree_and_the_limit_is_exact() {
    let mut model = model();
    let rgb = [9; 5 * 12 * 3];
    assert_eq!(model.image_tokens(5, 12), Ok(6));
    assert!(
        model
            .image_tokens(5, 13)
            .unwrap_err()
            .contains("8 tokens, of at most 6")
    );
    assert!(model.image_tokens(0, 4).is_err());
    let sound = Decoded::Audio { samples: &[0.5; 21] };
    let results = model.encode(&[picture(&rgb), sound]).unwrap();
    assert_eq!(
        results.iter().map(|rows| rows.len()).collect::<Vec<_>>(),
        [6 * 8, 3 * 8]
    );
    assert_eq!(model.cost_us(), 100 + 9 * 2);
}

#[test]
fn rows_depend_on_every_pixel_and_on_nothing_else_of_the_batch() {
    let mut model = model();
    let (one, mut other) = ([9; 60], [9; 60]);
    other[59] = 8;
    let alone = model.encode(&[picture(&one)]).unwrap();
    let together = model.encode(&[picture(&other), picture(&one)]).unwrap();
    assert_eq!(alone[0], together[1]);
    assert_ne!(together[0], together[1]);
}
