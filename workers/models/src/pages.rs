//! Blocks as they travel: all heads in order, whichever ranks keep them, so that a block may go from a worker with some
//! number of ranks to one with another.
//!
//! ```text
//!  page:    layer 0: head 0, head 1, head 2, head 3   layer 1: …
//!  rank 0:  layer 0: head 0, head 1                   layer 1: …
//!  rank 1:  layer 0: head 2, head 3                   layer 1: …
//! ```

use cluster_kernels::KvShape;

/// Which rank keeps which heads.
#[derive(Clone, Debug)]
pub(crate) struct HeadMap {
    /// The heads of each rank, place by place.
    ranks: Vec<Vec<usize>>,
    /// Of each head a rank that keeps it, and at which place.
    keepers: Vec<(usize, usize)>,
}

impl HeadMap {
    /// Of `heads` heads and these of each rank.
    pub(crate) fn new(heads: usize, ranks: Vec<Vec<usize>>) -> Self {
        let keeper = |head| {
            let places = ranks.iter().enumerate();
            let mut found = places.filter_map(|(rank, kept)| Some((rank, kept.iter().position(|kept| *kept == head)?)));
            found.next().expect("every head has a query head that reads it")
        };
        Self {
            keepers: (0..heads).map(keeper).collect(),
            ranks,
        }
    }

    /// The shape of a rank's blocks.
    pub(crate) fn shape(&self, rank: usize, whole: KvShape) -> KvShape {
        KvShape {
            kv_heads: self.ranks[rank].len(),
            ..whole
        }
    }

    /// Appends a page that is put together from each rank's part of a block.
    pub(crate) fn gather(&self, shape: KvShape, parts: &[Option<&[u8]>], page: &mut Vec<u8>) {
        let head_bytes = shape.block_bytes() / (shape.layers * shape.kv_heads);
        for layer in 0..shape.layers {
            for (rank, place) in &self.keepers {
                let part = parts[*rank].expect("a rank with a head has blocks");
                let first = (layer * self.ranks[*rank].len() + place) * head_bytes;
                page.extend_from_slice(&part[first..first + head_bytes]);
            }
        }
    }

    /// Overwrites a rank's part of a block with what is its own of a page.
    pub(crate) fn scatter(&self, shape: KvShape, rank: usize, page: &[u8], part: &mut [u8]) {
        let head_bytes = shape.block_bytes() / (shape.layers * shape.kv_heads);
        let mut places = part.chunks_exact_mut(head_bytes);
        for layer in 0..shape.layers {
            for (head, place) in self.ranks[rank].iter().zip(&mut places) {
                let first = (layer * shape.kv_heads + head) * head_bytes;
                place.copy_from_slice(&page[first..first + head_bytes]);
            }
        }
    }
}

#[cfg(test)]
mod tests;
