//! Patches in their places: positions, windows, rotation angles and cells. Only whole numbers and a few formulas.
//!
//! ```text
//!   grid of one clip, 6 x 8 patches, windows of 4 x 4      order of windows: a, b, c, d
//!     a a a a b b b b                                      row-major within each
//!     …                                                    cells of 2 x 2 become one token each
//!     c c c c d d d d
//! ```

use std::ops::Range;

/// The patches of one picture or video.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Grid {
    /// Runs of frames; one for a picture.
    pub(crate) clips: usize,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

/// A share of an entry of the position table.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Share {
    pub(crate) entry: usize,
    pub(crate) weight: f32,
}

impl Grid {
    /// Patches of one clip.
    pub(crate) fn clip(&self) -> usize {
        self.rows * self.columns
    }

    /// All patches.
    pub(crate) fn patches(&self) -> usize {
        self.clips * self.clip()
    }

    /// What patch `index` of a clip takes of a position table of `height` x `width`: up to four entries.
    ///
    /// The index is divided by the number of *rows*. On a grid that is not square this is not the patch's own row and column; the
    /// model was trained so.
    pub(crate) fn shares(&self, index: usize, [height, width]: [usize; 2]) -> impl Iterator<Item = Share> {
        let (major, minor) = (index / self.rows, index % self.rows);
        let vertical = neighbours(major, height, self.columns);
        let horizontal = neighbours(minor, width, self.rows);
        vertical.into_iter().flatten().flat_map(move |(y, share_y)| {
            horizontal.into_iter().flatten().map(move |(x, share_x)| Share {
                entry: y * width + x,
                weight: share_y * share_x,
            })
        })
    }

    /// The patches of a clip window by window, and how many each window has.
    pub(crate) fn windows(&self, [height, width]: [usize; 2]) -> (Vec<usize>, Vec<usize>) {
        let (mut order, mut lengths) = (Vec::with_capacity(self.clip()), Vec::new());
        for top in (0..self.rows).step_by(height) {
            for left in (0..self.columns).step_by(width) {
                let rows = top..(top + height).min(self.rows);
                let columns = left..(left + width).min(self.columns);
                lengths.push(rows.len() * columns.len());
                order.extend(rows.flat_map(|row| self.run(row, columns.clone())));
            }
        }
        (order, lengths)
    }

    /// The patches of a clip cell by cell, `merge` x `merge` each.
    pub(crate) fn cells(&self, merge: usize) -> Vec<usize> {
        let mut order = Vec::with_capacity(self.clip());
        for top in (0..self.rows).step_by(merge) {
            for left in (0..self.columns).step_by(merge) {
                order.extend((top..top + merge).flat_map(|row| self.run(row, left..left + merge)));
            }
        }
        order
    }

    /// The rotation angles of patch `index` of a clip: those of its column, then those of its row, both counted from one.
    pub(crate) fn angles(&self, index: usize, frequencies: &[f32]) -> impl Iterator<Item = f32> {
        let (row, column) = (index / self.columns, index % self.columns);
        let axes = [column + 1, row + 1];
        axes.into_iter()
            .flat_map(move |place| frequencies.iter().map(move |frequency| place as f32 * frequency))
    }

    fn run(&self, row: usize, columns: Range<usize>) -> Range<usize> {
        row * self.columns + columns.start..row * self.columns + columns.end
    }
}

/// The two entries between which place `index` of `places` falls, each with its share, where the table of `entries` has them.
fn neighbours(index: usize, entries: usize, places: usize) -> [Option<(usize, f32)>; 2] {
    let at = (index as f32 + 0.5) * entries as f32 / places as f32 - 0.5;
    let below = at.floor();
    let above = at - below;
    [(below, 1.0 - above), (below + 1.0, above)].map(|(entry, share)| {
        let inside = entry >= 0.0 && entry < entries as f32;
        inside.then_some((entry as usize, share))
    })
}

#[cfg(test)]
mod tests;
