use cluster_kernels::{Arithmetic, Cpu, CpuOptions, Matrix};

use super::*;
use writer::{BLOCK, Stored, Style, Weight};

mod writer;

const PREFIX: &str = "model.layers.0.mlp.experts";
const STYLES: [Style; 9] = [
    Style::Nvfp4Stacked,
    Style::Nvfp4Own,
    Style::Mxfp4Own,
    Style::Fp8Own,
    Style::Fp8Stacked,
    Style::Int4Stacked,
    Style::Int4OwnFused,
    Style::Int4Underscore,
    Style::Floats,
];
const DESCRIPTION: Description = Description {
    group_len: None,
    block: BLOCK,
};

fn cpu() -> Cpu {
    Cpu::new(CpuOptions { threads: 1, isa: None }).expect("one thread")
}

fn weight(rows: usize, cols: usize, seed: usize) -> Weight {
    let value = |i: usize| ((i * 31 + seed * 7) as f32 * 0.61).sin() * 0.1 + if i % 97 == seed { 0.7 } else { 0.0 };
    let values = (0..rows * cols).map(value).collect();
    Weight { rows, cols, values }
}

/// Three experts of width 64 and inner width 96, and the folder they are written to.
fn folder(style: Style) -> (tempfile::TempDir, SafetensorsFolder, Vec<[Weight; 3]>) {
    let expert = |e: usize| [weight(96, 64, e), weight(96, 64, e + 10), weight(64, 96, e + 20)];
    let mut experts: Vec<_> = (0..3).map(expert).collect();
    let tensors = writer::write(style, PREFIX, &mut experts);
    let folder = save(&tensors);
    let files = SafetensorsFolder::open(folder.path()).expect("a good file");
    (folder, files, experts)
}

fn save(tensors: &[(String, Stored)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("model.safetensors");
    let views = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor));
    ::safetensors::serialize_to_file(views, None, &path).expect("it can be written");
    folder
}

const SHAPE: ExpertsShape<'_> = ExpertsShape {
    prefix: PREFIX,
    count: 3,
    width: 64,
    inner: 96,
};

fn rows_of(matrix: &Matrix) -> Vec<f32> {
    let mut values = vec![0.0; matrix.rows() * matrix.cols()];
    for (row, values) in values.chunks_exact_mut(matrix.cols()).enumerate() {
        matrix.row_into(row, values);
    }
    values
}

/// The part of a weight that a slice of the inner width keeps.
fn kept(weight: &Weight, projection: Projection, inner: &Range<usize>) -> Vec<f32> {
    let rows = weight.values.chunks_exact(weight.cols);
    match projection {
        Projection::Down => rows.flat_map(|row| &row[inner.clone()]).copied().collect(),
        _ => rows.skip(inner.start).take(inner.len()).flatten().copied().collect(),
    }
}

#[test]
fn every_spelling_is_read_whole_and_in_slices() {
    let cpu = cpu();
    for style in STYLES {
        let (_folder, files, experts) = folder(style);
        let quantized = Quantized {
            files: &files,
            description: DESCRIPTION,
            cpu: &cpu,
            arithmetic: Arithmetic::Exact,
        };
        for inner in [0..96, 0..32, 32..96, 64..96] {
            for (index, expert) in experts.iter().enumerate() {
                for (projection, weight) in Projection::ALL.into_iter().zip(expert) {
                    let made = quantized.expert(SHAPE, index, projection, inner.clone());
                    let made = made.unwrap_or_else(|error| panic!("{style:?}: {error}"));
                    if matches!(style, Style::Floats) {
                        assert!(made.is_none(), "floats are not quantized");
                        continue;
                    }
                    let made = made.unwrap_or_else(|| panic!("{style:?} {projection:?} is quantized"));
                    let expected = kept(weight, projection, &inner);
                    assert_eq!(rows_of(&made), expected, "{style:?} {index} {projection:?} {inner:?}");
                }
            }
        }
    }
}

#[test]
fn a_weight_with_a_name_of_its_own_is_read() {
    let cpu = cpu();
    for style in STYLES {
        let mut weight = weight(64, 96, 5);
        let folder = save(&writer::write_linear(style, "layer.proj", &mut weight));
        let files = SafetensorsFolder::open(folder.path()).expect("a good file");
        let quantized = Quantized {
            files: &files,
            description: DESCRIPTION,
            cpu: &cpu,
            arithmetic: Arithmetic::Exact,
        };
        let made = quantized.linear("layer.proj", [64, 96]).expect("it fits");
        if matches!(style, Style::Floats) {
            assert!(made.is_none(), "floats are not quantized");
            continue;
        }
        let (matrix, mut names) = made.unwrap_or_else(|| panic!("{style:?} is quantized"));
        assert_eq!(rows_of(&matrix), weight.values, "{style:?}");
        names.sort_unstable();
        let mut there: Vec<_> = files.names().collect();
        there.sort_unstable();
        assert_eq!(names, there, "{style:?}");
    }
}

#[test]
fn every_tensor_has_a_known_name() {
    let cpu = cpu();
    for style in STYLES {
        let (_folder, files, _) = folder(style);
        let quantized = Quantized {
            files: &files,
            description: DESCRIPTION,
            cpu: &cpu,
            arithmetic: Arithmetic::Exact,
        };
        let there: BTreeSet<_> = files.names().map(str::to_owned).collect();
        assert_eq!(quantized.names(SHAPE), there, "{style:?}");
        let unit = quantized.unit(SHAPE);
        assert!([1, 8, 16, 32].contains(&unit) && 96 % unit == 0, "{style:?}: {unit}");
    }
}

#[test]
fn says_which_tensor_is_wrong() {
    let cpu = cpu();
    let error = |style: Style, leave: &str, shape: ExpertsShape<'_>, inner: Range<usize>| {
        let expert = |e: usize| [weight(96, 64, e), weight(96, 64, e + 10), weight(64, 96, e + 20)];
        let mut tensors = writer::write(style, PREFIX, &mut [expert(0), expert(1), expert(2)]);
        tensors.retain(|(name, _)| !name.ends_with(leave));
        let folder = save(&tensors);
        let files = SafetensorsFolder::open(folder.path()).expect("a good file");
        let quantized = Quantized {
            files: &files,
            description: DESCRIPTION,
            cpu: &cpu,
            arithmetic: Arithmetic::Exact,
        };
        let made = quantized.expert(shape, 1, Projection::Down, inner);
        made.expect_err("something is wrong").to_string()
    };
    assert_eq!(
        error(Style::Nvfp4Stacked, "_proj_weight_scale", SHAPE, 0..96),
        format!("tensor '{PREFIX}.down_proj_weight_scale' is missing")
    );
    let wider = ExpertsShape { inner: 128, ..SHAPE };
    assert_eq!(
        error(Style::Int4OwnFused, "nothing", wider, 0..128),
        format!("tensor '{PREFIX}.1.w2_weight.qweight' is [12, 64], expected [16, 64]")
    );
    assert_eq!(
        error(Style::Mxfp4Own, "nothing", SHAPE, 0..48),
        format!("tensor '{PREFIX}.1.down_proj.weight': columns 0 to 48 are not whole groups of 32, which MXFP4 needs")
    );
}

#[test]
fn the_description_is_read_from_either_file() {
    let usual = Description::read(b"{}", None);
    assert_eq!((usual.group_len, usual.block), (None, [128, 128]));
    let config = br#"{"quantization_config": {"quant_method": "fp8", "weight_block_size": [64, 32]}}"#;
    assert_eq!(Description::read(config, None).block, [64, 32]);
    let config = br#"{"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 64}}"#;
    assert_eq!(Description::read(config, None).group_len, Some(64));
    let beside = br#"{"quantization": {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head"]}}"#;
    assert_eq!(Description::read(b"{}", Some(beside)).group_len, Some(16));
    let whole = br#"{"quantization_config": {"group_size": -1}}"#;
    assert_eq!(
        Description::read(whole, None).group_len,
        None,
        "one group, as the scales say"
    );
}
