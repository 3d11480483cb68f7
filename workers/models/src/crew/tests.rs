use cluster_kernels::{Collective, shared_memory};

use super::*;

/// Ranks that add up their numbers; rank 1 panics on job 7.
fn crew() -> Crew<u32, f32> {
    let works = shared_memory(3).into_iter().map(|others| {
        let work: Work<u32, f32> = Box::new(move |job: &u32| {
            assert!(others.rank() != 1 || *job != 7, "this rank panics, as a test wants");
            let mut numbers = [(others.rank() as u32 * job) as f32];
            others
                .all_reduce(&mut numbers)
                .map_err(|error| ModelError::Failed(error.to_string()))?;
            Ok(numbers[0])
        });
        work
    });
    Crew::start(works.collect()).unwrap()
}

#[test]
fn all_ranks_answer() {
    let mut crew = crew();
    assert_eq!(crew.run(2).unwrap(), [6.0; 3]);
    assert_eq!(crew.run(5).unwrap(), [15.0; 3]);
}

#[test]
fn a_rank_that_panics_is_an_error_and_nobody_hangs() {
    let mut crew = crew();
    let error = crew.run(7).unwrap_err();
    assert_eq!(error, ModelError::Failed("rank 1 of the model has ended".into()));
    assert!(crew.run(1).is_err());
}
