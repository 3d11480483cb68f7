use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

fn counts(pool: &Pool, items: usize) -> Vec<u32> {
    let counters: Vec<AtomicU32> = (0..items).map(|_| AtomicU32::new(0)).collect();
    pool.for_each(items, &|item| {
        counters[item].fetch_add(1, Ordering::Relaxed);
    });
    counters.iter().map(|counter| counter.load(Ordering::Relaxed)).collect()
}

#[test]
fn every_item_runs_once_whatever_the_threads() {
    for threads in [1, 2, 3, 5] {
        let pool = Pool::new(threads).expect("a few threads");
        for items in [0, 1, 2, 3, 17, 400] {
            assert_eq!(counts(&pool, items), vec![1; items], "{threads} threads");
        }
    }
}

#[test]
fn many_short_jobs_one_after_another() {
    let pool = Pool::new(3).expect("a few threads");
    let total = AtomicUsize::new(0);
    for _ in 0..20_000 {
        pool.for_each(4, &|item| {
            total.fetch_add(item + 1, Ordering::Relaxed);
        });
    }
    assert_eq!(total.into_inner(), 20_000 * 10);
}

#[test]
fn callers_at_the_same_time_and_jobs_within_jobs_all_finish() {
    let pool = Pool::new(2).expect("a few threads");
    let total = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..200 {
                    pool.for_each(3, &|_| {
                        pool.for_each(2, &|_| {
                            total.fetch_add(1, Ordering::Relaxed);
                        });
                    });
                }
            });
        }
    });
    assert_eq!(total.into_inner(), 3 * 200 * 6);
}

#[test]
fn a_panic_reaches_the_caller_and_the_pool_goes_on() {
    let pool = Pool::new(2).expect("a few threads");
    for _ in 0..20 {
        let job = AssertUnwindSafe(|| pool.for_each(8, &|item| assert_ne!(item, 5, "item five")));
        let panic = catch_unwind(job).expect_err("item five panics");
        let message = panic.downcast_ref::<String>().expect("assertions panic with text");
        assert!(message.contains("item five"), "{message}");
        assert_eq!(counts(&pool, 9), vec![1; 9]);
    }
}
