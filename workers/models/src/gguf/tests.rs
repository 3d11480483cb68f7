//! Files of all value types, and malformed ones: an error that says where, never a panic.

use super::{GgufError, GgufFile, Kind, Value};
use crate::spec;

/// Writes files for the tests.
#[derive(Default)]
struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    fn new(version: u32, tensors: u64, keys: u64) -> Self {
        Self::default()
            .raw(b"GGUF")
            .raw(&version.to_le_bytes())
            .u64(tensors)
            .u64(keys)
    }

    fn raw(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    fn u32(self, value: u32) -> Self {
        self.raw(&value.to_le_bytes())
    }

    fn u64(self, value: u64) -> Self {
        self.raw(&value.to_le_bytes())
    }

    fn str(self, text: &str) -> Self {
        self.u64(text.len() as u64).raw(text.as_bytes())
    }

    fn pair(self, key: &str, kind: Kind, value: &[u8]) -> Self {
        self.str(key).u32(kind as u32).raw(value)
    }

    fn tensor(self, name: &str, dims: &[u64], dtype: u32, offset: u64) -> Self {
        let head = self.str(name).u32(dims.len() as u32);
        let head = dims.iter().fold(head, |writer, dim| writer.u64(*dim));
        head.u32(dtype).u64(offset)
    }

    /// Zeros up to the alignment, then the data.
    fn data(mut self, alignment: usize, data: &[u8]) -> Self {
        let start = self.bytes.len().next_multiple_of(alignment);
        self.bytes.resize(start, 0);
        self.raw(data)
    }

    fn read(self) -> Result<GgufFile, GgufError> {
        GgufFile::from_bytes(self.bytes)
    }
}

fn every_type(version: u32) -> Writer {
    let names = Writer::default().u32(Kind::Str as u32).u64(2).str("a").str("äö").bytes;
    let nested = Writer::default().u32(Kind::Array as u32).u64(2);
    let nested = nested
        .u32(Kind::U8 as u32)
        .u64(3)
        .raw(&[1, 2, 3])
        .u32(Kind::Bool as u32)
        .u64(1)
        .raw(&[1])
        .bytes;
    let numbers = Writer::default()
        .u32(Kind::I32 as u32)
        .u64(2)
        .raw(&(-5_i32).to_le_bytes())
        .u32(6)
        .bytes;
    Writer::new(version, 2, 14)
        .pair("u8", Kind::U8, &[200])
        .pair("i8", Kind::I8, &[0xff])
        .pair("u16", Kind::U16, &60_000_u16.to_le_bytes())
        .pair("i16", Kind::I16, &(-300_i16).to_le_bytes())
        .pair("u32", Kind::U32, &4_000_000_000_u32.to_le_bytes())
        .pair("i32", Kind::I32, &(-7_i32).to_le_bytes())
        .pair("f32", Kind::F32, &1.5_f32.to_le_bytes())
        .pair("bool", Kind::Bool, &[1])
        .pair("str", Kind::Str, &Writer::default().str("text").bytes)
        .pair("names", Kind::Array, &names)
        .pair("numbers", Kind::Array, &numbers)
        .pair("nested", Kind::Array, &nested)
        .pair("u64", Kind::U64, &u64::MAX.to_le_bytes())
        .pair("f64", Kind::F64, &(-0.25_f64).to_le_bytes())
        .tensor("first", &[2, 3], 0, 0)
        .tensor("second", &[32], 8, 32)
        .data(32, &(0..66).collect::<Vec<u8>>())
}

#[test]
fn values_of_every_type_are_read() {
    for version in [2, 3] {
        let file = every_type(version).read().unwrap();
        assert_eq!(file.version(), version);
        assert_eq!(file.keys().count(), 14);
        assert_eq!(file.require::<u32>("u8").unwrap(), 200);
        assert_eq!(file.require::<i32>("i8").unwrap(), -1);
        assert_eq!(file.require::<u64>("u16").unwrap(), 60_000);
        assert_eq!(file.require::<i32>("i16").unwrap(), -300);
        assert_eq!(file.require::<usize>("u32").unwrap(), 4_000_000_000);
        assert_eq!(file.require::<i32>("i32").unwrap(), -7);
        assert_eq!(file.require::<f32>("f32").unwrap(), 1.5);
        assert!(file.require::<bool>("bool").unwrap());
        assert_eq!(file.require::<&str>("str").unwrap(), "text");
        assert_eq!(file.require::<Vec<&str>>("names").unwrap(), ["a", "äö"]);
        assert_eq!(file.require::<Vec<i32>>("numbers").unwrap(), [-5, 6]);
        assert_eq!(file.require::<u64>("u64").unwrap(), u64::MAX);
        assert_eq!(file.value("f64").unwrap(), Some(Value::Float(-0.25)));
        assert_eq!(file.get::<u32>("absent").unwrap(), None);
    }
}

#[test]
fn nested_arrays_are_read() {
    let file = every_type(3).read().unwrap();
    let Some(Value::Array(outer)) = file.value("nested").unwrap() else {
        panic!("an array was written");
    };
    let inner: Vec<(Kind, usize)> = outer
        .iter()
        .map(|value| match value.unwrap() {
            Value::Array(inner) => (inner.kind, inner.len),
            other => panic!("an array was written, not {other:?}"),
        })
        .collect();
    assert_eq!(inner, [(Kind::U8, 3), (Kind::Bool, 1)]);
}

#[test]
fn tensors_are_found_where_they_are() {
    let file = every_type(3).read().unwrap();
    let first = file.tensor("first").unwrap();
    assert_eq!(first.shape, [3, 2], "slowest first");
    assert_eq!(file.tensor_bytes(first), (0..24).collect::<Vec<u8>>());
    let second = file.tensor("second").unwrap();
    assert_eq!(file.tensor_bytes(second), (32..66).collect::<Vec<u8>>());
    assert_eq!(file.tensors().len(), 2);
    assert!(file.tensor("third").is_none());
}

#[test]
fn alignment_is_obeyed() {
    let file = Writer::new(3, 1, 1)
        .pair("general.alignment", Kind::U32, &64_u32.to_le_bytes())
        .tensor("only", &[4], 0, 0)
        .data(64, &[9; 16])
        .read()
        .unwrap();
    assert_eq!(file.tensor_bytes(&file.tensors()[0]), [9; 16]);
}

fn message(writer: Writer) -> String {
    writer.read().unwrap_err().to_string()
}

#[test]
fn wrong_headers_are_refused() {
    assert_eq!(
        message(Writer::default().raw(b"PK\x03\x04 and more")),
        "not a GGUF file: it starts with [50, 4b, 03, 04]"
    );
    assert_eq!(
        message(Writer::new(1, 0, 0)),
        "GGUF version 1 is not supported, only 2 and 3 (little-endian)"
    );
    assert_eq!(
        message(Writer::default()),
        "file ends early: 4 bytes at offset 0, 0 are there"
    );
}

#[test]
fn impossible_counts_and_lengths_are_refused() {
    let end = "file ends early: 8 bytes at offset 24, 0 are there";
    assert_eq!(message(Writer::new(3, u64::MAX, 0)), end);
    assert_eq!(message(Writer::new(3, 0, u64::MAX)), end);
    assert_eq!(
        message(Writer::new(3, 0, 1).u64(u64::MAX)),
        format!("file ends early: {} bytes at offset 32, 0 are there", u64::MAX)
    );
    for kind in [Kind::F64, Kind::Str, Kind::Array] {
        let array = Writer::default().u32(kind as u32).u64(u64::MAX).bytes;
        let error = message(Writer::new(3, 0, 1).pair("list", Kind::Array, &array));
        assert!(error.starts_with("file ends early"), "{error}");
    }
    let mut deep = Writer::default();
    for _ in 0..100 {
        deep = deep.u32(Kind::Array as u32).u64(1);
    }
    let deep = Writer::new(3, 0, 1).pair("deep", Kind::Array, &deep.bytes);
    assert_eq!(message(deep), "'deep' nests arrays too deeply");
}

#[test]
fn wrong_metadata_is_refused() {
    let twice = Writer::new(3, 0, 2)
        .pair("key", Kind::U8, &[1])
        .pair("key", Kind::U8, &[1]);
    assert_eq!(message(twice), "'key' occurs twice");
    let undefined = Writer::new(3, 0, 1).str("key").u32(13);
    assert_eq!(message(undefined), "value type 13 of 'key' is not defined");
    let alignment = Writer::new(3, 0, 1).pair("general.alignment", Kind::U32, &48_u32.to_le_bytes());
    assert_eq!(message(alignment), "alignment 48 is not a power of two of at least 8");
    let not_text = Writer::new(3, 0, 1).u64(2).raw(&[0xff, 0xfe]);
    assert_eq!(message(not_text), "string at offset 32 is not UTF-8");
}

#[test]
fn wrong_tensors_are_refused() {
    let one =
        |dims: &[u64], dtype, offset| message(Writer::new(3, 1, 0).tensor("w", dims, dtype, offset).data(32, &[0; 64]));
    assert_eq!(
        one(&[33], 8, 0),
        "tensor 'w' has dimensions [33]: the row length is not a multiple of the block length of its type"
    );
    assert_eq!(one(&[0, 4], 0, 0), "tensor 'w' has dimensions [0, 4]: a dimension is 0");
    assert_eq!(
        one(&[1 << 40, 1 << 40], 0, 0),
        "tensor 'w' has dimensions [1099511627776, 1099511627776]: their product overflows"
    );
    assert_eq!(one(&[4], 99, 0), "tensor 'w' has type 99, which is not supported");
    assert_eq!(
        one(&[16], 0, 4),
        "tensor 'w' needs bytes 4..68 of the data, which has 64"
    );
    assert!(one(&[16], 0, u64::MAX).contains("which has 64"));
    assert!(one(&[1, 1, 1, 1, 1], 0, 0).contains("between 1 and 4"));
    let twice = Writer::new(3, 2, 0)
        .tensor("w", &[1], 0, 0)
        .tensor("w", &[1], 0, 32)
        .data(32, &[0; 64]);
    assert_eq!(message(twice), "'w' occurs twice");
}

#[test]
fn a_value_of_another_type_is_named() {
    let file = every_type(3).read().unwrap();
    let error = file.require::<u32>("str").unwrap_err();
    assert_eq!(
        error.to_string(),
        "metadata 'str' is the string 'text', expected an integer (u32)"
    );
    let error = file.require::<u32>("i32").unwrap_err();
    assert_eq!(
        error.to_string(),
        "metadata 'i32' is the integer -7, expected an integer (u32)"
    );
    let error = file.require::<Vec<&str>>("numbers").unwrap_err();
    assert_eq!(
        error.to_string(),
        "metadata 'numbers' is an array of 2 I32, expected an array of matching type"
    );
    assert_eq!(
        file.require::<u32>("gone").unwrap_err().to_string(),
        "metadata has no 'gone'"
    );
}

#[test]
fn every_shortened_file_is_refused() {
    let whole = every_type(3).bytes;
    for len in 0..whole.len() {
        assert!(GgufFile::from_bytes(whole[..len].to_vec()).is_err(), "{len} bytes");
    }
}

/// Reads all there is, as a caller might.
fn read_all(bytes: Vec<u8>) {
    let Ok(file) = GgufFile::from_bytes(bytes) else {
        return;
    };
    for key in file.keys() {
        if let Ok(Some(Value::Array(array))) = file.value(key) {
            array.iter().take_while(Result::is_ok).for_each(drop);
        }
    }
    for tensor in file.tensors() {
        assert!(!file.tensor_bytes(tensor).is_empty());
    }
    let _ = spec::from_gguf(&file);
}

#[test]
fn no_damage_to_the_header_panics() {
    let real = include_bytes!("../../tests/fixtures/llama-tiny-gguf/model.gguf");
    let header = GgufFile::from_bytes(real.to_vec()).unwrap().tensors[0].range.start;
    let damages: [&dyn Fn(usize) -> u8; 2] = [&|at| 1 << (at % 8), &|_| 0xff];
    for (whole, end) in [(every_type(3).bytes, usize::MAX), (real.to_vec(), header)] {
        for at in 0..whole.len().min(end) {
            for damage in damages {
                let mut bytes = whole.clone();
                bytes[at] ^= damage(at);
                read_all(bytes);
            }
        }
    }
}
