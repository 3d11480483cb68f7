use super::*;

fn batches(sizes: &[u32], media_max: usize, rows_max: u32) -> Vec<Vec<u32>> {
    let mut queue: VecDeque<u32> = sizes.iter().copied().collect();
    let mut batches = Vec::new();
    loop {
        match take(&mut queue, |size| *size, media_max, rows_max) {
            batch if batch.is_empty() => return batches,
            batch => batches.push(batch),
        }
    }
}

#[test]
fn media_of_like_size_run_together_and_the_oldest_leads() {
    assert_eq!(
        batches(&[10, 100, 12, 20, 90, 5, 21], 8, 1000),
        [vec![10, 12, 20, 5], vec![100, 90], vec![21]]
    );
}

#[test]
fn a_batch_is_bounded_in_media_and_in_rows() {
    assert_eq!(batches(&[1; 5], 2, 1000), [vec![1, 1], vec![1, 1], vec![1]]);
    assert_eq!(batches(&[40, 40, 40, 30], 8, 100), [vec![40, 40], vec![40, 30]]);
}

#[test]
fn a_medium_larger_than_a_batch_runs_alone() {
    assert_eq!(batches(&[500, 400, 300], 8, 100), [vec![500], vec![400], vec![300]]);
}
