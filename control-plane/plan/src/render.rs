//! Plans and differences as text for a terminal.

use std::fmt::Write as _;

use cluster_topologies::{ByteSize, ModelOrigin};

use crate::{Diff, Emulation, Instance, KvKind, Plan, Settings, WorkerSettings, devices::ranges, memory::rounded};

/// The plan as tables: instances, memory, reasons, checks.
pub fn render(plan: &Plan) -> String {
    let parent = plan
        .parent
        .map_or("nothing".into(), |parent| format!("generation {parent}"));
    let mut text = format!(
        "plan      {}, generation {}, after {parent}\n",
        plan.topology, plan.generation
    );
    text.push_str(&model_line(plan));
    let _ = writeln!(text, "endpoint  http://{}:{}", plan.endpoint.host, plan.endpoint.port);
    for line in plan.emulation.iter().flat_map(Emulation::lines) {
        let _ = writeln!(text, "emulated  {line}");
    }
    text.push('\n');
    text.push_str(&instance_table(plan));
    text.push('\n');
    if !plan.devices.is_empty() {
        text.push_str(&device_table(plan));
        text.push('\n');
    }
    let has_classes = workers(plan).any(|(_, worker)| worker.classes.len() > 1);
    if has_classes || !plan.devices.is_empty() {
        text.push_str(&page_table(plan));
        text.push('\n');
    }
    text.push_str(&memory_table(plan));
    text.push('\n');
    text.push_str(&reason_table(plan));
    text.push('\n');
    for check in &plan.checks {
        let _ = writeln!(text, "ok  {:<8} {}", check.rule, check.detail);
    }
    text
}

/// The difference as lines that start with `+`, `-`, `~` or a blank.
pub fn render_diff(diff: &Diff) -> String {
    if diff.is_empty() {
        return "nothing changes\n".into();
    }
    let mut text = String::new();
    for line in &diff.cluster {
        let _ = writeln!(text, "~ {line}");
    }
    for path in &diff.removed {
        let _ = writeln!(text, "- {path}");
    }
    for change in &diff.changed {
        let _ = writeln!(text, "~ {}  {}", change.path, change.what.join(", "));
    }
    for path in &diff.added {
        let _ = writeln!(text, "+ {path}");
    }
    for path in &diff.kept {
        let _ = writeln!(text, "  {path}");
    }
    text
}

fn model_line(plan: &Plan) -> String {
    let model = &plan.model;
    let origin = match &model.origin {
        ModelOrigin::File(file) => match &file.file {
            Some(name) => format!("{} ({name})", file.name),
            None => file.name.to_string(),
        },
        ModelOrigin::Path(path) => path.clone(),
        ModelOrigin::Scripted(file) => format!("scripted by {file}"),
        ModelOrigin::Simulated => "simulated".into(),
    };
    format!(
        "model     {origin}, {} arithmetic, {} pages, {} tokens of context\n",
        model.arithmetic.name(),
        model.kv_dtype.name(),
        model.context
    )
}

fn instance_table(plan: &Plan) -> String {
    let rows = plan.instances.iter().map(|instance| {
        let threads = if instance.threads == 0 {
            "-".into()
        } else {
            instance.threads.to_string()
        };
        [
            instance.path.to_string(),
            instance.node.to_string(),
            threads,
            what(instance),
        ]
    });
    table(["INSTANCE", "NODE", "THREADS", "SETTINGS"], rows)
}

fn what(instance: &Instance) -> String {
    let ranks = ranks(instance);
    let inside: String = instance.folds.iter().map(|role| format!(", {role} inside")).collect();
    match &instance.settings {
        Settings::Tokenizer => "-".into(),
        Settings::Router { policy } => policy.name().into(),
        Settings::Cache(cache) => format!("{} of main memory", ByteSize(cache.host_bytes)),
        Settings::Encoder(encoder) => format!(
            "{} media at a time, {} of embeddings kept{ranks}",
            encoder.batch_max,
            ByteSize(encoder.cache_bytes)
        ),
        Settings::Worker(worker) => format!(
            "{} blocks of {} tokens, {} running, {} tokens a step{inside}{ranks}",
            worker.blocks[0], worker.block_tokens, worker.running_max, worker.step_tokens
        ),
    }
}

/// Along which lines a model is spread, where it is.
fn ranks(instance: &Instance) -> String {
    let parallel = instance.parallel;
    let lines = [
        ("tensor", parallel.tensor),
        ("expert", parallel.expert),
        ("data", parallel.data),
        ("sequence", parallel.sequence),
    ];
    let spread = lines.into_iter().filter(|(_, ranks)| *ranks > 1);
    spread.map(|(name, ranks)| format!(", {name} {ranks}")).collect()
}

/// Each reason on a line of its own; an instance is named on its first.
fn reason_table(plan: &Plan) -> String {
    let rows = plan.instances.iter().flat_map(|instance| {
        let reasons = instance.reasons.iter().enumerate();
        reasons.map(|(index, reason)| {
            let name = if index == 0 {
                instance.path.to_string()
            } else {
                String::new()
            };
            [name, reason.clone()]
        })
    });
    table(["INSTANCE", "WHY"], rows)
}

/// Accelerators with equal figures share a line.
fn device_table(plan: &Plan) -> String {
    let rows = plan.devices.chunk_by(|left, right| {
        let mut same = right.clone();
        same.device = left.device.clone();
        *left == same
    });
    let rows = rows.map(|run| {
        let (row, devices) = (&run[0], run.iter().map(|row| row.device.clone()).collect::<Vec<_>>());
        [
            format!("{} {}", row.kind, ranges(&devices)),
            row.instance.to_string(),
            rounded(row.weights_bytes),
            rounded(row.kv_bytes),
            rounded(row.activation_bytes),
            rounded(row.used_bytes()),
            format!(
                "{} = {:.2} of {}",
                rounded(row.limit_bytes()),
                row.share,
                rounded(row.capacity_bytes)
            ),
        ]
    });
    table(
        [
            "EACH DEVICE",
            "INSTANCE",
            "WEIGHTS",
            "KV",
            "ACTIVATIONS",
            "SUM",
            "LIMIT",
        ],
        rows,
    )
}

fn workers(plan: &Plan) -> impl Iterator<Item = (&Instance, &WorkerSettings)> {
    plan.instances.iter().filter_map(|instance| match &instance.settings {
        Settings::Worker(worker) => Some((instance, worker)),
        _ => None,
    })
}

/// What fits of each class of state.
fn page_table(plan: &Plan) -> String {
    let rows = workers(plan).flat_map(|(instance, worker)| {
        worker.classes.iter().map(move |class| {
            let tokens = u64::from(class.blocks) * u64::from(worker.block_tokens);
            let (keeps, fits) = match class.kind {
                KvKind::Full => ("every token".into(), format!("{tokens} tokens")),
                KvKind::Window { tokens: last } => {
                    let sequences = class.blocks / (last.div_ceil(worker.block_tokens) + 1);
                    (format!("the last {last} tokens"), format!("{sequences} sequences"))
                }
                KvKind::Compressed { ratio } => (format!("an entry for {ratio} tokens"), format!("{tokens} tokens")),
                KvKind::Pending => ("unfinished blocks".into(), format!("{} sequences", class.blocks)),
            };
            [
                instance.path.to_string(),
                keeps,
                class.blocks.to_string(),
                fits,
                rounded(class.bytes()),
            ]
        })
    });
    table(["PAGES", "OF A SEQUENCE", "BLOCKS", "WHAT FITS", "ON A RANK"], rows)
}

fn memory_table(plan: &Plan) -> String {
    let rows = plan.memory.iter().map(|row| {
        [
            row.node.to_string(),
            rounded(row.weights_bytes),
            rounded(row.kv_bytes),
            rounded(row.activation_bytes),
            rounded(row.cache_bytes),
            rounded(row.used_bytes()),
            rounded(row.limit_bytes()),
        ]
    });
    table(
        ["MEMORY", "WEIGHTS", "KV", "ACTIVATIONS", "CACHE", "SUM", "LIMIT"],
        rows,
    )
}

/// Columns two blanks apart, each as wide as its widest cell; no blanks at the ends of lines.
fn table<const N: usize>(head: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let mut lines = vec![head.map(str::to_owned)];
    lines.extend(rows);
    let mut widths = [0; N];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for line in &lines {
        let cells: Vec<_> = line
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}
