use cluster_engine::ModelError;

use super::Crew;

#[test]
fn a_crew_without_ranks_is_refused() {
    let error = Crew::start(Vec::new()).err();
    assert_eq!(error, Some(ModelError::Failed("a worker without ranks".into())));
}
