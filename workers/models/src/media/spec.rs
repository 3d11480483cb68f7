//! The description of a media model: its towers, and how what they are given is prepared.

mod file;

use super::resize::Filter;

pub(crate) use file::read;

/// What the towers are, and what they are given.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct MediaSpec {
    pub(crate) pictures: PictureSpec,
    /// None: the model takes no pictures.
    pub(crate) vision: Option<VisionSpec>,
    /// None: the model takes no sounds.
    pub(crate) audio: Option<AudioSpec>,
    /// Width of the adapter between the vision tower and the language model.
    pub(crate) adapter: usize,
    /// Width of the language model.
    pub(crate) width: usize,
    /// Of the language model's norm of embeddings, which rows of media pass too.
    pub(crate) epsilon: f32,
}

/// How pictures are prepared.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct PictureSpec {
    pub(crate) filter: Filter,
    pub(crate) mean: [f32; 3],
    pub(crate) deviation: [f32; 3],
    /// Tokens of a picture.
    pub(crate) image_tokens_max: u32,
    /// Tokens of a video's frame.
    pub(crate) frame_tokens_max: u32,
}

/// The vision tower.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct VisionSpec {
    pub(crate) width: usize,
    pub(crate) inner: usize,
    pub(crate) heads: usize,
    pub(crate) layers: Vec<Reach>,
    /// Pixels of a patch's side.
    pub(crate) patch: usize,
    /// Frames of a patch.
    pub(crate) frames: usize,
    /// Patches of a token's side.
    pub(crate) merge: usize,
    /// Rows and columns of the position table, and patches of a window.
    pub(crate) table: [usize; 2],
    pub(crate) epsilon: f32,
    pub(crate) theta: f32,
}

/// What a layer's tokens see.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reach {
    /// Their window.
    Window,
    /// Their clip.
    Full,
}

/// The audio tower.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct AudioSpec {
    pub(crate) stages: Vec<StageSpec>,
    pub(crate) taps: usize,
    pub(crate) epsilon: f32,
    pub(crate) sample_rate: u32,
}

/// One stage of the audio tower.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct StageSpec {
    /// Steps that become one.
    pub(crate) patch: usize,
    pub(crate) width: usize,
    pub(crate) inner: usize,
    pub(crate) blocks: usize,
}

impl VisionSpec {
    /// Numbers of a patch.
    pub(crate) fn patch_len(&self) -> usize {
        self.frames * 3 * self.patch * self.patch
    }

    /// Pixels of a token's side.
    pub(crate) fn cell(&self) -> u32 {
        (self.patch * self.merge) as u32
    }

    /// Numbers of a merged token.
    pub(crate) fn merged(&self) -> usize {
        self.width * self.merge * self.merge
    }

    pub(crate) fn head_dim(&self) -> usize {
        self.width / self.heads
    }
}

impl AudioSpec {
    /// Samples that become one token.
    pub(crate) fn samples_per_token(&self) -> usize {
        self.stages.iter().map(|stage| stage.patch).product()
    }
}

#[cfg(test)]
mod tests;
