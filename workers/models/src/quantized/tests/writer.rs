//! Writes experts in every published spelling, with the values that they stand for.

use ::safetensors::{Dtype, View};
use cluster_kernels::reference;

/// How to quantize, and what to call the tensors.
#[derive(Clone, Copy, Debug)]
pub(super) enum Style {
    Nvfp4Stacked,
    Nvfp4Own,
    Mxfp4Own,
    /// Scales for blocks.
    Fp8Own,
    /// Scales for rows.
    Fp8Stacked,
    Int4Stacked,
    Int4OwnFused,
    Int4Underscore,
    /// Not quantized.
    Floats,
}

impl Style {
    fn format(self) -> Format {
        match self {
            Style::Nvfp4Stacked | Style::Nvfp4Own => Format::Nvfp4,
            Style::Mxfp4Own => Format::Mxfp4,
            Style::Fp8Own => Format::Fp8Blocks,
            Style::Fp8Stacked => Format::Fp8Rows,
            Style::Int4Stacked | Style::Int4OwnFused | Style::Int4Underscore => Format::Int4,
            Style::Floats => Format::Floats,
        }
    }

    fn stacked(self) -> bool {
        matches!(
            self,
            Style::Nvfp4Stacked | Style::Fp8Stacked | Style::Int4Stacked | Style::Int4Underscore | Style::Floats
        )
    }

    fn fused(self) -> bool {
        self.stacked() || matches!(self, Style::Int4OwnFused)
    }

    /// The names of gate (or both), up and down.
    fn names(self) -> [&'static str; 3] {
        match self {
            Style::Int4OwnFused => ["w13_weight", "", "w2_weight"],
            Style::Int4Underscore => ["w13", "", "w2"],
            _ if self.fused() => ["gate_up_proj", "", "down_proj"],
            _ => ["gate_proj", "up_proj", "down_proj"],
        }
    }

    /// What a kind of tensor is called behind the weight's name.
    fn end(self, kind: &str) -> String {
        let int4 = matches!(self.format(), Format::Int4);
        match (kind, int4) {
            ("codes", true) if matches!(self, Style::Int4Underscore) => "_qweight".into(),
            (kind, true) if matches!(self, Style::Int4Underscore) => format!("_{kind}"),
            ("codes", true) => ".qweight".into(),
            (kind, true) => format!(".{kind}"),
            ("codes", false) if self.stacked() => String::new(),
            ("codes", false) => ".weight".into(),
            (kind, false) if self.stacked() => format!("_weight_{kind}"),
            (kind, false) => format!(".weight_{kind}"),
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Format {
    Nvfp4,
    Mxfp4,
    Fp8Blocks,
    Fp8Rows,
    Int4,
    Floats,
}

/// Columns of an INT4 group.
pub(super) const GROUP: usize = 16;
/// The sides of an FP8 block.
pub(super) const BLOCK: [usize; 2] = [24, 32];

/// A weight `[rows, cols]`.
#[derive(Clone)]
pub(super) struct Weight {
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) values: Vec<f32>,
}

/// The tensors of a weight, each with its kind.
type Parts = Vec<(&'static str, Stored)>;

/// A tensor of a file.
pub(super) struct Stored {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Stored {
    pub(super) fn new(dtype: Dtype, shape: Vec<usize>, bytes: Vec<u8>) -> Self {
        Self { dtype, shape, bytes }
    }

    pub(super) fn floats(shape: Vec<usize>, values: &[f32]) -> Self {
        Self::new(Dtype::F32, shape, little_endian(values))
    }
}

impl View for &Stored {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> std::borrow::Cow<'_, [u8]> {
        (&self.bytes).into()
    }

    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}

fn little_endian(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// Writes the experts' (gate, up, down) under `prefix`, and replaces their values by what is written.
pub(super) fn write(style: Style, prefix: &str, experts: &mut [[Weight; 3]]) -> Vec<(String, Stored)> {
    let mut tensors = Vec::new();
    let [gate_name, up_name, down_name] = style.names();
    let mut write = |name: &str, encode: &dyn Fn(&mut [Weight; 3]) -> Parts| {
        let all: Vec<_> = experts.iter_mut().map(encode).collect();
        tensors.extend(named(style, prefix, name, all));
    };
    if style.fused() {
        write(gate_name, &|[gate, up, _]| encode_pair(style.format(), gate, up));
    } else {
        write(gate_name, &|[gate, ..]| encode(style.format(), gate));
        write(up_name, &|[_, up, _]| encode(style.format(), up));
    }
    write(down_name, &|[.., down]| encode(style.format(), down));
    tensors
}

/// Writes a weight with a name of its own, and replaces its values by what is written.
pub(super) fn write_linear(style: Style, name: &str, weight: &mut Weight) -> Vec<(String, Stored)> {
    if style.format() == Format::Floats {
        let floats = Stored::floats(vec![weight.rows, weight.cols], &weight.values);
        return vec![(format!("{name}.weight"), floats)];
    }
    let parts = encode(style.format(), weight).into_iter();
    parts
        .map(|(kind, part)| (format!("{name}{}", style.end(kind)), part))
        .collect()
}

/// One tensor of each kind for each expert, or for all of them together.
fn named(style: Style, prefix: &str, name: &str, experts: Vec<Parts>) -> Vec<(String, Stored)> {
    let count = experts.len();
    let mut tensors: Vec<(String, Stored)> = Vec::new();
    for (index, parts) in experts.into_iter().enumerate() {
        for (place, (kind, part)) in parts.into_iter().enumerate() {
            let end = style.end(kind);
            if !style.stacked() {
                tensors.push((format!("{prefix}.{index}.{name}{end}"), part));
            } else if index == 0 {
                let shape = [count].into_iter().chain(part.shape).collect();
                tensors.push((format!("{prefix}.{name}{end}"), Stored { shape, ..part }));
            } else {
                tensors[place].1.bytes.extend(part.bytes);
            }
        }
    }
    tensors
}

/// Gate above up. Codes and scales of rows stand one after the other; INT4 has outputs as columns.
fn encode_pair(format: Format, gate: &mut Weight, up: &mut Weight) -> Parts {
    if format == Format::Int4 || format == Format::Floats {
        let mut both = Weight {
            rows: gate.rows + up.rows,
            cols: gate.cols,
            values: [gate.values.as_slice(), &up.values].concat(),
        };
        let parts = encode(format, &mut both);
        let (first, second) = both.values.split_at(gate.values.len());
        (gate.values, up.values) = (first.to_vec(), second.to_vec());
        return parts;
    }
    let (first, second) = (encode(format, gate), encode(format, up));
    let join = |((kind, first), (_, second)): ((&'static str, Stored), (_, Stored))| {
        // A scale for all becomes one for each half.
        let mut shape = if first.shape.is_empty() { vec![1] } else { first.shape };
        shape[0] *= 2;
        (
            kind,
            Stored::new(first.dtype, shape, [first.bytes, second.bytes].concat()),
        )
    };
    first.into_iter().zip(second).map(join).collect()
}

fn encode(format: Format, weight: &mut Weight) -> Parts {
    let shape = vec![weight.rows, weight.cols];
    match format {
        Format::Nvfp4 => nvfp4(weight),
        Format::Mxfp4 => mxfp4(weight),
        Format::Fp8Blocks => fp8(weight, BLOCK),
        Format::Fp8Rows => fp8(weight, [1, weight.cols]),
        Format::Int4 => int4(weight),
        Format::Floats => vec![("codes", Stored::floats(shape, &weight.values))],
    }
}

fn nvfp4(weight: &mut Weight) -> Parts {
    let Weight { rows, cols, .. } = *weight;
    let largest = weight.values.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
    let global = largest / (448.0 * 6.0);
    let (mut codes, mut scales) = (Vec::new(), Vec::new());
    for row in weight.values.chunks_exact_mut(cols) {
        let packed = reference::quantize_nvfp4(row, global);
        for (col, value) in row.iter_mut().enumerate() {
            let scale = reference::decode_e4m3(packed.scales[col / 16]) * global;
            *value = reference::decode_e2m1(packed.codes[col / 2] >> (col % 2 * 4)) * scale;
        }
        codes.extend(packed.codes);
        scales.extend(packed.scales);
    }
    vec![
        ("codes", Stored::new(Dtype::U8, vec![rows, cols / 2], codes)),
        ("scale", Stored::new(Dtype::F8_E4M3, vec![rows, cols / 16], scales)),
        ("scale_2", Stored::floats(vec![], &[global])),
    ]
}

fn mxfp4(weight: &mut Weight) -> Parts {
    let Weight { rows, cols, .. } = *weight;
    let (mut codes, mut scales) = (Vec::new(), Vec::new());
    for row in weight.values.chunks_exact_mut(cols) {
        let packed = reference::quantize_mxfp4(row);
        for (col, value) in row.iter_mut().enumerate() {
            let scale = reference::decode_e8m0(packed.scales[col / 32]);
            *value = reference::decode_e2m1(packed.codes[col / 2] >> (col % 2 * 4)) * scale;
        }
        codes.extend(packed.codes);
        scales.extend(packed.scales);
    }
    vec![
        ("codes", Stored::new(Dtype::U8, vec![rows, cols / 2], codes)),
        ("scale", Stored::new(Dtype::U8, vec![rows, cols / 32], scales)),
    ]
}

fn fp8(weight: &mut Weight, block: [usize; 2]) -> Parts {
    let Weight { rows, cols, .. } = *weight;
    let [high, wide] = [rows.div_ceil(block[0]), cols.div_ceil(block[1])];
    let place = |i: usize| i / cols / block[0] * wide + i % cols / block[1];
    let mut scales = vec![0.0f32; high * wide];
    for (i, value) in weight.values.iter().enumerate() {
        scales[place(i)] = scales[place(i)].max(value.abs() / 448.0);
    }
    let mut codes = Vec::new();
    for (i, value) in weight.values.iter_mut().enumerate() {
        codes.push(reference::encode_e4m3(*value / scales[place(i)]));
        *value = reference::decode_e4m3(codes[i]) * scales[place(i)];
    }
    let kind = if block[0] == 1 { "scale" } else { "scale_inv" };
    vec![
        ("codes", Stored::new(Dtype::F8_E4M3, vec![rows, cols], codes)),
        (kind, Stored::floats(vec![high, wide], &scales)),
    ]
}

fn int4(weight: &mut Weight) -> Parts {
    let Weight { rows, cols, .. } = *weight;
    let groups = cols.div_ceil(GROUP);
    let mut codes = vec![0; rows * cols / 2];
    let mut zeros = vec![0; groups * rows / 2];
    let mut scales = vec![0; groups * rows * 2];
    // Nibble `index % 8` of a word in a table of `width` words a line.
    let put = |words: &mut [u8], line: usize, width: usize, word: usize, index: usize, nibble: u8| {
        words[(line * width + word) * 4 + index % 8 / 2] |= nibble << (index % 2 * 4);
    };
    for (row, values) in weight.values.chunks_exact_mut(cols).enumerate() {
        for (group, values) in values.chunks_mut(GROUP).enumerate() {
            let least = values.iter().fold(0.0f32, |least, x| least.min(*x));
            let most = values.iter().fold(0.0f32, |most, x| most.max(*x));
            let half = half::f16::from_f32((most - least) / 15.0);
            let scale = half.to_f32();
            let zero = (-least / scale).round().clamp(1.0, 16.0);
            let at = (group * rows + row) * 2;
            scales[at..at + 2].copy_from_slice(&half.to_le_bytes());
            put(&mut zeros, group, rows / 8, row / 8, row, zero as u8 - 1);
            for (i, value) in values.iter_mut().enumerate() {
                let code = ((*value / scale).round() + zero).clamp(0.0, 15.0);
                let col = group * GROUP + i;
                put(&mut codes, col / 8, rows, row, col, code as u8);
                *value = (code - zero) * scale;
            }
        }
    }
    vec![
        ("codes", Stored::new(Dtype::I32, vec![cols / 8, rows], codes)),
        ("scales", Stored::new(Dtype::F16, vec![groups, rows], scales)),
        ("qzeros", Stored::new(Dtype::I32, vec![groups, rows / 8], zeros)),
    ]
}
