//! Number formats of weights as they lie in files. A format is a row in a table: values of a block, bytes of a block.

/// A weight format. The quantized ones are those of GGUF, and those whose codes and scales other files keep apart: of
/// these a block here is what [`crate::QuantizedWeight`] brings together, scales first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[expect(missing_docs, reason = "the names are the formats' own")]
pub enum DType {
    F32,
    F16,
    BF16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2K,
    Q3K,
    Q4K,
    Q5K,
    Q6K,
    /// One byte, four bits of exponent and three of mantissa.
    F8E4M3,
    /// A power of two in E8M0, then 32 E2M1 codes.
    Mxfp4,
    /// Two E4M3 scales, then two times 16 E2M1 codes.
    Nvfp4,
    /// An f16 scale and a zero point, then 32 codes.
    Int4,
    /// Two f16 scales and two zero points, then two times 16 codes.
    Int4G16,
}

impl DType {
    /// All of them.
    pub const ALL: [DType; 18] = [
        DType::F32,
        DType::F16,
        DType::BF16,
        DType::Q4_0,
        DType::Q4_1,
        DType::Q5_0,
        DType::Q5_1,
        DType::Q8_0,
        DType::Q2K,
        DType::Q3K,
        DType::Q4K,
        DType::Q5K,
        DType::Q6K,
        DType::F8E4M3,
        DType::Mxfp4,
        DType::Nvfp4,
        DType::Int4,
        DType::Int4G16,
    ];

    /// Values of a block and its bytes.
    const fn block(self) -> (usize, usize) {
        match self {
            DType::F32 => (1, 4),
            DType::F16 | DType::BF16 => (1, 2),
            DType::Q4_0 => (32, 18),
            DType::Q4_1 => (32, 20),
            DType::Q5_0 => (32, 22),
            DType::Q5_1 => (32, 24),
            DType::Q8_0 => (32, 34),
            DType::Q2K => (256, 84),
            DType::Q3K => (256, 110),
            DType::Q4K => (256, 144),
            DType::Q5K => (256, 176),
            DType::Q6K => (256, 210),
            DType::F8E4M3 => (1, 1),
            DType::Mxfp4 => (32, 17),
            DType::Nvfp4 => (32, 18),
            DType::Int4 => (32, 19),
            DType::Int4G16 => (32, 22),
        }
    }

    /// Values that are stored together.
    pub const fn block_len(self) -> usize {
        self.block().0
    }

    /// Bytes of a block.
    pub const fn block_bytes(self) -> usize {
        self.block().1
    }

    /// Bytes of a row of `cols` values, which must be whole blocks.
    pub const fn row_bytes(self, cols: usize) -> usize {
        cols / self.block_len() * self.block_bytes()
    }

    /// Whether values are stored as floating-point numbers, one by one.
    pub const fn is_float(self) -> bool {
        self.block_len() == 1
    }
}
