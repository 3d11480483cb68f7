use super::*;

#[tokio::test(start_paused = true)]
async fn the_clock_follows_paused_time() {
    let clock = SystemClock::starting_at(5_000);
    let deadline = clock.deadline_in(Duration::from_secs(2));
    assert_eq!(deadline, Deadline(7_000));
    clock.sleep(Duration::from_millis(500)).await;
    assert_eq!(clock.now(), 5_500);
    assert_eq!(remaining(&clock, deadline), Duration::from_millis(1_500));
    clock.sleep(Duration::from_secs(9)).await;
    assert_eq!(remaining(&clock, deadline), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn work_ends_at_the_deadline() {
    let clock = SystemClock::starting_at(0);
    let deadline = clock.deadline_in(Duration::from_millis(100));
    let slow = clock.sleep(Duration::from_millis(101));
    assert_eq!(before(&clock, deadline, slow).await, Err(Elapsed));
    assert_eq!(clock.now(), 100);
    assert_eq!(
        before(&clock, deadline, async { 7 }).await,
        Ok(7),
        "work that is ready is not refused"
    );
}
