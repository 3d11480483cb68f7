//! Intermediate rows of the tiny Muse Spark against recorded ones.

use std::{fs, path::PathBuf};

use cluster_engine::{Batch, BlockId, SeqId, Slice, Wanted};
use cluster_kernels::{Arithmetic, Cpu, CpuOptions, KvDType, KvStore};
use safetensors::SafeTensors;

use super::{Group, Network, Scratch, Step};
use crate::{
    checkpoint::Checkpoint,
    classes::Classes,
    ragged::{Ragged, Rows},
    shard::Shard,
    weights::{Loading, load},
};

/// What intermediate rows may differ by, relative to the largest number.
const TOLERANCE: f32 = 1e-4;

fn folder() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "fixtures", "muse-spark-tiny"]
        .iter()
        .collect()
}

fn numbers(tensors: &SafeTensors<'_>, name: &str) -> Vec<f32> {
    let values = tensors.tensor(name).unwrap().data().chunks_exact(4);
    values
        .map(|value| f32::from_le_bytes(value.try_into().unwrap()))
        .collect()
}

fn assert_near(computed: &[f32], tensors: &SafeTensors<'_>, name: &str) {
    let expected = numbers(tensors, &format!("trace.{name}"));
    assert_eq!(computed.len(), expected.len(), "{name}");
    let largest = expected
        .iter()
        .fold(0.0, |largest: f32, value| largest.max(value.abs()));
    let pairs = computed.iter().zip(&expected);
    let difference = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(difference <= TOLERANCE * largest, "{name}: {difference} of {largest}");
}

#[test]
fn every_layer_gives_what_was_recorded() {
    let golden = fs::read(folder().join("golden.safetensors")).unwrap();
    let golden = SafeTensors::deserialize(&golden).unwrap();
    let (checkpoint, spec) = Checkpoint::open(&folder()).unwrap();
    let cpu = Cpu::new(CpuOptions { threads: 1, isa: None }).unwrap();
    let loading = Loading {
        checkpoint: &checkpoint,
        spec: &spec,
        arithmetic: Arithmetic::Exact,
        shard: Shard::WHOLE,
    };
    let weights = load(loading, &cpu).unwrap();
    let classes = Classes::of(&spec, 16, KvDType::F32);
    let network = Network::new(spec.clone(), weights, &classes, Shard::WHOLE);
    let stores = classes.classes.iter().map(|class| KvStore::new(class.shape, 1).ok());
    let mut stores: Vec<Option<KvStore>> = stores.collect();

    let ids = golden.tensor("prompt0.ids").unwrap().data().chunks_exact(4);
    let ids: Vec<u32> = ids.map(|id| u32::from_le_bytes(id.try_into().unwrap())).collect();
    let table: &[BlockId] = &[BlockId(0)];
    let slice = Slice {
        seq: SeqId(0),
        tokens: &ids,
        start: 0,
        tables: &[table, table],
        embedded: &[],
        wanted: Wanted::All,
    };
    let mut batch = Ragged::default();
    batch.fill(&Batch { slices: &[slice] }, |_| true);

    let mut step = Step {
        network: &network,
        cpu: &cpu,
        stores: &mut stores,
        batch: &batch,
        scratch: &mut Scratch::default(),
        group: Group::new(None),
    };
    step.embed().unwrap();
    assert_near(&step.scratch.hidden, &golden, "embed");
    let turns = step.rotations(&batch.positions);
    for layer in 0..spec.layers.len() {
        step.layer(layer, Rows::All, &turns, &turns).unwrap();
        assert_near(&step.scratch.hidden, &golden, &format!("layer{layer}.out"));
    }
    step.norm(&network.weights.norm);
    assert_near(&step.scratch.normed, &golden, "final_norm");
}
