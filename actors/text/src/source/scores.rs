//! SentencePiece vocabularies say how good each piece is; byte pair encoding wants to know which pairs to merge first.

use std::collections::HashMap;

use tokenizers::models::bpe::Merges;

/// Every way to put a piece together from two others, the best piece first. Merging by this list gives what SentencePiece
/// gives by always taking the pair with the best score.
pub(super) fn merges(pieces: &HashMap<&str, u32>, scores: &[f32]) -> Merges {
    let mut found = Vec::new();
    for (piece, id) in pieces {
        for (at, _) in piece.char_indices().skip(1) {
            let (left, right) = piece.split_at(at);
            if let (Some(left_id), Some(right_id)) = (pieces.get(left), pieces.get(right)) {
                found.push((scores[*id as usize], *left_id, *right_id, left, right));
            }
        }
    }
    found.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2))));
    found
        .into_iter()
        .map(|(_, _, _, left, right)| (left.to_owned(), right.to_owned()))
        .collect()
}
