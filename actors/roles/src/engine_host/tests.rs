use cluster_engine::{Simulated, SimulatedConfig};
use cluster_fabric::SystemClock;

use super::*;

const BLOCK_TOKENS: u32 = 16;

async fn idle_engine() -> (EngineHandle, EngineOutputs) {
    let model = SimulatedConfig {
        vocabulary: 10,
        context: 64,
        block_tokens: BLOCK_TOKENS,
        seed: 0,
        cost: cluster_engine::Cost::default(),
    };
    let factory: ModelFactory = Arc::new(move || Ok(Box::new(Simulated::new(model))));
    let config = Config {
        block_tokens: BLOCK_TOKENS,
        blocks: vec![8],
        running_max: 1,
        waiting_max: 1,
        step_tokens: 64,
        tier: false,
        prefix_cache: true,
    };
    let clock = Arc::new(SystemClock::starting_at(0));
    EngineHandle::start("test".into(), factory, config, clock)
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_that_found_no_room_follows_when_there_is_some_though_nothing_else_happens() {
    let (engine, mut outputs) = idle_engine().await;
    while outputs.changes.len() < CHANGES_MAX {
        let before = outputs.changes.len();
        engine.request_snapshot();
        while outputs.changes.len() == before {
            tokio::task::yield_now().await;
        }
    }
    engine.request_snapshot();
    let all = async {
        for _ in 0..=CHANGES_MAX {
            outputs.changes.recv().await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(30), all)
        .await
        .expect("the last snapshot comes");
}
