//! Checks and plans every shipped topology and prints how long each takes:
//! `cargo run --release -p cluster-plan --example shipped`. Name one to see its plan.
#![expect(clippy::print_stdout, reason = "the table is the output")]

use std::time::Instant;

use cluster_plan::{Inventory, ModelFacts, NodeInventory, plan, render};
use cluster_topologies::{Catalogue, catalogue::shipped_topologies, load};

fn main() {
    let wanted = std::env::args().nth(1);
    let catalogue = Catalogue::shipped();
    let local = NodeInventory::of_cores("local", 8, 64 << 30);
    println!("{:<36} {:>9} {:>9}  RESULT", "TOPOLOGY", "CHECK ms", "PLAN ms");
    for (name, text) in shipped_topologies() {
        if wanted.as_ref().is_some_and(|wanted| wanted != name) {
            continue;
        }
        let began = Instant::now();
        let resolved = load(text, name, &catalogue);
        let check_ms = began.elapsed().as_secs_f64() * 1e3;
        let resolved = match resolved {
            Ok(resolved) => resolved,
            Err(problems) => {
                println!("{problems}");
                continue;
            }
        };
        let began = Instant::now();
        let facts = ModelFacts::declared(&resolved.model);
        let facts = facts.unwrap_or_else(|| ModelFacts::without_weights(4096, 256));
        let planned = plan(&resolved, &Inventory::declared(&resolved, &local), &facts, None);
        let plan_ms = began.elapsed().as_secs_f64() * 1e3;
        let result = match &planned {
            Ok(plan) => format!(
                "{} instances, {} tokens of context",
                plan.instances.len(),
                plan.model.context
            ),
            Err(problems) => format!("{problems:#?}"),
        };
        println!("{name:<36} {check_ms:>9.2} {plan_ms:>9.2}  {result}");
        if let (Some(_), Ok(plan)) = (&wanted, &planned) {
            println!("\n{}", render(plan));
        }
    }
}
