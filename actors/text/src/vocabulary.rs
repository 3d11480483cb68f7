//! What bytes each token id stands for, in one block of memory.

/// Token ids to bytes. Ids that no token has stand for nothing.
#[derive(Debug, Default)]
pub(crate) struct Vocabulary {
    bytes: Vec<u8>,
    /// Token `id` is `bytes[ends[id - 1]..ends[id]]`.
    ends: Vec<u32>,
    special: Vec<bool>,
}

/// One token while a vocabulary is put together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entry {
    pub(crate) bytes: Vec<u8>,
    /// A control token: structure, not text.
    pub(crate) special: bool,
}

impl Vocabulary {
    /// Entry `i` is token `i`.
    pub(crate) fn new(entries: &[Entry]) -> Self {
        let mut vocabulary = Self::default();
        for entry in entries {
            vocabulary.bytes.extend_from_slice(&entry.bytes);
            vocabulary.ends.push(vocabulary.bytes.len() as u32);
            vocabulary.special.push(entry.special);
        }
        vocabulary
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Empty for ids outside.
    pub(crate) fn bytes(&self, id: u32) -> &[u8] {
        let id = id as usize;
        let Some(end) = self.ends.get(id) else {
            return &[];
        };
        let start = if id == 0 { 0 } else { self.ends[id - 1] };
        &self.bytes[start as usize..*end as usize]
    }

    pub(crate) fn is_special(&self, id: u32) -> bool {
        self.special.get(id as usize).copied().unwrap_or(false)
    }
}
