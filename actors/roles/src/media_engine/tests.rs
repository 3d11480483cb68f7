use std::time::Duration;

use cluster_fabric::SystemClock;

use super::*;
use crate::media_fixture::{BROKEN, POISON, Seen, digest, picture, rows_of, settings};

const ROWS: u32 = 4;
const LATE: Deadline = Deadline(u64::MAX);

struct Scene {
    clock: Arc<dyn Clock>,
    seen: Seen,
    engine: MediaEngine,
    owner: MediaEngineOwner,
}

/// A batch takes 100 ms.
async fn scene(change: impl FnOnce(&mut EncoderSettings)) -> Scene {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::starting_at(0));
    let seen = Seen::default();
    let mut settings = settings(100, &seen);
    change(&mut settings);
    let (engine, owner) = MediaEngine::start(&settings, clock.clone()).await.unwrap();
    Scene {
        clock,
        seen,
        engine,
        owner,
    }
}

fn work(number: u8) -> Work {
    Work {
        request: RequestId(number.into()),
        deadline: LATE,
        digest: digest(number),
        file: picture(number, ROWS),
        rows: ROWS,
        hold: None,
    }
}

impl Scene {
    /// Encodes a picture in a task of its own, which has begun.
    async fn begin(&self, work: Work) -> tokio::task::JoinHandle<Result<Ready, RequestError>> {
        let engine = self.engine.clone();
        let before = self.engine.report().lookup_tokens;
        let task = tokio::spawn(async move { engine.encode(work).await });
        while self.engine.report().lookup_tokens == before {
            tokio::task::yield_now().await;
        }
        task
    }

    /// The same, and its batch runs: whatever comes later waits for it.
    async fn begin_running(&self, work: Work) -> tokio::task::JoinHandle<Result<Ready, RequestError>> {
        let task = self.begin(work).await;
        while self.engine.report().load.running == 0 {
            tokio::task::yield_now().await;
        }
        task
    }

    fn waiters(&self) -> u32 {
        let load = self.engine.report().load;
        load.running + load.waiting
    }

    fn bytes(&self) -> usize {
        self.engine.inner.state().store.bytes()
    }
}

fn kind(result: Result<Ready, RequestError>) -> ErrorKind {
    result.expect_err("it must fail").kind
}

#[tokio::test(start_paused = true)]
async fn equal_pictures_are_made_once_and_found_afterwards() {
    let scene = scene(|_| ()).await;
    let all = futures::future::join_all((0..3).map(|_| scene.engine.encode(work(1)))).await;
    let all: Vec<_> = all.into_iter().map(Result::unwrap).collect();
    assert_eq!(
        all.iter().map(|ready| ready.was_cached).collect::<Vec<_>>(),
        [false, true, true]
    );
    let later = scene.engine.encode(work(1)).await.unwrap();
    assert!(later.was_cached);
    let expected: Vec<u8> = rows_of(&picture(1, ROWS))
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect();
    for ready in all.iter().chain([&later]) {
        assert_eq!(ready.features.values, expected);
    }
    assert_eq!((scene.seen.decoded(), scene.seen.batches()), (1, vec![1]));
    let report = scene.engine.report();
    assert_eq!((report.lookup_tokens, report.hit_tokens), (16, 12));
}

#[tokio::test(start_paused = true)]
async fn who_asked_first_may_leave_and_the_work_goes_on_for_the_others() {
    let scene = scene(|_| ()).await;
    let first = scene.begin(work(1)).await;
    let second = scene.begin(work(1)).await;
    assert_eq!(scene.waiters(), 2);
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    assert!(second.await.unwrap().unwrap().was_cached);
    assert_eq!(scene.seen.batches(), [1]);
}

#[tokio::test(start_paused = true)]
async fn what_nobody_waits_for_any_longer_leaves_the_queue_and_gives_its_room_back() {
    let scene = scene(|settings| settings.batch_max = 1).await;
    let first = scene.begin_running(work(1)).await;
    let second = scene.begin(work(2)).await;
    second.abort();
    assert!(second.await.unwrap_err().is_cancelled());
    first.await.unwrap().unwrap();
    let again = scene.engine.encode(work(1)).await.unwrap();
    assert_eq!(scene.bytes(), again.features.values.len());
    assert_eq!((scene.waiters(), scene.seen.batches()), (0, vec![1]));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_the_wait_and_saves_the_work() {
    let scene = scene(|settings| settings.batch_max = 1).await;
    let first = scene.begin_running(work(1)).await;
    let hurried = Work {
        deadline: Deadline(50),
        ..work(2)
    };
    assert_eq!(kind(scene.engine.encode(hurried).await), ErrorKind::Deadline);
    assert_eq!(scene.clock.now(), 50);
    first.await.unwrap().unwrap();
    let past = Work {
        deadline: Deadline(99),
        ..work(3)
    };
    assert_eq!(kind(scene.engine.encode(past).await), ErrorKind::Deadline);
    assert_eq!(scene.seen.batches(), [1]);
}

#[tokio::test(start_paused = true)]
async fn pictures_that_came_while_others_ran_run_together() {
    let scene = scene(|_| ()).await;
    let first = scene.begin_running(work(0)).await;
    let rest = futures::future::join_all((1..=8).map(|number| scene.engine.encode(work(number)))).await;
    assert!(rest.into_iter().all(|ready| ready.is_ok()));
    first.await.unwrap().unwrap();
    let batches = scene.seen.batches();
    assert_eq!(batches.iter().sum::<usize>(), 9);
    assert!(batches.len() <= 4, "{batches:?}");
    assert!(batches.iter().all(|media| *media <= 4), "{batches:?}");
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_no_picture_harms_nobody_else() {
    let scene = scene(|_| ()).await;
    let (broken, sound) = tokio::join!(scene.engine.encode(work(BROKEN)), scene.engine.encode(work(1)));
    assert_eq!(kind(broken), ErrorKind::Invalid);
    assert_eq!(scene.bytes(), sound.unwrap().features.values.len());
}

#[tokio::test(start_paused = true)]
async fn a_model_that_panics_ends_the_engine_and_everybody_hears() {
    let mut scene = scene(|settings| settings.batch_max = 1).await;
    let first = scene.begin_running(work(1)).await;
    let poisoned = scene.begin(work(POISON)).await;
    first.await.unwrap().unwrap();
    assert_eq!(kind(poisoned.await.unwrap()), ErrorKind::Lost);
    assert_eq!(scene.owner.ended().await.as_deref(), Some("a poisoned picture"));
    assert_eq!(kind(scene.engine.encode(work(2)).await), ErrorKind::Lost);
}

#[tokio::test(start_paused = true)]
async fn all_work_ends_with_the_owner() {
    let scene = scene(|_| ()).await;
    let waiting = scene.begin(work(1)).await;
    drop(scene.owner);
    assert_eq!(kind(waiting.await.unwrap()), ErrorKind::Lost);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_made_that_cannot_be_kept() {
    let bytes = work(1).rows as usize * 32;
    let scene = scene(|settings| settings.cache_bytes = bytes).await;
    let held = Work {
        hold: Some(Deadline(1000)),
        ..work(1)
    };
    scene.engine.encode(held).await.unwrap();
    let refused = scene.engine.encode(work(2)).await.unwrap_err();
    assert_eq!(
        (refused.kind, refused.retry_after_ms),
        (ErrorKind::Overloaded, Some(1000))
    );
    let large = Work {
        rows: ROWS + 1,
        ..work(3)
    };
    assert_eq!(kind(scene.engine.encode(large).await), ErrorKind::Invalid);
    assert!(scene.engine.fetch(digest(1), RequestId(1), Deadline(500)).is_some());
    scene.clock.sleep(Duration::from_millis(400)).await;
    scene
        .engine
        .encode(work(2))
        .await
        .expect("the hold ended with the fetch");
    assert!(scene.engine.fetch(digest(1), RequestId(1), Deadline(500)).is_none());
}
