//! To what size a picture is brought: whole cells, at most so many, in nearly its own proportions.
//!
//! Of the four ways to round both sides down or up, the one nearest to the picture's proportions is taken. Two are often equally
//! near (always for a square picture), and the model was trained with the one that its makers' program met first while walking
//! through a small hash table. So the order of that table is part of the rule, and is followed here.

/// Slots of the table.
const SLOTS: u64 = 8;

/// Rows and columns of cells for a picture of this size, at least one each. Only a picture much longer than wide may exceed
/// `cells_max`.
pub(crate) fn cells(height: u32, width: u32, cell: u32, cells_max: u32) -> [u32; 2] {
    let (mut rows, mut columns) = (f64::from(height) / f64::from(cell), f64::from(width) / f64::from(cell));
    let proportion = rows / columns;
    let cells_max = f64::from(cells_max);
    if rows * columns > cells_max {
        let factor = (cells_max / (rows * columns)).sqrt();
        rows *= factor;
        columns *= factor;
    }
    let mut best: Option<([f64; 2], f64)> = None;
    for pair in visited(rows, columns) {
        let [rows, columns] = pair;
        if rows < 1.0 || columns < 1.0 || rows * columns > cells_max {
            continue;
        }
        let distance = (rows / columns - proportion).abs();
        if best.is_none_or(|(_, nearest)| distance < nearest) {
            best = Some((pair, distance));
        }
    }
    let rounded = [rows, columns].map(|side| side.round_ties_even().max(1.0));
    best.map_or(rounded, |(pair, _)| pair).map(|side| side as u32)
}

/// The roundings in the order of the table.
fn visited(rows: f64, columns: f64) -> impl Iterator<Item = [f64; 2]> {
    let mut slots: [Option<[f64; 2]>; SLOTS as usize] = [None; SLOTS as usize];
    for rows in [rows.floor(), rows.ceil()] {
        for columns in [columns.floor(), columns.ceil()] {
            insert(&mut slots, [rows, columns]);
        }
    }
    slots.into_iter().flatten()
}

fn insert(slots: &mut [Option<[f64; 2]>; SLOTS as usize], pair: [f64; 2]) {
    let mut perturb = hash(pair.map(|side| side as u64));
    let mut slot = perturb % SLOTS;
    while slots[slot as usize].is_some_and(|other| other != pair) {
        perturb >>= 5;
        slot = slot.wrapping_mul(5).wrapping_add(1).wrapping_add(perturb) % SLOTS;
    }
    slots[slot as usize] = Some(pair);
}

fn hash(pair: [u64; 2]) -> u64 {
    const START: u64 = 2_870_177_450_012_600_261;
    let mut sum = START;
    for number in pair {
        sum = sum.wrapping_add(number.wrapping_mul(14_029_467_366_897_019_727));
        sum = sum.rotate_left(31).wrapping_mul(11_400_714_785_074_694_791);
    }
    sum.wrapping_add(2 ^ START ^ 3_527_539)
}

#[cfg(test)]
mod tests;
