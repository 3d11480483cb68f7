//! Topologies in, plans out: as text beside the file, and as properties.

mod changes;
mod placement;
mod refusals;
mod shipped;
mod texts;

use cluster_plan::{Inventory, ModelFacts, NodeInventory, Plan, plan};
use cluster_topologies::{Catalogue, Document, ModelOrigin, Resolved, load};

const GIB: u64 = 1 << 30;

fn laptop() -> Inventory {
    Inventory {
        nodes: vec![NodeInventory::of_cores("laptop", 2, 8 * GIB)],
    }
}

fn two_machines() -> Inventory {
    let mut big = NodeInventory::of_cores("m1", 8, 16 * GIB);
    big.labels.insert("rack".into(), "a".into());
    Inventory {
        nodes: vec![NodeInventory::of_cores("m2", 2, 8 * GIB), big],
    }
}

fn facts_of(resolved: &Resolved) -> ModelFacts {
    match &resolved.model.origin {
        ModelOrigin::File(file) => ModelFacts::from(file.as_ref()),
        _ => ModelFacts::without_weights(8192, 256),
    }
}

fn resolved(text: &str) -> Resolved {
    load(text, "test.yaml", &Catalogue::shipped()).unwrap_or_else(|problems| panic!("{problems}"))
}

fn planned(text: &str, inventory: &Inventory, previous: Option<&Plan>) -> Plan {
    let resolved = resolved(text);
    plan(&resolved, inventory, &facts_of(&resolved), previous).unwrap_or_else(|problems| panic!("{problems:?}"))
}

/// The report a user sees when a plan is refused.
fn refusal(text: &str, inventory: &Inventory) -> String {
    let document = Document::read(text, "test.yaml");
    let resolved = document
        .resolve(&Catalogue::shipped())
        .unwrap_or_else(|problems| panic!("{problems}"));
    match plan(&resolved, inventory, &facts_of(&resolved), None) {
        Ok(plan) => panic!("planned: {plan:?}"),
        Err(problems) => format!("{}\n", document.locate(problems)),
    }
}
