use cluster_messages::Penalties;
use proptest::prelude::*;

use super::*;

fn choose(logits: &[f32], sampling: &Sampling, position: u32) -> Option<u32> {
    let draw = Draw {
        sampling,
        position,
        banned: &[],
        history: None,
    };
    Sampler::default().choose(logits, &draw)
}

fn greedy() -> Sampling {
    Sampling {
        temperature: 0.0,
        ..Sampling::default()
    }
}

/// Draws once at each of many positions, and compares the counts with what is expected. Returns chi-square over the number
/// of degrees of freedom: about 1 if they agree, and with the dozen draws of this file below 3 for any seed worth keeping.
fn misfit(logits: &[f32], sampling: &Sampling, expected: &[f64]) -> f64 {
    const DRAWS: u32 = 10_000;
    let mut sampler = Sampler::default();
    let mut counts = vec![0u32; logits.len()];
    for position in 0..DRAWS {
        let draw = Draw {
            sampling,
            position,
            banned: &[],
            history: None,
        };
        counts[sampler.choose(logits, &draw).unwrap() as usize] += 1;
    }
    let mut chi_square = 0.0;
    let mut kinds: u32 = 0;
    for (count, probability) in counts.iter().zip(expected) {
        let expected = probability * f64::from(DRAWS);
        if *probability > 0.0 {
            chi_square += (f64::from(*count) - expected).powi(2) / expected;
            kinds += 1;
        } else {
            assert_eq!(*count, 0, "a token that is cut off was drawn");
        }
    }
    chi_square / f64::from(kinds - 1).max(1.0)
}

/// The obvious softmax, in double precision.
fn softmax(logits: &[f32], temperature: f64) -> Vec<f64> {
    let weights: Vec<f64> = logits
        .iter()
        .map(|logit| (f64::from(*logit) / temperature).exp())
        .collect();
    let total: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / total).collect()
}

fn renormalized(probabilities: &[f64], keep: impl Fn(usize) -> bool) -> Vec<f64> {
    let kept: Vec<f64> = probabilities
        .iter()
        .enumerate()
        .map(|(id, p)| if keep(id) { *p } else { 0.0 })
        .collect();
    let total: f64 = kept.iter().sum();
    kept.iter().map(|p| p / total).collect()
}

const LOGITS: [f32; 6] = [0.5, 2.0, -1.0, 1.0, 2.0, 0.0];

#[test]
fn equal_logits_are_won_by_the_lowest_id() {
    assert_eq!(choose(&LOGITS, &greedy(), 9), Some(1));
    assert_eq!(choose(&[-0.0, 0.0], &greedy(), 9), Some(0));
    // Long rows take another path through the registers.
    let mut row = vec![1.0; 1000];
    row[777] = 3.0;
    row[999] = 3.0;
    assert_eq!(choose(&row, &greedy(), 9), Some(777));
}

#[test]
fn what_is_no_number_is_never_chosen() {
    let row = [f32::NAN, -5.0, f32::NEG_INFINITY, f32::NAN];
    assert_eq!(choose(&row, &greedy(), 0), Some(1));
    let cuts = [
        (0, 1.0, 0.0),
        (2, 1.0, 0.0),
        (0, 0.5, 0.0),
        (0, 1.0, 0.1),
        (3, 0.9, 0.2),
    ];
    for (top_k, top_p, min_p) in cuts {
        let sampling = Sampling {
            top_k,
            top_p,
            min_p,
            ..Sampling::default()
        };
        assert!((0..100).all(|position| choose(&row, &sampling, position) == Some(1)));
        assert_eq!(choose(&[f32::NAN, f32::NEG_INFINITY], &sampling, 0), None);
        assert_eq!(choose(&[0.0, f32::INFINITY], &sampling, 0), Some(1));
    }
    assert_eq!(choose(&[f32::NAN; 40], &greedy(), 0), None);
}

#[test]
fn temperature_shapes_the_distribution() {
    for temperature in [0.5, 1.0, 2.0] {
        let sampling = Sampling {
            temperature,
            seed: 1,
            ..Sampling::default()
        };
        let misfit = misfit(&LOGITS, &sampling, &softmax(&LOGITS, f64::from(temperature)));
        assert!(misfit < 3.0, "{misfit} at {temperature}");
    }
}

#[test]
fn rows_of_many_groups_are_drawn_evenly() {
    let row = vec![0.25; 1000];
    let misfit = misfit(&row, &Sampling::default(), &vec![0.001; 1000]);
    assert!(misfit < 1.2, "{misfit}");
}

#[test]
fn top_k_keeps_the_best_and_of_equal_ones_the_lowest() {
    let sampling = Sampling {
        top_k: 3,
        ..Sampling::default()
    };
    let expected = renormalized(&softmax(&LOGITS, 1.0), |id| [1, 4, 3].contains(&id));
    assert!(misfit(&LOGITS, &sampling, &expected) < 3.0);
    let one = Sampling {
        top_k: 1,
        ..Sampling::default()
    };
    assert!((0..100).all(|position| choose(&LOGITS, &one, position) == Some(1)));
}

#[test]
fn top_p_keeps_the_smallest_sufficient_set() {
    // Probabilities: 0.08 0.36 0.02 0.13 0.36 0.05.
    let probabilities = softmax(&LOGITS, 1.0);
    for (top_p, kept) in [(0.3, vec![1]), (0.7, vec![1, 4]), (0.8, vec![1, 4, 3]), (0.0, vec![1])] {
        let sampling = Sampling {
            top_p,
            ..Sampling::default()
        };
        let expected = renormalized(&probabilities, |id| kept.contains(&id));
        assert!(misfit(&LOGITS, &sampling, &expected) < 3.0, "{top_p}");
    }
}

#[test]
fn top_p_keeps_the_lowest_ids_of_equal_tokens() {
    // 600 equal tokens and 400 that weigh nothing: 90 % are 540 tokens, those with the lowest ids.
    let mut row = vec![2.0; 600];
    row.extend([-90.0; 400]);
    let sampling = Sampling {
        top_p: 0.9,
        ..Sampling::default()
    };
    let expected: Vec<f64> = (0..1000).map(|id| if id < 540 { 1.0 / 540.0 } else { 0.0 }).collect();
    let misfit = misfit(&row, &sampling, &expected);
    assert!(misfit < 1.3, "{misfit}");
}

#[test]
fn min_p_drops_what_is_far_below_the_best() {
    // exp(1 - 2) = 0.37 and exp(0.5 - 2) = 0.22 of the best.
    let expected = renormalized(&softmax(&LOGITS, 1.0), |id| [1, 3, 4].contains(&id));
    for top_k in [0, 5] {
        let sampling = Sampling {
            min_p: 0.3,
            top_k,
            ..Sampling::default()
        };
        assert!(misfit(&LOGITS, &sampling, &expected) < 3.0);
    }
}

#[test]
fn cuts_apply_one_after_the_other() {
    // Of the three best, top_p 0.8 keeps two: 0.360 / (0.360 + 0.360 + 0.133) = 0.42 each.
    let sampling = Sampling {
        top_k: 3,
        top_p: 0.8,
        ..Sampling::default()
    };
    let expected = renormalized(&softmax(&LOGITS, 1.0), |id| [1, 4].contains(&id));
    assert!(misfit(&LOGITS, &sampling, &expected) < 3.0);
}

#[test]
fn penalties_count_prompt_and_answer_as_documented() {
    let history = History::new(&[0, 1], &[1, 3, 3]);
    let sampling = Sampling {
        penalties: Penalties {
            repetition: 2.0,
            frequency: 0.25,
            presence: 0.5,
        },
        ..greedy()
    };
    let mut logits = [3.0, 4.0, 1.0, -1.0];
    penalize(&mut logits, &sampling, &history);
    // 3/2; 4/2 - 0.25 - 0.5; untouched; -1*2 - 2*0.25 - 0.5.
    assert_eq!(logits, [1.5, 1.25, 1.0, -3.0]);
}

#[test]
fn bias_wins_over_penalties_and_bans_over_bias() {
    let history = History::new(&[2], &[2]);
    let sampling = Sampling {
        penalties: Penalties {
            presence: 2.0,
            ..Penalties::default()
        },
        logit_bias: vec![(2, 100.0)],
        ..greedy()
    };
    let draw = Draw {
        sampling: &sampling,
        position: 0,
        banned: &[],
        history: Some(&history),
    };
    assert_eq!(Sampler::default().choose(&LOGITS, &draw), Some(2));
    let banned = Draw { banned: &[2], ..draw };
    assert_eq!(Sampler::default().choose(&LOGITS, &banned), Some(1));
    let all = Draw {
        banned: &[0, 1, 2, 3, 4, 5],
        ..draw
    };
    assert_eq!(Sampler::default().choose(&LOGITS, &all), None);
}

#[test]
fn logprobs_are_of_the_raw_distribution() {
    let scores = logprobs(&LOGITS, 3, 3);
    let probabilities = softmax(&LOGITS, 1.0);
    let is_near = |logprob: f32, id: usize| (f64::from(logprob) - probabilities[id].ln()).abs() < 1e-5;
    assert!(is_near(scores.chosen, 3), "{scores:?}");
    assert_eq!(scores.top.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1, 4, 3]);
    assert!(
        scores.top.iter().all(|(id, logprob)| is_near(*logprob, *id as usize)),
        "{scores:?}"
    );
    assert_eq!(scores.top[2].1, scores.chosen);
    assert_eq!(logprobs(&[0.0, f32::NEG_INFINITY], 1, 0).chosen, LOGPROB_MIN);
}

#[test]
fn exp_is_within_two_units_of_the_true_value() {
    for step in 0..87_000 {
        let x = -(step as f32) / 1000.0;
        let (value, truth) = (f64::from(softmax::exp(x)), f64::from(x).exp());
        assert!(
            (value - truth).abs() <= truth * 2.4e-7,
            "exp({x}) = {value}, not {truth}"
        );
    }
    assert_eq!(softmax::exp(0.0), 1.0);
    assert_eq!(softmax::exp(-1e30), 0.0);
    assert_eq!(softmax::exp(f32::NEG_INFINITY), 0.0);
}

proptest! {
    /// The partial selection equals a full sort.
    #[test]
    fn best_is_the_head_of_the_sorted_row(
        row in prop::collection::vec(prop_oneof![-3i8..3, -100i8..100], 1..600), count in 1usize..80,
    ) {
        let logits: Vec<f32> = row.iter().map(|logit| f32::from(*logit)).collect();
        let mut sorted: Vec<u32> = (0..logits.len() as u32).collect();
        sorted.sort_by(|a, b| logits[*b as usize].total_cmp(&logits[*a as usize]));
        sorted.truncate(count);
        let mut found = Vec::new();
        best(&logits, count, &mut found);
        prop_assert_eq!(found.iter().map(|candidate| candidate.id).collect::<Vec<_>>(), sorted.clone());
        prop_assert_eq!(select::argmax(&logits), Some(sorted[0]));
    }

    /// The nucleus is what a full sort gives.
    #[test]
    fn the_nucleus_is_the_head_of_the_sorted_row(
        row in prop::collection::vec(prop_oneof![0u16..4, 0u16..2000], 1..300), top_p in 0.0f32..1.0,
    ) {
        let weights: Vec<f32> = row.iter().map(|weight| f32::from(*weight) / 2048.0).chain([1.0]).collect();
        let total: f64 = weights.iter().map(|weight| f64::from(*weight)).sum();
        let mut sorted: Vec<usize> = (0..weights.len()).collect();
        sorted.sort_by(|a, b| weights[*b].total_cmp(&weights[*a]));
        let mut sum = 0.0;
        let mut expected = vec![0.0; weights.len()];
        // Multiples of 1/2048 add up without rounding, so the comparison with the goal is exact.
        for (place, index) in sorted.into_iter().enumerate() {
            if place == 0 || sum < f64::from(top_p) * total {
                expected[index] = weights[index];
            }
            sum += f64::from(weights[index]);
        }
        let mut kept = weights;
        nucleus::keep(&mut kept, top_p, total);
        prop_assert_eq!(kept, expected);
    }

    /// Memory of an earlier row does not matter.
    #[test]
    fn a_choice_does_not_depend_on_earlier_ones(seed: u64, position: u32, top_k in 0u32..4, p in 0usize..2) {
        let sampling = Sampling { seed, top_k, top_p: [1.0, 0.6][p], ..Sampling::default() };
        let draw = Draw { sampling: &sampling, position, banned: &[5], history: None };
        let mut used = Sampler::default();
        used.choose(&[9.0; 50], &draw);
        prop_assert_eq!(used.choose(&LOGITS, &draw), Sampler::default().choose(&LOGITS, &draw));
    }
}
