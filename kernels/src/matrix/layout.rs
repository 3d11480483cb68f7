//! How packed weights lie in memory: sixteen rows side by side, so that a lane of a vector is an output.
//!
//! A *panel* is sixteen rows. Quantized formats cut rows into blocks of 32 columns:
//!
//! ```text
//!   panel:  codes     per block 64·bits bytes, in planes of 4, 2 and 1 bits
//!           scales    per unit sixteen f16 (a unit is a block's group, or eight blocks in the K formats); bf16 in MXFP4
//!           minima    the same, where the format has them
//!           factors   per block and group sixteen i8 that multiply the scales (K formats)
//!           offsets   per block and group sixteen i8 that multiply the minima (K formats with minima), or zero points
//!                     that multiply the scales (INT4)
//! ```
//! Unpacked, a block's codes are eight vectors of 64 bytes; byte 4·row + i of vector j is the code of column 4j + i.
//! A vector of a 4-bit plane holds vectors p and p + 4 in its low and high nibbles, one of a 2-bit plane vectors 4p to
//! 4p + 3, the one of a 1-bit plane all eight. A weight is scale·(code - ZERO) + minimum. E2M1 codes are looked up: twice
//! the number, plus ZERO, so their scales are stored halved. Columns past the last one of
//! a row, where it does not end with a block, meet activations of zero.
//!
//! Float formats are plain: column after column, sixteen rows each; FP8 has sixteen f32 scales for each run of columns
//! behind them.

use crate::DType;

/// Rows of a panel.
pub(crate) const PANEL: usize = 16;
/// Columns of a block.
pub(crate) const BLOCK: usize = 32;
/// Bytes of a vector of codes.
pub(crate) const VECTOR: usize = 64;
/// Vectors of a block's codes, unpacked.
pub(crate) const VECTORS: usize = BLOCK * PANEL / VECTOR;

/// What distinguishes a quantized format.
pub(crate) trait Format: Copy + Send + Sync {
    /// Bits of a code.
    const BITS: u32;
    /// The code that stands for zero.
    const ZERO: u8;
    /// Whether a minimum is added.
    const MINIMUM: bool;
    /// Groups of a block, each with its scale.
    const GROUPS: usize;
    /// Blocks that share an f16 scale, refined by factors when more than one.
    const UNIT: usize;
    /// Whether codes are E2M1.
    const E2M1: bool = false;
    /// Whether scales are bf16.
    const WIDE_SCALES: bool = false;
    /// Whether a minimum is a zero point times the scale.
    const ZERO_POINTS: bool = false;
}

/// Twice the number of each E2M1 code, plus the code for zero of the formats that have them.
pub(crate) const E2M1: [u8; 16] = [12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0];

macro_rules! formats {
    ($($name:ident: $bits:literal, $zero:literal, $minimum:literal, $groups:literal, $unit:literal $(, $flag:ident)*;)*) => {
        $(
            #[derive(Clone, Copy)]
            pub(crate) struct $name;
            impl Format for $name {
                const BITS: u32 = $bits;
                const ZERO: u8 = $zero;
                const MINIMUM: bool = $minimum;
                const GROUPS: usize = $groups;
                const UNIT: usize = $unit;
                $(const $flag: bool = true;)*
            }
        )*
    };
}

formats! {
    Q4_0: 4, 8, false, 1, 1;
    Q4_1: 4, 0, true, 1, 1;
    Q5_0: 5, 16, false, 1, 1;
    Q5_1: 5, 0, true, 1, 1;
    Q8_0: 8, 128, false, 1, 1;
    Q2K: 2, 0, true, 2, 8;
    Q3K: 3, 4, false, 2, 8;
    Q4K: 4, 0, true, 1, 8;
    Q5K: 5, 0, true, 1, 8;
    Q6K: 6, 32, false, 2, 8;
    Mxfp4: 4, 12, false, 1, 1, E2M1, WIDE_SCALES;
    Nvfp4: 4, 12, false, 2, 1, E2M1;
    Int4: 4, 0, true, 1, 1, ZERO_POINTS;
    Int4G16: 4, 0, true, 2, 1, ZERO_POINTS;
}

/// Calls `$call!(Format)` for the quantized format that `$dtype` names, `$otherwise` for a float format.
macro_rules! with_format {
    ($dtype:expr, $format:ident => $call:expr, $otherwise:expr) => {{
        use $crate::DType;
        use $crate::matrix::layout;
        macro_rules! call {
            ($name:ident) => {{
                type $format = layout::$name;
                $call
            }};
        }
        match $dtype {
            DType::Q4_0 => call!(Q4_0),
            DType::Q4_1 => call!(Q4_1),
            DType::Q5_0 => call!(Q5_0),
            DType::Q5_1 => call!(Q5_1),
            DType::Q8_0 => call!(Q8_0),
            DType::Q2K => call!(Q2K),
            DType::Q3K => call!(Q3K),
            DType::Q4K => call!(Q4K),
            DType::Q5K => call!(Q5K),
            DType::Q6K => call!(Q6K),
            DType::Mxfp4 => call!(Mxfp4),
            DType::Nvfp4 => call!(Nvfp4),
            DType::Int4 => call!(Int4),
            DType::Int4G16 => call!(Int4G16),
            DType::F32 | DType::F16 | DType::BF16 | DType::F8E4M3 => $otherwise,
        }
    }};
}
pub(crate) use with_format;

/// Where the parts of a panel start, and its size. All are multiples of a cache line but the small parts' own steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Parts {
    /// Blocks of a row (columns for a float format).
    pub(crate) blocks: usize,
    pub(crate) scales: usize,
    pub(crate) minima: usize,
    pub(crate) factors: usize,
    pub(crate) offsets: usize,
    /// Columns of FP8 that share a scale.
    pub(crate) scale_cols: usize,
    /// Bytes from panel to panel.
    pub(crate) bytes: usize,
}

impl Parts {
    /// Of a row of `cols` columns.
    pub(crate) fn new(dtype: DType, cols: usize) -> Self {
        Self::with_scales(dtype, cols, cols)
    }

    /// Of a row of `cols` columns, with a scale for each `scale_cols` if it is one of FP8.
    pub(crate) fn with_scales(dtype: DType, cols: usize, scale_cols: usize) -> Self {
        with_format!(dtype, F => Self::quantized::<F>(cols), Self::float(dtype, cols, scale_cols.max(1)))
    }

    fn float(dtype: DType, cols: usize, scale_cols: usize) -> Self {
        let scales = (cols * PANEL * dtype.block_bytes()).next_multiple_of(VECTOR);
        let runs = if dtype == DType::F8E4M3 {
            cols.div_ceil(scale_cols)
        } else {
            0
        };
        let bytes = scales + runs * PANEL * size_of::<f32>();
        Self {
            blocks: cols,
            scales,
            minima: bytes,
            factors: bytes,
            offsets: bytes,
            scale_cols,
            bytes,
        }
    }

    fn quantized<F: Format>(cols: usize) -> Self {
        let blocks = cols.div_ceil(BLOCK);
        let units = if F::UNIT > 1 {
            blocks / F::UNIT
        } else {
            blocks * F::GROUPS
        };
        let (halves, small) = (units * PANEL * 2, blocks * F::GROUPS * PANEL);
        let present = |present: bool, bytes: usize| if present { bytes } else { 0 };
        let scales = blocks * VECTOR * F::BITS as usize;
        let minima = scales + halves;
        let factors = minima + present(F::MINIMUM && !F::ZERO_POINTS, halves);
        let offsets = factors + present(F::UNIT > 1, small);
        let offsets_end = offsets + present(F::MINIMUM && F::UNIT > 1 || F::ZERO_POINTS, small);
        let bytes = offsets_end.next_multiple_of(VECTOR);
        Self {
            blocks,
            scales,
            minima,
            factors,
            offsets,
            scale_cols: 0,
            bytes,
        }
    }
}
