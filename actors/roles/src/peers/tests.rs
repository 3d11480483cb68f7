use cluster_messages::{ActorPath, Capacity, Epoch, Fingerprint, NodeId};

use super::*;

fn registration(epoch: u64) -> Registration {
    Registration {
        instance: InstanceRef {
            path: ActorPath::new(Role::Decode, 0),
            epoch: Epoch(epoch),
        },
        node: NodeId("n".into()),
        generation: 1,
        model: Fingerprint::default(),
        layout: Fingerprint::default(),
        capacity: Capacity::default(),
        folds: Vec::new(),
        needs: Vec::new(),
        addresses: Vec::new(),
    }
}

#[test]
fn an_earlier_life_does_not_replace_a_later_one() {
    let mut view = View::new();
    let epochs = |view: &View| view.keys().map(|instance| instance.epoch.0).collect::<Vec<_>>();
    apply(&mut view, Change::Put(registration(2)));
    apply(&mut view, Change::Put(registration(1)));
    assert_eq!(epochs(&view), [2]);
    apply(&mut view, Change::Put(registration(3)));
    assert_eq!(epochs(&view), [3]);
    apply(&mut view, Change::Gone(registration(2).instance));
    assert_eq!(epochs(&view), [3]);
}
