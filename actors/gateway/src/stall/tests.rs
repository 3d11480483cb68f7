use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

use super::*;

const STALL: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn a_reader_that_stops_for_too_long_ends_the_connection() {
    let (ours, _theirs) = duplex(8);
    let mut guarded = StallGuard::new(ours, STALL);
    let started = tokio::time::Instant::now();
    let error = guarded.write_all(&[0; 9]).await.expect_err("nobody reads");
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert_eq!(started.elapsed(), STALL);
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_that_goes_on_is_served() {
    let (ours, mut theirs) = duplex(8);
    let mut guarded = StallGuard::new(ours, STALL);
    let reader = tokio::spawn(async move {
        let mut all = Vec::new();
        let mut piece = [0; 8];
        while all.len() < 40 {
            // Each pause is just short enough; together they are far longer than one stall.
            tokio::time::sleep(STALL - Duration::from_secs(1)).await;
            let read = theirs.read(&mut piece).await.expect("the writer is there");
            all.extend_from_slice(&piece[..read]);
        }
        all
    });
    guarded.write_all(&[7; 40]).await.expect("the reader goes on");
    assert_eq!(reader.await.expect("the reader does not panic"), [7; 40]);
}
