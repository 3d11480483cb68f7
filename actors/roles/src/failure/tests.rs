use std::time::Duration;

use cluster_fabric::SystemClock;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_reader_that_left_and_a_deadline_that_passed_are_told_apart() {
    let clock = SystemClock::starting_at(0);
    let deadline = clock.deadline_in(Duration::from_secs(1));
    assert_eq!(closed(&clock, deadline).kind, ErrorKind::Cancelled);
    clock.sleep(Duration::from_secs(1)).await;
    assert_eq!(closed(&clock, deadline).kind, ErrorKind::Deadline);
}
