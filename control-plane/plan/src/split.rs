//! Whether a model can be cut as a topology asks, and whether its accelerators compute with its weights.

use cluster_topologies::{ModelOrigin, NumberFormat, Problem, Resolved, RoleName, schema::ExpertArithmetic};

use crate::{ModelFacts, Passed, devices::Wanted};

/// Reports every way in which the model cannot be cut.
pub(crate) fn check(resolved: &Resolved, facts: &ModelFacts, problems: &mut Vec<Problem>) {
    for wanted in Wanted::all(resolved) {
        if wanted.role == RoleName::Encoder {
            tower_heads(&wanted, facts, problems);
        } else {
            heads(&wanted, facts, problems);
            experts(&wanted, facts, problems);
        }
    }
    if facts.towers.is_none() && resolved.encoder.is_some() {
        let help = "remove the role, or serve a model with an encoder";
        let message = "the model takes text only: there is nothing to encode";
        problems.push(Problem::new("nothing-to-encode", "roles.encoder", message, help));
    }
    formats(resolved, problems);
}

/// The largest count below `wanted` that divides `whole`.
fn below(whole: u32, wanted: u32) -> u32 {
    (1..wanted)
        .rev()
        .find(|count| whole.is_multiple_of(*count))
        .unwrap_or(1)
}

/// The towers have heads of their own.
fn tower_heads(wanted: &Wanted<'_>, facts: &ModelFacts, problems: &mut Vec<Problem>) {
    let tensor = wanted.parallel.tensor;
    let Some(towers) = facts.towers.filter(|towers| !towers.heads.is_multiple_of(tensor)) else {
        return;
    };
    let message = format!(
        "{} heads of the towers cannot be shared by {tensor} ranks evenly",
        towers.heads
    );
    let help = format!(
        "use {} ranks, or another number that divides {}",
        below(towers.heads, tensor),
        towers.heads
    );
    let at = format!("roles.{}.parallel.tensor", wanted.role);
    problems.push(Problem::new("uneven-heads", &at, message, help));
}

/// Query heads are shared out evenly. Key and value heads are too, or each lies on the same number of ranks.
fn heads(wanted: &Wanted<'_>, facts: &ModelFacts, problems: &mut Vec<Problem>) {
    let tensor = wanted.parallel.tensor;
    let at = format!("roles.{}.parallel.tensor", wanted.role);
    if !facts.heads.is_multiple_of(tensor) {
        let message = format!("{} heads cannot be shared by {tensor} ranks evenly", facts.heads);
        let help = format!(
            "use {} ranks, or another number that divides {}",
            below(facts.heads, tensor),
            facts.heads
        );
        problems.push(Problem::new("uneven-heads", &at, message, help));
    } else if !facts.kv_heads.is_multiple_of(tensor) && !tensor.is_multiple_of(facts.kv_heads) {
        let message = format!("{} key and value heads for {tensor} ranks", facts.kv_heads);
        let help = format!(
            "use a number of ranks that divides {0}, or a multiple of {0}",
            facts.kv_heads
        );
        problems.push(Problem::new("uneven-heads", &at, message, help));
    }
}

/// The numbers that one scale of a quantized weight serves: a rank's part of an expert is no smaller.
const SCALE_GROUP: u32 = 32;

fn experts(wanted: &Wanted<'_>, facts: &ModelFacts, problems: &mut Vec<Problem>) {
    let parallel = wanted.parallel;
    let at = format!("roles.{}.parallel.expert", wanted.role);
    match facts.experts {
        None if parallel.expert > 1 => {
            let message = format!("{} ranks for experts; the model is dense", parallel.expert);
            problems.push(Problem::new(
                "no-experts",
                &at,
                message,
                "set expert to 1, or leave it out",
            ));
        }
        Some(experts) if !experts.count.is_multiple_of(parallel.expert) => {
            let message = format!(
                "{} experts cannot be shared by {} ranks evenly",
                experts.count, parallel.expert
            );
            let help = format!(
                "use {} ranks, or another number that divides {}",
                below(experts.count, parallel.expert),
                experts.count
            );
            problems.push(Problem::new("uneven-experts", &at, message, help));
        }
        Some(experts) if parallel.expert == 1 && parallel.ranks() > 1 => {
            let part = SCALE_GROUP * parallel.ranks();
            if !experts.inner.is_multiple_of(part) {
                let message = format!(
                    "experts {} wide inside cannot be cut for {} ranks in groups of {SCALE_GROUP}",
                    experts.inner,
                    parallel.ranks()
                );
                let help = format!("set expert to {}: ranks then hold whole experts", parallel.ranks());
                problems.push(Problem::new("uneven-experts", &at, message, help));
            }
        }
        _ => {}
    }
}

fn format_named(name: &str) -> Option<NumberFormat> {
    use NumberFormat::{Bf16, Fp8, Int4, Mxfp4, Nvfp4};
    [Nvfp4, Mxfp4, Int4, Fp8, Bf16]
        .into_iter()
        .find(|format| format.name() == name)
}

/// The format that experts have once they are loaded; none where nothing is known of it.
pub(crate) fn loaded_format(resolved: &Resolved) -> Option<NumberFormat> {
    let ModelOrigin::File(file) = &resolved.model.origin else {
        return None;
    };
    let model = &resolved.model;
    let name = match &model.requantize {
        Some(name) => name,
        None => &file.quantization(model.quantization.as_ref())?.name,
    };
    format_named(name.as_str())
}

/// Whether every kind of accelerator computes with the weights.
fn formats(resolved: &Resolved, problems: &mut Vec<Problem>) {
    let Some(format) = loaded_format(resolved) else {
        return;
    };
    let word = format.name();
    for kind in &resolved.accelerators {
        let is_widened = resolved.model.experts == ExpertArithmetic::W4a16;
        let list = if is_widened { &kind.weight_only } else { &kind.formats };
        if list.contains(&format) {
            continue;
        }
        let (message, at) = if is_widened {
            (format!("{} does not widen {word} weights", kind.title), "model.experts")
        } else {
            (format!("{} has no {word} products", kind.title), "model.quantization")
        };
        let help = if !is_widened && kind.weight_only.contains(&format) {
            "set model.experts to w4a16: weights are widened and multiplied with 16-bit activations".into()
        } else if format == NumberFormat::Nvfp4 && kind.formats.contains(&NumberFormat::Mxfp4) {
            "set model.requantize to mxfp4, or use the mxfp4 checkpoint".into()
        } else {
            let names: Vec<&str> = kind.formats.iter().map(|format| format.name()).collect();
            format!("use one of {}", names.join(", "))
        };
        problems.push(Problem::new("format-unsupported", at, message, help));
    }
}

/// How the model is cut, for the list of checks that held.
pub(crate) fn passed(resolved: &Resolved, facts: &ModelFacts) -> Vec<Passed> {
    let cut = Wanted::all(resolved).into_iter();
    let cut = cut.filter(|wanted| wanted.role != RoleName::Encoder && wanted.parallel.ranks() > 1);
    let mut list: Vec<Passed> = cut.map(|wanted| cut_passed(&wanted, facts)).collect();
    if let Some(format) = loaded_format(resolved).filter(|_| !resolved.accelerators.is_empty()) {
        let kinds: Vec<&str> = resolved.accelerators.iter().map(|kind| kind.title.as_str()).collect();
        let how = match resolved.model.experts {
            ExpertArithmetic::Native => "products",
            ExpertArithmetic::W4a16 => "weights, widened,",
        };
        list.push(Passed {
            rule: "format".into(),
            detail: format!("{} {how} on {}", format.name(), kinds.join(", ")),
        });
    }
    list
}

/// What one of `ranks` has of `whole`.
fn share(whole: u32, ranks: u32) -> String {
    let most = whole.div_ceil(ranks);
    if whole.is_multiple_of(ranks) {
        most.to_string()
    } else {
        format!("at most {most}")
    }
}

fn cut_passed(wanted: &Wanted<'_>, facts: &ModelFacts) -> Passed {
    let parallel = wanted.parallel;
    let copies = parallel.tensor.div_ceil(facts.kv_heads);
    let heads = share(facts.heads, parallel.tensor);
    let kv_heads = facts.kv_heads.div_ceil(parallel.tensor);
    let copied = if copies > 1 {
        format!(", each on {copies} ranks")
    } else {
        String::new()
    };
    let experts = match facts.experts {
        None => String::new(),
        Some(experts) if parallel.expert > 1 => format!(
            "; {} whole experts of {}",
            share(experts.count, parallel.expert),
            experts.count
        ),
        Some(experts) => format!(
            "; {} of the {} inside each expert",
            experts.inner / parallel.ranks(),
            experts.inner
        ),
    };
    Passed {
        rule: "split".into(),
        detail: format!(
            "{}: a rank has {heads} of {} heads, {kv_heads} of {} key and value heads{copied}{experts}",
            wanted.role, facts.heads, facts.kv_heads
        ),
    }
}
