//! The rows that stand in for the placeholders of a sequence's media: which are there, which are missing, which are asked
//! for. Rows come late and go early: they are needed only while their placeholders are computed.

use std::sync::Arc;

use cluster_messages::Medium;

use crate::{Embedded, sequence::Limits};

/// The rows of one sequence's media.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct MediaRows {
    media: Vec<Place>,
    /// Whether the host was asked for what is missing.
    asked: bool,
}

/// One medium: where its placeholders stand, and its rows while they are there.
#[derive(Clone, PartialEq, Debug)]
struct Place {
    first: u32,
    end: u32,
    rows: Option<Arc<[f32]>>,
}

impl MediaRows {
    pub(crate) fn of(media: &[Medium]) -> Self {
        let place = |medium: &Medium| Place {
            first: medium.first,
            end: medium.first.saturating_add(medium.tokens),
            rows: None,
        };
        Self {
            media: media.iter().map(place).collect(),
            asked: false,
        }
    }

    /// Placeholders of a medium, if there is such a medium.
    pub(crate) fn tokens(&self, index: u32) -> Option<u32> {
        self.media.get(index as usize).map(|place| place.end - place.first)
    }

    /// The media whose rows the positions from `computed` on lack, unless the host was asked for them before.
    pub(crate) fn ask(&mut self, computed: u32) -> Vec<u32> {
        if self.asked {
            return Vec::new();
        }
        let is_missing = |place: &Place| place.end > computed && place.rows.is_none();
        let missing: Vec<u32> = (0..)
            .zip(&self.media)
            .filter(|(_, place)| is_missing(place))
            .map(|(index, _)| index)
            .collect();
        self.asked = !missing.is_empty();
        missing
    }

    /// How many tokens from `computed` on can run without rows that are missing: whole pages before the medium, so that
    /// others can take over from there.
    pub(crate) fn runnable(&self, computed: u32, limits: Limits) -> u32 {
        let missing = self
            .media
            .iter()
            .find(|place| place.end > computed && place.rows.is_none());
        let Some(place) = missing else { return u32::MAX };
        let page_start = place.first / limits.block_tokens * limits.block_tokens;
        page_start.saturating_sub(computed)
    }

    /// Takes rows if they were asked for and have not come. They are dropped when their placeholders were found
    /// meanwhile, or when the sequence lost its blocks and will ask again.
    pub(crate) fn supply(&mut self, index: u32, rows: Arc<[f32]>, computed: u32) {
        let place = &mut self.media[index as usize];
        if self.asked && place.end > computed {
            place.rows.get_or_insert(rows);
        }
    }

    /// Drops the rows of placeholders that are computed.
    pub(crate) fn computed(&mut self, computed: u32) {
        for place in self.media.iter_mut().filter(|place| place.end <= computed) {
            place.rows = None;
        }
    }

    /// Drops all rows; they are asked for again when they are needed.
    pub(crate) fn forget(&mut self) {
        self.media.iter_mut().for_each(|place| place.rows = None);
        self.asked = false;
    }

    /// The rows for the positions `start..end`, of `width` numbers each.
    pub(crate) fn within(&self, start: u32, end: u32, width: u32) -> impl Iterator<Item = Embedded<'_>> {
        let overlapping = self
            .media
            .iter()
            .filter(move |place| place.first < end && place.end > start);
        overlapping.map(move |place| {
            let rows = place
                .rows
                .as_deref()
                .expect("a chunk ends before media whose rows are missing");
            let (first, last) = (place.first.max(start), place.end.min(end));
            let number = |position: u32| (position - place.first) as usize * width as usize;
            Embedded {
                first,
                rows: &rows[number(first)..number(last)],
            }
        })
    }
}

#[cfg(test)]
mod tests;
