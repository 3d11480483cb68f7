//! The tensors of one weight, checked against its shape.

use std::borrow::Cow;

use ::safetensors::Dtype;
use cluster_kernels::{Fp8Scales, QuantizedWeight, ScaleType};

use super::{Description, Place, spelling::Spelling};
use crate::{
    safetensors::{RawTensor, SafetensorsFolder},
    weights::WeightsError,
};

/// A weight's bytes.
pub(super) struct Parts<'a> {
    codes: &'a [u8],
    scales: Scales<'a>,
}

enum Scales<'a> {
    Nvfp4 {
        scales: &'a [u8],
        global: f32,
    },
    Mxfp4(&'a [u8]),
    Fp8(Fp8Scales<'a>),
    Int4 {
        scales: &'a [u8],
        zeros: Cow<'a, [u8]>,
        group_len: usize,
        group_of: Option<&'a [u8]>,
    },
}

impl<'a> Parts<'a> {
    /// Reads the tensors; None where the weight is one of floats.
    pub(super) fn read(
        files: &'a SafetensorsFolder,
        spelling: &Spelling,
        place: &Place,
        description: &Description,
    ) -> Result<Option<Self>, WeightsError> {
        let reader = Reader { files, spelling, place };
        let codes = files
            .raw(&spelling.codes)
            .ok_or_else(|| WeightsError::Missing(spelling.codes.clone()))?;
        let [rows, cols] = place.whole();
        let (scales, one) = match codes.dtype {
            Dtype::F32 | Dtype::F16 | Dtype::BF16 => return Ok(None),
            Dtype::U8 | Dtype::I8 => (reader.four_bit_scales()?, [rows, cols / 2]),
            Dtype::F8_E4M3 => (reader.fp8_scales(description.block)?, [rows, cols]),
            Dtype::I32 => (reader.int4_scales(description.group_len)?, [cols / 8, rows]),
            _ => return Err(unsupported(&spelling.codes, &codes)),
        };
        expect_shape(&spelling.codes, &codes, place.dimensions(&one))?;
        Ok(Some(Self {
            codes: place.slice(codes.bytes),
            scales,
        }))
    }

    /// As the kernels take it.
    pub(super) fn weight(&self) -> QuantizedWeight<'_> {
        let codes = self.codes;
        match &self.scales {
            Scales::Nvfp4 { scales, global } => QuantizedWeight::Nvfp4 {
                codes,
                scales,
                global: *global,
            },
            Scales::Mxfp4(scales) => QuantizedWeight::Mxfp4 { codes, scales },
            Scales::Fp8(scales) => QuantizedWeight::Fp8 { codes, scales: *scales },
            Scales::Int4 {
                scales,
                zeros,
                group_len,
                group_of,
            } => QuantizedWeight::Int4 {
                codes,
                scales,
                zeros,
                group_len: *group_len,
                group_of: *group_of,
            },
        }
    }
}

struct Reader<'a, 'b> {
    files: &'a SafetensorsFolder,
    spelling: &'b Spelling,
    place: &'b Place,
}

impl<'a> Reader<'a, '_> {
    /// The scales of NVFP4, if there is a second one, or of MXFP4.
    fn four_bit_scales(&self) -> Result<Scales<'a>, WeightsError> {
        let [rows, cols] = self.place.whole();
        let (name, scales) = self.first_of(&["scale"])?;
        let second = self.optional("scale_2");
        let (group, types): (usize, &[Dtype]) = match second {
            Some(_) => (16, &[Dtype::F8_E4M3, Dtype::U8]),
            None => (32, &[Dtype::U8, Dtype::F8_E8M0]),
        };
        expect_type(&name, &scales, types)?;
        expect_shape(&name, &scales, self.place.dimensions(&[rows, cols / group]))?;
        let scales = self.place.slice(scales.bytes);
        Ok(match second {
            Some((name, second)) => Scales::Nvfp4 {
                scales,
                global: self.global(&name, &second)?,
            },
            None => Scales::Mxfp4(scales),
        })
    }

    /// The second scale: one for the weight, or one for each half of it.
    fn global(&self, name: &str, tensor: &RawTensor<'_>) -> Result<f32, WeightsError> {
        expect_type(name, tensor, &[Dtype::F32])?;
        let sharing = self.place.index.map_or(1, |_| self.place.count);
        let numbers = tensor.bytes.as_chunks::<4>().0;
        let each = numbers.len() / sharing;
        if each * sharing != numbers.len() || each != 1 && each != self.place.halves {
            let expected = self.place.dimensions(&[self.place.halves]);
            return Err(wrong_shape(name, tensor, expected));
        }
        let own = if each == 1 { 0 } else { self.place.half };
        let at = self.place.index.unwrap_or(0) * each + own;
        Ok(f32::from_le_bytes(numbers[at]))
    }

    /// One scale for the weight or for each of its halves, for each row, or for each block.
    fn fp8_scales(&self, block: [usize; 2]) -> Result<Scales<'a>, WeightsError> {
        let [rows, cols] = self.place.whole();
        let (name, tensor) = self.first_of(&["scale_inv", "scale"])?;
        let dtype = match tensor.dtype {
            Dtype::F32 => ScaleType::F32,
            Dtype::BF16 => ScaleType::BF16,
            Dtype::F8_E8M0 | Dtype::U8 => ScaleType::E8M0,
            _ => return Err(unsupported(&name, &tensor)),
        };
        let bytes = self.place.slice(tensor.bytes);
        let [across, down] = [rows.div_ceil(block[0]), cols.div_ceil(block[1])];
        let own = &tensor.shape[self.place.index.map_or(0, |_| 1).min(tensor.shape.len())..];
        let block = match own {
            [] | [1] | [1, 1] => [rows, cols],
            [halves] | [halves, 1] if *halves == self.place.halves => [self.place.shape[0], cols],
            [each] | [each, 1] if *each == rows => [1, cols],
            [first, second] if [*first, *second] == [across, down] => block,
            _ => return Err(wrong_shape(&name, &tensor, self.place.dimensions(&[across, down]))),
        };
        Ok(Scales::Fp8(Fp8Scales { bytes, dtype, block }))
    }

    fn int4_scales(&self, group_len: Option<usize>) -> Result<Scales<'a>, WeightsError> {
        let [rows, cols] = self.place.whole();
        let (name, scales) = self.first_of(&["scales"])?;
        expect_type(&name, &scales, &[Dtype::F16])?;
        let groups = scales.shape.iter().rev().nth(1).copied().unwrap_or(1).max(1);
        expect_shape(&name, &scales, self.place.dimensions(&[groups, rows]))?;
        let group_len = group_len.unwrap_or_else(|| cols.div_ceil(groups));
        let zeros = match self.optional("qzeros") {
            Some((name, zeros)) => {
                expect_type(&name, &zeros, &[Dtype::I32])?;
                expect_shape(&name, &zeros, self.place.dimensions(&[groups, rows.div_ceil(8)]))?;
                Cow::Borrowed(self.place.slice(zeros.bytes))
            }
            // Symmetric: eight stands for zero, stored less one.
            None => Cow::Owned(vec![0x77; groups * rows.div_ceil(8) * 4]),
        };
        let group_of = match self.optional("g_idx") {
            Some((name, index)) => {
                expect_type(&name, &index, &[Dtype::I32])?;
                expect_shape(&name, &index, self.place.dimensions(&[cols]))?;
                Some(self.place.slice(index.bytes))
            }
            None => None,
        };
        Ok(Scales::Int4 {
            scales: self.place.slice(scales.bytes),
            zeros,
            group_len,
            group_of,
        })
    }

    fn optional(&self, kind: &str) -> Option<(String, RawTensor<'a>)> {
        let name = self.spelling.companion(kind);
        let tensor = self.files.raw(&name)?;
        Some((name, tensor))
    }

    /// The companion of the first kind that is there.
    fn first_of(&self, kinds: &[&str]) -> Result<(String, RawTensor<'a>), WeightsError> {
        let found = kinds.iter().find_map(|kind| self.optional(kind));
        found.ok_or_else(|| WeightsError::Missing(self.spelling.companion(kinds[0])))
    }
}

fn expect_type(name: &str, tensor: &RawTensor<'_>, types: &[Dtype]) -> Result<(), WeightsError> {
    if types.contains(&tensor.dtype) {
        return Ok(());
    }
    Err(unsupported(name, tensor))
}

fn unsupported(name: &str, tensor: &RawTensor<'_>) -> WeightsError {
    WeightsError::DType {
        name: name.into(),
        dtype: format!("{:?}", tensor.dtype),
    }
}

fn expect_shape(name: &str, tensor: &RawTensor<'_>, expected: Vec<usize>) -> Result<(), WeightsError> {
    if tensor.shape == expected {
        return Ok(());
    }
    Err(wrong_shape(name, tensor, expected))
}

fn wrong_shape(name: &str, tensor: &RawTensor<'_>, expected: Vec<usize>) -> WeightsError {
    WeightsError::Shape {
        name: name.into(),
        expected,
        got: tensor.shape.into(),
    }
}
