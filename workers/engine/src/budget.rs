//! How many blocks each KV class should get of a given amount of memory.

use crate::{KvClass, KvKind};

/// Splits `memory_bytes` over the classes of a model.
///
/// A window class needs only so many blocks: what `running_max` sequences read at once, as much again for the ends of
/// cached prompts, and the chunks of one step. All other memory goes to the full classes, whose blocks are what lets
/// contexts be long and caches be large. No class gets more blocks than its pages can use: where memory is short or
/// contexts are, all classes have equally many. The result may be zero where memory does not even suffice for that.
pub fn blocks_for(
    classes: &[KvClass],
    memory_bytes: u64,
    running_max: u32,
    step_tokens: u32,
    context: u32,
) -> Vec<u32> {
    let page_bytes: u64 = classes.iter().map(|class| class.block_bytes as u64).sum();
    let pages = memory_bytes / page_bytes.max(1);
    let wanted: Vec<Option<u64>> = classes
        .iter()
        .map(|class| window_blocks(class, running_max, step_tokens, context).map(|blocks| blocks.min(pages)))
        .collect();
    let window_bytes: u64 = classes
        .iter()
        .zip(&wanted)
        .map(|(class, blocks)| blocks.unwrap_or(0) * class.block_bytes as u64)
        .sum();
    let full_bytes: u64 = classes
        .iter()
        .zip(&wanted)
        .filter(|(_, blocks)| blocks.is_none())
        .map(|(class, _)| class.block_bytes as u64)
        .sum();
    let full = (memory_bytes - window_bytes) / full_bytes.max(1);
    let blocks = wanted.into_iter().map(|blocks| blocks.unwrap_or(full));
    blocks.map(|blocks| u32::try_from(blocks).unwrap_or(u32::MAX)).collect()
}

/// The most blocks that a window class has a use for; none for other classes.
fn window_blocks(class: &KvClass, running_max: u32, step_tokens: u32, context: u32) -> Option<u64> {
    let KvKind::Window { tokens } = class.kind else {
        return None;
    };
    let per_sequence = live_pages(tokens, class.block_tokens).min(context.div_ceil(class.block_tokens));
    // Each sequence's chunk of a step may begin and end within a block.
    let step = u64::from(step_tokens / class.block_tokens) + u64::from(running_max);
    Some(2 * u64::from(running_max) * u64::from(per_sequence) + step)
}

/// How many pages a window of `tokens` positions touches at most, wherever it lies.
pub(crate) fn live_pages(tokens: u32, block_tokens: u32) -> u32 {
    tokens.saturating_sub(1).div_ceil(block_tokens) + 1
}

#[cfg(test)]
mod tests;
