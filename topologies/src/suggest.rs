//! The word someone probably meant.

/// The word of `known` that is nearest to `word`, if any is near enough to be a slip.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let reach = (word.chars().count() / 3).max(1);
    known
        .into_iter()
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= reach || candidate.starts_with(word) && word.len() >= 3)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// How many letters must be put in, taken out, replaced or swapped with their neighbour; `-` and `_` are the same letter.
fn distance(left: &str, right: &str) -> usize {
    let letters = |text: &str| text.to_lowercase().replace('-', "_").chars().collect::<Vec<_>>();
    let (left, right) = (letters(left), letters(right));
    let mut earlier = Vec::new();
    let mut above: Vec<usize> = (0..=right.len()).collect();
    for i in 1..=left.len() {
        let mut row = vec![i];
        for j in 1..=right.len() {
            let replaced = above[j - 1] + usize::from(left[i - 1] != right[j - 1]);
            let mut best = replaced.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && left[i - 1] == right[j - 2] && left[i - 2] == right[j - 1] {
                let before_swap: usize = earlier[j - 2];
                best = best.min(before_swap + 1);
            }
            row.push(best);
        }
        earlier = std::mem::replace(&mut above, row);
    }
    above[right.len()]
}

#[cfg(test)]
mod tests;
