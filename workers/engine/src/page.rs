//! A page on its way: to a decode worker, or to a lower tier and back.
//!
//! ```text
//!  model with one KV class      block
//!  model with several           which classes (1 byte, bit i for class i) | block of each of them, in order
//! ```
//! A page without its block of a window class is of use only inside a prefix, where no later query reads that block.

use crate::{BlockId, KvClass, Model, ModelError};

/// Most classes a model may have: the bits of the first byte.
pub(crate) const CLASSES_MAX: usize = 8;

/// The bytes of a page; classes without a block are left out.
pub(crate) fn export(model: &dyn Model, classes: &[KvClass], blocks: impl IntoIterator<Item = BlockId>) -> Vec<u8> {
    let present = blocks
        .into_iter()
        .enumerate()
        .filter(|(_, block)| *block != BlockId::NONE);
    let size = classes.iter().map(|class| class.block_bytes).sum::<usize>() + header_len(classes);
    let mut bytes = Vec::with_capacity(size);
    bytes.resize(header_len(classes), 0);
    for (class, block) in present {
        if let Some(mask) = bytes.first_mut().filter(|_| classes.len() > 1) {
            *mask |= 1 << class;
        }
        model.export(class, block, &mut bytes);
    }
    bytes
}

/// How long a page with blocks of these classes is.
pub(crate) fn len(classes: &[KvClass], present: impl Iterator<Item = bool>) -> usize {
    let blocks = classes.iter().zip(present).filter(|(_, is_present)| *is_present);
    blocks.map(|(class, _)| class.block_bytes).sum::<usize>() + header_len(classes)
}

fn header_len(classes: &[KvClass]) -> usize {
    usize::from(classes.len() > 1)
}

/// The block of each class in a page's bytes; none for classes that were left out.
pub(crate) fn parts<'a>(classes: &[KvClass], bytes: &'a [u8]) -> Result<Vec<Option<&'a [u8]>>, ModelError> {
    let (mask, mut rest) = match bytes.split_first() {
        Some((mask, rest)) if classes.len() > 1 => (*mask, rest),
        _ => (1, bytes),
    };
    let has = |class: usize| mask & 1 << class != 0;
    let expected = len(classes, (0..classes.len()).map(has));
    if bytes.len() != expected {
        let got = bytes.len();
        return Err(ModelError::PageSize { expected, got });
    }
    let parts = classes.iter().enumerate().map(|(index, class)| {
        has(index).then(|| {
            let (own, others) = rest.split_at(class.block_bytes);
            rest = others;
            own
        })
    });
    Ok(parts.collect())
}

/// Writes the blocks of a page that a table has a place for.
pub(crate) fn import(
    model: &mut dyn Model,
    blocks: impl Iterator<Item = BlockId>,
    parts: &[Option<&[u8]>],
) -> Result<(), ModelError> {
    for (class, (block, part)) in blocks.zip(parts).enumerate() {
        if let Some(part) = part.filter(|_| block != BlockId::NONE) {
            model.import(class, block, part)?;
        }
    }
    Ok(())
}
