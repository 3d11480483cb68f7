use std::thread;

use proptest::prelude::*;

use super::{SharedMemory, shared_memory};
use crate::{Collective, CollectiveError};

/// Runs `rank` in a thread for each rank of a new group and collects what they return.
fn group<T: Send>(ranks: usize, rank: impl Fn(SharedMemory) -> T + Sync) -> Vec<T> {
    let rank = &rank;
    thread::scope(|scope| {
        let members = shared_memory(ranks).into_iter();
        let threads: Vec<_> = members.map(|member| scope.spawn(move || rank(member))).collect();
        let results = threads.into_iter().map(|thread| thread.join().expect("a rank ends"));
        results.collect()
    })
}

/// Numbers of a rank that make the order of a sum visible in its bits.
fn numbers(rank: usize, len: usize) -> Vec<f32> {
    let number = |i: usize| ((i * 31 + rank * 17) as f32 * 0.37).sin() * 10f32.powi((rank as i32 * 3) % 7);
    (0..len).map(number).collect()
}

/// Their sum in the order of ranks.
fn total(ranks: usize, len: usize) -> Vec<f32> {
    let mut total = numbers(0, len);
    for rank in 1..ranks {
        total.iter_mut().zip(numbers(rank, len)).for_each(|(sum, x)| *sum += x);
    }
    total
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_rank_gets_the_plain_sum(ranks in 1usize..=8, len in prop_oneof![0usize..40, 4000usize..9000], times in 1usize..4) {
        let expected = total(ranks, len);
        let results = group(ranks, |member| {
            let mut values = Vec::new();
            for _ in 0..times {
                values = numbers(member.rank(), len);
                member.all_reduce(&mut values).expect("all are there");
            }
            values
        });
        for values in results {
            prop_assert_eq!(&values, &expected);
        }
    }

    #[test]
    fn parts_arrive_where_they_belong(ranks in 1usize..=8, len in 0usize..300) {
        let sum = total(ranks, ranks * len);
        let all: Vec<f32> = (0..ranks).flat_map(|rank| numbers(rank, len)).collect();
        group(ranks, |member| {
            let rank = member.rank();
            for root in 0..ranks {
                let mut gathered = vec![0.0; ranks * len];
                member.all_gather(&numbers(rank, len), &mut gathered).expect("all are there");
                assert_eq!(gathered, all);
                let mut own = vec![0.0; len];
                member.reduce_scatter(&numbers(rank, ranks * len), &mut own).expect("all are there");
                assert_eq!(own, sum[rank * len..(rank + 1) * len]);
                let mut values = numbers(rank, len);
                member.broadcast(root, &mut values).expect("all are there");
                assert_eq!(values, numbers(root, len));
            }
        });
    }

    #[test]
    fn parts_of_all_lengths_change_hands(ranks in 1usize..=8, seed in 0usize..50) {
        let part = |from: usize, to: usize| numbers(from * 8 + to, (from * 5 + to * 3 + seed) % 7 * 11);
        group(ranks, |member| {
            let mut received = Vec::new();
            for _ in 0..3 {
                let parts: Vec<Vec<f32>> = (0..ranks).map(|to| part(member.rank(), to)).collect();
                let slices: Vec<&[f32]> = parts.iter().map(Vec::as_slice).collect();
                member.all_to_all(&slices, &mut received).expect("all are there");
                let expected: Vec<Vec<f32>> = (0..ranks).map(|from| part(from, member.rank())).collect();
                assert_eq!(received, expected);
            }
        });
    }
}

#[test]
fn a_rank_that_leaves_releases_the_others() {
    let results = group(4, |member| {
        let mut values = [1.0; 100];
        member.all_reduce(&mut values).expect("all are there");
        if member.rank() == 2 {
            return Ok(());
        }
        member.all_reduce(&mut values)
    });
    for (rank, result) in results.into_iter().enumerate().filter(|(rank, _)| *rank != 2) {
        let reason = "rank 2 is gone".into();
        assert_eq!(result, Err(CollectiveError { rank, ranks: 4, reason }));
    }
}

#[test]
fn a_rank_that_panics_releases_the_others() {
    let mut members = shared_memory(3).into_iter();
    let mut next = || members.next().expect("three ranks");
    let (first, second, third) = (next(), next(), next());
    thread::scope(|scope| {
        let waiting = scope.spawn(move || first.broadcast(1, &mut [0.0; 4]));
        let panicking = scope.spawn(move || {
            let _member = second;
            std::panic::resume_unwind(Box::new("a bug"));
        });
        assert!(panicking.join().is_err(), "the rank panics");
        let error = waiting.join().expect("released").expect_err("a rank is missing");
        assert_eq!(error.to_string(), "rank 0 of 3 lost the others: rank 1 is gone");
        assert!(third.all_reduce(&mut []).is_err(), "later calls are told as well");
    });
}

#[test]
fn lengths_and_operations_must_agree() {
    let results = group(3, |member| member.all_reduce(&mut vec![0.0; 8 + member.rank() / 2]));
    assert!(results.iter().all(Result::is_err), "{results:?}");
    let error = results[0].clone().expect_err("rank 2 brings nine");
    assert_eq!(
        error.reason,
        "rank 2 does AllReduce(9) where this one does AllReduce(8)"
    );

    let results = group(2, |member| match member.rank() {
        0 => member.all_reduce(&mut [0.0; 4]),
        _ => member.broadcast(0, &mut [0.0; 4]),
    });
    assert!(results.iter().all(Result::is_err), "{results:?}");

    let results = group(2, |member| match member.rank() {
        0 => member.all_gather(&[1.0; 4], &mut [0.0; 7]),
        _ => member.all_gather(&[1.0; 4], &mut [0.0; 8]),
    });
    for result in results {
        let error = result.expect_err("seven numbers are too few");
        assert_eq!(error.reason, "7 numbers cannot hold 4 of each rank");
    }
}
