//! The scripted model behind a whole cluster.

use cluster_node::{ModelLocation, start};

use crate::sandbox::{AGGREGATED, FAR_TOO_LONG, complete, options_with};

const SCRIPTS: &str = "scripts:\n  - emit: [{ text: first }]\n  - emit: [{ text: second }]\n";
const SPLIT: &str = "  prefill:\n  decode:\n";

#[tokio::test]
async fn the_first_client_gets_the_first_script() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), SCRIPTS).unwrap();
    let source = format!("scripted:{}", file.path().display());
    for roles in [AGGREGATED, SPLIT] {
        let model = ModelLocation::Script(file.path().to_owned());
        let running = start(options_with(&source, model, roles)).await.unwrap();
        for expected in ["first", "second", "first"] {
            assert_eq!(complete(&running).await, expected, "{roles}");
        }
        running.shutdown(FAR_TOO_LONG).await;
    }
}
