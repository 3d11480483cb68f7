//! Which of the waiting media run together. Pure.

use std::collections::VecDeque;

#[cfg(test)]
mod tests;

/// Takes a batch out of `queue`: the oldest, and those like it in size, in the order they came, while there is room. What is
/// more than twice as large or less than half as large waits for a batch of its own: in one batch the small would pay for the
/// large. Nobody waits for ever, because the oldest always goes.
pub(super) fn take<T>(queue: &mut VecDeque<T>, rows_of: impl Fn(&T) -> u32, media_max: usize, rows_max: u32) -> Vec<T> {
    let Some(oldest) = queue.pop_front() else {
        return Vec::new();
    };
    let size = u64::from(rows_of(&oldest));
    let mut room = u64::from(rows_max).saturating_sub(size);
    let mut batch = vec![oldest];
    let mut rest = VecDeque::with_capacity(queue.len());
    for item in queue.drain(..) {
        let rows = u64::from(rows_of(&item));
        let is_alike = rows <= 2 * size && size <= 2 * rows;
        if is_alike && rows <= room && batch.len() < media_max {
            room -= rows;
            batch.push(item);
        } else {
            rest.push_back(item);
        }
    }
    *queue = rest;
    batch
}
